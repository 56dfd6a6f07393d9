/* environment.c - the variables a handler is given (see environment.h) */
#include "worker/process/environment.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <bsd/stdlib.h>

#define PREFIX "MQW_"
#define MARK   "MQW_DELIVERY=%016" PRIx64 "-"

/* Copy environ without the variables of an outer worker. environ is NULL, not
 * an empty list, after clearenv(3), and in a program that was started without a
 * variable once setproctitle_init(3bsd) has copied it. */
int environment_base_open(struct environment_base *b, const char *queue,
                          uint64_t max_attempts, uint64_t nonce)
{
    char *none[] = {NULL}, **from = environ ? environ : none;
    size_t n = 0;

    memset(b, 0, sizeof *b);
    while (from[n])
        n++;
    b->vars = reallocarray(NULL, n + 3, sizeof *b->vars);
    if (!b->vars)
        return -ENOMEM;
    for (char **v = from; *v; v++)
        if (strncmp(*v, PREFIX, strlen(PREFIX)) != 0)
            b->vars[b->count++] = *v;
    snprintf(b->queue, sizeof b->queue, "MQW_QUEUE=%s", queue);
    snprintf(b->max_attempts, sizeof b->max_attempts,
             "MQW_MAX_ATTEMPTS=%" PRIu64, max_attempts);
    b->vars[b->count++] = b->queue;
    b->vars[b->count++] = b->max_attempts;
    b->vars[b->count] = NULL;
    b->nonce = nonce;
    return 0;
}

void environment_base_close(struct environment_base *b)
{
    free(b->vars);
    b->vars = NULL;
}

const char *environment_mark(uint64_t nonce, uint64_t seq,
                             char buf[ENVIRONMENT_MARK])
{
    snprintf(buf, ENVIRONMENT_MARK, MARK "%" PRIu64, nonce, seq);
    return buf;
}

/* A mark is a variable of its own: at the start, or after a NUL. */
bool environment_marked(const char *env, size_t size, uint64_t nonce,
                        uint64_t *seq)
{
    char mark[ENVIRONMENT_MARK];
    size_t length = (size_t)snprintf(mark, sizeof mark, MARK, nonce);

    for (const char *at = env; at < env + size; at += strlen(at) + 1)
        if (strncmp(at, mark, length) == 0) {
            *seq = strtoull(at + length, NULL, 10);
            return true;
        }
    return false;
}

/* Add a variable. There is room for everything that a header can hold. */
__attribute__((format(printf, 2, 3))) static void var_add(struct environment *e,
                                                          const char *fmt, ...)
{
    size_t room = sizeof e->text - e->used;
    va_list args;
    int n;

    if (e->count == e->at + ENVIRONMENT_VARS)
        return;
    va_start(args, fmt);
    n = vsnprintf(e->text + e->used, room, fmt, args);
    va_end(args);
    if (n < 0 || (size_t)n >= room)
        return;
    e->vars[e->count++] = e->text + e->used;
    e->used += (size_t)n + 1;
}

int environment_build(struct environment *e, const struct environment_base *b,
                      struct delivery *d, uint64_t max_attempts, int64_t letter)
{
    char mark[ENVIRONMENT_MARK], upper[HEADER_NAME_MAX + 1];
    struct header_text name, value;
    size_t cursor = 0;

    if (!e->vars) {
        e->vars = reallocarray(NULL, b->count + ENVIRONMENT_VARS + 1,
                               sizeof *e->vars);
        if (!e->vars)
            return -ENOMEM;
        e->at = b->count - 1; /* without the base's MQW_MAX_ATTEMPTS */
        memcpy(e->vars, b->vars, e->at * sizeof *e->vars);
    }
    e->count = e->at;
    e->used = 0;
    var_add(e, "MQW_MAX_ATTEMPTS=%" PRIu64, max_attempts);
    var_add(e, "MQW_ID=%s", delivery_id(d));
    var_add(e, "MQW_PRIORITY=%" PRIu32, d->message->priority);
    var_add(e, "MQW_ATTEMPT=%" PRIu32, d->message->failures + 1);
    var_add(e, "MQW_REDELIVERED=%d",
            (d->message->flags & MESSAGE_REDELIVERED) != 0);
    var_add(e, "MQW_RECEIVED_AT=%" PRIu64, d->message->received_ns);
    if (d->header.fields & HEADER_SENT)
        var_add(e, "MQW_SENT_AT=%" PRIu64, d->header.sent_ns);
    if (d->group.at)
        var_add(e, "MQW_GROUP=%.*s", (int)d->group.size, d->group.at);
    if (d->message->flags & MESSAGE_LENGTH_INFERRED)
        var_add(e, "MQW_LENGTH_INFERRED=1");
    var_add(e, "%s", environment_mark(b->nonce, d->message->seq, mark));
    /* x-name becomes MQW_X_NAME. */
    while (
        header_next_x(d->message->data, &d->header, &cursor, &name, &value)) {
        for (size_t i = 0; i < name.size; i++)
            upper[i] = name.at[i] == '-'
                           ? '_'
                           : (char)toupper((unsigned char)name.at[i]);
        upper[name.size] = '\0';
        var_add(e, "MQW_%s=%.*s", upper, (int)value.size, value.at);
    }
    if (letter)
        var_add(e, "MQW_LETTER=%" PRId64, letter);
    e->vars[e->count] = NULL;
    return 0;
}

void environment_close(struct environment *e)
{
    free(e->vars);
    e->vars = NULL;
}

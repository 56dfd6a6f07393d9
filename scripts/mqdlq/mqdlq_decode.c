/* mqdlq_decode.c - see mqdlq_json.h: a letter in (mqdlq_json.c: out) */
#include "scripts/mqdlq/mqdlq_json.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/safe_text.h"
#include "common/message/header.h"
#include "common/mq/queue.h"
#include "common/text/term.h"
#include "scripts/mqdlq/mqdlq_base64.h"

/* Memory of a draft, to be freed with it. */
struct draft_block {
    struct draft_block *next;
    _Alignas(16) char bytes[];
};

/* What is being read. */
struct reading {
    struct draft *draft;
    const json_t *object; /* the letter, or one attempt of it */
    char *why;
};

/* refuse - why the text is no letter */
__attribute__((format(printf, 2, 3))) static int refuse(const struct reading *r,
                                                        const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(r->why, JSON_WHY, fmt, args);
    va_end(args);
    return -EINVAL;
}

/* block_new - zeroed memory that lives as long as the draft */
static void *block_new(struct draft *d, size_t size)
{
    struct draft_block *b = calloc(1, sizeof *b + size);
    if (!b)
        return NULL;
    b->next = d->blocks;
    d->blocks = b;
    return b->bytes;
}

/* draft_free - give everything back */
void draft_free(struct draft *d)
{
    while (d->blocks) {
        struct draft_block *b = d->blocks;
        d->blocks = b->next;
        free(b);
    }
    *d = (struct draft){0};
}

/* bytes_keep - a copy with a NUL behind it */
static int bytes_keep(const struct reading *r, const void *data, size_t size,
                      const char **out)
{
    char *copy = block_new(r->draft, size + 1);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, data, size);
    *out = copy;
    return 0;
}

/* read_base64 - the field NAME_base64 */
static int read_base64(const struct reading *r, const char *name,
                       const json_t *value, const char **data, size_t *size)
{
    if (!json_is_string(value))
        return refuse(r, "%s_base64 is not a string", name);
    void *bytes = base64_decode(json_string_value(value),
                                json_string_length(value), size);
    if (!bytes && errno == ENOMEM)
        return -ENOMEM;
    if (!bytes)
        return refuse(r, "%s_base64 is not base64", name);
    int err = bytes_keep(r, bytes, *size, data);
    free(bytes);
    return err;
}

/* read_bytes - the field NAME or NAME_base64; NULL if it is null or missing */
static int read_bytes(const struct reading *r, const char *name,
                      const char **data, size_t *size)
{
    char name64[64];
    const json_t *value = json_object_get(r->object, name);
    snprintf(name64, sizeof name64, "%s_base64", name);
    const json_t *value64 = json_object_get(r->object, name64);
    *data = NULL;
    *size = 0;
    if (value && value64)
        return refuse(r, "both %s and %s are there", name, name64);
    if (value64)
        return read_base64(r, name, value64, data, size);
    if (!value || json_is_null(value))
        return 0;
    if (!json_is_string(value))
        return refuse(r, "%s is not a string", name);
    *size = json_string_length(value);
    return bytes_keep(r, json_string_value(value), *size, data);
}

/* read_number - 0 if it is null or missing */
static int read_number(const struct reading *r, const char *name, uint64_t most,
                       uint64_t *out)
{
    const json_t *value = json_object_get(r->object, name);
    *out = 0;
    if (!value || json_is_null(value))
        return 0;
    json_int_t n = json_integer_value(value);
    if (!json_is_integer(value) || n < 0 || (uint64_t)n > most)
        return refuse(r, "%s is not a number from 0 to %llu", name,
                      (unsigned long long)most);
    *out = (uint64_t)n;
    return 0;
}

/* read_number32 - the same for the smaller ones */
static int read_number32(const struct reading *r, const char *name,
                         uint64_t most, uint32_t *out)
{
    uint64_t n;
    int err = read_number(r, name, most, &n);
    *out = (uint32_t)n;
    return err;
}

/* read_time - NAME_ns, else NAME as text, else 0 */
static int read_time(const struct reading *r, const char *name, uint64_t *out)
{
    char name_ns[64];
    snprintf(name_ns, sizeof name_ns, "%s_ns", name);
    const json_t *text = json_object_get(r->object, name);
    if (json_object_get(r->object, name_ns) || !json_is_string(text))
        return read_number(r, name_ns, INT64_MAX, out);
    if (time_parse(json_string_value(text), clock_wall_ns(), out) == 0 &&
        *out <= INT64_MAX)
        return 0;
    return refuse(r,
                  "%s is not a time like 2026-11-20T19:22:59Z, up to the "
                  "year 2261",
                  name);
}

/* read_flag - a bit for a true */
static unsigned read_flag(const struct reading *r, const char *name,
                          unsigned bit)
{
    return json_is_true(json_object_get(r->object, name)) ? bit : 0;
}

/* refuse_reason - name what stands there, and what may */
static int refuse_reason(const struct reading *r, const char *reason)
{
    char safe[48];
    safe_text_copy(safe, sizeof safe, reason, strlen(reason));
    return refuse(r,
                  "reason \"%s\" is not one of exhausted, rejected, expired, "
                  "crashed, bad-header",
                  safe);
}

/* read_fate - when and of what it died; the time may be left out: now */
static int read_fate(const struct reading *r, struct store_row *m)
{
    size_t size;
    const char *reason =
        json_string_value(json_object_get(r->object, "reason"));
    m->reason = reason ? dead_reason_parse(reason) : REASON_NONE;
    if (!reason)
        return refuse(r, "reason is missing or not a string");
    if (m->reason == REASON_NONE || m->reason == REASON_COUNT)
        return refuse_reason(r, reason);
    int err = read_time(r, "died_at", &m->died_ns);
    if (!err && m->died_ns == 0)
        m->died_ns = clock_wall_ns();
    if (!err)
        err = read_bytes(r, "error", &m->error, &size);
    if (!err)
        err = read_number32(r, "attempts", UINT32_MAX, &m->attempts);
    if (!err)
        err = read_number32(r, "crashes", UINT32_MAX, &m->crashes);
    m->flags = read_flag(r, "redelivered", STORE_REDELIVERED) |
               read_flag(r, "length_inferred", STORE_LENGTH_INFERRED);
    return err;
}

/* read_group - a group the worker would take, too */
static int read_group(const struct reading *r, struct store_row *m)
{
    int err = read_bytes(r, "group", &m->group, &m->group_size);
    if (!err && m->group && !header_value_ok(m->group, m->group_size))
        return refuse(r, "group is not 1 to %d bytes of printable UTF-8",
                      HEADER_VALUE_MAX);
    return err;
}

/* read_id - a message id; one is made if there is none */
static int read_id(const struct reading *r, struct store_row *m)
{
    const json_t *value = json_object_get(r->object, "message_id");
    if (!value || json_is_null(value)) {
        m->id = ulid_make(clock_wall_ns());
        return 0;
    }
    const char *text = json_string_value(value);
    if (text && ulid_parse(text, strlen(text), &m->id) == 0)
        return 0;
    return refuse(r, "message_id is not an id of 26 characters");
}

/* message_join - header and body as one message */
static int message_join(const struct reading *r, struct store_row *m,
                        struct header_text header, struct header_text body)
{
    char *data = block_new(r->draft, header.size + body.size + 1);
    if (!data)
        return -ENOMEM;
    if (header.size > 0)
        memcpy(data, header.at, header.size);
    memcpy(data + header.size, body.at, body.size);
    m->data = data;
    m->size = header.size + body.size;
    m->header_size = header.size;
    return 0;
}

/* header_resize - the header with the number of its size line put right, for a
 * body that was edited */
static struct header_text header_resize(struct header_text header,
                                        size_t body_size,
                                        char buf[HEADER_MAX + 32])
{
    static const char line[] = "\nsize: ";
    const char *at = memmem(header.at, header.size, line, sizeof line - 1);
    if (!at)
        return header;
    size_t before = (size_t)(at - header.at) + sizeof line - 1;
    size_t digits = strspn(header.at + before, "0123456789");
    size_t after = header.size - before - digits;
    memcpy(buf, header.at, before);
    size_t n = before + (size_t)snprintf(buf + before, 21, "%zu", body_size);
    memcpy(buf + n, header.at + before + digits, after);
    return (struct header_text){buf, n + after};
}

/* header_check - a header must be one that the worker takes, all of it. A
 * letter that died of its header is left as it is. */
static int header_check(const struct reading *r, const struct store_row *m)
{
    struct header h;
    char why[HEADER_WHY] = "";
    if (m->header_size == 0 || m->reason == REASON_BAD_HEADER)
        return 0;
    if (header_parse(m->data, m->size, &h, why) != 0)
        return refuse(r, "header: %s", why);
    if (h.bytes != m->header_size)
        return refuse(r, "header does not end where it should");
    return 0;
}

/* read_message - header and body, put together again */
static int read_message(const struct reading *r, struct store_row *m)
{
    char resized[HEADER_MAX + 32];
    struct header_text header, body;
    int err = read_bytes(r, "header", &header.at, &header.size);
    if (!err)
        err = read_bytes(r, "body", &body.at, &body.size);
    if (err)
        return err;
    if (!body.at)
        return refuse(r, "neither body nor body_base64 is there");
    if (header.size > HEADER_MAX)
        return refuse(r, "header is over %d bytes", HEADER_MAX);
    if (header.size > 0 && m->reason != REASON_BAD_HEADER)
        header = header_resize(header, body.size, resized);
    err = message_join(r, m, header, body);
    return err ? err : header_check(r, m);
}

/* read_attempt - one failed delivery */
static int read_attempt(const struct reading *letter, const json_t *object,
                        struct store_attempt *a)
{
    struct reading r = *letter;
    size_t size;
    r.object = object;
    if (!json_is_object(object))
        return refuse(&r, "history has something else than objects in it");
    int err = read_time(&r, "started_at", &a->started_ns);
    if (!err)
        err = read_number(&r, "duration_ns", INT64_MAX, &a->duration_ns);
    if (!err)
        err = read_bytes(&r, "error", &a->error, &size);
    if (!err)
        err = read_bytes(&r, "stderr", &a->stderr_tail, &a->stderr_size);
    return err;
}

/* read_history - all of them; may be left out */
static int read_history(const struct reading *r, struct letter_import *l)
{
    const json_t *array = json_object_get(r->object, "history");
    if (!array || json_is_null(array))
        return 0;
    if (!json_is_array(array))
        return refuse(r, "history is not an array");
    size_t n = json_array_size(array);
    struct store_attempt *history =
        block_new(r->draft, (n + 1) * sizeof *history);
    if (!history)
        return -ENOMEM;
    int err = 0;
    for (size_t i = 0; i < n && !err; i++)
        err = read_attempt(r, json_array_get(array, i), &history[i]);
    l->history = history;
    l->history_count = n;
    return err;
}

/* read_letter - everything into the draft */
static int read_letter(const struct reading *r)
{
    struct letter_import *l = &r->draft->letter;
    struct store_row *m = &l->m;
    m->state = STORE_DEAD;
    if (!json_is_object(r->object))
        return refuse(r, "not a JSON object");
    int err = read_id(r, m);
    if (!err)
        err = read_fate(r, m);
    if (!err)
        err = read_number32(r, "priority", QUEUE_PRIORITY_MAX, &m->priority);
    if (!err)
        err = read_group(r, m);
    if (!err)
        err = read_time(r, "first_received_at", &m->first_received_ns);
    if (!err)
        err = read_message(r, m);
    return err ? err : read_history(r, l);
}

/* draft_read - one line of JSON */
int draft_read(struct draft *d, const char *text, size_t size,
               char why[JSON_WHY])
{
    json_error_t error;
    struct reading r = {.draft = d, .why = why};
    *d = (struct draft){0};
    json_t *object =
        json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    r.object = object;
    int err = object               ? read_letter(&r)
              : error.text[0] == 0 ? -ENOMEM /* it had nothing to refuse */
                                   : refuse(&r, "not JSON: %s (column %d)",
                                            error.text, error.column);
    json_decref(object);
    if (err)
        draft_free(d);
    return err;
}

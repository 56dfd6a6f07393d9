/* mqsend_envelope.c - see mqsend_envelope.h */
#include "scripts/mqsend/mqsend_envelope.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/text/json_line.h"

/* text_same - equal strings of given lengths */
static bool text_same(struct header_text a, struct header_text b)
{
    return a.size == b.size && memcmp(a.at, b.at, a.size) == 0;
}

/* envelope_add_x - one more x- line; a name twice would be one variable of the
 * handler with two values */
int envelope_add_x(struct envelope *e, const char *text, struct problem *p)
{
    const char *equals = strchr(text, '=');

    if (!equals)
        return problem_set(p, EX_USAGE, EINVAL,
                           "--header: \"%s\" is not x-name=value", text);
    struct header_x x = {
        .name = {text, (size_t)(equals - text)},
        .value = {equals + 1, strlen(equals + 1)},
    };
    if (!header_x_name_ok(x.name.at, x.name.size))
        return problem_set(p, EX_USAGE, EINVAL,
                           "--header: \"%.*s\" is not a name; give x- and 1 to "
                           "30 of a-z, 0-9 and -",
                           (int)x.name.size, x.name.at);
    if (!header_value_ok(x.value.at, x.value.size))
        return problem_set(p, EX_USAGE, EINVAL,
                           "--header: the value of %.*s is not 1 to %d bytes "
                           "of printable UTF-8 without blanks at its ends",
                           (int)x.name.size, x.name.at, HEADER_VALUE_MAX);
    for (size_t i = 0; i < e->x_count; i++)
        if (text_same(e->x[i].name, x.name))
            return problem_set(p, EX_USAGE, EINVAL,
                               "--header: %.*s is given twice",
                               (int)x.name.size, x.name.at);
    if (e->x_count == HEADER_X_MAX)
        return problem_set(p, EX_USAGE, E2BIG, "--header: more than %d of them",
                           HEADER_X_MAX);
    e->x[e->x_count++] = x;
    return 0;
}

uint64_t envelope_not_before(const struct envelope *e, uint64_t now_ns)
{
    return e->delay_ns ? ns_add(now_ns, e->delay_ns) : e->at_ns;
}

/* header_fill - the header for a body of `size` bytes that is sent now */
static int header_fill(const struct envelope *e, uint64_t now_ns, size_t size,
                       char buf[HEADER_MAX])
{
    struct header h = {
        .fields = HEADER_ID | HEADER_SENT | HEADER_SIZE,
        .id = e->id,
        .sent_ns = now_ns,
        .size = size,
        .not_before_ns = envelope_not_before(e, now_ns),
        .delay_ms = e->delay_ns / NS_PER_MS + (e->delay_ns % NS_PER_MS != 0),
        .expires_ns = ns_add(now_ns, e->ttl_ns),
        .timeout_ms = e->timeout_ms,
        .max_attempts = e->max_attempts,
        .unique = e->unique,
        .unique_for_ms = e->unique_for_ms,
    };

    if (e->group) {
        h.fields |= HEADER_GROUP;
        h.group = (struct header_text){e->group, strlen(e->group)};
    }
    if (h.not_before_ns)
        h.fields |= HEADER_NOT_BEFORE;
    if (h.delay_ms > 0 && h.delay_ms <= HEADER_MS_MAX)
        h.fields |= HEADER_DELAY;
    if (e->ttl_ns)
        h.fields |= HEADER_EXPIRES;
    if (e->timeout_ms)
        h.fields |= HEADER_TIMEOUT;
    if (e->max_attempts)
        h.fields |= HEADER_MAX_ATTEMPTS;
    if (e->backoff) {
        h.fields |= HEADER_BACKOFF;
        h.backoff = (struct header_text){e->backoff, strlen(e->backoff)};
    }
    if (e->unique.at)
        h.fields |= HEADER_UNIQUE;
    if (e->unique_for_ms)
        h.fields |= HEADER_UNIQUE_FOR;
    return header_write(buf, HEADER_MAX, &h, e->x, e->x_count);
}

/* envelope_check - try the longest header there can be */
int envelope_check(const struct envelope *e, struct problem *p)
{
    char header[HEADER_MAX];

    if (e->raw || header_fill(e, clock_wall_ns(), 16u << 20, header) >= 0)
        return 0;
    return problem_set(p, EX_USAGE, EMSGSIZE,
                       "the header would be over %d bytes; give fewer or "
                       "shorter --header values",
                       HEADER_MAX);
}

/* envelope_fill - header and body to `buf` */
ssize_t envelope_fill(struct envelope *e, const void *body, size_t size,
                      char *buf, size_t room)
{
    char header[HEADER_MAX];
    int bytes = 0;

    if (!e->raw) {
        uint64_t now = clock_wall_ns();

        if (!e->has_id)
            e->id = ulid_make(now);
        bytes = header_fill(e, now, size, header);
        if (bytes < 0)
            return bytes;
    }
    e->header_bytes = (size_t)bytes;
    if (e->header_bytes > room || size > room - e->header_bytes)
        return -EMSGSIZE;
    memcpy(buf, header, e->header_bytes);
    memcpy(buf + e->header_bytes, body, size);
    return (ssize_t)(e->header_bytes + size);
}

int envelope_told(const struct envelope *e, enum envelope_tell tell,
                  const char *queue)
{
    char id[ULID_TEXT];
    json_t *o;

    ulid_print(e->id, id);
    if (tell == ENVELOPE_ID)
        puts(id);
    if (tell != ENVELOPE_JSON)
        return 0;
    o = json_pack("{s:s?}", "id", e->raw ? NULL : id);
    if (!o || json_put_bytes(o, "queue", queue, strlen(queue)) < 0) {
        json_decref(o);
        return -ENOMEM;
    }
    return json_print_line(o, stdout);
}

/* envelope.c - make the bytes of each message (see envelope.h) */
#include "scripts/mqsend/envelope.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/cli/complain.h"
#include "common/cli/json_line.h"
#include "common/cli/moment.h"
#include "common/message/backoff.h"

/* Refuse a name that was given twice: it would set one environment variable of
 * the handler to two values. */
int flag_header(const char *text, void *into, struct problem *p)
{
    struct envelope *e = into;
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
        if (e->x[i].name.size == x.name.size &&
            memcmp(e->x[i].name.at, x.name.at, x.name.size) == 0)
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

/* Make the header for a body of `size` bytes that is sent now. */
static int header_fill(const struct envelope *e, uint64_t now_ns, size_t size,
                       char buf[HEADER_MAX])
{
    struct header h = {
        .fields = HEADER_ID | HEADER_SENT | HEADER_SIZE |
                  (e->group ? HEADER_GROUP : 0u) |
                  (e->ttl_ns ? HEADER_EXPIRES : 0u) |
                  (e->timeout_ms ? HEADER_TIMEOUT : 0u) |
                  (e->max_attempts ? HEADER_MAX_ATTEMPTS : 0u) |
                  (e->backoff ? HEADER_BACKOFF : 0u) |
                  (e->unique.at ? HEADER_UNIQUE : 0u) |
                  (e->unique_for_ms ? HEADER_UNIQUE_FOR : 0u),
        .id = e->id,
        .sent_ns = now_ns,
        .size = size,
        .not_before_ns = envelope_not_before(e, now_ns),
        .delay_ms = e->delay_ns / NS_PER_MS + (e->delay_ns % NS_PER_MS != 0),
        .expires_ns = ns_add(now_ns, e->ttl_ns),
        .timeout_ms = e->timeout_ms,
        .group = {e->group, e->group ? strlen(e->group) : 0},
        .max_attempts = e->max_attempts,
        .backoff = {e->backoff, e->backoff ? strlen(e->backoff) : 0},
        .unique = e->unique,
        .unique_for_ms = e->unique_for_ms,
    };

    if (h.not_before_ns)
        h.fields |= HEADER_NOT_BEFORE;
    if (h.delay_ms > 0 && h.delay_ms <= HEADER_MS_MAX)
        h.fields |= HEADER_DELAY;
    return header_write(buf, HEADER_MAX, &h, e->x, e->x_count);
}

int envelope_check(const struct envelope *e, bool quiet, struct problem *p)
{
    uint64_t now = clock_wall_ns(), at = envelope_not_before(e, now), most;
    char header[HEADER_MAX], when[MOMENT_TEXT], ahead[DURATION_TEXT];

    /* The largest body has the most digits in its header. */
    if (!e->raw && header_fill(e, now, 16u << 20, header) < 0)
        return problem_set(p, EX_USAGE, EMSGSIZE,
                           "the header would be over %d bytes; give fewer or "
                           "shorter --header values",
                           HEADER_MAX);
    if (quiet)
        return 0;
    moment_print(e->at_ns, when);
    if (e->at_ns && e->at_ns <= now)
        complain(0, "--at: \"%s\" is past (%s): it may run immediately",
                 e->at_text, when);
    else if (e->at_ns && e->at_clock == MOMENT_SKIPPED)
        complain(0, "--at: the clock skips \"%s\" that day: it runs at %s",
                 e->at_text, when);
    else if (e->at_ns && e->at_clock == MOMENT_TWICE)
        complain(0,
                 "--at: the clock shows \"%s\" twice that day: it runs at %s",
                 e->at_text, when);
    (void)duration_parse(HEADER_MAX_DELAY, &most);
    if (at > now && at - now > most)
        complain(0,
                 "%s: that is %s ahead; the worker makes a dead letter of "
                 "it, unless its --max-delay (" HEADER_MAX_DELAY
                 " by default) allows that",
                 e->at_ns ? "--at" : "--delay",
                 duration_print((at - now) / NS_PER_S * NS_PER_S, ahead));
    return 0;
}

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

int envelope_print_id(const struct envelope *e, enum envelope_tell tell,
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

int flag_id(const char *text, void *into, struct problem *p)
{
    struct envelope *e = into;

    e->has_id = true;
    if (ulid_parse(text, strlen(text), &e->id) == 0)
        return 0;
    return problem_set(p, EX_USAGE, EINVAL,
                       "--id: \"%s\" is not an id; give a ULID, 26 characters "
                       "like 01JD3Z6Q9V0X8N5T2K7B4M1C3F",
                       text);
}

int flag_at(const char *text, void *into, struct problem *p)
{
    struct envelope *e = into;
    struct moment m;

    if (moment_parse(text, clock_wall_ns(), &m) < 0 || m.wall_ns == 0)
        return problem_set(p, EX_USAGE, EINVAL,
                           "--at: \"%s\" is not a time; give 14:30, \"tomorrow "
                           "08:00\", or a date and time like 2026-11-23T14:30 "
                           "(local) or 2026-11-23T14:30:00Z",
                           text);
    e->at_ns = m.wall_ns;
    e->at_text = text;
    e->at_clock = m.clock;
    return 0;
}

int flag_group(const char *text, void *into, struct problem *p)
{
    struct envelope *e = into;

    e->group = text;
    if (header_value_ok(text, strlen(text)))
        return 0;
    return problem_set(p, EX_USAGE, EINVAL,
                       "--group: \"%s\" is not a group; give 1 to %d bytes of "
                       "printable UTF-8 without blanks at its ends",
                       text, HEADER_VALUE_MAX);
}

int flag_backoff(const char *text, void *into, struct problem *p)
{
    struct envelope *e = into;
    struct backoff b;

    e->backoff = text;
    if (strlen(text) <= HEADER_VALUE_MAX)
        return backoff_parse(text, &b, p);
    return problem_set(p, EX_USAGE, EINVAL,
                       "--backoff: \"%.40s...\" is over %d bytes", text,
                       HEADER_VALUE_MAX);
}

/* Read KEY[,DUR]. A text after the last comma that is no duration is a part of
 * the key. */
int flag_unique(const char *text, void *into, struct problem *p)
{
    struct envelope *e = into;
    const char *comma = strrchr(text, ',');
    size_t size = strlen(text);
    uint64_t ns;

    if (comma && duration_parse(comma + 1, &ns) == 0) {
        size = (size_t)(comma - text);
        e->unique_for_ms = ns / NS_PER_MS + (ns % NS_PER_MS != 0);
        if (e->unique_for_ms < 1 || e->unique_for_ms > HEADER_MS_MAX)
            return problem_set(p, EX_USAGE, EINVAL,
                               "--unique: %s is not 1ms or more", comma + 1);
    }
    e->unique = (struct header_text){text, size};
    if (header_value_ok(text, size))
        return 0;
    return problem_set(p, EX_USAGE, EINVAL,
                       "--unique: \"%s\" does not begin with a key; give 1 to "
                       "%d bytes of printable UTF-8 without blanks at its "
                       "ends, and a duration after a comma, like order-17,10m",
                       text, HEADER_VALUE_MAX);
}

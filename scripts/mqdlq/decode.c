/* decode.c - read a dead letter from a line of JSON (see decode.h)
 *
 * The writer of these lines is common/store/letters.c. Both must agree on the
 * names of the members.
 */
#include "scripts/mqdlq/decode.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/safe_text.h"
#include "common/cli/json_line.h"
#include "common/message/header.h"
#include "common/mq/queue.h"

#define SECONDS_MOST 1000000000

/* State while a letter is read. The first error is kept; the reading goes on,
 * but its result is not used. */
struct reading {
    struct decoding *decoding; /* owns the object */
    json_t *object;            /* the letter, or one attempt of it */
    char *why;
    int err;
};

/* Set the error -EINVAL and its sentence, unless there is an error already. */
__attribute__((format(printf, 2, 3))) static void
text_refuse(struct reading *r, const char *fmt, ...)
{
    va_list args;

    if (r->err)
        return;
    va_start(args, fmt);
    vsnprintf(r->why, JSON_WHY, fmt, args);
    va_end(args);
    r->err = -EINVAL;
}

/* Copy bytes, and append a NUL. The copy lives as long as the decoding, because
 * it becomes a member of the JSON object. */
static struct header_text text_keep(struct reading *r, const char *name,
                                    const void *data, size_t size)
{
    json_t *copy = json_stringn_nocheck(data, size);

    if (json_object_set_new_nocheck(r->object, name, copy) == 0)
        return (struct header_text){json_string_value(copy), size};
    r->err = r->err ? r->err : -ENOMEM;
    return (struct header_text){0};
}

void decoding_free(struct decoding *d)
{
    json_decref(d->object);
    free(d->history);
    free(d->machines);
    *d = (struct decoding){0};
}

/* Return a member; NULL if it is null or missing. */
static const json_t *member_find(const struct reading *r, const char *name)
{
    const json_t *value = json_object_get(r->object, name);

    return json_is_null(value) ? NULL : value;
}

/* Members of a letter, and of one of its attempts, as written by letters.c.
 * A time also has a member NAME_ns, and bytes other than UTF-8 are in
 * NAME_base64. */
static const char *const letter_members[] = {
    "id",       "message_id", "queue",       "state",
    "died_at",  "reason",     "error",       "error_text",
    "attempts", "crashes",    "priority",    "redelivered",
    "released", "group",      "header",      "length_inferred",
    "size",     "body",       "stderr",      "first_received_at",
    "history",  "replay",     "replayed_at", NULL};
static const char *const attempt_members[] = {
    "n",      "started_at", "duration", "error",       "error_text",
    "stderr", "said",       "machine",  "cpu_seconds", "peak_memory_bytes",
    NULL};

/* Refuse an unknown member, because a letter with a misspelt group would
 * otherwise be imported without a group. */
static void members_check(struct reading *r, const char *const *known)
{
    const char *name;
    json_t *value;

    json_object_foreach(r->object, name, value)
    {
        size_t i = 0;

        for (; known[i]; i++) {
            size_t size = strlen(known[i]);

            if (strncmp(name, known[i], size) == 0 &&
                (!name[size] || strcmp(name + size, "_ns") == 0 ||
                 strcmp(name + size, "_base64") == 0))
                break;
        }
        if (!known[i])
            text_refuse(r, "%.64s is not a member of %s", name,
                        known == letter_members ? "a letter" : "an attempt");
    }
}

/* Read the member NAME, or decode NAME_base64; `at` is NULL if it is null or
 * missing. */
static struct header_text read_bytes(struct reading *r, const char *name)
{
    const json_t *value = json_object_get(r->object, name), *value64;
    struct header_text text = {0};
    char name64[64];
    size_t size;
    void *bytes;

    snprintf(name64, sizeof name64, "%s_base64", name);
    value64 = json_object_get(r->object, name64);
    if (value && value64)
        text_refuse(r, "both %s and %s are there", name, name64);
    else if (json_is_string(value))
        return (struct header_text){json_string_value(value),
                                    json_string_length(value)};
    else if (value && !json_is_null(value))
        text_refuse(r, "%s is not a string", name);
    else if (value64 && !json_is_string(value64))
        text_refuse(r, "%s is not a string", name64);
    if (value || !json_is_string(value64))
        return text;
    bytes = base64_decode(json_string_value(value64),
                          json_string_length(value64), &size);
    if (bytes)
        text = text_keep(r, name, bytes, size);
    else if (errno == ENOMEM)
        r->err = r->err ? r->err : -ENOMEM;
    else
        text_refuse(r, "%s is not base64", name64);
    free(bytes);
    return text;
}

/* Read a number; 0 if it is null or missing. */
static uint64_t read_number(struct reading *r, const char *name, uint64_t most)
{
    const json_t *value = member_find(r, name);
    json_int_t n = json_integer_value(value);

    if (!value)
        return 0;
    if (json_is_integer(value) && n >= 0 && (uint64_t)n <= most)
        return (uint64_t)n;
    text_refuse(r, "%s is not a number from 0 to %llu", name,
                (unsigned long long)most);
    return 0;
}

/* Read a number of seconds, as ns; 0 if it is missing. */
static uint64_t read_seconds(struct reading *r, const char *name)
{
    const json_t *value = member_find(r, name);
    double s = json_number_value(value);

    if (!value || (json_is_number(value) && s >= 0 && s <= SECONDS_MOST))
        return (uint64_t)(s * (double)NS_PER_S + 0.5);
    text_refuse(r, "%s is not a number of seconds, up to %d", name,
                SECONDS_MOST);
    return 0;
}

/* Read a time from NAME_ns, else from NAME as text, else 0. */
static uint64_t read_time(struct reading *r, const char *name)
{
    const json_t *text = json_object_get(r->object, name);
    char name_ns[64];
    uint64_t ns;

    snprintf(name_ns, sizeof name_ns, "%s_ns", name);
    if (json_object_get(r->object, name_ns) || !json_is_string(text))
        return read_number(r, name_ns, INT64_MAX);
    if (time_parse(json_string_value(text), clock_wall_ns(), &ns) == 0 &&
        ns <= INT64_MAX)
        return ns;
    text_refuse(
        r, "%s is not a time like 2026-11-20T19:22:59Z, up to the year 2261",
        name);
    return 0;
}

/* Return the bit if a member is true. */
static unsigned read_flag(const struct reading *r, const char *name,
                          unsigned bit)
{
    return json_is_true(json_object_get(r->object, name)) ? bit : 0;
}

/* Join header and body to a message. The header must be valid, except in a
 * letter that died of its header. */
static void read_message(struct reading *r, struct store_row *m)
{
    struct header_text header = read_bytes(r, "header");
    struct header_text body = read_bytes(r, "body");
    static const char line[] = "\nsize: ";
    char resized[HEADER_MAX + 32], why[HEADER_WHY] = "", *data;
    const char *at = NULL;
    struct header_text whole;
    struct header h;

    if (!body.at)
        text_refuse(r, "neither body nor body_base64 is there");
    if (header.size > HEADER_MAX)
        text_refuse(r, "header is over %d bytes", HEADER_MAX);
    if (r->err || !body.at)
        return;
    if (header.size > 0 && m->reason != REASON_BAD_HEADER)
        at = memmem(header.at, header.size, line, sizeof line - 1);
    if (at) { /* Correct the size, because the body may have been edited. */
        size_t before = (size_t)(at - header.at) + sizeof line - 1;
        size_t digits = strspn(header.at + before, "0123456789");
        size_t after = header.size - before - digits, n;

        memcpy(resized, header.at, before);
        n = before + (size_t)snprintf(resized + before, 21, "%zu", body.size);
        memcpy(resized + n, header.at + before + digits, after);
        header = (struct header_text){resized, n + after};
    }
    data = malloc(header.size + body.size + 1);
    if (!data) {
        r->err = -ENOMEM;
        return;
    }
    if (header.size > 0)
        memcpy(data, header.at, header.size);
    memcpy(data + header.size, body.at, body.size);
    whole = text_keep(r, "data", data, header.size + body.size);
    free(data);
    m->data = whole.at;
    m->size = whole.size;
    m->header_size = whole.at ? header.size : 0;
    if (m->header_size == 0 || m->reason == REASON_BAD_HEADER)
        return;
    if (header_parse(m->data, m->size, &h, why) != 0)
        text_refuse(r, "header: %s", why);
    else if (h.bytes != m->header_size)
        text_refuse(r, "header does not end where it should");
}

/* Read the failed deliveries; the member may be missing. */
static void read_history(struct reading *r, struct letter_import *l)
{
    json_t *letter = r->object, *array = json_object_get(letter, "history");
    size_t n = json_array_size(array);
    struct decoding *d = r->decoding;

    if (!array || json_is_null(array))
        return;
    if (!json_is_array(array))
        text_refuse(r, "history is not an array");
    d->history = calloc(n + 1, sizeof *d->history);
    d->machines = calloc(n + 1, sizeof *d->machines);
    if (!d->history || !d->machines) {
        r->err = -ENOMEM;
        return;
    }
    for (size_t i = 0; i < n && !r->err; i++) {
        struct store_attempt *a = &d->history[i];
        struct header_text tail;

        r->object = json_array_get(array, i);
        if (!json_is_object(r->object))
            text_refuse(r, "history has an element that is not an object");
        members_check(r, attempt_members);
        a->started_ns = read_time(r, "started_at");
        a->duration_ns = read_number(r, "duration_ns", INT64_MAX);
        a->error = read_bytes(r, "error").at;
        tail = read_bytes(r, "stderr");
        a->stderr_tail = tail.at;
        a->stderr_size = tail.size;
        a->said = read_flag(r, "said", 1) != 0;
        a->usage.cpu_ns = read_seconds(r, "cpu_seconds");
        a->usage.peak_bytes = read_number(r, "peak_memory_bytes", INT64_MAX);
        d->machines[i] = read_bytes(r, "machine").at;
    }
    r->object = letter;
    l->history = d->history;
    l->history_count = n;
}

/* Read a letter. Without an id it gets a new one; without a time of death, the
 * current time. */
static void read_letter(struct reading *r)
{
    struct letter_import *l = &r->decoding->letter;
    struct store_row *m = &l->m;
    const json_t *id = member_find(r, "message_id");
    const char *text = json_string_value(id);
    const char *reason =
        json_string_value(json_object_get(r->object, "reason"));
    struct header_text group;
    char safe[48];

    members_check(r, letter_members);
    m->state = STORE_DEAD;
    l->named = id != NULL;
    if (!id)
        m->id = ulid_make(clock_wall_ns());
    else if (!text || ulid_parse(text, strlen(text), &m->id) != 0)
        text_refuse(r, "message_id is not an id of 26 characters");
    /* "none": somebody put the message among the letters of a broker. */
    if (!reason)
        text_refuse(r, "reason is missing or not a string");
    else if (strcmp(reason, dead_reason_text(REASON_NONE)) != 0)
        m->reason = dead_reason_parse(reason);
    if (reason && m->reason == REASON_COUNT) {
        safe_text_copy(safe, sizeof safe, reason, strlen(reason));
        text_refuse(r,
                    "reason \"%s\" is not one of exhausted, rejected, expired, "
                    "crashed, bad-header, group-closed",
                    safe);
    }
    m->died_ns = read_time(r, "died_at");
    l->dated = m->died_ns != 0;
    if (m->died_ns == 0)
        m->died_ns = clock_wall_ns();
    m->error = read_bytes(r, "error").at;
    m->attempts = (uint32_t)read_number(r, "attempts", UINT32_MAX);
    m->crashes = (uint32_t)read_number(r, "crashes", UINT32_MAX);
    m->flags = read_flag(r, "redelivered", STORE_REDELIVERED) |
               read_flag(r, "length_inferred", STORE_LENGTH_INFERRED) |
               read_flag(r, "released", STORE_LET_GO);
    if (m->reason == REASON_GROUP_CLOSED) /* its group did not wait for it */
        m->flags |= STORE_LET_GO;
    m->priority = (uint32_t)read_number(r, "priority", QUEUE_PRIORITY_MAX);
    group = read_bytes(r, "group");
    if (group.at && !header_value_ok(group.at, group.size))
        text_refuse(r, "group is not 1 to %d bytes of printable UTF-8",
                    HEADER_VALUE_MAX);
    m->group = group.at;
    m->group_size = group.size;
    m->first_received_ns = read_time(r, "first_received_at");
    read_message(r, m);
    read_history(r, l);
}

int decoding_read(struct decoding *d, const char *text, size_t size,
                  char why[JSON_WHY])
{
    struct reading r = {.decoding = d, .why = why};
    json_error_t error;

    *d = (struct decoding){0};
    d->object = r.object =
        json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (json_is_object(d->object))
        read_letter(&r);
    else if (d->object)
        text_refuse(&r, "not a JSON object");
    else if (error.text[0] == 0)
        r.err = -ENOMEM; /* not a syntax error, which has a text */
    else
        text_refuse(&r, "not JSON: %s (column %d)", error.text, error.column);
    if (r.err)
        decoding_free(d);
    return r.err;
}

/* letters.c - see letters.h */
#include "tests/harness/internal.h"

#include "tests/harness/letters.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* Copy a string field; NULL if it is missing or null. */
static const char *text_of(const json_t *object, const char *name)
{
    const char *value = json_string_value(json_object_get(object, name));
    return value ? harness_keep(strdup(value)) : NULL;
}

/* Return a number, which must exist. */
static long long number_of(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_integer(value))
        harness_fail("a letter without the number \"%s\"", name);
    return json_integer_value(value);
}

/* Read how each attempt ended. */
static void history_read(const json_t *object, struct harness_letter *l)
{
    const json_t *history = json_object_get(object, "history");
    l->history = json_array_size(history);
    const char **errors = harness_keep(calloc(l->history + 1, sizeof *errors));
    for (size_t i = 0; i < l->history; i++)
        errors[i] = text_of(json_array_get(history, i), "error");
    l->errors = errors;
}

/* Parse one line of the list. */
static void letter_read(const char *line, size_t size, struct harness_letter *l)
{
    json_error_t error;
    json_t *o = json_loadb(line, size, 0, &error);
    if (!o)
        harness_fail("mqdlq list --json: %s in: %.*s", error.text, (int)size,
                     line);
    *l = (struct harness_letter){
        .row = number_of(o, "id"),
        .attempts = number_of(o, "attempts"),
        .crashes = number_of(o, "crashes"),
        .priority = number_of(o, "priority"),
        .redelivered = json_is_true(json_object_get(o, "redelivered")),
        .id = text_of(o, "message_id"),
        .reason = text_of(o, "reason"),
        .error = text_of(o, "error"),
        .group = text_of(o, "group"),
        .body = text_of(o, "body"),
        .body_size = (size_t)number_of(o, "size"),
        .said = text_of(o, "stderr"),
        .said_size = json_string_length(json_object_get(o, "stderr")),
    };
    history_read(o, l);
    json_decref(o);
}

/* Return all letters. */
const struct harness_letter *harness_letters(const char *queue, size_t *count)
{
    *count = 0;
    struct harness_result r = harness_run(
        "mqdlq", "list", "--json", "--state-dir", harness_state_dir(), queue);
    size_t lines = 0;
    for (size_t i = 0; r.status == 0 && i < r.out_size; i++)
        lines += r.out[i] == '\n';
    struct harness_letter *list = harness_keep(calloc(lines + 1, sizeof *list));
    for (const char *at = r.out; *count < lines; (*count)++) {
        size_t size = strcspn(at, "\n");
        letter_read(at, size, &list[*count]);
        at += size + 1;
    }
    return list;
}

/* Wait until there are so many letters, and return them. */
const struct harness_letter *
harness_wait_letters(const char *queue, size_t count, unsigned limit_ms)
{
    uint64_t deadline = harness_patience(limit_ms);
    for (;;) {
        size_t seen;
        const struct harness_letter *list = harness_letters(queue, &seen);
        if (seen > count)
            harness_fail("%zu dead letters, expected %zu", seen, count);
        if (seen == count)
            return list;
        harness_nap(deadline, "dead letters");
    }
}

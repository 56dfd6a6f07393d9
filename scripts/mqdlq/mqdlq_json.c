/* mqdlq_json.c - see mqdlq_json.h: a letter out (mqdlq_decode.c: in) */
#include "scripts/mqdlq/mqdlq_json.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/text/json_line.h"
#include "scripts/mqdlq/mqdlq_base64.h"

/* A letter on its way to JSON. */
struct writing {
    const char *queue;
    json_t *history;
    json_t *object;
};

/* put - set a field; what could not be made (NULL) is an error */
static int put(json_t *object, const char *name, json_t *value)
{
    return json_object_set_new(object, name, value) == 0 ? 0 : -ENOMEM;
}

/* put_int - a number; all of ours are below 2^63 */
static int put_int(json_t *object, const char *name, uint64_t value)
{
    return put(object, name, json_integer((json_int_t)value));
}

/* put_bytes - a string where it can be one, else NAME_base64; data NULL: null.
 * json_stringn refuses what is not UTF-8. */
static int put_bytes(json_t *object, const char *name, const void *data,
                     size_t size)
{
    char name64[64];
    if (!data)
        return put(object, name, json_null());
    if (!memchr(data, '\0', size)) {
        errno = 0;
        json_t *text = json_stringn(data, size);
        if (text || errno == ENOMEM)
            return put(object, name, text);
    }
    char *text64 = base64_encode(data, size);
    if (!text64)
        return -ENOMEM;
    snprintf(name64, sizeof name64, "%s_base64", name);
    int err = put(object, name64, json_string(text64));
    free(text64);
    return err;
}

/* put_text - a string or null */
static int put_text(json_t *object, const char *name, const char *text)
{
    return put_bytes(object, name, text, text ? strlen(text) : 0);
}

/* put_time - a time for people and, exact, in ns; 0 = not known: null */
static int put_time(json_t *object, const char *name, uint64_t wall_ns)
{
    char text[TIME_TEXT], name_ns[64];
    snprintf(name_ns, sizeof name_ns, "%s_ns", name);
    int err =
        put_text(object, name, wall_ns ? time_print(wall_ns, text) : NULL);
    return err ? err : put_int(object, name_ns, wall_ns);
}

/* attempt_put - visit: one failed delivery to the history */
static int attempt_put(unsigned n, const struct store_attempt *a, void *arg)
{
    struct writing *w = arg;
    json_t *object = json_object();
    int err = object ? 0 : -ENOMEM;
    if (!err)
        err = put_int(object, "n", n);
    if (!err)
        err = put_time(object, "started_at", a->started_ns);
    if (!err)
        err = put_int(object, "duration_ns", a->duration_ns);
    if (!err)
        err = put_text(object, "error", a->error);
    if (!err)
        err = put_bytes(object, "stderr", a->stderr_tail ? a->stderr_tail : "",
                        a->stderr_size);
    if (err)
        json_decref(object);
    else if (json_array_append_new(w->history, object) != 0)
        err = -ENOMEM;
    return err;
}

/* fate_put - when and of what it died */
static int fate_put(json_t *o, const struct store_row *m)
{
    int err =
        put_text(o, "state", m->state == STORE_REPLAYED ? "replayed" : "dead");
    if (!err)
        err = put_time(o, "died_at", m->died_ns);
    if (!err)
        err = put_text(o, "reason", dead_reason_text(m->reason));
    if (!err)
        err = put_text(o, "error", m->error);
    if (!err)
        err = put_int(o, "attempts", m->attempts);
    if (!err)
        err = put_int(o, "crashes", m->crashes);
    if (!err)
        err = put(o, "redelivered", json_boolean(m->flags & STORE_REDELIVERED));
    if (!err)
        err = put(o, "length_inferred",
                  json_boolean(m->flags & STORE_LENGTH_INFERRED));
    return err;
}

/* message_put - what was received */
static int message_put(json_t *o, const struct letter *l)
{
    const struct store_row *m = &l->m;
    int err = put_int(o, "priority", m->priority);
    if (!err)
        err = put_bytes(o, "group", m->group, m->group ? m->group_size : 0);
    if (!err)
        err = put_time(o, "first_received_at", m->first_received_ns);
    if (!err && m->header_size > 0)
        err = put_bytes(o, "header", m->data, m->header_size);
    if (!err)
        err = put_int(o, "size", l->body_size);
    if (!err)
        err = put_bytes(o, "body", l->body_size ? l->body : "", l->body_size);
    return err;
}

/* letter_put - visit: the object of a letter, history and all */
static int letter_put(const struct letter *l, void *arg)
{
    struct writing *w = arg;
    char id[ULID_TEXT];
    json_t *o = w->object = json_object();
    int err = o ? put_int(o, "id", (uint64_t)l->m.row) : -ENOMEM;
    if (!err)
        err = put_text(o, "message_id", ulid_print(l->m.id, id));
    if (!err)
        err = put_text(o, "queue", w->queue);
    if (!err)
        err = fate_put(o, &l->m);
    if (!err)
        err = message_put(o, l);
    if (!err)
        err = put_bytes(o, "stderr", l->stderr_size ? l->stderr_tail : "",
                        l->stderr_size);
    return err ? err : put(o, "history", json_incref(w->history));
}

/* json_print_letter - one letter, one line */
int json_print_letter(struct store *s, const char *queue, int64_t row,
                      FILE *out)
{
    struct writing w = {.queue = queue, .history = json_array()};
    if (!w.history)
        return -ENOMEM;
    int err = letters_history(s, row, attempt_put, &w);
    if (!err)
        err = letters_get(s, row, letter_put, &w);
    if (!err)
        err = json_print_line(w.object, out);
    json_decref(w.object);
    json_decref(w.history);
    return err;
}

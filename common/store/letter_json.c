/* letter_json.c - see letter_json.h */
#include "common/store/letter_json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/message/error_text.h"
#include "common/text/json_line.h"

/* A letter on its way to JSON. */
struct writing {
    const char *queue;
    int64_t row;
    const struct letter_elsewhere *elsewhere; /* NULL: of this machine */
    json_t *history;
    json_t *object;
    int err; /* -ENOMEM: a field could not be made; later fields are left out */
};

/* put - set a field; a value that could not be made is NULL */
static void put(struct writing *w, json_t *object, const char *name,
                json_t *value)
{
    if (json_object_set_new(object, name, value) < 0)
        w->err = -ENOMEM;
}

/* put_int - a number; all of ours are below 2^63 */
static void put_int(struct writing *w, json_t *object, const char *name,
                    uint64_t value)
{
    put(w, object, name, json_integer((json_int_t)value));
}

/* put_bytes - a string where it can be one, else NAME_base64 */
static void put_bytes(struct writing *w, json_t *object, const char *name,
                      const void *data, size_t size)
{
    if (json_put_bytes(object, name, data, size) < 0)
        w->err = -ENOMEM;
}

/* put_text - a string or null */
static void put_text(struct writing *w, json_t *object, const char *name,
                     const char *text)
{
    put_bytes(w, object, name, text, text ? strlen(text) : 0);
}

/* put_time - a time for people and, exact, in ns; 0 = not known: null */
static void put_time(struct writing *w, json_t *object, const char *name,
                     uint64_t wall_ns)
{
    if (json_put_time(object, name, wall_ns) < 0)
        w->err = -ENOMEM;
}

/* attempt_put - visit: one failed delivery to the history */
static int attempt_put(unsigned n, const struct store_attempt *a, void *arg)
{
    struct writing *w = arg;
    char text[ERROR_TEXT];
    json_t *o = json_object();

    put_int(w, o, "n", n);
    put_time(w, o, "started_at", a->started_ns);
    put_int(w, o, "duration_ns", a->duration_ns);
    put_text(w, o, "error", a->error);
    error_text(text, a->error, a->said, a->stderr_tail ? a->stderr_tail : "",
               a->stderr_size);
    put_text(w, o, "error_text", text[0] ? text : NULL);
    put(w, o, "said", json_boolean(a->said));
    put_bytes(w, o, "stderr", a->stderr_tail ? a->stderr_tail : "",
              a->stderr_size);
    if (w->elsewhere)
        put_text(w, o, "machine",
                 w->elsewhere->machine(w->elsewhere->arg, w->row, n));
    return json_array_append_new(w->history, o) < 0 ? -ENOMEM : w->err;
}

/* letter_put - visit: the object of a letter, history and all */
static int letter_put(const struct letter *l, void *arg)
{
    const struct store_row *m = &l->m;
    struct writing *w = arg;
    char id[ULID_TEXT];
    json_t *o = w->object = json_object();

    if (!w->elsewhere)
        put_int(w, o, "id", (uint64_t)m->row);
    put_text(w, o, "message_id", ulid_print(m->id, id));
    put_text(w, o, "queue", w->queue);
    put_text(w, o, "state", m->state == STORE_REPLAYED ? "replayed" : "dead");
    put_time(w, o, "died_at", m->died_ns);
    put_text(w, o, "reason", dead_reason_text(m->reason));
    put_text(w, o, "error", m->error);
    put_text(w, o, "error_text", l->error_text);
    put_int(w, o, "attempts", m->attempts);
    put_int(w, o, "crashes", m->crashes);
    put(w, o, "redelivered", json_boolean(m->flags & STORE_REDELIVERED));
    put(w, o, "length_inferred",
        json_boolean(m->flags & STORE_LENGTH_INFERRED));
    put(w, o, "released", json_boolean(m->flags & STORE_LET_GO));
    put_int(w, o, "priority", m->priority);
    put_bytes(w, o, "group", m->group, m->group ? m->group_size : 0);
    put_time(w, o, "first_received_at", m->first_received_ns);
    if (m->header_size > 0)
        put_bytes(w, o, "header", m->data, m->header_size);
    put_int(w, o, "size", l->body_size);
    put_bytes(w, o, "body", l->body_size ? l->body : "", l->body_size);
    put_bytes(w, o, "stderr", l->stderr_size ? l->stderr_tail : "",
              l->stderr_size);
    put(w, o, "history", json_incref(w->history));
    return w->err;
}

/* letter_json_print - one letter, one line */
int letter_json_print(struct store *s, const char *queue, int64_t row,
                      const struct letter_elsewhere *elsewhere, FILE *out)
{
    struct writing w = {.queue = queue,
                        .row = row,
                        .elsewhere = elsewhere,
                        .history = json_array()};
    int err = w.history ? letters_history(s, row, attempt_put, &w) : -ENOMEM;

    if (!err)
        err = letters_get(s, row, letter_put, &w);
    if (!err)
        err = json_print_line(json_incref(w.object), out);
    json_decref(w.object);
    json_decref(w.history);
    return err;
}

/* spooled.c - rows of the spool, as messages (see messages.h)
 *
 * Nothing of a header is in a column there, so that a commit of many messages
 * is short: a filter is parsed here.
 */
#include "scripts/mqctl/look/messages.h"

#include <limits.h>
#include <string.h>

#include "common/custody/ends.h"
#include "common/state/runtimedir.h"
#include "common/store/spool.h"

/* wanted - whether a filter chooses it: it has not failed yet, so it has no
 * error */
static bool wanted(const struct waiting_filter *f, const struct message_seen *s)
{
    return (!f->group || (s->group && strlen(f->group) == s->group_size &&
                          memcmp(f->group, s->group, s->group_size) == 0)) &&
           s->received_ns >= f->since_ns &&
           (!f->until_ns || s->received_ns < f->until_ns) &&
           (!f->match || memmem(s->body, s->size, f->match, strlen(f->match)));
}

/* group_cut - the key of a group that is in front of the body, as for a slot */
static void group_cut(struct message_seen *out, char separator)
{
    size_t most = out->size <= HEADER_VALUE_MAX ? out->size
                                                : (size_t)HEADER_VALUE_MAX + 1;
    const char *end = separator ? memchr(out->body, separator, most) : NULL;

    if (!end || end == out->body)
        return;
    out->group = out->body;
    out->group_size = (size_t)(end - out->body);
}

/* seen_of - a row with what its header says; a broken header is a part of the
 * body, as for a slot */
static void seen_of(struct message_seen *out, const struct store_spooled *row,
                    char separator)
{
    static const struct ulid none;
    char why[HEADER_WHY];
    struct header h;

    if (header_parse(row->data, row->size, &h, why) < 0)
        h = (struct header){.bytes = 0};
    *out = (struct message_seen){
        .state = WAITING_SPOOLED,
        .id = row->id,
        .seq = store_spool_seq(row->key),
        .received_ns = row->received_ns,
        .priority = store_spool_priority(row->key),
        .crashes = row->crashes,
        .body = (const char *)row->data + h.bytes,
        .size = row->size - h.bytes,
    };
    if (h.fields & HEADER_ID && memcmp(&row->id, &none, sizeof none) == 0)
        out->id = h.id;
    if (h.fields & HEADER_GROUP) {
        out->group = h.group.at;
        out->group_size = h.group.size;
    } else if (!h.bytes) {
        group_cut(out, separator);
    }
}

struct passing {
    struct messages *m;
    int (*visit)(const struct message_seen *seen, void *arg);
    void *arg;
};

/* row_pass - visit: a row, if it was asked for */
static int row_pass(const struct store_spooled *row, void *arg)
{
    const struct passing *p = arg;
    size_t most = p->m->filter.body_most;
    struct message_seen seen;

    if (row->flags & STORE_CANCELLED)
        return 0;
    seen_of(&seen, row, p->m->separator);
    if (!wanted(&p->m->filter, &seen))
        return 0;
    seen.body_size = seen.size < most ? seen.size : most;
    return p->visit(&seen, p->arg);
}

int messages_spooled_each(struct messages *m, int64_t after,
                          int (*visit)(const struct message_seen *seen,
                                       void *arg),
                          void *arg)
{
    struct passing p = {m, visit, arg};

    if (!m->store || m->filter.error_like ||
        !(m->filter.states & WAITING_BIT(WAITING_SPOOLED)))
        return 0;
    return store_spool_each(m->store, after, row_pass, &p);
}

int64_t messages_spooled_key(const struct message_seen *seen)
{
    return store_spool_key(seen->priority, seen->seq);
}

/* ---- what a killed worker had of it ---- */

struct rows {
    const int64_t *at;
    size_t count;
    bool *had;
};

static void row_mark(const struct rows *r, int64_t row)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->at[i] == row)
            r->had[i] = true;
}

/* Mark the row of a slot, and the key that its message has in the spool. */
static int seen_mark(const struct custody_seen *c, void *arg)
{
    if (c->row > 0)
        row_mark(arg, c->row);
    if (c->seq < STORE_SPOOL_SEQ_MAX)
        row_mark(arg, -store_spool_key(c->priority, c->seq));
    return 0;
}

int messages_in_slots(struct messages *m, const int64_t *rows, size_t count,
                      bool *in_slot)
{
    struct rows r = {rows, count, in_slot};
    char path[PATH_MAX];
    struct problem p;
    int err = runtimedir_file(&m->dir, RUNTIMEDIR_CUSTODY, path, &p);

    return err ? err : custody_look(path, seen_mark, &r, &p);
}

/* messages_spooled_ran - by the file in which the next worker looks
 * If the machine went down, or the file is gone, all that is in the spool may
 * have run (spool_on.c). */
bool messages_spooled_ran(struct messages *m, const int64_t *rows, size_t count,
                          bool *ran)
{
    struct rows r = {rows, count, ran};
    struct store_spool_left left;
    int64_t ended[ENDS_MOST];
    char path[PATH_MAX];
    struct problem p;
    int n;

    if (store_spool_left(m->store, &left) < 0 || left.cut)
        return false;
    if (left.run == 0)
        return true; /* it came to an orderly end */
    if (runtimedir_file(&m->dir, RUNTIMEDIR_ENDS, path, &p) < 0)
        return false;
    n = ends_look(path, left.run, ended);
    for (int i = 0; i < n; i++)
        row_mark(&r, -ended[i]);
    return n >= 0;
}

/* model.c - see model.h */
#include "scripts/mqctl/top/model.h"

#include <stdlib.h>
#include <string.h>
#include <bsd/string.h>

#include "common/base/basics.h"
#include "common/base/safe_text.h"
#include "common/custody/custody_look.h"
#include "common/state/runtimedir.h"
#include "common/store/letters.h"

void model_queue(struct view_queue *q, const struct top_row *r)
{
    const struct snapshot *v = &r->v;

    *q = (struct view_queue){.name = r->queue, .past = &r->past};
    if (!r->looked) {
        q->problem = r->problem.text;
        return;
    }
    q->state = snapshot_state(v);
    q->depth = v->depth;
    q->depth_max = v->depth_max;
    q->rate = r->rate;
    q->running = (int64_t)v->sum.running;
    q->capacity = v->worker == SNAPSHOT_RUNS ? snapshot_capacity(v) : 0;
    q->waits = snapshot_waits(v);
    q->dead = v->dead;
    q->p50 = r->p50;
    q->p99 = r->p99;
    q->done = v->sum.done;
    q->retried = v->sum.retried;
    q->died = v->sum.dead;
    q->last_error = v->head.texts[COUNTERS_LAST_ERROR];
}

/* body_text - the beginning of a body, on one line */
static void body_text(char out[VIEW_BODY], const void *body, size_t size)
{
    safe_text_copy(out, VIEW_BODY, body, size < VIEW_BODY ? size : VIEW_BODY);
}

/* ---- what runs ---- */

/* id_text - its id; a function that ends soon has nobody ask for one */
static void id_text(const struct custody_seen *seen, char out[ULID_TEXT])
{
    static const struct ulid none;

    if (memcmp(&seen->id, &none, sizeof none) == 0)
        strlcpy(out, "-", ULID_TEXT);
    else
        ulid_print(seen->id, out);
}

/* flight_add - visit */
static int flight_add(const struct custody_seen *seen, void *arg)
{
    struct view_detail *d = arg;
    struct view_flight *f = &d->flights[d->flight_count];
    size_t header = seen->header.bytes;

    if (seen->received_ns &&
        (!d->oldest_ns || seen->received_ns < d->oldest_ns))
        d->oldest_ns = seen->received_ns;
    if (seen->w.state != SLOT_RUNNING || d->flight_count == VIEW_FLIGHTS)
        return 0;
    d->flight_count++;
    id_text(seen, f->id);
    strlcpy(f->group, seen->group, sizeof f->group);
    f->started_ns = seen->started_ns;
    f->pid = seen->pgid;
    f->attempt = seen->w.attempt;
    f->body[0] = '\0';
    if (header <= seen->data_size)
        body_text(f->body, (const char *)seen->data + header,
                  seen->data_size - header);
    return 0;
}

/* longest_first - compare by start; break ties by id, so that rows do not
 * jump */
static int longest_first(const void *a, const void *b)
{
    const struct view_flight *x = a, *y = b;

    if (x->started_ns != y->started_ns)
        return x->started_ns < y->started_ns ? -1 : 1;
    return strcmp(x->id, y->id);
}

static void flights_find(struct view_detail *d, const struct top_row *r)
{
    char path[PATH_MAX];
    struct problem p;

    if (!r->v.has_folder ||
        runtimedir_file(&r->v.dir, RUNTIMEDIR_CUSTODY, path, &p) < 0)
        return;
    (void)custody_look(path, flight_add, d, &p);
    qsort(d->flights, d->flight_count, sizeof *d->flights, longest_first);
}

/* ---- dead letters ---- */

/* letter_add - visit */
static int letter_add(const struct letter *l, void *arg)
{
    struct view_detail *d = arg;
    struct view_letter *to = &d->letters[d->letter_count];

    if (d->letter_count == VIEW_LETTERS)
        return VISIT_ENOUGH;
    d->letter_count++;
    to->row = l->m.row;
    to->died_ns = l->m.died_ns;
    to->attempts = l->m.attempts;
    to->reason = dead_reason_text(l->m.reason);
    error_text_join(to->error, sizeof to->error, l->m.error, l->error_text);
    body_text(to->body, l->body, l->body_size);
    return 0;
}

static void letters_find(struct view_detail *d, struct top_row *r, size_t most)
{
    struct letter_filter f = {.limit = most};
    struct store *store;

    if (r->v.broker) {
        d->no_letters = "they are on the broker: mqdlq list shows them";
        return;
    }
    if (most == 0 || r->v.dead <= 0 || snapshot_store(&r->v, &store) < 0)
        return;
    (void)letters_each(store, &f, false, letter_add, d);
    store_close(&store);
}

void model_detail(struct view_detail *d, struct top_row *r, size_t letters)
{
    d->flight_count = d->letter_count = 0;
    d->oldest_ns = 0;
    d->no_letters = NULL;
    if (!r->looked)
        return;
    flights_find(d, r);
    letters_find(d, r, letters);
}

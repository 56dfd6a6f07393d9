/* mqctl_move_put.c - one message on its way to the broker (see mqctl_move.h) */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/base/errno_text.h"
#include "common/letter/letters.h"
#include "scripts/mqctl/amqp/mqctl_move.h"

#define OWN (HEADER_MAX_ATTEMPTS | HEADER_BACKOFF | HEADER_UNIQUE)

/* What a message says, and where it goes. */
struct shape {
    struct header h;
    char why[HEADER_WHY]; /* its header is broken; "": it is not */
    uint64_t due_ns, wait_ms;
    char queue[TOPOLOGY_NAME];
};

/* shape_find - to the dead letters, a wait queue or the queue itself; a header
 * that is broken makes a dead letter of it, as its worker would have done */
static int shape_find(struct move *m, const struct move_message *msg,
                      struct shape *s, struct problem *p)
{
    uint64_t now = clock_wall_ns();

    *s = (struct shape){0};
    if (header_parse(msg->data, msg->size, &s->h, s->why) < 0)
        s->h = (struct header){0};
    else
        s->why[0] = '\0';
    if (s->h.fields & HEADER_GROUP && !msg->letter)
        return -ENOTSUP;
    m->own += (s->h.fields & OWN) != 0;
    if (msg->letter || s->why[0]) {
        topology_dead(&m->topology, s->queue);
        return 0;
    }
    s->due_ns = msg->due_ns                       ? msg->due_ns
                : s->h.fields & HEADER_NOT_BEFORE ? s->h.not_before_ns
                                                  : 0;
    s->due_ns = s->due_ns > now ? s->due_ns : 0;
    s->wait_ms = topology_length(s->due_ns ? (s->due_ns - now) / NS_PER_MS : 0);
    snprintf(s->queue, sizeof s->queue, "%s", m->to.queue);
    if (s->wait_ms == 0)
        return 0;
    topology_waits(&m->topology, s->wait_ms, s->queue);
    if (m->declared & 1U << topology_index(s->wait_ms))
        return 0;
    m->declared |= 1U << topology_index(s->wait_ms);
    return publisher_wait_queue(m->publisher, s->wait_ms, p);
}

struct attempts {
    const struct move *m;
    const struct ulid *id;
    struct envelope_made *e;
};

static int attempt_visit(unsigned n, const struct store_attempt *a, void *arg)
{
    struct attempts *t = arg;
    const struct envelope_attempt failed = {.at_ns = a->started_ns,
                                            .duration_ns = a->duration_ns,
                                            .number = n,
                                            .error = a->error ? a->error : "",
                                            .machine = t->m->machine,
                                            .tail = a->stderr_tail,
                                            .tail_size = a->stderr_size};

    return envelope_made_attempt(t->e, t->id, &failed);
}

/* properties_make - as a worker of the broker would have written them */
static int properties_make(struct move *m, const struct move_message *msg,
                           const struct shape *s, struct envelope_made *e)
{
    const struct store_row *letter = msg->letter;
    struct attempts all = {.m = m, .id = &msg->id, .e = e};
    struct envelope_change change = {.id = &msg->id,
                                     .attempt = msg->attempt,
                                     .first_ns = msg->first_ns,
                                     .due_ns = s->due_ns,
                                     .resent = msg->doubt};
    int err = envelope_made_begin(e, &msg->id, msg->priority, msg->data, &s->h);

    if (letter) {
        change.reason = dead_reason_text(letter->reason);
        change.error = letter->error;
        change.died_ns = letter->died_ns;
    } else if (s->why[0]) {
        change.reason = dead_reason_text(REASON_BAD_HEADER);
        change.error = s->why;
        change.died_ns = clock_wall_ns();
    }
    if (!err && msg->row)
        err = letters_history(m->store, msg->row, attempt_visit, &all);
    return err ? err : envelope_made_end(e, &change);
}

int move_grouped(const struct move *m, const struct move_message *msg,
                 struct problem *p)
{
    char id[ULID_TEXT];

    ulid_print(msg->id, id);
    (void)problem_set(p, EX_DATAERR, ENOTSUP,
                      "message %s names a group, and groups need a POSIX "
                      "queue: let a worker of %s run what is left",
                      id, m->v.queue);
    return -ENOTSUP;
}

int move_put(struct move *m, const struct move_message *msg, struct problem *p)
{
    struct envelope_made *e = &m->batch[m->count];
    struct shape s;
    size_t head;
    int err = shape_find(m, msg, &s, p);

    if (err == -ENOTSUP)
        return move_grouped(m, msg, p);
    if (err)
        return err;
    err = properties_make(m, msg, &s, e);
    m->count++;
    if (err)
        return problem_set(p, err == -ENOMEM ? EX_OSERR : EX_DATAERR, -err,
                           "cannot write the properties of a message: %s",
                           errno_text(-err));
    head = msg->letter ? msg->letter->header_size : s.h.bytes;
    return publisher_put(
        m->publisher,
        &(struct publication){.queue = s.queue,
                              .id = "",
                              .properties = &e->copy.properties,
                              .body = (const char *)msg->data + head,
                              .size = msg->size - head},
        p);
}

int move_flush(struct move *m, enum move_from from, struct problem *p)
{
    int err = m->count ? publisher_flush(m->publisher, p) : 0;

    if (err)
        return err;
    m->moved[from] += m->count;
    m->total += m->count;
    for (size_t i = 0; i < m->count; i++)
        envelope_made_free(&m->batch[i]);
    m->count = 0;
    term_progress_step(&m->bar, m->total);
    return 0;
}

/* move_put.c - one message on its way to the broker (see move.h) */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/base/problem.h"
#include "common/store/letters.h"
#include "scripts/mqctl/amqp/move.h"

#define OWN (HEADER_MAX_ATTEMPTS | HEADER_BACKOFF | HEADER_UNIQUE)

/* What a message says, and where it goes. */
struct shape {
    struct move_said said;
    uint64_t due_ns, wait_ms;
    char queue[TOPOLOGY_NAME];
};

void move_read(const struct move *m, const void *data, size_t size, bool stored,
               struct move_said *out)
{
    const char separator = m->o->group_separator;
    struct header_text group;

    *out = (struct move_said){0};
    if (header_parse(data, size, &out->h, out->why) < 0) {
        out->h = (struct header){0};
        return;
    }
    out->why[0] = '\0';
    out->grouped = out->h.fields & HEADER_GROUP;
    out->expired =
        out->h.fields & HEADER_EXPIRES && out->h.expires_ns <= clock_wall_ns();
    if (separator && !stored && out->h.bytes == 0 &&
        header_group_raw(data, size, separator, &group, out->why) == 0)
        out->grouped = group.at != NULL;
}

/* shape_find - to the dead letters, a wait queue or the queue itself; a header
 * that is broken makes a dead letter of it, as its worker would have done */
static int shape_find(struct move *m, const struct move_message *msg,
                      struct shape *s, struct problem *p)
{
    const struct header *h = &s->said.h;
    uint64_t now = clock_wall_ns();
    unsigned part, bit;

    *s = (struct shape){0};
    move_read(m, msg->data, msg->size, msg->stored, &s->said);
    if (s->said.grouped && !msg->letter)
        return -ENOTSUP;
    m->own += (h->fields & OWN) != 0;
    if (msg->letter || s->said.why[0]) {
        topology_dead(&m->topology, s->queue);
        return 0;
    }
    s->due_ns = msg->due_ns                     ? msg->due_ns
                : h->fields & HEADER_NOT_BEFORE ? h->not_before_ns
                                                : 0;
    s->due_ns = s->due_ns > now ? s->due_ns : 0;
    s->wait_ms = topology_length(s->due_ns ? (s->due_ns - now) / NS_PER_MS : 0);
    part = m->topology.partitions ? m->next++ % m->topology.partitions : 0;
    topology_queue(&m->topology, part, s->queue);
    if (s->wait_ms == 0)
        return 0;
    topology_waits(&m->topology, part, s->wait_ms, s->queue);
    bit = 1U << topology_index(s->wait_ms);
    if (m->declared[part] & bit)
        return 0;
    m->declared[part] |= bit;
    return publisher_wait_queue(m->publisher, part, s->wait_ms, p);
}

/* mix - FNV-1a */
static uint64_t mix(uint64_t sum, const void *data, size_t size)
{
    const unsigned char *at = data;

    for (size_t i = 0; i < size; i++)
        sum = (sum ^ at[i]) * 0x100000001b3U;
    return sum;
}

/* line_of - by which a worker of the broker knows that two are copies of one
 * message: the same in each sending, and no other message has it */
static uint64_t line_of(const struct move *m, const struct move_message *msg)
{
    uint64_t sum = mix(0xcbf29ce484222325U, m->v.queue, strlen(m->v.queue));

    sum = mix(sum, m->machine, strlen(m->machine));
    sum = mix(sum, &msg->id, sizeof msg->id);
    sum = mix(sum, &msg->at, sizeof msg->at);
    sum = mix(sum, &msg->received_ns, sizeof msg->received_ns);
    sum &= INT64_MAX; /* a header's number has a sign */
    return sum ? sum : 1;
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
                                     .line = line_of(m, msg),
                                     .resent = msg->doubt};
    int err =
        envelope_made_begin(e, &msg->id, msg->priority, msg->data, &s->said.h);

    if (letter) {
        change.reason = dead_reason_text(letter->reason);
        change.error = letter->error;
        change.died_ns = letter->died_ns;
    } else if (s->said.why[0]) {
        change.reason = dead_reason_text(REASON_BAD_HEADER);
        change.error = s->said.why;
        change.died_ns = clock_wall_ns();
    }
    if (!err && msg->row)
        err = letters_history(m->store, msg->row, attempt_visit, &all);
    return err ? err : envelope_made_end(e, &change);
}

int move_grouped(const struct move *m, const struct ulid *id, struct problem *p)
{
    char text[ULID_TEXT];

    (void)problem_set(p, EX_DATAERR, ENOTSUP,
                      "message %s names a group, and a move does not keep the "
                      "order of groups: let a worker of %s run what is left",
                      ulid_print(*id, text), m->v.queue);
    return -ENOTSUP;
}

int move_put(struct move *m, const struct move_message *msg, struct problem *p)
{
    struct envelope_made *e = &m->batch[m->count];
    char id[ULID_TEXT];
    struct shape s;
    size_t head;
    int err = shape_find(m, msg, &s, p);

    if (err == -ENOTSUP)
        return move_grouped(m, &msg->id, p);
    if (err)
        return err;
    err = properties_make(m, msg, &s, e);
    m->count++;
    if (err)
        return problem_set(p, err == -ENOMEM ? EX_OSERR : EX_DATAERR, -err,
                           "cannot write the properties of message %s: %s",
                           ulid_print(msg->id, id), errno_text(-err));
    head = msg->letter ? msg->letter->header_size : s.said.h.bytes;
    return publisher_put(
        m->publisher,
        &(struct publication){.queue = s.queue,
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

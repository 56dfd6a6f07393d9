/* look.c - letters of a broker, taken and put in a store (see
 * held.h) */
#include "scripts/mqdlq/amqp/held.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "common/amqp/letter_envelope.h"
#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/problem.h"
#include "common/store/sql.h"
#include "common/text/complain.h"
#include "common/text/term.h"

#define CONSUMER "mqdlq"
#define CLAIM    "mqdlq-claim" /* the consumer of held_claim */
#define BATCH    64            /* letters of one transaction */
#define SLICE_MS 200
#define LATE_NS  (20 * NS_PER_S) /* without a letter that is there */
#define MACHINE  64
#define STORED   (ENVELOPE_ERROR + MACHINE + 8)

/* A letter on its way to the store, with what its row points to. */
struct arriving {
    char *bytes; /* header, then body */
    size_t filled, body_size, head;
    struct store_attempt history[ENVELOPE_HISTORY];
    char errors[ENVELOPE_HISTORY][STORED];
    char error[STORED], tail[ENVELOPE_STDERR], group[STORE_GROUP_MAX + 1];
};

struct look {
    struct broker *b;
    struct store *store;
    struct arriving *all; /* BATCH of them */
    struct letter_import rows[BATCH];
    size_t n;
    uint32_t wanted;   /* letters that are to come */
    char consumer[24]; /* its name; one that has letters still takes no more */
    uint64_t tag;      /* of the delivery whose parts come; 0: none */
    amqp_bytes_t raw;
};

static amqp_bytes_t word(const char *text)
{
    return (amqp_bytes_t){strlen(text), (void *)(uintptr_t)text};
}

static const char *text_to(char *out, size_t room, amqp_bytes_t from)
{
    size_t n = from.len < room ? from.len : room - 1;

    if (n > 0)
        memcpy(out, from.bytes, n);
    out[n] = '\0';
    return from.len > 0 ? out : NULL;
}

/* ---- a letter to its row ---- */

/* history_fill - the last attempt's words are those of the letter; the others
 * say where they were, too */
static size_t history_fill(struct arriving *a, const struct letter_envelope *l)
{
    for (size_t i = 0; i < l->attempt_count; i++) {
        const struct letter_attempt *from = &l->attempts[i];

        a->history[i] = (struct store_attempt){
            .started_ns = from->at_ns,
            .duration_ns = from->ms * NS_PER_MS,
            .error = text_to(a->errors[i], STORED, from->error)};
    }
    if (l->attempt_count > 0) {
        a->history[l->attempt_count - 1].stderr_tail = a->tail;
        a->history[l->attempt_count - 1].stderr_size =
            l->tail.len < sizeof a->tail ? l->tail.len : sizeof a->tail;
    }
    return l->attempt_count;
}

static void row_fill(struct letter_import *row, struct arriving *a,
                     const struct envelope *e, const struct letter_envelope *l)
{
    size_t tail = l->tail.len < sizeof a->tail ? l->tail.len : sizeof a->tail;

    if (tail > 0)
        memcpy(a->tail, l->tail.bytes, tail);
    *row = (struct letter_import){
        .m = {.id = e->id,
              .priority = e->priority,
              .attempts = (uint32_t)e->attempt,
              .first_received_ns = e->first_ns,
              .died_ns = l->died_ns,
              .reason = l->reason,
              .error = text_to(a->error, sizeof a->error, l->error),
              .data = a->bytes + HEADER_MAX - e->head,
              .size = e->head + a->body_size,
              .header_size = e->head},
        .history = a->history,
        .history_count = history_fill(a, l)};
    if (l->group.len > 0 && l->group.len <= STORE_GROUP_MAX) {
        row->m.group = text_to(a->group, sizeof a->group, l->group);
        row->m.group_size = l->group.len;
    }
}

/* batch_store - the letters that are whole; their copies need no sync */
static int batch_store(struct look *k)
{
    int err = k->n > 0 ? letters_import(k->store, k->rows, k->n, NULL) : 0;

    for (size_t i = 0; i < k->n; i++)
        free(k->all[i].bytes);
    k->n = 0;
    return err;
}

/* held_add - beside the row that it is going to have */
static int held_add(struct look *k, uint64_t deliveries)
{
    struct broker *b = k->b;
    struct held *held = array_grow(b->held, b->count, &b->room, sizeof *held);

    if (!held)
        return -ENOMEM;
    b->held = held;
    b->held[b->count++] = (struct held){.tag = k->tag,
                                        .at = ftell(b->properties),
                                        .size = k->raw.len,
                                        .deliveries = deliveries};
    return fwrite(k->raw.bytes, 1, k->raw.len, b->properties) == k->raw.len
               ? 0
               : -EIO;
}

/* copy_add - beside the letter that it is one more copy of. Each of the two was
 * looked at as often as the one that was more so: then both are renewed. */
static int copy_add(struct look *k, int64_t first, uint64_t deliveries)
{
    struct broker *b = k->b;
    struct held_copy *copies =
        array_grow(b->copies, b->copy_count, &b->copy_room, sizeof *copies);
    struct held *h = &b->held[first - 1];

    if (!copies)
        return -ENOMEM;
    b->copies = copies;
    copies[b->copy_count++] =
        (struct held_copy){.of = (size_t)first - 1, .tag = k->tag};
    if (h->deliveries < deliveries)
        h->deliveries = deliveries;
    return 0;
}

/* letter_add - the letter in row `n`, which goes on to the store; or a copy of
 * one that is there, which does not */
static int letter_add(struct look *k, const struct envelope *e,
                      uint64_t deliveries)
{
    const struct store_row *m = &k->rows[k->n].m;
    int64_t first = known_first(&k->b->known, m, e);
    int err;

    if (first) {
        err = copy_add(k, first, deliveries);
        if (!err) /* import knows it by its own time and reason */
            err = known_add(&k->b->known, m, e, first);
        free(k->all[k->n].bytes);
        return err;
    }
    err = held_add(k, deliveries);
    if (!err)
        err = known_add(&k->b->known, m, e, (int64_t)k->b->count);
    k->n++;
    return err;
}

/* letter_whole - all its bytes are here */
static int letter_whole(struct look *k)
{
    struct arriving *a = &k->all[k->n];
    struct letter_envelope l;
    char head[HEADER_MAX];
    struct envelope e;
    int err =
        envelope_read(&e, k->raw, a->bytes + HEADER_MAX, a->body_size, head);

    if (!err)
        err = letter_envelope_read(&l, k->raw);
    if (err)
        return err;
    memcpy(a->bytes + HEADER_MAX - e.head, head, e.head);
    row_fill(&k->rows[k->n], a, &e, &l);
    err = letter_add(k, &e, l.deliveries);
    letter_envelope_free(&l);
    free(k->raw.bytes);
    k->raw = (amqp_bytes_t){0, NULL};
    k->tag = 0;
    k->wanted--;
    return err || k->n < BATCH ? err : batch_store(k);
}

/* ---- frames ---- */

static int header_take(struct look *k, const amqp_frame_t *f)
{
    amqp_bytes_t raw = f->payload.properties.raw;
    uint64_t size = f->payload.properties.body_size;
    struct arriving *a = &k->all[k->n];

    if (k->tag == 0 || k->raw.bytes || size > SIZE_MAX / 2)
        return -EPROTO;
    *a = (struct arriving){.body_size = (size_t)size};
    a->bytes = malloc(HEADER_MAX + (size_t)size);
    k->raw.bytes = malloc(raw.len + 1);
    if (!a->bytes || !k->raw.bytes) {
        free(a->bytes);
        return -ENOMEM;
    }
    memcpy(k->raw.bytes, raw.bytes, raw.len);
    k->raw.len = raw.len;
    return size == 0 ? letter_whole(k) : 0;
}

static int body_take(struct look *k, const amqp_frame_t *f)
{
    amqp_bytes_t more = f->payload.body_fragment;
    struct arriving *a = &k->all[k->n];

    if (!k->raw.bytes || more.len > a->body_size - a->filled)
        return -EPROTO;
    memcpy(a->bytes + HEADER_MAX + a->filled, more.bytes, more.len);
    a->filled += more.len;
    return a->filled == a->body_size ? letter_whole(k) : 0;
}

static int method_take(struct look *k, const amqp_method_t *m)
{
    if (m->id == AMQP_BASIC_DELIVER_METHOD) {
        k->tag = ((const amqp_basic_deliver_t *)m->decoded)->delivery_tag;
        return 0;
    }
    if (m->id == AMQP_BASIC_CANCEL_METHOD)
        return -ENOENT;
    return link_closed_by(k->b->link, m) ? -ECONNRESET : 0;
}

/* frames_take - all that are there, up to the last letter that is wanted */
static int frames_take(struct look *k)
{
    struct link *l = k->b->link;
    amqp_frame_t f;
    int n, err = 0;

    while (!err && k->wanted > 0 && (n = link_frame(l, &f)) != NO) {
        if (n < 0)
            err = n;
        else if (f.channel != LINK_CHANNEL)
            continue;
        else if (f.frame_type == AMQP_FRAME_METHOD)
            err = method_take(k, &f.payload.method);
        else if (f.frame_type == AMQP_FRAME_HEADER)
            err = header_take(k, &f);
        else if (f.frame_type == AMQP_FRAME_BODY)
            err = body_take(k, &f);
        link_tidy(l);
    }
    return err;
}

/* letters_take - until all are here; -ETIMEDOUT: the broker gives no more */
static int letters_take(struct look *k)
{
    uint64_t last = clock_mono_ns();
    int err = 0;

    while (!err && k->wanted > 0) {
        struct pollfd fd = {.fd = k->b->link->fd, .events = POLLIN};
        uint32_t before = k->wanted;

        err = frames_take(k);
        if (k->wanted < before)
            last = clock_mono_ns();
        else if (!err && cli_interrupt_seen())
            err = -EINTR;
        else if (!err && clock_mono_ns() - last > LATE_NS)
            err = -ETIMEDOUT;
        if (!err && k->wanted > 0)
            (void)poll(&fd, 1, SLICE_MS);
    }
    return err;
}

/* consume - exactly as many as are wanted: more would only go back */
static int consume(struct look *k)
{
    struct link *l = k->b->link;
    int err;

    (void)amqp_basic_qos(l->c, LINK_CHANNEL, 0, (uint16_t)k->wanted, 0);
    err = link_reply(l, amqp_get_rpc_reply(l->c));
    if (err)
        return err;
    (void)amqp_basic_consume(l->c, LINK_CHANNEL, word(k->b->dead),
                             word(k->consumer), 0, 0, 0,
                             (amqp_table_t){0, NULL});
    return link_reply(l, amqp_get_rpc_reply(l->c));
}

static int look_over(struct look *k, int err)
{
    const struct broker *b = k->b;

    if (err == -EINTR)
        return complain(EX_TEMPFAIL, "interrupted");
    if (err == -ETIMEDOUT)
        return complain(EX_TEMPFAIL,
                        "%s gave %zu letter%s, and then nothing for 20 s, with "
                        "%u to come: another program has them, or the cluster "
                        "has no majority; try again",
                        b->dead, b->count, term_plural(b->count),
                        (unsigned)k->wanted);
    if (err == -ENOMEM)
        return complain_memory();
    return complain(EX_UNAVAILABLE,
                    "cannot read the letters of %s: %s; nothing is lost, try "
                    "again",
                    b->dead, b->link->why[0] ? b->link->why : errno_text(-err));
}

int held_look(struct broker *b, struct store *store, uint32_t count)
{
    struct look k = {.b = b, .store = store, .wanted = count};
    int err = 0;

    if (count == 0)
        return 0;
    k.all = calloc(BATCH, sizeof *k.all);
    if (!k.all)
        return complain_memory();
    snprintf(k.consumer, sizeof k.consumer, CONSUMER "-%u", b->looks++);
    err = consume(&k);
    if (!err)
        err = letters_take(&k);
    if (k.raw.bytes) {
        free(k.all[k.n].bytes);
        free(k.raw.bytes);
    }
    if (!err) { /* what is acknowledged from here on brings no other one */
        (void)amqp_basic_cancel(b->link->c, LINK_CHANNEL, word(k.consumer));
        err = link_reply(b->link, amqp_get_rpc_reply(b->link->c));
    }
    if (!err)
        err = batch_store(&k);
    else
        (void)batch_store(&k);
    free(k.all);
    return err ? look_over(&k, err) : 0;
}

int held_busy(const struct broker *b)
{
    return complain(EX_TEMPFAIL,
                    "another program consumes %s, and only one can at a "
                    "time: end it, or try again later",
                    b->dead);
}

/* held_claim - of two who claim at once both see the other, or one does */
int held_claim(struct broker *b)
{
    struct look k = {.b = b, .wanted = 1, .consumer = CLAIM};
    uint32_t messages, consumers = 0;
    int err = consume(&k);

    b->claimed = !err;
    if (!err)
        err = topology_count(b->link, b->dead, &messages, &consumers);
    if (err)
        return look_over(&k, err);
    return consumers > 1 ? held_busy(b) : 0;
}

int held_unclaim(struct broker *b)
{
    struct link *l = b->link;
    int err;

    (void)amqp_basic_cancel(l->c, LINK_CHANNEL, word(CLAIM));
    err = link_reply(l, amqp_get_rpc_reply(l->c));
    return err ? err
               : link_status(l, amqp_basic_nack(l->c, LINK_CHANNEL, 0, 1, 1));
}

/* held.c - fetches the dead letters of a broker, copies them to a store, and
 * gives them back (see held.h and broker.h)
 *
 * To read a letter, mqdlq must consume it. The broker counts each delivery, and
 * a queue with a delivery limit drops a letter that was read too often. So a
 * letter that was delivered REFRESH times is published again, with all its
 * properties, and its count starts again from 0.
 */
#include "scripts/mqdlq/amqp/held.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/amqp/envelope.h"
#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/problem.h"
#include "common/broker/broker_engine.h"
#include "common/cli/complain.h"
#include "common/cli/term.h"
#include "common/store/store.h"

#define MOST     50000 /* letters fetched; limits memory and prefetch */
#define REFRESH  8     /* deliveries; RabbitMQ 4 drops a letter after 20 */
#define WAIT_NS  (30 * NS_PER_S) /* longest wait for a confirm */
#define FREE_NS  (10 * NS_PER_S) /* longest wait for another mqdlq to end */
#define NAP_NS   (20 * NS_PER_MS)
#define CONSUMER "mqdlq"
#define CLAIM    "mqdlq-claim"   /* consumer of a queue without letters */
#define BATCH    64              /* letters of one transaction */
#define SLICE_MS 200             /* between two checks for an interrupt */
#define LATE_NS  (20 * NS_PER_S) /* longest wait for the next letter */
#define MACHINE  64              /* bytes of a machine's name in an error */
#define STORED   (ENVELOPE_ERROR + MACHINE + 8)

/* ---- held letters ---- */

struct held *held_at(struct broker *b, int64_t row)
{
    if (row < 1 || (uint64_t)row > b->count || b->held[row - 1].gone)
        return NULL;
    return &b->held[row - 1];
}

void *held_properties(struct broker *b, const struct held *h)
{
    void *raw = malloc(h->size + 1);

    if (!raw || fseek(b->properties, h->at, SEEK_SET) != 0 ||
        fread(raw, 1, h->size, b->properties) != h->size) {
        free(raw);
        return NULL;
    }
    return raw;
}

/* Acknowledge one delivery; *gone becomes true once that is sent. */
static int delivery_ack(struct broker *b, uint64_t tag, bool *gone)
{
    int err =
        link_status(b->link, amqp_basic_ack(b->link->c, LINK_CHANNEL, tag, 0));

    *gone = !err;
    return err;
}

/* Acknowledge the copies first. Crash in between: the letter is still in the
 * queue. If it was replayed, the next replay has the same number, by which a
 * worker recognizes the second message (send.c). */
int held_ack(struct broker *b, struct held *h)
{
    size_t at = (size_t)(h - b->held);
    int err = 0;

    for (size_t i = 0; i < b->copy_count && !err; i++)
        if (b->copies[i].of == at && !b->copies[i].gone)
            err = delivery_ack(b, b->copies[i].tag, &b->copies[i].gone);
    return err ? err : delivery_ack(b, h->tag, &h->gone);
}

int held_tend(struct broker *b)
{
    amqp_frame_t f;
    int n;

    while ((n = link_frame(b->link, &f)) == YES)
        if (f.frame_type == AMQP_FRAME_METHOD && f.channel == LINK_CHANNEL &&
            link_closed_by(b->link, &f.payload.method))
            return -ECONNRESET;
    amqp_maybe_release_buffers(b->link->c);
    return n;
}

int held_publisher(struct broker *b, uint64_t wait_ns, struct problem *p)
{
    /* An interrupt that came earlier does not stop the publisher: broker_close
     * still publishes letters then. */
    const struct publisher_setup setup = {
        .link = b->setup,
        .topology = b->topology,
        .wait_ns = wait_ns,
        .stop = cli_interrupt_seen() ? NULL : cli_interrupted};

    return b->publisher ? 0 : publisher_open(&b->publisher, &setup, p);
}

int held_publish(struct broker *b, const char *queue,
                 const amqp_basic_properties_t *properties, const void *body,
                 size_t size, uint64_t wait_ns, struct problem *p)
{
    int err = held_publisher(b, wait_ns, p);

    if (err)
        return err;
    err = publisher_put(b->publisher, queue, properties, body, size, p);
    if (!err)
        err = publisher_flush(b->publisher, p);
    if (err) /* or the publisher would send the message again later */
        publisher_close(&b->publisher);
    return err;
}

/* Copy a text, cut to the room. Returns NULL if the text is empty. */
static const char *text_take(char *out, size_t room, amqp_bytes_t from)
{
    size_t n = from.len < room ? from.len : room - 1;

    if (n > 0)
        memcpy(out, from.bytes, n);
    out[n] = '\0';
    return from.len > 0 ? out : NULL;
}

static const char *broker_machine(void *arg, int64_t row, unsigned n)
{
    struct broker *b = arg;
    struct letter_envelope l;
    struct held *h = held_at(b, row);
    void *raw = h ? held_properties(b, h) : NULL;

    b->machine[0] = '\0';
    if (raw && letter_envelope_read(&l, (amqp_bytes_t){h->size, raw}) == 0) {
        if (n >= 1 && n <= l.attempt_count)
            (void)text_take(b->machine, sizeof b->machine,
                            l.attempts[n - 1].machine);
        letter_envelope_free(&l);
    }
    free(raw);
    return b->machine[0] ? b->machine : NULL;
}

static int64_t broker_discard(struct context *ctx,
                              const struct letter_name *letters, size_t n)
{
    struct broker *b = ctx->broker;
    int64_t gone = 0;

    for (size_t i = 0; i < n; i++) {
        struct held *h = held_at(b, letters[i].row);
        int err = h ? held_ack(b, h) : 0;

        if (err)
            return err;
        gone += h != NULL;
    }
    return gone;
}

/* ---- fetching ---- */

/* A letter on its way to the store, with what its row points to. */
struct arriving {
    void *block; /* with its header and body */
    struct store_attempt history[ENVELOPE_HISTORY];
    char errors[ENVELOPE_HISTORY][STORED];
    char error[STORED], tail[ENVELOPE_STDERR], group[STORE_GROUP_MAX + 1];
};

/* One fetch of letters. */
struct look {
    struct broker *b;
    struct store *store;
    struct arriving *all; /* BATCH of them */
    struct letter_import rows[BATCH];
    size_t n;          /* used in `all` and `rows` */
    uint32_t wanted;   /* letters still to come */
    char consumer[24]; /* a new name for each look */
    struct incoming in;
};

/* Fill in the row of a letter. */
static void letter_row_fill(struct letter_import *row, struct arriving *a,
                            const struct incoming *in, const struct envelope *e,
                            const struct letter_envelope *l)
{
    size_t tail = l->tail.len < sizeof a->tail ? l->tail.len : sizeof a->tail;
    size_t count = l->attempt_count;

    for (size_t i = 0; i < count; i++) {
        const struct letter_attempt *from = &l->attempts[i];

        a->history[i] = (struct store_attempt){
            .started_ns = from->at_ns,
            .duration_ns = from->ms * NS_PER_MS,
            .error = text_take(a->errors[i], STORED, from->error),
            .usage = from->usage};
    }
    if (tail > 0)
        memcpy(a->tail, l->tail.bytes, tail);
    if (count > 0) {
        a->history[count - 1].stderr_tail = a->tail;
        a->history[count - 1].stderr_size = tail;
    }
    *row = (struct letter_import){
        .m = {.id = e->id,
              .priority = e->priority,
              .attempts = (uint32_t)e->attempt,
              .first_received_ns = e->first_ns,
              .died_ns = l->died_ns,
              .reason = l->reason,
              .error = text_take(a->error, sizeof a->error, l->error),
              .data = in->body - e->head,
              .size = e->head + in->body_size,
              .header_size = e->head},
        .history = a->history,
        .history_count = count};
    if (l->group.len > 0 && l->group.len <= STORE_GROUP_MAX) {
        row->m.group = text_take(a->group, sizeof a->group, l->group);
        row->m.group_size = l->group.len;
    }
}

/* Store the letters that have arrived. */
static int look_store(struct look *k)
{
    int err = k->n > 0 ? letters_import(k->store, k->rows, k->n, NULL) : 0;

    for (size_t i = 0; i < k->n; i++)
        free(k->all[i].block);
    k->n = 0;
    return err;
}

/* Take a letter whose bytes have all arrived: prepare its row, and keep its tag
 * and properties under the number of that row. If it is a copy of a known
 * letter, keep only its tag. */
static int letter_take(struct look *k)
{
    struct store_row *m = &k->rows[k->n].m;
    struct incoming *in = &k->in;
    struct broker *b = k->b;
    struct held_copy *copies;
    struct letter_envelope l;
    char head[HEADER_MAX];
    struct envelope e;
    struct held *held;
    int64_t row;
    int err = envelope_read(&e, in->raw, in->body, in->body_size, head);

    if (!err)
        err = letter_envelope_read(&l, in->raw);
    if (err)
        return err;
    memcpy(in->body - e.head, head, e.head);
    letter_row_fill(&k->rows[k->n], &k->all[k->n], in, &e, &l);
    row = known_first(&b->known, m, &e);
    if (row) {
        copies =
            array_grow(b->copies, b->copy_count, &b->copy_room, sizeof *copies);
        err = copies ? 0 : -ENOMEM;
        if (copies) {
            b->copies = copies;
            copies[b->copy_count++] =
                (struct held_copy){.of = (size_t)row - 1, .tag = in->tag};
            /* Count both as delivered as often as either of them, so that both
             * are published again. */
            held = &b->held[row - 1];
            if (held->deliveries < l.deliveries)
                held->deliveries = l.deliveries;
        }
    } else {
        held = array_grow(b->held, b->count, &b->room, sizeof *held);
        err = held ? 0 : -ENOMEM;
        if (held) {
            b->held = held;
            held[b->count++] = (struct held){.tag = in->tag,
                                             .at = ftell(b->properties),
                                             .size = in->raw.len,
                                             .deliveries = l.deliveries};
            if (fwrite(in->raw.bytes, 1, in->raw.len, b->properties) !=
                in->raw.len)
                err = -EIO;
        }
        row = (int64_t)b->count;
        k->all[k->n++].block = in->block;
        in->block = NULL; /* look_store frees it */
    }
    if (!err) /* copies as well: import finds them by time and reason */
        err = known_add(&b->known, m, &e, row);
    letter_envelope_free(&l);
    incoming_next(in);
    k->wanted--;
    return err || k->n < BATCH ? err : look_store(k);
}

/* Consume with a prefetch of the wanted number, so that the broker delivers no
 * more letters. */
static int consumer_start(struct look *k)
{
    struct link *l = k->b->link;
    int err;

    (void)amqp_basic_qos(l->c, LINK_CHANNEL, 0, (uint16_t)k->wanted, 0);
    err = link_reply(l, amqp_get_rpc_reply(l->c));
    if (err)
        return err;
    (void)amqp_basic_consume(l->c, LINK_CHANNEL, amqp_cstring_bytes(k->b->dead),
                             amqp_cstring_bytes(k->consumer), 0, 0, 0,
                             (amqp_table_t){0, NULL});
    return link_reply(l, amqp_get_rpc_reply(l->c));
}

/* Report why the letters cannot be fetched; an exit status. */
static int look_failed(const struct look *k, int err)
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
    struct look k = {
        .b = b, .store = store, .wanted = count, .in.gap = HEADER_MAX};
    struct pollfd fd = {.fd = b->link->fd, .events = POLLIN};
    struct link *l = b->link;
    amqp_frame_t f;
    uint64_t last;
    int n, err, stored;

    if (count == 0)
        return 0;
    k.all = calloc(BATCH, sizeof *k.all);
    if (!k.all)
        return complain_memory();
    snprintf(k.consumer, sizeof k.consumer, CONSUMER "-%u", b->looks++);
    err = consumer_start(&k);
    last = clock_mono_ns();
    while (!err && k.wanted > 0) {
        uint32_t before = k.wanted;

        /* Read all frames that have come, up to the last wanted letter. */
        while (!err && k.wanted > 0 && (n = link_frame(l, &f)) != NO) {
            if (n == YES && f.channel != LINK_CHANNEL)
                continue;
            if (n == YES)
                n = incoming_frame(&k.in, l, &f);
            err = n == YES ? letter_take(&k) : n;
            amqp_maybe_release_buffers(l->c);
        }
        if (err || k.wanted == 0)
            break;
        if (k.wanted < before)
            last = clock_mono_ns();
        else if (cli_interrupt_seen())
            err = -EINTR;
        else if (clock_mono_ns() - last > LATE_NS)
            err = -ETIMEDOUT;
        if (!err)
            (void)poll(&fd, 1, SLICE_MS);
    }
    incoming_next(&k.in);
    if (!err) { /* or each acknowledgement would fetch another letter */
        (void)amqp_basic_cancel(l->c, LINK_CHANNEL,
                                amqp_cstring_bytes(k.consumer));
        err = link_reply(l, amqp_get_rpc_reply(l->c));
    }
    stored = look_store(&k);
    err = err ? err : stored;
    free(k.all);
    return err ? look_failed(&k, err) : 0;
}

/* Report that another program has the letters; an exit status. */
static int held_busy(const struct broker *b)
{
    return complain(EX_TEMPFAIL,
                    "another program is consuming %s, and only one can at "
                    "a time: stop it, or try again later",
                    b->dead);
}

/* ---- opening ---- */

/* Create a store without a name, so that no letter stays on this machine. */
static int copies_open(struct context *ctx)
{
    const char *tmp = getenv("TMPDIR");
    static const char *const files[] = {"/s", "/s-wal", "/s-shm"};
    char dir[200], path[220];
    struct problem p = {0};
    int err;

    snprintf(dir, sizeof dir, "%.150s/mqdlq-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(dir))
        return complain(EX_CANTCREAT, "no folder for copies, %s: %s", dir,
                        errno_text(errno));
    snprintf(path, sizeof path, "%s/s", dir);
    err = store_open(&ctx->store, path, true, &p);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        snprintf(path, sizeof path, "%s%s", dir, files[i]);
        (void)unlink(path);
    }
    (void)rmdir(dir);
    return err ? complain_of(&p) : 0;
}

/* Wait until no other program consumes NAME.dead, and count its letters. *there
 * becomes true if the queue exists. Returns an exit status. */
static int dead_count(struct context *ctx, uint32_t *count, bool *there)
{
    const struct timespec nap = {.tv_nsec = (long)NAP_NS};
    uint64_t end = clock_mono_ns() + FREE_NS;
    struct broker *b = ctx->broker;
    uint32_t consumers;
    int err;

    while ((err = topology_count(b->link, b->dead, count, &consumers)) == 0 &&
           consumers > 0) {
        if (clock_mono_ns() >= end || cli_interrupt_seen())
            return held_busy(b);
        nanosleep(&nap, NULL);
    }
    *there = !err;
    if (!err)
        return 0;
    if (err == -EPROTO && b->link->code == AMQP_NOT_FOUND)
        return ctx->o->line.verb == VERB_IMPORT
                   ? complain(EX_NOINPUT,
                              "virtual host %s has no queue %s yet: start a "
                              "worker of %s, which makes it, and import then",
                              b->operand.vhost, b->dead, ctx->queue)
                   : complain(0,
                              "no dead letters of %s: virtual host %s has no "
                              "queue %s yet, which its worker makes",
                              ctx->queue, b->operand.vhost, b->dead);
    if (b->link->code == AMQP_ACCESS_REFUSED)
        return complain(EX_NOPERM,
                        "user %s may not read %s: %s; rabbitmqctl "
                        "set_permissions",
                        b->operand.user, b->dead, b->link->why);
    return complain(EX_UNAVAILABLE, "cannot inspect %s: %s", b->dead,
                    b->link->why);
}

static int broker_open(struct context *ctx)
{
    const struct options *o = ctx->o;
    struct look claim = {.wanted = 1, .consumer = CLAIM};
    uint32_t count = 0, consumers = 0;
    struct problem p = {0};
    bool there = false;
    struct broker *b;
    int err, status;

    ctx->broker = b = calloc(1, sizeof *b);
    if (!b)
        return complain_memory();
    b->properties = tmpfile();
    if (!b->properties)
        return complain(EX_CANTCREAT, "no file for copies: %s",
                        errno_text(errno));
    cli_interrupt_catch();
    if (broker_operand_parse(&b->operand, o->line.operands[0], &p) < 0 ||
        broker_password_find(b->password, &b->operand, o->access.password_file,
                             &p) < 0)
        return complain_of(&p);
    (void)strlcpy(ctx->queue, b->operand.shown, sizeof ctx->queue);
    b->topology =
        (struct topology){.operand = &b->operand,
                          .no_create = true,
                          .partitions = (unsigned)o->access.partitions};
    topology_dead(&b->topology, b->dead);
    b->to = b->operand;
    b->setup = (struct link_setup){.operand = &b->to,
                                   .password = b->password,
                                   .tls = o->access.tls,
                                   .name = "mqdlq"};
    if (link_open(&b->link, &b->setup, 0, &p) < 0)
        return complain_of(&p);
    status = dead_count(ctx, &count, &there);
    if (status || !there)
        return status;
    if (count > MOST && !o->quiet)
        complain(0,
                 "%s has %" PRIu32 " letters: these are the first %d of them",
                 b->dead, count, MOST);
    b->beyond = count > MOST ? count - MOST : 0;
    status = copies_open(ctx);
    if (status)
        return status;
    if (count > 0 || o->line.verb != VERB_IMPORT)
        return held_look(b, ctx->store, count < MOST ? count : MOST);
    /* An import into a queue without letters consumes it, with a prefetch of
     * one, so that no other mqdlq uses the queue. If two programs do so at the
     * same time, at least one of them sees the other. */
    claim.b = b;
    err = consumer_start(&claim);
    b->claimed = !err;
    if (!err)
        err = topology_count(b->link, b->dead, NULL, &consumers);
    if (err)
        return look_failed(&claim, err);
    return consumers > 1 ? held_busy(b) : 0;
}

/* ---- closing ---- */

/* Argument of letter_refresh; `p` says why publishing failed. */
struct refresh {
    struct broker *b;
    struct problem p;
};

/* Visit: publish a letter again that was delivered often.
 * Crash before the acknowledgement: the queue has the letter twice. known_first
 * recognizes the second one as a copy if both have a line or a time of sending;
 * otherwise mqdlq lists both. So a crash can repeat a letter, but never lose
 * one.
 */
static int letter_refresh(const struct letter *l, void *arg)
{
    struct refresh *r = arg;
    struct broker *b = r->b;
    struct held *h = held_at(b, l->m.row);
    struct envelope_copy copy;
    void *raw = h ? held_properties(b, h) : NULL;
    int err =
        raw ? letter_envelope_same(&copy, (amqp_bytes_t){h->size, raw}) : -EIO;

    if (!err) {
        err = held_publish(b, b->dead, &copy.properties, l->body, l->body_size,
                           WAIT_NS, &r->p);
        envelope_copy_free(&copy);
        FAULT_POINT("letter_refreshed");
        if (!err)
            err = held_ack(b, h);
        b->added += !err;
    }
    free(raw);
    return err;
}

/* Give back the remaining letters, and wait until the broker counts them, so
 * that the next look finds them. */
static int letters_return(struct broker *b)
{
    struct link *l = b->link;
    const struct timespec nap = {.tv_nsec = (long)NAP_NS};
    uint64_t end = clock_mono_ns() + FREE_NS;
    /* Letters that the queue has, or will have when these are back. */
    uint64_t left = b->added + b->beyond;
    uint32_t count = 0;
    uint64_t tag = 0;
    int err = 0;

    for (size_t i = 0; i < b->count; i++)
        if (!b->held[i].gone) {
            tag = b->held[i].tag;
            left++;
        }
    for (size_t i = 0; i < b->copy_count; i++)
        if (!b->copies[i].gone) {
            tag = b->copies[i].tag > tag ? b->copies[i].tag : tag;
            left++;
        }
    if (b->claimed) {
        (void)amqp_basic_cancel(l->c, LINK_CHANNEL, amqp_cstring_bytes(CLAIM));
        err = link_reply(l, amqp_get_rpc_reply(l->c));
    }
    if (!err && (b->claimed || tag)) /* tag 0: all */
        err = link_status(
            l, amqp_basic_nack(l->c, LINK_CHANNEL, b->claimed ? 0 : tag, 1, 1));
    while (!err) {
        err = topology_count(l, b->dead, &count, NULL);
        if (err || count >= left || clock_mono_ns() >= end)
            break;
        nanosleep(&nap, NULL);
    }
    return err;
}

static int broker_close(struct context *ctx)
{
    struct broker *b = ctx->broker;
    char kept[TOPOLOGY_NAME + 8];
    struct refresh refresh = {.b = b};
    uint32_t count = 0;
    int err = 0, status = 0;

    if (!b)
        return 0;
    if (b->link && ctx->store) {
        /* Refresh letters until one fails. The failure does no harm yet, and
         * the next mqdlq tries again. */
        for (size_t i = 0; i < b->count && !err; i++) {
            if (b->held[i].gone || b->held[i].deliveries < REFRESH)
                continue;
            err = letters_get(ctx->store, (int64_t)i + 1, letter_refresh,
                              &refresh);
            if (!err && held_tend(b) < 0)
                break;
        }
        if (err)
            complain(0,
                     "letters of %s that were inspected often could not be "
                     "published again: %s; a delivery-limit of that queue "
                     "would move them to %s.kept",
                     b->dead,
                     refresh.p.text[0] ? refresh.p.text : errno_text(-err),
                     b->dead);
        if (letters_return(b) < 0)
            status = complain(EX_UNAVAILABLE,
                              "lost the connection at the end: %s; letters "
                              "that were removed or sent may still be in %s",
                              b->link->why, b->dead);
        /* Report letters that the broker took out of NAME.dead by a rule of
         * its own. */
        snprintf(kept, sizeof kept, "%s.kept", b->dead);
        if (!status && topology_count(b->link, kept, &count, NULL) == 0 &&
            count > 0)
            complain(
                0,
                "%" PRIu32 " letters are in %s: the broker took them out "
                "of %s, because a policy has a delivery-limit, a length or a "
                "time to live; rabbitmqctl list_policies -p %s shows it",
                count, kept, b->dead, b->operand.vhost);
    }
    publisher_close(&b->publisher);
    link_close(&b->link);
    if (b->properties)
        fclose(b->properties);
    explicit_bzero(b->password, sizeof b->password);
    known_free(&b->known);
    free(b->held);
    free(b->copies);
    free(b);
    ctx->broker = NULL;
    return status;
}

static const struct broker_letters letters = {.open = broker_open,
                                              .close = broker_close,
                                              .discard = broker_discard,
                                              .machine = broker_machine,
                                              .replay_begin =
                                                  broker_replay_begin,
                                              .replay = broker_replay,
                                              .canary_wait = broker_canary_wait,
                                              .import = broker_import};

const struct broker_engine broker_engine_amqp = {.letters = &letters};

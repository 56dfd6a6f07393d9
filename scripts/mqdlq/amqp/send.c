/* send.c - sends letters to a broker: replay, its canary, import (see broker.h)
 *
 * Replay takes one letter after the other: it publishes the message, waits for
 * the broker to confirm that the replicas have it, and acknowledges the letter.
 * Crash before the confirm: the broker has the letter and may have the message.
 * Crash between the confirm and the acknowledgement: the broker has both. Each
 * replay of a letter has a number of its own, by which a worker recognizes the
 * second message of the same replay: it runs only one of them if both come to
 * its machine, and they have the same id wherever they go.
 * So a crash here can repeat one letter, and lose none.
 */
#include "scripts/mqdlq/amqp/held.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>
#include <bsd/stdlib.h>
#include <bsd/string.h>

#include "common/amqp/envelope.h"
#include "common/amqp/topology.h"
#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/problem.h"
#include "common/cli/complain.h"
#include "common/cli/json_line.h"
#include "common/cli/term.h"

#define WAIT_NS       (60 * NS_PER_S) /* for a confirm, without --wait */
#define LOOK_EVERY_NS (100 * NS_PER_MS)
#define PATIENCE_NS   NS_PER_S

/* ---- replay ---- */

/* Publish the message of a letter; 0, or an exit status. The canary keeps its
 * number of attempts: if it had used them all, one more failure makes it a
 * letter again. A retry would not be seen from here. */
static int replay_publish(struct context *ctx, const struct letter *l,
                          const char *to, amqp_bytes_t raw, uint64_t replays,
                          bool canary)
{
    const struct options *o = ctx->o;
    struct broker *b = ctx->broker;
    const struct envelope_change change = {.id = &l->m.id,
                                           .attempt =
                                               canary ? l->m.attempts : 0,
                                           .replay = replays + 1,
                                           .no_expiry = o->reset_expiry};
    struct envelope_copy copy;
    struct problem p = {0};
    int err = envelope_copy(&copy, raw, &change, false);

    if (err)
        return complain(EX_OSERR, "cannot send a letter: %s", errno_text(-err));
    err = held_publish(b, to, &copy.properties, l->body, l->body_size,
                       o->has_wait ? o->wait_ns : WAIT_NS, &p);
    envelope_copy_free(&copy);
    if (err)
        return complain_of(&p);
    FAULT_POINT("amqp_replay_confirmed");
    b->canary = (struct canary){.id = l->m.id, .replay = replays + 1};
    (void)strlcpy(b->canary.queue, to, TOPOLOGY_NAME);
    return 0;
}

int broker_replay_begin(struct context *ctx, const char **to)
{
    struct broker *b = ctx->broker;

    if (ctx->o->to &&
        strlcpy(b->to.queue, ctx->o->to, BROKER_QUEUE) >= BROKER_QUEUE)
        return complain(EX_USAGE, "--to: the name is too long");
    if (ctx->o->canary && b->beyond)
        return complain(EX_TEMPFAIL,
                        "--canary: %s has more letters than mqdlq reads, so it "
                        "might not see that the canary died again; replay or "
                        "discard some letters first",
                        b->dead);
    *to = b->to.queue;
    return 0;
}

int broker_replay(struct context *ctx, const struct letter *l, bool first,
                  struct broker_sent *out)
{
    struct broker *b = ctx->broker;
    struct held *h = held_at(b, l->m.row);
    amqp_bytes_t raw = {h ? h->size : 0, h ? held_properties(b, h) : NULL};
    char time[TIME_TEXT], head[HEADER_MAX], name[TOPOLOGY_NAME], id[ULID_TEXT];
    unsigned parts = ctx->o->to ? 0 : b->topology.partitions;
    struct letter_envelope died;
    struct envelope e;
    const char *to = b->to.queue;
    int status = 0;

    if (!h)
        return 0;
    if (!raw.bytes || envelope_read(&e, raw, l->body, l->body_size, head) < 0 ||
        letter_envelope_read(&died, raw) < 0) {
        free(raw.bytes);
        out->refused = EX_IOERR;
        (void)strlcpy(out->why, "its properties cannot be read", BROKER_WHY);
        return 0;
    }
    /* Choose the partition of its group, or without one the next in turn. */
    if (parts)
        to = topology_queue(&b->topology,
                            died.group.len ? partition_of(died.group.bytes,
                                                          died.group.len, parts)
                                           : b->next++ % parts,
                            name);
    if (died.expires_ns && died.expires_ns <= clock_wall_ns() &&
        !ctx->o->reset_expiry) {
        out->refused = EX_DATAERR;
        snprintf(out->why, BROKER_WHY,
                 "it expired %s; --reset-expiry sends it anyway",
                 time_print(died.expires_ns, time));
    } else if (ctx->o->dry_run) {
        ulid_print(l->m.id, id);
        if (ctx->o->json)
            (void)json_print_line(json_pack("{s:s, s:s, s:I}", "message_id", id,
                                            "to", to, "size",
                                            (json_int_t)l->body_size),
                                  stdout);
        else
            printf("would send %s to %s: %zu bytes\n", id, to, l->body_size);
        out->sent = true;
    } else {
        status =
            replay_publish(ctx, l, to, raw, e.replay, first && ctx->o->canary);
        out->sent = !status;
    }
    letter_envelope_free(&died);
    free(raw.bytes);
    /* The broker does not confirm an acknowledgement, and a kill would lose one
     * that is still in the socket. The answer to a later request shows that the
     * broker has read it. */
    if (out->sent && !ctx->o->dry_run &&
        (held_ack(b, h) < 0 ||
         topology_count(b->link, b->dead, NULL, NULL) < 0))
        return complain(EX_UNAVAILABLE,
                        "lost the connection just as a letter was sent: %s; it "
                        "is still in %s, and if you send it again, the worker "
                        "recognizes the repeat",
                        b->link->why, b->dead);
    return status;
}

/* ---- the canary ---- */

/* A broker shows two things about the message that was sent first: that it came
 * back as a letter, and that its queue was empty, so that a worker took it, on
 * this machine or another one. It does not show that the message is done. So
 * the canary counts as done if it is not a letter again --canary-time after it
 * was taken; the operator knows how long the handlers take. */
struct watch {
    struct context *ctx;
    char id[ULID_TEXT];
    uint64_t start_ns;
    uint64_t taken_ns;         /* 0: not taken, as far as is known */
    uint32_t ready, consumers; /* of its queue */
    bool told;                 /* the reason for the wait was printed */
};

/* Return 75 if the letter is the canary of this replay; a visit of letters_get.
 */
static int death_find(const struct letter *l, void *arg)
{
    struct watch *w = arg;
    struct held *h = held_at(w->ctx->broker, l->m.row);
    amqp_bytes_t raw = {h->size, held_properties(w->ctx->broker, h)};
    char head[HEADER_MAX];
    struct envelope e;
    bool same = raw.bytes &&
                envelope_read(&e, raw, l->body, l->body_size, head) == 0 &&
                memcmp(&e.id, &w->ctx->broker->canary.id, sizeof e.id) == 0 &&
                e.replay == w->ctx->broker->canary.replay;

    free(raw.bytes);
    if (!same)
        return 0;
    return complain(EX_TEMPFAIL,
                    "the canary, letter %s, died again: %s%s%s; nothing else "
                    "was sent",
                    w->id, dead_reason_text(l->m.reason),
                    l->m.error ? ": " : "", l->m.error ? l->m.error : "");
}

/* Inspect both queues; 0, or an exit status. Hold the letters that came since
 * the last time, and search them for the canary. If a new letter is a copy of a
 * known one, search that: a replay that was killed had sent the canary before.
 */
static int canary_look(struct watch *w)
{
    struct broker *b = w->ctx->broker;
    size_t from = b->count, copies = b->copy_count, fresh, at;
    uint32_t letters = 0;
    int err = topology_count(b->link, b->dead, &letters, NULL);
    int status = held_look(b, w->ctx->store, letters);

    fresh = b->count - from;
    for (size_t i = 0; i < fresh + b->copy_count - copies && !status; i++) {
        at = i < fresh ? from + i : b->copies[copies + i - fresh].of;
        if (!b->held[at].gone)
            status = letters_get(w->ctx->store, (int64_t)at + 1, death_find, w);
    }
    if (status)
        return status < 0 ? store_failed("read a letter", status) : status;
    if (!err)
        err =
            topology_count(b->link, b->canary.queue, &w->ready, &w->consumers);
    if (err)
        return complain(EX_UNAVAILABLE,
                        "the canary, letter %s, was sent, but mqdlq cannot see "
                        "how it ends: %s; nothing else was sent",
                        w->id, b->link->why);
    /* Without a consumer, the broker gives the canary to the next one. */
    if (w->consumers == 0)
        w->taken_ns = 0;
    else if (!w->taken_ns && w->ready == 0)
        w->taken_ns = clock_mono_ns();
    return 0;
}

/* Return true if the time of the canary is over. */
static bool canary_survived(const struct watch *w)
{
    return w->taken_ns && clock_mono_ns() - w->taken_ns >= w->ctx->o->canary_ns;
}

int broker_canary_wait(struct context *ctx)
{
    char time[DURATION_TEXT];
    const struct timespec nap = {.tv_nsec = (long)LOOK_EVERY_NS};
    struct watch w = {.ctx = ctx, .start_ns = clock_mono_ns()};
    uint64_t end =
        ctx->o->has_wait ? ns_add(w.start_ns, ctx->o->wait_ns) : UINT64_MAX;

    ulid_print(ctx->broker->canary.id, w.id);
    /* An open publisher would need heartbeats during the wait. */
    publisher_close(&ctx->broker->publisher);
    for (;;) {
        /* Check the time before the look, so that the look is the last one. */
        bool last = canary_survived(&w);
        int status = canary_look(&w);

        if (status)
            return status;
        if (last && canary_survived(&w)) {
            if (!ctx->o->quiet)
                complain(0,
                         "the canary, letter %s, has not died %s after a "
                         "worker took it; sending the other letters",
                         w.id, duration_print(ctx->o->canary_ns, time));
            return 0;
        }
        if (cli_interrupt_seen() || clock_mono_ns() >= end)
            return complain(EX_TEMPFAIL,
                            "the canary, letter %s, is not settled%s; nothing "
                            "else was sent",
                            w.id, cli_interrupt_seen() ? "" : " in time");
        /* Explain once why no worker has taken the canary for so long. */
        if (!w.told && !w.taken_ns && !ctx->o->quiet &&
            clock_mono_ns() - w.start_ns >= PATIENCE_NS) {
            w.told = true;
            complain(
                0,
                "letter %s was sent to %s (%" PRIu32 " message%s there, "
                "%s); waiting until a worker takes it%s",
                w.id, ctx->broker->canary.queue, w.ready, term_plural(w.ready),
                w.consumers ? "workers consume" : "nobody consumes",
                ctx->o->has_wait ? "" : ", Ctrl-C ends that (or --wait DUR)");
        }
        nanosleep(&nap, NULL);
    }
}

/* ---- import ---- */

/* An import leaves out letters that the broker has already, so an import that
 * was killed can be run again. Until its end it holds those letters, or, if
 * there are none, consumes their queue. So no other program can replay, discard
 * or import letters at the same time.
 * Crash before a confirm: the broker has the letter or not, and the next run of
 * the same file finds out. So a crash here can lose none and repeat none. */

/* Publish a letter, unless the broker already has it and `again` is false. Its
 * properties are as a worker of the broker would have written them. */
static int import_put(struct broker *b, const struct decoding *d, bool again,
                      struct broker_imported *sum, struct problem *p)
{
    struct store_row m = d->letter.m;
    size_t count = d->letter.history_count;
    struct envelope_attempt *failed;
    uint64_t id[2] = {FNV_BEGIN, d->line + 1};
    const unsigned char *at = m.data;
    struct envelope_copy copy;
    struct header h = {0};
    int err;

    /* Make an id for a letter without one from its bytes and its line in the
     * file, so that it has the same id in the next run. */
    if (!d->letter.named) {
        for (size_t i = 0; i < m.size; i++) {
            id[0] = (id[0] ^ at[i]) * FNV_PRIME;
            id[1] = (id[1] ^ (at[i] + 1U) ^ id[0] >> 29) * FNV_PRIME;
        }
        memcpy(m.id.bytes, id, sizeof m.id.bytes);
        m.id.bytes[0] |= 1; /* all 0 would be no id */
    }
    if (!again && known_has(&b->known, &m, d->letter.dated)) {
        sum->present++;
        return 0;
    }
    failed = calloc(count + 1, sizeof *failed);
    for (size_t i = 0; failed && i < count; i++) {
        const struct store_attempt *a = &d->letter.history[i];

        failed[i] = (struct envelope_attempt){
            .at_ns = a->started_ns,
            .duration_ns = a->duration_ns,
            .usage = a->usage,
            .number = i + 1,
            .error = a->error ? a->error : "",
            .machine = d->machines[i] ? d->machines[i] : "",
            .tail = a->stderr_tail,
            .tail_size = a->stderr_size};
    }
    if (m.header_size > 0 && header_parse(m.data, m.size, &h, NULL) < 0)
        h = (struct header){0};
    if (m.group) {
        h.group = (struct header_text){m.group, m.group_size};
        h.fields |= HEADER_GROUP;
    }
    err = failed ? known_add(&b->known, &m, NULL, 0) : -ENOMEM;
    /* The line is new, so that a replay is not taken for that of an earlier
     * import. */
    if (!err)
        err = envelope_make(
            &copy, m.priority, m.data, &h,
            &(struct envelope_change){
                .id = &m.id,
                .attempt = m.attempts,
                .first_ns = m.first_received_ns,
                .line = ((uint64_t)arc4random() << 31 ^ arc4random()) | 1,
                .reason =
                    m.reason == REASON_NONE ? NULL : dead_reason_text(m.reason),
                .error = m.error,
                .died_ns = m.died_ns,
                .failed = failed,
                .failed_count = count});
    free(failed);
    if (err)
        return problem_set(p, EX_OSERR, -err,
                           "line %" PRIu64 ": cannot write its properties: %s",
                           d->line, errno_text(-err));
    err = publisher_put(b->publisher, b->dead, &copy.properties,
                        (const char *)m.data + m.header_size,
                        m.size - m.header_size, p);
    envelope_copy_free(&copy);
    return err;
}

int broker_import(struct context *ctx, const struct decoding *list, size_t n,
                  struct broker_imported *sum, struct problem *p)
{
    struct broker *b = ctx->broker;
    bool grouped = false;
    uint64_t before;
    int err;

    if (b->beyond && !b->warned_beyond) /* not all letters are known */
        complain(0,
                 "%s has more letters than mqdlq reads: if the file has one "
                 "of the others, the broker will have it twice",
                 b->dead);
    b->warned_beyond = true;
    for (size_t i = 0; i < n; i++)
        grouped = grouped || list[i].letter.m.group;
    if (grouped && !b->warned_groups && !b->topology.partitions &&
        !ctx->o->quiet) {
        b->warned_groups = true;
        complain(0, "some letters name a group, and a queue without "
                    "partitions refuses groups: they will be dead again "
                    "(bad-header). Replay them with --partitions N");
    }
    err = held_publisher(b, WAIT_NS, p);
    if (err)
        return err;
    before = publisher_confirmed(b->publisher);
    for (size_t i = 0; i < n && !err; i++)
        err = import_put(b, &list[i], ctx->o->again, sum, p);
    if (!err)
        err = publisher_flush(b->publisher, p);
    sum->in += publisher_confirmed(b->publisher) - before;
    b->added += publisher_confirmed(b->publisher) - before;
    if (err)
        publisher_close(&b->publisher);
    if (!err && held_tend(b) < 0)
        return problem_set(p, EX_UNAVAILABLE, ECONNRESET,
                           "lost the connection to the broker: %s",
                           b->link->why);
    return err;
}

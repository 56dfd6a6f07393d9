/* broker_replay.c - letters of a broker, sent again (see broker.h)
 *
 * One after the other: the message is published, the broker confirms that it is
 * on its replicas, and the letter is acknowledged.
 * Crash before the confirm: the letter is there, and the message may be.
 * Crash between the confirm and the acknowledgement: both are there. Each
 * replay of a letter has a number of its own, by which a worker knows the
 * second message of the same replay: it runs one of the two if both come to its
 * machine, and they have the same id wherever they come to.
 * So a crash here can repeat one letter, and lose none.
 */
#include "scripts/mqdlq/amqp/held.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <bsd/string.h>

#include "common/amqp/letter_envelope.h"
#include "common/amqp/partition.h"
#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/problem.h"
#include "common/text/complain.h"
#include "common/text/json_line.h"
#include "common/text/term.h"
#include "scripts/mqdlq/selection.h"

#define WAIT_NS (60 * NS_PER_S) /* for a confirm, unless told otherwise */

struct replay {
    struct context *ctx;
    struct broker *b;
    struct selection chosen;
    struct rate_limit rate;
    struct term_progress bar;
    struct canary canary;
    uint64_t sent, refused;
    int status; /* of letters that were passed over */
};

/* A letter while it is sent. */
struct sending {
    struct replay *r;
    struct held *h;
    int status;
};

static void refuse(struct replay *r, const struct letter *l, int status,
                   const char *why)
{
    char id[ULID_TEXT];

    r->refused++;
    r->status = status_worse(r->status, status);
    complain(0, "letter %s is not sent: %s", ulid_print(l->m.id, id), why);
}

/* queue_of - where its group belongs, if it has one; the others are spread */
static const char *queue_of(struct replay *r, amqp_bytes_t group,
                            char name[TOPOLOGY_NAME])
{
    struct broker *b = r->b;
    unsigned parts = b->topology.partitions;

    if (r->ctx->o->to || !parts)
        return b->to.queue;
    return topology_queue(&b->topology,
                          group.len
                              ? partition_of(group.bytes, group.len, parts)
                              : b->next++ % parts,
                          name);
}

static void foretell(struct replay *r, const struct letter *l,
                     amqp_bytes_t group)
{
    char id[ULID_TEXT], name[TOPOLOGY_NAME];
    const char *to = queue_of(r, group, name);

    ulid_print(l->m.id, id);
    if (r->ctx->o->json)
        (void)json_print_line(json_pack("{s:s, s:s, s:I}", "message_id", id,
                                        "to", to, "size",
                                        (json_int_t)l->body_size),
                              stdout);
    else
        printf("would send %s to %s: %zu bytes\n", id, to, l->body_size);
}

/* publish - the message of a letter; 0, or an exit status
 * A retry of the canary would be seen by nobody: its attempts go on from where
 * they were, so that one which had used them up is a letter after one more.
 */
static int publish(struct sending *s, const struct letter *l, amqp_bytes_t raw,
                   amqp_bytes_t group, uint64_t replays)
{
    const struct options *o = s->r->ctx->o;
    struct broker *b = s->r->b;
    const struct envelope_change change = {
        .id = &l->m.id,
        .attempt = o->canary && s->r->sent == 0 ? l->m.attempts : 0,
        .replay = replays + 1,
        .no_expiry = o->reset_expiry};
    char name[TOPOLOGY_NAME];
    const char *to = queue_of(s->r, group, name);
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
    s->r->canary = (struct canary){.id = l->m.id, .replay = replays + 1};
    (void)strlcpy(s->r->canary.queue, to, TOPOLOGY_NAME);
    s->r->sent++;
    if (held_ack(b, s->h) < 0 || held_heard(b) < 0)
        return complain(EX_UNAVAILABLE,
                        "lost the connection just as a letter was sent: %s; it "
                        "is in %s still, and sent again it is known as a "
                        "repeat",
                        b->link->why, b->dead);
    return 0;
}

/* letter_send - visit */
static int letter_send(const struct letter *l, void *arg)
{
    struct sending *s = arg;
    struct replay *r = s->r;
    char why[120], time[TIME_TEXT], head[HEADER_MAX];
    struct letter_envelope died;
    amqp_bytes_t raw = {s->h->size, held_properties(r->b, s->h)};
    struct envelope e;

    if (!raw.bytes || letter_envelope_read(&died, raw) < 0 ||
        envelope_read(&e, raw, l->body, l->body_size, head) < 0) {
        free(raw.bytes);
        refuse(r, l, EX_IOERR, "its properties cannot be read");
        return 0;
    }
    snprintf(why, sizeof why,
             "it expired %s; --reset-expiry sends it all the same",
             time_print(died.expires_ns, time));
    if (died.expires_ns && died.expires_ns <= clock_wall_ns() &&
        !r->ctx->o->reset_expiry)
        refuse(r, l, EX_DATAERR, why);
    else if (!r->ctx->o->dry_run)
        s->status = publish(s, l, raw, died.group, e.replay);
    else {
        foretell(r, l, died.group);
        r->sent++;
    }
    letter_envelope_free(&died);
    free(raw.bytes);
    return 0;
}

static int one(struct replay *r, int64_t row)
{
    struct sending s = {.r = r, .h = held_at(r->b, row)};
    uint64_t sent = r->sent;
    int err;

    if (!s.h)
        return 0;
    if (!r->ctx->o->dry_run && rate_limit_wait(&r->rate) != 0)
        return complain(EX_TEMPFAIL, "interrupted");
    err = letters_get(r->ctx->store, row, letter_send, &s);
    if (err)
        return store_failed("read a letter", err);
    if (s.status || !r->ctx->o->canary || r->ctx->o->dry_run || sent > 0 ||
        r->sent == 0)
        return s.status;
    term_progress_clear(&r->bar);
    return held_canary_wait(r->ctx, &r->canary);
}

static void summary(const struct replay *r)
{
    const struct options *o = r->ctx->o;
    size_t total = r->chosen.count;

    if (summary_told(r->ctx,
                     json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:b}", "queue",
                               r->ctx->queue, "to", r->b->to.queue, "chosen",
                               (json_int_t)total, "sent", (json_int_t)r->sent,
                               "refused", (json_int_t)r->refused, "on_way",
                               (json_int_t)0, "dry_run", o->dry_run)))
        return;
    printf("%" PRIu64 " of %zu letter%s %s to %s", r->sent, total,
           term_plural(total), o->dry_run ? "would be sent" : "sent",
           r->b->to.queue);
    if (r->refused > 0)
        printf(", %" PRIu64 " not", r->refused);
    putchar('\n');
}

int broker_replay_run(struct context *ctx)
{
    struct replay r = {.ctx = ctx, .b = ctx->broker};
    int status = selection_make(&r.chosen, ctx);

    if (status)
        return status;
    if (ctx->o->to &&
        strlcpy(r.b->to.queue, ctx->o->to, BROKER_QUEUE) >= BROKER_QUEUE)
        return complain(EX_USAGE, "--to: the name is too long");
    if (ctx->o->canary && r.b->beyond)
        return complain(EX_TEMPFAIL,
                        "--canary: %s has more letters than are looked at, so "
                        "one that comes back would not be seen; replay or "
                        "discard some first",
                        r.b->dead);
    if (r.chosen.count > 1 && !ctx->o->dry_run && !ctx->o->quiet)
        term_progress_start(&r.bar, "replaying", r.chosen.count);
    rate_limit_start(&r.rate, ctx->o->rate, clock_mono_ns());
    for (size_t i = 0; i < r.chosen.count && !status; i++) {
        status = one(&r, r.chosen.picks[i].row);
        term_progress_step(&r.bar, r.sent);
    }
    term_progress_end(&r.bar);
    summary(&r);
    status = status_worse(status, r.status);
    status = status_worse(status, r.chosen.missing ? EX_NOINPUT : 0);
    selection_free(&r.chosen);
    return status;
}

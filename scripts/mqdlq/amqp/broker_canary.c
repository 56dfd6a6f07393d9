/* broker_canary.c - how the message that was sent first has ended (see
 * held.h)
 *
 * A broker tells two things of it: that it came back as a letter, and that its
 * queue was empty, so that a worker took it, on this machine or another one. It
 * does not tell that the message is done. So the canary is taken for done if it
 * is no letter some time after it was taken; the operator, who knows the
 * handlers, gives that time.
 */
#include "scripts/mqdlq/amqp/held.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>

#include "common/amqp/envelope.h"
#include "common/base/clock.h"
#include "common/text/complain.h"
#include "common/text/term.h"

#define LOOK_EVERY_NS (100 * NS_PER_MS)
#define PATIENCE_NS   NS_PER_S

struct watch {
    struct context *ctx;
    const struct canary *canary;
    char id[ULID_TEXT];
    uint64_t start_ns;
    uint64_t taken_ns;         /* 0: as far as is known nobody has it */
    uint32_t ready, consumers; /* of its queue */
    bool told;                 /* what it waits for */
};

/* death_find - visit: 75 if it is the one, and of this replay */
static int death_find(const struct letter *l, void *arg)
{
    struct watch *w = arg;
    struct held *h = held_at(w->ctx->broker, l->m.row);
    amqp_bytes_t raw = {h->size, held_properties(w->ctx->broker, h)};
    char head[HEADER_MAX];
    struct envelope e;
    bool same = raw.bytes &&
                envelope_read(&e, raw, l->body, l->body_size, head) == 0 &&
                memcmp(&e.id, &w->canary->id, sizeof e.id) == 0 &&
                e.replay == w->canary->replay;

    free(raw.bytes);
    if (!same)
        return 0;
    return complain(EX_TEMPFAIL,
                    "the canary, letter %s, died again: %s%s%s; nothing else "
                    "was sent",
                    w->id, dead_reason_text(l->m.reason),
                    l->m.error ? ": " : "", l->m.error ? l->m.error : "");
}

/* death_look - at one letter; 0, or an exit status */
static int death_look(struct watch *w, size_t at)
{
    int status;

    if (w->ctx->broker->held[at].gone)
        return 0;
    status = letters_get(w->ctx->store, (int64_t)at + 1, death_find, w);
    return status < 0 ? store_failed("read a letter", status) : status;
}

/* deaths_look - at the letters that came since the last look, which are held
 * like the others; 0, or an exit status. One that is a copy was there already:
 * a replay that was killed had sent the canary before. */
static int deaths_look(struct watch *w, uint32_t count)
{
    struct broker *b = w->ctx->broker;
    size_t from = b->count, copies = b->copy_count;
    int status = held_look(b, w->ctx->store, count);

    for (size_t i = from; i < b->count && !status; i++)
        status = death_look(w, i);
    for (size_t i = copies; i < b->copy_count && !status; i++)
        status = death_look(w, b->copies[i].of);
    return status;
}

/* look - at both queues; 0, or an exit status */
static int look(struct watch *w)
{
    struct broker *b = w->ctx->broker;
    uint32_t letters, consumers;
    int err = topology_count(b->link, b->dead, &letters, &consumers);
    int status = !err && letters > 0 ? deaths_look(w, letters) : 0;

    if (status)
        return status;
    if (!err)
        err =
            topology_count(b->link, w->canary->queue, &w->ready, &w->consumers);
    if (err)
        return complain(EX_UNAVAILABLE,
                        "the canary, letter %s, was sent, and how it ends is "
                        "not known: %s; nothing else was sent",
                        w->id, b->link->why);
    /* Without a consumer, the broker gives the canary to the next one. */
    if (w->consumers == 0)
        w->taken_ns = 0;
    else if (!w->taken_ns && w->ready == 0)
        w->taken_ns = clock_mono_ns();
    return 0;
}

/* wait_tell - once, why it takes so long that nobody has it */
static void wait_tell(struct watch *w)
{
    const struct options *o = w->ctx->o;

    if (w->told || w->taken_ns || o->quiet ||
        clock_mono_ns() - w->start_ns < PATIENCE_NS)
        return;
    w->told = true;
    complain(0,
             "letter %s was sent to %s (%" PRIu32 " message%s there, %s); "
             "waiting until a worker takes it%s",
             w->id, w->canary->queue, w->ready, term_plural(w->ready),
             w->consumers ? "workers consume" : "nobody consumes",
             o->has_wait ? "" : ", Ctrl-C ends that (or --wait DUR)");
}

/* survived - its time is over */
static bool survived(const struct watch *w)
{
    return w->taken_ns && clock_mono_ns() - w->taken_ns >= w->ctx->o->canary_ns;
}

static int survived_tell(const struct watch *w)
{
    char time[DURATION_TEXT];

    if (!w->ctx->o->quiet)
        complain(0,
                 "the canary, letter %s, is no letter again %s after it was "
                 "taken: the others follow",
                 w->id, duration_print(w->ctx->o->canary_ns, time));
    return 0;
}

int held_canary_wait(struct context *ctx, const struct canary *canary)
{
    const struct timespec nap = {.tv_nsec = (long)LOOK_EVERY_NS};
    struct watch w = {
        .ctx = ctx, .canary = canary, .start_ns = clock_mono_ns()};
    uint64_t end =
        ctx->o->has_wait ? ns_add(w.start_ns, ctx->o->wait_ns) : UINT64_MAX;

    ulid_print(canary->id, w.id);
    /* It would have to be tended meanwhile, and is opened again. */
    publisher_close(&ctx->broker->publisher);
    for (;;) {
        /* Its time is over before the look, so that the look is the last. */
        bool last = survived(&w);
        int status = look(&w);

        if (status)
            return status;
        if (last && survived(&w))
            return survived_tell(&w);
        if (cli_interrupt_seen() || clock_mono_ns() >= end)
            return complain(EX_TEMPFAIL,
                            "the canary, letter %s, is not settled%s; nothing "
                            "else was sent",
                            w.id, cli_interrupt_seen() ? "" : " in time");
        wait_tell(&w);
        nanosleep(&nap, NULL);
    }
}

/* canary.c - see mqdlq.h */
#include "scripts/mqdlq/mqdlq.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/mq/patience.h"
#include "common/state/worker_lock.h"
#include "common/store/letters.h"
#include "common/text/complain.h"

#define LOOK_EVERY_NS (50 * NS_PER_MS)

/* death_say - visit: the reason of its new death */
static int death_say(const struct letter *l, void *arg)
{
    (void)arg;
    return complain(EX_TEMPFAIL,
                    "the canary, letter %" PRId64
                    ", died again: %s%s%s; nothing else was sent",
                    l->m.row, dead_reason_text(l->m.reason),
                    l->m.error ? ": " : "", l->m.error ? l->m.error : "");
}

/* canary_look - -EAGAIN while it is on its way, else an exit status. Any row
 * that is neither gone nor dead of another death is on its way: in the queue,
 * in a handler, or waiting for its next attempt. */
static int canary_look(struct context *ctx, int64_t row, uint64_t died_ns)
{
    struct store_row m;
    int err = store_get(ctx->store, row, &m, NULL, 0, NULL);
    int status;

    if (err == -ENOENT)
        return 0;
    if (err)
        return store_failed("watch the canary", err);
    if (m.state != STORE_DEAD)
        return -EAGAIN;
    if (m.died_ns == died_ns)
        return complain(EX_TEMPFAIL,
                        "the canary, letter %" PRId64
                        ", was taken back; nothing else was sent",
                        row);
    status = letters_get(ctx->store, row, death_say, NULL);
    return status == -ENOENT ? 0
           : status < 0      ? store_failed("watch the canary", status)
                             : status;
}

/* canary_wait - until it is settled */
int canary_wait(struct context *ctx, int64_t row, uint64_t died_ns,
                uint64_t limit_ns)
{
    const struct timespec nap = {.tv_nsec = (long)LOOK_EVERY_NS};
    uint64_t deadline = ns_add(clock_mono_ns(), limit_ns);
    struct patience patience = {0};
    char worker[WORKER_CLAUSE];

    patience_start(&patience);
    for (;;) {
        int status = canary_look(ctx, row, died_ns);

        if (status != -EAGAIN)
            return status;
        if (cli_interrupt_seen() || clock_mono_ns() >= deadline)
            return complain(EX_TEMPFAIL,
                            "the canary, letter %" PRId64
                            ", is not settled%s; nothing else was sent",
                            row, cli_interrupt_seen() ? "" : " in time");
        if (patience_over(&patience) && !ctx->o->quiet)
            complain(
                0,
                "letter %" PRId64 " was sent, %s; waiting until a worker "
                "has settled it%s",
                row, worker_lock_clause(ctx->o->state_dir, ctx->queue, worker),
                limit_ns == UINT64_MAX ? ", Ctrl-C ends that (or --wait DUR)"
                                       : "");
        nanosleep(&nap, NULL);
    }
}

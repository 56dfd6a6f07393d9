/* spool_on.c - from off to on (see spool_inner.h)
 *
 * Ends of messages whose rows are on the disk still are in a file beside that
 * of custody, whose number is in the store as long as a worker runs. If the
 * machine went down, or the file is not the one of that number, the ends are
 * not known: all rows that are there may have run, and say so when they run.
 */
#include "worker/source/mq/spool_inner.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <bsd/stdlib.h>

#include "common/base/problem.h"

/* ends_ready - the file that the last worker noted ends in, or a new one
 * The store has the number of the first already, so that a start after a kill
 * writes nothing. Crash between the two writes of a new one: the store has
 * another number, or none, and the next start doubts, or begins, in the same
 * way. */
static int ends_ready(struct spool *sp, struct problem *p)
{
    struct store_spool_left left;
    char path[PATH_MAX];
    const char *custody = custody_path(sp->q->custody);
    uint64_t run;
    int err;

    if (snprintf(path, sizeof path, "%.*sends",
                 (int)(strrchr(custody, '/') - custody + 1),
                 custody) >= (int)sizeof path)
        return problem_set(p, EX_CANTCREAT, ENAMETOOLONG, "%s: too long",
                           custody);
    err = ends_open(&sp->ends, path, p);
    if (err)
        return err;
    err = store_spool_left(sp->q->store, &left);
    run = ends_run(sp->ends);
    sp->doubt = left.doubt;
    if (!err && (left.cut || run == 0 || run != left.run)) {
        run = (uint64_t)arc4random() + 1;
        ends_reset(sp->ends, run);
        if (left.run)
            sp->doubt = left.seq;
    }
    if (!err && run != left.run)
        err = store_spool_begin(sp->q->store, run, sp->doubt);
    if (err)
        return problem_set(p, EX_CANTCREAT, -err,
                           "store of %s: the spool cannot be started: %s. "
                           "Nothing was lost; %s, and start again",
                           sp->q->set->queue, errno_text(-err),
                           disk_advice(err));
    sp->seq = left.seq;
    return 0;
}

/* fill - what can fail */
static int fill(struct spool *sp, struct problem *p)
{
    size_t most = custody_slots_most(sp->q->custody);

    sp->room = (size_t)SPOOL_AHEAD * 1024;
    if (sp->room < custody_body_bytes(sp->q->custody))
        sp->room = custody_body_bytes(sp->q->custody);
    sp->waiting = calloc(most + 1, sizeof *sp->waiting);
    sp->writing = calloc(most, sizeof *sp->writing);
    sp->rows = calloc(most, sizeof *sp->rows);
    sp->keys = calloc(most, sizeof *sp->keys);
    sp->later = calloc(most, sizeof *sp->later);
    sp->bodies = malloc(sp->room);
    /* The kernel gives memory for those that are used: one or a few. */
    sp->taken = calloc(STORE_SPOOL_PRIORITY + 1, sizeof *sp->taken);
    if (!sp->waiting || !sp->writing || !sp->rows || !sp->keys || !sp->later ||
        !sp->bodies || !sp->taken)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    return ends_ready(sp, p);
}

/* spool_turn_on - under the lock of take in the moment itself: a thread that
 * takes does so before it, or by way of the spool */
int spool_turn_on(struct spool *sp, struct problem *p)
{
    int err = fill(sp, p);

    if (err)
        return err;
    sp->q->hold_take(sp->q->hold_arg, true);
    custody_seq_raise(sp->q->custody, sp->seq + 1);
    sp->q->spool = &sp->hook;
    sp->q->hold_take(sp->q->hold_arg, false);
    return 0;
}

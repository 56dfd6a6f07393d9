/* context.c - see mqdlq.h */
#include "scripts/mqdlq/mqdlq.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>

#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/broker/broker_operand.h"
#include "common/mq/queue.h"
#include "common/state/counters.h"
#include "common/state/queue_guess.h"
#include "common/state/runtimedir.h"
#include "common/state/statedir.h"
#include "common/state/worker_lock.h"
#include "common/text/complain.h"
#include "common/text/json_line.h"
#include "scripts/mqdlq/broker.h"

/* store_failed - say it, with the exit status */
int store_failed(const char *what, int err)
{
    if (err == -EBUSY)
        return complain(EX_TEMPFAIL,
                        "cannot %s: another program has kept the store locked "
                        "for too long; try again",
                        what);
    return complain(err == -ENOMEM                         ? EX_OSERR
                    : disk_is_full(err) || err == -EUCLEAN ? EX_CANTCREAT
                                                           : EX_IOERR,
                    "cannot %s: %s; %s", what, errno_text(-err),
                    disk_advice(err));
}

bool summary_told(const struct context *ctx, json_t *object)
{
    if (!ctx->o->json)
        json_decref(object);
    else if (json_print_line(object, stdout) < 0)
        complain_memory();
    return ctx->o->json || ctx->o->quiet;
}

/* kept_from - a worker runs, and its store was moved or removed: do not make a
 * new one in its place, and do not open another file */
static int kept_from(const struct statedir *dir, const char *path,
                     struct problem *p)
{
    char file[PATH_MAX];
    struct counters *c = NULL;
    struct counters_header h = {0};
    enum worker_phase phase;
    struct worker_wait wait = {0};
    struct stat st;
    bool gone;

    do {
        phase = worker_phase(dir);
        gone = stat(path, &st) < 0 && errno == ENOENT;
    } while (phase != WORKER_PHASE_NONE && gone &&
             worker_phase_wait(dir, &wait));
    if (phase != WORKER_PHASE_SERVING)
        return 0;
    if (gone)
        return problem_set(p, EX_TEMPFAIL, ENOENT,
                           "%s was moved or removed under a worker that runs: "
                           "move it back, or if it was removed the worker "
                           "writes it again within seconds; mqctl doctor %s "
                           "says which",
                           path, SHELL_QUEUE(dir->folder + strlen(dir->root)));
    if (runtimedir_file(dir, RUNTIMEDIR_COUNTERS, file, NULL) == 0 &&
        counters_attach(&c, file, NULL) == 0)
        counters_header(c, &h);
    counters_close(&c);
    if (!(h.gauges[COUNTERS_HOLDS] & COUNTERS_STORE_GONE))
        return 0;
    return problem_set(p, EX_TEMPFAIL, ESTALE,
                       "%s is not the file that worker pid %d has open, which "
                       "was moved or removed; see mqctl doctor %s, and try "
                       "again when that is settled",
                       path, (int)h.pid,
                       SHELL_QUEUE(dir->folder + strlen(dir->root)));
}

/* store_find - open the store in the queue's folder; -ENOENT if there is none,
 * with a sentence in `p` that says where it was looked for */
static int store_find(struct context *ctx, bool create, struct problem *p)
{
    static struct statedir dir;
    char path[PATH_MAX];
    int err = statedir_open(&dir, ctx->o->state_dir, ctx->queue, create, p);

    if (err)
        return dir.folder[0] ? err : -EINVAL;
    err = statedir_path(&dir, STATEDIR_STORE, path, p);
    if (err)
        return err == -ENOENT ? -EINVAL : err;
    err = kept_from(&dir, path, p);
    if (err)
        return -EINVAL;
    err = store_open(&ctx->store, path, create, p);
    if (err == -ENOENT)
        return problem_set(p, EX_CANTCREAT, ENOENT,
                           "%s does not exist: nothing has been kept for this "
                           "queue yet",
                           path);
    return err;
}

/* Report a missing store. An existing queue without a store has no dead
 * letters: print that on stderr and return 0. A queue that does not exist is
 * the user's mistake: 66. */
static int store_absent(const struct context *ctx, const char *why)
{
    struct problem p = {0};
    struct statedir dir;
    struct queue *q = NULL;
    bool known =
        statedir_open(&dir, ctx->o->state_dir, ctx->queue, false, NULL) == 0 ||
        queue_open(&q, ctx->queue, 0, NULL, NULL, &p) == 0 ||
        p.status != EX_NOINPUT;

    queue_close(&q);
    if (known)
        return complain(0, "no dead letters of %s: %s", ctx->queue, why);
    queue_absent(ctx->o->state_dir, ctx->queue, &p);
    return complain_of(&p);
}

/* Open the store of the queue named by the operands. */
int context_open(struct context *ctx, const struct options *o, bool create)
{
    struct problem p = {0};
    int err;

    *ctx = (struct context){.o = o};
    if (broker_operand_is(o->line.operands[0]))
        return broker_open(ctx);
    err = queue_name(o->line.operands[0], ctx->queue, &p);
    if (!err)
        err = store_find(ctx, create, &p);
    if (err == -ENOENT && !create)
        return store_absent(ctx, p.text);
    return err ? complain(p.status, "%s", p.text) : 0;
}

int context_close(struct context *ctx)
{
    int status = broker_close(ctx);

    store_close(&ctx->store);
    return status;
}

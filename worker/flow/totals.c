/* totals.c - the counters file of a worker, from one run to the next (see
 * totals.h) */
#include "worker/flow/totals.h"

#include <errno.h>
#include <limits.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/state/counters.h"
#include "common/base/log.h"
#include "worker/engine.h"

/* bring - what the last worker left in another place
 * A copy in the state folder is that of an orderly stop, and of an older
 * version; it goes, so that it never tells of a run before the last one.
 */
static void bring(struct engine *e, const char *path)
{
    char other[PATH_MAX];

    if (e->runtime.lock < 0 ||
        statedir_path(&e->dir, RUNTIMEDIR_COUNTERS, other, NULL) < 0)
        return;
    if (access(path, F_OK) < 0)
        (void)counters_copy(path, other);
    (void)unlink(other);
}

/* keep - totals of an orderly stop outlive the machine */
static void keep(struct engine *e)
{
    char path[PATH_MAX], other[PATH_MAX];

    if (e->started && !counters_private(e->counters) && e->runtime.lock >= 0 &&
        runtimedir_path(&e->runtime, RUNTIMEDIR_COUNTERS, path, NULL) == 0 &&
        statedir_path(&e->dir, RUNTIMEDIR_COUNTERS, other, NULL) == 0)
        (void)counters_copy(other, path);
}

void totals_ended(struct engine *e)
{
    if (!e->counters)
        return;
    counters_gauge(e->counters, COUNTERS_ENDED_NS, clock_wall_ns());
    keep(e);
}

/* totals_open - a worker that others cannot look at works as well */
int totals_open(struct engine *e, struct problem *p)
{
    char path[PATH_MAX];
    int err = runtimedir_path(&e->runtime, RUNTIMEDIR_COUNTERS, path, p);

    if (err)
        return err;
    bring(e, path);
    if (counters_open(&e->counters, path, 1 + ITEMS_MAX) < 0)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    if (counters_private(e->counters))
        log_warn("counters_private", F_STR("path", path),
                 F_STR("error", counters_private(e->counters)),
                 F_STR("next", "the worker runs; mqctl cannot see its numbers "
                               "until it is started with room for them"));
    return 0;
}

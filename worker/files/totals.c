/* totals.c - the counters file of a worker, from one run to the next (see
 * totals.h) */
#include "worker/files/totals.h"

#include <errno.h>
#include <limits.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/state/counters.h"
#include "common/base/log.h"
#include "common/state/runtimedir.h"
#include "common/state/statedir.h"
#include "worker/config/settings.h"

/* bring - take over the counters that the last worker left in another place. A
 * copy in the state folder was made by an orderly stop; remove the copy, so
 * that it never shows a run before the last one.
 */
static void bring(const char *path, const struct runtimedir *runtime,
                  const struct statedir *dir)
{
    char other[PATH_MAX];

    if (runtime->lock < 0 ||
        statedir_path(dir, RUNTIMEDIR_COUNTERS, other, NULL) < 0)
        return;
    if (access(path, F_OK) < 0)
        (void)counters_copy(path, other);
    (void)unlink(other);
}

/* copy - keep the counters of an orderly stop in the state folder */
static void copy(struct counters *c, const struct runtimedir *runtime,
                 const struct statedir *dir)
{
    char path[PATH_MAX];

    if (!counters_private(c) && runtime->lock >= 0 &&
        statedir_path(dir, RUNTIMEDIR_COUNTERS, path, NULL) == 0)
        (void)counters_save(c, path);
}

void totals_ended(struct counters *c, bool ran,
                  const struct runtimedir *runtime, const struct statedir *dir)
{
    if (!ran && counters_give_back(c))
        return;
    counters_gauge(c, COUNTERS_ENDED_NS, clock_wall_ns());
    if (ran)
        copy(c, runtime, dir);
}

/* totals_open - a worker that others cannot look at works as well */
int totals_open(struct counters **out, const struct runtimedir *runtime,
                const struct statedir *dir, struct problem *p)
{
    char path[PATH_MAX];
    int err = runtimedir_path(runtime, RUNTIMEDIR_COUNTERS, path, p);

    if (err)
        return err;
    bring(path, runtime, dir);
    if (counters_open(out, path, 1 + ITEMS_MAX) < 0)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    if (counters_private(*out))
        log_warn("counters_private", F_STR("path", path),
                 F_STR("error", counters_private(*out)),
                 F_STR("next", "the worker runs; mqctl cannot see its numbers "
                               "until it is started with room for them"));
    return 0;
}

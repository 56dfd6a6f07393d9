/* mqctl_doctor_strays.c - messages in flight that a worker left whose state
 * directory is gone (see mqctl_doctor.h) */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <bsd/string.h>

#include "common/custody/custody_look.h"
#include "common/state/runtimedir.h"
#include "scripts/mqctl/doctor/mqctl_doctor.h"
#include "scripts/mqctl/mqctl_custody.h"

/* stray_found - one file of them */
static void stray_found(const char *custody, const char *state, void *arg)
{
    struct custody_count count;
    struct findings *f = arg;

    if (custody_count(&count, custody, NULL, NULL) < 0 || count.total == 0)
        return;
    FOUND(f, WARN, "custody",
          "docs/runbook.md, \"Messages in flight of a state directory that is "
          "gone\", has how to run or remove them",
          "%" PRId64 " message%s in flight of a worker that was killed wait in "
          "%s; its state directory, with %s, is gone",
          count.total, count.total == 1 ? "" : "s", custody, state);
}

/* strays_check - where workers of ours have messages in flight by default */
void strays_check(struct findings *f)
{
    const struct runtimedir_wish wish = {.allow_disk = true};
    char root[PATH_MAX];
    bool disk;

    if (runtimedir_root(root, &wish, &disk, NULL) == 0 && root[0])
        runtimedir_strays(root, custody_holds, stray_found, f);
}

/* strays_beside - where those of one queue are, if that is another place */
void strays_beside(struct findings *f, const struct statedir *dir)
{
    const struct runtimedir_wish wish = {.allow_disk = true};
    char path[PATH_MAX], root[PATH_MAX];
    bool disk;

    if (runtimedir_file(dir, RUNTIMEDIR_OWNER, path, NULL) < 0)
        return;
    for (int i = 0; i < 2; i++) /* the file, and the folder of the queue */
        if (strrchr(path, '/'))
            *strrchr(path, '/') = '\0';
    if (path[0] && strcmp(path, dir->root) != 0 &&
        (runtimedir_root(root, &wish, &disk, NULL) < 0 ||
         strcmp(path, root) != 0))
        runtimedir_strays(path, custody_holds, stray_found, f);
}

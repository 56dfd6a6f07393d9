/* runtimedir_folder.c - a folder in the runtime directory: whose it is, and its
 * lock (see runtimedir_inner.h) */
#include "common/state/runtimedir_inner.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/base/problem.h"
#include "common/state/worker_lock.h"

#define FOLDERS 100 /* NAME, NAME.2, ... NAME.100 */

/* Whose a folder of the right name is. */
enum claim {
    OURS,
    FREE,    /* nobody's, and nothing is in it */
    THEIRS,  /* another state folder uses it */
    STRANGE, /* its state folder is gone, and messages are in it */
};

/* holds - whether a folder has messages in flight; a folder that cannot be read
 * may have some */
static bool holds(const struct runtimedir *r, const char *folder)
{
    char path[PATH_MAX];

    return !folder_join(path, folder, "/", RUNTIMEDIR_CUSTODY) ||
           r->holds(path) != NO;
}

/* runtimedir_same - whether two paths are the same directory */
bool runtimedir_same(const char *a, const char *b)
{
    struct stat x, y;

    return stat(a, &x) == 0 && stat(b, &y) == 0 && file_same(&x, &y);
}

/* runtimedir_claimed - by the note of the state folder that `owner` names */
bool runtimedir_claimed(const struct runtimedir_note *owner, const char *folder)
{
    struct runtimedir_note note;
    int err = runtimedir_note_read(&note, owner->folder, RUNTIMEDIR_NOTE);

    if (err)
        return err != -ENOENT && err != -ENOTDIR;
    return strcmp(note.id, owner->id) == 0 && strcmp(note.folder, folder) == 0;
}

/* judge - whose `folder` is; `state`: the state folder
 * By the id, not by the path: another container that sees the same memory may
 * have another state directory at the same path. */
static enum claim judge(const struct runtimedir *r, const char *folder,
                        const char *state)
{
    struct runtimedir_note owner;
    bool theirs;

    if (runtimedir_note_read(&owner, folder, RUNTIMEDIR_OWNER) < 0)
        return holds(r, folder) ? STRANGE : FREE;
    theirs = !runtimedir_same(owner.folder, state) &&
             runtimedir_claimed(&owner, folder);
    if (strcmp(owner.id, r->id) == 0 && !theirs)
        return OURS;
    if (theirs)
        return THEIRS;
    return holds(r, folder) ? STRANGE : FREE;
}

/* runtimedir_unusable - a system call on a folder failed */
int runtimedir_unusable(int err, const char *path, struct problem *p)
{
    return problem_set(p, EX_CANTCREAT, err,
                       "%s: %s; %s%sgive another " RUNTIMEDIR_FLAG, path,
                       errno_text(err), err == ENOSPC ? folder_room(path) : "",
                       err == ENOSPC ? ", or " : "");
}

/* runtimedir_lock - what is locked must have the name still */
int runtimedir_lock(int *lock, const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int err = fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 ? -errno : 0;

    if (!err && !file_named(fd, path))
        err = -ESTALE;
    if (!err)
        *lock = fd;
    else if (fd >= 0)
        close(fd);
    return err;
}

/* lock_take - a worker of ours that is just dying is waited for; -EWOULDBLOCK
 * of another one leaves `p` alone */
static int lock_take(struct runtimedir *r, const char *path, const char *state,
                     struct problem *p)
{
    uint64_t end = clock_mono_ns() + WORKER_LOCK_DYING_NS;
    int err;

    for (;;) {
        err = runtimedir_lock(&r->lock, path);
        if (err == -ESTALE && mkdir(path, 0700) < 0 && errno != EEXIST)
            return runtimedir_unusable(errno, path, p);
        if (err == -ESTALE)
            continue;
        if (err != -EWOULDBLOCK)
            return err ? runtimedir_unusable(-err, path, p) : 0;
        if (judge(r, path, state) != OURS)
            return -EWOULDBLOCK;
        if (clock_mono_ns() >= end)
            return problem_set(p, EX_UNAVAILABLE, EWOULDBLOCK,
                               "another process holds %s, which belongs to "
                               "this worker; find it with fuser(1) and end it",
                               path);
        poll(NULL, 0, WORKER_LOCK_LOOK_MS);
    }
}

/* runtimedir_clear - of a state folder that is gone; nothing is in flight */
void runtimedir_clear(const char *folder)
{
    static const char *const files[] = {RUNTIMEDIR_CUSTODY, RUNTIMEDIR_RUNS,
                                        RUNTIMEDIR_COUNTERS, RUNTIMEDIR_ENDS,
                                        RUNTIMEDIR_OWNER};
    char path[PATH_MAX];

    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (folder_join(path, folder, "/", files[i]))
            (void)unlink(path);
}

/* folder_try - make r->folder ours: 0, -EWOULDBLOCK if it is somebody else's,
 * or a problem */
static int folder_try(struct runtimedir *r, const char *state,
                      struct problem *p)
{
    enum claim claim;
    int err;

    r->made = mkdir(r->folder, 0700) == 0;
    if (!r->made && errno != EEXIST)
        return runtimedir_unusable(errno, r->folder, p);
    err = folder_queue(r->folder, true, &folder_runtime, p);
    if (!err)
        err = lock_take(r, r->folder, state, p);
    if (err)
        return err;
    claim = judge(r, r->folder, state);
    if (claim == STRANGE && !r->strange[0])
        strlcpy(r->strange, r->folder, sizeof r->strange);
    if (claim == FREE)
        runtimedir_clear(r->folder);
    if (claim == OURS || claim == FREE)
        return 0;
    close(r->lock);
    r->lock = -1;
    return -EWOULDBLOCK;
}

/* runtimedir_take - the first of NAME, NAME.2, ... that is ours or free */
int runtimedir_take(struct runtimedir *r, const char *root, const char *name,
                    const char *state, struct problem *p)
{
    char suffix[16] = "";
    int err = -EWOULDBLOCK;

    for (int n = 1; err == -EWOULDBLOCK && n <= FOLDERS; n++) {
        if (n > 1)
            snprintf(suffix, sizeof suffix, ".%d", n);
        if (!folder_join(r->folder, root, name, suffix))
            return runtimedir_unusable(ENAMETOOLONG, root, p);
        err = folder_try(r, state, p);
    }
    if (err == -EWOULDBLOCK)
        err = problem_set(p, EX_CANTCREAT, EEXIST,
                          "%s%s and %d more of that name are in use by other "
                          "state directories; give another " RUNTIMEDIR_FLAG,
                          root, name, FOLDERS - 1);
    return err;
}

/* runtimedir_owner_write - whose the folder is from now on */
int runtimedir_owner_write(const struct runtimedir *r, const char *state,
                           struct problem *p)
{
    struct runtimedir_note owner = {.open = true};
    int err;

    strlcpy(owner.folder, state, sizeof owner.folder);
    strlcpy(owner.id, r->id, sizeof owner.id);
    boot_now(&owner.boot);
    err = runtimedir_note_write(&owner, r->folder, RUNTIMEDIR_OWNER);
    return err ? runtimedir_unusable(-err, r->folder, p) : 0;
}

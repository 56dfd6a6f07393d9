/* state_forget.c - remove the folders of a queue (see state_forget.h) */
#include "common/state/state_forget.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/state/runtimedir.h"
#include "common/state/worker_lock.h"

#define PLACE   "/.forgotten"
#define LOOK_NS (10 * NS_PER_S) /* longest that a tool holds the lock */

/* Choose the name to which the folder is moved: root/.forgotten/NAME. NAME is
 * one component even for a queue on a broker, whose folder is several levels
 * below the root. */
static int names_make(struct state_forget *f, const struct statedir *dir,
                      struct problem *p)
{
    const char *name = dir->folder + strlen(dir->root);

    f->dir = *dir;
    f->lock = -1;
    if (folder_join(f->place, dir->root, PLACE, "") &&
        folder_join(f->away, f->place, name, "")) {
        for (char *at = f->away + strlen(f->place) + 1; *at; at++)
            if (*at == '/')
                *at = ',';
        return 0;
    }
    return problem_set(p, EX_CANTCREAT, ENAMETOOLONG,
                       "the path of %s is too long; give a shorter --state-dir",
                       dir->folder);
}

/* Fill `p` for a path that cannot be removed. */
static int remove_refuse(const char *path, int err, struct problem *p)
{
    if (err == EROFS)
        return folder_read_only(path, p);
    return problem_set(
        p, err == EACCES || err == EPERM ? EX_NOPERM : EX_CANTCREAT, err,
        "cannot remove %s: %s; its owner and root may", path, errno_text(err));
}

int state_forget_open(struct state_forget *f, const struct statedir *dir,
                      struct problem *p)
{
    uint64_t end = clock_mono_ns() + LOOK_NS;
    int err = names_make(f, dir, p);

    if (err)
        return err;
    f->lock =
        open(dir->folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (f->lock < 0 && errno == ENOENT)
        return -ENOENT;
    if (f->lock < 0)
        return remove_refuse(dir->folder, errno, p);
    /* Lock as a worker does (worker/files/pid_file.c). A tool that only looks
     * has the lock shared, for a moment; a worker has it exclusively. */
    while (!err && flock(f->lock, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            err = -errno;
        } else if (flock(f->lock, LOCK_SH | LOCK_NB) < 0 ||
                   clock_mono_ns() > end) {
            err = -EWOULDBLOCK;
        } else {
            flock(f->lock, LOCK_UN);
            poll(NULL, 0, WORKER_LOCK_LOOK_MS);
        }
    }
    if (!err && !file_named(f->lock, dir->folder))
        err = -ENOENT; /* another mqctl was faster */
    if (!err)
        return 0;
    state_forget_close(f);
    if (err == -EWOULDBLOCK)
        return problem_set(p, EX_UNAVAILABLE, EBUSY,
                           "a worker has %s; stop it first", dir->folder);
    return err == -ENOENT ? err : remove_refuse(dir->folder, -err, p);
}

void state_forget_close(struct state_forget *f)
{
    fd_close(&f->lock);
}

/* Remove the files of a folder; `dry`: only look. Returns -EISDIR if there is a
 * folder among them, which a queue's folder never has. */
static int files_remove(const char *path, bool dry)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    struct stat st;
    int err = 0;

    if (!dir)
        return -errno;
    while (!err && (entry = readdir(dir)) != NULL) {
        const char *name = entry->d_name;

        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        if (fstatat(dirfd(dir), name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            (!dry && !S_ISDIR(st.st_mode) && unlinkat(dirfd(dir), name, 0) < 0))
            err = -errno;
        else if (S_ISDIR(st.st_mode))
            err = -EISDIR;
    }
    closedir(dir);
    return err;
}

/* Remove the renamed folder, after the runtime folder: the note that names the
 * runtime folder is among the files. */
static int away_remove(const struct state_forget *f, struct problem *p)
{
    struct statedir away = f->dir;
    char runtime[PATH_MAX];
    int err;

    snprintf(away.folder, sizeof away.folder, "%s", f->away);
    err = runtimedir_remove(&away, NULL, runtime);
    if (err && err != -ENOENT)
        return remove_refuse(runtime[0] ? runtime : f->away, -err, p);
    FAULT_POINT("state_forget_runtime_gone");
    err = files_remove(f->away, false);
    if (!err && rmdir(f->away) < 0)
        err = -errno;
    if (err)
        return remove_refuse(f->away, -err, p);
    (void)rmdir(f->place); /* unless another queue is on its way */
    return 0;
}

int state_forget_finish(const struct statedir *dir, struct problem *p)
{
    struct state_forget f;
    struct stat st;
    int err = names_make(&f, dir, p);

    if (err)
        return err;
    if (lstat(f.away, &st) < 0)
        return errno == ENOENT ? NO : remove_refuse(f.away, errno, p);
    err = away_remove(&f, p);
    return err ? err : YES;
}

/* Crash before the rename is on disk: nothing was forgotten, or all of it.
 * Crash after it: no program finds the queue's folder any more; the note of the
 * runtime folder is in what is left, so the next call removes both. A worker
 * that starts at the same time cannot lock the folder, or makes another one. */
int state_forget_run(struct state_forget *f, struct problem *p)
{
    char parent[PATH_MAX];
    int err = state_forget_finish(&f->dir, p);

    if (err < 0)
        return err;
    err = files_remove(f->dir.folder, true);
    if (err == -EISDIR)
        return problem_set(p, EX_CANTCREAT, EISDIR,
                           "%s has folders in it, so it is not that of a "
                           "queue; nothing was removed",
                           f->dir.folder);
    if (err)
        return remove_refuse(f->dir.folder, -err, p);
    if (mkdir(f->place, 0700) < 0 && errno != EEXIST)
        return remove_refuse(f->dir.folder, errno, p);
    FAULT_POINT("state_forget_before_rename");
    if (rename(f->dir.folder, f->away) < 0)
        return remove_refuse(f->dir.folder, errno, p);
    FAULT_POINT("state_forget_renamed");
    snprintf(parent, sizeof parent, "%.*s",
             (int)(strrchr(f->dir.folder, '/') - f->dir.folder), f->dir.folder);
    err = folder_sync(f->place);
    if (!err)
        err = folder_sync(parent);
    if (err)
        return remove_refuse(f->away, -err, p);
    return away_remove(f, p);
}

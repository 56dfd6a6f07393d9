/* file_look.c - where the files of a worker are now (see file_watch_inner.h)
 *
 * A descriptor keeps a file alive whatever becomes of its name: the worker does
 * not notice by itself that a file was removed, moved or replaced, and all that
 * it wrote there is gone when it ends. So each is looked at by its name and by
 * its link count.
 */
#include "worker/files/file_watch_inner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/problem.h"
#include "common/state/runtimedir.h"
#include "common/state/statedir.h"

bool file_unnamed(const struct file *f)
{
    struct stat now;

    return f->fd >= 0 && fstat(f->fd, &now) == 0 && now.st_nlink == 0;
}

/* file_look - by its name and by its link count */
static void file_look(struct file *f)
{
    bool named = stat(f->path, &f->name) == 0;

    if (f->fd < 0 || (named && file_same(&f->name, &f->id)))
        f->state = THERE;
    else if (named)
        f->state = TAKEN;
    else
        f->state = file_unnamed(f) ? REMOVED : AWAY;
}

void file_again(struct file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    f->fd = open(f->path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (f->fd >= 0)
        (void)fstat(f->fd, &f->id);
    f->state = THERE;
}

const struct file *files_gone(const struct file_watch *w, enum part first,
                              enum part last)
{
    for (enum part i = first; i <= last; i++)
        if (w->files[i].state != THERE)
            return &w->files[i];
    return NULL;
}

/* read_only - whether it takes no more writes
 * statvfs(3) does not tell of an error's read-only state (ext4 since Linux
 * 6.15, xfs), but opening to write fails then, and writes nothing. It is the
 * very file that is opened, whatever has its name.
 */
static bool read_only(const struct file *f)
{
    char path[64];
    int fd;

    if (f->fd < 0)
        return false;
    snprintf(path, sizeof path, "/proc/self/fd/%d", f->fd);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == EROFS || errno == EIO;
    close(fd);
    return false;
}

/* files_look - the pidfile is asked for the store: closing a file of SQLite's
 * would drop its locks (fcntl(2)) */
unsigned files_look(struct file_watch *w)
{
    unsigned lost = 0;

    for (enum part i = 0; i < PARTS; i++) {
        if (i == ENDS && w->files[i].fd < 0)
            file_again(&w->files[i]);
        file_look(&w->files[i]);
        lost += w->files[i].state != THERE;
    }
    w->read_only = read_only(&w->files[PIDFILE])   ? &w->files[STORE]
                   : read_only(&w->files[CUSTODY]) ? &w->files[CUSTODY]
                                                   : NULL;
    return lost;
}

int files_open(struct file_watch *w, struct problem *p)
{
    static const char *const names[PARTS] = {
        [STORE] = STATEDIR_STORE,
        [STORE_WAL] = STATEDIR_STORE "-wal",
        [STORE_SHM] = STATEDIR_STORE "-shm",
        [CUSTODY] = RUNTIMEDIR_CUSTODY,
        [PIDFILE] = STATEDIR_PIDFILE,
        [COUNTERS] = RUNTIMEDIR_COUNTERS,
        [NOTE] = RUNTIMEDIR_NOTE,
        [OWNER] = RUNTIMEDIR_OWNER,
        [ENDS] = RUNTIMEDIR_ENDS,
    };
    int err = 0;

    for (enum part i = 0; i < PARTS; i++)
        w->files[i].fd = -1;
    for (enum part i = 0; i < PARTS && !err; i++) {
        struct file *f = &w->files[i];

        err = i == CUSTODY || i == COUNTERS || i == OWNER || i == ENDS
                  ? runtimedir_path(w->with.runtime, names[i], f->path, p)
                  : statedir_path(w->with.dir, names[i], f->path, p);
        if (!err)
            file_again(f);
        if (!err && f->fd < 0 && i < COUNTERS)
            err = problem_set(p, EX_CANTCREAT, errno, "%s: %s", f->path,
                              errno_text(errno));
    }
    return err;
}

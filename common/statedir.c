/* statedir.c - where a queue's files are */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/mount_point.h"
#include "common/queue.h"
#include "common/statedir.h"

/* path_join - a + b + c to `out`; false if it does not fit */
static bool path_join(char out[PATH_MAX], const char *a, const char *b,
                      const char *c)
{
    int n = snprintf(out, PATH_MAX, "%s%s%s", a, b, c);
    return n >= 0 && n < PATH_MAX;
}

/* absolute - an environment variable that holds an absolute path, or NULL
 * A relative one is to be ignored (XDG Base Directory Specification). */
static const char *absolute(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] == '/' ? value : NULL;
}

/* root_find - the state directory as flag and environment say; 0 or -errno */
static int root_find(char out[PATH_MAX], const char *flag)
{
    const char *dir;
    bool fits;
    if (flag)
        fits = path_join(out, flag, "", "");
    else if ((dir = absolute("STATE_DIRECTORY")))
        fits = snprintf(out, PATH_MAX, "%.*s", (int)strcspn(dir, ":"), dir) <
               PATH_MAX;
    else if (geteuid() == 0)
        fits = path_join(out, "/var/lib/mqworker", "", "");
    else if ((dir = absolute("XDG_STATE_HOME")))
        fits = path_join(out, dir, "/mqworker", "");
    else if ((dir = absolute("HOME")))
        fits = path_join(out, dir, "/.local/state/mqworker", "");
    else
        return -ENOENT;
    return fits ? 0 : -ENAMETOOLONG;
}

/* statedir_root - the state directory, as text */
int statedir_root(char out[PATH_MAX], const char *flag, struct problem *p)
{
    if (flag && flag[0] == '\0')
        return problem_set(
            p, EX_CANTCREAT, EINVAL,
            "--state-dir is empty: give the path of a directory");
    int err = root_find(out, flag);
    if (err == -ENOENT)
        return problem_set(p, EX_CANTCREAT, ENOENT,
                           "no state directory: none of STATE_DIRECTORY, "
                           "XDG_STATE_HOME and HOME is an absolute path; give "
                           "--state-dir DIR");
    if (err)
        return problem_set(p, EX_CANTCREAT, -err,
                           "the path of the state directory is over %d bytes; "
                           "give a shorter --state-dir DIR",
                           PATH_MAX - 1);
    for (size_t n = strlen(out); n > 1 && out[n - 1] == '/'; n--)
        out[n - 1] = '\0';
    return 0;
}

/* dir_sync - make the entries of a directory durable
 * What cannot be opened for reading, or has no fsync, is left to the system. */
static int dir_sync(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    int err = fsync(fd) == 0 || errno == EINVAL || errno == ENOSYS ? 0 : -errno;
    close(fd);
    return err;
}

/* parent_cut - end `path` before its last component; returns the cut, or NULL
 * if there is no parent to speak of */
static char *parent_cut(char *path)
{
    char *slash = strrchr(path, '/');
    if (!slash || slash == path)
        return NULL;
    *slash = '\0';
    return slash;
}

/* dirs_make - make a directory, mode 0700, and the parents it lacks
 * From the deepest up, so that parents we may not write are not touched. The
 * parent is synced also when the directory was there: whoever made it may have
 * died before the sync, and what the store keeps must not vanish with it. */
static int dirs_make(char *path)
{
    int err = mkdir(path, 0700) == 0 || errno == EEXIST ? 0 : -errno;
    if (err && err != -ENOENT)
        return err;
    char *cut = parent_cut(path);
    if (!cut)
        return err ? err : dir_sync(path[0] == '/' ? "/" : ".");
    if (err)
        err = dirs_make(path);
    *cut = '/';
    if (err)
        return err;
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return -errno;
    *cut = '\0';
    err = dir_sync(path);
    *cut = '/';
    return err;
}

/* node_look - lstat, or why not; -ENOENT leaves `p` alone */
static int node_look(const char *path, struct stat *st, struct problem *p)
{
    if (lstat(path, st) == 0)
        return 0;
    if (errno == ENOENT)
        return -ENOENT;
    return problem_set(p, EX_CANTCREAT, errno,
                       "cannot look at %s: %s; give another --state-dir, or "
                       "have its owner grant uid %u access",
                       path, strerror(errno), (unsigned)geteuid());
}

/* node_check - of type `type`, owned by `owner`, nobody else may write */
static int node_check(const char *path, const struct stat *st, mode_t type,
                      uid_t owner, mode_t forbidden, struct problem *p)
{
    const char *what = type == S_IFDIR ? "directory" : "regular file";
    if (S_ISLNK(st->st_mode))
        return problem_set(p, EX_CANTCREAT, ELOOP,
                           "%s is a symbolic link; it must be a %s: remove the "
                           "link, or point --state-dir to where it leads",
                           path, what);
    if ((st->st_mode & S_IFMT) != type)
        return problem_set(p, EX_CANTCREAT, type == S_IFDIR ? ENOTDIR : EINVAL,
                           "%s is no %s; move it away", path, what);
    if (st->st_uid != owner)
        return problem_set(p, EX_CANTCREAT, EPERM,
                           "%s is owned by uid %u and not by uid %u; run as "
                           "its owner, or `chown %u %s`",
                           path, (unsigned)st->st_uid, (unsigned)owner,
                           (unsigned)owner, path);
    if (st->st_mode & forbidden)
        return problem_set(p, EX_CANTCREAT, EPERM,
                           "%s is writable by %s (mode %04o); `chmod go-w %s`",
                           path, st->st_mode & S_IWOTH ? "others" : "its group",
                           (unsigned)(st->st_mode & 07777), path);
    return 0;
}

/* root_link_ok - whether the state directory may be this symbolic link
 * systemd lays out the StateDirectory= of a DynamicUser= service so, and tells
 * in $STATE_DIRECTORY; the link is root's then. */
static bool root_link_ok(const char *flag, const struct stat *st)
{
    return !flag && absolute("STATE_DIRECTORY") && st->st_uid == 0;
}

/* root_check - the rules for the state directory, if it is there
 * Whoever can write in it could put another folder in the place of a queue's,
 * and what was kept for the queue would not be found. With the sticky bit
 * (/tmp, a fresh tmpfs) only the owner of a folder can do that, so that is
 * allowed. */
static int root_check(const char *root, const char *flag, bool create,
                      struct problem *p)
{
    struct stat st;
    int err = node_look(root, &st, p);
    if (!err && S_ISLNK(st.st_mode) && root_link_ok(flag, &st) &&
        stat(root, &st) < 0)
        err = errno == ENOENT ? -ENOENT
                              : problem_set(p, EX_CANTCREAT, errno, "%s: %s",
                                            root, strerror(errno));
    if (err)
        return err == -ENOENT ? 0 : err;
    /* What is root's is as good as ours: root can do what it likes anyway. And
     * root may look at what is somebody's, but keeps nothing there. */
    bool any = st.st_uid == 0 || (geteuid() == 0 && !create);
    return node_check(root, &st, S_IFDIR, any ? st.st_uid : geteuid(),
                      st.st_mode & S_ISVTX ? 0 : S_IWGRP | S_IWOTH, p);
}

/* folder_check - the rules for a queue's folder */
static int folder_check(const char *folder, bool create, struct problem *p)
{
    char mount[PATH_MAX];
    struct stat st;
    int err = node_look(folder, &st, p);
    if (err == -ENOENT)
        return problem_set(p, EX_CANTCREAT, ENOENT,
                           "%s does not exist: no worker has used this queue "
                           "with this state directory; see --state-dir",
                           folder);
    if (err)
        return err;
    uid_t owner = geteuid() == 0 && !create ? st.st_uid : geteuid();
    err = node_check(folder, &st, S_IFDIR, owner, S_IWGRP | S_IWOTH, p);
    if (err || !create)
        return err;
    if (faccessat(AT_FDCWD, folder, R_OK | W_OK | X_OK, AT_EACCESS) == 0)
        return 0;
    if (errno == EROFS)
        return problem_set(p, EX_CANTCREAT, EROFS,
                           "cannot write in %s: %s; `mount -o remount,rw %s` "
                           "(after an error of the disk, see dmesg, umount and "
                           "fsck come first), or give another --state-dir",
                           folder, strerror(EROFS), mount_point(folder, mount));
    return problem_set(p, EX_CANTCREAT, errno,
                       "cannot write in %s (mode %04o): %s; `chmod u+rwx "
                       "%s`, or give another --state-dir",
                       folder, (unsigned)(st.st_mode & 07777), strerror(errno),
                       folder);
}

/* statedir_open - the folder of a queue, checked; made if asked for */
int statedir_open(struct statedir *out, const char *flag, const char *queue,
                  bool create, struct problem *p)
{
    char label[QUEUE_NAME_MAX];
    int err = queue_name(queue, label, p);
    if (!err)
        err = statedir_root(out->root, flag, p);
    if (err)
        return err;
    if (!path_join(out->folder, out->root, label, ""))
        return problem_set(p, EX_CANTCREAT, ENAMETOOLONG,
                           "the path of the folder of queue %s is over %d "
                           "bytes; give a shorter --state-dir DIR",
                           label, PATH_MAX - 1);
    err = root_check(out->root, flag, create, p);
    if (err)
        return err;
    err = create ? dirs_make(out->folder) : 0;
    if (err)
        return problem_set(p, EX_CANTCREAT, -err,
                           "cannot make %s: %s; give another --state-dir DIR "
                           "that uid %u may write",
                           out->folder, strerror(-err), (unsigned)geteuid());
    return folder_check(out->folder, create, p);
}

/* statedir_path - the path of a file in the folder, checked if it exists */
int statedir_path(const struct statedir *dir, const char *file,
                  char out[PATH_MAX], struct problem *p)
{
    struct stat folder, st;
    if (!path_join(out, dir->folder, "/", file))
        return problem_set(p, EX_CANTCREAT, ENAMETOOLONG,
                           "the path of %s in %.200s is over %d bytes; give a "
                           "shorter --state-dir DIR",
                           file, dir->folder, PATH_MAX - 1);
    int err = node_look(dir->folder, &folder, p);
    if (err == -ENOENT)
        return problem_set(p, EX_CANTCREAT, ENOENT, "%s does not exist",
                           dir->folder);
    if (err)
        return err;
    err = node_look(out, &st, p);
    if (err)
        return err == -ENOENT ? 0 : err;
    return node_check(out, &st, S_IFREG, folder.st_uid, S_IWGRP | S_IWOTH, p);
}

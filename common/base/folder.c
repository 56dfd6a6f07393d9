/* folder.c - directories that hold what must not be lost (see folder.h)
 *
 * No other user may write in a directory above a queue's folder, unless it has
 * the sticky bit: he could move the folder away and put another one in its
 * place.
 *
 * The exception, for what is in flight, is the root of a mounted tmpfs that
 * belongs to root, as Kubernetes makes it of an emptyDir (mode 0777, or 2777
 * with fsGroup, never sticky). Only root can mount such a tmpfs, for users who
 * are to share it. One of these users may still move a queue's folder away; he
 * can neither read nor write in the folder (0700, ours). So
 *   another folder in its place   is refused because of its owner
 *                                 (folder_queue), as is a file in it
 *                                 (custody.c, counters.c);
 *   a folder that was moved away  is noticed by a running worker, which then
 *                                 takes nothing (file_watch.c), and by the next
 *                                 start (custody_missing).
 * The store has no such exception: its content must outlive every user.
 */
#include "common/base/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/file.h"
#include "common/base/libc.h"

const struct folder_kind folder_state = {.flag = "--state-dir"};
const struct folder_kind folder_runtime = {.flag = "--runtime-dir",
                                           .runtime = true};

bool folder_join(char out[PATH_MAX], const char *a, const char *b,
                 const char *c)
{
    int n = snprintf(out, PATH_MAX, "%s%s%s", a, b, c);

    return n >= 0 && n < PATH_MAX;
}

/* A relative path must be ignored (XDG Base Directory Specification). */
const char *folder_variable(const char *name)
{
    const char *value = getenv(name);

    return value && value[0] == '/' ? value : NULL;
}

/* Open /etc/passwd or /etc/group, which is searched first. getpwuid_r(3) and
 * getgrgid_r(3) are only called for names that are not in the file: they may
 * wait for another machine, and crash if memory runs out while they first read
 * nsswitch.conf (glibc 2.36). Returns false if there is no memory or descriptor
 * for them either. */
static bool names_open(const char *path, FILE **file)
{
    *file = fopen(path, "re");
    return *file || (errno != ENOMEM && errno != EMFILE && errno != ENFILE);
}

const char *folder_user(uid_t uid, char out[FOLDER_USER])
{
    struct passwd entry, *found = NULL;
    char text[1024];
    FILE *file;

    snprintf(out, FOLDER_USER, "uid %u", (unsigned)uid);
    if (!names_open("/etc/passwd", &file))
        return out;
    while (file && fgetpwent_r(file, &entry, text, sizeof text, &found) == 0)
        if (found->pw_uid == uid && !strchr("+-", found->pw_name[0]))
            break; /* a line of NIS begins with a sign */
    if (file)
        fclose(file);
    if (!found)
        getpwuid_r(uid, &entry, text, sizeof text, &found);
    if (found)
        strlcpy(out, found->pw_name, FOLDER_USER);
    return out;
}

const char *folder_group(gid_t gid, char out[FOLDER_USER])
{
    struct group entry, *found = NULL;
    char text[4096]; /* with the names of its members */
    FILE *file;

    snprintf(out, FOLDER_USER, "gid %u", (unsigned)gid);
    if (!names_open("/etc/group", &file))
        return out;
    while (file && fgetgrent_r(file, &entry, text, sizeof text, &found) == 0)
        if (found->gr_gid == gid && !strchr("+-", found->gr_name[0]))
            break;
    if (file)
        fclose(file);
    if (!found)
        getgrgid_r(gid, &entry, text, sizeof text, &found);
    if (found)
        snprintf(out, FOLDER_USER, "group %s", found->gr_name);
    return out;
}

const char *folder_sudo_user(uid_t uid, char out[FOLDER_USER])
{
    if (strncmp(folder_user(uid, out), "uid ", 4) == 0)
        snprintf(out, FOLDER_USER, "'#%u'", (unsigned)uid);
    return out;
}

/* ---- creating ---- */

/* Returns 0 also if the directory cannot be opened for reading or its file
 * system has no fsync: then the system writes the entries when it wants. */
int folder_sync(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int err;

    if (fd < 0)
        return 0;
    err = fsync(fd) == 0 || errno == EINVAL || errno == ENOSYS ? 0 : -errno;
    close(fd);
    return err;
}

/* Begin with the deepest directory, so that parents which we may not write are
 * not touched. The parent is synced even if the directory existed: its maker
 * may have died before the sync, and the store must not vanish with the
 * entry. */
int folder_make(char *path)
{
    int err = mkdir(path, 0700) == 0 || errno == EEXIST ? 0 : -errno;
    char *slash = strrchr(path, '/');

    if (err && err != -ENOENT)
        return err;
    if (!slash || slash == path)
        return err ? err : folder_sync(slash ? "/" : ".");
    *slash = '\0';
    if (err)
        err = folder_make(path);
    *slash = '/';
    if (err)
        return err;
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return -errno;
    *slash = '\0';
    err = folder_sync(path);
    *slash = '/';
    return err;
}

/* ---- checked ---- */

int folder_look(const char *path, struct stat *st,
                const struct folder_kind *kind, struct problem *p)
{
    char his[FOLDER_USER], sudo[FOLDER_USER], ours[FOLDER_USER], dir[PATH_MAX];
    int err = lstat(path, st) == 0 ? 0 : errno;
    struct stat above = {.st_uid = 0};

    if (err == 0 || err == ENOENT)
        return -err;
    if (err != EACCES)
        return problem_set(p, EX_CANTCREAT, err,
                           "cannot look at %s: %s; give another %s", path,
                           errno_text(err), kind->flag);
    /* Find the directory that does not let us look at `path`. */
    strlcpy(dir, path, sizeof dir);
    while (file_parent(dir) && lstat(dir, &above) < 0)
        ;
    return problem_set(
        p, EX_CANTCREAT, err,
        "cannot look at %s: %s: %s belongs to %s, but you are "
        "%s; run as its owner: sudo -u %s %s ..., or give "
        "another %s",
        path, errno_text(err), dir, folder_user(above.st_uid, his),
        folder_user(geteuid(), ours), folder_sudo_user(above.st_uid, sudo),
        program_invocation_short_name, kind->flag);
}

/* Refuse a directory of another user, whose work must not be taken over. In
 * memory each user has a directory of his own, so somebody put this one there
 * for us to find. */
static int owner_refuse(const char *path, uid_t is,
                        const struct folder_kind *kind, struct problem *p)
{
    char his[FOLDER_USER], ours[FOLDER_USER], sudo[FOLDER_USER];

    if (kind->runtime)
        return problem_set(p, EX_CANTCREAT, EPERM,
                           "%s belongs to %s, but you are %s; find out "
                           "who made it and move it away, or give another %s "
                           "DIR",
                           path, folder_user(is, his),
                           folder_user(geteuid(), ours), kind->flag);
    return problem_set(p, EX_CANTCREAT, EPERM,
                       "%s belongs to %s, but you are %s; run as its "
                       "owner: sudo -u %s %s ..., or give another %s",
                       path, folder_user(is, his), folder_user(geteuid(), ours),
                       folder_sudo_user(is, sudo),
                       program_invocation_short_name, kind->flag);
}

bool folder_others(const char *path, const struct folder_kind *kind,
                   struct problem *p)
{
    struct stat st;

    if (stat(path, &st) < 0 || st.st_uid == geteuid())
        return false;
    (void)owner_refuse(path, st.st_uid, kind, p);
    return true;
}

int folder_node(const char *path, const struct stat *st, mode_t type,
                uid_t owner, mode_t forbidden, const struct folder_kind *kind,
                struct problem *p)
{
    const char *what = type == S_IFDIR ? "directory" : "regular file";
    const char *who = st->st_mode & S_IWOTH ? "others" : "its group";
    unsigned mode = st->st_mode & 07777;
    char his[FOLDER_USER], ours[FOLDER_USER];

    if (S_ISLNK(st->st_mode))
        return problem_set(p, EX_CANTCREAT, ELOOP,
                           "%s is a symbolic link; it must be a %s: remove the "
                           "link, or point %s to where it leads",
                           path, what, kind->flag);
    if ((st->st_mode & S_IFMT) != type)
        return problem_set(p, EX_CANTCREAT, type == S_IFDIR ? ENOTDIR : EINVAL,
                           "%s is no %s; move it away", path, what);
    if (st->st_uid != owner && type == S_IFREG)
        return problem_set(p, EX_CANTCREAT, EPERM,
                           "%s belongs to %s, and its folder to %s: somebody "
                           "else put it there; look at it, and move it away",
                           path, folder_user(st->st_uid, his),
                           folder_user(owner, ours));
    if (st->st_uid != owner)
        return owner_refuse(path, st->st_uid, kind, p);
    if (!(st->st_mode & forbidden))
        return 0;
    if (geteuid() == 0 || st->st_uid == geteuid())
        return problem_set(p, EX_CANTCREAT, EPERM,
                           "%s is writable by %s (mode %04o); `chmod go-w %s`",
                           path, who, mode, path);
    return problem_set(p, EX_CANTCREAT, EPERM,
                       "%s is writable by %s (mode %04o); have %s do `chmod "
                       "go-w %s`, or give another %s DIR",
                       path, who, mode, folder_user(st->st_uid, his), path,
                       kind->flag);
}

/* Return true for root. In a user namespace the owner of "/" is the root of the
 * machine. */
static bool user_is_root(uid_t uid)
{
    struct stat top;

    return uid == 0 || (lstat("/", &top) == 0 && uid == top.st_uid);
}

/* Return true for a tmpfs that root has mounted for several users (see the head
 * of this file). */
static bool folder_is_shared(const char *path, const struct stat *st,
                             const struct folder_kind *kind)
{
    struct statfs s;

    return kind->runtime && user_is_root(st->st_uid) && mount_point_is(path) &&
           statfs(path, &s) == 0 && fs_kind((long)s.f_type) == FS_MEMORY;
}

/* Check every existing directory above `path`: a user who can write in one of
 * them can replace ours with a tree of his own. Links are resolved first,
 * because their targets count. If a directory is sticky (/tmp, /dev/shm), only
 * the owners of a folder and of the directory can move the folder away. A group
 * with the number of our user is the user's private one, as distributions and
 * Kubernetes (fsGroup) make it. */
static int parents_check(const char *path, const struct folder_kind *kind,
                         struct problem *p)
{
    char text[PATH_MAX], at[PATH_MAX], user[FOLDER_USER];
    bool found = false, group, others;
    struct stat st;
    int err;

    strlcpy(text, path, sizeof text);
    while (!found && file_parent(text))
        found = realpath(text, at) != NULL;
    if (!found)
        return 0;
    do {
        err = folder_look(at, &st, kind, p);
        if (err == -ENOENT)
            continue; /* folder_make reports it */
        if (err)
            return err;
        if (st.st_uid != geteuid() && !user_is_root(st.st_uid))
            return problem_set(
                p, EX_CANTCREAT, EPERM,
                "%s, above %s, belongs to %s, who could put another folder in "
                "its place; give another %s",
                at, path, folder_user(st.st_uid, user), kind->flag);
        group =
            st.st_mode & S_IWGRP && st.st_gid != 0 && st.st_gid != geteuid();
        others = st.st_mode & S_IWOTH;
        if (!(st.st_mode & S_ISVTX) && (group || others) &&
            !folder_is_shared(at, &st, kind))
            return problem_set(
                p, EX_CANTCREAT, EPERM,
                "%s, above %s, is writable by %s (mode %04o), who could put "
                "another folder in its place; `chmod %s %s`, or give another "
                "%s",
                at, path, others ? "others" : "its group",
                (unsigned)(st.st_mode & 07777), others ? "+t" : "g-w", at,
                kind->flag);
    } while (file_parent(at));
    return 0;
}

/* A user who can write in this directory could replace a queue's folder, and
 * the worker would not find the messages that it kept. With the sticky bit
 * (/tmp, a fresh tmpfs) only the owner of a folder can do that, so that is
 * allowed. */
int folder_root(const char *root, bool create, bool link,
                const struct folder_kind *kind, struct problem *p)
{
    bool looks = geteuid() == 0 && !create, any, open;
    struct stat st;
    int err = looks ? 0 : parents_check(root, kind, p);

    if (!err)
        err = folder_look(root, &st, kind, p);
    if (!err && S_ISLNK(st.st_mode) && link && st.st_uid == 0 &&
        stat(root, &st) < 0)
        err = errno == ENOENT ? -ENOENT
                              : problem_set(p, EX_CANTCREAT, errno, "%s: %s",
                                            root, errno_text(errno));
    if (err)
        return err == -ENOENT ? 0 : err;
    /* Root's directory is as good as ours, because root can do anything anyway.
     * Root may look at any user's directory, but keeps nothing there. */
    any = st.st_uid == 0 || looks;
    open = st.st_mode & S_ISVTX || folder_is_shared(root, &st, kind);
    return folder_node(root, &st, S_IFDIR, any ? st.st_uid : geteuid(),
                       open ? 0 : S_IWGRP | S_IWOTH, kind, p);
}

int folder_read_only(const char *path, struct problem *p)
{
    char mount[PATH_MAX];

    return problem_set(p, EX_CANTCREAT, EROFS,
                       "cannot write in %s: the file system mounted at %s is "
                       "read-only; `mount -o remount,rw %s` (after an error of "
                       "the disk, see dmesg, umount and fsck come first); "
                       "another directory would not have what was kept here",
                       path, mount_point(path, mount), mount);
}

const char *folder_room(const char *path)
{
    char at[PATH_MAX];
    struct statvfs s;

    strlcpy(at, path, sizeof at);
    while (statvfs(at, &s) < 0)
        if (!file_parent(at))
            return "free some space";
    return s.f_files > 0 && s.f_favail == 0
               ? "it has no inodes left (df -i): remove some files"
               : "free some space";
}

int folder_queue(const char *folder, bool create,
                 const struct folder_kind *kind, struct problem *p)
{
    struct stat st;
    uid_t owner;
    int err = folder_look(folder, &st, kind, p);

    if (err)
        return err;
    owner = geteuid() == 0 && !create ? st.st_uid : geteuid();
    err = folder_node(folder, &st, S_IFDIR, owner, S_IWGRP | S_IWOTH, kind, p);
    if (err || !create ||
        faccessat(AT_FDCWD, folder, R_OK | W_OK | X_OK, AT_EACCESS) == 0)
        return err;
    if (errno == EROFS)
        return folder_read_only(folder, p);
    return problem_set(p, EX_CANTCREAT, errno,
                       "cannot write in %s (mode %04o): %s; `chmod u+rwx %s`, "
                       "or give another %s",
                       folder, (unsigned)(st.st_mode & 07777),
                       errno_text(errno), folder, kind->flag);
}

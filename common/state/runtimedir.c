/* runtimedir.c - where the messages in flight of a queue are (see runtimedir.h)
 *
 * The note in the state folder is the truth: custody is where it says. A start
 * by another rule carries custody over in this order, and a crash between any
 * two steps leaves what the next start understands:
 *   1. custody is built complete in the new folder (custody_carry);
 *      crash: the note still names the old one, which is whole; the copy in the
 *      new one is built again.
 *   2. the note names the new one (runtimedir_settle);
 *      crash: what is left in the old one is a copy that nothing names.
 *   3. the old one is removed.
 * All of this under the lock of the state folder. The lock of the runtime
 * folder keeps out a worker of another state folder, also one in a container
 * that sees the same memory and not the same disk.
 */
#include "common/state/runtimedir.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/file/file.h"
#include "common/file/folder.h"
#include "common/file/fs_type.h"
#include "common/state/runtimedir_note.h"

#define FLAG     "--runtime-dir"
#define FOLDERS  100             /* NAME, NAME.2, ... NAME.100 */
#define DYING_NS (10 * NS_PER_S) /* a core dump takes its time; pidfile.c */
#define LOOK_MS  2

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
           r->holds(path) != 0;
}

/* there - whether a folder has a custody file */
static bool there(const char *folder)
{
    char path[PATH_MAX];
    struct stat st;

    return folder_join(path, folder, "/", RUNTIMEDIR_CUSTODY) &&
           lstat(path, &st) == 0;
}

/* same - whether two paths are the same directory */
static bool same(const char *a, const char *b)
{
    struct stat x, y;

    return stat(a, &x) == 0 && stat(b, &y) == 0 && file_same(&x, &y);
}

/* claimed - whether the state folder that `owner` names agrees; one that we
 * cannot read may */
static bool claimed(const struct runtimedir_note *owner, const char *folder)
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
    theirs = !same(owner.folder, state) && claimed(&owner, folder);
    if (strcmp(owner.id, r->id) == 0 && !theirs)
        return OURS;
    if (theirs)
        return THEIRS;
    return holds(r, folder) ? STRANGE : FREE;
}

/* unusable - a system call on a folder failed */
static int unusable(int err, const char *path, struct problem *p)
{
    return problem_set(p, EX_CANTCREAT, err, "%s: %s; %s%sgive another " FLAG,
                       path, strerror(err),
                       err == ENOSPC ? folder_room(path) : "",
                       err == ENOSPC ? ", or " : "");
}

/* lock_once - the lock of the folder at `path`: 0, -EWOULDBLOCK, -ESTALE where
 * somebody removed it meanwhile, or another -errno */
static int lock_once(int *lock, const char *path)
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
    uint64_t end = clock_mono_ns() + DYING_NS;
    int err;

    for (;;) {
        err = lock_once(&r->lock, path);
        if (err == -ESTALE && mkdir(path, 0700) < 0 && errno != EEXIST)
            return unusable(errno, path, p);
        if (err == -ESTALE)
            continue;
        if (err != -EWOULDBLOCK)
            return err ? unusable(-err, path, p) : 0;
        if (judge(r, path, state) != OURS)
            return -EWOULDBLOCK;
        if (clock_mono_ns() >= end)
            return problem_set(p, EX_UNAVAILABLE, EWOULDBLOCK,
                               "another process holds %s, which belongs to "
                               "this worker; find it with fuser(1) and end it",
                               path);
        poll(NULL, 0, LOOK_MS);
    }
}

/* leftovers_remove - of a state folder that is gone; nothing is in flight */
static void leftovers_remove(const char *folder)
{
    static const char *const files[] = {RUNTIMEDIR_CUSTODY, RUNTIMEDIR_COUNTERS,
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
        return unusable(errno, r->folder, p);
    err = folder_queue(r->folder, true, &folder_runtime, p);
    if (!err)
        err = lock_take(r, r->folder, state, p);
    if (err)
        return err;
    claim = judge(r, r->folder, state);
    if (claim == STRANGE && !r->strange[0])
        strlcpy(r->strange, r->folder, sizeof r->strange);
    if (claim == FREE)
        leftovers_remove(r->folder);
    if (claim == OURS || claim == FREE)
        return 0;
    close(r->lock);
    r->lock = -1;
    return -EWOULDBLOCK;
}

/* folder_take - the first of NAME, NAME.2, ... that is ours or free */
static int folder_take(struct runtimedir *r, const char *root, const char *name,
                       const char *state, struct problem *p)
{
    char suffix[16] = "";
    int err = -EWOULDBLOCK;

    for (int n = 1; err == -EWOULDBLOCK && n <= FOLDERS; n++) {
        if (n > 1)
            snprintf(suffix, sizeof suffix, ".%d", n);
        if (!folder_join(r->folder, root, name, suffix))
            return unusable(ENAMETOOLONG, root, p);
        err = folder_try(r, state, p);
    }
    if (err == -EWOULDBLOCK)
        err = problem_set(p, EX_CANTCREAT, EEXIST,
                          "%s%s and %d more of that name are in use by other "
                          "state directories; give another " FLAG,
                          root, name, FOLDERS - 1);
    return err;
}

/* owner_write - whose the folder is from now on */
static int owner_write(const struct runtimedir *r, const char *state,
                       struct problem *p)
{
    struct runtimedir_note owner = {.open = true};
    int err;

    strlcpy(owner.folder, state, sizeof owner.folder);
    strlcpy(owner.id, r->id, sizeof owner.id);
    boot_now(&owner.boot);
    err = runtimedir_note_write(&owner, r->folder, RUNTIMEDIR_OWNER);
    return err ? unusable(-err, r->folder, p) : 0;
}

/* memory_open - root and folder in it */
static int memory_open(struct runtimedir *r, const char *root, bool link,
                       const char *name, const char *state, struct problem *p)
{
    char path[PATH_MAX], full[PATH_MAX], user[FOLDER_USER];
    int err = folder_root(root, true, link, &folder_runtime, p);

    if (err)
        return err;
    strlcpy(path, root, sizeof path);
    err = folder_make(path);
    if (!err && !realpath(root, full))
        err = -errno;
    if (err)
        return problem_set(p, EX_CANTCREAT, -err,
                           "cannot make %s: %s; give another " FLAG
                           " DIR that %s may write",
                           root, strerror(-err), folder_user(geteuid(), user));
    /* Another process may have made it. */
    err = folder_root(root, true, link, &folder_runtime, p);
    if (!err)
        err = folder_take(r, full, name, state, p);
    return err ? err : owner_write(r, state, p);
}

/* note_find - what the last worker wrote; `*known` false: there is none */
static int note_find(struct runtimedir_note *note, const char *state,
                     bool *known, struct problem *p)
{
    int err = runtimedir_note_read(note, state, RUNTIMEDIR_NOTE);

    *known = err == 0;
    if (err == 0 || err == -ENOENT)
        return 0;
    if (err == -EBADMSG)
        return problem_set(p, EX_CONFIG, EBADMSG,
                           "%s/" RUNTIMEDIR_NOTE " is damaged; it was left "
                           "untouched: move it away, and messages in flight "
                           "are looked for where this start has its own",
                           state);
    return problem_set(p, EX_CANTCREAT, -err, "%s/" RUNTIMEDIR_NOTE ": %s",
                       state, strerror(-err));
}

/* last_find - what became of the custody that the note names
 * If the folder belongs to another state folder, ours is a copy of that one and
 * has nothing in flight of its own. */
static void last_find(struct runtimedir *r, const struct runtimedir_note *note,
                      const char *state)
{
    struct runtimedir_note owner;
    struct boot now;
    bool ours = same(note->folder, state);

    strlcpy(r->was, note->folder, sizeof r->was);
    r->here = strcmp(note->folder, r->folder) == 0;
    if (!r->here && !ours &&
        runtimedir_note_read(&owner, note->folder, RUNTIMEDIR_OWNER) == 0) {
        if (strcmp(owner.id, r->id) != 0 ||
            (!same(owner.folder, state) && claimed(&owner, note->folder)))
            return;
        ours = true;
    }
    if (there(note->folder) && (r->here || ours)) {
        if (!r->here)
            strlcpy(r->from, note->folder, sizeof r->from);
        return;
    }
    boot_now(&now);
    if (note->open)
        r->past =
            boot_same(&now, &note->boot) ? RUNTIMEDIR_GONE : RUNTIMEDIR_REBOOT;
}

/* old_find - custody of an older version, which has it in the state folder */
static void old_find(struct runtimedir *r, bool known, const char *state)
{
    if (strcmp(r->folder, state) == 0 || strcmp(r->from, state) == 0 ||
        !there(state))
        return;
    strlcpy(r->old, state, sizeof r->old);
    r->old_true = !known;
}

/* runtimedir_open - where both directories are one, the state folder does: its
 * lock and its name are taken */
int runtimedir_open(struct runtimedir *out, const struct runtimedir_wish *wish,
                    const struct statedir *dir, struct problem *p)
{
    char root[PATH_MAX], state[PATH_MAX];
    struct runtimedir_note note;
    bool known, disk;
    int err;

    memset(out, 0, sizeof *out);
    out->lock = -1;
    out->holds = wish->holds;
    if (!realpath(dir->folder, state))
        return unusable(errno, dir->folder, p);
    err = note_find(&note, state, &known, p);
    if (!err)
        err = runtimedir_root(root, wish, &disk, p);
    if (err)
        return err;
    if (known)
        strlcpy(out->id, note.id, sizeof out->id);
    else
        runtimedir_note_id(out->id);
    if (root[0] && !same(root, dir->root))
        err = memory_open(out, root,
                          !wish->dir && folder_variable("RUNTIME_DIRECTORY"),
                          strrchr(state, '/'), state, p);
    else
        strlcpy(out->folder, state, sizeof out->folder);
    if (!err && known)
        last_find(out, &note, state);
    if (!err)
        old_find(out, known, state);
    return err;
}

/* ---- from then on ---- */

/* from_remove - what was carried; the note names another place by now */
static void from_remove(const char *folder, const char *state)
{
    char path[PATH_MAX];

    if (!folder[0])
        return;
    if (!same(folder, state)) {
        leftovers_remove(folder);
        (void)rmdir(folder);
    } else if (folder_join(path, folder, "/", RUNTIMEDIR_CUSTODY)) {
        (void)unlink(path);
    }
}

/* note_put - open or closed; nothing is written that stands there already */
static int note_put(struct runtimedir *r, const char *state, bool open)
{
    struct runtimedir_note note, old;
    int err;

    memset(&note, 0, sizeof note);
    strlcpy(note.folder, r->folder, sizeof note.folder);
    strlcpy(note.id, r->id, sizeof note.id);
    boot_now(&note.boot);
    note.open = open;
    if (runtimedir_note_read(&old, state, RUNTIMEDIR_NOTE) == 0 &&
        strcmp(old.folder, note.folder) == 0 && strcmp(old.id, note.id) == 0 &&
        old.open == open && boot_same(&old.boot, &note.boot))
        return 0;
    err = runtimedir_note_write(&note, state, RUNTIMEDIR_NOTE);
    r->here = r->here || !err;
    return err;
}

/* runtimedir_settle - see the head of the file
 * Where the note names the folder already, a full disk prevents nothing: it
 * only cannot say that a worker runs. */
int runtimedir_settle(struct runtimedir *r, const struct statedir *dir,
                      struct problem *p)
{
    int err = note_put(r, dir->folder, true);

    if (err && !r->here)
        return problem_set(p, EX_CANTCREAT, -err,
                           "cannot write %s/" RUNTIMEDIR_NOTE ": %s; %s, or "
                           "give another --state-dir",
                           dir->folder, strerror(-err),
                           folder_room(dir->folder));
    FAULT_POINT("runtimedir_settle_before_remove");
    from_remove(r->from, dir->folder);
    r->from[0] = '\0';
    r->noted = true;
    return 0;
}

void runtimedir_old_remove(struct runtimedir *r)
{
    FAULT_POINT("runtimedir_old_before_remove");
    from_remove(r->old, r->old);
    r->old[0] = '\0';
}

/* lock_again - the folder of that name now, which may be another one */
static int lock_again(struct runtimedir *r, struct problem *p)
{
    int lock, err;

    if (file_named(r->lock, r->folder))
        return 0;
    err = folder_queue(r->folder, true, &folder_runtime, p);
    if (err)
        return err;
    err = lock_once(&lock, r->folder);
    if (err == -EWOULDBLOCK)
        return problem_set(p, EX_UNAVAILABLE, EEXIST,
                           "another worker has %s; stop that one", r->folder);
    if (err)
        return unusable(-err, r->folder, p);
    close(r->lock);
    r->lock = lock;
    return 0;
}

/* runtimedir_put_back - the lock, then the owner file, then the note
 * Crash before the note: if the note was lost, too, the next start finds the
 * folder by its owner file; otherwise by the note, which has not changed. */
int runtimedir_put_back(struct runtimedir *r, const struct statedir *dir,
                        struct problem *p)
{
    char path[PATH_MAX];
    int err = 0;

    if (r->lock >= 0) {
        strlcpy(path, r->folder, sizeof path);
        err = folder_make(path);
        if (err)
            return unusable(-err, r->folder, p);
        err = lock_again(r, p);
        if (!err)
            err = owner_write(r, dir->folder, p);
    }
    if (err)
        return err;
    err = note_put(r, dir->folder, true);
    return err ? unusable(-err, dir->folder, p) : 0;
}

/* note_ours - the note is ours, or there is none
 * If somebody removed the state folder under us and started another worker, the
 * note that is there now names the folder of that worker. */
static bool note_ours(const struct runtimedir *r, const char *state)
{
    struct runtimedir_note note;

    return runtimedir_note_read(&note, state, RUNTIMEDIR_NOTE) < 0 ||
           strcmp(note.id, r->id) == 0;
}

void runtimedir_close(struct runtimedir *r, const struct statedir *dir,
                      bool orderly)
{
    if (r->noted && orderly && note_ours(r, dir->folder))
        (void)note_put(r, dir->folder, false);
    if (!r->noted && r->made && !there(r->folder)) {
        leftovers_remove(r->folder);
        (void)rmdir(r->folder);
    }
    if (r->lock >= 0)
        close(r->lock);
    r->lock = -1;
}

int runtimedir_path(const struct runtimedir *r, const char *file,
                    char out[PATH_MAX], struct problem *p)
{
    struct statedir at;

    at.root[0] = '\0';
    strlcpy(at.folder, r->folder, sizeof at.folder);
    return statedir_path(&at, file, out, p);
}

/* owned - a folder of the same owner as the state folder, which nobody else may
 * write; the note is only as good as that */
static bool owned(const char *folder, const struct statedir *dir)
{
    struct stat ours, st;

    return stat(dir->folder, &ours) == 0 && lstat(folder, &st) == 0 &&
           S_ISDIR(st.st_mode) && st.st_uid == ours.st_uid &&
           !(st.st_mode & (S_IWGRP | S_IWOTH));
}

/* runtimedir_file - what is not where the note says may be where an older
 * version, or an orderly stop, left it */
int runtimedir_file(const struct statedir *dir, const char *file,
                    char out[PATH_MAX], struct problem *p)
{
    struct runtimedir_note note;
    struct statedir at = {.root = ""};
    struct stat st;
    int err = runtimedir_note_read(&note, dir->folder, RUNTIMEDIR_NOTE);

    if (!err && owned(note.folder, dir)) {
        strlcpy(at.folder, note.folder, sizeof at.folder);
        err = statedir_path(&at, file, out, p);
        if (err || lstat(out, &st) == 0)
            return err;
    }
    return statedir_path(dir, file, out, p);
}

/* empty_remove - under its lock; `note` is that of the state folder
 * The note is closed first, as a folder that is missing under an open one tells
 * of messages that were lost. Crash after that: the next start finds an empty
 * folder, and uses it. A worker that starts meanwhile waits for the lock and
 * makes the folder again, or takes the next name (lock_take). */
static int empty_remove(const struct statedir *dir,
                        struct runtimedir_note *note,
                        int (*has)(const char *path))
{
    char path[PATH_MAX];
    int err = folder_join(path, note->folder, "/", RUNTIMEDIR_CUSTODY)
                  ? has(path)
                  : -ENAMETOOLONG;

    if (err)
        return err;
    if (note->open) {
        note->open = false;
        err = runtimedir_note_write(note, dir->folder, RUNTIMEDIR_NOTE);
    }
    if (err)
        return err;
    leftovers_remove(note->folder);
    return rmdir(note->folder) < 0 ? -errno : 0;
}

int runtimedir_remove(const struct statedir *dir, int (*has)(const char *path),
                      char out[PATH_MAX])
{
    struct runtimedir_note note, owner;
    struct stat st;
    int lock, err = runtimedir_note_read(&note, dir->folder, RUNTIMEDIR_NOTE);

    out[0] = '\0';
    if (err)
        return err;
    strlcpy(out, note.folder, PATH_MAX);
    if (same(note.folder, dir->folder) || !owned(note.folder, dir) ||
        runtimedir_note_read(&owner, note.folder, RUNTIMEDIR_OWNER) < 0 ||
        strcmp(owner.id, note.id) != 0 || !same(owner.folder, dir->folder))
        return -ENOENT;
    /* What root writes there its owner could not use. */
    if (stat(dir->folder, &st) < 0 || st.st_uid != geteuid())
        return -EPERM;
    err = lock_once(&lock, note.folder);
    if (err)
        return err == -EWOULDBLOCK ? -EBUSY : err;
    err = empty_remove(dir, &note, has);
    close(lock);
    return err;
}

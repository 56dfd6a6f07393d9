/* runtimedir.c - where the messages in flight of a queue are (see runtimedir.h)
 *
 * Why memory: the kernel write-protects a page of a file on disk each time it
 * writes the page back. The copy in mq_receive(3) then takes a page fault. If a
 * SIGKILL is pending and the fault has to wait, the copy fails, although the
 * message has left the queue. Pages of tmpfs and ramfs are never written back.
 *
 * The note in the state folder says where custody is. It is on disk before the
 * first message is received, and a start does not change to another folder
 * while the old one holds messages. So a folder that the note does not name
 * holds no messages in flight. The lock of the state folder protects the note.
 * The lock of the runtime folder excludes a worker in another container that
 * sees the same memory and has another state directory at the same path.
 */
#include "common/state/runtimedir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
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

#include "common/base/boot_id.h"
#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/base/safe_text.h"
#include "common/state/worker_lock.h"

#define FLAG      "--runtime-dir"
#define DOCKER    "docker run --tmpfs /run/mqworker"
#define NAME_MOST 200 /* bytes of a queue's name in that of its folder */
#define LOOKED    512 /* bytes of the list of directories that were tried */
#define NOTE_TEXT (2 * PATH_MAX + 512)

int (*runtimedir_statfs)(const char *path, struct statfs *out) = statfs;

/* ---- the runtime directory ---- */

/* Add a directory that cannot be used to the list for the error text. */
static void looked_add(char looked[LOOKED], const char *path, const char *why)
{
    text_append(looked, LOOKED, "%s%s (%s)", *looked ? ", " : "", path, why);
}

/* Return true if a path lies in memory; else add it to `looked`. A symbolic
 * link is named with its target, as another user may have put it there. */
static bool in_memory(const char *path, char looked[LOOKED])
{
    char type[FS_TYPE_TEXT], to[PATH_MAX], at[PATH_MAX], why[200];
    ssize_t n = readlink(path, to, sizeof to - 1);
    struct statfs s;

    to[n > 0 ? n : 0] = '\0';
    /* A path that does not exist will be on the file system of its parent. */
    strlcpy(at, path, sizeof at);
    while (runtimedir_statfs(at, &s) < 0)
        if ((errno != ENOENT && errno != ENOTDIR) || !file_parent(at)) {
            looked_add(looked, path, errno_text(errno));
            return false;
        }
    if (fs_kind((long)s.f_type) == FS_MEMORY)
        return true;
    snprintf(why, sizeof why, "%s%.100s%s%s",
             n > 0 ? "a symbolic link to " : "", to, n > 0 ? ", on " : "",
             fs_type_text((long)s.f_type, type));
    looked_add(looked, path, why);
    return false;
}

/* Find the first of the default directories that lies in memory; false if none
 * does. */
static bool preset_find(char out[PATH_MAX], char looked[LOOKED])
{
    const char *service = folder_variable("RUNTIME_DIRECTORY");
    const char *session = folder_variable("XDG_RUNTIME_DIR");
    char named[PATH_MAX]; /* cut if it is longer */
    struct stat st;

    if (service && strcspn(service, ":") < PATH_MAX) {
        snprintf(out, PATH_MAX, "%.*s", (int)strcspn(service, ":"), service);
        if (in_memory(out, looked))
            return true;
    }
    if (geteuid() == 0) {
        strlcpy(out, "/run/mqworker", PATH_MAX);
        if (in_memory(out, looked))
            return true;
    }
    /* After a change of user, the variable may still name the directory of the
     * other user, and the directory may outlive its session (XDG Base Directory
     * Specification). */
    snprintf(named, sizeof named, "$XDG_RUNTIME_DIR%s%s", session ? " " : "",
             session ? session : "");
    if (!session)
        looked_add(looked, named, "not set");
    else if (stat(session, &st) < 0)
        looked_add(looked, named, errno_text(errno));
    else if (st.st_uid != geteuid())
        looked_add(looked, named, "of another user");
    else if (folder_join(out, session, "/mqworker", "") &&
             in_memory(out, looked))
        return true;
    snprintf(out, PATH_MAX, "/dev/shm/mqworker-%u", (unsigned)geteuid());
    return in_memory(out, looked);
}

int runtimedir_root(char out[PATH_MAX], const struct runtimedir_wish *wish,
                    struct problem *p)
{
    char looked[LOOKED] = "";

    if (wish->dir &&
        (wish->dir[0] == '\0' || strlen(wish->dir) >= PATH_MAX - 1))
        return problem_set(p, EX_CANTCREAT, EINVAL,
                           FLAG " is %s: give the path of a directory on a "
                                "tmpfs",
                           wish->dir[0] ? "too long" : "empty");
    if (wish->dir) {
        strlcpy(out, wish->dir, PATH_MAX);
        if (!in_memory(out, looked) && !wish->allow_disk)
            return problem_set(
                p, EX_CANTCREAT, EXDEV,
                FLAG ": %s is not a tmpfs. On disk, a kill during writeback "
                     "loses the message being received. Give a directory on a "
                     "tmpfs (mount -t tmpfs tmpfs DIR; " DOCKER
                     "), or take the risk with --allow-disk-custody",
                looked);
    } else if (!preset_find(out, looked)) {
        out[0] = '\0';
        if (!wish->allow_disk)
            return problem_set(
                p, EX_CANTCREAT, EXDEV,
                "found no directory in memory for messages in flight; tried: "
                "%s. On disk, a kill during writeback loses the message being "
                "received. Give " FLAG " DIR on a tmpfs (mount -t tmpfs tmpfs "
                "DIR; " DOCKER
                "; Kubernetes: emptyDir with medium: Memory), or take "
                "the risk with --allow-disk-custody",
                looked);
    }
    for (size_t n = strlen(out); n > 1 && out[n - 1] == '/'; n--)
        out[n - 1] = '\0';
    if (strchr(out, '\n'))
        return problem_set(p, EX_CANTCREAT, EINVAL,
                           "the path of the runtime directory has a newline; "
                           "give another " FLAG);
    return 0;
}

bool runtimedir_folder(char out[PATH_MAX], const char *root, const char *home)
{
    const char *name = strrchr(home, '/') + 1;
    uint32_t hash = UINT32_C(0x811c9dc5); /* FNV-1a */

    for (const char *c = home; *c; c++)
        hash = (hash ^ (unsigned char)*c) * UINT32_C(0x01000193);
    return snprintf(out, PATH_MAX, "%s/%.*s.%08" PRIx32, root, NAME_MOST, name,
                    hash) < PATH_MAX;
}

/* ---- the note ---- */

/* The note, as lines of text "NAME VALUE". The state is on the last line, so a
 * note without it was cut short. No path has a newline. */
struct note {
    char folder[PATH_MAX]; /* the runtime folder */
    char home[PATH_MAX];   /* the state folder that the note was written in */
    struct boot boot;      /* run of the machine that it was written in */
    bool open;             /* a worker runs, or was killed */
};

/* Copy the value of line `name` and advance past the line. Returns false if the
 * line is missing or its value too long. */
static bool line_take(char **text, const char *name, char *out, size_t room)
{
    size_t size = strlen(name), value;
    char *at = *text;

    if (strncmp(at, name, size) != 0 || at[size] != ' ')
        return false;
    at += size + 1;
    value = strcspn(at, "\n");
    if (at[value] != '\n' || value >= room)
        return false;
    memcpy(out, at, value);
    out[value] = '\0';
    *text = at + value + 1;
    return true;
}

/* Read the note of the state folder `home`. -ENOENT: there is none; -EBADMSG:
 * it cannot be understood. */
static int note_read(struct note *out, const char *home)
{
    char path[PATH_MAX], text[NOTE_TEXT] = "", boot[BOOT_TEXT], state[8];
    char *at = text;
    ssize_t n;

    memset(out, 0, sizeof *out);
    if (!folder_join(path, home, "/", RUNTIMEDIR_NOTE))
        return -ENAMETOOLONG;
    n = file_read_text(path, text, sizeof text);
    if (n < 0)
        return (int)n;
    if (!line_take(&at, "folder", out->folder, sizeof out->folder) ||
        !line_take(&at, "home", out->home, sizeof out->home) ||
        !line_take(&at, "boot", boot, sizeof boot) ||
        !line_take(&at, "state", state, sizeof state) ||
        out->folder[0] != '/' || out->home[0] != '/')
        return -EBADMSG;
    boot_parse(&out->boot, boot, strlen(boot));
    out->open = strcmp(state, "closed") != 0;
    return 0;
}

/* Write the note of a state folder, unless it has this text already. */
static int note_write(const char *folder, const char *home, bool open)
{
    char path[PATH_MAX], text[NOTE_TEXT], boot[BOOT_TEXT];
    struct note old;
    struct boot now;
    int n, err;

    boot_now(&now);
    if (note_read(&old, home) == 0 && strcmp(old.folder, folder) == 0 &&
        strcmp(old.home, home) == 0 && old.open == open &&
        boot_same(&old.boot, &now))
        return 0;
    n = snprintf(text, sizeof text, "folder %s\nhome %s\nboot %s\nstate %s\n",
                 folder, home, boot_print(&now, boot),
                 open ? "open" : "closed");
    if (!folder_join(path, home, "/", RUNTIMEDIR_NOTE))
        return -ENAMETOOLONG;
    err = file_replace(path, text, (size_t)n);
    return err ? err : folder_sync(home);
}

/* Return true if two paths name the same directory. */
static bool folder_same(const char *a, const char *b)
{
    struct stat x, y;

    return stat(a, &x) == 0 && stat(b, &y) == 0 && file_same(&x, &y);
}

/* Return true if the state folder `home` is a copy, which has nothing in
 * flight: its note was written in another folder, and the note that is now in
 * that folder names the same runtime folder or cannot be read. */
static bool note_copied(const struct note *note, const char *home)
{
    struct note other;
    int err;

    if (folder_same(note->home, home))
        return false;
    err = note_read(&other, note->home);
    return err ? err != -ENOENT && err != -ENOTDIR
               : strcmp(other.folder, note->folder) == 0;
}

/* ---- the folder of a queue ---- */

static int folder_refuse(int err, const char *path, struct problem *p)
{
    return problem_set(p, EX_CANTCREAT, err, "%s: %s; %s%sgive another " FLAG,
                       path, errno_text(err),
                       err == ENOSPC ? folder_room(path) : "",
                       err == ENOSPC ? ", or " : "");
}

/* Return true if a folder has a custody file. */
static bool custody_there(const char *folder)
{
    char path[PATH_MAX];
    struct stat st;

    return folder_join(path, folder, "/", RUNTIMEDIR_CUSTODY) &&
           lstat(path, &st) == 0;
}

/* Remove a folder in which nothing is in flight, with its files. From the state
 * folder, remove only custody. Returns 0 or -errno. */
static int folder_remove(const char *folder, const char *home)
{
    static const char *const files[] = {RUNTIMEDIR_CUSTODY, RUNTIMEDIR_RUNS,
                                        RUNTIMEDIR_COUNTERS, RUNTIMEDIR_ENDS};
    bool state = folder_same(folder, home);
    char path[PATH_MAX];

    for (size_t i = 0; i < (state ? 1 : sizeof files / sizeof files[0]); i++)
        if (folder_join(path, folder, "/", files[i]))
            (void)unlink(path);
    return state || rmdir(folder) == 0 ? 0 : -errno;
}

/* Lock the folder at `path`. Returns 0, -EWOULDBLOCK, -ESTALE if another folder
 * got the name in the meantime, or another -errno. */
static int folder_lock(int *lock, const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int err = fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 ? -errno : 0;

    if (!err && !file_named(fd, path))
        err = -ESTALE;
    if (!err)
        *lock = file_fd_raise(fd);
    else
        fd_close(&fd);
    return err;
}

/* Make, check and lock r->folder. Waits a moment for the lock, because a dying
 * worker or its child before execve may still hold it; then refuses the folder,
 * because another worker is running. */
static int folder_take(struct runtimedir *r, struct problem *p)
{
    uint64_t end = clock_mono_ns() + WORKER_LOCK_DYING_NS;
    int err;

    r->made = mkdir(r->folder, 0700) == 0;
    if (!r->made && errno != EEXIST)
        return folder_refuse(errno, r->folder, p);
    err = folder_queue(r->folder, true, &folder_runtime, p);
    if (err)
        return err;
    for (;;) {
        err = folder_lock(&r->lock, r->folder);
        if (err == -ESTALE && mkdir(r->folder, 0700) < 0 && errno != EEXIST)
            return folder_refuse(errno, r->folder, p);
        if (err == -ESTALE)
            continue;
        if (err != -EWOULDBLOCK)
            return err ? folder_refuse(-err, r->folder, p) : 0;
        if (clock_mono_ns() >= end)
            return problem_set(
                p, EX_UNAVAILABLE, EWOULDBLOCK,
                "another process has %s locked: a worker in another container "
                "whose state directory has the same path, or a process that "
                "fuser(1) shows. Stop it, or give another " FLAG,
                r->folder);
        poll(NULL, 0, WORKER_LOCK_LOOK_MS);
    }
}

/* Make and check the runtime directory, then take r->folder, which is in it. */
static int memory_open(struct runtimedir *r, const char *root, bool link,
                       const char *home, struct problem *p)
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
        return problem_set(
            p, EX_CANTCREAT, -err,
            "cannot make %s as user %s: %s; give another " FLAG " DIR", root,
            folder_user(geteuid(), user), errno_text(-err));
    /* Check it again: another process may have made it. */
    err = folder_root(root, true, link, &folder_runtime, p);
    if (err)
        return err;
    if (!r->folder[0] && !runtimedir_folder(r->folder, full, home))
        return folder_refuse(ENAMETOOLONG, root, p);
    return folder_take(r, p);
}

/* Set r->was, the folder of the last worker, and r->past from the note in the
 * state folder `home`. Without a note, r->was is `home` if custody is there. */
static int last_find(struct runtimedir *r, const char *home, struct problem *p)
{
    struct note note;
    struct boot now;
    int err = note_read(&note, home);

    if (err == -EBADMSG)
        return problem_set(p, EX_CONFIG, EBADMSG,
                           "%s/" RUNTIMEDIR_NOTE " is damaged and was left "
                           "untouched. Move it away; the next start then looks "
                           "for messages in flight in its own runtime folder",
                           home);
    if (err && err != -ENOENT)
        return problem_set(p, EX_CANTCREAT, -err, "%s/" RUNTIMEDIR_NOTE ": %s",
                           home, errno_text(-err));
    if (err && custody_there(home))
        strlcpy(r->was, home, sizeof r->was);
    if (err || note_copied(&note, home))
        return 0;
    strlcpy(r->was, note.folder, sizeof r->was);
    boot_now(&now);
    if (note.open && !custody_there(note.folder))
        r->past =
            boot_same(&now, &note.boot) ? RUNTIMEDIR_GONE : RUNTIMEDIR_REBOOT;
    return 0;
}

/* Use the folder of the last worker again, as it holds messages. */
static int last_open(struct runtimedir *r, const struct runtimedir_wish *wish,
                     const char *home, struct problem *p)
{
    char looked[LOOKED] = "";
    char root[PATH_MAX];

    strlcpy(root, home, sizeof root);
    (void)file_parent(root);
    if (!in_memory(r->was, looked) && !wish->allow_disk)
        return problem_set(
            p, EX_CONFIG, EXDEV,
            "messages in flight are on disk, in %s; nothing was changed. "
            "Start the worker with --allow-disk-custody once, finish these "
            "messages with `mqctl drain %s`, then start it without",
            looked, STATEDIR_OPERAND(root, strrchr(home, '/')));
    strlcpy(r->folder, r->was, sizeof r->folder);
    if (folder_same(r->folder, home))
        return 0;
    strlcpy(root, r->was, sizeof root);
    (void)file_parent(root);
    return memory_open(r, root, false, home, p);
}

int runtimedir_open(struct runtimedir *out, const struct runtimedir_wish *wish,
                    const struct statedir *dir, struct problem *p)
{
    char root[PATH_MAX], home[PATH_MAX], above[PATH_MAX], path[PATH_MAX];
    bool holds;
    int err;

    memset(out, 0, sizeof *out);
    out->lock = -1;
    if (!realpath(dir->folder, home))
        return folder_refuse(errno, dir->folder, p);
    err = last_find(out, home, p);
    if (err)
        return err;
    /* An error of `holds` counts as messages in flight. */
    holds = wish->holds && out->was[0] && custody_there(out->was) &&
            folder_join(path, out->was, "/", RUNTIMEDIR_CUSTODY) &&
            wish->holds(path) != NO;
    if (holds && !wish->dir)
        return last_open(out, wish, home, p);
    err = runtimedir_root(root, wish, p);
    if (err)
        return err;
    strlcpy(above, out->was, sizeof above);
    if (!root[0] || folder_same(root, dir->root))
        strlcpy(out->folder, home, sizeof out->folder);
    else if (holds && file_parent(above) && folder_same(root, above))
        return last_open(out, wish, home, p); /* the state folder was moved */
    if (holds && !folder_same(out->folder, out->was))
        return problem_set(
            p, EX_CONFIG, EBUSY,
            "messages in flight are in %s, but " FLAG " is %s; nothing was "
            "changed. Start the worker once without " FLAG ", finish these "
            "messages with `mqctl drain %s`, then start it with the new "
            "directory",
            out->was, root, STATEDIR_OPERAND(dir->root, strrchr(home, '/')));
    if (!out->folder[0])
        err = memory_open(out, root,
                          !wish->dir && folder_variable("RUNTIME_DIRECTORY"),
                          home, p);
    return err;
}

/* Crash before the note is written: the old note names the folder of the last
 * worker, which holds no messages. Crash after that: the last worker's folder
 * stays, without messages. If the note already names the folder and the disk is
 * full, the start goes on: the note merely does not say that a worker is
 * running. */
int runtimedir_settle(struct runtimedir *r, const struct statedir *dir,
                      struct problem *p)
{
    bool here = folder_same(r->was, r->folder);
    char home[PATH_MAX];
    int lock, err;

    if (!realpath(dir->folder, home))
        return folder_refuse(errno, dir->folder, p);
    err = note_write(r->folder, home, true);
    if (err && !here)
        return problem_set(p, EX_CANTCREAT, -err,
                           "cannot write %s/" RUNTIMEDIR_NOTE ": %s; %s, or "
                           "give another --state-dir",
                           dir->folder, errno_text(-err),
                           folder_room(dir->folder));
    FAULT_POINT("runtimedir_settle_before_remove");
    if (r->was[0] && !here && folder_lock(&lock, r->was) == 0) {
        (void)folder_remove(r->was, home);
        close(lock);
    }
    r->noted = true;
    return 0;
}

int runtimedir_note(const struct runtimedir *r, const struct statedir *dir)
{
    char home[PATH_MAX];

    return realpath(dir->folder, home) ? note_write(r->folder, home, true)
                                       : -errno;
}

void runtimedir_close(struct runtimedir *r, const struct statedir *dir,
                      bool orderly)
{
    char home[PATH_MAX];
    struct note note;

    /* If the note names another folder, it belongs to another worker, because
     * the state folder was removed or moved and made again. */
    if (r->noted && orderly && realpath(dir->folder, home) &&
        note_read(&note, home) == 0 && strcmp(note.folder, r->folder) == 0)
        (void)note_write(r->folder, home, false);
    if (!r->noted && r->made && !custody_there(r->folder))
        (void)folder_remove(r->folder, dir->folder);
    fd_close(&r->lock);
}

int runtimedir_path(const struct runtimedir *r, const char *file,
                    char out[PATH_MAX], struct problem *p)
{
    struct statedir at = {.root = ""};

    strlcpy(at.folder, r->folder, sizeof at.folder);
    return statedir_path(&at, file, out, p);
}

/* ---- for programs other than the worker ---- */

/* Return true if the owner of the state folder also owns the runtime folder and
 * is the only one who may write to it. A note that names any other folder is
 * not trusted. */
static bool folder_owned(const char *folder, const struct statedir *dir)
{
    struct stat ours, st;

    return stat(dir->folder, &ours) == 0 && lstat(folder, &st) == 0 &&
           S_ISDIR(st.st_mode) && st.st_uid == ours.st_uid &&
           !(st.st_mode & (S_IWGRP | S_IWOTH));
}

/* Search the state folder, where an orderly stop leaves the file, if the file
 * is not in the folder that the note names, or the note is damaged. */
int runtimedir_file(const struct statedir *dir, const char *file,
                    char out[PATH_MAX], struct problem *p)
{
    struct note note;
    struct statedir at = {.root = ""};
    struct stat st;
    bool bad;
    int err = note_read(&note, dir->folder);

    if (err && err != -ENOENT && err != -EBADMSG)
        return problem_set(p, err == -EACCES ? EX_NOPERM : EX_CANTCREAT, -err,
                           "%s/%s cannot be read: %s%s", dir->folder,
                           RUNTIMEDIR_NOTE, errno_text(-err),
                           err == -EACCES ? "; run as its owner" : "");
    if (!err && folder_owned(note.folder, dir) &&
        !note_copied(&note, dir->folder)) {
        strlcpy(at.folder, note.folder, sizeof at.folder);
        err = statedir_path(&at, file, out, p);
        if (err || lstat(out, &st) == 0)
            return err;
    }
    bad = err == -EBADMSG;
    err = statedir_path(dir, file, out, p);
    if (!err && bad && lstat(out, &st) < 0)
        return problem_set(
            p, EX_CONFIG, EBADMSG,
            "%s/%s is damaged: it does not say where %s is; keep a "
            "copy, move it away, and start the worker",
            dir->folder, RUNTIMEDIR_NOTE, file);
    return err;
}

/* The note is closed before the folder is removed, because an open note whose
 * folder is missing means lost messages. Crash in between: the next start finds
 * an empty folder and uses it. A worker that starts in between waits for the
 * lock, then makes the folder again (folder_take). */
int runtimedir_remove(const struct statedir *dir, int (*has)(const char *path),
                      char out[PATH_MAX])
{
    char path[PATH_MAX], home[PATH_MAX];
    struct note note;
    struct stat st;
    int lock, err = note_read(&note, dir->folder);

    out[0] = '\0';
    if (err)
        return err;
    strlcpy(out, note.folder, PATH_MAX);
    if (!realpath(dir->folder, home) || folder_same(note.folder, home) ||
        !folder_owned(note.folder, dir) || note_copied(&note, home))
        return -ENOENT;
    /* The owner could not use a note that root writes. */
    if (stat(home, &st) < 0 || st.st_uid != geteuid())
        return -EPERM;
    err = folder_lock(&lock, note.folder);
    if (err)
        return err == -EWOULDBLOCK ? -EBUSY : err;
    if (has)
        err = folder_join(path, note.folder, "/", RUNTIMEDIR_CUSTODY)
                  ? has(path)
                  : -ENAMETOOLONG;
    if (err == YES)
        err = -ENOTEMPTY;
    if (!err)
        err = note_write(note.folder, home, false);
    if (!err)
        err = folder_remove(note.folder, home);
    close(lock);
    return err;
}

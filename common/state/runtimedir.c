/* runtimedir.c - where the messages in flight of a queue are (see runtimedir.h)
 *
 * The note in the state folder is the truth: custody is where it says. A start
 * by another rule carries custody over in this order, and a crash between any
 * two steps leaves what the next start understands:
 *   1. custody is built complete in the new folder (custody_carry);
 *      crash: the note still names the old one, which is whole; the copy in the
 *      new one is built again.
 *   2. the note names the new one (runtimedir_settle);
 *      crash: the old one has a copy that nothing names.
 *   3. the old one is removed.
 * All of this under the lock of the state folder. The lock of the runtime
 * folder keeps out a worker of another state folder, also one in a container
 * that sees the same memory and not the same disk.
 */
#include "common/state/runtimedir.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/fault_point.h"
#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/base/problem.h"
#include "common/state/runtimedir_inner.h"
#include "common/state/runtimedir_note.h"

/* there - whether a folder has a custody file */
static bool there(const char *folder)
{
    char path[PATH_MAX];
    struct stat st;

    return folder_join(path, folder, "/", RUNTIMEDIR_CUSTODY) &&
           lstat(path, &st) == 0;
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
        return problem_set(
            p, EX_CANTCREAT, -err,
            "cannot make %s: %s; this runs as %s: give another " RUNTIMEDIR_FLAG
            " DIR",
            root, errno_text(-err), folder_user(geteuid(), user));
    /* Another process may have made it. */
    err = folder_root(root, true, link, &folder_runtime, p);
    if (!err)
        err = runtimedir_take(r, full, name, state, p);
    return err ? err : runtimedir_owner_write(r, state, p);
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
                       state, errno_text(-err));
}

/* last_find - what became of the custody that the note names
 * If the folder belongs to another state folder, ours is a copy of that one and
 * has nothing in flight of its own. */
static void last_find(struct runtimedir *r, const struct runtimedir_note *note,
                      const char *state)
{
    struct runtimedir_note owner;
    struct boot now;
    bool ours = runtimedir_same(note->folder, state);

    strlcpy(r->was, note->folder, sizeof r->was);
    r->here = strcmp(note->folder, r->folder) == 0;
    if (!r->here && !ours &&
        runtimedir_note_read(&owner, note->folder, RUNTIMEDIR_OWNER) == 0) {
        if (strcmp(owner.id, r->id) != 0 ||
            (!runtimedir_same(owner.folder, state) &&
             runtimedir_claimed(&owner, note->folder)))
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
        return runtimedir_unusable(errno, dir->folder, p);
    err = note_find(&note, state, &known, p);
    if (!err)
        err = runtimedir_root(root, wish, &disk, p);
    if (err)
        return err;
    if (known)
        strlcpy(out->id, note.id, sizeof out->id);
    else
        runtimedir_note_id(out->id);
    if (root[0] && !runtimedir_same(root, dir->root))
        err = memory_open(out, root,
                          !wish->dir && folder_variable("RUNTIME_DIRECTORY"),
                          strrchr(state, '/'), state, p);
    else
        strlcpy(out->folder, state, sizeof out->folder);
    if (!err && known)
        last_find(out, &note, state);
    else if (!err && there(state) && strcmp(out->folder, state) != 0)
        strlcpy(out->from, state, sizeof out->from); /* the note was lost */
    return err;
}

/* ---- from then on ---- */

/* from_remove - what was carried; the note names another place by now */
static void from_remove(const char *folder, const char *state)
{
    char path[PATH_MAX];

    if (!folder[0])
        return;
    if (!runtimedir_same(folder, state)) {
        runtimedir_clear(folder);
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
 * Custody in the state folder is a copy that nothing names, once the note names
 * another folder: a kill before step 3 left it.
 * If the note already names the folder, a full disk prevents nothing except
 * noting that a worker is running. */
int runtimedir_settle(struct runtimedir *r, const struct statedir *dir,
                      struct problem *p)
{
    int err = note_put(r, dir->folder, true);

    if (err && !r->here)
        return problem_set(p, EX_CANTCREAT, -err,
                           "cannot write %s/" RUNTIMEDIR_NOTE ": %s; %s, or "
                           "give another --state-dir",
                           dir->folder, errno_text(-err),
                           folder_room(dir->folder));
    FAULT_POINT("runtimedir_settle_before_remove");
    from_remove(r->from, dir->folder);
    if (!runtimedir_same(r->folder, dir->folder))
        from_remove(dir->folder, dir->folder);
    r->from[0] = '\0';
    r->noted = true;
    return 0;
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
        runtimedir_clear(r->folder);
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

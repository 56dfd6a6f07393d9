/* runtimedir_look.c - the folder that a note names, for who has not opened it
 * (see runtimedir.h) */
#include "common/state/runtimedir.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/folder.h"
#include "common/base/problem.h"
#include "common/state/runtimedir_inner.h"

/* owned - a folder of the same owner as the state folder, which nobody else may
 * write; the note is only as good as that */
static bool owned(const char *folder, const struct statedir *dir)
{
    struct stat ours, st;

    return stat(dir->folder, &ours) == 0 && lstat(folder, &st) == 0 &&
           S_ISDIR(st.st_mode) && st.st_uid == ours.st_uid &&
           !(st.st_mode & (S_IWGRP | S_IWOTH));
}

/* Search also where an orderly stop leaves the file, in case the note is
 * damaged or names another place. */
int runtimedir_file(const struct statedir *dir, const char *file,
                    char out[PATH_MAX], struct problem *p)
{
    struct runtimedir_note note;
    struct statedir at = {.root = ""};
    struct stat st;
    bool bad;
    int err = runtimedir_note_read(&note, dir->folder, RUNTIMEDIR_NOTE);

    if (err && err != -ENOENT && err != -EBADMSG)
        return problem_set(p, err == -EACCES ? EX_NOPERM : EX_CANTCREAT, -err,
                           "%s/%s cannot be read: %s%s", dir->folder,
                           RUNTIMEDIR_NOTE, errno_text(-err),
                           err == -EACCES ? "; run as its owner" : "");
    if (!err && owned(note.folder, dir)) {
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

    if (err != NO)
        return err == YES ? -ENOTEMPTY : err;
    if (note->open) {
        note->open = false;
        err = runtimedir_note_write(note, dir->folder, RUNTIMEDIR_NOTE);
    }
    if (err)
        return err;
    runtimedir_clear(note->folder);
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
    if (runtimedir_same(note.folder, dir->folder) || !owned(note.folder, dir) ||
        runtimedir_note_read(&owner, note.folder, RUNTIMEDIR_OWNER) < 0 ||
        strcmp(owner.id, note.id) != 0 ||
        (!runtimedir_same(owner.folder, dir->folder) &&
         runtimedir_claimed(&owner, note.folder))) /* else `dir` was moved */
        return -ENOENT;
    /* What root writes there its owner could not use. */
    if (stat(dir->folder, &st) < 0 || st.st_uid != geteuid())
        return -EPERM;
    err = runtimedir_lock(&lock, note.folder);
    if (err)
        return err == -EWOULDBLOCK ? -EBUSY : err;
    err = empty_remove(dir, &note, has);
    close(lock);
    return err;
}

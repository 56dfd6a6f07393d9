/* runtimedir.h - where the messages in flight of a queue are
 *
 * WHAT   Finds the runtime directory, which is in memory, and the folder of a
 *        queue in it: custody and counters. The folder is called NAME.HASH; the
 *        hash is of the path of the queue's folder in the state directory, so
 *        two state directories never share one. A note in that state folder
 *        names the folder, so a program that only looks needs the state
 *        directory alone. docs/formats/custody.md has the note.
 * WHO    open, settle, close: the engine, which holds the lock of the state
 *        folder. runtimedir_file: any program, any thread.
 * OWNS   The lock of its folder, from open to close.
 * FAILS  A problem: 73 no such place, not to be trusted, or not writable; 78
 *        the note cannot be read, or messages in flight are elsewhere.
 */
#ifndef COMMON_STATE_RUNTIMEDIR_H
#define COMMON_STATE_RUNTIMEDIR_H

#include <limits.h>
#include <stdbool.h>

#include "common/base/basics.h"
#include "common/base/problem.h"
#include "common/state/statedir.h"

#define RUNTIMEDIR_CUSTODY  "custody"
#define RUNTIMEDIR_COUNTERS "counters"
#define RUNTIMEDIR_ENDS     "ends"    /* of a spool */
#define RUNTIMEDIR_RUNS     "runs"    /* of a queue on a broker */
#define RUNTIMEDIR_NOTE     "runtime" /* in the state folder */

/* State of the last worker's custody. */
enum runtimedir_past {
    RUNTIMEDIR_KEPT,   /* it exists, or nothing was in it */
    RUNTIMEDIR_REBOOT, /* the machine was restarted under a worker */
    RUNTIMEDIR_GONE,   /* it was removed in this run of the machine */
};

struct runtimedir {
    char folder[PATH_MAX]; /* custody and counters are here; an absolute path */
    char was[PATH_MAX];    /* folder of the last worker; "" not known */
    enum runtimedir_past past;
    bool noted; /* runtimedir_settle has written the note */
    bool made;  /* `folder` was not there */
    int lock;   /* of `folder`; -1: it is the state folder */
};

struct runtimedir_wish {
    const char *dir; /* --runtime-dir, or NULL */
    bool allow_disk; /* --allow-disk-custody */
    /* Return YES if a custody file has messages, NO or -errno. NULL: custody
     * is not used. */
    int (*holds)(const char *path);
};

/* Find the runtime directory: `dir`, or else the first of these that lies in
 * memory: $RUNTIME_DIRECTORY (its first entry), /run/mqworker for root,
 * $XDG_RUNTIME_DIR/mqworker, /dev/shm/mqworker-UID. If none does and a disk is
 * allowed, `out` is empty: the state folder. */
int runtimedir_root(char out[PATH_MAX], const struct runtimedir_wish *wish,
                    struct problem *p);

/* Join root/NAME.HASH, the folder for the state folder `home`, an absolute path
 * without symbolic links. Returns false if the result does not fit. */
bool runtimedir_folder(char out[PATH_MAX], const char *root, const char *home);

/* Find, make, check and lock the folder of the queue of `dir`. While the folder
 * that the last worker had holds messages, a start without --runtime-dir uses
 * that folder, and one with another --runtime-dir is refused. */
int runtimedir_open(struct runtimedir *out, const struct runtimedir_wish *wish,
                    const struct statedir *dir, struct problem *p);
/* Write the note, then remove the folder of the last worker if it is another
 * one. Must be called before the first message is received. */
int runtimedir_settle(struct runtimedir *r, const struct statedir *dir,
                      struct problem *p);
/* Write the note again, after it was removed; 0 or -errno. */
int runtimedir_note(const struct runtimedir *r, const struct statedir *dir);
/* Unlock the folder, and remove it if runtimedir_open made it and it has no
 * custody. `orderly`: custody holds nothing. */
void runtimedir_close(struct runtimedir *r, const struct statedir *dir,
                      bool orderly);
/* Join folder/file, checked if it exists, as statedir_path does. */
int runtimedir_path(const struct runtimedir *r, const char *file,
                    char out[PATH_MAX], struct problem *p);

/* Find a file of the queue, for a program that only reads: in the folder that
 * the note of `dir` names, or in `dir` itself if the file is there or there is
 * no note. Status 73 or 77 if the note cannot be read, 78 if it is damaged. */
int runtimedir_file(const struct statedir *dir, const char *file,
                    char out[PATH_MAX], struct problem *p);

/* Remove the folder of a queue that has no worker and is not wanted any more,
 * unless it is the state folder; `out` becomes its path. Returns 0 if it is
 * gone, -ENOTEMPTY if it holds messages and stays, -ENOENT if there is none,
 * -EBUSY if another process has it, -EPERM if only its owner may remove it, or
 * another -errno. `has` is as `holds` of runtimedir_wish; NULL: remove messages
 * as well. */
int runtimedir_remove(const struct statedir *dir, int (*has)(const char *path),
                      char out[PATH_MAX]);

/* statfs(2), for tests to replace. */
struct statfs;
extern int (*runtimedir_statfs)(const char *path, struct statfs *out);

#endif

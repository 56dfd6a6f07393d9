/* runtimedir.h - where the messages in flight of a queue are
 *
 * WHAT   Finds the runtime directory, which lies in memory, and the folder of a
 *        queue in it: custody and counters. A note in the queue's folder of the
 *        state directory says where that is, so a program that only looks needs
 *        the state directory alone, and a start by another rule finds what the
 *        last one left. docs/formats/custody.md has the two small files.
 * WHO    open, settle, close: the engine, which holds the lock of the state
 *        folder. runtimedir_file: any program, any thread.
 * OWNS   The lock of its folder, from open to close.
 * FAILS  A problem: 73 no such place, not to be trusted, or not writable; 78
 *        the note cannot be read.
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
#define RUNTIMEDIR_OWNER    "owner"   /* in the runtime folder */
#define RUNTIMEDIR_ID       17        /* 16 hex digits and NUL */

/* What became of custody since the last worker. */
enum runtimedir_past {
    RUNTIMEDIR_KEPT,   /* it is there, or nothing was in it */
    RUNTIMEDIR_REBOOT, /* the machine was restarted under a worker */
    RUNTIMEDIR_GONE,   /* somebody took it away in this run of the machine */
};

struct runtimedir {
    char folder[PATH_MAX]; /* custody and counters are here; an absolute path */
    char from[PATH_MAX];   /* its custody is to be carried over; "" none */
    char was[PATH_MAX];    /* where the last worker had them; "" not known */
    char strange[PATH_MAX]; /* a folder of that name with the messages of
                             * another state folder; "" none */
    enum runtimedir_past past;
    bool here;              /* the note names `folder` already */
    bool noted;             /* runtimedir_settle was there */
    bool on_disk;           /* allowed, and so it is */
    char id[RUNTIMEDIR_ID]; /* of the state folder, for ever */
    int lock;               /* of `folder`; -1: it is the state folder */
    bool made;              /* `folder` was not there */
    int (*holds)(const char *path); /* runtimedir_wish */
};

struct runtimedir_wish {
    const char *dir; /* --runtime-dir, or NULL */
    bool allow_disk; /* --allow-disk-custody */
    /* Whether a custody file has messages: YES, NO or -errno. */
    int (*holds)(const char *path);
};

/* `dir`, or else the first of these that lies in memory: $RUNTIME_DIRECTORY
 * (its first entry), /run/mqworker for root, $XDG_RUNTIME_DIR/mqworker,
 * /dev/shm/mqworker-UID. `*disk`: none does, and that is allowed; `out` is then
 * `dir`, or empty: the state folder. */
int runtimedir_root(char out[PATH_MAX], const struct runtimedir_wish *wish,
                    bool *disk, struct problem *p);

/* The folder of the queue of `dir`, made, checked and locked. A folder that
 * another state folder uses, or has left messages in, is passed over: NAME.2,
 * NAME.3, ... */
int runtimedir_open(struct runtimedir *out, const struct runtimedir_wish *wish,
                    const struct statedir *dir, struct problem *p);
/* The custody of `from` is complete in `folder`: note it, then remove `from`.
 * To be called before the first message is received in any case. */
int runtimedir_settle(struct runtimedir *r, const struct statedir *dir,
                      struct problem *p);
/* `orderly`: custody holds nothing. A folder that open made, and that has no
 * custody, is removed. */
void runtimedir_close(struct runtimedir *r, const struct statedir *dir,
                      bool orderly);
/* folder/file to `out`, checked if it exists, as statedir_path does. */
int runtimedir_path(const struct runtimedir *r, const char *file,
                    char out[PATH_MAX], struct problem *p);

/* For programs that only look: the path of a file of `dir`, in the folder that
 * its note names, or in the state folder itself, if it is there or there is no
 * note. A note that cannot be read: 73, or 77; one that is damaged: 78. */
int runtimedir_file(const struct statedir *dir, const char *file,
                    char out[PATH_MAX], struct problem *p);

/* The queue is not wanted any more, and no worker runs: remove its folder,
 * which `out` names, if that is not the state folder. 0 it is gone; -ENOTEMPTY
 * it holds messages, and stays; -ENOENT there is none; -EBUSY somebody has it;
 * -EPERM it is the owner's to remove, or another -errno. `has`: as holds of
 * runtimedir_wish. */
int runtimedir_remove(const struct statedir *dir, int (*has)(const char *path),
                      char out[PATH_MAX]);

/* Folders in a runtime directory with messages in flight of a state folder,
 * `state`, that is gone; or with a custody file that cannot be read. `holds`:
 * runtimedir_wish. */
typedef void (*runtimedir_stray_visit)(const char *custody, const char *state,
                                       void *arg);
void runtimedir_strays(const char *root, int (*holds)(const char *path),
                       runtimedir_stray_visit visit, void *arg);

/* statfs(2), for tests to replace. */
struct statfs;
extern int (*runtimedir_statfs)(const char *path, struct statfs *out);

#endif

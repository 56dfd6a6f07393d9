/* file_watch_inner.h - inside of file_watch.c, file_look.c, file_notices.c and
 * file_restore.c
 *
 * WHAT   The files that are watched; what is said of them; writing those again
 *        that were removed.
 * WHO    One thread at a time: the look's, or the engine's at the start and the
 *        end; file_watch_trouble: any thread.
 * OWNS   A descriptor of each file. O_PATH: closing it drops no lock that
 *        SQLite has on the file (fcntl(2)), and it is not what keeps the file
 *        alive.
 * FAILS  files_open: a problem. A file that cannot be written again is
 *        reported, and tried at the next look.
 */
#ifndef WORKER_FILES_FILE_WATCH_INNER_H
#define WORKER_FILES_FILE_WATCH_INNER_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "common/base/file.h"
#include "worker/files/file_watch.h"
#include "worker/loop/chore.h"
#include "worker/loop/loop.h"

/* The store first: its -wal and -shm are worth nothing without it. */
enum part {
    STORE,
    STORE_WAL,
    STORE_SHM,
    CUSTODY,
    PIDFILE,
    COUNTERS,
    NOTE,  /* of the state folder, where the runtime folder is */
    OWNER, /* of that, whose it is */
    ENDS,  /* of messages of the spool; there since it was on */
    PARTS
};

enum state {
    THERE,
    AWAY,    /* it has another name, or one that we cannot reach */
    TAKEN,   /* and another file has its name */
    REMOVED, /* no name leads to it: only the worker can bring it back */
};

struct file {
    char path[PATH_MAX]; /* constant after open */
    int fd;              /* O_PATH; -1: there is no such file to watch */
    struct stat id;      /* of fd */
    struct stat name;    /* what has the name, if state is TAKEN */
    enum state state;
};

/* c = constant after open   m = under mtx   the rest is the look's */
struct file_watch {
    struct file_watch_setup with; /* c */
    struct loop_source source;    /* c  inotify; fd -1: none */
    struct chore chore;           /* a look */
    struct file files[PARTS];
    const struct file *read_only; /* its file system takes no more writes */
    struct stat copy; /* a copy of the store that could not be opened */
    unsigned lost;    /* files that were not there at the last look */
    uint64_t calm_ns; /* nothing is written again before */
    unsigned told;    /* parts (bits) whose loss was told */
    bool told_error;  /* that one of them cannot be written again */
    bool told_ro;
    char ro_next[FILE_NEXT]; /* what to do about `read_only` */
    pthread_mutex_t mtx;
    struct file_trouble trouble; /* m */
};

/* ---- file_look.c ---- */

int files_open(struct file_watch *w, struct problem *p);
/* Look at each; how many are not there. */
unsigned files_look(struct file_watch *w);
/* The first from `first` to `last` that is not there; NULL: all are. */
const struct file *files_gone(const struct file_watch *w, enum part first,
                              enum part last);
/* The file that has the name now is the one to watch. */
void file_again(struct file *f);
/* No name leads to it, anywhere. */
bool file_unnamed(const struct file *f);

/* ---- file_notices.c ---- */

/* What keeps messages from being taken, for those who ask. */
void file_notices_publish(struct file_watch *w);
/* To the log, each change once. */
void file_notices_tell(struct file_watch *w);
/* It could not be written again; once, until something is back. */
void file_not_written(struct file_watch *w, const char *path,
                      const char *error);

/* ---- file_restore.c ---- */

/* All that is not there has lost its last name. */
bool files_may_restore(const struct file_watch *w);
/* Write what has no name. */
void files_restore(struct file_watch *w);
/* The same at the end, or save the store beside its name. */
void files_restore_last(struct file_watch *w);

#endif

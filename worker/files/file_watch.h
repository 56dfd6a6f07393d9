/* file_watch.h - files of a running worker that are removed, moved or replaced
 *
 * WHAT   Notices that a file of the worker, or a folder above it, was removed,
 *        moved or replaced, or that a file system became read-only. While the
 *        store or custody is affected, the worker takes no messages (HOLD_ bits
 *        of the gate). After a move or replacement, the worker waits until the
 *        file is back. After a removal, the worker restarts (`again`). If the
 *        store was removed, it is written under its name again before that.
 *        inotify reports changes in the folders immediately, but not a mount or
 *        unmount. So while messages are taken, the files are also checked every
 *        second (less often if millions of rows wait). An idle worker has no
 *        wake-ups from this; without inotify, it has one a minute.
 * WHO    The engine calls open, start, last and close on its thread. status.c
 *        calls soon on a pool thread; status.c and orders.c call trouble in the
 *        loop. The checks run on a pool thread.
 * OWNS   An O_PATH descriptor of each file; the descriptor of inotify.
 * FAILS  file_watch_open: a problem.
 */
#ifndef WORKER_FILES_FILE_WATCH_H
#define WORKER_FILES_FILE_WATCH_H

#include <limits.h>

#include "common/base/problem.h"

#define FILE_NEXT (PATH_MAX + 256)

struct flow;
struct pause; /* halt.h; only handed to `there` */
struct pid_file;
struct runtimedir;
struct source_mq;
struct statedir;
struct timer;
struct file_watch; /* opaque; body in file_watch.c */

/* The parts that file_watch works on; all of them outlive it. */
struct file_watch_setup {
    struct flow *flow;
    struct source_mq *mq;
    const struct statedir *dir;
    const struct runtimedir *runtime;
    struct pid_file **lock; /* replaced if the state folder is made again */
    /* Called on a pool thread after a check which found that all files are in
     * place, or will be after the restart. */
    void (*there)(struct pause *pause);
    struct pause *pause;
    /* Timer that is started, maybe several times, after a file was removed: the
     * worker has to stop and start again. */
    struct timer *again;
};

/* The file that keeps messages from being taken. */
struct file_trouble {
    char text[100];       /* "store.db was removed"; "": all is well */
    char path[PATH_MAX];  /* of that file */
    char next[FILE_NEXT]; /* advice for the operator */
};

/* Call this after all files were opened. */
int file_watch_open(struct file_watch **out,
                    const struct file_watch_setup *setup, struct problem *p);
/* Check all files; no message is taken before that. */
void file_watch_start(struct file_watch *w);
/* Check all files soon, because messages are being processed. NULL-safe. */
void file_watch_soon(struct file_watch *w);
/* Return the file that kept messages from being taken at the last check. */
void file_watch_trouble(struct file_watch *w, struct file_trouble *out);
/* Check the files at the end of the worker, when no other thread is left, and
 * write the store under its name again, or under another one. May be called
 * several times. */
void file_watch_last(struct file_watch *w);
void file_watch_close(struct file_watch **watch); /* NULL-safe; sets NULL */

#endif

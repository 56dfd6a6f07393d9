/* file_watch.h - the files of a worker that runs stay where they are
 *
 * WHAT   Notices that the store, custody, the pidfile or the counters, or a
 *        folder above them, was removed, moved or replaced, or that their file
 *        system became read-only, and stops the taking of messages (HOLD_
 *        bits). A file that was only moved is waited for; one that has no name
 *        any more is written again from the one that the worker has open.
 *        inotify on the folders tells at once; a mount or unmount, which that
 *        does not see, is looked for each second while messages are taken, less
 *        often where millions of rows wait. Costs an idle worker nothing, or
 *        where inotify cannot be had one look a minute.
 * WHO    open, start, last, close: the engine. soon, trouble: any thread.
 * OWNS   A descriptor of each file (O_PATH), and that of inotify.
 * FAILS  open: a problem.
 */
#ifndef WORKER_FILES_FILE_WATCH_H
#define WORKER_FILES_FILE_WATCH_H

#include <limits.h>

#include "common/base/problem.h"

#define FILE_NEXT (PATH_MAX + 256)

struct flow;
struct pid_file;
struct runtimedir;
struct statedir;
struct file_watch; /* opaque; body in file_watch.c */

/* What it watches, and puts back; all of it outlives it. */
struct file_watch_setup {
    struct flow *flow;
    struct source_mq *mq;
    const struct statedir *dir;
    struct runtimedir *runtime;
    struct pid_file *lock;
    void (*there)(void *arg); /* a look found all of it; on a pool thread */
    void *arg;
};

/* Why nothing is taken. */
struct file_trouble {
    char text[100];      /* "store.db was removed"; "": no file is the reason */
    char path[PATH_MAX]; /* of it */
    char next[FILE_NEXT]; /* what to do */
};

/* After all files are open. */
int file_watch_open(struct file_watch **out,
                    const struct file_watch_setup *setup, struct problem *p);
/* The first look, before anything is taken. */
void file_watch_start(struct file_watch *w);
/* Work goes on: look again. NULL-safe. */
void file_watch_soon(struct file_watch *w);
/* Which file keeps messages from being taken, as of the last look. */
void file_watch_trouble(struct file_watch *w, struct file_trouble *out);
/* At the end, with no thread left but this one: write again what is removed, or
 * the store beside its name. */
void file_watch_last(struct file_watch *w);
void file_watch_close(struct file_watch **watch); /* NULL-safe; sets NULL */

#endif

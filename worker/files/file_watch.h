/* file_watch.h - files of a running worker that are removed, moved or replaced
 *
 * WHAT   Notices that a file of the worker, or a folder above it, was removed,
 *        moved or replaced, or that a file system became read-only. While the
 *        store or custody is concerned, no message is taken (HOLD_ bits). A
 *        file that was moved or replaced is waited for. After a removal the
 *        worker starts again: first the store gets its name back, if it lost
 *        it, then `again` is started.
 *        inotify reports changes in the folders at once. It does not report a
 *        mount or unmount: while messages are taken, the files are checked
 *        every second (less often if millions of rows wait). An idle worker has
 *        no wake-ups from this; without inotify, one a minute.
 * WHO    open, start, last, close: the engine. soon, trouble: any thread.
 * OWNS   An O_PATH descriptor of each file, and the one of inotify.
 * FAILS  open: a problem.
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
    /* All files are in place, or will be after `again`. Called on a pool
     * thread. */
    void (*there)(struct pause *pause);
    struct pause *pause;
    /* Started when the worker has to stop and start again, because a file was
     * removed; perhaps several times. */
    struct timer *again;
};

/* The reason why nothing is taken. */
struct file_trouble {
    char text[100];      /* "store.db was removed"; "": no file is the reason */
    char path[PATH_MAX]; /* of that file */
    char next[FILE_NEXT]; /* what to do */
};

/* Call this after all files were opened. */
int file_watch_open(struct file_watch **out,
                    const struct file_watch_setup *setup, struct problem *p);
/* Check all files before the first message is taken. */
void file_watch_start(struct file_watch *w);
/* Check all files soon, because messages are being processed. NULL-safe. */
void file_watch_soon(struct file_watch *w);
/* Return the file that kept messages from being taken at the last check. */
void file_watch_trouble(struct file_watch *w, struct file_trouble *out);
/* Check again at the end of the worker, and give the store its name back, or
 * another name. No other thread is left. May be called again. */
void file_watch_last(struct file_watch *w);
void file_watch_close(struct file_watch **watch); /* NULL-safe; sets NULL */

#endif

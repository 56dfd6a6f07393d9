/* notify.h - the service manager: what it hands over, and what it is told
 *
 * WHAT   sd_notify(3): READY, STATUS (the title), STOPPING, and WATCHDOG out of
 *        the peeker, if $WATCHDOG_USEC asks for it. sd_listen_fds(3): a queue
 *        that was opened for us. Part of the program, not of the library.
 * WHO    main, in this order: init, queue, begin, end. Told: the peeker.
 * OWNS   A timer and a socket, while the worker runs.
 * FAILS  queue: a problem with status 64. A manager that does not listen is no
 *        failure; it is logged when the worker begins.
 */
#ifndef WORKER_NOTIFY_H
#define WORKER_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/base/problem.h"
#include "worker/operate/status.h"
#include "worker/loop/timers.h"

struct engine;
struct settings;

struct notify {
    struct status_reader reader;
    struct engine *engine;
    struct timer watchdog;
    struct sockaddr_un to; /* where the manager listens */
    socklen_t to_size;     /* 0: nowhere */
    int fd;                /* of our end; -1: none */
    int inherited;         /* descriptors that were handed over, from 3 on */
    uint64_t feed_ns;      /* from one WATCHDOG=1 to the next; 0: none wanted */
    const char *socket;    /* $NOTIFY_SOCKET */
    bool asked;            /* there is a manager that wants to be told */
    bool stopping;         /* it was said */
};

/* What the environment says, which it does not from then on: no handler sees
 * it. */
void notify_init(struct notify *n);
/* set->passed_fd is that of the queue among the inherited; the others are
 * closed. */
int notify_queue(const struct notify *n, struct settings *set,
                 struct problem *p);

/* It is ready. Before engine_run, which tells the rest. */
void notify_begin(struct notify *n, struct engine *e);
/* It takes no more. After engine_run. `restarts`: it will be ready again. */
void notify_end(struct notify *n, bool restarts);
/* Ask the manager for ten more seconds, because the end waits until messages in
 * flight can be written. After notify_end, about once a second. */
void notify_wait(const struct notify *n);
/* Put into the environment what notify_init took out, with `queue` (-1: none)
 * as the only descriptor that is handed over, for a program that this process
 * is about to execute. */
void notify_pass(const struct notify *n, int queue);

#endif

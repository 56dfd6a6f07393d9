/* notify.h - talks to the service manager that started the program
 *
 * WHAT   sd_notify(3): READY, STATUS (the title), STOPPING, and WATCHDOG out of
 *        the peeker, if $WATCHDOG_USEC asks for it. sd_listen_fds(3): a queue
 *        that was opened for us. Part of the program, not of the library.
 * WHO    main, in this order: init, queue, begin, end; and pass, before it
 *        executes the program again. Between begin and end, the peeker sends
 *        the title and feeds the watchdog.
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

struct settings;

struct notify {
    struct status_reader reader;
    struct engine *engine;
    struct timer watchdog;
    struct sockaddr_un to; /* the manager's socket */
    socklen_t to_size;     /* 0: none */
    int fd;                /* our socket; -1: none */
    int inherited;         /* number of descriptors handed over, from 3 on */
    uint64_t feed_ns;      /* from one WATCHDOG=1 to the next; 0: no watchdog */
    const char *socket;    /* $NOTIFY_SOCKET; NULL or "": not set, or
                            * (NULL) no memory */
    bool stopping;         /* STOPPING=1 was sent */
};

/* Read the manager's variables, and remove them from the environment, so that
 * no handler sees them. */
void notify_init(struct notify *n);
/* Set set->passed_fd to the inherited descriptor of the queue, and close the
 * others. */
int notify_queue(const struct notify *n, struct settings *set,
                 struct problem *p);

/* Tell the manager that the worker is ready. Before engine_run, which sends the
 * rest; engine_close asks the manager for more time if it needs that. */
void notify_begin(struct notify *n, struct engine *e);
/* Tell the manager that the worker stops, unless it `restarts`. After
 * engine_run. */
void notify_end(struct notify *n, bool restarts);
/* Put into the environment what notify_init took out, with `queue` (-1: none)
 * as the only descriptor that is handed over, for a program that this process
 * is about to execute. */
void notify_pass(const struct notify *n, int queue);

#endif

/* notify.h - talks to the service manager that started the program
 *
 * WHAT   sd_notify(3): READY, STATUS (the title), STOPPING, and WATCHDOG from
 *        the peeker, if $WATCHDOG_USEC is set. sd_listen_fds(3): a queue that
 *        was opened for us. Part of the program, not of the library.
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

/* Tell the manager that the worker is ready. Called before engine_run, which
 * sends the titles and feeds the watchdog; the engine asks the manager for more
 * time if it needs that to stop. */
void notify_begin(struct notify *n, struct engine *e);
/* Tell the manager that the worker is stopping, unless it `restarts`. Called
 * after engine_run. */
void notify_end(struct notify *n, bool restarts);
/* Before the program is executed again: put back the variables that notify_init
 * removed, and pass on `queue` (-1: none) as the only descriptor. */
void notify_pass(const struct notify *n, int queue);

#endif

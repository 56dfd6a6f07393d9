/* loop.h - the event loop: descriptors and deadlines, on one thread
 *
 * WHAT   Waits in epoll for descriptors, the timers and a wake-up, and calls
 *        what was registered for each.
 * WHO    open, run, close: the engine's thread. watch, wake: any thread. All
 *        callbacks: the thread in loop_run, with no lock of ours held. They
 *        must not block.
 * OWNS   The epoll set and an eventfd. A source is embedded in the caller's
 *        struct, which closes its descriptor.
 * FAILS  open, add, watch: -errno.
 */
#ifndef WORKER_LOOP_LOOP_H
#define WORKER_LOOP_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/loop/timers.h"

struct loop; /* opaque; body in loop.c */

/* A descriptor to wait for. */
struct loop_source {
    int fd;
    void (*ready)(struct loop_source *source);
    bool added; /* the loop's */
};

/* Asked and told between two waits, with `arg`. */
struct loop_hooks {
    bool (*finished)(void *arg); /* before each wait: loop_run returns */
    int (*wait_ms)(void *arg);   /* how long to wait at most; -1: no limit */
    void (*quiet)(void *arg);    /* the wait was limited, and nothing came */
    void (*round)(void *arg);    /* what came has been dealt with */
};

int loop_open(struct loop **out, struct timers *timers);
void loop_close(struct loop **loop); /* NULL-safe; sets NULL */
/* Call `ready` whenever one of `events` (epoll_ctl(2)) is there. */
int loop_add(struct loop *l, struct loop_source *source, uint32_t events);
/* Call `ready` once; watch it again for the next time. Also where the source
 * has another descriptor than before. */
int loop_watch(struct loop *l, struct loop_source *source, uint32_t events);
/* Make loop_run ask `finished`. Safe in a signal handler. */
void loop_wake(struct loop *l);
void loop_run(struct loop *l, const struct loop_hooks *hooks, void *arg);

#endif

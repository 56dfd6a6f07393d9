/* halt.h - how a worker is paused, and how it is stopped
 *
 * WHAT   A pause made by an order (mqctl) survives a restart of the worker: the
 *        pause is written to the state directory (common/state/pause_note.h)
 *        and is in force again at the next start. Pauses by a signal or by the
 *        program that embeds the library end with the process.
 *        To stop, the first signal lets running handlers finish within
 *        --grace. The handlers that are left then get SIGTERM, and SIGKILL
 *        after --kill-after. A second signal skips the rest of the grace.
 * WHO    orders.c and library.c, in the loop, and the engine on the same
 *        thread. pause_put_back: file_watch.c, on a pool thread.
 * OWNS   Timers, and the chore that saves a pause.
 * FAILS  Never: a failed write of the note is logged and repeated; the worker
 *        is paused nevertheless.
 */
#ifndef WORKER_OPERATE_HALT_H
#define WORKER_OPERATE_HALT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/folder.h"
#include "common/state/pause_note.h"
#include "worker/loop/chore.h"
#include "worker/loop/timers.h"

/* Origins of a pause; bits. The worker takes messages again when all bits are
 * cleared. */
enum pauser {
    PAUSER_SIGNAL = 1 << 0,  /* SIGUSR2 */
    PAUSER_PROGRAM = 1 << 1, /* mqw_pause */
    PAUSER_ORDER = 1 << 2,   /* the control socket */
    PAUSER_ANY = PAUSER_SIGNAL | PAUSER_PROGRAM | PAUSER_ORDER,
};

/* c = constant after init   l = in the loop only   m = under mtx
 * a = atomic */
struct pause {
    struct flow *flow;        /* c */
    char owner[FOLDER_USER];  /* c  name of the worker's own user */
    void (*saved)(void *arg); /* c  after a save, on a pool thread; or NULL */
    void *arg;                /* c */
    unsigned by;              /* l  enum pauser */
    uint64_t since_ns;        /* l  wall time of the last pause of any kind */
    uint64_t end_ns;    /* l  end of the order's pause, boot clock; 0: none */
    struct timer timer; /* timer for that end */
    struct chore chore; /* writes or removes the note */
    pthread_mutex_t mtx;
    struct pause_note note; /* m  the order's pause; since_ns 0: none */
    unsigned asked;         /* m  changes of `note` */
    atomic_uint tried;      /* a  value of `asked` at the last save */
    atomic_int err;         /* a  result of that save: 0 or -errno */
};

void pause_init(struct pause *p, struct flow *f);
/* Bring back the pause of an earlier worker, before this worker takes
 * messages. */
void pause_recall(struct pause *p);
/* Pause for `limit_ns`, or until pause_end if `limit_ns` is 0. `uid` is the
 * client's, for PAUSER_ORDER. */
void pause_begin(struct pause *p, enum pauser by, uint64_t limit_ns, uid_t uid);
/* End the pauses of these origins. Returns false if the worker was not
 * paused. */
bool pause_end(struct pause *p, unsigned by);
/* Keep the length of the pause after the clock was set or the machine was
 * suspended: compute the wall time of its end again. In the loop. */
void pause_clock_set(struct pause *p);
/* Write or remove the note again after the folder was replaced. */
void pause_put_back(struct pause *p);
/* Return false while the last change is being saved. Otherwise *err is the
 * result of the save: 0, or -errno if the change would be lost at a restart. */
bool pause_is_saved(struct pause *p, int *err);
/* Return the pause in force, for status; since_ns 0: none. */
void pause_now(struct pause *p, struct pause_note *out);

/* ---- stop ---- */

/* Used only in the loop. */
struct stop {
    struct flow *flow;
    struct timer timer;
    struct timer again; /* when it fires, the worker stops to be restarted */
    int signals;        /* number of orders to stop so far */
    bool drained;       /* an operator ordered a drain: do not restart */
    bool ending;        /* SIGTERM or SIGKILL was sent to handlers */
    void (*last)(void *arg);
    void *arg;
};

/* `last` writes what can be written and exits the process. It is called in
 * place of SIGKILL if handlers are a plugin's functions, and does not return.
 */
void stop_init(struct stop *s, struct flow *f, void (*last)(void *arg),
               void *arg);
/* Stop the worker as by this signal: SIGTERM, SIGINT, SIGQUIT; 0: SIGTERM. */
void stop_worker(struct stop *s, int signal);

#endif

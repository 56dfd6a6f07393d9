/* handler.h - handlers of messages: a table of operations
 *
 * WHAT   Each kind of handler (a process per message, a long-lived child, a C
 *        function, a queue to forward to) is a table of these calls. Each call
 *        of `run` is one delivery; a coprocess may have many open at once.
 * WHO    open and close: the engine. run: pool threads, several at once. A
 *        coprocess belongs to the pool thread that got it. stop: the peeker,
 *        while handlers run on other threads.
 * OWNS   Its processes.
 * FAILS  open: a problem. run never fails: a failure is an outcome.
 */
#ifndef WORKER_HANDLERS_HANDLER_H
#define WORKER_HANDLERS_HANDLER_H

#include "common/base/problem.h"
#include "worker/rules/delivery.h"
#include "worker/config/settings.h"
#include "worker/mqworker.h"

struct handler; /* each kind has its own body */

/* Arguments of open; the pointers outlive the handler. */
struct handler_setup {
    const struct settings *settings;
    uint64_t nonce; /* of the source; marks started processes */
    struct timers *timers;
    struct loop *loop;
    struct stderr_limit *stderr_limit;
};

/* The C function of an embedding program, or of a plugin. It cannot be killed:
 * after its time limit, or when the worker stops its handlers, mqw_cancelled
 * returns 1 to it. If a plugin's function runs on during a stop, the worker
 * takes its message away (seize) and exits. An embedded worker waits for it. */
struct inproc {
    mqw_handler *handle;
    /* NULL: nothing is called. */
    void (*settled)(const struct mqw_message *message, enum mqw_verdict verdict,
                    uint64_t took_ns, void *user);
    void (*fini)(void *user); /* at close; NULL: nothing to do */
    void *user;
    struct mqw_worker *worker; /* NULL: we are the program */
};

/* A durable verdict. The message is not lent any more, but its bytes stay for
 * the duration of the call. */
struct settlement {
    struct message *message;
    struct header_text group;
    enum mqw_verdict verdict;
    uint64_t took_ns; /* time of the handler; 0: it did not run */
};

/* Deliveries that are open at the same time: a long-lived child and the
 * messages that it was sent. The thread that got a coprocess calls ready, then
 * sends while there is room, then calls next until nothing is open. */
struct coprocess; /* the handler's own */
struct coprocess_ops {
    /* Get a coprocess, if possible one that was put back. NULL: no memory. */
    struct coprocess *(*get)(struct handler *h);
    /* Put back a coprocess with nothing open. */
    void (*put)(struct handler *h, struct coprocess *coprocess);
    /* With nothing open, make the coprocess ready for sending: start the child
     * if there is none, once the backoff since its last end is over (wake and
     * stop cut that short: -EINTR), and end a child that is to be replaced.
     * -errno: it cannot be started, and `out` says why (OUTCOME_NOT_STARTED).
     */
    int (*ready)(struct coprocess *coprocess, struct outcome *out);
    /* Return how many more deliveries it takes now; 0: its child is ending. */
    unsigned (*room)(const struct coprocess *coprocess);
    /* Deliver. `d` must stay until next has returned it. */
    void (*send)(struct coprocess *coprocess, struct delivery *d);
    /* With something open, wait for a delivery that ended; fills in `out`
     * except duration_ns. NULL: the coprocess was woken. */
    struct delivery *(*next)(struct coprocess *coprocess, struct outcome *out);
    /* Make next or ready return; if no thread is waiting in them, the next call
     * returns. Any thread. */
    void (*wake)(struct coprocess *coprocess);
};

struct handler_ops {
    const char *name;
    /* It runs in the worker's process: if it crashes, so does the worker. */
    bool within;
    /* Estimated time of a run until one has been measured, ns. */
    uint64_t guess_ns;
    /* Check the handler before a queue or a file is created, and refuse one
     * that cannot work; NULL: no check. Called by the thread of open. */
    int (*check)(const struct settings *set, struct problem *p);
    /* Put back into the environment what check has removed from it, because the
     * program is about to execute itself again. Called after check and before
     * close. NULL: check removes nothing. */
    void (*restore)(void);
    int (*open)(struct handler **out, const struct handler_setup *setup,
                struct problem *p);
    /* NULL: deliveries go to run, one at a time. Otherwise run is NULL. */
    const struct coprocess_ops *coprocesses;
    /* Deliver, and return when the handler has finished. */
    void (*run)(struct handler *h, struct delivery *d, struct outcome *out);
    /* Terminate all runs with this signal. From now on a run that ends without
     * success has OUTCOME_STOPPED. May be called again. After SIGKILL, all that
     * the handlers started is killed, too. NULL: runs end soon by themselves.
     */
    void (*stop)(struct handler *h, int signal);
    /* Terminate the run of the message with this id, as at its time limit,
     * unless the run has ended by itself. Its outcome is verdict_cancelled,
     * even if the handler still gives a verdict. May be called again. Returns
     * false if no run has the message. A long-lived child is only terminated if
     * it has the message open, which is not known on return. NULL: a run cannot
     * be terminated. Called by the peeker; never waits. */
    bool (*cancel)(struct handler *h, const char *id);
    /* Print the last line that the running message with this id has written to
     * stderr (error_text.h). Returns false if there is none. NULL: stderr is
     * not read. The peeker; never waits for long. */
    bool (*last_stderr)(struct handler *h, const char *id,
                        char text[ERROR_TEXT]);
    /* Take the messages away from runs that are calls in this process, because
     * it is about to exit: results of these calls are ignored, and the messages
     * will run again. Returns how many runs have been seized so far. NULL: stop
     * ends the runs, or the worker waits for them. Called by the peeker. */
    unsigned (*seize)(struct handler *h);
    void (*close)(struct handler **h); /* after the last run */
    /* Called after a durable verdict, on any thread of the pool, without a
     * lock; the next message of its group may already run. NULL: no call. */
    void (*settled)(struct handler *h, const struct settlement *s);
    /* Return, after open, true if settled has to be called. NULL: true. */
    bool (*wants_settled)(const struct handler *h);
};

extern const struct handler_ops handler_inproc; /* calls settings.inproc */
extern const struct handler_ops handler_plugin; /* loads settings.plugin */
/* --forward to a broker: `forward` of struct broker_engine. */
extern const struct handler_ops handler_exec, handler_stream, handler_forward;

#endif

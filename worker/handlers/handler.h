/* handler.h - what runs for a message: a table of operations
 *
 * WHAT   One kind of handler (a process per message, a long-lived child, a C
 *        function) behind a few calls: one delivery at a time by run, or many
 *        open at once by coprocesses.
 * WHO    open and close: the engine. run: pool threads, several at once. A
 *        coprocess belongs to the pool thread that got it. stop: the peeker,
 *        while others run.
 * OWNS   Its processes.
 * FAILS  open: a problem. run never fails: trouble is an outcome.
 */
#ifndef WORKER_HANDLERS_HANDLER_H
#define WORKER_HANDLERS_HANDLER_H

#include "common/base/problem.h"
#include "worker/rules/delivery.h"
#include "worker/config/settings.h"

struct handler; /* each kind has its own body */
struct loop;
struct stderr_limit;
struct timers;

/* What a handler is given; pointers outlive it. */
struct handler_setup {
    const struct settings *settings;
    uint64_t nonce; /* of the source, marks what is started */
    struct timers *timers;
    struct loop *loop;
    struct stderr_limit *stderr_limit;
};

/* A verdict that is durable. The message is not lent any more, but for this
 * call its bytes are where they were. */
struct settlement {
    struct message *message;
    struct header_text group;
    enum mqw_verdict verdict;
    uint64_t took_ns; /* the handler; 0: it did not run */
};

/* A place for deliveries that are open at the same time: a long-lived child and
 * what it was sent. The thread that got it calls ready, then sends while there
 * is room, then asks for what ended, until nothing is open. */
struct coprocess; /* the handler's own */
struct coprocess_ops {
    /* A coprocess, one that was put back rather than a new one. NULL: no
     * memory. */
    struct coprocess *(*get)(struct handler *h);
    /* Nothing is open. */
    void (*put)(struct handler *h, struct coprocess *coprocess);
    /* Nothing is open. Make it fit to be sent to: start the child if there is
     * none, once the time since its last end allows (wake and stop cut that
     * short: -EINTR), end one that is to be replaced. -errno: it cannot be
     * started, and `out` says why (OUTCOME_NOT_STARTED). */
    int (*ready)(struct coprocess *coprocess, struct outcome *out);
    /* How many more deliveries it takes now; 0 for one that ends. */
    unsigned (*room)(const struct coprocess *coprocess);
    /* Deliver. `d` stays where it is until it came back from next. */
    void (*send)(struct coprocess *coprocess, struct delivery *d);
    /* Wait for one that ended; `out` is filled but for duration_ns. NULL: the
     * coprocess was woken. Something is open. */
    struct delivery *(*next)(struct coprocess *coprocess, struct outcome *out);
    /* Make next (or ready) return; if nobody waits, the next one does. Any
     * thread. */
    void (*wake)(struct coprocess *coprocess);
};

struct handler_ops {
    const char *name;
    /* It runs in our process: when it crashes, so do we. */
    bool within;
    /* How long a run may take before one has been measured, ns. */
    uint64_t guess_ns;
    /* Check the handler before a queue or a file is created, and refuse one
     * that cannot work; NULL: no check. Called by the thread that becomes the
     * peeker, like open. */
    int (*check)(const struct settings *set, struct problem *p);
    /* Put back into the environment what check has removed from there, because
     * the program executes itself again; NULL: it removes nothing. After
     * check, before close. */
    void (*restore)(void);
    int (*open)(struct handler **out, const struct handler_setup *setup,
                struct problem *p);
    /* NULL: run, one at a time. Else run is NULL. */
    const struct coprocess_ops *coprocesses;
    /* Deliver; returns when the handler is done with it. */
    void (*run)(struct handler *h, struct delivery *d, struct outcome *out);
    /* End what runs with this signal. From now on a run that ends without
     * success ends as OUTCOME_STOPPED. May be called again. Nothing that a
     * handler started outlives its end by SIGKILL. */
    void (*stop)(struct handler *h, int signal);
    /* End what runs for the message of this id, as at its time limit, unless it
     * has ended by itself. Its outcome is verdict_cancelled, whatever it still
     * says. May be called again. False: nothing runs for it. True: it is being
     * ended, or, of a child with many open, is if it is found. NULL: a run
     * cannot be ended from outside. The peeker; never waits. */
    bool (*cancel)(struct handler *h, const char *id);
    /* Where runs are calls of our own process, and that is to end: nothing that
     * runs now will be heard of again, and its messages may have run. How
     * many were taken so, by all calls. NULL: runs end by stop, or are waited
     * for. The peeker. */
    unsigned (*seize)(struct handler *h);
    void (*close)(struct handler **h); /* nothing runs any more */
    /* NULL: nobody wants to know. On any thread of the pool, without a lock;
     * the group of the message goes on meanwhile. */
    void (*settled)(struct handler *h, const struct settlement *s);
    /* After open: whether settled is worth a call. NULL: it is, if it is there.
     */
    bool (*hears)(const struct handler *h);
};

/* --forward to a broker: `forward` of struct broker_engine. */
extern const struct handler_ops handler_exec, handler_stream, handler_forward;

#endif

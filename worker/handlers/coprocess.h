/* coprocess.h - a long-lived child and the messages that it has open
 *
 * WHAT   The coprocesses of handler.h: sends messages to a child, collects its
 *        answers, starts another child after its end, and returns the messages
 *        that it had open. docs/handlers.md says what a child may do,
 *        docs/design/machines.md how it ends.
 * WHO    The pool thread that got the coprocess from handler_stream.c. While
 *        the coprocess is idle, the peeker calls coprocess_look; at the end,
 *        the engine's thread calls leave and close. coprocess_wake, and
 *        child_signal on the child: any thread.
 * OWNS   The child. Borrows each delivery from send until next returns it.
 * FAILS  open: -errno. Everything else is an outcome.
 */
#ifndef WORKER_HANDLERS_COPROCESS_H
#define WORKER_HANDLERS_COPROCESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <bsd/sys/queue.h>

#include "common/base/ulid.h"
#include "worker/config/settings.h"
#include "worker/handlers/stream_line.h"
#include "worker/process/process.h"
#include "worker/rules/delivery.h"
#include "worker/process/environment.h"
#include "worker/process/stderr_tail.h"

/* Orders of an operator to cancel running messages. Only the thread of a
 * coprocess can tell which messages are open there, so each thread checks the
 * orders that are new to it whenever it is woken. The client repeats an order
 * that has had no effect.
 * m = under mtx */
#define STREAM_CANCELS 64 /* most messages that one request may name */
struct stream_cancels {
    pthread_mutex_t mtx;
    uint64_t count;                      /* m  orders so far */
    char ids[STREAM_CANCELS][ULID_TEXT]; /* m  a ring of the last orders */
};

/* Shared by all coprocesses of a handler.
 * c = constant after open   a = atomic */
struct stream {
    const struct settings *set;   /* c */
    struct environment_base base; /* c */
    struct command command;
    struct leftovers *leftovers;       /* c */
    struct stderr_limit *stderr_limit; /* c */
    _Atomic uint64_t marks;            /* a  mark of the next child */
    _Atomic uint64_t signal_ns;        /* a  time of the first signal */
    atomic_int signal;                 /* a  sent by stop; 0: none yet */
    atomic_bool unmeasured;            /* a  --max-rss is off */
    struct stream_cancels cancels;
    const pid_t *known; /* pids of all children, set at close; before: NULL */
    size_t known_count;
};
/* The marks of children begin here, far above those of messages (slot.h), plus
 * the us of the clock at the start, so that two workers have different ones. */
#define STREAM_MARKS (UINT64_C(1) << 62)

/* The states of a coprocess; coprocess_state.c has the table. */
enum coprocess_state {
    COPROCESS_NOWHERE,     /* an empty cell of the table */
    COPROCESS_EMPTY,       /* no child; one may be started */
    COPROCESS_BACKOFF,     /* no child until the backoff is over */
    COPROCESS_RUNS,        /* the child takes messages */
    COPROCESS_RETIRING,    /* --max-requests or --max-rss is reached */
    COPROCESS_CLOSED,      /* the child closed a pipe, and may be exiting */
    COPROCESS_DRAINING,    /* the child saw the end of its input */
    COPROCESS_TERMINATING, /* the child got SIGTERM */
    COPROCESS_KILLED,      /* the child got SIGKILL */
    COPROCESS_ZOMBIE,      /* exited; its output may not have been read */
    COPROCESS_STATES,
};
enum coprocess_event {
    COPROCESS_STARTED, /* a child was started */
    COPROCESS_IS_FULL, /* the child must get no more messages */
    COPROCESS_SHUTS,   /* the child closed its input or output */
    COPROCESS_LEAVE,   /* close the child's input */
    COPROCESS_END,     /* terminate the child now */
    COPROCESS_DUE,     /* the time of the state is over */
    COPROCESS_EXIT,    /* the child exited */
    COPROCESS_REAPED,  /* its status was collected, and no process is left */
    COPROCESS_EVENTS,
};

/* A message sent to the child, at least into the output buffer. */
struct open_message {
    TAILQ_ENTRY(open_message) link;
    struct delivery *d;
    uint64_t at;          /* bytes that were sent to the child before it */
    uint64_t limit_ns;    /* UINT64_MAX: none */
    uint64_t deadline_ns; /* monotonic; UINT64_MAX: none */
    bool late;            /* the deadline passed without an answer */
    bool cancelled;       /* by an operator: its child is terminated */
    bool heard;           /* an answer came after `late` or `cancelled` */
};
/* `at` of a message that was not sent, because there was no memory. */
#define OPEN_NEVER UINT64_MAX

/* Bytes for the child that the pipe has not taken yet. */
struct coprocess_output {
    char *bytes;
    size_t room, begin, end;
    uint64_t written; /* bytes that the pipe has taken so far */
    bool watched;     /* for room in the pipe */
};

/* Bytes from the child that have not been parsed yet. */
struct coprocess_input {
    size_t begin, end;
    char bytes[2 * STREAM_ANSWER];
};

TAILQ_HEAD(open_list, open_message);

/* c = constant after open
 * Everything else belongs to the thread that has the coprocess. */
struct coprocess {
    struct stream *stream; /* c */
    int epoll, waker;      /* c */
    enum coprocess_state state;
    uint64_t until_ns; /* end of the state, monotonic; UINT64_MAX: none */
    struct child child;
    struct stderr_tail tail; /* the child's stderr */
    struct coprocess_output output;
    struct coprocess_input input;
    struct open_message *messages; /* c  the most that may be open */
    struct open_list open;         /* in the order they were sent */
    struct open_list spare;
    unsigned count;   /* messages in `open` */
    unsigned limited; /* messages in `open` with a deadline */
    uint64_t seen_ns; /* all output up to this time has been read */
    bool woken;
    bool ordered;         /* woken: there may be orders to apply */
    uint64_t cancel_seen; /* orders of the stream seen so far */
    /* ---- this child ---- */
    uint64_t sent, answered;
    uint64_t rss_next_ns; /* time of the next check of its memory */
    uint64_t kill_at_ns;  /* time of SIGKILL for its remaining processes */
    const char *why; /* the worker ends the child for this reason; or NULL */
    bool recycled;   /* the end is planned: another child is to replace it */
    char shut[32];   /* the pipe that it closed; "": none */
    /* ---- the last child that ended ---- */
    enum outcome_kind kind; /* of the messages that it had open */
    char cause[OUTCOME_ERROR];
    unsigned failures;               /* bad ends in a row, for the backoff */
    struct stream_slot *stream_slot; /* handler_stream.c's */
};

int coprocess_open(struct coprocess **out, struct stream *stream);
/* After coprocess_leave: wait until the child has ended, collect its status,
 * terminate its other processes, and free everything. NULL-safe; sets NULL. */
void coprocess_close(struct coprocess **coprocess);

/* The operations of handler.h. */
int coprocess_ready(struct coprocess *l, struct outcome *out);
unsigned coprocess_room(const struct coprocess *l);
void coprocess_send(struct coprocess *l, struct delivery *d);
struct delivery *coprocess_next(struct coprocess *l, struct outcome *out);
void coprocess_wake(struct coprocess *l);

/* For a coprocess without an open message: */

/* Log the stderr of a coprocess that no work item has, and collect the status
 * of a child that has ended by itself. Does not wait. Returns false if nothing
 * more can happen before the coprocess is used again. */
bool coprocess_look(struct coprocess *l);
/* Close the child's input. */
void coprocess_leave(struct coprocess *l);

/* Remove a descriptor of the child from the epoll set, and close it. */
void coprocess_drop_fd(struct coprocess *l, int *fd);
/* Drop the pending output: the child gets no more. */
void coprocess_unfeed(struct coprocess *l);

/* ---- states: coprocess_state.c ---- */

/* Go to the state to which the event leads. */
void coprocess_step(struct coprocess *l, enum coprocess_event event);
/* Return true if messages go to the child. */
bool coprocess_feeds(const struct coprocess *l);
/* Return true if there is a child that has not ended. */
bool coprocess_lives(const struct coprocess *l);
/* Return true if there is such a child and the worker is not ending it. */
bool coprocess_works(const struct coprocess *l);
/* Send SIGTERM to the child's processes, and set the time of SIGKILL. */
void coprocess_term(struct coprocess *l);
/* Return true if the worker is ending its handlers. */
static inline bool coprocess_stops(const struct coprocess *l)
{
    return atomic_load_explicit(&l->stream->signal, memory_order_acquire) != 0;
}

#endif

/* coprocess.h - a long-lived child and the messages that it has open
 *
 * WHAT   The coprocesses of handler.h: sends messages to a child, collects its
 *        answers, starts it again when it has ended, and says what became of
 *        the messages that it had open. docs/handlers.md has what a child may
 *        do, docs/design/machines.md how it ends.
 * WHO    One thread at a time. coprocess_wake and coprocess_signal: any thread.
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
#include "worker/handlers/stream_line.h"
#include "worker/process/child.h"
#include "worker/process/process.h"
#include "worker/rules/delivery.h"
#include "worker/process/environment.h"
#include "worker/process/stderr_tail.h"
#include "worker/config/settings.h"

struct leftovers;

/* Orders of an operator to end what a message runs in. Which coprocess has it,
 * only the threads of the coprocesses know: each looks at what is new since its
 * last look, as often as it is woken. An order that nobody found is given again
 * by the thread that wants it still.
 * m = under mtx */
#define STREAM_CANCELS 64 /* as many as one request may have */
struct stream_cancels {
    pthread_mutex_t mtx;
    uint64_t count;                      /* m  ever given */
    char ids[STREAM_CANCELS][ULID_TEXT]; /* m  the last of them, by number */
};

/* What all coprocesses of a handler share. c = constant after open   a = atomic
 *  */
struct stream {
    const struct settings *set;   /* c */
    struct environment_base base; /* c */
    struct command command;
    struct leftovers *leftovers;       /* c */
    struct stderr_limit *stderr_limit; /* c */
    _Atomic uint64_t marks;            /* a  the next child's; never twice */
    _Atomic uint64_t signal_ns;        /* a  when the first was sent */
    atomic_int signal;                 /* a  sent by stop; 0: none yet */
    atomic_bool unmeasured;            /* a  --max-rss is off */
    struct stream_cancels cancels;
    const pid_t *ended; /* at close: all children, none reaped yet */
    size_t ended_count;
};
/* Where the marks of children begin, plus the us of the clock at the start, as
 * those of an earlier worker are not ours: far above those of messages
 * (slot.h). */
#define STREAM_MARKS (UINT64_C(1) << 62)

/* What a coprocess is in; coprocess_state.c has the table. */
enum coprocess_state {
    COPROCESS_NOWHERE,     /* an empty cell of the table */
    COPROCESS_EMPTY,       /* no child; one may be started */
    COPROCESS_BACKOFF,     /* no child, until its backoff is over */
    COPROCESS_RUNS,        /* a child that takes messages */
    COPROCESS_RETIRING,    /* had its messages, or has grown: takes no more */
    COPROCESS_CLOSED,      /* one that closed a pipe, and may be about to end */
    COPROCESS_DRAINING,    /* one that saw the end of its input */
    COPROCESS_TERMINATING, /* one that got SIGTERM */
    COPROCESS_KILLED,      /* one that got SIGKILL */
    COPROCESS_ZOMBIE,      /* ended; its last words may not have been read */
    COPROCESS_STATES,
};
enum coprocess_event {
    COPROCESS_STARTED, /* a child */
    COPROCESS_IS_FULL, /* it must get no more messages */
    COPROCESS_SHUTS,   /* it closed its input or output */
    COPROCESS_LEAVE,   /* its input is to end */
    COPROCESS_END,     /* it is to end, now */
    COPROCESS_DUE,     /* the time of its state is over */
    COPROCESS_EXIT,    /* it has ended */
    COPROCESS_REAPED,  /* its status was taken, and nothing of it is left */
    COPROCESS_EVENTS,
};

/* A message that the child has, or part of it, or will have. */
struct open_message {
    TAILQ_ENTRY(open_message) link;
    struct delivery *d;
    uint64_t at;          /* of all bytes for this child, its first */
    uint64_t limit_ns;    /* UINT64_MAX: none */
    uint64_t deadline_ns; /* monotonic; UINT64_MAX: none */
    bool late;            /* which passed without an answer */
    bool cancelled;       /* an operator has its child ended */
    bool heard;           /* its answer came after that */
};
#define OPEN_NEVER UINT64_MAX /* `at` of one that there was no memory for */

/* Bytes for the child that it did not take yet. */
struct coprocess_output {
    char *bytes;
    size_t room, begin, end;
    uint64_t written; /* all that it took */
    bool watched;     /* for room in the pipe */
};

/* Bytes of the child that were not read as answers yet. */
struct coprocess_input {
    size_t begin, end;
    char bytes[2 * STREAM_ANSWER];
};

TAILQ_HEAD(open_list, open_message);

struct stream_slot; /* handler_stream.c */

/* c = constant after open
 * Everything else belongs to the thread that has the coprocess. */
struct coprocess {
    struct stream *stream; /* c */
    int epoll, waker;      /* c */
    enum coprocess_state state;
    uint64_t until_ns; /* of the state, monotonic; UINT64_MAX: for ever */
    struct child child;
    struct stderr_tail tail; /* its stderr */
    struct coprocess_output output;
    struct coprocess_input input;
    struct open_message *messages; /* c  as many as may be open */
    struct open_list open;         /* in the order they were sent */
    struct open_list spare;
    unsigned count;   /* of open */
    unsigned limited; /* of these, those with a deadline */
    uint64_t seen_ns; /* what it answered before that has been read */
    bool woken;
    bool ordered;         /* woken: there may be orders to look at */
    uint64_t cancel_seen; /* of the stream's orders */
    /* Of this child. */
    uint64_t sent, answered;
    uint64_t rss_next_ns; /* when its memory is to be looked at again */
    uint64_t kill_at_ns;  /* of what is left of it */
    const char *why;      /* we end it; NULL: we do not */
    bool recycled;        /* it is to make room for another one */
    char shut[32];        /* what it closed; "": nothing */
    /* Of the last one that ended. */
    enum outcome_kind kind; /* of what it had open */
    char cause[OUTCOME_ERROR];
    unsigned failures; /* children in a row that ended so, for the backoff */
    /* Of the handler (handler_stream.c). */
    struct stream_slot *stream_slot;
};

int coprocess_open(struct coprocess **out, struct stream *stream);
/* It has no child any more. */
void coprocess_close(struct coprocess **coprocess); /* NULL-safe; sets NULL */

/* As the operations of handler.h. */
int coprocess_ready(struct coprocess *l, struct outcome *out);
unsigned coprocess_room(const struct coprocess *l);
void coprocess_send(struct coprocess *l, struct delivery *d);
struct delivery *coprocess_next(struct coprocess *l, struct outcome *out);
void coprocess_wake(struct coprocess *l);

/* Nothing is open: orders to cancel that were given until now are for
 * others. */
void coprocess_cancels_forget(struct coprocess *l);
/* To its child. */
void coprocess_signal(struct coprocess *l, int sig);
/* Nothing is open, and no work item has it until it is got again: look at what
 * was read with the last answer. False as coprocess_look. */
bool coprocess_rest(struct coprocess *l);
/* Readable while there is something that coprocess_look would see. */
int coprocess_fd(const struct coprocess *l);
/* Nothing is open and nobody has it: log what its child wrote, take its status
 * if it has ended by itself. Does not wait. False: there is nothing more to see
 * before it is used again. */
bool coprocess_look(struct coprocess *l);
/* Nothing is open: tell its child that there will be no more. */
void coprocess_leave(struct coprocess *l);
/* ... and wait until it has ended: its pid, 0 if there was none. */
pid_t coprocess_await(struct coprocess *l);
/* ... and leave nothing of it. */
void coprocess_finish(struct coprocess *l);

/* Before a descriptor of the child is closed. */
void coprocess_unwatch(struct coprocess *l, int fd);
/* It gets no more: drop what is pending. */
void coprocess_unfeed(struct coprocess *l);

/* ---- what it is in: coprocess_state.c ---- */

/* The event takes the coprocess to its next state. */
void coprocess_step(struct coprocess *l, enum coprocess_event event);
/* Whether messages go to the child. */
bool coprocess_feeds(const struct coprocess *l);
/* Whether there is a child that has not ended. */
bool coprocess_lives(const struct coprocess *l);
/* ... and that nobody has ended yet. */
bool coprocess_works(const struct coprocess *l);
/* SIGTERM to what is left of it, and when SIGKILL follows. */
void coprocess_term(struct coprocess *l);
/* Whether the worker ends its handlers. */
static inline bool coprocess_stops(const struct coprocess *l)
{
    return atomic_load_explicit(&l->stream->signal, memory_order_acquire) != 0;
}

#endif

/* coprocess_inner.h - inside of a coprocess: coprocess.c, coprocess_io.c,
 * coprocess_end.c, coprocess_cancel.c, coprocess_state.c, coprocess_pipe.c;
 * each calls those after it
 *
 * WHAT   The body of a coprocess, and the steps that its files share.
 * WHO    The thread that has the coprocess.
 * OWNS   See coprocess.h.
 * FAILS  As each says.
 */
#ifndef WORKER_HANDLERS_COPROCESS_INNER_H
#define WORKER_HANDLERS_COPROCESS_INNER_H

#include <bsd/sys/queue.h>

#include "worker/process/child.h"
#include "worker/handlers/coprocess.h"
#include "worker/handlers/stream_line.h"
#include "worker/process/stderr_tail.h"

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

/* ---- coprocess_pipe.c ---- */

/* What an event of the epoll set is of. */
enum {
    COPROCESS_OF_OUT,
    COPROCESS_OF_ERR,
    COPROCESS_OF_IN,
    COPROCESS_OF_END,
    COPROCESS_OF_WAKER
};

/* Its stderr; a line names the message if only one can be meant. */
struct stderr_tail *coprocess_tail(struct coprocess *l);
/* Before a descriptor of the child is closed. */
void coprocess_unwatch(struct coprocess *l, int fd);
void coprocess_unwatch_all(struct coprocess *l);
/* Head, body and newline to the output; -ENOMEM. */
int coprocess_append(struct coprocess *l, struct delivery *d);
/* It gets no more: drop what is pending. */
void coprocess_unfeed(struct coprocess *l);
/* The descriptors of a child that was started; that of the coprocess. */
int coprocess_watch(struct coprocess *l);
int coprocess_watch_waker(struct coprocess *l);
/* Be told of room in the child's input, or not. */
void coprocess_watch_input(struct coprocess *l, bool on);

/* ---- coprocess_state.c ---- */

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

/* ---- coprocess_cancel.c ---- */

/* Orders that were given since the last look: what is open here, and cancelled
 * by them, ends with its child. */
void coprocess_cancels(struct coprocess *l);
/* Nothing is open: those that were given until now are for others. */
void coprocess_cancels_forget(struct coprocess *l);

/* ---- coprocess_io.c ---- */

/* Wait for one event at most until the state's time or a deadline is over, and
 * deal with it; `wait`: or do not wait. All answers that are in `input` must
 * have been read. */
void coprocess_poll_once(struct coprocess *l, bool wait);
/* More of what the child wrote; false: there is none now. */
bool coprocess_read(struct coprocess *l);
/* The next line, without its newline; false: none is complete. */
bool coprocess_line(struct coprocess *l, struct header_text *line);

/* ---- coprocess_end.c ---- */

/* It broke the rules: log what it wrote, hear no more of it, and end it. */
void coprocess_fault(struct coprocess *l, const char *what,
                     const struct header_text *line);
/* COPROCESS_ZOMBIE, and its last words were read: leave nothing of it, take its
 * status, decide about what it had open. */
void coprocess_reap(struct coprocess *l);
/* The next message that ended without an answer; NULL: there is none. */
struct delivery *coprocess_lost(struct coprocess *l, struct outcome *out);
/* It is no longer open; give it back. */
struct delivery *coprocess_take_out(struct coprocess *l,
                                    struct open_message *m);

#endif

/* lane_inner.h - inside of a lane: lane.c, lane_io.c, lane_end.c,
 * lane_state.c, lane_pipe.c; each calls those after it
 *
 * WHAT   The body of a lane, and the steps that its files share.
 * WHO    The thread that has the lane.
 * OWNS   See lane.h.
 * FAILS  As each says.
 */
#ifndef WORKER_HANDLERS_LANE_INNER_H
#define WORKER_HANDLERS_LANE_INNER_H

#include <bsd/sys/queue.h>

#include "worker/process/child.h"
#include "worker/handlers/lane.h"
#include "worker/handlers/stream_line.h"
#include "worker/process/tail.h"

/* What a lane is in; lane_state.c has the table. */
enum lane_state {
    LANE_NOWHERE, /* an empty cell of the table */
    LANE_EMPTY,   /* no child; one may be started */
    LANE_RESTS,   /* no child; one may be started when its backoff is over */
    LANE_RUNS,    /* a child that takes messages */
    LANE_SPENT,   /* one that had its messages, or has grown: takes no more */
    LANE_CLOSED,  /* one that closed a pipe, and may be about to end */
    LANE_LEAVES,  /* one that saw the end of its input */
    LANE_TERMED,  /* one that got SIGTERM */
    LANE_KILLED,  /* one that got SIGKILL */
    LANE_ENDED,   /* a zombie, whose last words may not have been read yet */
    LANE_STATES,
};
enum lane_event {
    LANE_STARTED, /* a child */
    LANE_IS_FULL, /* it must get no more messages */
    LANE_SHUTS,   /* it closed its input or output */
    LANE_LEAVE,   /* its input is to end */
    LANE_END,     /* it is to end, now */
    LANE_DUE,     /* the time of its state is over */
    LANE_EXIT,    /* it has ended */
    LANE_BURIED,  /* its status was taken, and nothing of it is left */
    LANE_EVENTS,
};

/* A message that the child has, or part of it, or will have. */
struct open_message {
    TAILQ_ENTRY(open_message) link;
    struct delivery *d;
    uint64_t at;          /* of all bytes for this child, its first */
    uint64_t limit_ns;    /* UINT64_MAX: none */
    uint64_t deadline_ns; /* monotonic; UINT64_MAX: none */
    bool late;            /* which passed without an answer */
    bool heard;           /* its answer came after that */
};
#define OPEN_NEVER UINT64_MAX /* `at` of one that there was no memory for */

/* Bytes for the child that it did not take yet. */
struct lane_output {
    char *bytes;
    size_t room, begin, end;
    uint64_t written; /* all that it took */
    bool watched;     /* for room in the pipe */
};

/* Bytes of the child that were not read as answers yet. */
struct lane_input {
    size_t begin, end;
    char bytes[2 * STREAM_ANSWER];
};

TAILQ_HEAD(open_list, open_message);

struct place; /* handler_stream.c */

/* c = constant after open
 * Everything else belongs to the thread that has the lane. */
struct lane {
    struct stream *stream; /* c */
    int epoll, waker;      /* c */
    enum lane_state state;
    uint64_t until_ns; /* of the state, monotonic; UINT64_MAX: for ever */
    struct child child;
    struct tail tail; /* its stderr */
    struct lane_output output;
    struct lane_input input;
    struct open_message *messages; /* c  as many as may be open */
    struct open_list open;         /* in the order they were sent */
    struct open_list spare;
    unsigned count;   /* of open */
    unsigned limited; /* of these, those with a deadline */
    uint64_t seen_ns; /* what it answered before that has been read */
    bool woken;
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
    struct place *place;
};

/* ---- lane_pipe.c ---- */

/* What an event of the epoll set is of. */
enum { LANE_OF_OUT, LANE_OF_ERR, LANE_OF_IN, LANE_OF_END, LANE_OF_WAKER };

/* Its stderr; a line names the message if only one can be meant. */
struct tail *lane_tail(struct lane *l);
/* Before a descriptor of the child is closed. */
void lane_unwatch(struct lane *l, int fd);
void lane_unwatch_all(struct lane *l);
/* Head, body and newline to the output; -ENOMEM. */
int lane_append(struct lane *l, struct delivery *d);
/* It gets no more: drop what is pending. */
void lane_unfeed(struct lane *l);
/* The descriptors of a child that was started; that of the lane. */
int lane_watch(struct lane *l);
int lane_watch_waker(struct lane *l);
/* Be told of room in the child's input, or not. */
void lane_watch_input(struct lane *l, bool on);

/* ---- lane_state.c ---- */

/* The event takes the lane to its next state. */
void lane_step(struct lane *l, enum lane_event event);
/* Whether messages go to the child. */
bool lane_feeds(const struct lane *l);
/* Whether there is a child that has not ended. */
bool lane_lives(const struct lane *l);
/* ... and that nobody has ended yet. */
bool lane_works(const struct lane *l);
/* SIGTERM to what is left of it, and when SIGKILL follows. */
void lane_term(struct lane *l);
/* Whether the worker ends its handlers. */
static inline bool lane_stops(const struct lane *l)
{
    return atomic_load_explicit(&l->stream->signal, memory_order_acquire) != 0;
}

/* ---- lane_io.c ---- */

/* Wait for one event at most until the state's time or a deadline is over, and
 * deal with it; `wait`: or do not wait. All answers that are in `input` must
 * have been read. */
void lane_turn(struct lane *l, bool wait);
/* More of what the child wrote; false: there is none now. */
bool lane_read(struct lane *l);
/* The next line, without its newline; false: none is complete. */
bool lane_line(struct lane *l, struct header_text *line);

/* ---- lane_end.c ---- */

/* It broke the rules: log what it wrote, hear no more of it, and end it. */
void lane_fault(struct lane *l, const char *what,
                const struct header_text *line);
/* LANE_ENDED, and its last words were read: leave nothing of it, take its
 * status, decide about what it had open. */
void lane_bury(struct lane *l);
/* The next message that ended without an answer; NULL: there is none. */
struct delivery *lane_lost(struct lane *l, struct outcome *out);
/* It is no longer open; give it back. */
struct delivery *lane_take_out(struct lane *l, struct open_message *m);

#endif

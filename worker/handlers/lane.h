/* lane.h - a long-lived child and the messages that it has open
 *
 * WHAT   The lanes of handler.h: sends messages to a child, collects its
 *        answers, starts it again when it has ended, and says what became of
 *        what it had open. What a child may do is in docs/handlers.md, how it
 *        ends in docs/lifecycle.md.
 * WHO    One thread at a time. lane_wake and lane_signal: any thread.
 * OWNS   The child. Borrows each delivery from send until next returns it.
 * FAILS  open: -errno. Everything else is an outcome.
 */
#ifndef WORKER_HANDLERS_LANE_H
#define WORKER_HANDLERS_LANE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "worker/process/command.h"
#include "worker/rules/delivery.h"
#include "worker/process/environment.h"
#include "worker/config/settings.h"

struct remains;

/* What all lanes of a handler share. c = constant after open   a = atomic */
struct stream {
    const struct settings *set;   /* c */
    struct environment_base base; /* c */
    struct command command;
    struct remains *remains;           /* c */
    struct stderr_limit *stderr_limit; /* c */
    _Atomic uint64_t marks;            /* a  the next child's; never twice */
    _Atomic uint64_t signal_ns;        /* a  when the first was sent */
    atomic_int signal;                 /* a  sent by stop; 0: none yet */
    atomic_bool unmeasured;            /* a  --max-rss is off */
    const pid_t *ended; /* at close: all children, none reaped yet */
    size_t ended_count;
};
/* Where the marks of children begin, plus the us of the clock at the start, as
 * those of an earlier worker are not ours: far above those of messages
 * (slot.h). */
#define STREAM_MARKS (UINT64_C(1) << 62)

struct lane; /* opaque; body in lane_inner.h */

int lane_open(struct lane **out, struct stream *stream);
/* It has no child any more. */
void lane_close(struct lane **lane); /* NULL-safe; sets NULL */

/* As the operations of handler.h. */
int lane_ready(struct lane *l, struct outcome *out);
unsigned lane_room(const struct lane *l);
void lane_send(struct lane *l, struct delivery *d);
struct delivery *lane_next(struct lane *l, struct outcome *out);
void lane_wake(struct lane *l);

/* To its child. */
void lane_signal(struct lane *l, int sig);
/* Nothing is open, and nobody will have it for now: look at what was read with
 * the last answer. False as lane_look. */
bool lane_rest(struct lane *l);
/* Readable while there is something that lane_look would see. */
int lane_fd(const struct lane *l);
/* Nothing is open and nobody has it: log what its child wrote, take its status
 * if it has ended by itself. Does not wait. False: there is nothing more to see
 * before it is used again. */
bool lane_look(struct lane *l);
/* Nothing is open: tell its child that there will be no more. */
void lane_leave(struct lane *l);
/* ... and wait until it has ended: its pid, 0 if there was none. */
pid_t lane_await(struct lane *l);
/* ... and leave nothing of it. */
void lane_finish(struct lane *l);

#endif

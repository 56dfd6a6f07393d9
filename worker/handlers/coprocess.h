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

#include "common/base/ulid.h"
#include "worker/process/command.h"
#include "worker/rules/delivery.h"
#include "worker/process/environment.h"
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

struct coprocess; /* opaque; body in coprocess_inner.h */

int coprocess_open(struct coprocess **out, struct stream *stream);
/* It has no child any more. */
void coprocess_close(struct coprocess **coprocess); /* NULL-safe; sets NULL */

/* As the operations of handler.h. */
int coprocess_ready(struct coprocess *l, struct outcome *out);
unsigned coprocess_room(const struct coprocess *l);
void coprocess_send(struct coprocess *l, struct delivery *d);
struct delivery *coprocess_next(struct coprocess *l, struct outcome *out);
void coprocess_wake(struct coprocess *l);

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

#endif

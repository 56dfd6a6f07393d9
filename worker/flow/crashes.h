/* crashes.h - messages under which the worker crashed
 *
 * WHAT   A handler may take its worker with it: a C function crashes, a command
 *        uses up the memory of its container. Each message that was running
 *        then counts one crash, although only one of them is to blame. If one
 *        more crash would make a message a dead letter, that message is a
 *        suspect and runs alone; only a crash while it runs alone makes it a
 *        dead letter. So the message to blame is found, and the others are
 *        processed. Sources report the facts: message.crashes, and
 *        MESSAGE_CRASHED_ALONE.
 * WHO    too_many, is_suspect: any thread. run_alone: the work item that has
 *        taken the message. ended, stuck: any work item. wait_log: the loop.
 * OWNS   A timer, which fires once a suspect has waited for a second.
 * FAILS  Never.
 */
#ifndef WORKER_FLOW_CRASHES_H
#define WORKER_FLOW_CRASHES_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/ulid.h"
#include "worker/loop/timers.h"
#include "worker/rules/message.h"

struct flow;

/* The error of a message that is dead because of its crashes. */
#define CRASHES_ERROR "the worker died while a handler had it"

/* m = under mtx */
struct crashes {
    struct timer timer;
    pthread_mutex_t mtx;
    uint64_t seq; /* m  of the suspect that is waiting; 0: none is */
    struct ulid id;
    uint32_t count; /* m  its crashes */
};

/* Log that a suspect is waiting for others: the callback of crashes.timer. */
void crashes_wait_log(struct timer *timer);

/* Return true if the message is dead because of its crashes. */
bool crashes_too_many(const struct flow *f, const struct message *m);
/* Return true if the message has to run alone. */
bool crashes_is_suspect(const struct flow *f, const struct message *m);
/* Keep other messages from starting until crashes_ended. Returns true if the
 * suspect may run now; false if others are running, so that the caller has to
 * put it back: it comes up again when they have ended. `beside`: the work item
 * has another message open. */
bool crashes_run_alone(struct flow *f, struct message *m, bool beside);
/* Let other messages start again if the one with this sequence was the suspect.
 * Called when its handler has ended, or when it will not run now. */
void crashes_ended(struct flow *f, uint64_t seq);
/* Let other messages start again if the suspect cannot come up now, because its
 * group is blocked or held, or it was discarded: otherwise all would wait for
 * an operator. Work items call this between two messages. */
void crashes_stuck(struct flow *f);

#endif

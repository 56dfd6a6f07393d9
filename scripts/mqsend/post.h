/* post.h - the sending of a run's messages, one after the other
 *
 * WHAT   Takes records from the input, puts them in envelopes, sends each as
 *        often as asked, at the pace asked for, and counts the messages that
 *        were sent, or that the broker confirmed.
 * WHO    One thread.
 * OWNS   Its buffers, the progress bar and the connection to a broker, during
 *        the call.
 * FAILS  Says what happened, and how many were sent, on stderr; returns the
 *        exit status.
 */
#ifndef SCRIPTS_MQSEND_POST_H
#define SCRIPTS_MQSEND_POST_H

#include <stdbool.h>
#include <stdint.h>

#include "common/broker/broker_operand.h"
#include "common/mq/queue.h"
#include "common/cli/complain.h"
#include "common/cli/term.h"
#include "scripts/mqsend/envelope.h"
#include "scripts/mqsend/input.h"

struct post {
    struct queue *queue;                  /* NULL: the queue is on a broker, */
    const struct broker_operand *operand; /* this one, */
    const struct broker_access *access;   /* and this opens it */
    bool create;                          /* a queue on a broker, if missing */
    size_t most;                          /* bytes of a body for a broker */
    struct input *input;
    struct envelope *envelope;
    uint32_t priority;
    uint64_t wait_ns; /* for room or a confirm, each; UINT64_MAX: no limit */
    uint64_t repeat;  /* times each record, 1 and up */
    uint64_t rate;    /* messages a second; 0: no limit */
    bool many;        /* the number of records is not known */
    enum envelope_tell tell; /* of each message that was sent */
    bool quiet;              /* say only why it stops */
};

/* Send to a POSIX queue. To one on a broker: broker_engine.h, `send`. */
int post_run(const struct post *post);

/* What a run has in common for all queues. */
struct posting {
    const struct post *post;
    struct rate_limit rate;
    struct term_progress bar;
    uint64_t records; /* taken from the input so far */
    uint64_t left;    /* times that the last record is to be sent still */
};

/* Start the clock of --rate, and a progress bar that counts `what`. */
void posting_start(struct posting *g, const struct post *post,
                   const char *what);
/* Send each record of the input as often as asked, by calls of `each`, until
 * one fails. 0, or -errno and a problem. */
int posting_run(struct posting *g,
                int (*each)(void *arg, const char *body, size_t size,
                            struct problem *p),
                void *arg, struct problem *p);
/* End the bar; complain of the problem and how far the run got. Returns the
 * exit status. */
int posting_fail(struct posting *g, const struct problem *p,
                 const char *how_far);

#endif

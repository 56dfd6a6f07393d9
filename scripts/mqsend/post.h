/* post.h - send the messages of one run, one after the other
 *
 * WHAT   Reads records from the input, puts them into envelopes, sends each as
 *        often and as fast as asked, and counts the messages that were sent, or
 *        that the broker confirmed.
 * WHO    mqsend.c, in its only thread. The functions posting_* also serve
 *        amqp/post_broker.c.
 * OWNS   Its buffers, the progress bar and the connection to a broker, during
 *        the call.
 * FAILS  Returns the exit status, after printing the reason and how many
 *        messages were sent to stderr.
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
    struct queue *queue;                  /* NULL: a queue on a broker */
    const struct broker_operand *operand; /* the queue on a broker */
    const struct broker_access *access;   /* password and TLS for the broker */
    bool create;                          /* create a missing broker queue */
    size_t most;                          /* largest body for a broker */
    struct input *input;
    struct envelope *envelope;
    uint32_t priority;
    uint64_t wait_ns; /* limit for room or a confirm; UINT64_MAX: no limit */
    uint64_t repeat;  /* times that each record is sent, 1 or more */
    uint64_t rate;    /* messages per second; 0: no limit */
    bool many;        /* --lines or --null: any number of records */
    enum envelope_tell tell;
    bool quiet; /* print only errors */
};

/* Send to a POSIX queue. A broker has `send` in broker_engine.h. */
int post_run(const struct post *post);

/* State of a run, for all kinds of queues. */
struct posting {
    const struct post *post;
    struct rate_limit rate;
    struct term_progress bar;
    uint64_t records; /* records read so far */
    uint64_t left;    /* times that the current record must still be sent */
};

/* Start the clock of --rate, and a progress bar that counts `what`. */
void posting_start(struct posting *g, const struct post *post,
                   const char *what);
/* Call `each` for each record of the input, as often as asked, until a call
 * fails or a signal arrives. Returns 0, or -errno and a problem. */
int posting_run(struct posting *g,
                int (*each)(void *arg, const char *body, size_t size,
                            struct problem *p),
                void *arg, struct problem *p);
/* Finish a run that failed: remove the bar, and print the problem and how far
 * the run got. Returns the exit status, or dies of the signal that ended the
 * run. */
int posting_fail(struct posting *g, const struct problem *p,
                 const char *how_far);

#endif

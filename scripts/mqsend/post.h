/* post.h - the sending of a run's messages, one after the other
 *
 * WHAT   Takes records from the input, puts them in envelopes, sends each as
 *        often and as fast as asked, and counts the messages that were sent, or
 *        that the broker confirmed.
 * WHO    One thread.
 * OWNS   Its buffers, the progress bar and the connection to a broker, during
 *        the call.
 * FAILS  Returns the exit status; the reason, and how many messages were sent,
 *        is out on stderr.
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
    bool create;                          /* make a missing queue on a broker */
    size_t most;                          /* largest body for a broker */
    struct input *input;
    struct envelope *envelope;
    uint32_t priority;
    uint64_t wait_ns; /* limit for room or a confirm; UINT64_MAX: none */
    uint64_t repeat;  /* times that each record is sent, from 1 up */
    uint64_t rate;    /* messages per second; 0: no limit */
    bool many;        /* the number of records is not known */
    enum envelope_tell tell;
    bool quiet; /* print only errors */
};

/* Send to a POSIX queue. A broker has `send` in broker_engine.h. */
int post_run(const struct post *post);

/* What a run has in common for all queues. */
struct posting {
    const struct post *post;
    struct rate_limit rate;
    struct term_progress bar;
    uint64_t records; /* records read so far */
    uint64_t left;    /* times that the last record has still to be sent */
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

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

#endif

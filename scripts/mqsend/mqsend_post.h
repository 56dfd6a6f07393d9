/* mqsend_post.h - the sending of a run's messages, one after the other
 *
 * WHAT   Takes records from the input, puts them in envelopes, sends each as
 *        often as asked, at the pace asked for, and keeps count.
 * WHO    One thread.
 * OWNS   The message buffer and the progress bar, during post_run.
 * FAILS  Says what happened, and how many were sent, on stderr; returns the
 *        exit status.
 */
#ifndef SCRIPTS_MQSEND_MQSEND_POST_H
#define SCRIPTS_MQSEND_MQSEND_POST_H

#include <stdbool.h>
#include <stdint.h>

#include "common/mq/queue.h"
#include "scripts/mqsend/mqsend_envelope.h"
#include "scripts/mqsend/mqsend_input.h"

struct post {
    struct queue *queue;
    struct input *input;
    struct envelope *envelope;
    uint32_t priority;
    uint64_t wait_ns;        /* for room, each message; UINT64_MAX: no limit */
    uint64_t repeat;         /* times each record, 1 and up */
    uint64_t rate;           /* messages a second; 0: no limit */
    bool many;               /* the number of records is not known */
    enum envelope_tell tell; /* of each message that was sent */
    bool quiet;              /* say only why it stops */
};

int post_run(const struct post *post);

#endif

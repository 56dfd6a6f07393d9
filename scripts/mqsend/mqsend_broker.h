/* mqsend_broker.h - the sending of a run's messages to a queue on a broker
 *
 * WHAT   Takes records from the input, publishes each, and counts those that
 *        the broker has confirmed.
 * WHO    One thread.
 * OWNS   The connection, during the call of broker_engine.send.
 * FAILS  Says what happened, and how many were confirmed, on stderr; returns
 *        the exit status.
 */
#ifndef SCRIPTS_MQSEND_MQSEND_BROKER_H
#define SCRIPTS_MQSEND_MQSEND_BROKER_H

#include "common/broker/broker_operand.h"
#include "scripts/mqsend/mqsend_envelope.h"
#include "scripts/mqsend/mqsend_input.h"

struct broker_post {
    const struct broker_operand *operand;
    const struct broker_access *access;
    struct input *input;
    struct envelope *envelope;
    size_t most;      /* bytes of a body */
    uint64_t wait_ns; /* for a confirm; UINT64_MAX: no limit */
    uint64_t repeat;  /* times each record, 1 and up */
    uint64_t rate;    /* messages a second; 0: no limit */
    uint8_t priority;
    bool many; /* the number of records is not known */
    bool create, quiet;
    unsigned partitions;     /* 0: none */
    enum envelope_tell tell; /* of each message that was handed over */
};

#endif

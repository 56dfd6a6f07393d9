/* letter_envelope.h - what a dead letter on a broker says of its death
 *
 * WHAT   Reads what a worker wrote to a letter: why it died, when, each attempt
 *        with its machine, the end of the last stderr. A message that the
 *        broker itself made a letter has only its x-death.
 * WHO    Any thread.
 * OWNS   The decoded properties, until letter_envelope_free. All text points
 *        into them.
 * FAILS  -EBADMSG: the properties cannot be decoded.
 */
#ifndef COMMON_AMQP_LETTER_ENVELOPE_H
#define COMMON_AMQP_LETTER_ENVELOPE_H

#include <stdint.h>

#include "common/amqp/envelope.h"
#include "common/message/error_text.h"

struct letter_attempt {
    uint64_t at_ns, ms;
    amqp_bytes_t error, machine;
};

struct letter_envelope {
    enum dead_reason reason;
    amqp_bytes_t error, group, tail;
    uint64_t died_ns;    /* wall; 0: not known */
    uint64_t expires_ns; /* wall; 0: never */
    uint64_t deliveries; /* times that somebody has looked at it */
    struct letter_attempt attempts[ENVELOPE_HISTORY]; /* the oldest first */
    size_t attempt_count;
    amqp_pool_t pool;
};

int letter_envelope_read(struct letter_envelope *out, amqp_bytes_t raw);
/* The properties of another copy of the same letter: only the broker's count of
 * deliveries is not in it. On 0 envelope_copy_free is to follow. */
int letter_envelope_same(struct envelope_copy *out, amqp_bytes_t raw);
void letter_envelope_free(struct letter_envelope *l);

#endif

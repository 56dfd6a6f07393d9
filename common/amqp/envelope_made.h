/* envelope_made.h - the properties of a message that was on no broker yet
 *
 * WHAT   From the text header of a message of a POSIX queue, and its failed
 *        attempts one by one: as a worker of a broker would have written them.
 * WHO    Any thread; pure but for memory.
 * OWNS   What it makes, until envelope_made_free.
 * FAILS  -ENOMEM; -EMSGSIZE: the properties are too long.
 */
#ifndef COMMON_AMQP_ENVELOPE_MADE_H
#define COMMON_AMQP_ENVELOPE_MADE_H

#include "common/amqp/envelope.h"

struct envelope_made {
    struct envelope_copy copy; /* the properties, once it came to its end */
    bool whole;                /* it did */
    amqp_bytes_t raw;          /* what `copy` points into */
};

/* `h` as header_parse read it from `data`; without a header all 0. */
int envelope_made_begin(struct envelope_made *e, const struct ulid *id,
                        uint32_t priority, const void *data,
                        const struct header *h);
/* One more failed attempt; the oldest first. */
int envelope_made_attempt(struct envelope_made *e, const struct ulid *id,
                          const struct envelope_attempt *failed);
/* The rest of what there is to say. */
int envelope_made_end(struct envelope_made *e,
                      const struct envelope_change *change);
/* Whatever of it was made; it may be all 0. */
void envelope_made_free(struct envelope_made *e);

#endif

/* envelope.h - the properties of a message on a broker
 *
 * WHAT   Reads the properties that mqsend and other producers write, and makes
 *        the text header of common/message from them. Writes the properties of
 *        a copy that the worker publishes: a retry, a delayed message, a dead
 *        letter. Writes properties for a message that comes from a POSIX queue.
 *        Reads from a dead letter why and when it died, each attempt with its
 *        machine, and the end of the last handler's stderr.
 * WHO    The worker's source on a broker and its --forward, mqsend, mqdlq and
 *        mqctl move. Any thread; the functions share nothing.
 * OWNS   A pool of librabbitmq, from envelope_copy or envelope_make to
 *        envelope_copy_free, and from letter_envelope_read to
 *        letter_envelope_free. The texts of a letter point into its pool.
 * FAILS  -ENOMEM; -EBADMSG: the properties cannot be decoded; -EMSGSIZE: they
 *        are too long.
 *
 * A copy keeps the properties that other programs have set, except those that
 * would misroute or lose the copy: CC and BCC (the broker would make more
 * copies), user-id (must be our user), expiration (the copy would be dropped
 * too early), and the broker's own (x-death, x-delivery-count, ...).
 */
#ifndef COMMON_AMQP_ENVELOPE_H
#define COMMON_AMQP_ENVELOPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/amqp/link.h"
#include "common/base/process_stat.h"
#include "common/base/ulid.h"
#include "common/message/error_text.h"
#include "common/message/header.h"

/* The properties of a message. */
struct envelope {
    struct ulid id;
    bool derived;      /* the id was made from the message, because no ULID
                        * came with it: equal messages share it */
    bool resent;       /* its sender may have sent it twice */
    uint64_t attempt;  /* number of failed attempts */
    uint64_t replay;   /* number of its replays as a dead letter */
    uint64_t hop;      /* number of wait queues that it has been in */
    uint64_t line;     /* random number shared by all copies of one original;
                        * 0: not a copy */
    uint64_t sent_ns;  /* wall, ns, written by the sender; 0: not given */
    uint64_t first_ns; /* wall; first receipt by a worker; 0: none */
    uint64_t due_ns;   /* wall; time before which it must not run; 0: now */
    uint32_t priority;
    const char *wrong;  /* error text, constant, if mqw-due, mqw-expires or
                           mqw-timeout has no valid value; else NULL */
    bool has_group;     /* it names a group */
    bool good_group;    /* the name is valid, and in the text header */
    uint32_t group_crc; /* partition_crc of a good group */
    size_t head;        /* bytes of the text header */
};

#define ENVELOPE_ERROR   160
#define ENVELOPE_STDERR  4096
#define ENVELOPE_HISTORY 16 /* kept attempts: the first and the last 15 */

/* A failed attempt, for the history of a copy. */
struct envelope_attempt {
    uint64_t at_ns, duration_ns;
    uint64_t number; /* 1 and up */
    const char *error, *machine;
    const char *tail; /* of stderr; any bytes */
    size_t tail_size;
    struct usage usage;
};

/* The differences between a copy and its original. */
struct envelope_change {
    const struct ulid *id;
    uint64_t attempt, first_ns, due_ns, hop, line;
    const struct envelope_attempt *failed; /* attempts to add, oldest first */
    size_t failed_count;
    const char *reason, *error; /* of a death; NULL: none */
    uint64_t died_ns;
    uint64_t replay; /* number of this replay; 0: unchanged */
    bool no_expiry;  /* leave out mqw-expires */
    bool derived;    /* as in struct envelope, also the next */
    bool resent;
    uint64_t number; /* see envelope_number */
};

struct envelope_copy {
    amqp_basic_properties_t properties;
    amqp_pool_t pool;
};

/* Decode properties into memory of `pool`, which the caller empties. NULL: they
 * cannot be decoded, and the pool is empty. */
amqp_basic_properties_t *envelope_decode(amqp_bytes_t raw, amqp_pool_t *pool);
/* Read the encoded properties (`raw`) of a message with this body, and write
 * its text header to `head`. */
int envelope_read(struct envelope *out, amqp_bytes_t raw, const void *body,
                  size_t body_size, char head[HEADER_MAX]);
/* Write the properties of a copy. `plain`: without history and stderr, which
 * did not fit. On 0 envelope_copy_free must follow. */
int envelope_copy(struct envelope_copy *out, amqp_bytes_t raw,
                  const struct envelope_change *change, bool plain);
/* Write the properties of a message of a POSIX queue. `h` is the header that
 * header_parse read from `data`, or all 0 without a header. The result points
 * into `data` until envelope_copy_free. */
int envelope_make(struct envelope_copy *out, uint32_t priority,
                  const void *data, const struct header *h,
                  const struct envelope_change *change);
void envelope_copy_free(struct envelope_copy *c);
/* Add a failed attempt to the encoded properties of a message. The caller frees
 * the bytes of `out`. */
int envelope_attempt_add(amqp_bytes_t *out, amqp_bytes_t raw,
                         const struct ulid *id,
                         const struct envelope_attempt *failed);
/* Return the `number` of a copy that the broker could not route and sends back
 * (basic.return); 0: none. */
uint64_t envelope_number(amqp_bytes_t raw);

struct letter_attempt {
    uint64_t at_ns, ms;
    amqp_bytes_t error, machine;
    struct usage usage;
};

struct letter_envelope {
    enum dead_reason reason;
    amqp_bytes_t error, group, tail;
    uint64_t died_ns;                                 /* wall; 0: not known */
    uint64_t expires_ns;                              /* wall; 0: never */
    uint64_t deliveries;                              /* by the broker */
    struct letter_attempt attempts[ENVELOPE_HISTORY]; /* the oldest first */
    size_t attempt_count;
    amqp_pool_t pool;
};

/* Read the properties of a dead letter. On 0 letter_envelope_free must follow.
 */
int letter_envelope_read(struct letter_envelope *out, amqp_bytes_t raw);
/* Write the properties of another copy of the same letter, without the broker's
 * count of its deliveries. On 0 envelope_copy_free must follow. */
int letter_envelope_same(struct envelope_copy *out, amqp_bytes_t raw);
void letter_envelope_free(struct letter_envelope *l);

#endif

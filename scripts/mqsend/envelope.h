/* envelope.h - make the bytes of each message: header and body
 *
 * WHAT   Holds the header fields that all messages of one run share, read from
 *        flags, and writes the header in front of each body.
 * WHO    mqsend.c reads the flags, post.c and amqp/post_broker.c make messages;
 *        one thread.
 * OWNS   Nothing; strings point into argv.
 * FAILS  flag_*, envelope_check: a problem with status 64. envelope_fill:
 *        -EMSGSIZE.
 */
#ifndef SCRIPTS_MQSEND_ENVELOPE_H
#define SCRIPTS_MQSEND_ENVELOPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/problem.h"
#include "common/base/ulid.h"
#include "common/cli/moment.h"
#include "common/message/header.h"

/* Output for each message that was sent. */
enum envelope_tell {
    ENVELOPE_NOTHING,
    ENVELOPE_ID,
    ENVELOPE_JSON, /* an object with its id and its queue */
};

struct envelope {
    bool raw;            /* send the body without a header */
    bool has_id;         /* `id` was given */
    struct ulid id;      /* id of the message made last */
    const char *group;   /* NULL: none */
    uint64_t delay_ns;   /* 0: none */
    uint64_t at_ns;      /* instead of a delay; 0: none */
    const char *at_text; /* that time, as it was given */
    enum moment_clock at_clock;
    uint64_t ttl_ns;           /* 0: none */
    uint64_t timeout_ms;       /* 0: none */
    uint64_t max_attempts;     /* 0: none */
    const char *backoff;       /* NULL: none */
    struct header_text unique; /* at NULL: none */
    uint64_t unique_for_ms;    /* 0: the worker's default */
    struct header_x x[HEADER_X_MAX];
    size_t x_count;
    size_t header_bytes; /* in the message made last */
};

/* Return the time from which a message sent now may run; 0: any time. */
uint64_t envelope_not_before(const struct envelope *e, uint64_t now_ns);
/* Check that each header has room in HEADER_MAX. Unless `quiet`, warn if the
 * time of --at has passed, if the local clock skips it or shows it twice, or if
 * the messages would wait longer than a worker allows by default. */
int envelope_check(const struct envelope *e, bool quiet, struct problem *p);
/* Make the message for a body in `buf`. Returns its bytes, or -EMSGSIZE if
 * header_bytes and `size` together are more than `room`. */
ssize_t envelope_fill(struct envelope *e, const void *body, size_t size,
                      char *buf, size_t room);
/* Print the id of the message made last, in the form `tell`. Returns 0 or
 * -ENOMEM. */
int envelope_print_id(const struct envelope *e, enum envelope_tell tell,
                      const char *queue);

/* Read the value of a flag into a struct envelope. */
int flag_id(const char *text, void *into, struct problem *p);
int flag_at(const char *text, void *into, struct problem *p);
int flag_group(const char *text, void *into, struct problem *p);
int flag_backoff(const char *text, void *into, struct problem *p);
int flag_unique(const char *text, void *into, struct problem *p);
/* Add "x-name=value"; --header is given any number of times. */
int flag_header(const char *text, void *into, struct problem *p);

#endif

/* envelope.h - a body and the header that goes in front of it
 *
 * WHAT   Holds what all messages of one run share, read from flags; makes the
 *        bytes of each message.
 * WHO    One thread.
 * OWNS   Nothing; strings point into argv.
 * FAILS  flag_*, check: a problem with status 64. fill: -EMSGSIZE.
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

/* What is printed of a message that was sent. */
enum envelope_tell {
    ENVELOPE_NOTHING,
    ENVELOPE_ID,   /* a line */
    ENVELOPE_JSON, /* an object with its queue: a line */
};

struct envelope {
    bool raw;            /* no header at all */
    bool has_id;         /* `id` instead of a fresh one */
    struct ulid id;      /* of the message made last */
    const char *group;   /* NULL: none */
    uint64_t delay_ns;   /* 0: none */
    uint64_t at_ns;      /* instead of a delay; 0: none */
    const char *at_text; /* as it was given */
    enum moment_clock at_clock;
    uint64_t ttl_ns;           /* 0: none */
    uint64_t timeout_ms;       /* 0: none */
    uint64_t max_attempts;     /* 0: none */
    const char *backoff;       /* NULL: none */
    struct header_text unique; /* at NULL: none */
    uint64_t unique_for_ms;    /* 0: the worker's default */
    struct header_x x[HEADER_X_MAX];
    size_t x_count;
    size_t header_bytes; /* of the message made last */
};

/* When a message that is sent now may run; 0: at once. */
uint64_t envelope_not_before(const struct envelope *e, uint64_t now_ns);
/* Whether headers made from this are within HEADER_MAX. */
int envelope_check(const struct envelope *e, struct problem *p);
/* The message for a body, to `buf`: its bytes, or -EMSGSIZE when header_bytes
 * and `size` together are more than `room`. */
ssize_t envelope_fill(struct envelope *e, const void *body, size_t size,
                      char *buf, size_t room);
/* Print what is wanted of the message made last, to stdout; 0 or -ENOMEM. */
int envelope_told(const struct envelope *e, enum envelope_tell tell,
                  const char *queue);

/* Read the value of a flag into a struct envelope. */
int flag_id(const char *text, void *into, struct problem *p);
/* --at: a time that the local clock shows twice or skips, or one that is past,
 * is told by flag_at_note */
int flag_at(const char *text, void *into, struct problem *p);
int flag_group(const char *text, void *into, struct problem *p);
int flag_backoff(const char *text, void *into, struct problem *p);
int flag_unique(const char *text, void *into, struct problem *p);
/* Add "x-name=value"; --header is given any number of times. */
int flag_header(const char *text, void *into, struct problem *p);

/* Say what --at means where that is not what it says. */
void flag_at_note(const struct envelope *e);
/* Say so if it is to wait for longer than a worker lets it. */
void flag_far_note(const struct envelope *e);

#endif

/* header.h - the optional text header in front of a body
 * (docs/formats/header.md)
 *
 * WHAT   Reads and writes `MQW/1\n`, `name: value\n` lines, an empty line.
 *        Bytes that do not start with the magic line are a body as they are.
 * WHO    mqsend, mqdlq, and the properties of a broker's messages (envelope.h)
 *        write headers; the worker, mqdlq and mqctl read them. Pure functions,
 *        for any thread. Nothing is copied: strings point into the caller's
 *        buffer and are not NUL-terminated.
 * FAILS  header_parse: -EBADMSG and a sentence in `why`. header_write:
 *        -EMSGSIZE over HEADER_MAX or the buffer, -EINVAL for a bad field.
 */
#ifndef COMMON_MESSAGE_HEADER_H
#define COMMON_MESSAGE_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/base/problem.h"
#include "common/base/ulid.h"
#include "common/message/backoff.h"

#define HEADER_MAGIC       "MQW/1\n"
#define HEADER_MAGIC_BYTES (sizeof HEADER_MAGIC - 1)
#define HEADER_MAX         1024 /* bytes, magic line and empty line included */
#define HEADER_NAME_MAX    32
#define HEADER_VALUE_MAX   256
#define HEADER_X_MAX       64 /* most x- lines that mqsend writes */
#define HEADER_X_FIT       (HEADER_MAX / 7) /* most that fit: "x-a: b\n" */
#define HEADER_WHY         160
#define HEADER_UNIQUE_MS   3600000             /* without HEADER_UNIQUE_FOR */
#define HEADER_MS_MAX      (UINT64_C(1) << 53) /* exact in a JSON number too */
#define HEADER_ATTEMPTS    1000000             /* as --max-attempts allows */
/* Longest delay of a not-before that a worker accepts by default
 * (--max-delay). */
#define HEADER_MAX_DELAY "400d"

enum {
    HEADER_ID = 1 << 0,
    HEADER_SENT = 1 << 1,
    HEADER_SIZE = 1 << 2,
    HEADER_GROUP = 1 << 3,
    HEADER_NOT_BEFORE = 1 << 4,
    HEADER_EXPIRES = 1 << 5,
    HEADER_TIMEOUT = 1 << 6,
    HEADER_LETTER = 1 << 7,
    HEADER_LETTER_TOKEN = 1 << 8,
    HEADER_MAX_ATTEMPTS = 1 << 9,
    HEADER_BACKOFF = 1 << 10,
    HEADER_UNIQUE = 1 << 11,
    HEADER_UNIQUE_FOR = 1 << 12,
    HEADER_DELAY = 1 << 13,
    HEADER_FORWARDED = 1 << 14,
    HEADER_RESENT = 1 << 15,
    HEADER_EDITED_FROM = 1 << 16,
};

struct header_text {
    const char *at; /* not NUL-terminated */
    size_t size;
};

struct header {
    size_t bytes;     /* of the header, before the body; 0: no header */
    unsigned fields;  /* HEADER_ bits: which of the following were there */
    unsigned x_count; /* how many x- lines there are */
    struct ulid id;
    uint64_t sent_ns;         /* ns since the epoch */
    uint64_t size;            /* bytes of the body */
    uint64_t not_before_ns;   /* ns since the epoch */
    uint64_t expires_ns;      /* ns since the epoch */
    uint64_t timeout_ms;      /* 1 and up */
    uint64_t letter;          /* row of the dead letter this is a replay of */
    struct ulid letter_token; /* identifies that replay (store.h); random,
                               * written like a ULID */
    struct header_text group;
    uint64_t max_attempts;      /* 1 and up */
    struct header_text backoff; /* as backoff_parse reads it */
    struct header_text unique;  /* a key */
    uint64_t unique_for_ms;     /* 1 and up */
    uint64_t delay_ms;          /* 1 and up; from sending to not_before_ns */
    uint64_t forwarded;      /* queues that it was forwarded from; 1 and up */
    uint64_t resent;         /* 1: its sender may have sent it before */
    struct ulid edited_from; /* id before `mqdlq edit` changed the body */
};

/* Return true if a message begins with the magic line. */
static inline bool header_found(const void *data, size_t size)
{
    return size >= HEADER_MAGIC_BYTES &&
           memcmp(data, HEADER_MAGIC, HEADER_MAGIC_BYTES) == 0;
}

/* Return true if the header is "group: VALUE", of plain ASCII, and nothing
 * else, and read it as header_parse does. */
bool header_group_alone(const void *data, size_t size, struct header *out);

/* Find the group of a body without a header: the bytes before the first
 * `separator`; out->at NULL: no separator. -EBADMSG and a sentence in `why` if
 * these bytes are no valid name of a group. */
int header_group_raw(const void *body, size_t size, char separator,
                     struct header_text *out, char why[HEADER_WHY]);
/* Read the value of --group-separator; *into is a char. */
int header_separator(const char *text, void *into, struct problem *p);

/* Read the header of the `size` bytes at `data`, a whole message. Returns 0;
 * without a header, out->bytes, fields and x_count are 0. A member without its
 * bit in `fields` is not set.
 * A header is broken, after the magic line, by a line without ": ", a name
 * outside [a-z0-9-]{1,32}, a value that is not 1 to 256 bytes of printable
 * UTF-8, no empty line within HEADER_MAX bytes, a known name twice, a number
 * that is not plain decimal in range, a malformed id or backoff, or a `size`
 * that is not the number of bytes that follow. Unknown names are ignored. */
int header_parse(const void *data, size_t size, struct header *out,
                 char why[HEADER_WHY]);

/* Return the size of a message whose length is not known: its header and the
 * `size` in the header. `room` bytes can be read. Returns 0 if there is no
 * header, the header is broken or has no `size`, or the message would be longer
 * than `room`. */
size_t header_message_size(const void *data, size_t room);

/* Step through the lines of a header that header_parse accepted, including
 * unknown names. `cursor` starts at 0. Returns false at the end. */
bool header_next(const void *data, const struct header *h, size_t *cursor,
                 struct header_text *name, struct header_text *value);
/* Step through the x- lines. `name` includes "x-". */
bool header_next_x(const void *data, const struct header *h, size_t *cursor,
                   struct header_text *name, struct header_text *value);

struct header_x {
    struct header_text name; /* with "x-" */
    struct header_text value;
};
/* Write the fields named in h->fields, then the x lines. Returns the number of
 * bytes, or -errno. */
int header_write(char *buf, size_t room, const struct header *h,
                 const struct header_x *x, size_t x_count);

/* Parse the value of a `backoff` line; returns false if it is malformed. */
bool header_backoff(struct header_text text, struct backoff *out);
/* Return true if `text` may be a group, or the value of an x- line. */
bool header_value_ok(const char *text, size_t size);
/* Return true if `text` may be the name of an x- line, "x-" and 1 to 30
 * more. */
bool header_x_name_ok(const char *text, size_t size);

#endif

/* torture_message.h - messages of the torture program, computed from a number
 *
 * WHAT   The number of a message determines its priority, group, header, size
 *        and content, and what its handler does with it. Producers make the
 *        message from the number; witnesses and the audit check it against the
 *        number.
 * WHO    All processes of a run; torture_terms_use once before anything else.
 * OWNS   Nothing.
 * FAILS  Never.
 *
 * A body:
 *   offset size
 *        0    8  magic in the upper 16 bits, number in the others
 *        8    4  bytes of the whole body
 *       12       bytes computed from the number; every fifth message ends in
 *                some 0xFF, which no text ends in
 * A "tiny" body, of fewer than TORTURE_TINY bytes, repeats one letter, chosen
 * by its size.
 */
#ifndef TESTS_CRASH_TORTURE_MESSAGE_H
#define TESTS_CRASH_TORTURE_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TORTURE_PRODUCERS = 2,
    TORTURE_LEVELS = 4,  /* number of priorities */
    TORTURE_GROUPS = 24, /* number of groups, 6 of each producer at a time */
    TORTURE_TINY = 24,   /* smaller bodies have no number */
    TORTURE_MOST = 8192, /* largest message, in bytes */
    TORTURE_MILLION = 1000000,
};

/* Terms of a run, which all its processes share. */
struct torture_terms {
    uint64_t seed;
    uint32_t most;    /* largest message, in bytes */
    uint32_t fixed;   /* size of each message; 0: random */
    uint32_t failing; /* messages in a million that do not just succeed */
    uint32_t tiny;    /* 1: some messages are too small for a number */
    uint32_t plain;   /* 1: no headers, except where the fate needs one */
    uint32_t grouped; /* 1: each message has a group */
    uint32_t only;    /* 1 + the fate of all messages; 0: see `failing` */
    bool steered;     /* every second delayed message may wait longer */
    bool hurried;     /* delayed messages may be told to run now */
};

/* What becomes of a message, whatever else happens. */
enum torture_fate {
    TORTURE_DONE,
    TORTURE_RETRY,   /* its first attempt fails, its second is done */
    TORTURE_DEAD,    /* rejected; done after a replay */
    TORTURE_DISCARD, /* discarded by its handler */
    TORTURE_LATER,   /* done; may not run before a time in its header */
};

struct torture_plan {
    uint64_t number;
    enum torture_fate fate;
    unsigned producer;
    unsigned level;    /* index of its priority */
    unsigned priority; /* for mq_send */
    int group;         /* -1: none */
    size_t head, body; /* sizes; head 0: no header */
    bool sized;        /* its header gives the size of the body */
    bool unique;       /* its number is its unique key: a second copy is
                        * dropped */
};

/* Set the terms for all functions below. */
void torture_terms_use(const struct torture_terms *terms);

/* Return the number of the nth message of a producer. */
uint64_t torture_number(unsigned producer, uint64_t n);
/* Return n for the number of a producer's nth message. */
uint64_t torture_nth(uint64_t number);

void torture_plan(uint64_t number, struct torture_plan *plan);
/* Write the message, at most TORTURE_MOST bytes, and return its size. `now_ns`
 * is the base for delays. */
size_t torture_make(const struct torture_plan *plan, uint64_t now_ns,
                    unsigned char *message);
/* Return the size of the tiny message to send before this one; -1: none. */
int torture_tiny(uint64_t number);
void torture_tiny_make(size_t size, unsigned char *message);

enum torture_what { TORTURE_WRONG, TORTURE_WHOLE, TORTURE_CUT };
/* Check a body against its number. TORTURE_CUT: the body is right as far as it
 * goes, but its end is missing. *plan is set unless the body is tiny or
 * wrong. */
enum torture_what torture_check(const unsigned char *body, size_t size,
                                struct torture_plan *plan);
/* Return the name of a group, such as "g7"; NULL: no group. */
const char *torture_group(int group);

uint64_t torture_hash(uint64_t x);

#endif

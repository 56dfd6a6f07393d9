/* torture_message.h - the messages of the torture program: a number says all
 *
 * WHAT   What a message of some number is like: its priority, group, header,
 *        size, content, and what its handler is to make of it. Producers make
 *        it from the number; witnesses and the audit check it against the
 *        number.
 * WHO    All processes of a run; torture_terms_use once before anything else.
 * OWNS   Nothing.
 * FAILS  Never.
 *
 * A body:
 *   offset size
 *        0    8  magic in the upper 16 bits, number in the others
 *        8    4  bytes of the whole body
 *       12       bytes that follow from the number; every fifth message ends in
 *                some 0xFF, which no text ends in
 * Bodies too short for that ("tiny") are all the same letter, by size.
 */
#ifndef TESTS_CRASH_TORTURE_MESSAGE_H
#define TESTS_CRASH_TORTURE_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TORTURE_PRODUCERS = 2,
    TORTURE_LEVELS = 4,  /* different priorities */
    TORTURE_GROUPS = 24, /* different groups, 6 of each producer at a time */
    TORTURE_TINY = 24,   /* bodies below that have no number */
    TORTURE_MOST = 8192, /* bytes of a message */
    TORTURE_MILLION = 1000000,
};

/* What all processes of a run agree on. */
struct torture_terms {
    uint64_t seed;
    uint32_t most;    /* bytes that a message may have */
    uint32_t fixed;   /* bytes that each has; 0: random */
    uint32_t failing; /* of a million messages, those with another fate */
    uint32_t tiny;    /* 1: some have no room for a number */
    uint32_t plain;   /* 1: none has a header, but where its fate needs one */
    uint32_t grouped; /* 1: each has a group */
    uint32_t only;    /* 1 + the fate of each message; 0: as `failing` says */
    bool steered;     /* each other delayed one may wait for longer */
    bool hurried;     /* a delayed one may be told to run now */
};

/* What becomes of a message whatever happens. */
enum torture_fate {
    TORTURE_DONE,
    TORTURE_RETRY,   /* its first attempt fails, its second is done */
    TORTURE_DEAD,    /* rejected; done if it is replayed */
    TORTURE_DISCARD, /* not wanted */
    TORTURE_LATER,   /* done; with a time before which it may not run */
};

struct torture_plan {
    uint64_t number;
    enum torture_fate fate;
    unsigned producer;
    unsigned level;    /* index of its priority */
    unsigned priority; /* as given to mq_send */
    int group;         /* -1: none */
    size_t head, body; /* bytes; head 0: no header */
    bool sized;        /* its header says how large the body is */
    bool unique;       /* its number is its key: a second copy is dropped */
};

/* All that follows is of these terms. */
void torture_terms_use(const struct torture_terms *terms);

/* The nth message of a producer. */
uint64_t torture_number(unsigned producer, uint64_t n);
/* Which of its producer's messages it is. */
uint64_t torture_nth(uint64_t number);

void torture_plan(uint64_t number, struct torture_plan *plan);
/* The message, TORTURE_MOST bytes at most; `now_ns` for what is not to run at
 * once. Its size. */
size_t torture_make(const struct torture_plan *plan, uint64_t now_ns,
                    unsigned char *message);
/* The size of a tiny message to send before that one; -1: none. */
int torture_tiny(uint64_t number);
void torture_tiny_make(size_t size, unsigned char *message);

enum torture_what { TORTURE_WRONG, TORTURE_WHOLE, TORTURE_CUT };
/* Whether a body is what its number says. TORTURE_CUT: its end is missing, all
 * else is right. The plan is filled in unless the body is tiny or wrong. */
enum torture_what torture_check(const unsigned char *body, size_t size,
                                struct torture_plan *plan);
/* "g7"; NULL: none. */
const char *torture_group(int group);

uint64_t torture_hash(uint64_t x);

#endif

/* counters_file.h - the bytes of the counters file
 *
 * WHAT   The layout of the file, and the place of each part in a mapping `map`.
 * WHO    counters.c, and tests of the format.
 *
 * The file never leaves the machine, so it has the byte order of the host.
 * docs/formats/counters.md describes each field. After a change, raise
 * COUNTERS_VERSION. A file of another version is replaced.
 */
#ifndef COMMON_STATE_COUNTERS_FILE_H
#define COMMON_STATE_COUNTERS_FILE_H

#include "common/state/counters.h"

#define COUNTERS_MAGIC  "MQWCOUNT"
#define COUNTERS_HEAD   4096
#define COUNTERS_STRIDE ((sizeof(struct counters_block) + 4095) / 4096 * 4096)
#define COUNTERS_EARLIER \
    (COUNTERS_HEAD + COUNTERS_JOURNAL * sizeof(struct counters_past))
#define COUNTERS_BLOCKS (COUNTERS_EARLIER + 2 * COUNTERS_STRIDE)

/* The end of one message. `when` is 0 while the entry is written. Its two low
 * bits are enum counters_end up to COUNTERS_DEAD. If these are 0, the third one
 * is set for a cancelled message and clear for a duplicate. */
struct counters_past {
    _Atomic uint64_t when; /* wall ns */
    _Atomic uint64_t id[2];
};
_Static_assert(sizeof(struct counters_past) == 24, "counters format");

/* A text, in words of 64 bits, so that it is read and written atomically word
 * by word. */
struct counters_words {
    _Atomic uint64_t seq;  /* odd: the text is being written */
    _Atomic uint64_t when; /* wall ns */
    _Atomic uint64_t text[COUNTERS_TEXT / 8];
};

struct counters_head {
    _Atomic uint64_t magic; /* written last */
    uint32_t version;
    uint32_t head_bytes;
    uint64_t stride;         /* bytes from one block to the next */
    uint32_t blocks_max;     /* blocks that there is room for */
    _Atomic uint32_t blocks; /* in use */
    _Atomic uint64_t pid;
    _Atomic uint64_t pid_start;  /* field 22 of proc_pid_stat(5) */
    _Atomic uint64_t started_ns; /* wall */
    char boot_id[BOOT_ID];
    _Atomic uint64_t gauges[16]; /* enum counters_gauge */
    struct counters_words texts[COUNTERS_TEXTS];
    uint32_t boot_time;                      /* with boot_id; 0: not known */
    _Alignas(64) _Atomic uint64_t past_next; /* entries ever in the journal */
    _Atomic uint64_t folds; /* + 2 in each start, to add up earlier runs
                               (runs_fold); odd while it does so */
};
_Static_assert(offsetof(struct counters_head, boot_id) == 56,
               "counters format");
_Static_assert(offsetof(struct counters_head, gauges) == 96, "counters format");
_Static_assert(offsetof(struct counters_head, texts) == 224, "counters format");
_Static_assert(offsetof(struct counters_head, boot_time) == 640,
               "counters format");
_Static_assert(offsetof(struct counters_head, past_next) == 704,
               "counters format");
_Static_assert(offsetof(struct counters_head, folds) == 712, "counters format");
_Static_assert(COUNTERS_EARLIER == 397312, "counters format");
_Static_assert(COUNTERS_BLOCKS == 438272, "counters format");
_Static_assert(sizeof(struct counters_head) <= COUNTERS_HEAD,
               "counters format");
_Static_assert(COUNTERS_GAUGES <= 16, "counters format");

static inline struct counters_head *counters_head(unsigned char *map)
{
    return (struct counters_head *)(void *)map;
}

static inline struct counters_block *counters_at(unsigned char *map, unsigned i)
{
    return (struct counters_block *)(void *)(map + COUNTERS_BLOCKS +
                                             i * COUNTERS_STRIDE);
}

/* Return the sums of all earlier runs; i = 1: the place for the next sums. */
static inline struct counters_block *counters_earlier(unsigned char *map,
                                                      unsigned i)
{
    return (struct counters_block *)(void *)(map + COUNTERS_EARLIER +
                                             i * COUNTERS_STRIDE);
}

/* Return entry `n` of the journal, counted from the first ever written. */
static inline struct counters_past *counters_past(unsigned char *map,
                                                  uint64_t n)
{
    struct counters_past *first = (void *)(map + COUNTERS_HEAD);

    return first + n % COUNTERS_JOURNAL;
}

static inline uint64_t counters_bytes(unsigned blocks)
{
    return COUNTERS_BLOCKS + (uint64_t)COUNTERS_STRIDE * blocks;
}

/* Return "MQWCOUNT" as a word of memory. */
static inline uint64_t counters_magic(void)
{
    uint64_t word;

    memcpy(&word, COUNTERS_MAGIC, sizeof word);
    return word;
}

#endif

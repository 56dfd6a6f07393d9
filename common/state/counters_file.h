/* counters_file.h - the bytes of the counters file
 *
 * WHAT   Its layout, and where each part of it is in a mapping, `map`.
 * WHO    counters.c, and tests of the format.
 *
 * The file (host byte order; it never leaves the machine;
 * docs/formats/counters.md):
 *   offset  size
 *        0     8  magic "MQWCOUNT"; written last
 *        8     4  version (COUNTERS_VERSION)
 *       12     4  bytes of this header (4096)
 *       16     8  bytes from one block to the next
 *       24     4  blocks there is room for
 *       28     4  blocks in use
 *       32     8  process id
 *       40     8  its start, field 22 of proc_pid_stat(5)
 *       48     8  wall time of the start, ns
 *       56    40  boot id of the machine's run, text
 *       96  16*8  gauges, enum counters_gauge
 *      224 2*208  texts, enum counters_text: sequence (odd: being written),
 *                 wall time, 192 bytes NUL-terminated
 *      640     4  start of the machine, s since the epoch; 0: not known
 *      704     8  entries ever written to the journal
 *      712     8  times that a start added up earlier runs, twice; odd: it is
 *                 doing so
 *     4096        journal, struct counters_past: a ring
 *   397312        sums of earlier runs, two of struct counters_block: the sums,
 *                 and the place where a start makes the next ones
 *   438272        blocks, struct counters_block
 * Change a row: raise COUNTERS_VERSION. A file of another version is replaced.
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

struct counters_words {
    _Atomic uint64_t seq;
    _Atomic uint64_t when;
    _Atomic uint64_t text[COUNTERS_TEXT / 8]; /* whole words, so that a reader
                                                 never races with a byte */
};

struct counters_head {
    _Atomic uint64_t magic;
    uint32_t version;
    uint32_t head_bytes;
    uint64_t stride;
    uint32_t blocks_max;
    _Atomic uint32_t blocks;
    _Atomic uint64_t pid;
    _Atomic uint64_t pid_start;
    _Atomic uint64_t started_ns;
    char boot_id[BOOT_ID];
    _Atomic uint64_t gauges[16];
    struct counters_words texts[COUNTERS_TEXTS];
    uint32_t boot_time;
    _Alignas(64) _Atomic uint64_t past_next;
    _Atomic uint64_t folds;
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

/* torture_witness.h - what handlers of the torture program leave behind
 *
 * WHAT   A shared file with a record for each message: how often its handler
 *        was started, how often it came to an end, which, and what it was told.
 *        It is memory that survives a SIGKILL; a message costs some stores to
 *        it. What must not be is noted as it happens (struct torture_fault).
 * WHO    The driver makes the file. Producers and handlers, any number of
 *        processes and threads, open it; all they share is atomic.
 * OWNS   The mapping, until the process ends.
 * FAILS  By ending the process with a line on stderr.
 *
 * A kill may come between begin and end: the record stays open, and the next
 * begin of that message has to say that it is a repeat.
 */
#ifndef TESTS_CRASH_TORTURE_WITNESS_H
#define TESTS_CRASH_TORTURE_WITNESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

#include "tests/crash/torture/torture_message.h"

/* A system call that a worker makes by its first delivery, and else never. */
#define TORTURE_FIRST_CALL SYS_getppid
/* Names of environment variables. */
#define TORTURE_WORLD      "TORTURE_WORLD"      /* path of the file */
#define TORTURE_GENERATION "TORTURE_GENERATION" /* the worker's number */

enum {
    TORTURE_EACH = 1 << 22, /* numbers of a producer between two audits */
    TORTURE_RECORDS = TORTURE_EACH * TORTURE_PRODUCERS,
    TORTURE_SMALL = 1 << 17,  /* tiny messages between two audits */
    TORTURE_EVENTS = 1 << 22, /* the last ones are kept */
    TORTURE_FAULTS = 16,      /* the first ones are told */
};
/* A tiny message has no number: it gets one by its id. */
#define TORTURE_SMALL_BASE (UINT64_C(1) << 40)

/* What must not be; torture_faults names them. */
enum torture_fault_kind {
    TORTURE_NO_FAULT,
    TORTURE_CORRUPT,    /* no message of ours looks like that */
    TORTURE_SILENT_CUT, /* its end is missing, and it does not say so */
    TORTURE_INVENTED,   /* that number was settled long ago, or never sent */
    TORTURE_UNMARKED,   /* a repeat that does not say so */
    TORTURE_ATTEMPT,    /* an attempt number that cannot be */
    TORTURE_OVERLAP,    /* two deliveries of it at once */
    TORTURE_BESIDE,     /* a process of an old worker ran on beside the new */
    TORTURE_PRIORITY,   /* not what it was sent with */
    TORTURE_GROUP,      /* not what it was sent with */
    TORTURE_GROUP_TWO,  /* two deliveries of its group at once */
    TORTURE_GROUP_LATE, /* a later one of its group came to an end before it */
    TORTURE_RAN_ON,     /* it was cancelled before */
    TORTURE_EARLY,      /* it was not due yet */
    TORTURE_FAULT_KINDS,
};
extern const char *const torture_faults[TORTURE_FAULT_KINDS];

/* A record is one 64-bit word; in it: */
struct torture_record {
    unsigned starts;     /* deliveries begun */
    unsigned ends;       /* ... that came to a final verdict */
    unsigned failures;   /* ... that failed */
    unsigned attempt;    /* of the last one */
    unsigned generation; /* worker of the last one, 20 bits */
    unsigned flags;      /* TORTURE_ bits */
};
enum {
    TORTURE_OPEN = 1 << 0,       /* begun and not ended */
    TORTURE_FAILED = 1 << 1,     /* the last one that ended failed */
    TORTURE_INFERRED = 1 << 2,   /* one said that its length is inferred */
    TORTURE_WAS_CUT = 1 << 3,    /* ... and it was shorter */
    TORTURE_MARKED = 1 << 4,     /* one was marked redelivered */
    TORTURE_REPLAYED = 1 << 5,   /* the driver replays it: attempts anew */
    TORTURE_MAY_REPEAT = 1 << 6, /* a replay was cut off: may come unmarked */
    TORTURE_REMOVED = 1 << 7,    /* the driver discards its letter */
    TORTURE_TORN = 1 << 8, /* died of a power cut that the driver feigned */
    TORTURE_CANCELLED = 1 << 9, /* the driver was told so */
    TORTURE_UNANSWERED = 1 << 10,   /* ... was told nothing: it may be so */
    TORTURE_KEY_FREE = 1 << 11, /* its unique key may be free again */
};
struct torture_record torture_record(uint64_t word);
uint64_t torture_word(const struct torture_record *r);

enum { TORTURE_BEGIN, TORTURE_END, TORTURE_FAIL };
struct torture_event {
    uint64_t number;
    uint32_t generation;
    uint8_t what;
    uint8_t attempt;
    uint8_t marked, inferred;
};
struct torture_fault {
    uint64_t number;
    uint64_t record; /* as it was before */
    uint32_t kind, generation, attempt, marked;
    uint64_t other; /* what it collided with, or its size */
};

/* a = atomic   d = the driver writes it, while no handler runs */
struct torture_lane {
    _Alignas(
        64) _Atomic uint64_t running; /* a  generation << 48 | number + 1 */
    /* a  the last number + 1 that came to an end for the first time */
    _Atomic uint64_t last[TORTURE_PRODUCERS][TORTURE_LEVELS];
};
struct torture_small {
    _Atomic uint64_t key; /* a  of its id, size in the lowest byte; 0: free */
    _Atomic uint64_t record;
};
/* Values of dawdle_ms. The long time is for a handler that is cut off in any
 * case, on a machine that may be busy for a while. */
enum { DAWDLE_MS = 20, DAWDLE_LONG_MS = 2000 };

struct torture_world {
    struct torture_terms terms;       /* d  first of all */
    uint64_t base[TORTURE_PRODUCERS]; /* d  before it: audited and settled */
    /* producers */
    _Alignas(64) atomic_bool stop, pause; /* a */
    atomic_uint paused;                   /* a  that wait because of it */
    atomic_uint failed;                   /* a  errno of one that could not */
    atomic_uint dawdle_ms;                /* a  handlers take so long */
    struct {
        _Alignas(
            64) _Atomic uint64_t sent; /* a  messages in the queue so far */
    } producers[TORTURE_PRODUCERS];
    _Atomic uint64_t tiny_sent[TORTURE_TINY]; /* a */
    /* witnesses */
    _Alignas(64) _Atomic uint64_t first_ns; /* a  first delivery, monotonic */
    atomic_uint first_generation;           /* a  of that worker */
    atomic_uint fault_count;                /* a */
    struct torture_fault faults[TORTURE_FAULTS];
    struct torture_lane groups[TORTURE_GROUPS];
    _Alignas(64) _Atomic uint64_t event_count; /* a */
    _Alignas(64) _Atomic uint64_t records[TORTURE_RECORDS];
    struct torture_small small[TORTURE_SMALL];
    struct torture_event events[TORTURE_EVENTS];
};

/* By $TORTURE_WORLD, as the worker of $TORTURE_GENERATION. */
struct torture_world *torture_world_open(void);
/* The driver's: a new one, in memory: on a disk it would cost the time that the
 * worker's files need, and /dev/shm is small in a container. Its path leads to
 * it as long as the driver lives. */
#define TORTURE_PATH 64
struct torture_world *torture_world_make(char path[TORTURE_PATH],
                                         const struct torture_terms *terms);
void torture_world_close(struct torture_world **w); /* sets NULL */

/* What a handler was given. */
struct torture_seen {
    const void *body;
    size_t size;
    const char *id;
    unsigned attempt, priority;
    bool marked, inferred; /* redelivered; length inferred */
    uint64_t not_before;   /* wall clock, ns; 0: at once, or not known */
    const char *group;     /* NULL: none */
    size_t group_size;
};
/* A delivery that is under way. */
struct torture_run {
    struct torture_plan plan;
    _Atomic uint64_t *record; /* NULL: it was not known; say done */
    enum torture_fate fate;   /* what to say in this delivery */
    bool fails;               /* ... or that it failed */
};
void torture_begin(const struct torture_seen *seen, struct torture_run *run);
void torture_end(const struct torture_run *run);

/* Sleep dawdle_ms, so that the driver finds messages that are under way. */
void torture_dawdle(void);

/* The record of a number, NULL: outside of what is under way. */
_Atomic uint64_t *torture_record_of(struct torture_world *w, uint64_t number);

#endif

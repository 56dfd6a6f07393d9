/* torture_witness.h - records of the handlers of the torture program
 *
 * WHAT   A shared file with a record for each message: how often its handler
 *        was started and finished, how, and what it was told. It is memory that
 *        survives a SIGKILL, and a message costs only a few stores. Faults are
 *        recorded as they happen (struct torture_fault).
 * WHO    The driver makes the file. Producers and handlers, in any number of
 *        processes and threads, open it; all shared fields are atomic.
 * OWNS   The mapping, until the process ends.
 * FAILS  By ending the process with a line on stderr.
 *
 * A kill may come between begin and end. The record then stays open, and the
 * next begin of that message must be marked as a repeat.
 */
#ifndef TESTS_CRASH_TORTURE_WITNESS_H
#define TESTS_CRASH_TORTURE_WITNESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

#include "tests/crash/torture/torture_message.h"

/* A system call that a worker makes only at its first delivery. */
#define TORTURE_FIRST_CALL SYS_getppid
/* Names of environment variables. */
#define TORTURE_WORLD      "TORTURE_WORLD"      /* path of the file */
#define TORTURE_GENERATION "TORTURE_GENERATION" /* number of the worker */

enum {
    TORTURE_EACH = 1 << 22, /* messages of a producer between two audits */
    TORTURE_RECORDS = TORTURE_EACH * TORTURE_PRODUCERS,
    TORTURE_SMALL = 1 << 17,  /* tiny messages between two audits */
    TORTURE_EVENTS = 1 << 22, /* events that are kept */
    TORTURE_FAULTS = 16,      /* faults that are kept */
};
/* Tiny messages have no number; their records are numbered from here on. */
#define TORTURE_SMALL_BASE (UINT64_C(1) << 40)

/* Faults; torture_faults has their names. */
enum torture_fault_kind {
    TORTURE_NO_FAULT,
    TORTURE_CORRUPT,    /* the message cannot be one of this run */
    TORTURE_SILENT_CUT, /* its end is missing, without a mark */
    TORTURE_INVENTED,   /* a number that was audited before, or never sent */
    TORTURE_UNMARKED,   /* a repeat that is not marked */
    TORTURE_ATTEMPT,    /* an impossible attempt number */
    TORTURE_OVERLAP,    /* two deliveries at the same time */
    TORTURE_BESIDE,     /* a process of an old worker ran beside the new one */
    TORTURE_PRIORITY,   /* not the priority it was sent with */
    TORTURE_GROUP,      /* not the group it was sent with */
    TORTURE_GROUP_TWO,  /* two deliveries of its group at the same time */
    TORTURE_GROUP_LATE, /* a later message of its group ended before it */
    TORTURE_RAN_ON,     /* it runs after it was cancelled */
    TORTURE_EARLY,      /* it runs before its time */
    TORTURE_FAULT_KINDS,
};
extern const char *const torture_faults[TORTURE_FAULT_KINDS];

/* A record, which is packed into one 64-bit word. */
struct torture_record {
    unsigned starts;     /* deliveries */
    unsigned ends;       /* deliveries with a final verdict */
    unsigned failures;   /* failed deliveries */
    unsigned attempt;    /* of the last delivery */
    unsigned generation; /* worker of the last delivery, 20 bits */
    unsigned flags;      /* TORTURE_ bits */
};
enum {
    TORTURE_OPEN = 1 << 0,       /* started and not finished */
    TORTURE_FAILED = 1 << 1,     /* the last finished delivery failed */
    TORTURE_INFERRED = 1 << 2,   /* a delivery had an inferred length */
    TORTURE_WAS_CUT = 1 << 3,    /* a delivery was shorter than sent */
    TORTURE_MARKED = 1 << 4,     /* a delivery was marked redelivered */
    TORTURE_REPLAYED = 1 << 5,   /* the driver replays it: attempts restart */
    TORTURE_MAY_REPEAT = 1 << 6, /* a replay was killed: it may come unmarked */
    TORTURE_REMOVED = 1 << 7,    /* the driver discards its letter */
    TORTURE_TORN = 1 << 8, /* died of a power cut that the driver simulated */
    TORTURE_CANCELLED = 1 << 9,   /* mqctl reported it as cancelled */
    TORTURE_UNANSWERED = 1 << 10, /* may be cancelled: mqctl was killed */
    TORTURE_KEY_FREE = 1 << 11,   /* its unique key may be free again */
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
    uint64_t record; /* the record before the fault */
    uint32_t kind, generation, attempt, marked;
    uint64_t other; /* the other message, or the size */
};

/* a = atomic   d = written by the driver while no handler runs */
struct torture_lane {
    _Alignas(
        64) _Atomic uint64_t running; /* a  generation << 48 | number + 1 */
    /* a  last number + 1 with a first end */
    _Atomic uint64_t last[TORTURE_PRODUCERS][TORTURE_LEVELS];
};
struct torture_small {
    _Atomic uint64_t key; /* a  hash of id, size in lowest byte; 0: free */
    _Atomic uint64_t record;
};
/* Values of dawdle_ms. The long time is for handlers that are killed in any
 * case, on a machine that may be busy for a while. */
enum { DAWDLE_MS = 20, DAWDLE_LONG_MS = 2000 };

struct torture_world {
    struct torture_terms terms;       /* d  set first */
    uint64_t base[TORTURE_PRODUCERS]; /* d  numbers below it are audited */
    /* producers */
    _Alignas(64) atomic_bool stop, pause; /* a */
    atomic_uint paused;                   /* a  producers that are paused */
    atomic_uint failed;                   /* a  errno of a failed producer */
    atomic_uint dawdle_ms;                /* a  how long handlers take */
    struct {
        _Alignas(64) _Atomic uint64_t sent; /* a  messages sent so far */
    } producers[TORTURE_PRODUCERS];
    _Atomic uint64_t tiny_sent[TORTURE_TINY]; /* a */
    /* witnesses */
    _Alignas(64) _Atomic uint64_t first_ns; /* a  of the first delivery */
    atomic_uint first_generation;           /* a  worker that made it */
    atomic_uint fault_count;                /* a */
    struct torture_fault faults[TORTURE_FAULTS];
    struct torture_lane groups[TORTURE_GROUPS];
    _Alignas(64) _Atomic uint64_t event_count; /* a */
    _Alignas(64) _Atomic uint64_t records[TORTURE_RECORDS];
    struct torture_small small[TORTURE_SMALL];
    struct torture_event events[TORTURE_EVENTS];
};

/* Open the file named by $TORTURE_WORLD, as the worker of
 * $TORTURE_GENERATION. */
struct torture_world *torture_world_open(void);
/* Make a world for the driver, in memory: on disk it would take time from the
 * worker's files, and /dev/shm is small in a container. The path is valid while
 * the driver lives. */
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
    uint64_t not_before;   /* wall clock, ns; 0: not delayed, or unknown */
    const char *group;     /* NULL: none */
    size_t group_size;
};
/* A running delivery. */
struct torture_run {
    struct torture_plan plan;
    _Atomic uint64_t *record; /* NULL: unknown message; report it as done */
    enum torture_fate fate;   /* verdict to give for this delivery */
    bool fails;               /* fail this delivery instead */
};
void torture_begin(const struct torture_seen *seen, struct torture_run *run);
void torture_end(const struct torture_run *run);

/* Sleep for dawdle_ms, so that the driver finds messages in flight. */
void torture_dawdle(void);

/* Return the record of a number; NULL: not between two audits. */
_Atomic uint64_t *torture_record_of(struct torture_world *w, uint64_t number);

#endif

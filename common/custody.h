/* custody.h - memory-mapped slots that hold messages in flight
 *
 * WHAT   A MAP_SHARED file of slots. The kernel writes a message straight into
 *        a slot, so a message is either in the queue or in this file, whatever
 *        kills the process. docs/custody-format has the bytes, docs/lifecycle
 *        what a crash in each state means.
 * WHO    Open, grow, close: the engine, which holds the state directory's lock.
 *        A slot belongs to the one thread that acquired it.
 * OWNS   The file, its mapping, the list of free slots.
 * FAILS  open and grow fill in a problem: 73 cannot be used or no space, 78 of
 *        another version (left untouched). Slot calls cannot fail.
 */
#ifndef COMMON_CUSTODY_H
#define COMMON_CUSTODY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/problem.h"
#include "common/ulid.h"

#define CUSTODY_VERSION    1
#define CUSTODY_BODY_MAX   (16u << 20) /* HARD_MSGSIZEMAX of Linux */
#define SLOT_UNSET         UINT32_MAX  /* priority, length: not known yet */

struct custody; /* opaque; body in custody.c */

enum slot_state { SLOT_FREE, SLOT_RECEIVING, SLOT_HELD, SLOT_RUNNING };

enum {
    SLOT_REDELIVERED = 1 << 0,     /* a handler may have seen it before */
    SLOT_LENGTH_INFERRED = 1 << 1, /* rule: the kill came before the length */
};

/* What changes together is in one 64-bit word, so that each transition is one
 * store: state (8 bits), flags (8), crashes (16), attempt (32). */
struct slot_word {
    enum slot_state state;
    unsigned flags;   /* SLOT_ bits above */
    unsigned crashes; /* times a worker died while a handler had it */
    uint32_t attempt; /* number of this delivery, 1 and up; 0: not started */
};

/* One slot as it is in the file; the body follows. Host byte order. */
struct slot {
    _Atomic uint64_t word;     /*   0  struct slot_word, packed */
    _Atomic uint32_t length;   /*   8  bytes of body; SLOT_UNSET while receiving */
    uint32_t priority;         /*  12  SLOT_UNSET while receiving: nothing yet */
    uint64_t seq;              /*  16  receive sequence, from 1, never twice */
    uint64_t received_ns;      /*  24  wall; 0: died before it was noted */
    uint64_t started_ns;       /*  32  wall; of the running delivery */
    int64_t row;               /*  40  store row this is a run of; 0: none */
    struct ulid id;            /*  48  message id; all 0: not assigned yet */
    uint64_t handler_start;    /*  64  start time of handler's leader, in clock
                                       ticks since boot (proc_pid_stat(5)) */
    int32_t handler_pgid;      /*  72  its process group; 0: none yet */
    uint32_t dirty;            /*  76  body bytes that may differ from the fill */
    uint32_t failures;         /*  80  failed deliveries before this one */
    uint8_t reserved[44];      /*  84 */
    unsigned char body[];      /* 128 */
};

/* What to open. */
struct custody_spec {
    size_t body_bytes;  /* at least this much room for a body: mq_msgsize */
    unsigned slots;     /* slots to have now, 1 and up */
    unsigned slots_max; /* address space reserved for so many (custody_grow) */
};

/* Open or create. A file whose bodies have another size is rebuilt beside it
 * (with what it holds) and renamed over. After a reboot that no orderly close
 * came before, what is in the slots may be torn: see custody_torn. */
int custody_open(struct custody **out, const char *path,
                 const struct custody_spec *spec, struct problem *p);
/* Orderly: everything on disk, marked clean. NULL-safe; sets NULL. */
void custody_close(struct custody **custody);

/* The machine went down without an orderly close: slots are a guess. */
bool custody_torn(const struct custody *c);
/* Random number of this file, for marking its handlers. */
uint64_t custody_nonce(const struct custody *c);
/* What the kernel said of the file system, for a warning at start: NULL fine,
 * else its name ("btrfs", "nfs"). */
const char *custody_file_system_warning(const struct custody *c);
bool custody_locked(const struct custody *c); /* mlock succeeded */
unsigned custody_slots(const struct custody *c);
size_t custody_body_bytes(const struct custody *c);
/* More slots; a crash in between leaves the old number. */
int custody_grow(struct custody *c, unsigned slots, struct problem *p);

/* Call `visit` for each slot that is not FREE, in receive order; before any
 * slot is acquired. RECEIVING slots have been resolved (rule 3): either FREE or
 * HELD. Visited slots belong to the visitor. */
void custody_recover(struct custody *c,
                     void (*visit)(struct slot *slot, void *arg), void *arg);
/* For a RUNNING slot: crashes + 1, HELD, redelivered, in one store. */
void slot_crashed(struct slot *slot);

/* A FREE slot, or NULL if all are taken. Any thread. */
struct slot *custody_acquire(struct custody *c);
/* Give back a FREE slot. Any thread. */
void custody_release(struct custody *c, struct slot *slot);
/* Slots that custody_acquire could give now; a hint. */
unsigned custody_free_slots(const struct custody *c);

/* Receive sequence: the caller serialises peek, receive, and next (one lock
 * around receiving), so that it is the order of the queue. */
uint64_t custody_seq(const struct custody *c); /* the next one */
void custody_seq_used(struct custody *c);      /* it was taken */
/* At start: never below `least` (the store's highest + 1). */
void custody_seq_raise(struct custody *c, uint64_t least);

struct slot_word slot_word(const struct slot *slot);
/* FREE -> RECEIVING, ready for the kernel (rule 2). */
void slot_arm(struct custody *c, struct slot *slot, uint64_t seq);
/* RECEIVING -> FREE: the queue was empty. */
void slot_disarm(struct slot *slot);
/* RECEIVING -> HELD: `length` bytes came. */
void slot_taken(struct slot *slot, uint32_t length, uint64_t received_ns);
/* FREE -> HELD for a stored row; the body was written by the caller. */
void slot_hold_row(struct slot *slot, int64_t row, uint32_t length,
                   const struct slot *meta);
/* HELD -> RUNNING; started_ns is set before. */
void slot_run(struct slot *slot, uint64_t started_ns);
/* RUNNING -> HELD: stopped without a verdict; it may have run. */
void slot_unrun(struct slot *slot, bool may_have_run);
/* any -> FREE: the verdict is durable. */
void slot_retire(struct slot *slot);

#endif

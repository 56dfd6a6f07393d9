/* slot.h - the place of one message in the custody file
 *
 * WHAT   A header and the bytes of a message in flight. Its states are FREE ->
 *        RECEIVING -> HELD -> RUNNING -> FREE.
 * WHO    The source of the worker, and custody.c at the start, on the engine's
 *        thread. A slot belongs to the thread that acquired it from custody.
 * OWNS   Nothing; slots are in the mapped file.
 * FAILS  Never.
 *
 * The order of plain stores protects a message. A kill takes effect between two
 * instructions of a thread, so all stores before that point are in the shared
 * page and none after it; release stores keep the compiler from changing the
 * order. docs/design/lifecycle.md says what a crash in each state means.
 */
#ifndef COMMON_CUSTODY_SLOT_H
#define COMMON_CUSTODY_SLOT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/ulid.h"

#define SLOT_UNSET  UINT32_MAX /* priority, length: not known yet */
#define SLOT_HEADER 128        /* bytes before the body */

#define SLOT_SEQ_MAX (UINT64_C(1) << 62) /* above every seq; no overflow */

enum slot_state { SLOT_FREE, SLOT_RECEIVING, SLOT_HELD, SLOT_RUNNING };

enum {
    SLOT_REDELIVERED = 1 << 0,     /* a handler may have seen the message */
    SLOT_LENGTH_INFERRED = 1 << 1, /* the kill came before the length */
    SLOT_BESIDE = 1 << 2, /* other slots were RUNNING at the last crash */
};

/* Fields that change together share one 64-bit word, so that each transition is
 * one store. In the file: state bits 0-7, flags 8-14, crashes 16-31, attempt
 * 32-63. Bit 15 is not used. */
struct slot_word {
    enum slot_state state;
    unsigned flags;   /* SLOT_ bits above */
    unsigned crashes; /* worker crashes while the message was RUNNING */
    uint32_t attempt; /* number of this delivery, 1 and up; 0: not started */
};

/* Change a row: raise CUSTODY_VERSION. */
struct slot {
    /*   0  struct slot_word */
    _Atomic uint64_t word;
    /*   8  bytes of the message; SLOT_UNSET: receiving */
    _Atomic uint32_t length;
    /*  12  SLOT_UNSET: nothing received yet */
    uint32_t priority;
    /*  16  receive sequence, from 1, never twice */
    uint64_t seq;
    /*  24  wall; 0: the kill came before it was noted */
    uint64_t received_ns;
    /*  32  wall; of the running delivery */
    uint64_t started_ns;
    /*  40  row in the store of which this is a run; 0: none */
    int64_t row;
    /*  48  message id; all 0: none assigned yet */
    struct ulid id;
    /*  64  start of the handler's leader, clock ticks since boot: field 22 of
     *      proc_pid_stat(5) */
    uint64_t handler_start;
    /*  72  the handler's process group; 0: none (yet) */
    _Atomic int32_t handler_pgid;
    /*  76  bytes of the body that may differ from the fill */
    uint32_t dirty;
    /*  80  failed deliveries before this one */
    uint32_t failures;
    /*  84 */
    uint8_t reserved1[4];
    /*  88  number that marks the handler's processes; 0: it is seq */
    uint64_t handler_mark;
    /*  96  check sum of the fields constant while HELD or RUNNING */
    uint64_t sum;
    /* 104 */
    uint8_t reserved2[24];
    /* 128  the message as received */
    unsigned char body[];
};
_Static_assert(sizeof(struct slot) == SLOT_HEADER, "custody format");
_Static_assert(offsetof(struct slot, priority) == 12, "custody format");
_Static_assert(offsetof(struct slot, row) == 40, "custody format");
_Static_assert(offsetof(struct slot, handler_pgid) == 72, "custody format");
_Static_assert(offsetof(struct slot, sum) == 96, "custody format");
_Static_assert(offsetof(struct slot, body) == SLOT_HEADER, "custody format");

/* The pattern of an empty body: its byte i is bytes[i % 4096]. If a kill comes
 * before the length of a message is stored, the message ends where the pattern
 * begins. The bytes are values that never occur in UTF-8, in an order that is
 * random for each file: so the end of text is always found, and binary data
 * matches the pattern only by chance. */
#define SLOT_FILL 4096
struct slot_fill {
    /* Aligned like bodies, so that cache lines are copied whole. */
    _Alignas(64) unsigned char bytes[SLOT_FILL];
};
void slot_fill_init(struct slot_fill *fill, uint64_t seed);

struct slot_word slot_word(const struct slot *slot);

/* Return true if the slot is FREE: its word is 0. */
bool slot_free(const struct slot *slot);

/* FREE -> RECEIVING: prepare for the kernel to write a message. Called by
 * mq_fetch, on the thread that receives, as are slot_warm, slot_disarm and
 * slot_taken. slot_arm and slot_scrub may store 64 bytes, even if the room of
 * the body is smaller. */
void slot_arm(struct slot *slot, const struct slot_fill *fill, uint64_t seq);
/* Take the write fault of each page of a body of `room` bytes, just before the
 * kernel writes to it. The first `from` bytes, which slot_arm has just stored,
 * are skipped. The body stays filled. */
void slot_warm(struct slot *slot, const struct slot_fill *fill, size_t from,
               size_t room);
/* RECEIVING -> FREE: the queue was empty. */
void slot_disarm(struct slot *slot);
/* RECEIVING -> HELD: `length` bytes were received. */
void slot_taken(struct slot *slot, uint32_t length, uint64_t received_ns);
/* FREE -> HELD: run a stored row. The caller has copied its `length` bytes to
 * the body. */
struct slot_meta {
    int64_t row;
    uint32_t length, priority, failures, crashes;
    unsigned flags;
    uint64_t seq, received_ns;
    struct ulid id;
};
void slot_hold(struct slot *slot, const struct slot_meta *meta);
/* Make a received message, which is HELD, a run of that row. Called for a
 * replayed letter, on the thread that took the message. */
void slot_link(struct slot *slot, int64_t row);
/* Make a slot that names a row of a lost store a message without a row, marked
 * as redelivered. Called by custody_bind, on the engine's thread. Does nothing
 * for a slot without a row. */
void slot_unlink(struct slot *slot);
/* HELD -> RUNNING as delivery failures + 1. */
void slot_run(struct slot *slot, uint64_t started_ns);
/* RUNNING -> HELD: the delivery was stopped without a verdict. */
void slot_unrun(struct slot *slot, bool may_have_run);
/* Set a flag of a slot that is HELD or RUNNING. Recovery sets SLOT_BESIDE if
 * several slots were RUNNING, because any of them may have killed the
 * worker. */
void slot_mark(struct slot *slot, unsigned flag);
/* RUNNING -> HELD, at recovery: count one crash of the worker. */
void slot_crashed(struct slot *slot);
/* any -> FREE: the verdict is durable. */
void slot_retire(struct slot *slot);

/* Finish what a dead owner, or a half-finished receive, had begun in a slot.
 * Called on the engine's thread, at the start and at the stop. RECEIVING
 * becomes FREE if the kernel had not written yet, else HELD, with the length
 * that can be inferred. In a HELD or RUNNING slot, a row that slot_link had not
 * finished is removed. `room` is the number of bytes of a body. */
void slot_resolve(struct slot *slot, const struct slot_fill *fill, size_t room);
/* Fill the first `room` bytes of the body of a FREE slot. */
void slot_scrub(struct slot *slot, const struct slot_fill *fill, size_t room);
/* Return the name of a field with an impossible value, or NULL. */
const char *slot_damage(const struct slot *slot, size_t room);

#endif

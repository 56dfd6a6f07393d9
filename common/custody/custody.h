/* custody.h - the file of slots that hold messages in flight
 *
 * WHAT   A MAP_SHARED file of slots. The kernel writes a message straight into
 *        a slot, so a message is either in the queue or in this file, whatever
 *        kills the process. docs/formats/custody.md has the bytes.
 * WHO    Open, recover, close: the engine and mqctl move, with the lock
 *        of the state directory. Grow, acquire and release: any thread;
 *        grow takes as long as slots are large.
 * OWNS   The file, its mapping, the list of free slots.
 * FAILS  A problem: 73 cannot be used or no space, 78 of another version or
 *        damaged (left untouched).
 */
#ifndef COMMON_CUSTODY_CUSTODY_H
#define COMMON_CUSTODY_CUSTODY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/problem.h"
#include "common/custody/slot.h"

#define CUSTODY_VERSION  1
#define CUSTODY_BODY_MAX (16u << 20) /* HARD_MSGSIZEMAX of Linux */

struct custody; /* opaque; body in custody.c */

struct custody_spec {
    size_t
        body_bytes; /* room for a message, at least: the queue's mq_msgsize */
    unsigned slots; /* to have now, 1 and up */
    unsigned slots_max;  /* room that custody_grow may use */
    unsigned slots_more; /* and as many again beyond that, or beyond a
                          * file that has more already */
    const char *aside;   /* folder for the copy of a damaged file, which is to
                          * outlive the machine; NULL: beside the file */
};

/* Open or create. An empty file with another geometry is replaced; one that
 * holds messages and has too little room for a body is rebuilt beside it, with
 * its messages, and renamed over. */
int custody_open(struct custody **out, const char *path,
                 const struct custody_spec *spec, struct problem *p);
/* Everything on disk, marked clean. NULL-safe; sets NULL. */
void custody_close(struct custody **custody);

/* Call `visit` for each slot that is not FREE, in receive order; once, before
 * the first acquire. RECEIVING slots have been resolved; HELD or RUNNING come.
 * A visited slot belongs to the visitor until custody_release. A record that
 * cannot be true is not visited: the file was copied aside (custody_damaged).
 * -ENOMEM, or -errno if it could not be copied. */
int custody_recover(struct custody *c,
                    void (*visit)(struct slot *slot, void *arg), void *arg,
                    struct problem *p);
/* Records set aside by custody_recover; `*copy` names the file. */
unsigned custody_damaged(const struct custody *c, const char **copy);

/* The machine went down without an orderly close: slots may be torn. */
bool custody_torn(const struct custody *c);
/* The torn slots were dealt with; from here on the file is as any other. */
void custody_fix(struct custody *c);
/* Random number of this file, to mark the handlers that belong to it. */
uint64_t custody_nonce(const struct custody *c);
/* Return the number of the store whose rows the slots name; 0: not known. */
uint64_t custody_store(const struct custody *c);
/* Note the store, before custody_recover. If the file names another one, each
 * slot that is a run of a row is a message of its own from here on. */
void custody_bind(struct custody *c, uint64_t store);
/* NULL: the file is in memory (tmpfs). Else the file system it is on, where a
 * kill during writeback can lose the message in hand; `*doubtful`: its pages
 * may also be moved, or are on another machine. */
const char *custody_disk(const struct custody *c, bool *doubtful);
bool custody_locked(const struct custody *c);  /* in memory, by mlock(2) */
size_t custody_bytes(const struct custody *c); /* of the file */
const char *custody_path(const struct custody *c);
bool custody_empty(const struct custody *c); /* holds no message */
unsigned custody_slots(const struct custody *c);
/* What custody_slots will never exceed, however it grows. */
unsigned custody_slots_most(const struct custody *c);
size_t custody_body_bytes(const struct custody *c);
const struct slot_fill *custody_fill(const struct custody *c);
/* More slots, up to custody_slots_most; a crash in between leaves the old
 * number. */
int custody_grow(struct custody *c, unsigned slots, struct problem *p);

/* Return true if the file was removed: its messages end with this process. */
bool custody_is_unnamed(const struct custody *c);

/* A FREE slot, or NULL if all are taken. */
struct slot *custody_acquire(struct custody *c);
/* Give back a slot that is FREE. */
void custody_release(struct custody *c, struct slot *slot);
/* Slots that could be acquired now; a hint unless the caller knows better. */
unsigned custody_free_slots(const struct custody *c);
/* Number of a slot, 0 and up, for logs. */
unsigned custody_index(const struct custody *c, const struct slot *slot);

/* Call `visit` for each slot that is not FREE; nobody else uses any. */
void custody_each(struct custody *c,
                  void (*visit)(struct slot *slot, void *arg), void *arg);

/* Receive sequence. The caller holds one lock around next, receive and used,
 * so that it is the order of the queue. */
uint64_t custody_seq_next(const struct custody *c);
void custody_seq_used(struct custody *c);
/* At start: not below `least` (the store's highest + 1). */
void custody_seq_raise(struct custody *c, uint64_t least);

#endif

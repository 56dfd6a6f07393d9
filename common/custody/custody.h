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

#include "common/base/basics.h"
#include "common/base/boot_id.h"
#include "common/base/problem.h"
#include "common/custody/slot.h"
#include "common/message/header.h"

#define CUSTODY_VERSION  1
#define CUSTODY_BODY_MAX (16u << 20) /* HARD_MSGSIZEMAX of Linux */
#define FILE_HEAD        4096

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
/* Return the size of the file if mlock(2) has not locked it in memory; else 0.
 */
size_t custody_bytes_unlocked(const struct custody *c);
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

/* ---- the header of the file ---- */

/* Host byte order: the file never leaves the machine.
 *   offset size
 *        0    8  magic "MQWCUSTO"
 *        8    4  version (CUSTODY_VERSION)
 *       12    4  bytes of this header (4096)
 *       16    4  bytes of a slot's header (128)
 *       20    4  1: closed in an orderly way, 0: in use or killed
 *       24    8  bytes of a body
 *       32    8  bytes from one slot to the next
 *       40    8  random number of the file
 *       48    8  check sum of bytes 0..19 and 24..47 (FNV-1a)
 *       56    4  number of slots
 *       60    4  start of the machine, s since the epoch; 0: not known
 *       64    8  next receive sequence
 *       72   40  boot id of the machine's run that wrote it, text
 *      112    8  check sum of bytes 60..63 and 72..111, if not clean (FNV-1a)
 *      120    8  number of the store whose rows the slots name; 0: not known
 *     4096       slots
 * Change a row: raise CUSTODY_VERSION. */
struct custody_head {
    char magic[8];
    uint32_t version;
    uint32_t head_bytes;
    uint32_t slot_head_bytes;
    uint32_t clean;
    uint64_t body_bytes;
    uint64_t stride;
    uint64_t nonce;
    uint64_t sum;
    uint32_t slots;
    uint32_t boot_time;        /* with boot_id; 0: not known */
    _Atomic uint64_t next_seq; /* read by any thread */
    char boot_id[BOOT_ID];
    uint64_t owner_sum;
    uint64_t store; /* whose rows the slots name; 0: not known */
};
_Static_assert(offsetof(struct custody_head, body_bytes) == 24,
               "custody format");
_Static_assert(offsetof(struct custody_head, sum) == 48, "custody format");
_Static_assert(offsetof(struct custody_head, boot_id) == 72, "custody format");
_Static_assert(offsetof(struct custody_head, owner_sum) == 112,
               "custody format");
_Static_assert(offsetof(struct custody_head, store) == 120, "custody format");

/* Bytes of a file with that geometry (whole pages). */
size_t custody_file_bytes(size_t stride, unsigned slots);
/* `nonce`: that of a file whose messages go on in this one, as their handlers
 * may still run under its mark; 0: a new one. */
void custody_head_make(struct custody_head *h, size_t body_bytes,
                       unsigned slots, uint64_t next_seq, uint64_t nonce);
/* Name this run of the machine in the header of a clean file, and mark it in
 * use. */
void custody_head_claim(struct custody_head *h, const struct boot *boot);
/* Check that this program can read a file with this header: 0, or a problem. */
int custody_head_check(const struct custody_head *h, const char *path,
                       struct problem *p);

/* ---- seen from another process ---- */

/* Programs beside the worker copy slots from the file while the worker may be
 * changing it. Nothing is written. -errno and a problem: -ENOENT no file, 77 no
 * permission, 78 of another version or damaged. */

/* A copy of a slot, valid during the visit. */
struct custody_seen {
    struct slot_word w; /* HELD or RUNNING; RECEIVING ones are left out */
    struct ulid id;     /* all 0: not named yet */
    int64_t row;        /* 0: none */
    uint32_t priority, failures, size;
    int32_t pgid; /* of the handler; 0: none */
    uint64_t seq, received_ns, started_ns;
    struct header header; /* fields 0: it has none, or a broken one */
    char group[HEADER_VALUE_MAX + 1]; /* as the header says; "" none */
    const void *data; /* a copy of the message, header included */
    size_t data_size; /* of that copy; less than `size`: it was cut short */
};

/* In no order. `visit` returns 0 to go on, else that value ends it and is
 * returned. A slot that changes while it is copied is tried again, then left
 * out: its message is on its way to somewhere else. */
int custody_look(const char *path,
                 int (*visit)(const struct custody_seen *seen, void *arg),
                 void *arg, struct problem *p);

/* 0, also if there is no readable file; 78: of another version or damaged, as
 * custody_open says. *nonce (NULL: not wanted) becomes the random number of the
 * file, which marks its handlers; without one it stays as it is. */
int custody_known(const char *path, uint64_t *nonce, struct problem *p);
/* Whether a file that nobody uses has a message: YES; NO, also if there is no
 * file; or -errno: it cannot be read or understood. */
int custody_holds(const char *path);

#endif

/* custody.h - the file of slots that hold messages in flight
 *
 * WHAT   A MAP_SHARED file of slots. The kernel writes a message straight into
 *        a slot, so a message is either in the queue or in this file, no matter
 *        how the process dies. docs/formats/custody.md has the bytes.
 * WHO    custody_open, _recover, _close: the engine's thread and mqctl move,
 *        while they have the lock of the state directory. custody_grow,
 *        _acquire, _release and the questions: any thread. custody_look,
 *        _known, _holds: any program.
 * OWNS   The file, its mapping, the list of FREE slots.
 * FAILS  A problem: status 73 if the file cannot be used or there is no space,
 *        78 if it is of another version or damaged. The file is then left
 *        untouched.
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
    size_t body_bytes;   /* least room of a slot: the queue's mq_msgsize */
    unsigned slots;      /* number of slots now, 1 and up */
    unsigned slots_max;  /* number that custody_grow has to reach at least */
    unsigned slots_more; /* slots to grow beyond slots_max, or beyond the number
                          * in the file if that is larger */
    const char *aside;   /* folder on disk for the copy of a damaged file; NULL:
                          * the copy is made beside the file */
};

/* Open or create the file. An empty file with another geometry is replaced. A
 * file that holds messages, in slots that are too small, is rebuilt beside it
 * with its messages, and renamed over. */
int custody_open(struct custody **out, const char *path,
                 const struct custody_spec *spec, struct problem *p);
/* Sync the file, mark it clean, and free the struct. Called by the owner of the
 * file, when no other thread uses a slot. NULL-safe; sets NULL. */
void custody_close(struct custody **custody);

/* Make the slots of the last owner usable. Call this once, before the first
 * acquire. RECEIVING slots are resolved. A slot with impossible fields is
 * emptied, after the file was copied (custody_damaged). The slots that are HELD
 * or RUNNING then belong to the caller until custody_release; custody_busy
 * returns them. -ENOMEM, or -errno if the file could not be copied. */
int custody_recover(struct custody *c, struct problem *p);
/* Return how many slots custody_recover has emptied; `*copy` is the path of the
 * copied file, "" if there is none. */
unsigned custody_damaged(const struct custody *c, const char **copy);

/* Return true if the machine went down without an orderly close, so that slots
 * may be torn. */
bool custody_torn(const struct custody *c);
/* Mark a torn file as sound. Called on the engine's thread, after all its slots
 * were recovered. */
void custody_fix(struct custody *c);
/* Return the random number of the file, which marks the handlers of its
 * messages. */
uint64_t custody_nonce(const struct custody *c);
/* Return the number of the store whose rows the slots name; 0: not known. */
uint64_t custody_store(const struct custody *c);
/* Note the number of the store. Called on the engine's thread, before
 * custody_recover. If the file names another store, each slot that names a row
 * becomes a message without a row. */
void custody_bind(struct custody *c, uint64_t store);
/* Return the name of the disk file system that the file is on, where a kill
 * during writeback can lose a message; NULL: it is in memory (tmpfs).
 * `*doubtful`: its pages may also be moved, or are on another machine. */
const char *custody_disk(const struct custody *c, bool *doubtful);
/* Return the size of the file if mlock(2) has not locked it in memory; else 0.
 */
size_t custody_bytes_unlocked(const struct custody *c);
const char *custody_path(const struct custody *c);
/* Return true if no slot holds a message. */
bool custody_empty(const struct custody *c);
unsigned custody_slots(const struct custody *c);
/* Return the number of slots that custody_grow can reach. */
unsigned custody_slots_most(const struct custody *c);
size_t custody_body_bytes(const struct custody *c);
const struct slot_fill *custody_fill(const struct custody *c);
/* Add slots until there are `slots`, up to custody_slots_most. Called on any
 * thread; waits for the disk, because the new slots are written to the file. */
int custody_grow(struct custody *c, unsigned slots, struct problem *p);

/* Return true if the file was removed: its messages are lost when this process
 * exits. */
bool custody_is_unnamed(const struct custody *c);

/* Take a FREE slot. Returns NULL if there is none. */
struct slot *custody_acquire(struct custody *c);
/* Give back a slot that is FREE. */
void custody_release(struct custody *c, struct slot *slot);
/* Return how many slots could be acquired now. Other threads may change it. */
unsigned custody_free_slots(const struct custody *c);
/* Return the number of a slot, 0 and up. */
unsigned custody_index(const struct custody *c, const struct slot *slot);

/* Collect the slots that are not FREE, in receive order, while no other thread
 * uses any. `busy` has room for custody_slots. Returns how many there are. */
size_t custody_busy(struct custody *c, struct slot **busy);

/* Return the receive sequence of the next message. The caller takes a lock
 * before this call, receives the message, calls custody_seq_used, and then
 * releases the lock, so that the sequence is the order of the queue. */
uint64_t custody_seq_next(const struct custody *c);
void custody_seq_used(struct custody *c);
/* Raise the next sequence to `least` if it is lower. Called while no other
 * thread receives. */
void custody_seq_raise(struct custody *c, uint64_t least);

/* ---- the header of the file ---- */

/* Host byte order; file_foreign recognizes the file of another machine. The
 * slots follow at FILE_HEAD. After a change, raise CUSTODY_VERSION. */
struct custody_head {
    char magic[8];
    uint32_t version;         /* CUSTODY_VERSION | FILE_MACHINE */
    uint32_t head_bytes;      /* FILE_HEAD */
    uint32_t slot_head_bytes; /* SLOT_HEADER */
    uint32_t clean;           /* 1: closed in order; 0: in use, or killed */
    uint64_t body_bytes;
    uint64_t stride;           /* bytes from one slot to the next */
    uint64_t nonce;            /* random number of the file */
    uint64_t sum;              /* of bytes 0 to 19 and 24 to 47 (FNV-1a) */
    uint32_t slots;            /* number of slots */
    uint32_t boot_time;        /* with boot_id; 0: not known */
    _Atomic uint64_t next_seq; /* read by any thread */
    char boot_id[BOOT_ID];     /* run of the machine that wrote the file */
    uint64_t owner_sum;        /* of boot_time and boot_id, if not clean */
    uint64_t store;            /* number of the slots' store; 0: not known */
};
_Static_assert(offsetof(struct custody_head, body_bytes) == 24,
               "custody format");
_Static_assert(offsetof(struct custody_head, sum) == 48, "custody format");
_Static_assert(offsetof(struct custody_head, boot_id) == 72, "custody format");
_Static_assert(offsetof(struct custody_head, owner_sum) == 112,
               "custody format");
_Static_assert(offsetof(struct custody_head, store) == 120, "custody format");

/* Return the size of a file with that geometry, in whole pages. */
uint64_t custody_file_bytes(uint64_t stride, unsigned slots);
/* Fill the header of a new file. `nonce`: 0 for a new number; or the number of
 * the file whose messages are copied to this one, because it marks handlers
 * that may still be running. */
void custody_head_make(struct custody_head *h, size_t body_bytes,
                       unsigned slots, uint64_t next_seq, uint64_t nonce);
/* Name this run of the machine in the header of a clean file, and mark it in
 * use. */
void custody_head_claim(struct custody_head *h, const struct boot *boot);
/* Check that this program can read a file with this header. */
int custody_head_check(const struct custody_head *h, const char *path,
                       struct problem *p);

/* ---- seen from another process ---- */

/* Other programs copy slots from the file while the worker may be changing it.
 * They write nothing. They fail with -errno and a problem: -ENOENT for no file,
 * status 77 for no permission, 78 for another version or a damaged file. */

/* A copy of a slot, valid during the visit. */
struct custody_seen {
    struct slot_word w; /* HELD or RUNNING */
    struct ulid id;     /* all 0: not named yet */
    int64_t row;        /* 0: none */
    uint32_t priority, failures, size;
    int32_t pgid; /* process group of the handler; 0: none */
    uint64_t seq, received_ns, started_ns;
    struct header header; /* header.fields 0: no header, or a broken one */
    char group[HEADER_VALUE_MAX + 1]; /* group in the header; "": none */
    const void *data; /* a copy of the message, header included */
    size_t data_size; /* bytes of the copy; below `size` if it was cut short */
};

/* Visit each slot that is HELD or RUNNING, in no order, until `visit` returns
 * something other than 0, which is then returned. A slot that changes while it
 * is copied is copied again, up to eight times, then skipped. */
int custody_look(const char *path,
                 int (*visit)(const struct custody_seen *seen, void *arg),
                 void *arg, struct problem *p);

/* Check a file before it is opened: fails with status 78 if it is of another
 * version or damaged. Returns 0 if there is no readable file. *nonce (NULL: not
 * wanted) becomes the random number of the file, if there is a file. */
int custody_known(const char *path, uint64_t *nonce, struct problem *p);
/* Find out if a file that no worker is using holds messages. Returns YES; NO,
 * also if there is no file; or -errno if it cannot be read or understood. */
int custody_holds(const char *path);

#endif

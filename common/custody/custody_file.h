/* custody_file.h - the custody file as it lies on the disk
 *
 * WHAT   Its header, its geometry, how a new one is made and an old one
 *        checked.
 * WHO    custody*.c only.
 * OWNS   Nothing.
 * FAILS  -errno, or a problem as custody.h says.
 */
#ifndef COMMON_CUSTODY_CUSTODY_FILE_H
#define COMMON_CUSTODY_CUSTODY_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/boot_id.h"
#include "common/base/problem.h"
#include "common/custody/slot.h"

#define FILE_HEAD         4096
#define CUSTODY_SLOTS_MAX (1u << 24)

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
/* Return the run of the machine that a header names. */
struct boot custody_head_boot(const struct custody_head *h);
/* Name this run of the machine in the header of a clean file, and mark it in
 * use. */
void custody_head_claim(struct custody_head *h, const struct boot *boot);
/* What stood in the way of a file. */
void custody_complain(struct problem *p, int err, const char *what,
                      const char *path);
#define custody_problem(p, err, what, path)            \
    __extension__({                                    \
        int custody_err_ = (err);                      \
        custody_complain(p, custody_err_, what, path); \
        problem_code(custody_err_);                    \
    })
/* FREE, filled slots from..to-1, and the rest of the last page. */
int custody_slots_write(int fd, size_t stride, const struct slot_fill *fill,
                        unsigned from, unsigned to);
/* `nonce`: that of a file whose messages go on in this one, as their handlers
 * may still run under its mark; 0: a new one. */
void custody_head_make(struct custody_head *h, size_t body_bytes,
                       unsigned slots, uint64_t next_seq, uint64_t nonce);
/* Check that this program can read a file with this header: 0, or a problem. */
int custody_head_check(const struct custody_head *h, const char *path,
                       struct problem *p);
/* The number of slots of a file of `size` bytes: that of its header, or as many
 * as fit if a slot beyond that number is in use. */
unsigned custody_slots_there(int fd, const struct custody_head *h, off_t size);
/* A complete new file, on the disk when it returns 0; else a problem. */
int custody_file_create(const char *path, const struct custody_head *h, int *fd,
                        struct problem *p);
/* Blocks for slots from..to-1 of a file, now: 0, or a problem with the
 * arithmetic. */
int custody_allocate(int fd, const char *path, size_t stride, unsigned from,
                     unsigned to, struct problem *p);

#endif

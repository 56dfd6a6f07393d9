/* custody_inner.h - the body of struct custody
 *
 * WHAT   What custody.c, custody_map.c, custody_rebuild.c and
 *        custody_recover.c share.
 * WHO    These only.
 */
#ifndef COMMON_CUSTODY_CUSTODY_INNER_H
#define COMMON_CUSTODY_CUSTODY_INNER_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

#include "common/base/file.h"
#include "common/custody/custody.h"
#include "common/custody/custody_file.h"

/* So many bytes at a time of what the kernel does with its locks held; whole
 * pages. */
#define CUSTODY_PIECE ((size_t)4 << 20)

/* c = constant after open   e = engine only   s = under size_mtx
 * m = under mtx   a = atomic */
struct custody {
    char path[PATH_MAX];       /* c */
    char aside[PATH_MAX];      /* c  folder for copies; "": that of path */
    char copy[PATH_MAX];       /* e  damaged file, copied aside; "" none */
    int fd;                    /* s */
    unsigned char *base;       /* c  reserved address space, file mapped at 0 */
    size_t reserved;           /* c  bytes */
    unsigned slots_most;       /* c  there is room for in them */
    pthread_mutex_t size_mtx;  /* the file grows */
    size_t mapped;             /* s  bytes */
    struct custody_head *head; /* c  in the mapping */
    struct slot_fill fill;     /* c */
    size_t stride;             /* c */
    size_t body_bytes;         /* c */
    bool torn;                 /* c */
    atomic_bool locked;        /* a  read by others */
    bool recovered;            /* e  free list is filled */
    unsigned damaged;          /* e */
    char disk[FS_TYPE_TEXT];   /* c  its file system; "": memory */
    bool doubtful;             /* c */
    pthread_mutex_t mtx;
    struct slot **free;          /* m  stack */
    _Atomic unsigned free_count; /* m  read without the lock as a hint */
    unsigned free_room;          /* m */
};

/* All zero and closed; NULL: out of memory. */
struct custody *custody_new(const char *path);
void custody_free(struct custody *c);
/* Open, check and map the file that is there; -ENOENT if none. */
int custody_file_open(struct custody *c, const struct custody_spec *spec,
                      struct problem *p);
/* Forget a file that is to be replaced. */
void custody_file_close(struct custody *c);
/* Whether any record in the mapped file is not FREE. */
bool custody_busy(const struct custody *c);
/* Copy the messages of `old` (NULL: none) to a new file at `path` that fits the
 * spec. */
int custody_rebuild(struct custody *old, const char *path,
                    const struct custody_spec *spec, uint64_t next_seq,
                    struct problem *p);
/* Slot number i. */
struct slot *custody_slot(const struct custody *c, unsigned i);
/* No slot is RECEIVING any more. */
void custody_resolve(struct custody *c);
/* What is mapped from `from` on needs no fault later, as far as we may. */
void custody_pages_ready(struct custody *c, size_t from);
/* The stack of free slots can hold all of them; -ENOMEM. */
int custody_free_room(struct custody *c, unsigned slots);

#endif

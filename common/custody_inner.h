/* custody_inner.h - the body of struct custody
 *
 * WHAT   What custody.c and custody_recover.c share.
 * WHO    These two only.
 */
#ifndef COMMON_CUSTODY_INNER_H
#define COMMON_CUSTODY_INNER_H

#include <limits.h>
#include <pthread.h>

#include "common/custody.h"
#include "common/custody_file.h"

/* c = constant after open   e = engine only   m = under mtx */
struct custody {
    char path[PATH_MAX];       /* c */
    char copy[PATH_MAX];       /* e  damaged file, copied aside; "" none */
    int fd;                    /* c */
    unsigned char *base;       /* c  reserved address space, file mapped at 0 */
    size_t reserved;           /* c  bytes */
    unsigned slots_most;       /* c  there is room for in them */
    size_t mapped;             /* e  bytes */
    struct custody_head *head; /* c  in the mapping */
    struct slot_fill fill;     /* c */
    size_t stride;             /* c */
    size_t body_bytes;         /* c */
    bool torn;                 /* c */
    bool locked;               /* e */
    bool recovered;            /* e  free list is filled */
    unsigned damaged;          /* e */
    const char *fs;            /* c */
    pthread_mutex_t mtx;
    struct slot **free;          /* m  stack */
    _Atomic unsigned free_count; /* m  read without the lock as a hint */
    unsigned free_room;          /* m */
};

/* Slot number i. */
struct slot *custody_slot(const struct custody *c, unsigned i);
/* No slot is RECEIVING any more. */
void custody_resolve(struct custody *c);
/* The stack of free slots can hold all of them; -ENOMEM. */
int custody_free_room(struct custody *c, unsigned slots);

#endif

/* custody_recover.c - what a worker that died left in its slots (see custody.h)
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/file.h"
#include "common/custody/custody_inner.h"

/* copy_aside - the whole file beside itself, before a record is given up */
static int copy_aside(struct custody *c, struct problem *p)
{
    int fd;

    if (c->copy[0])
        return 0;
    if (snprintf(c->copy, sizeof c->copy, "%s%s.damaged.%llu",
                 c->aside[0] ? c->aside : c->path,
                 c->aside[0] ? "/custody" : "",
                 (unsigned long long)clock_wall_ns()) >= (int)sizeof c->copy)
        return custody_problem(p, ENAMETOOLONG, "name", c->path);
    fd = file_create(c->copy, c->base, c->mapped);
    if (fd < 0)
        return custody_problem(p, -fd, "copy aside", c->copy);
    close(fd);
    return 0;
}

/* seq_check - a next sequence that cannot be is found again from the slots and
 * the store */
static int seq_check(struct custody *c, struct problem *p)
{
    int err;

    if (c->head->next_seq <= SLOT_SEQ_MAX) {
        custody_seq_raise(c, 1);
        return 0;
    }
    err = copy_aside(c, p);
    if (!err)
        c->head->next_seq = 1; /* sort_out and the store raise it */
    return err;
}

/* by_seq - receive order */
static int by_seq(const void *a, const void *b)
{
    const struct slot *x = *(struct slot *const *)a;
    const struct slot *y = *(struct slot *const *)b;

    return (x->seq > y->seq) - (x->seq < y->seq);
}

/* sort_out - free slots to the free list, others to `busy`; damaged set
 * aside */
static int sort_out(struct custody *c, struct slot **busy, size_t *n,
                    struct problem *p)
{
    for (unsigned i = 0; i < c->head->slots; i++) {
        struct slot *slot = custody_slot(c, i);
        int err = 0;

        if (slot_damage(slot, c->body_bytes)) {
            err = copy_aside(c, p);
            if (err)
                return err;
            c->damaged++;
            slot_retire(slot);
        }
        if (slot_word(slot).state == SLOT_FREE) {
            slot_scrub(slot, &c->fill, c->body_bytes);
            c->free[c->free_count++] = slot;
        } else {
            busy[(*n)++] = slot;
            /* A header that lost its counter must not give numbers twice. */
            custody_seq_raise(c, slot->seq + 1);
        }
    }
    return 0;
}

int custody_recover(struct custody *c,
                    void (*visit)(struct slot *slot, void *arg), void *arg,
                    struct problem *p)
{
    struct slot **busy = calloc(c->head->slots, sizeof(struct slot *));
    size_t n = 0;
    int err;

    if (!busy || custody_free_room(c, c->head->slots) < 0) {
        free(busy);
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    }
    FAULT_POINT("custody_recover_before_resolve");
    custody_resolve(c);
    err = seq_check(c, p);
    if (!err)
        err = sort_out(c, busy, &n, p);
    if (!err) {
        qsort(busy, n, sizeof(struct slot *), by_seq);
        for (size_t i = 0; i < n; i++) {
            /* the record may be wrong about the bytes to fill */
            busy[i]->dirty = (uint32_t)c->body_bytes;
            visit(busy[i], arg);
        }
        c->recovered = true;
    }
    free(busy);
    return err;
}

/* A process killed before "clean" is stored lets the next start handle the same
 * slots again. After that, the slots are on disk as they are now, so the file
 * counts as closed in order. If the slots cannot be written, the file stays
 * torn. */
void custody_fix(struct custody *c)
{
    struct boot now;

    if (!c->torn || msync(c->base, c->mapped, MS_SYNC) < 0)
        return;
    c->torn = false;
    FAULT_POINT("custody_fix_before_clean");
    c->head->clean = 1;
    boot_now(&now);
    atomic_signal_fence(memory_order_seq_cst);
    custody_head_claim(c->head, &now);
    FAULT_POINT("custody_fix_before_sync");
    (void)msync(c->base, FILE_HEAD, MS_SYNC);
}

unsigned custody_damaged(const struct custody *c, const char **copy)
{
    *copy = c->copy;
    return c->damaged;
}

bool custody_torn(const struct custody *c)
{
    return c->torn;
}

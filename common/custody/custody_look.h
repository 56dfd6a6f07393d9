/* custody_look.h - what is in custody, seen from another process
 *
 * WHAT   Copies of the slots that are not FREE, read from the file while its
 *        worker may be changing it. Nothing is written.
 * WHO    Programs beside the worker; one thread.
 * OWNS   Nothing; visited slots are valid during the visit.
 * FAILS  -errno and a problem: -ENOENT no file, 77 no permission, 78 of another
 *        version or damaged.
 */
#ifndef COMMON_CUSTODY_CUSTODY_LOOK_H
#define COMMON_CUSTODY_CUSTODY_LOOK_H

#include "common/base/basics.h"
#include "common/base/problem.h"
#include "common/custody/slot.h"
#include "common/message/header.h"

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

/* 0, also where there is no file or one that was never written; 78: it is of
 * another version or damaged, as custody_open says. */
int custody_known(const char *path, struct problem *p);

/* Return the random number of the file, which marks its handlers; 0 if there is
 * no readable file. */
uint64_t custody_look_nonce(const char *path);

/* Whether a file that nobody uses has a message: YES; NO, also if there is no
 * file; or -errno: it cannot be read or understood. */
int custody_holds(const char *path);

#endif

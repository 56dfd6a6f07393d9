/* waiting.h - waiting messages as an operator lists, runs and cancels them
 *
 * WHAT   Lists rows that wait for their time or for their group. A list can be
 *        continued after any row. Makes rows due now, or cancels them.
 * WHO    mqctl, in its only thread, with and without a running worker. The
 *        worker calls waiting_steer on a thread of its pool.
 * OWNS   Nothing; visited rows are valid during the visit.
 * FAILS  As store.h.
 */
#ifndef COMMON_STORE_WAITING_H
#define COMMON_STORE_WAITING_H

#include "common/base/basics.h"
#include "common/message/steered.h"
#include "common/store/store.h"

/* Where an unfinished message is. RUNNING messages, and some that are READY,
 * are in custody (custody.h), not in the store. */
enum waiting_state {
    WAITING_RUNNING, /* in a handler */
    WAITING_READY,   /* runs as soon as there is room */
    WAITING_SPOOLED, /* in the spool */
    WAITING_DELAYED, /* until the time that its producer set */
    WAITING_RETRY,   /* failed; until its next attempt */
    WAITING_PARKED,  /* behind the head of its group */
    WAITING_HELD,    /* parked in a group that waits for a dead letter */
    WAITING_STATES,
};
/* Return the name of a state, such as "running". */
const char *waiting_state_text(enum waiting_state state);

#define WAITING_BIT(state) (1u << (state))
#define WAITING_ALL        (WAITING_BIT(WAITING_STATES) - 1)

/* Conditions, all of which must hold. NULL / 0: not given. The last three
 * fields are not conditions. */
struct waiting_filter {
    unsigned states;             /* WAITING_BIT()s that are wanted */
    const char *error_like;      /* error_text_like, of the last error */
    const char *group;           /* exact */
    const char *match;           /* bytes that occur in the body; no pattern */
    uint64_t since_ns, until_ns; /* first received: since <= t < until */
    uint64_t now_ns;             /* wall clock of this call */
    bool holds;                  /* groups wait for their dead letters */
    size_t body_most;            /* bytes of a body that are read */
};

/* A place after a row in the order of waiting_each; all 0: before the first. */
struct waiting_place {
    bool parked; /* the row is parked: no row that waits for its time follows */
    uint64_t at; /* its due time, or if it is parked its receive sequence */
    int64_t row;
    uint32_t priority; /* this and the next two: only if it is parked */
    size_t group_size;
    char group[256];
};

struct waiting_row {
    struct store_row m; /* all fields but `data`; m.group NUL-terminated */
    enum waiting_state state;
    const char *body;       /* after the header, up to body_most */
    size_t body_size;       /* of that part */
    const char *error_text; /* text of m.error (error_text.h); NULL: none */
};

/* Visit matching rows after `place`: first the rows that wait for their time,
 * by due time; then the parked ones, by group and in the order of delivery.
 * Stops when `visit` returns something other than 0, which is then returned. No
 * lock and no transaction is held during a visit. */
int waiting_each(struct store *s, const struct waiting_filter *f,
                 const struct waiting_place *place,
                 int (*visit)(const struct waiting_row *w, void *arg),
                 void *arg);
/* Make the place after a row. */
void waiting_place_of(const struct waiting_row *w, struct waiting_place *out);
/* Visit one row; -ENOENT if there is none, or it is a letter. Only now_ns,
 * holds and body_most of the filter are used. */
int waiting_get(struct store *s, int64_t row, const struct waiting_filter *f,
                int (*visit)(const struct waiting_row *w, void *arg),
                void *arg);

struct waiting_steer {
    bool cancel;         /* discard the messages; else make them due now */
    const int64_t *rows; /* a negative number is minus the key of a spool row */
    size_t count;
    /* Size of the largest message that the running worker can lend; a larger
     * spool row counts as IN_FLIGHT, because it becomes a dead letter. 0: no
     * worker is running. Then any spool row may have run and counts as
     * IN_FLIGHT, unless the last worker stopped in order. */
    size_t most;
    const bool *skip; /* rows that are IN_FLIGHT; NULL: none */
    uint64_t now_ns;  /* wall clock */
    /* Called inside the transaction, on any thread that is writing, before
     * `most` and `skip` are read. If it returns false, nothing is changed and
     * waiting_steer returns -EAGAIN. NULL: always true. */
    bool (*may)(void *arg);
    void *arg;
};
/* Make rows due now, or mark them as cancelled, in one commit. A cancelled row
 * is not listed any more. It stays until a worker takes it: immediately if it
 * waits for its time, else in its turn. A spool row is always due. */
int waiting_steer(struct store *s, const struct waiting_steer *order,
                  enum steered *out);

/* Return YES if the group has a row that waits for a retry, NO, or -errno. */
int waiting_group_blocked(struct store *s, const char *group, size_t size);

#endif

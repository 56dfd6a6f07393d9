/* waiting.h - stored messages that wait, as an operator sees and steers them
 *
 * WHAT   Lists rows that are no letters, page by page, in an order that can be
 *        taken up again after any of them.
 * WHO    As store.h; works with and without a running worker.
 * OWNS   Nothing; visited rows are valid during the visit.
 * FAILS  As store.h.
 */
#ifndef COMMON_STORE_WAITING_H
#define COMMON_STORE_WAITING_H

#include "common/base/basics.h"
#include "common/message/steered.h"
#include "common/store/store.h"

/* Where a message is that has not come to its end. RUNNING and what is READY in
 * a slot are custody's (custody.h). */
enum waiting_state {
    WAITING_RUNNING, /* a handler has it */
    WAITING_READY,   /* may run as soon as there is room */
    WAITING_SPOOLED, /* taken ahead of its turn: the spool's */
    WAITING_DELAYED, /* for the time that its producer gave it */
    WAITING_RETRY,   /* it failed, and waits for its next attempt */
    WAITING_PARKED,  /* behind the head of its group */
    WAITING_HELD,    /* the same, and the group waits for its dead letter */
    WAITING_STATES,
};
/* "running", ... */
const char *waiting_state_text(enum waiting_state state);

#define WAITING_BIT(state) (1u << (state))
#define WAITING_ALL        (WAITING_BIT(WAITING_STATES) - 1)

/* All given conditions must hold. NULL / 0: not given, but for what says so. */
struct waiting_filter {
    unsigned states;             /* WAITING_BIT()s that are wanted */
    const char *error_like;      /* error_text_like, of the last error */
    const char *group;           /* exact */
    const char *match;           /* bytes that occur in the body; no pattern */
    uint64_t since_ns, until_ns; /* first received: since <= t < until */
    uint64_t now_ns;             /* input: wall clock of this call */
    bool holds;       /* a group waits as long as it has a dead letter */
    size_t body_most; /* bytes of a body that are read */
};

/* A place between two rows: all 0 is before the first. */
struct waiting_place {
    bool parked; /* all rows that wait for their time were before it */
    uint64_t at; /* of these: the due time; of a parked one: its seq */
    int64_t row;
    uint32_t priority; /* of a parked one, as what follows */
    size_t group_size;
    char group[256];
};

struct waiting_row {
    struct store_row m; /* all fields but `data`; m.group NUL-terminated */
    enum waiting_state state;
    const char *body;       /* after the header, up to body_most */
    size_t body_size;       /* of that part */
    const char *error_text; /* beside m.error (error_text.h); NULL: nothing */
};

/* Visit matching rows that come after `place`: those that wait for their time
 * by that, then the parked ones by group, and in the order of delivery.
 * `visit` returns 0 to go on, else that value ends and is returned. No lock and
 * no transaction is held then. */
int waiting_each(struct store *s, const struct waiting_filter *f,
                 const struct waiting_place *place,
                 int (*visit)(const struct waiting_row *w, void *arg),
                 void *arg);
/* The place behind a row. */
void waiting_place_of(const struct waiting_row *w, struct waiting_place *out);
/* One row; -ENOENT: it is not there, or a letter. Of the filter, only now_ns,
 * holds and body_most are read. */
int waiting_get(struct store *s, int64_t row, const struct waiting_filter *f,
                int (*visit)(const struct waiting_row *w, void *arg),
                void *arg);

struct waiting_steer {
    bool cancel;         /* it ends as discarded; else: it is due now */
    const int64_t *rows; /* below 0: less the key of a row of the spool */
    size_t count;
    /* Of the worker that runs, the longest message that it can lend: a row of
     * the spool that is longer is IN_FLIGHT, to the letters. 0: none runs, and
     * it is not known which rows of the spool the last one had run: all are,
     * unless it came to an orderly end. */
    size_t most;
    const bool *skip; /* for each row: it is IN_FLIGHT. NULL: none */
    uint64_t now_ns;  /* wall clock */
    /* Asked when nobody else can write, before most and skip are read: false
     * ends the call with -EAGAIN, and nothing has happened. NULL: always. */
    bool (*may)(void *arg);
    void *arg;
};
/* One commit. A row that is cancelled stays until a worker takes it, at once,
 * or one that is parked or of the spool in its turn; it is not listed. One of
 * the spool is due already. */
int waiting_steer(struct store *s, const struct waiting_steer *order,
                  enum steered *out);

/* Whether the group has a row that failed and waits for its retry: YES, NO or
 * -errno. */
int waiting_group_blocked(struct store *s, const char *group, size_t size);

#endif

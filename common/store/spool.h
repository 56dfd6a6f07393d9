/* spool.h - the store's table of spooled messages (--spool)
 *
 * WHAT   One row for each message. The order of the keys is the order in which
 *        the kernel queue would have returned the messages: highest priority
 *        first, then oldest first. A message is either in this table or in the
 *        table of messages: one commit deletes the one row and writes the other
 *        (store_row.spool).
 * WHO    The worker's spool. store_spool_left, _begin, _end: its start and end,
 *        after store_claim. _each, _find, _count: also mqctl.
 * OWNS   Nothing; it uses the store's two connections.
 * FAILS  As store.h.
 */
#ifndef COMMON_STORE_SPOOL_H
#define COMMON_STORE_SPOOL_H

#include "common/store/store.h"

/* A key has 48 bits for the receive sequence, which last nine years at a
 * million messages a second. */
#define STORE_SPOOL_SEQ      48
#define STORE_SPOOL_SEQ_MAX  (UINT64_C(1) << STORE_SPOOL_SEQ)
#define STORE_SPOOL_PRIORITY 32767 /* the highest */

/* Return the key of a message; it is > 0. */
static inline int64_t store_spool_key(uint32_t priority, uint64_t seq)
{
    return (int64_t)((uint64_t)(STORE_SPOOL_PRIORITY - priority)
                     << STORE_SPOOL_SEQ) |
           (int64_t)seq;
}
static inline uint32_t store_spool_priority(int64_t key)
{
    return STORE_SPOOL_PRIORITY - (uint32_t)(key >> STORE_SPOOL_SEQ);
}
static inline uint64_t store_spool_seq(int64_t key)
{
    return (uint64_t)key & (STORE_SPOOL_SEQ_MAX - 1);
}

/* One message. Pointers are borrowed for the call. */
struct store_spooled {
    int64_t key;
    uint64_t received_ns; /* wall */
    struct ulid id;       /* all 0: it has none yet */
    uint32_t crashes;
    uint32_t flags; /* STORE_REDELIVERED, STORE_LENGTH_INFERRED */
    int64_t letter; /* number of the letter that its header names; 0: none */
    const void *data;
    size_t size;
    /* Unique key to claim in the same commit, in the order of `in`; if another
     * message has the key, this one is not inserted. NULL: none. */
    const struct store_key *unique;
    /* Row of the table of messages to insert instead, for a message that waits
     * for its time; of the other fields only `unique` is used. NULL: insert
     * this message. */
    const struct store_row *later;
    bool taken;        /* out: another message has the unique key; */
    struct ulid first; /* out: its id */
};

/* The changes of one commit. */
struct store_spool_change {
    struct store_spooled *in; /* new messages */
    size_t in_count;
    const int64_t
        *out; /* keys of finished messages; missing rows are skipped */
    size_t out_count;
    /* Called after the commit, before anything later is written; NULL: none. */
    void (*durable)(void *arg);
    void *arg;
};
/* Apply all changes or none. -EEXIST: one of the new keys exists already. */
int store_spool_change(struct store *s, const struct store_spool_change *c);

/* Read what the last worker left. While a worker is running, the ends of
 * messages whose rows were not deleted yet are in the file of ends (ends.h),
 * which has a number. */
struct store_spool_left {
    uint64_t seq; /* highest receive sequence of a row; 0: no row */
    uint64_t run; /* number of the file of ends; 0: the end was orderly */
    bool cut;     /* the machine went down under the last worker */
    /* Rows up to this receive sequence may have run, because an earlier file of
     * ends was lost. */
    uint64_t doubt;
};
int store_spool_left(struct store *s, struct store_spool_left *out);
/* Record that a worker runs messages of the table from now on, with the number
 * of its file of ends. */
int store_spool_begin(struct store *s, uint64_t run, uint64_t doubt);
/* Record an orderly end: no message of the table is running, and the rows of
 * all finished messages were deleted. */
int store_spool_end(struct store *s);

/* Read rows after the key `after`, in order, as long as their bodies fit into
 * `data`. Returns how many, or -errno; -EMSGSIZE: the first body does not fit,
 * and rows[0] has its key and size. */
int store_spool_read(struct store *s, int64_t after, struct store_spooled *rows,
                     size_t most, void *data, size_t room);
/* Visit all rows after that key, without an open transaction, until `visit`
 * returns something other than 0, which is then returned. */
int store_spool_each(struct store *s, int64_t after,
                     int (*visit)(const struct store_spooled *m, void *arg),
                     void *arg);
/* Find a row; -ENOENT. *cancelled (may be NULL) is set if an operator cancelled
 * the message. */
int store_spool_find(struct store *s, int64_t key, bool *cancelled);
/* Set id, crashes and flags of a row whose message ran without a verdict;
 * -ENOENT. */
int store_spool_note(struct store *s, const struct store_spooled *m);

/* Read the number of rows, for any program. -errno. */
int64_t store_spool_count(struct store *s);

#endif

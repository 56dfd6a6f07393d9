/* spool.h - the table of messages that came faster than they run
 *
 * WHAT   One row a message, whose key is the order in which the kernel would
 *        have given them: highest priority first, then oldest first. No
 *        message is in here and in the table of messages: it leaves the one in
 *        the commit that writes it to the other (store_row.spool).
 * WHO    store_spool_left, _begin, _end: the worker, after store_claim. Others
 *        as store.h.
 * OWNS   Nothing of its own; the store's two connections.
 * FAILS  As store.h.
 */
#ifndef COMMON_STORE_SPOOL_H
#define COMMON_STORE_SPOOL_H

#include "common/store/store.h"

/* Receive sequences are below it: at a million messages a second it is reached
 * in nine years. */
#define STORE_SPOOL_SEQ      48 /* bits */
#define STORE_SPOOL_SEQ_MAX  (UINT64_C(1) << STORE_SPOOL_SEQ)
#define STORE_SPOOL_PRIORITY 32767 /* the highest */

/* Return the key of a message, which sorts as the spool does and is > 0. */
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
    int64_t letter; /* its header says that it is that letter; 0: none */
    const void *data;
    size_t size;
    /* It comes in only if it gets this key, in the same commit; NULL: it asks
     * for none. Those of one commit ask in their order in it. */
    const struct store_key *unique;
    /* It waits for its time, not for its turn: this row comes in, of the table
     * of messages, and nothing else of the above but `unique` is read. NULL: it
     * waits for its turn. */
    const struct store_row *later;
    bool taken;        /* out: it did not, and did not come in; it was ... */
    struct ulid first; /* out: ... of this message */
};

/* What one commit does; all or nothing. */
struct store_spool_change {
    struct store_spooled *in; /* new ones */
    size_t in_count;
    const int64_t *out; /* keys of those that came to their end; one that is not
                         * there is none */
    size_t out_count;
    /* Once it is on the disk, before anything later is written; NULL: none. */
    void (*durable)(void *arg);
    void *arg;
};
/* -EEXIST: one of the new keys is there. */
int store_spool_change(struct store *s, const struct store_spool_change *c);

/* What the last worker left. Ends of messages whose rows are there still are
 * noted in a file in memory, which has a number. */
struct store_spool_left {
    uint64_t seq; /* the highest receive sequence; 0: none */
    uint64_t run; /* that number; 0: it came to an orderly end */
    bool cut;     /* the machine went down under it */
    /* What has a receive sequence up to this one may have run, although it is
     * here; as the worker before that one found it. */
    uint64_t doubt;
};
int store_spool_left(struct store *s, struct store_spool_left *out);
/* From here on a worker runs messages of the table, until store_spool_end, and
 * notes their ends in the file with that number. Durable on 0. */
int store_spool_begin(struct store *s, uint64_t run, uint64_t doubt);
/* No message of it runs, and none that came to its end is in it. */
int store_spool_end(struct store *s);

/* Rows after the key `after`, in their order, as long as their bodies find room
 * in `data`; how many, or -errno. The first one does not: -EMSGSIZE, its key
 * and size are in rows[0]. */
int store_spool_read(struct store *s, int64_t after, struct store_spooled *rows,
                     size_t most, void *data, size_t room);
/* Visit all after that key, page by page; no transaction is open then. `visit`
 * returns 0 to go on, else that value ends and is returned. */
int store_spool_each(struct store *s, int64_t after,
                     int (*visit)(const struct store_spooled *m, void *arg),
                     void *arg);
/* Whether it is there: 0 or -ENOENT. `cancelled` (NULL: not asked): whether an
 * operator cancelled it. */
int store_spool_find(struct store *s, int64_t key, bool *cancelled);
/* It ran and came to no end: id, crashes and flags as in `m`. -ENOENT. */
int store_spool_note(struct store *s, const struct store_spooled *m);

/* How many there are: known from store_spool_left on, and exact as soon as a
 * write of ours has returned. */
int64_t store_spooled(const struct store *s);
/* The same as any program may ask, by the last commit; -errno. */
int64_t store_spool_count(struct store *s);
/* The same of those that were cancelled. */
int64_t store_spool_count_cancelled(struct store *s);

#endif

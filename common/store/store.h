/* store.h - messages that must survive a reboot: retries, dead letters, history
 *
 * WHAT   One SQLite file a queue, WAL mode, full sync. A row is one message in
 *        one of four states; its failed deliveries hang on it.
 * WHO    Any thread. Concurrent writers share one commit: the first one runs
 *        the transaction for all that queue up during it. Other programs open
 *        the same file while the worker is running.
 * OWNS   Two connections (one to write, one to read), each under its own lock.
 * FAILS  disk_is_full, -EIO, -EUCLEAN damaged, -EBUSY locked by another program
 *        for longer than 5 s, -ENOENT no such row, -ENOMEM. When a write
 *        returns 0, its data is on disk; when a write fails, nothing has
 *        changed. open: a problem with status 73 (cannot be used, no database)
 *        or 78 (of another version, left untouched).
 */
#ifndef COMMON_STORE_STORE_H
#define COMMON_STORE_STORE_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "common/base/problem.h"
#include "common/base/ulid.h"
#include "common/message/error_text.h"

struct store; /* opaque; body in store.c */
struct slot;  /* slot.h */

enum store_state {
    STORE_WAITING = 1, /* due at due_ns */
    STORE_PARKED,      /* behind the head of its group */
    STORE_DEAD,        /* a dead letter */
    STORE_REPLAYED,    /* a dead letter on its way through the queue again */
};

enum {
    STORE_REDELIVERED = 1 << 0,     /* may have run without a verdict */
    STORE_LENGTH_INFERRED = 1 << 1, /* custody rule 3 */
    /* WAITING: a letter that was sent again, and a worker that stopped had it:
     * the first of its group, which waits for it as for a letter. */
    STORE_FRONT = 1 << 2,
    /* An operator cancelled it: it is not run, and ends as discarded. No write
     * of a worker takes this back. */
    STORE_CANCELLED = 1 << 3,
    /* DEAD, REPLAYED: its group does not wait for it: an operator let it go on,
     * or it was closed, and refused this one. It holds the group when it dies
     * again. */
    STORE_LET_GO = 1 << 4,
};

/* One message. Pointers are borrowed for the call. */
struct store_row {
    int64_t row; /* 0: not stored yet. Never used twice (AUTOINCREMENT) */
    enum store_state state;
    uint64_t receive_seq; /* of the custody slot; unique here; 0: none */
    struct ulid id;
    uint32_t priority;
    uint32_t attempts; /* failed deliveries in this life */
    uint32_t crashes;
    uint32_t flags;    /* STORE_ bits above */
    const char *group; /* NULL: none */
    size_t group_size;
    uint64_t due_ns; /* wall; of STORE_WAITING */
    /* On a write of a row with `delay_ns`: the end of the delay by
     * CLOCK_BOOTTIME, used instead of due_ns; 0: use due_ns. Always 0 on a
     * read. */
    uint64_t due_boot_ns;
    /* Length of the delay, which does not change when the wall clock is set; 0:
     * due_ns is an instant of the wall clock. */
    uint64_t delay_ns;
    uint64_t first_received_ns; /* wall */
    uint64_t died_ns;           /* wall; of dead and replayed */
    enum dead_reason reason;    /* of dead and replayed */
    const char *error;          /* how the last delivery ended; NULL: none */
    const void *data;           /* as received, header included */
    size_t size;
    size_t header_size; /* bytes of `data` before the body */
    /* Key of the message in the spool (spool.h), which it leaves in the commit
     * that writes this row. 0: not in the spool; always 0 when read. */
    int64_t spool;
    /* Slot of the message in custody. `retire` frees the slot as soon as the
     * row is on the disk, before anything later is written. NULL: no slot;
     * always NULL when read. */
    struct slot *slot;
    void (*retire)(struct slot *slot);
};

/* A row in the order of a time, such as that of its death. */
struct store_cursor {
    uint64_t ns;
    int64_t row;
};
#define STORE_PAGE 64 /* rows that are read at a time */

/* A token names one replay of a letter: from the moment at which an operator
 * marks it until it is settled. Its first half is the store's own, as the
 * number of a letter means nothing to another store; the other half is
 * random. */
#define STORE_IDENTITY 8 /* bytes of the first half */
/* -errno of getrandom(2). */
int store_token_make(const struct store *s, struct ulid *token);

/* The kind of a message whose header names a letter. */
enum store_replay {
    REPLAY_NONE, /* no replay of this store: of another one, or made up */
    REPLAY_OPEN, /* the last replay, which is not settled yet */
    REPLAY_OVER, /* a replay that was taken, and has failed and waits in the
                  * store, or is settled; or an earlier replay */
};
/* Look up the letter, id and token of a message's header. The message of an
 * OPEN replay may be in a slot. */
int store_replay_find(struct store *s, int64_t row, const struct ulid *id,
                      const struct ulid *token, enum store_replay *out);

/* One failed delivery. */
struct store_attempt {
    uint64_t started_ns; /* wall */
    uint64_t duration_ns;
    const char *error;       /* "exit 1", "signal 11", "timeout 5s", ... */
    const char *stderr_tail; /* at most 4 KiB; any bytes */
    size_t stderr_size;
    bool said; /* the handler itself gave the error */
};

/* Open a store. If the file is missing, it is made with mode 0600 if `create`
 * is set; else this returns -ENOENT. */
int store_open(struct store **out, const char *path, bool create,
               struct problem *p);
void store_close(struct store **store); /* NULL-safe; sets NULL */
/* Announce that the worker is about to stop. From then on a write fails with
 * -EBUSY if another program keeps the store locked for 2 s. NULL-safe. */
void store_hurry(struct store *s);
/* Make sure that an unfinished commit of the last worker does not appear later.
 * The worker calls this before it looks up its slots in the store. *last is the
 * result of store_commits, and is from here on the number of the last commit on
 * the disk. With `last` NULL, commits get no numbers. On an error, the problem
 * is one of store_open. */
int store_claim(struct store *s, _Atomic uint64_t *last, struct problem *p);
/* Return the random number of the store's file. Never 0. */
uint64_t store_id(const struct store *s);
/* Before that: the number of the last commit that the store has, 0 if there is
 * none, UINT64_MAX if it cannot be read. If it is less than *last of the last
 * worker, the commits after it are lost. */
uint64_t store_commits(struct store *s);
#define STORE_FOUND 256
/* Check the whole store with SQLite's quick_check over a separate connection:
 * 0, or -EUCLEAN and a description. Returns -ECANCELED soon after *stop is set
 * (`stop` may be NULL). The time grows with the file; writers are not
 * blocked. */
int store_check(struct store *s, const atomic_bool *stop,
                char found[STORE_FOUND]);
/* Return the size of the file and its -wal, bytes. */
uint64_t store_bytes(struct store *s);
/* Copy the file and its -wal, as they are, to `copy` and `copy`-wal beside
 * them. -errno: there is no copy, or a part of it. */
int store_set_aside(struct store *s, char copy[PATH_MAX]);

/* Make due times follow the wall clock; called by the worker after store_claim
 * and when the clock was set. A delay keeps its remaining length, and an
 * instant of the wall clock stays that instant. After a restart of the machine,
 * which may have lost the time, no row waits longer than its delay. At most one
 * commit, all or nothing. */
int store_clock_follow(struct store *s);

/* Set the function that a writing thread calls whenever the -wal is over 8 MiB
 * because readers keep it from being overwritten. Call this before the first
 * write. */
void store_watch_wal(struct store *s, void (*large)(void *arg), void *arg);
/* Empty the -wal: 0, -EBUSY if readers are in the way for 100 ms, or -errno. */
int store_empty_wal(struct store *s);

/* The worker, when the file of its store, its -wal or its -shm was removed:
 * write the whole store to `path` again, durably, and go on with that file.
 * Readers and writers wait meanwhile. `replace`: two files that the copy may
 * replace; NULL: none. -EEXIST: another file is there. After any other failure
 * an unused copy may be at `path`, which the next try replaces. One thread at a
 * time. */
int store_put_back(struct store *s, const char *path,
                   const struct stat replace[2], struct problem *p);

struct store_stats {
    uint64_t commits; /* transactions */
    unsigned waiting; /* calls that wait for a commit to end now */
};
/* Since it was opened. */
void store_stats(struct store *s, struct store_stats *out);

/* ---- the worker's writes; each durable on return ---- */

/* Write `m` in the state m->state: a new row when m->row is 0 (then *row is
 * set; it may point to m->row), else that row, whose body stays as it is.
 * `attempt` (NULL: none) is added to the history. A row that is gone (an
 * operator discarded it): -ENOENT. A new row whose receive_seq is in the table
 * already: -EEXIST, nothing written. */
int store_put(struct store *s, const struct store_row *m,
              const struct store_attempt *attempt, int64_t *row);
/* Write several as store_put would, without attempts, in one commit, all or
 * nothing. One whose receive_seq is in the table already is left as it is, and
 * one whose row is gone (discarded) stays away. */
int store_put_all(struct store *s, const struct store_row *rows, size_t n);
/* A key that a message has for a while, and no other one. */
struct store_key {
    const char *text;
    size_t size;
    uint64_t seq;                   /* of the message */
    struct ulid id;                 /* of the message */
    uint64_t received_ns, until_ns; /* wall */
};
/* 0: the message has the key, now or since it was here before; -EEXIST: at
 * received_ns another message, *first, had it. */
int store_key_claim(struct store *s, const struct store_key *key,
                    struct ulid *first);
/* Free the unique key, if any, of the message with that receive sequence. */
int store_key_free(struct store *s, uint64_t seq);
/* Free a unique key; -ENOENT if no message has it. */
int store_key_drop(struct store *s, const char *text, size_t size);
/* Visit each key in use at `now_ns` or later, in the order of the keys; `seq`
 * is 0. A result of `visit` other than 0 stops the visit and is returned. */
int store_keys_each(struct store *s, uint64_t now_ns,
                    int (*visit)(const struct store_key *key, void *arg),
                    void *arg);
int64_t store_keys_count(struct store *s, uint64_t now_ns); /* or -errno */
/* Delete the row and its history: done or discarded. A row that is gone: 0. */
int store_delete(struct store *s, int64_t row);
/* From here on each row that store_put makes DEAD is noted for letters_hook, in
 * the same commit. */
void store_hooks_note(struct store *s);
/* Make letters dead again that were marked replayed under another boot id, or
 * in another IPC namespace (a container that was restarted): the kernel queue
 * that they were in is gone. Letters that `skip` holds were taken out of that
 * queue and stay (called with the row, no lock held; NULL: none). Returns their
 * number, or -errno, when some may be dead again; -ENOENT: /proc does not tell
 * the boot id. */
int store_recall(struct store *s, bool (*skip)(int64_t row, void *arg),
                 void *arg);
/* Mark all messages that wait: custody is gone, and one of them may have run
 * without a verdict. */
int store_doubt(struct store *s);

/* ---- the worker's reads ---- */

/* Read up to `room` rows in state WAITING that are due at `boot_ns`
 * (CLOCK_BOOTTIME): highest priority first, then earliest due time, then lowest
 * receive_seq. Rows for which `skip` returns true are left out (called without
 * a lock; NULL: skip none). Returns the number of rows. *next_ns is when the
 * next of the other rows becomes due, by the same clock; UINT64_MAX if there is
 * none. */
int store_due(struct store *s, uint64_t boot_ns, int64_t *rows, size_t room,
              bool (*skip)(int64_t row, void *arg), void *arg,
              uint64_t *next_ns);
/* Read a row; its data goes to `data` (`room` bytes; -EMSGSIZE if it is larger,
 * NULL: not read), its group to `group` (256 bytes, NULL: not read).
 * out->error is NULL. */
int store_get(struct store *s, int64_t row, struct store_row *out, void *data,
              size_t room, char *group);
/* The row with that receive_seq, or -ENOENT. */
int store_find_seq(struct store *s, uint64_t receive_seq, int64_t *row);
/* The newest row of a message, or -ENOENT. Reads all that waits. */
int store_find_id(struct store *s, const struct ulid *id, int64_t *row);
/* Highest receive_seq in the table and of a key, 0 if none. */
int store_max_seq(struct store *s, uint64_t *receive_seq);
/* Rows that are no letters: WAITING or PARKED. Known from store_claim on, and
 * exact as soon as a write of ours has returned: no other program writes such
 * rows. A row whose message runs counts until it is settled. */
int64_t store_waits(const struct store *s);
/* How many of these are PARKED, and how many WAITING. A write of another thread
 * meanwhile may be seen in a part. */
int64_t store_parked(const struct store *s);
int64_t store_waiting(const struct store *s);
/* Number of rows in a state, or -errno. */
int64_t store_count(struct store *s, enum store_state state);
/* Times at which messages were first received, wall clock, ns; 0: no
 * message. */
struct store_ages {
    uint64_t waiting; /* the WAITING row that was stored first */
    uint64_t parked;
    uint64_t spooled; /* the next row to run */
    uint64_t newest;  /* the last received of all rows with a sequence */
};
void store_ages(struct store *s, struct store_ages *out);
/* How many of the rows that are WAITING or PARKED were cancelled: with no
 * worker they stay until the next one ends them. -errno. */
int64_t store_count_cancelled(struct store *s, enum store_state state);
/* Lowest row > after that is DEAD, or -ENOENT: for moving letters in order of
 * death: ordered by (died_ns, row); `after_ns`/`after` name the last one
 * seen. */
int store_next_dead(struct store *s, uint64_t after_ns, int64_t after,
                    int64_t *row);

/* ---- ordered groups ---- */

/* The parked row of a group that is next: highest priority, then lowest
 * receive_seq; with `low` the lowest priority. -ENOENT if there is none. */
struct store_parked {
    int64_t row;
    uint32_t priority;
    uint64_t receive_seq;
};
int store_next_parked(struct store *s, const char *group, size_t size, bool low,
                      struct store_parked *out);
/* Whether the group has a letter that may hold it, dead, replayed or
 * STORE_FRONT: 0 and its row, -ENOENT. */
int store_group_letter(struct store *s, const char *group, size_t size,
                       int64_t *row);
/* Step through all groups that have rows, in the order of their keys. `key` and
 * `size` hold the last one seen, "" and 0 at first, and get the next one
 * (at most 256 bytes). -ENOENT at the end. */
struct store_group {
    uint64_t parked; /* rows behind the head */
    bool letters;    /* dead or replayed, and not STORE_LET_GO */
    int64_t head;    /* a row that failed and waits for its retry, or else the
                       * first that is STORE_FRONT; 0: none */
};
int store_next_group(struct store *s, char *key, size_t *size,
                     struct store_group *out);
/* One of them; -ENOENT: it has no row. */
int store_get_group(struct store *s, const char *key, size_t size,
                    struct store_group *out);

#endif

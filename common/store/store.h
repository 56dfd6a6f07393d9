/* store.h - messages that must survive a reboot: retries, dead letters, history
 *
 * WHAT   One SQLite file for each queue, in WAL mode with full sync. A row is
 *        one message in one of four states, with its failed deliveries.
 * WHO    The worker on any thread, and mqctl, mqdlq and others beside it, with
 *        the same file open. Threads that write at the same time share one
 *        commit: one of them writes for all.
 * OWNS   Two connections (one to write, one to read), each under its own lock.
 * FAILS  No room: -ENOSPC, -EDQUOT or -EFBIG. -EIO, -EUCLEAN damaged, -EBUSY
 *        locked by another program for longer than 5 s, -ENOENT no such row,
 *        -ENOMEM. When a write returns 0, its data is on disk; when a write
 *        fails, nothing has changed. store_open: a problem with status 73
 *        (cannot be used, no database) or 78 (of another version, left
 *        untouched).
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
#include "common/base/process_stat.h"
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
    STORE_LENGTH_INFERRED = 1 << 1, /* SLOT_LENGTH_INFERRED */
    /* WAITING: a replayed letter that a stopping worker put back. It is the
     * first of its group, which waits for it. */
    STORE_FRONT = 1 << 2,
    /* Cancelled by an operator: the message is discarded instead of run. A
     * worker never clears this flag. */
    STORE_CANCELLED = 1 << 3,
    /* DEAD, REPLAYED: the group does not wait for this letter, because an
     * operator released the group, or the letter was refused by a closed group.
     * Cleared when the letter dies again. */
    STORE_LET_GO = 1 << 4,
};

#define STORE_GROUP_MAX 256 /* bytes of a group, as a header's value */

/* One message. Pointers are borrowed for the call. */
struct store_row {
    int64_t row; /* never used twice (AUTOINCREMENT); 0: not stored yet */
    enum store_state state;
    uint64_t receive_seq; /* of the custody slot; unique here; 0: none */
    struct ulid id;
    uint32_t priority;
    uint32_t attempts; /* failed deliveries since it was sent, or replayed */
    uint32_t crashes;
    uint32_t flags;    /* STORE_ bits above */
    const char *group; /* NULL: none */
    size_t group_size; /* at most STORE_GROUP_MAX */
    uint64_t due_ns;   /* wall; of STORE_WAITING */
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
    /* Key of the message's row in the spool (spool.h), which is deleted in the
     * commit that writes this row; 0: none. Always 0 when read. */
    int64_t spool;
    /* Slot of the message in custody. `retire` frees the slot as soon as the
     * row is on the disk, before anything later is written. NULL: no slot;
     * always NULL when read. */
    struct slot *slot;
    void (*retire)(struct slot *slot);
    /* On a write that makes the row DEAD: note the death for letters_hook, in
     * the same commit. Always false when read. */
    bool hook;
};

/* A row in the order of a time, such as that of its death. */
struct store_cursor {
    uint64_t ns;
    int64_t row;
};
#define STORE_PAGE 64 /* rows that are read at a time */

/* Make a token, which names one replay of a letter from the time an operator
 * marks the letter until its message is settled. The first half is the store's
 * identity, because another store has other letters with the same numbers; the
 * second half is random. */
#define STORE_IDENTITY 8 /* bytes of the first half */
int store_token_make(const struct store *s, struct ulid *token);

/* The kind of a message whose header names a letter. */
enum store_replay {
    REPLAY_NONE, /* no replay of a letter of this store */
    REPLAY_OPEN, /* the letter's last replay, not settled yet */
    REPLAY_OVER, /* an earlier replay; or the last replay if its message was
                  * settled, or has failed and waits for its retry */
};
/* Look up the letter, id and token of a message's header. Another copy of the
 * message of an OPEN replay may be in a slot, which the caller checks. */
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
    struct usage usage;
};

/* Open a store. If the file is missing, it is made with mode 0600 if `create`
 * is set; else this returns -ENOENT. */
int store_open(struct store **out, const char *path, bool create,
               struct problem *p);
/* The state of a store's files at some time; all 0: none. */
struct store_mark {
    struct {
        dev_t dev;
        ino_t ino;
        off_t size;
        struct timespec written, changed;
    } files[3];
    uint32_t index[12]; /* the head of the -shm, which each commit changes */
};
/* Return true if nothing was committed since the mark was made, and make a new
 * mark. The files are not opened as a store, which would disturb its worker.
 * This process must not have the store open. */
bool store_unchanged(const char *path, struct store_mark *mark);
void store_close(struct store **store); /* NULL-safe; sets NULL */
/* Announce that the worker is about to stop. From then on a write fails with
 * -EBUSY if another program keeps the store locked for 2 s. NULL-safe. */
void store_hurry(struct store *s);
/* Make sure that an unfinished commit of the last worker does not appear later.
 * The worker calls this before it looks up its slots in the store. The caller
 * sets *last to the result of store_commits; each commit then sets *last to its
 * own number once it is on disk. With `last` NULL, commits get no numbers. On
 * an error, the problem is one of store_open. */
int store_claim(struct store *s, _Atomic uint64_t *last, struct problem *p);
/* Return the number of the last commit in the store, before store_claim; 0 if
 * there is none, UINT64_MAX if it cannot be read. If it is less than *last of
 * the last worker, the commits after it are lost. */
uint64_t store_commits(struct store *s);
/* Return the random number of the store's file. Never 0. */
uint64_t store_id(const struct store *s);
#define STORE_FOUND 256
/* Check the whole store with SQLite's quick_check over a separate connection:
 * 0, or -EUCLEAN and a description. Returns -ECANCELED soon after *stop is set
 * (`stop` may be NULL). The time grows with the file; writers are not
 * blocked. */
int store_check(struct store *s, const atomic_bool *stop,
                char found[STORE_FOUND]);
/* Return the size of the file and its -wal, bytes. */
uint64_t store_bytes(struct store *s);
/* Copy the file and its -wal, as they are, to `copy` and `copy`-wal in the same
 * folder. After an error the copy may be incomplete. */
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

/* Write the whole store to `path` again, durably, and use that file from then
 * on. The worker calls this, one thread at a time, when the store's file, its
 * -wal or its -shm was removed. Readers and writers wait meanwhile. `replace`:
 * two files that the copy may replace; NULL: none. -EEXIST: another file is
 * there. After any other error an unused copy may be at `path`, which the next
 * try replaces. */
int store_put_back(struct store *s, const char *path,
                   const struct stat replace[2], struct problem *p);

/* ---- the worker's writes; each durable on return ---- */

/* Write a row: insert a new one if m->row is 0, else update that row but for
 * its body. *row gets its number, and may be m->row. `attempt` (NULL: none) is
 * added to the history. -ENOENT: the row is gone, because an operator discarded
 * it. -EEXIST: a row with this receive_seq exists already, and nothing was
 * written. */
int store_put(struct store *s, const struct store_row *m,
              const struct store_attempt *attempt, int64_t *row);
/* Write several rows as store_put does, without attempts, in one commit: all or
 * none. A row that store_put would refuse with -ENOENT or -EEXIST is
 * skipped. */
int store_put_all(struct store *s, const struct store_row *rows, size_t n);
/* A unique key: until it expires, other messages with it are duplicates. */
struct store_key {
    const char *text;
    size_t size;
    uint64_t seq;                   /* of the message */
    struct ulid id;                 /* of the message */
    uint64_t received_ns, until_ns; /* wall */
};
/* Claim the key for the message, or find that the message has it already.
 * -EEXIST: at received_ns another message, *first, had the key. */
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
/* Count the keys in use at `now_ns`. -errno. */
int64_t store_keys_count(struct store *s, uint64_t now_ns);
/* Delete a row and its history, because the message is done, discarded or
 * moved. A letter stays if it has another id (NULL: any) now, because mqdlq
 * edit has made it another message. Returns 0 in both cases, and if there is no
 * such row. */
int store_delete(struct store *s, int64_t row, const struct ulid *id);
/* Make replayed letters dead again whose kernel queue is gone: they were sent
 * under another boot id, or in another IPC namespace (a container that was
 * restarted). Letters for which `skip` returns true stay replayed (called
 * without a lock; NULL: skip none). Returns how many became dead, or -errno
 * when only some may be dead; -ENOENT: /proc has no boot id. */
int store_recall(struct store *s, bool (*skip)(int64_t row, void *arg),
                 void *arg);
/* Mark all waiting messages as redelivered, because custody was lost: any of
 * them may have run without a verdict. */
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
/* Find the row with that receive_seq; -ENOENT. */
int store_find_seq(struct store *s, uint64_t receive_seq, int64_t *row);
/* Find the newest row of a message; -ENOENT. Reads all waiting rows. */
int store_find_id(struct store *s, const struct ulid *id, int64_t *row);
/* Find the highest receive_seq of all rows and unique keys; 0 if there is
 * none. */
int store_max_seq(struct store *s, uint64_t *receive_seq);
/* Numbers of rows: WAITING, PARKED, and those of the spool. `waiting` is
 * negative if rows were settled that store_claim could not count. */
struct store_waits {
    int64_t waiting, parked, spooled;
};
/* Return the numbers that store_claim and store_spool_left counted and that
 * each write updates before it returns. They are exact, because only the worker
 * writes such rows. The row of a running message counts until the message is
 * settled. */
struct store_waits store_waits(const struct store *s);
/* Count the rows in a state, for any program. -errno. */
int64_t store_count(struct store *s, enum store_state state);
/* Wall clock times in ns, 0 if there is no such message: when messages were
 * first received, and the first due time. Cancelled rows count for `newest`
 * only. */
struct store_ages {
    uint64_t waiting; /* the WAITING row that was stored first */
    uint64_t parked;
    uint64_t spooled; /* the next row to run */
    uint64_t newest;  /* the last received of all rows with a sequence */
    uint64_t due;     /* the first due time of a WAITING row */
};
/* Rows of messages and keys of the spool whose messages are being run. */
struct store_lent {
    const int64_t *rows, *keys;
    size_t row_count, key_count;
};
/* `waiting`, `parked` and `spooled` skip lent rows. */
void store_ages(struct store *s, const struct store_lent *lent,
                struct store_ages *out);
/* Count the cancelled rows that are WAITING or PARKED, or, with state 0, in the
 * spool; without a worker they stay until the next worker discards them.
 * -errno. */
int64_t store_count_cancelled(struct store *s, enum store_state state);
/* Find the first DEAD row after (after_ns, after) in the order of (died_ns,
 * row); -ENOENT. */
int store_next_dead(struct store *s, uint64_t after_ns, int64_t after,
                    int64_t *row);

/* ---- ordered groups ---- */

/* Find the next parked row of a group: the highest priority (with `low` the
 * lowest), then the lowest receive_seq. -ENOENT if there is none. */
struct store_parked {
    int64_t row;
    uint32_t priority;
    uint64_t receive_seq;
};
int store_next_parked(struct store *s, const char *group, size_t size, bool low,
                      struct store_parked *out);
/* Find a letter for which the group waits: DEAD, REPLAYED or STORE_FRONT.
 * -ENOENT if there is none. */
int store_group_letter(struct store *s, const char *group, size_t size,
                       int64_t *row);
/* Step through all groups that have rows, in the order of their keys. `key` and
 * `size` are the last group, "" and 0 at first, and become the next one (at
 * most 256 bytes). -ENOENT at the end. */
struct store_group {
    uint64_t parked; /* rows behind the head */
    bool letters;    /* dead or replayed, and not STORE_LET_GO */
    int64_t head;    /* a row that waits for its retry, or else the first with
                       * STORE_FRONT; 0: none */
};
int store_next_group(struct store *s, char *key, size_t *size,
                     struct store_group *out);
/* Read one group; -ENOENT if it has no row. */
int store_get_group(struct store *s, const char *key, size_t size,
                    struct store_group *out);

#endif

/* letters.h - dead letters as an operator sees them: list, mark, remove
 *
 * WHAT   The queries of mqdlq on a store: filter, history, replay marks,
 *        removal, import.
 * WHO    As store.h; works with and without a running worker.
 * OWNS   Nothing; strings in a visited letter are valid during the visit.
 * FAILS  As store.h.
 */
#ifndef COMMON_STORE_LETTERS_H
#define COMMON_STORE_LETTERS_H

#include <stdio.h>

#include "common/store/store.h"

/* All given conditions must hold. NULL / 0 / REASON_NONE: not given. */
struct letter_filter {
    enum dead_reason reason;
    const char *error_like;      /* error_text_like */
    const char *group;           /* exact */
    const char *match;           /* bytes that occur in the body; no pattern */
    uint64_t since_ns, until_ns; /* died: since <= t < until; until 0 = none */
    uint64_t before_ns;          /* older, in the order of death, than the */
    int64_t before_row;          /* letter at that place; row 0: any */
    uint64_t limit;              /* newest `limit` letters; 0 = all */
    bool replayed;               /* those marked replayed, not the dead ones */
};

/* The last time that an operator sent a letter again. */
struct letter_replay {
    bool known;         /* otherwise the letter was never sent */
    bool here;          /* state replayed: in this boot, to queues of now */
    bool sent;          /* the send returned; else it may not have happened */
    uint64_t marked_ns; /* wall */
    struct ulid token;
};

struct letter {
    struct store_row m; /* all fields set; m.group NUL-terminated */
    struct letter_replay replay;
    const char *body; /* after the header */
    size_t body_size;
    const char *stderr_tail; /* of the last attempt */
    size_t stderr_size;
    const char *error_text; /* error_text.h, of the attempt that m.error is of;
                             * NULL: of none, or that was mute */
};

/* Visit matching letters, newest first (died_ns, then row, descending), or
 * oldest first. `visit` returns 0 to go on, else that value ends and is
 * returned. It may change letters: no lock and no transaction is held then.
 * Letters that die while this goes on oldest first are not visited. */
int letters_each(struct store *s, const struct letter_filter *f,
                 bool oldest_first,
                 int (*visit)(const struct letter *l, void *arg), void *arg);
/* Let the filter look at no more than the newest `most` letters of its times,
 * whatever else it asks of them: its since_ns is that of the oldest of these.
 * Whether there are older ones: YES, NO or -errno. Reads an index alone, so
 * that a look at a million letters is soon over. */
int letters_narrow(struct store *s, struct letter_filter *f, uint64_t most);
/* One value of a field, and how many letters have it. */
struct letter_tally {
    const char *value; /* NULL: they have none (no group, no error) */
    size_t size;
    const char *text; /* LETTER_BY_ERROR: their error_text; else NULL */
    uint64_t count, newest_ns;
};
/* Tally matching letters by one field: the most frequent value first, then the
 * newest. By error: each text that is beside it counts by itself.
 * filter->limit: count only that number of the newest letters. Holds one entry
 * for each different value. */
enum letter_by { LETTER_BY_REASON, LETTER_BY_ERROR, LETTER_BY_GROUP };
int letters_summary(struct store *s, enum letter_by by,
                    const struct letter_filter *f,
                    int (*visit)(const struct letter_tally *t, void *arg),
                    void *arg);
/* One letter by row, dead or replayed; -ENOENT. */
int letters_get(struct store *s, int64_t row,
                int (*visit)(const struct letter *l, void *arg), void *arg);
/* Failed deliveries of a letter, oldest first. `n` counts from 1. None for a
 * row that is gone. */
int letters_history(struct store *s, int64_t row,
                    int (*visit)(unsigned n, const struct store_attempt *a,
                                 void *arg),
                    void *arg);

/* The deaths of the next dead letters after *after (all 0: from the oldest on),
 * oldest first: how many, or -errno. A letter may have died again since. */
int letters_deaths(struct store *s, const struct store_cursor *after,
                   struct store_cursor out[STORE_PAGE]);
/* The same of the letters, dead or replayed, that have a message id, by row. */
int letters_of_id(struct store *s, const struct ulid *id,
                  const struct store_cursor *after,
                  struct store_cursor out[STORE_PAGE]);
/* Remove letters that are still dead of that death, in one commit; returns how
 * many there were, or -errno. */
int64_t letters_drop(struct store *s, const struct store_cursor *list,
                     size_t n);

/* A letter that died, and that nobody has been told of yet. */
struct letter_hook {
    int64_t n; /* of this death; never used twice */
    int64_t row;
};
/* Of those whose n is greater than `after`, the one that has waited longest;
 * -ENOENT: none. One that was removed is not among them. */
int letters_hook(struct store *s, int64_t after, struct letter_hook *out);
/* Somebody was told of that death; or not, and it goes behind all others: *next
 * (may be NULL) is its n from now on, 0 if it has none any more. */
int letters_hook_end(struct store *s, int64_t n, bool told, int64_t *next);
/* Nobody will be told of those that there are. */
int letters_hooks_forget(struct store *s);

/* A letter that is about to be sent. */
struct letter_mark {
    int64_t row;
    uint64_t died_ns;   /* of the letter as it was read */
    uint64_t marked_ns; /* wall; now */
    struct ulid token;  /* a new one; `again`: the one that it has, if any */
    bool again;         /* it is on its way already */
};
/* dead -> replayed, with the current boot (store_recall), under that token; or,
 * again, still replayed. -EALREADY: it is on its way, and was to be dead;
 * -ENOENT: settled, or it died again. `sent`: as letters_mark_sent, in the same
 * commit; NULL: none. */
int letters_mark_replayed(struct store *s, const struct letter_mark *mark,
                          const struct letter_mark *sent);
/* Its send has returned. */
int letters_mark_sent(struct store *s, const struct letter_mark *mark);
/* replayed -> dead, when the send did not happen; -ENOENT if it is not
 * replayed, or was sent once more by somebody else meanwhile. */
int letters_unmark(struct store *s, const struct letter_mark *mark);
/* Remove letters (dead or replayed) by row, one transaction; how many went. */
int64_t letters_discard(struct store *s, const int64_t *rows, size_t n);
/* The letters of a group, dead or on their way, hold it no more, until they die
 * again; how many did. */
int64_t letters_let_go(struct store *s, const char *group, size_t size);
/* Give room that removed letters left in the file back to the disk, in steps
 * that let a running worker in between. Worth it after a large discard only: it
 * does nothing while less than a quarter of the file (or 1 MiB) is unused. */
int letters_shrink(struct store *s);
/* Put in letters from elsewhere as new dead rows, with history; one
 * transaction per call, all or nothing. m.row is ignored. */
struct letter_import {
    struct store_row m;
    const struct store_attempt *history;
    size_t history_count;
    bool named, dated; /* the imported letter has m.id, m.died_ns */
};
/* With it, an import leaves out letters that the store has already, dead or
 * being replayed. A letter is the same if the bytes, the priority and, if
 * given, the id are equal. Later rows than `last_row` (from letters_last_row at
 * the start of the import) and letters without an id must also have the same
 * time of death, because a file may hold two equal messages. Earlier rows need
 * not, because the letter may have died again since. */
struct letter_known {
    int64_t last_row;
    uint64_t present; /* out: letters that were left out; not after a failure */
};
/* `known`: NULL to import all. */
int letters_import(struct store *s, const struct letter_import *l, size_t n,
                   struct letter_known *known);
/* Return the highest row number in use; 0 if there is none. */
int letters_last_row(struct store *s, int64_t *row);

/* ---- as JSON ---- */

/* A letter of a broker, which has no number there. */
struct letter_elsewhere {
    /* The machine of attempt `n`, 1 and up; NULL: not known. */
    const char *(*machine)(void *arg, int64_t row, unsigned n);
    void *arg;
};

/* Print a letter as a JSON object, one line. It has everything of a letter but
 * its receive sequence; a letter that is written and read again (mqdlq import)
 * is the same, byte for byte. Bytes that are not UTF-8, or have a NUL, are
 * base64 in NAME_base64. -ENOENT: the letter is gone. For one thread. */
int letter_json_print(struct store *s, const char *queue, int64_t row,
                      const struct letter_elsewhere *elsewhere, FILE *out);

#endif

/* letters.h - dead letters as an operator sees them: list, replay, remove
 *
 * WHAT   The queries of mqdlq on a store: filters, history, marks of replays,
 *        removal, import; and the list of deaths for --on-dead.
 * WHO    mqdlq and mqctl, with and without a running worker; the worker, for
 *        its own letters. Any thread.
 * OWNS   Nothing; strings in a visited letter are valid during the visit.
 * FAILS  As store.h.
 */
#ifndef COMMON_STORE_LETTERS_H
#define COMMON_STORE_LETTERS_H

#include <stdio.h>

#include "common/store/store.h"

/* Conditions, all of which must hold. NULL / 0 / REASON_NONE: not given. */
struct letter_filter {
    enum dead_reason reason;
    const char *error_like;      /* error_text_like */
    const char *group;           /* exact */
    const char *match;           /* bytes that occur in the body; no pattern */
    uint64_t since_ns, until_ns; /* died: since <= t < until; until 0 = none */
    uint64_t before_ns;          /* died before the letter with this time and */
    int64_t before_row;          /* this row; row 0: not given */
    uint64_t limit;              /* newest `limit` letters; 0 = all */
    bool replayed;               /* replayed instead of dead letters */
    /* Instead of letters, replayed letters whose message has failed and waits
     * for its retry. Newest first only. */
    bool retries;
};

/* The last replay of a letter. */
struct letter_replay {
    bool known;         /* false: the letter was never replayed */
    bool here;          /* of a replayed letter: its queue still exists */
    bool sent;          /* the send has returned; false: perhaps not sent */
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
    const char *error_text; /* error_text.h, of the attempt that gave m.error;
                             * NULL: none */
};

/* Return "sent" for a replayed letter that is on its way, "unsure" if it may
 * not have been sent, "lost" if its queue is gone; NULL if it is not replayed.
 */
const char *letter_replay_text(const struct letter *l);

/* Visit matching letters, newest first (died_ns, then row, descending), or
 * oldest first, until `visit` returns something other than 0, which is then
 * returned. `visit` may change letters, because no lock and no transaction is
 * held. With oldest first, letters that die meanwhile are not visited. */
int letters_each(struct store *s, const struct letter_filter *f,
                 bool oldest_first,
                 int (*visit)(const struct letter *l, void *arg), void *arg);
/* Raise f->since_ns so that the filter examines no more than the newest `most`
 * letters between its times. Returns YES if there are older letters, NO, or
 * -errno. Reads only an index, so it is fast even for a million letters. */
int letters_narrow(struct store *s, struct letter_filter *f, uint64_t most);
/* One value of a field, and how many letters have it. */
struct letter_tally {
    const char *value; /* NULL: no group, or no error */
    size_t size;
    const char *text; /* LETTER_BY_ERROR: their error_text; else NULL */
    uint64_t count, newest_ns;
};
/* Count matching letters by the values of one field, and visit the values: the
 * most frequent first, then the newest. LETTER_BY_ERROR counts each pair of
 * error and error_text. filter->limit: count only that many of the newest
 * letters. All values are in memory meanwhile. */
enum letter_by { LETTER_BY_REASON, LETTER_BY_ERROR, LETTER_BY_GROUP };
int letters_summary(struct store *s, enum letter_by by,
                    const struct letter_filter *f,
                    int (*visit)(const struct letter_tally *t, void *arg),
                    void *arg);
/* Visit one letter, dead or replayed; -ENOENT. */
int letters_get(struct store *s, int64_t row,
                int (*visit)(const struct letter *l, void *arg), void *arg);
/* Visit the failed deliveries of a letter, oldest first. `n` counts from 1. */
int letters_history(struct store *s, int64_t row,
                    int (*visit)(unsigned n, const struct store_attempt *a,
                                 void *arg),
                    void *arg);

/* Read the deaths of the next dead letters after *after (all 0: from the
 * oldest), oldest first. Returns how many, or -errno. */
int letters_deaths(struct store *s, const struct store_cursor *after,
                   struct store_cursor out[STORE_PAGE]);
/* Read the next letters with that message id, dead or replayed, in the order of
 * rows. Returns how many, or -errno. */
int letters_of_id(struct store *s, const struct ulid *id,
                  const struct store_cursor *after,
                  struct store_cursor out[STORE_PAGE]);
/* Remove letters that have not been replayed or died again since these deaths,
 * in one commit. Returns how many were removed, or -errno. */
int64_t letters_drop(struct store *s, const struct store_cursor *list,
                     size_t n);

/* A death for which the command of --on-dead has not run yet. */
struct letter_hook {
    int64_t n; /* number of this death; never used twice */
    int64_t row;
};
/* Find the death with the lowest n greater than `after`; -ENOENT. The death of
 * a letter is removed with the letter. */
int letters_hook(struct store *s, int64_t after, struct letter_hook *out);
/* Delete a death if its command has run (`told`), else move it behind all
 * others: *next (may be NULL) is its new n, 0 if its letter was removed. */
int letters_hook_end(struct store *s, int64_t n, bool told, int64_t *next);
/* Delete all deaths. */
int letters_hooks_forget(struct store *s);

/* The new contents of an edited letter, whose number and history stay. */
struct letter_edit {
    struct ulid id;   /* a new id */
    const void *data; /* header and body */
    size_t size, header_size;
};
/* A letter that is about to be sent. */
struct letter_mark {
    int64_t row;
    uint64_t died_ns;   /* of the letter as it was read */
    struct ulid id;     /* of the message as it was read; an edit changes it */
    uint64_t marked_ns; /* wall; now */
    struct ulid token;  /* a new token; with `again` the last replay's */
    bool again;         /* the letter is replayed already, and sent again */
    const struct letter_edit *edit; /* not with `again`; NULL: none */
};
/* Mark a dead letter as replayed in this boot, under that token, and replace
 * its contents by mark->edit in the same commit. With `again`, the letter is
 * replayed already and stays so. -EALREADY: the letter is replayed, and `again`
 * is not set; -ENOENT: it was settled or edited, or died again. `sent` (NULL:
 * none) is another letter to mark as letters_mark_sent does, in that commit. */
int letters_mark_replayed(struct store *s, const struct letter_mark *mark,
                          const struct letter_mark *sent);
/* Record that the send of a marked letter has returned. */
int letters_mark_sent(struct store *s, const struct letter_mark *mark);
/* Remove a letter whose message was sent without a mark. -ENOENT: it is gone,
 * or was replayed or edited, or died again, since it was read. */
int letters_remove_sent(struct store *s, const struct letter_mark *mark);
/* Make a replayed letter dead again, because it was not sent. -ENOENT: it is
 * not replayed, or another program has sent it again meanwhile. */
int letters_unmark(struct store *s, const struct letter_mark *mark);
/* A letter by its row and the id of its message; an edit changes the id. */
struct letter_name {
    int64_t row;
    struct ulid id;
};
/* Remove letters, dead or replayed, whose ids have not changed, in one commit.
 * Returns how many were removed. */
int64_t letters_discard(struct store *s, const struct letter_name *letters,
                        size_t n);
/* Let a group go on without waiting for its letters, dead or replayed, until
 * they die again. Returns for how many letters it waited. */
int64_t letters_let_go(struct store *s, const char *group, size_t size);
/* Return room that removed letters left in the file to the disk, in steps
 * between which a running worker can write. Does nothing while less than a
 * quarter of the file, or 1 MiB, is unused. */
int letters_shrink(struct store *s);
/* Insert letters from elsewhere as new dead rows, with their history: all or
 * none. m.row is ignored. */
struct letter_import {
    struct store_row m;
    const struct store_attempt *history;
    size_t history_count;
    bool named, dated; /* the imported letter has m.id, m.died_ns */
};
/* Options to skip letters that the store has already, dead or replayed. Two
 * letters are the same if bytes, priority and, if given, the id are equal. Rows
 * after `last_row` (from letters_last_row at the start of the import) and
 * letters without an id must also have the same time of death, because a file
 * may hold two equal messages. Earlier rows need not, because the letter may
 * have died again since. */
struct letter_known {
    int64_t last_row;
    uint64_t present; /* out: letters that were skipped; not after an error */
};
/* `known`: NULL to import all. */
int letters_import(struct store *s, const struct letter_import *l, size_t n,
                   struct letter_known *known);
/* Return the highest row number in use; 0 if there is none. */
int letters_last_row(struct store *s, int64_t *row);

/* ---- as JSON ---- */

/* For a letter of a broker, where letters have no numbers. */
struct letter_elsewhere {
    /* Return the machine of attempt `n`, 1 and up; NULL: not known. */
    const char *(*machine)(void *arg, int64_t row, unsigned n);
    void *arg;
};

/* Print a letter, or a replayed letter that waits for its retry, as a JSON
 * object, on one line. It has every field but the receive sequence, so mqdlq
 * import can restore the letter byte for byte. Bytes that are not UTF-8, or
 * have a NUL, are in NAME_base64. -ENOENT: the letter is gone. One thread at a
 * time. */
int letter_json_print(struct store *s, const char *queue, int64_t row,
                      const struct letter_elsewhere *elsewhere, FILE *out);

#endif

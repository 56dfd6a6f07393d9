/* letters.c - dead letters as an operator sees them; see letters.h
 *
 * Lists are read page by page: a page is copied out and its read transaction
 * ended before the first visit, because an open one keeps the -wal of a running
 * worker from being used again. A page ends at 64 letters or 1 MiB.
 */
#include <bsd/sys/queue.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/answer.h"
#include "common/store/letters.h"
#include "common/store/sql.h"

#define PAGE_LETTERS 64
#define PAGE_BYTES   (1u << 20)

/* Letters strictly between two places in the order of death. */
struct range {
    struct store_cursor low, high;
};

struct page {
    struct letter *letters[PAGE_LETTERS]; /* one block of memory each */
    size_t count;
    size_t bytes;
    struct store_cursor last;
};

/* replay_copy - how it was sent last; where the boot is not known, it may have
 * been in this one */
static struct letter_replay replay_copy(sqlite3_stmt *st, const char *boot)
{
    const char *there = (const char *)sqlite3_column_text(st, COL_BOOT);
    const void *token = sqlite3_column_blob(st, COL_TOKEN);
    struct letter_replay r = {
        .here = there && (!*there || !*boot || !sql_elsewhere(there, boot)),
        .sent = sqlite3_column_int(st, COL_SENT) != 0,
        .marked_ns = sql_column_u64(st, COL_MARKED),
    };

    r.known = token && sqlite3_column_bytes(st, COL_TOKEN) == sizeof r.token;
    if (r.known)
        memcpy(&r.token, token, sizeof r.token);
    return r;
}

/* letter_copy - the letter a statement stands on, in one block of its own */
static int letter_copy(sqlite3_stmt *st, const char *boot, struct letter **out,
                       size_t *bytes)
{
    const char *text;
    const void *tail, *data;
    size_t tail_size, error_size, text_size;
    struct store_row m;
    struct letter *l;
    char *at;
    int err = sql_read_row(st, &m);

    if (err)
        return err;
    tail = sqlite3_column_blob(st, COL_STDERR);
    tail_size = (size_t)sqlite3_column_bytes(st, COL_STDERR);
    text = (const char *)sqlite3_column_text(st, COL_ERROR_TEXT);
    text_size = (size_t)sqlite3_column_bytes(st, COL_ERROR_TEXT);
    data = m.size ? sqlite3_column_blob(st, COL_DATA) : "";
    error_size = m.error ? strlen(m.error) : 0;
    *bytes = sizeof **out + m.size + m.group_size + error_size + tail_size +
             text_size + 5;
    l = data ? malloc(*bytes) : NULL;
    if (!l)
        return -ENOMEM;
    at = (char *)(l + 1);
    m.data = sql_copy(&at, data, m.size);
    m.group = sql_copy(&at, m.group, m.group_size);
    m.error = sql_copy(&at, m.error, error_size);
    *l = (struct letter){
        .m = m,
        .replay = replay_copy(st, boot),
        .body = (const char *)m.data + m.header_size,
        .body_size = m.size - m.header_size,
        .stderr_tail = sql_copy(&at, tail, tail_size),
        .stderr_size = tail_size,
        .error_text = sql_copy(&at, text, text_size),
    };
    *out = l;
    return 0;
}

/* letters_ask - a statement over the letters of a filter; `room` and `by` are
 * its values 10 and 11 */
static int letters_ask(struct store *s, sqlite3_stmt **st, enum sql_id id,
                       const struct letter_filter *f, const struct range *range,
                       uint64_t room, struct sql_value by)
{
    return store_ask(
        s, st, id,
        SQL_VALUES(value_u64(range->low.ns), value_int(range->low.row),
                   value_u64(range->high.ns), value_int(range->high.row),
                   value_int(f->reason), value_string(f->group),
                   value_string(f->error_like), value_string(f->match),
                   value_int(f->replayed ? STORE_REPLAYED : STORE_DEAD),
                   value_u64(room), by));
}

/* page_read - the next page of at most `room` letters; empty at the end */
static int page_read(struct store *s, enum sql_id list,
                     const struct letter_filter *f, const struct range *range,
                     uint64_t room, struct page *page)
{
    uint64_t most = room < PAGE_LETTERS ? room : PAGE_LETTERS;
    sqlite3_stmt *st;
    int err = letters_ask(s, &st, list, f, range, most, VALUE_NONE);

    page->count = page->bytes = 0;
    while (err == STEP_ROW) {
        struct letter *l;
        size_t bytes;

        err = letter_copy(st, store_boot(s), &l, &bytes);
        if (err)
            break;
        page->letters[page->count++] = l;
        page->bytes += bytes;
        page->last = (struct store_cursor){l->m.died_ns, l->m.row};
        if (page->count < most && page->bytes < PAGE_BYTES)
            err = sql_step(st);
    }
    (void)store_answered(s, st, err);
    return err;
}

/* page_visit - visit the letters and free them, also when a visit or reading
 * the page (`err`) went wrong */
static int page_visit(struct page *page, int err,
                      int (*visit)(const struct letter *l, void *arg),
                      void *arg)
{
    for (size_t i = 0; i < page->count; i++) {
        if (!err)
            err = visit(page->letters[i], arg);
        free(page->letters[i]);
    }
    return err;
}

/* edge_find - the matching letter that is `nth` from the newest; -ENOENT */
static int edge_find(struct store *s, const struct letter_filter *f,
                     const struct range *range, uint64_t nth,
                     struct store_cursor *place)
{
    sqlite3_stmt *st;
    int found = letters_ask(s, &st, SQL_EDGE, f, range, nth, VALUE_NONE);

    if (found > 0)
        *place = (struct store_cursor){sql_column_u64(st, 0),
                                       sqlite3_column_int64(st, 1)};
    return store_answered(s, st, found);
}

/* range_of - from `since` up to `until` and `before`, all as open ends; rows
 * start at 1 */
static struct range range_of(const struct letter_filter *f)
{
    struct range range = {
        .low = {f->since_ns, 0},
        .high = {f->until_ns, 0},
    };

    if (f->until_ns == 0)
        range.high = (struct store_cursor){INT64_MAX, INT64_MAX};
    if (f->before_row && f->before_ns < range.high.ns)
        range.high = (struct store_cursor){f->before_ns, f->before_row};
    return range;
}

/* range_freeze - for going from old to new: end at what is the newest now, or
 * replays that die again would be visited for ever; begin at the oldest of the
 * newest `limit`. -ENOENT when nothing matches. */
static int range_freeze(struct store *s, const struct letter_filter *f,
                        struct range *range)
{
    struct store_cursor newest = {0}, first = {0};
    int err = edge_find(s, f, range, 0, &newest);

    if (err)
        return err;
    newest.row++;
    range->high = newest;
    if (f->limit == 0)
        return 0;
    err = edge_find(s, f, range, f->limit - 1, &first);
    if (err)
        return err == -ENOENT ? 0 : err; /* fewer than the limit: all */
    first.row--;
    range->low = first;
    return 0;
}

int letters_narrow(struct store *s, struct letter_filter *f, uint64_t most)
{
    const struct letter_filter times = {.replayed = f->replayed};
    struct range range = range_of(f);
    struct store_cursor place = {0};
    int err = edge_find(s, &times, &range, most, &place);

    if (!err)
        err = edge_find(s, &times, &range, most - 1, &place);
    if (err)
        return err == -ENOENT ? NO : err;
    f->since_ns = place.ns;
    return YES;
}

int letters_each(struct store *s, const struct letter_filter *f,
                 bool oldest_first,
                 int (*visit)(const struct letter *l, void *arg), void *arg)
{
    struct range range = range_of(f);
    struct page page;
    enum sql_id list = oldest_first ? SQL_LIST_OLDEST : SQL_LIST_NEWEST;
    uint64_t left = f->limit ? f->limit : UINT64_MAX;
    int err = oldest_first ? range_freeze(s, f, &range) : 0;

    if (err)
        return err == -ENOENT ? 0 : err;
    do {
        err = page_read(s, list, f, &range, left, &page);
        err = page_visit(&page, err, visit, arg);
        *(oldest_first ? &range.low : &range.high) = page.last;
        left -= page.count;
    } while (!err && page.count > 0 && left > 0);
    return err;
}

int letters_deaths(struct store *s, const struct letter_death *after,
                   struct letter_death out[LETTERS_DEATHS])
{
    const struct store_cursor from = {after->died_ns, after->row};
    struct store_cursor page[STORE_PAGE];
    int n = store_page(s, SQL_OLDEST_DEAD, &from, VALUE_NONE, page);

    _Static_assert(STORE_PAGE == LETTERS_DEATHS, "one page is one list");
    for (int i = 0; i < n; i++)
        out[i] = (struct letter_death){page[i].ns, page[i].row};
    return n;
}

int letters_get(struct store *s, int64_t row,
                int (*visit)(const struct letter *l, void *arg), void *arg)
{
    struct letter *l = NULL;
    size_t bytes;
    sqlite3_stmt *st;
    int err = store_ask(s, &st, SQL_LETTER, SQL_VALUES(value_int(row)));

    if (err == STEP_ROW) {
        err = letter_copy(st, store_boot(s), &l, &bytes);
        err = err ? err : STEP_ROW;
    }
    err = store_answered(s, st, err);
    if (!err)
        err = visit(l, arg);
    free(l);
    return err;
}

/* ---- how often what ---- */

struct tally {
    STAILQ_ENTRY(tally) link;
    struct letter_tally is; /* value and text: NULL, or point to bytes */
    char bytes[];
};
STAILQ_HEAD(tallies, tally);

/* tally_copy - the line of the summary a statement stands on */
static struct tally *tally_copy(sqlite3_stmt *st, enum letter_by by)
{
    const char *value = (const char *)sqlite3_column_text(st, 0);
    size_t size = (size_t)sqlite3_column_bytes(st, 0);
    const char *text = (const char *)sqlite3_column_text(st, 3);
    size_t text_size = (size_t)sqlite3_column_bytes(st, 3);
    struct tally *t;
    char *at;

    if (by == LETTER_BY_REASON) {
        value = dead_reason_text((enum dead_reason)sqlite3_column_int(st, 0));
        size = strlen(value);
    }
    t = malloc(sizeof *t + size + text_size + 2);
    if (!t)
        return NULL;
    at = t->bytes;
    t->is = (struct letter_tally){
        .value = sql_copy(&at, value, size),
        .size = size,
        .text = sql_copy(&at, text, text_size),
        .count = sql_column_u64(st, 1),
        .newest_ns = sql_column_u64(st, 2),
    };
    return t;
}

/* tallies_read - the whole summary; entries that were read stay in the list */
static int tallies_read(struct store *s, enum letter_by by,
                        const struct letter_filter *f, struct tallies *all)
{
    struct range range = range_of(f);
    sqlite3_stmt *st;
    int err = letters_ask(s, &st, SQL_SUMMARY, f, &range,
                          f->limit ? f->limit : UINT64_MAX, value_int(by));

    for (; err == STEP_ROW; err = sql_step(st)) {
        struct tally *t = tally_copy(st, by);

        if (!t) {
            err = -ENOMEM;
            break;
        }
        STAILQ_INSERT_TAIL(all, t, link);
    }
    (void)store_answered(s, st, err);
    return err;
}

int letters_summary(struct store *s, enum letter_by by,
                    const struct letter_filter *f,
                    int (*visit)(const struct letter_tally *t, void *arg),
                    void *arg)
{
    struct tallies all = STAILQ_HEAD_INITIALIZER(all);
    int err = tallies_read(s, by, f, &all);

    while (!STAILQ_EMPTY(&all)) {
        struct tally *t = STAILQ_FIRST(&all);

        STAILQ_REMOVE_HEAD(&all, link);
        if (!err)
            err = visit(&t->is, arg);
        free(t);
    }
    return err;
}

/* ---- history ---- */

/* attempt_copy - the attempt a statement stands on, in one block */
static struct store_attempt *attempt_copy(sqlite3_stmt *st)
{
    const char *error = (const char *)sqlite3_column_text(st, 3);
    size_t error_size = (size_t)sqlite3_column_bytes(st, 3);
    const void *tail = sqlite3_column_blob(st, 4);
    size_t tail_size = (size_t)sqlite3_column_bytes(st, 4);
    struct store_attempt *a = malloc(sizeof *a + error_size + tail_size + 2);
    char *at;

    if (!a)
        return NULL;
    at = (char *)(a + 1);
    *a = (struct store_attempt){
        .started_ns = sql_column_u64(st, 1),
        .duration_ns = sql_column_u64(st, 2),
        .error = sql_copy(&at, error, error_size),
        .stderr_tail = sql_copy(&at, tail, tail_size),
        .stderr_size = tail_size,
        .said = sqlite3_column_int(st, 5) != 0,
    };
    return a;
}

/* attempt_next - the attempt after number *n, its own number to *n; NULL at
 * the end */
static int attempt_next(struct store *s, int64_t row, unsigned *n,
                        struct store_attempt **out)
{
    sqlite3_stmt *st;
    int found = store_ask(s, &st, SQL_HISTORY,
                          SQL_VALUES(value_int(row), value_int(*n)));

    *out = NULL;
    if (found > 0) {
        *n = (unsigned)sqlite3_column_int64(st, 0);
        *out = attempt_copy(st);
    }
    (void)store_answered(s, st, found);
    return found > 0 && !*out ? -ENOMEM : found < 0 ? found : 0;
}

int letters_history(struct store *s, int64_t row,
                    int (*visit)(unsigned n, const struct store_attempt *a,
                                 void *arg),
                    void *arg)
{
    struct store_attempt *a;
    unsigned n = 0;

    for (;;) {
        int err = attempt_next(s, row, &n, &a);

        if (err || !a)
            return err;
        err = visit(n, a, arg);
        free(a);
        if (err)
            return err;
    }
}

/* letter_fixture.h - a store with six letters, and functions that list them */
#ifndef TESTS_UNIT_LETTER_LETTER_FIXTURE_H
#define TESTS_UNIT_LETTER_LETTER_FIXTURE_H

#include "common/store/letters.h"
#include "tests/fixtures/store_fixture.h"

static inline struct store_row letter(uint64_t died_ns, enum dead_reason reason,
                                      const char *error, const char *group,
                                      const char *text)
{
    struct store_row m = fixture_row(STORE_DEAD, text);
    m.died_ns = died_ns;
    m.reason = reason;
    m.error = error;
    m.group = group;
    m.group_size = group ? strlen(group) : 0;
    return m;
}

/* Rows that were visited, in order. */
struct seen {
    int64_t rows[2000];
    uint64_t died[2000];
    size_t n;
};

static inline int see(const struct letter *l, void *arg)
{
    struct seen *seen = arg;
    cr_assert(seen->n < 2000);
    seen->died[seen->n] = l->m.died_ns;
    seen->rows[seen->n++] = l->m.row;
    return 0;
}

static inline struct seen list(struct store *s, struct letter_filter f,
                               bool oldest)
{
    struct seen seen = {.n = 0};
    cr_assert(letters_each(s, &f, oldest, see, &seen) == 0);
    return seen;
}

static inline size_t count(struct store *s, struct letter_filter f)
{
    size_t n = list(s, f, false).n;
    cr_assert(list(s, f, true).n == n);
    return n;
}

/* Open a store with letters 1 to 6 (5: replayed) and two rows of messages. */
static inline struct store *six(void)
{
    struct store *s = fixture_open();
    struct store_row m[] = {
        letter(100, REASON_EXHAUSTED, "exit 1", "a", "alpha beta"),
        letter(200, REASON_EXHAUSTED, "exit 2", "b", "beta"),
        letter(300, REASON_REJECTED, "exit 65", NULL, "gamma"),
        letter(300, REASON_EXHAUSTED, "timeout 5s", "a", "beta*"),
        letter(400, REASON_EXHAUSTED, "exit 1", "a", "beta"),
        letter(500, REASON_EXPIRED, NULL, NULL, ""),
    };
    m[4].state = STORE_REPLAYED;
    for (size_t i = 0; i < 6; i++)
        fixture_put(s, &m[i]);
    m[0].state = STORE_WAITING;
    fixture_put(s, &m[0]);
    m[0].state = STORE_PARKED;
    fixture_put(s, &m[0]);
    return s;
}

#endif

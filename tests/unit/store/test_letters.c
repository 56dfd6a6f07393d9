/* test_letters.c - dead letters: filters, order, limits, summary */
#include <errno.h>
#include <fnmatch.h>
#include <malloc.h>

#include "common/base/basics.h"
#include "common/base/libc.h"
#include "tests/unit/store/letter_fixture.h"

TestSuite(letters, .init = fixture_init, .fini = fixture_fini);

Test(letters, each_filter_selects_what_it_says)
{
    struct store *s = six();
    cr_assert(count(s, (struct letter_filter){0}) == 5);
    cr_assert(count(s, (struct letter_filter){.replayed = true}) == 1);
    cr_assert(count(s, (struct letter_filter){.reason = REASON_EXHAUSTED}) ==
              3);
    cr_assert(count(s, (struct letter_filter){.error_like = "exit*"}) == 3);
    cr_assert(count(s, (struct letter_filter){.error_like = "exit ?"}) == 2);
    cr_assert(count(s, (struct letter_filter){.error_like = "*"}) == 4);
    cr_assert(count(s, (struct letter_filter){.group = "a"}) == 2);
    cr_assert(count(s, (struct letter_filter){.group = ""}) == 0);
    cr_assert(count(s, (struct letter_filter){.match = "beta"}) == 3);
    cr_assert(count(s, (struct letter_filter){.match = "beta*"}) == 1);
    cr_assert(count(s, (struct letter_filter){.match = "BETA"}) == 0);
    cr_assert(count(s, (struct letter_filter){.match = ""}) == 5);
    cr_assert(count(s, (struct letter_filter){.since_ns = 300}) == 3);
    cr_assert(count(s, (struct letter_filter){.until_ns = 300}) == 2);
    cr_assert(count(s, (struct letter_filter){.since_ns = 200,
                                              .until_ns = 301}) == 3);
    cr_assert(count(s, (struct letter_filter){.match = "beta",
                                              .group = "a",
                                              .since_ns = 101}) == 1);
    store_close(&s);
}

Test(letters, pages_go_on_before_the_last_one_seen)
{
    struct store *s = six();
    struct letter_filter f = {.limit = 2};
    struct seen all = list(s, (struct letter_filter){0}, false), page;
    size_t n = 0;

    while ((page = list(s, f, false)).n > 0) {
        for (size_t i = 0; i < page.n; i++)
            cr_assert_eq(page.rows[i], all.rows[n + i]);
        n += page.n;
        f.before_ns = page.died[page.n - 1];
        f.before_row = page.rows[page.n - 1];
    }
    cr_assert_eq(n, all.n);
    store_close(&s);
}

Test(letters, the_limit_takes_the_newest_in_either_order)
{
    struct store *s = six();
    struct seen l = list(s, (struct letter_filter){.limit = 3}, false);
    cr_assert(l.n == 3);
    cr_assert(l.rows[0] == 6 && l.rows[1] == 4 && l.rows[2] == 3);
    l = list(s, (struct letter_filter){.limit = 3}, true);
    cr_assert(l.n == 3);
    cr_assert(l.rows[0] == 3 && l.rows[1] == 4 && l.rows[2] == 6);
    l = list(s, (struct letter_filter){.limit = 2, .match = "beta"}, true);
    cr_assert(l.n == 2 && l.rows[0] == 2 && l.rows[1] == 4);
    l = list(s, (struct letter_filter){.limit = 99}, true);
    cr_assert(l.n == 5);
    store_close(&s);
}

Test(letters, a_match_is_looked_for_in_the_body_only)
{
    static const char data[] = "MQW/1\nx-a: needle\n\nbo\0dy hay";
    struct store *s = fixture_open();
    struct store_row m = fixture_row(STORE_DEAD, "");
    m.data = data;
    m.size = sizeof data - 1;
    m.header_size = 19;
    fixture_put(s, &m);
    cr_assert(count(s, (struct letter_filter){.match = "needle"}) == 0);
    cr_assert(count(s, (struct letter_filter){.match = "dy hay"}) == 1);
    store_close(&s);
}

static int check_fields(const struct letter *l, void *arg)
{
    ++*(int *)arg;
    cr_assert(l->m.row == 1 && l->m.state == STORE_DEAD);
    cr_assert(l->m.reason == REASON_CRASHED && l->m.priority == 3);
    cr_assert_str_eq(l->m.error, "signal 11");
    cr_assert_str_eq(l->m.group, "grp");
    cr_assert(l->m.group_size == 3 && l->m.size == 9);
    cr_assert(memcmp(l->m.data, "head\nbody", 9) == 0);
    cr_assert(l->body_size == 4 && memcmp(l->body, "body", 4) == 0);
    cr_assert(l->stderr_size == 3 && memcmp(l->stderr_tail, "b\0c", 3) == 0);
    return 0;
}

Test(letters, a_visit_gets_every_field_and_the_last_stderr)
{
    struct store *s = fixture_open();
    struct store_row m =
        letter(7, REASON_CRASHED, "signal 11", "grp", "head\nbody");
    struct store_attempt first = {.error = "x",
                                  .stderr_tail = "a",
                                  .stderr_size = 1},
                         last = {.error = "y",
                                 .stderr_tail = "b\0c",
                                 .stderr_size = 3};
    int visits = 0;
    m.priority = 3;
    m.header_size = 5;
    cr_assert(store_put(s, &m, &first, &m.row) == 0);
    cr_assert(store_put(s, &m, &last, NULL) == 0);
    cr_assert(letters_get(s, 1, check_fields, &visits) == 0);
    cr_assert(letters_each(s, &(struct letter_filter){0}, true, check_fields,
                           &visits) == 0);
    cr_assert(visits == 2);
    store_close(&s);
}

static int stop_at_two(const struct letter *l, void *arg)
{
    (void)l;
    return ++*(int *)arg == 2 ? 123 : 0;
}

Test(letters, a_visitor_can_stop)
{
    struct store *s = six();
    int visits = 0;
    cr_assert(letters_each(s, &(struct letter_filter){0}, false, stop_at_two,
                           &visits) == 123);
    cr_assert(visits == 2);
    visits = 1;
    cr_assert(letters_get(s, 1, stop_at_two, &visits) == 123);
    store_close(&s);
}

Test(letters, only_letters_are_got)
{
    struct store *s = six();
    struct seen seen = {.n = 0};
    cr_assert(letters_get(s, 5, see, &seen) == 0); /* replayed */
    cr_assert(letters_get(s, 7, see, &seen) == -ENOENT);
    cr_assert(letters_get(s, 8, see, &seen) == -ENOENT);
    cr_assert(letters_get(s, 99, see, &seen) == -ENOENT);
    cr_assert(seen.n == 1 && seen.rows[0] == 5);
    store_close(&s);
}

/* A model of one letter, for lists of several pages. */
struct kept {
    uint64_t died;
    enum dead_reason reason;
    int error, group;
};

static bool kept_matches(const struct kept *k, const struct letter_filter *f)
{
    char error[16], group[16];
    snprintf(error, sizeof error, "exit %d", k->error);
    snprintf(group, sizeof group, "g%d", k->group);
    return (!f->reason || f->reason == k->reason) &&
           (!f->error_like || !fnmatch(f->error_like, error, 0)) &&
           (!f->group || !strcmp(f->group, group)) && k->died >= f->since_ns &&
           (!f->until_ns || k->died < f->until_ns);
}

static size_t kept_list(const struct kept *all, size_t n,
                        const struct letter_filter *f, int64_t *rows)
{
    size_t found = 0;
    for (uint64_t died = 100; died-- > 0;)
        for (size_t i = n; i-- > 0;)
            if (all[i].died == died && kept_matches(&all[i], f) &&
                (!f->limit || found < f->limit))
                rows[found++] = (int64_t)i + 1;
    return found;
}

static void compare(struct store *s, const struct letter_filter *f,
                    const int64_t *want, size_t n)
{
    struct seen down = list(s, *f, false), up = list(s, *f, true);
    cr_assert(down.n == n && up.n == n, "%zu and %zu, not %zu", down.n, up.n,
              n);
    for (size_t i = 0; i < n; i++)
        cr_assert(down.rows[i] == want[i] && up.rows[n - 1 - i] == want[i]);
}

Test(letters, long_lists_are_as_a_dumb_model_says)
{
    enum { N = 700 };
    static struct kept all[N];
    static struct letter_import letters[N];
    static char errors[N][16], groups[N][16];
    unsigned seed = (unsigned)clock_wall_ns();
    struct store *s = fixture_open();
    printf("seed %u\n", seed);
    for (int i = 0; i < N; i++) {
        struct kept *k = &all[i];
        k->died = (uint64_t)rand_r(&seed) % 100;
        k->reason = (enum dead_reason)(1 + rand_r(&seed) % 5);
        k->error = rand_r(&seed) % 12;
        k->group = rand_r(&seed) % 3;
        snprintf(errors[i], 16, "exit %d", k->error);
        snprintf(groups[i], 16, "g%d", k->group);
        letters[i].m = letter(k->died, k->reason, errors[i], groups[i], "x");
    }
    cr_assert(letters_import(s, letters, N, NULL) == 0);
    for (int round = 0; round < 60; round++) {
        struct letter_filter f = {.limit = (uint64_t)rand_r(&seed) % 200};
        int64_t rows[N] = {0};
        if (rand_r(&seed) % 3 == 0)
            f.reason = (enum dead_reason)(1 + rand_r(&seed) % 5);
        if (rand_r(&seed) % 3 == 0)
            f.error_like = "exit 1*";
        if (rand_r(&seed) % 3 == 0)
            f.group = "g1";
        if (rand_r(&seed) % 3 == 0)
            f.since_ns = (uint64_t)rand_r(&seed) % 100;
        if (rand_r(&seed) % 3 == 0)
            f.until_ns = (uint64_t)rand_r(&seed) % 100;
        if (round == 0)
            f = (struct letter_filter){0};
        compare(s, &f, rows, kept_list(all, N, &f, rows));
    }
    store_close(&s);
}

static int check_memory(const struct letter *l, void *arg)
{
    struct mallinfo2 all = mallinfo2(); /* 0 under the address sanitizer */
    size_t held = (size_t)all.hblkhd + (size_t)all.uordblks;
    cr_assert(l->body_size == 2 << 20);
    cr_assert(held < 16 << 20, "%zu bytes", held);
    ++*(int *)arg;
    return 0;
}

Test(letters, large_bodies_do_not_pile_up_in_memory)
{
    enum { N = 30, SIZE = 2 << 20 };
    struct store *s = fixture_open();
    char *body = calloc(1, SIZE);
    struct store_row m = fixture_row(STORE_DEAD, "");
    int visits = 0;
    m.data = body;
    m.size = SIZE;
    for (int i = 0; i < N; i++)
        fixture_put(s, &m);
    free(body);
    cr_assert(letters_each(s, &(struct letter_filter){0}, false, check_memory,
                           &visits) == 0);
    cr_assert(visits == N);
    store_close(&s);
}

/* Let the visited letter die again, later. */
static int die_again(const struct letter *l, void *arg)
{
    struct store *s = *(struct store **)arg;
    struct store_row m = l->m;
    m.died_ns = 1000 + l->m.died_ns;
    cr_assert(store_put(s, &m, NULL, NULL) == 0);
    return 0;
}

Test(letters, letters_that_die_again_are_not_visited_again)
{
    struct store *s = six();
    cr_assert(
        letters_each(s, &(struct letter_filter){0}, true, die_again, &s) == 0);
    struct seen l = list(s, (struct letter_filter){0}, true);
    cr_assert(l.n == 5 && l.died[0] == 1100 && l.died[4] == 1500);
    cr_assert(
        letters_each(s, &(struct letter_filter){0}, false, die_again, &s) == 0);
    store_close(&s);
}

static int discard_it(const struct letter *l, void *arg)
{
    cr_assert(fixture_discard(*(struct store **)arg, &l->m.row, 1) == 1);
    return 0;
}

Test(letters, a_visitor_may_remove_what_it_sees)
{
    static struct letter_import letters[300];
    struct store *s = fixture_open();
    for (int i = 0; i < 300; i++)
        letters[i].m = letter((uint64_t)i / 2, REASON_EXPIRED, NULL, NULL, "x");
    cr_assert(letters_import(s, letters, 300, NULL) == 0);
    cr_assert(letters_each(s, &(struct letter_filter){.limit = 100}, false,
                           discard_it, &s) == 0);
    cr_assert(store_count(s, STORE_DEAD) == 200);
    cr_assert(
        letters_each(s, &(struct letter_filter){0}, true, discard_it, &s) == 0);
    cr_assert(store_count(s, STORE_DEAD) == 0);
    store_close(&s);
}

/* ---- the newest of very many ---- */

Test(letters, a_narrowed_filter_looks_at_the_newest_and_at_the_next_then)
{
    struct store *s = six();
    struct letter_filter f = {.error_like = "exit*"};

    /* 6, 4 and 3 are looked at, of which 3 matches. */
    cr_assert_eq(letters_narrow(s, &f, 3), YES);
    cr_assert_eq(f.since_ns, 300);
    cr_assert_eq(count(s, f), 1);
    f = (struct letter_filter){.before_ns = f.since_ns, .before_row = 1};
    cr_assert_eq(letters_narrow(s, &f, 1), YES);
    cr_assert_eq(list(s, f, false).rows[0], 2);
    f = (struct letter_filter){.before_ns = f.since_ns, .before_row = 1};
    cr_assert_eq(letters_narrow(s, &f, 1), NO,
                 "narrowed, but nothing is older");
    cr_assert_eq(f.since_ns, 0);
    cr_assert_eq(list(s, f, false).rows[0], 1);
    store_close(&s);
}

Test(letters, a_narrowed_filter_never_parts_letters_of_one_time)
{
    struct store *s = six();
    struct letter_filter f = {0};

    cr_assert_eq(letters_narrow(s, &f, 2), YES);
    cr_assert_eq(count(s, f), 3, "want 6, and both that died at 300");
    f = (struct letter_filter){.since_ns = 300};
    cr_assert_eq(letters_narrow(s, &f, 3), NO);
    cr_assert_eq(f.since_ns, 300);
    f = (struct letter_filter){.replayed = true};
    cr_assert_eq(letters_narrow(s, &f, 1), NO,
                 "narrowed, but one letter is all");
    store_close(&s);
}

/* ---- summary ---- */

struct lines {
    char text[400];
};

static int add_line(const struct letter_tally *t, void *arg)
{
    struct lines *lines = arg;
    size_t used = strlen(lines->text);
    cr_assert(t->size == (t->value ? strlen(t->value) : 0));
    snprintf(lines->text + used, sizeof lines->text - used, "%s%s%s=%d@%d ",
             t->value ? t->value : "-", t->text ? "/" : "",
             t->text ? t->text : "", (int)t->count, (int)t->newest_ns);
    return 0;
}

static struct lines summary(struct store *s, enum letter_by by,
                            struct letter_filter f)
{
    struct lines lines = {""};
    cr_assert(letters_summary(s, by, &f, add_line, &lines) == 0);
    return lines;
}

Test(letters, a_summary_counts_the_most_frequent_first)
{
    struct store *s = six();
    struct letter_filter all = {0}, two = {.limit = 2}, a = {.group = "a"};
    struct lines l = summary(s, LETTER_BY_REASON, all);
    cr_assert_str_eq(l.text, "exhausted=3@300 expired=1@500 rejected=1@300 ");
    l = summary(s, LETTER_BY_GROUP, all);
    cr_assert_str_eq(l.text, "-=2@500 a=2@300 b=1@200 ");
    l = summary(s, LETTER_BY_ERROR, a);
    cr_assert_str_eq(l.text, "timeout 5s=1@300 exit 1=1@100 ");
    l = summary(s, LETTER_BY_REASON, two);
    cr_assert_str_eq(l.text, "expired=1@500 exhausted=1@300 ");
    all.replayed = true;
    l = summary(s, LETTER_BY_ERROR, all);
    cr_assert_str_eq(l.text, "exit 1=1@400 ");
    store_close(&s);
}

static int stop_line(const struct letter_tally *t, void *arg)
{
    (void)t;
    ++*(int *)arg;
    return 9;
}

Test(letters, a_summary_can_be_stopped)
{
    struct store *s = six();
    int visits = 0;
    cr_assert(letters_summary(s, LETTER_BY_ERROR, &(struct letter_filter){0},
                              stop_line, &visits) == 9);
    cr_assert(visits == 1);
    store_close(&s);
}

/* ---- the text of an error ---- */

/* Letters 1 to 5: two of one text, one of another, one that gave its reason
 * itself, and one that was over before its next attempt. */
static struct store *five(void)
{
    static const char *const tails[] = {"line 1\nno such order\n",
                                        "no such order",
                                        "disk\x1b[0m\x01 full\n \n"};
    struct store *s = fixture_open();
    struct store_row m = letter(100, REASON_EXHAUSTED, "exit 1", NULL, "x");
    struct store_attempt a = {.error = "exit 1"};
    for (int i = 0; i < 3; i++, m.died_ns++) {
        a.stderr_tail = tails[i];
        a.stderr_size = strlen(tails[i]);
        m.row = 0;
        cr_assert(store_put(s, &m, &a, NULL) == 0);
    }
    m.error = a.error = "card declined";
    a.said = true;
    cr_assert(store_put(s, &m, &a, NULL) == 0);
    m.died_ns++;
    m.error = "expired 1s before it was started";
    cr_assert(store_put(s, &m, &a, NULL) == 0);
    return s;
}

static int text_add(const struct letter *l, void *arg)
{
    struct lines *lines = arg;
    size_t used = strlen(lines->text);
    snprintf(lines->text + used, sizeof lines->text - used, "%s|",
             l->error_text ? l->error_text : "-");
    return 0;
}

Test(letters, the_text_is_the_reason_given_or_the_last_line_of_stderr)
{
    struct store *s = five();
    struct lines l = {""};
    cr_assert(letters_each(s, &(struct letter_filter){0}, true, text_add, &l) ==
              0);
    cr_assert_str_eq(l.text, "no such order|no such order|disk\\x01 full|"
                             "card declined|-|");
    store_close(&s);
}

Test(letters, a_summary_by_error_has_each_text_by_itself)
{
    struct store *s = five();
    struct lines l = summary(s, LETTER_BY_ERROR, (struct letter_filter){0});
    cr_assert_str_eq(l.text, "exit 1/no such order=2@101 "
                             "expired 1s before it was started=1@104 "
                             "card declined/card declined=1@103 "
                             "exit 1/disk\\x01 full=1@102 ");
    l = summary(s, LETTER_BY_REASON, (struct letter_filter){0});
    cr_assert_str_eq(l.text, "exhausted=5@104 ");
    store_close(&s);
}

Test(letters, an_error_is_found_by_either_half_or_by_both)
{
    static const struct {
        const char *like;
        size_t n;
    } of[] = {{"exit 1", 3},
              {"no such order", 2},
              {"exit 1: no such*", 2},
              {"*", 5},
              {"card*", 1},
              {"*order", 2},
              {"exit 2", 0},
              {"such", 2},
              {"1: no", 2},
              {"such*", 0},
              {"", 0}};
    struct store *s = five();
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        cr_assert(count(s, (struct letter_filter){.error_like = of[i].like}) ==
                      of[i].n,
                  "%s", of[i].like);
    store_close(&s);
}

/* test_ulid.c - ids are unique, grow, and are the same as bytes and as text */
#include <criterion/criterion.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/ulid.h"

#define NOW_NS  UINT64_C(1732126091123456789)
#define THREADS 8
#define EACH    20000
#define ROUNDS  100000

static uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static uint64_t seed_take(void)
{
    const char *given = getenv("TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : clock_wall_ns();
    fprintf(stderr, "TEST_SEED=%" PRIu64 "\n", seed);
    return seed;
}

static int id_compare(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct ulid));
}

/* Return the milliseconds in an id. */
static uint64_t id_ms(struct ulid id)
{
    uint64_t ms = 0;
    for (int i = 0; i < 6; i++)
        ms = ms << 8 | id.bytes[i];
    return ms;
}

Test(ulid, text_is_that_of_the_specification)
{
    static const struct {
        struct ulid id;
        const char *text;
    } cases[] = {
        {{{0}}, "00000000000000000000000000"},
        {{{[15] = 1}}, "00000000000000000000000001"},
        {{{[15] = 31}}, "0000000000000000000000000Z"},
        {{{[15] = 32}}, "00000000000000000000000010"},
        {{{[0] = 0x80}}, "40000000000000000000000000"},
        {{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
           0xff, 0xff, 0xff, 0xff, 0xff}},
         "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"},
        /* The example of github.com/ulid/spec, as a number by hand. */
        {{{0x01, 0x56, 0x3e, 0x3a, 0xb5, 0xd3, 0xd6, 0x76, 0x4c, 0x61, 0xef,
           0xb9, 0x93, 0x02, 0xbd, 0x5b}},
         "01ARZ3NDEKTSV4RRFFQ69G5FAV"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[ULID_TEXT];
        struct ulid back;
        cr_expect_str_eq(ulid_print(cases[i].id, text), cases[i].text);
        cr_expect_eq(ulid_parse(cases[i].text, 26, &back), 0);
        cr_expect_eq(id_compare(&back, &cases[i].id), 0, "%s", cases[i].text);
    }
}

Test(ulid, both_cases_are_read)
{
    struct ulid upper, lower;
    cr_assert_eq(ulid_parse("01ARZ3NDEKTSV4RRFFQ69G5FAV", 26, &upper), 0);
    cr_assert_eq(ulid_parse("01arz3ndektsv4rrffq69g5fav", 26, &lower), 0);
    cr_assert_eq(id_compare(&upper, &lower), 0);
}

Test(ulid, what_is_no_ulid_is_refused)
{
    static const char good[] = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    struct ulid id;
    cr_assert_eq(ulid_parse(good, 25, &id), -EINVAL);
    cr_assert_eq(ulid_parse(good, 27, &id), -EINVAL);
    cr_assert_eq(ulid_parse(good, 0, &id), -EINVAL);
    cr_assert_eq(ulid_parse("81ARZ3NDEKTSV4RRFFQ69G5FAV", 26, &id), -EINVAL);
    cr_assert_eq(ulid_parse("Z1ARZ3NDEKTSV4RRFFQ69G5FAV", 26, &id), -EINVAL);
    /* Every byte at every place: 32 digits in two cases, no other. */
    for (int place = 1; place < 26; place++) {
        int accepted = 0;
        for (int byte = 0; byte < 256; byte++) {
            char text[ULID_TEXT];
            memcpy(text, good, sizeof text);
            text[place] = (char)byte;
            bool ok = ulid_parse(text, 26, &id) == 0;
            bool known = byte && strchr("0123456789ABCDEFGHJKMNPQRSTVWXYZ"
                                        "abcdefghjkmnpqrstvwxyz",
                                        byte);
            cr_assert_eq(ok, known, "byte %d at %d", byte, place);
            accepted += ok;
        }
        cr_assert_eq(accepted, 32 + 22);
    }
}

Test(ulid, any_id_printed_is_read_back_and_sorts_as_its_text)
{
    uint64_t state = seed_take();
    struct ulid last = {0};
    char last_text[ULID_TEXT];
    ulid_print(last, last_text);
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t words[2] = {random_next(&state), random_next(&state)};
        struct ulid id, back;
        char text[ULID_TEXT];
        memcpy(id.bytes, words, sizeof id.bytes);
        /* Keep part of the last id, so that late places decide as well. */
        memcpy(id.bytes, last.bytes, random_next(&state) % 16);
        cr_assert_eq(ulid_parse(ulid_print(id, text), 26, &back), 0);
        cr_assert_eq(id_compare(&id, &back), 0, "%s", text);
        int by_bytes = id_compare(&last, &id),
            by_text = strcmp(last_text, text);
        cr_assert_eq((by_bytes > 0) - (by_bytes < 0),
                     (by_text > 0) - (by_text < 0));
        last = id;
        memcpy(last_text, text, sizeof text);
    }
}

Test(ulid, time_is_the_given_one_in_milliseconds)
{
    cr_expect_eq(id_ms(ulid_make(NOW_NS)), NOW_NS / NS_PER_MS);
    cr_expect_eq(id_ms(ulid_make(NOW_NS + NS_PER_S)),
                 NOW_NS / NS_PER_MS + 1000);
    cr_expect_eq(id_ms(ulid_make(UINT64_MAX)), UINT64_MAX / NS_PER_MS);
}

Test(ulid, ids_of_a_thread_grow_also_when_the_clock_steps_back)
{
    uint64_t state = seed_take();
    struct ulid last = ulid_make(NOW_NS);
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t step = random_next(&state) % (10 * NS_PER_S);
        bool back = random_next(&state) % 2;
        struct ulid id = ulid_make(back ? NOW_NS - step : NOW_NS + step);
        cr_assert_lt(id_compare(&last, &id), 0, "at %d", i);
        last = id;
    }
    /* An id of the epoch is still above the last one. */
    struct ulid id = ulid_make(0);
    cr_assert_lt(id_compare(&last, &id), 0);
}

static void *ids_make(void *into)
{
    struct ulid *ids = into;
    for (int i = 0; i < EACH; i++)
        ids[i] = ulid_make(NOW_NS);
    return NULL;
}

/* Check that all ids differ: sort them, and compare neighbours. */
static void ids_unique(struct ulid *ids, size_t n)
{
    qsort(ids, n, sizeof *ids, id_compare);
    for (size_t i = 1; i < n; i++)
        cr_assert_neq(id_compare(&ids[i - 1], &ids[i]), 0);
}

Test(ulid, threads_in_the_same_millisecond_never_make_the_same_id)
{
    static struct ulid ids[THREADS][EACH];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, ids_make, ids[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        cr_assert_lt(id_compare(&ids[i][0], &ids[i][EACH - 1]), 0);
    ids_unique(ids[0], (size_t)THREADS * EACH);
}

Test(ulid, a_thread_that_comes_after_another_starts_elsewhere)
{
    static struct ulid ids[4][EACH];
    for (int i = 0; i < 4; i++) {
        pthread_t thread;
        cr_assert_eq(pthread_create(&thread, NULL, ids_make, ids[i]), 0);
        pthread_join(thread, NULL);
    }
    ids_unique(ids[0], (size_t)4 * EACH);
}

/* Write n ids into `to` from a child, and from its children down to `depth`. */
static void child_ids(int depth, int to, int n)
{
    pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (pid > 0) {
        cr_assert_eq(waitpid(pid, NULL, 0), pid);
        return;
    }
    if (depth > 1)
        child_ids(depth - 1, to, n);
    for (int i = 0; i < n; i++) {
        struct ulid id = ulid_make(NOW_NS);
        if (write(to, &id, sizeof id) != sizeof id)
            _exit(1);
    }
    _exit(0);
}

Test(ulid, children_of_fork_do_not_go_on_with_their_parents_ids)
{
    enum { N = 50, DEPTH = 3 };
    struct ulid ids[(DEPTH + 2) * N];
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    for (int i = 0; i < N; i++)
        ids[i] = ulid_make(NOW_NS);
    child_ids(DEPTH, ends[1], N);
    size_t want = sizeof ids[0] * DEPTH * N;
    cr_assert_eq(read(ends[0], ids + N, want), (ssize_t)want);
    for (int i = 0; i < N; i++)
        ids[(DEPTH + 1) * N + i] = ulid_make(NOW_NS);
    /* The parent goes on counting: a child that did so too would have made
     * these same ids before. */
    cr_assert_lt(id_compare(&ids[N - 1], &ids[(DEPTH + 1) * N]), 0);
    ids_unique(ids, sizeof ids / sizeof *ids);
}

/* test_run_file.c - what this machine knows of a broker's messages */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "worker/source/amqp/run_file.h"

static char folder[] = "/tmp/mqw-runs-XXXXXX", path[100];
static struct run_file *f;
static struct problem p;
static uint64_t nonce, number; /* results of run_file_open */

static void open_file(void)
{
    cr_assert_eq(run_file_open(&f, path, &nonce, &number, &p), 0, "%s", p.text);
}

static void begin(void)
{
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/runs", folder);
    open_file();
}

static void end(void)
{
    run_file_close(&f);
    unlink(path);
    rmdir(folder);
}

TestSuite(run_file, .init = begin, .fini = end);

/* Open the file again, as the next worker of this machine does. */
static void again(void)
{
    run_file_close(&f);
    open_file();
}

static struct run_key key(uint8_t id, uint32_t attempt)
{
    return (struct run_key){.id = {{id}}, .attempt = attempt};
}

static unsigned seen;
static uint64_t seen_mark, seen_start;
static pid_t seen_group;

static void see(void *arg, const struct source_run *run)
{
    (void)arg;
    seen++;
    seen_mark = run->mark;
    seen_start = run->start;
    seen_group = run->group;
}

Test(run_file, a_run_is_found_by_the_next_owner_until_it_is_over)
{
    struct run_key k = key(1, 0);
    uint64_t nonce_before = nonce, before = number;

    run_file_run(f, 7, &k, number + 1);
    run_file_handler(f, 7, 0, 99, 1234);
    run_file_run(f, 8, &k, number + 2);
    run_file_unrun(f, 8);
    again();
    run_file_runs(f, see, NULL);
    cr_assert_eq(seen, 1);
    cr_assert_eq(seen_mark, before + 1, "the mark is not the number");
    cr_assert_eq(seen_start, 99);
    cr_assert_eq(seen_group, 1234);
    cr_assert_eq(nonce, nonce_before);
    cr_assert_gt(number, before + 2, "a number is used again");
}

/* Return true if the file has these bytes and no more. */
static bool file_has(const char *text)
{
    char seen_text[64] = "";
    FILE *in = fopen(path, "re");
    size_t n = in ? fread(seen_text, 1, sizeof seen_text, in) : 0;

    if (in)
        fclose(in);
    return n == strlen(text) && memcmp(seen_text, text, n) == 0;
}

static void file_make(const char *text)
{
    FILE *out = fopen(path, "we");

    cr_assert(out && fputs(text, out) >= 0 && fclose(out) == 0);
}

Test(run_file, one_of_another_version_is_refused_and_stays_as_it_is)
{
    static const char *const others[] = {"rqmwrun2 and more", "no"};

    for (size_t i = 0; i < 2; i++) {
        run_file_close(&f);
        file_make(others[i]);
        cr_assert_lt(run_file_open(&f, path, &nonce, &number, &p), 0);
        cr_expect_null(f);
        cr_expect_eq(p.status, EX_CONFIG);
        cr_expect(strstr(p.text, "run the version that wrote it"), "%s",
                  p.text);
        cr_expect(strstr(p.text, "then move it away"),
                  "the text does not say to move it away: %s", p.text);
        cr_expect(file_has(others[i]), "%s", others[i]);
    }
}

/* The last worker was killed before it wrote the first word of the file. */
Test(run_file, one_that_is_half_made_is_made)
{
    run_file_close(&f);
    cr_assert_eq(truncate(path, 0), 0);
    cr_assert_eq(truncate(path, 100), 0);
    open_file();
    cr_assert_neq(nonce, 0);
}

Test(run_file, a_crash_counts_once_and_knows_whether_it_was_alone)
{
    struct run_key k = key(1, 0), other = key(2, 0);
    bool alone;

    run_file_run(f, 0, &k, number + 1);
    run_file_run(f, 1, &other, number + 2);
    again();
    cr_assert_eq(run_file_crashed(f), 2);
    cr_assert_eq(run_file_crashed(f), 0);
    cr_assert_eq(run_file_crashes(f, &k, &alone), 1);
    cr_assert_not(alone);
    run_file_run(f, 0, &k, number + 1);
    again();
    cr_assert_eq(run_file_crashed(f), 1);
    cr_assert_eq(run_file_crashes(f, &k, &alone), 2);
    cr_assert(alone);
    cr_assert_eq(run_file_crashes(f, &other, &alone), 1);
}

/* Overwrite one field of the file, to make what a kill leaves. */
static void file_write(off_t at, const void *from, size_t size)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    cr_assert_eq(pwrite(fd, from, size, at), (ssize_t)size);
    close(fd);
}

/* The offsets are those of struct run_layout. */
Test(run_file, a_kill_while_crashes_are_counted_counts_none_twice)
{
    const uint32_t running = 1;
    struct run_key k = key(1, 0);
    uint64_t before = number + 1;
    bool alone;

    for (uint64_t i = 0; i < 2; i++) {
        run_file_run(f, 0, &k, before + i);
        cr_assert_eq(run_file_crashed(f), 1);
    }
    file_write(64 + 24, &before, sizeof before); /* the entry's run */
    file_write(64 + 256 * 40, &running, sizeof running);
    again();
    cr_assert_eq(run_file_crashed(f), 1);
    cr_assert_eq(run_file_crashes(f, &k, &alone), 2);
}

Test(run_file, what_was_settled_is_known_and_its_crashes_are_not)
{
    struct run_key k = key(1, 0), next = key(1, 1);
    bool alone;

    run_file_run(f, 0, &k, number + 1);
    cr_assert_eq(run_file_crashed(f), 1);
    cr_assert_not(run_file_was_settled(f, &k));
    run_file_settled(f, &k);
    again();
    cr_assert(run_file_was_settled(f, &k));
    cr_assert_not(run_file_was_settled(f, &next),
                  "another attempt counts as settled");
    cr_assert_eq(run_file_crashes(f, &k, &alone), 0);
}

Test(run_file, of_very_many_the_last_are_known)
{
    struct run_key first = key(1, 0);

    run_file_settled(f, &first);
    for (uint32_t i = 1; i <= 65535; i++)
        run_file_settled(f, &(struct run_key){.id = {{1}}, .attempt = i});
    cr_assert(run_file_was_settled(f, &first));
    again();
    cr_assert(run_file_was_settled(f, &first));
    run_file_settled(f, &(struct run_key){.id = {{1}}, .attempt = 70000});
    cr_assert_not(run_file_was_settled(f, &first));
    again();
    cr_assert_not(run_file_was_settled(f, &first));
    for (uint32_t i = 1; i <= 65535; i += 1311)
        cr_assert(run_file_was_settled(
            f, &(struct run_key){.id = {{1}}, .attempt = i}));
}

Test(run_file, one_that_is_settled_again_and_again_is_known)
{
    struct run_key k = key(1, 0), other = key(1, 1);

    for (uint32_t i = 0; i < 65537; i++)
        run_file_settled(f, &k);
    cr_assert(run_file_was_settled(f, &k));
    for (uint32_t i = 0; i < 65536; i++)
        run_file_settled(f, &other);
    cr_assert_not(run_file_was_settled(f, &k));
}

Test(run_file, a_place_that_cannot_be_used_is_a_problem)
{
    struct run_file *none;

    cr_assert_lt(run_file_open(&none, "/no/such/runs", &nonce, &number, &p), 0);
    cr_assert_null(none);
    cr_assert_not_null(strstr(p.text, "/no/such/runs"));
}

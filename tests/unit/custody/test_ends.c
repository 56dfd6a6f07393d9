/* test_ends.c - the file of messages that ended but are still on the disk */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/custody/ends.h"
#include "common/custody/slot.h"

static char path[] = "/tmp/mqw-ends-XXXXXX";
static struct ends *e;

static void reopen(void)
{
    struct problem p;

    ends_close(&e, false);
    cr_assert(ends_open(&e, path, &p) == 0, "%s", p.text);
}

static void setup(void)
{
    int fd = mkstemp(path);

    cr_assert(fd >= 0);
    close(fd);
    reopen();
}

static void teardown(void)
{
    ends_close(&e, false);
    unlink(path);
}

static size_t put(int64_t key)
{
    static struct slot slot;

    return ends_put(e, key, &slot);
}

TestSuite(ends, .init = setup, .fini = teardown);

Test(ends, a_new_file_has_no_number_and_notes_nothing)
{
    cr_assert(ends_run(e) == 0 && ends_count(e) == 0);
    ends_reset(e, 77);
    reopen();
    cr_assert(ends_run(e) == 77);
}

Test(ends, what_is_noted_is_there_after_a_kill_until_it_is_dropped)
{
    int64_t keys[8] = {0};

    for (int64_t i = 1; i <= 5; i++)
        cr_assert(put(i * 10) == (size_t)i);
    cr_assert(ends_peek(e, keys, 3) == 3);
    cr_assert(keys[0] == 10 && keys[2] == 30);
    ends_drop(e, 3);
    reopen(); /* as after a kill: nothing was written back */
    cr_assert(!ends_has(e, 30) && ends_has(e, 40) && ends_has(e, 50));
    size_t n = ends_peek(e, keys, 8);
    cr_assert(keys[n - 1] == 50 && keys[n - 2] == 40);
    for (size_t i = 0; i + 2 < n; i++)
        cr_assert(keys[i] == 0);
    ends_drop(e, n);
    cr_assert(ends_count(e) == 0);
}

Test(ends, a_full_file_takes_no_more_until_some_are_dropped)
{
    static int64_t keys[ENDS_MOST];

    for (int round = 0; round < 3; round++) { /* around the ring */
        for (int64_t i = 1; i <= ENDS_MOST; i++)
            cr_assert(put(i));
        cr_assert(!put(1));
        cr_assert(ends_peek(e, keys, ENDS_MOST) == ENDS_MOST);
        cr_assert(keys[0] == 1 && keys[ENDS_MOST - 1] == ENDS_MOST);
        ends_drop(e, 100);
        cr_assert(put(4242));
        cr_assert(ends_has(e, 4242) && !ends_has(e, 100));
        ends_drop(e, ends_count(e));
    }
}

Test(ends, a_file_that_is_none_is_replaced)
{
    int fd = open(path, O_RDWR);

    put(5);
    cr_assert(pwrite(fd, "other", 5, 0) == 5);
    close(fd);
    reopen();
    cr_assert(ends_count(e) == 0 && ends_run(e) == 0);
}

Test(ends, a_file_of_another_version_is_refused_and_stays_as_it_is)
{
    char seen[16] = "";
    struct problem p;
    int fd = open(path, O_RDWR);

    ends_close(&e, false);
    cr_assert(ftruncate(fd, 0) == 0 && pwrite(fd, "MQWENDS2 more", 13, 0) > 0);
    cr_assert(ends_known(path, &p) < 0 && ends_open(&e, path, &p) < 0 && !e);
    cr_expect(p.status == EX_CONFIG && strstr(p.text, "run that version"), "%s",
              p.text);
    cr_expect(pread(fd, seen, sizeof seen, 0) == 13, "the length has changed");
    cr_expect_str_eq(seen, "MQWENDS2 more");
    cr_assert(ftruncate(fd, 0) == 0);
    cr_expect(ends_known(path, &p) == 0, "a new file is refused");
    close(fd);
}

Test(ends, it_goes_where_nothing_is_noted)
{
    ends_close(&e, true);
    cr_assert(access(path, F_OK) != 0);
    reopen();
}

/* The last process may have been killed with each place in use. */
Test(ends, a_full_file_is_found_whole_and_can_be_emptied)
{
    static int64_t keys[ENDS_MOST];

    for (int64_t i = 1; i <= ENDS_MOST; i++)
        put(i);
    ends_drop(e, 100); /* around the ring */
    for (int64_t i = 1; i <= 100; i++)
        put(ENDS_MOST + i);
    reopen();
    cr_assert(ends_count(e) == ENDS_MOST && !put(1));
    cr_assert(ends_has(e, 101) && ends_has(e, ENDS_MOST + 100));
    for (size_t left = ENDS_MOST; left > 0; left -= 1024) {
        cr_assert(ends_peek(e, keys, 1024) == 1024 && keys[0] && keys[1023]);
        ends_drop(e, 1024);
        cr_assert(put(1) > 0, "dropping made no room");
    }
}

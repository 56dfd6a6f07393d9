/* test_boot_id.c - which run of the machine this is */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "common/base/boot_id.h"

#define A "87c1d91e-0000-4000-8000-000000000001"
#define B "f92ae3b0-0000-4000-8000-000000000002"

TestSuite(boot_id);

static bool same(const char *a, uint32_t at_a, const char *b, uint32_t at_b)
{
    struct boot x = {.time = at_a}, y = {.time = at_b};

    snprintf(x.id, sizeof x.id, "%s", a);
    snprintf(y.id, sizeof y.id, "%s", b);
    cr_assert_eq(boot_same(&x, &y), boot_same(&y, &x));
    return boot_same(&x, &y);
}

Test(boot_id, now_is_this_run_with_the_time_of_proc_stat)
{
    struct boot a, b;
    char line[256];
    unsigned long btime = 0;
    FILE *f = fopen("/proc/stat", "re");

    while (f && fgets(line, sizeof line, f) &&
           sscanf(line, "btime %lu", &btime) != 1)
        ;
    if (f)
        fclose(f);
    memset(&a, 'x', sizeof a);
    boot_now(&a);
    boot_now(&b);
    cr_assert(boot_same(&a, &b));
    cr_assert_geq(strlen(a.id), 36);
    cr_assert_leq(a.time, btime + 2);
    cr_assert_geq(a.time + 2, btime);
}

Test(boot_id, two_ids_of_the_kernel_decide_alone)
{
    cr_assert_not(same(A, 1000, B, 1000),
                  "a machine without a clock boots at the same time each day");
    cr_assert(same(A, 1000, A, 900000), "differs because the clock was set");
    cr_assert(same(A, 0, A, 1000), "differs because one time is unknown");
}

Test(boot_id, an_id_that_covers_the_kernels_leaves_it_to_the_time)
{
    cr_assert(same(A, 1000, B "~", 1001));
    cr_assert(same(A "~", 1000, B "~", 1010));
    cr_assert_not(same(A, 1000, B "~", 1011));
    cr_assert_not(same(A "~", 1000, B "~", 2000));
    cr_assert_not(same(A, 0, B "~", 1000), "an unknown time equals another");
    cr_assert_not(same("", 0, B, 1000));
}

Test(boot_id, a_text_is_read_back)
{
    struct boot a, b;
    char text[BOOT_TEXT];

    boot_now(&a);
    boot_print(&a, text);
    boot_parse(&b, text, strlen(text));
    cr_assert_str_eq(a.id, b.id);
    cr_assert_eq(a.time, b.time);
    boot_parse(&b, A "/ipc:[4026531839]", 36);
    cr_assert_str_eq(b.id, A);
    cr_assert_eq(b.time, 0);
    memset(text, 'x', sizeof text);
    boot_parse(&b, text, sizeof text);
    cr_assert_eq(strlen(b.id), BOOT_ID - 1);
}

/* test_histogram.c - the buckets against their definition, quantiles against
 * sorted numbers */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "common/state/counters.h"

#define VALUES 20000

static struct histogram h;
static struct histogram_sum s;

/* Return the sum of what is in h now. */
static const struct histogram_sum *taken(void)
{
    memset(&s, 0, sizeof s);
    histogram_sum(&s, &h);
    return &s;
}

Test(histogram, every_bucket_begins_where_the_one_before_ends)
{
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        uint64_t low = histogram_low(i), next = histogram_low(i + 1);

        cr_assert_lt(low, next);
        cr_assert_eq(histogram_bucket(low), i);
        cr_assert_eq(histogram_bucket(next - 1), i);
    }
    cr_assert_eq(histogram_low(0), 0);
    cr_assert_eq(histogram_low(HISTOGRAM_BUCKETS), UINT64_C(1)
                                                       << HISTOGRAM_TOP);
}

Test(histogram, no_bucket_is_wider_than_a_32nd_of_what_it_holds)
{
    for (unsigned i = 1; i < HISTOGRAM_BUCKETS; i++) {
        uint64_t low = histogram_low(i), wide = histogram_low(i + 1) - low;

        cr_assert(wide == 1 || wide * 32 <= low, "bucket %u", i);
    }
}

Test(histogram, an_hour_has_a_bucket_of_its_own_and_more_counts_in_the_last)
{
    const uint64_t hour = UINT64_C(3600) * 1000 * 1000 * 1000;

    cr_assert_lt(histogram_bucket(hour), HISTOGRAM_BUCKETS - 1);
    cr_assert_eq(histogram_bucket(UINT64_C(1) << HISTOGRAM_TOP),
                 HISTOGRAM_BUCKETS - 1);
    cr_assert_eq(histogram_bucket(UINT64_MAX), HISTOGRAM_BUCKETS - 1);
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

Test(histogram, quantiles_are_within_a_bucket_of_those_of_the_sorted_numbers)
{
    static uint64_t all[VALUES];
    unsigned seed = 20261120;

    for (size_t i = 0; i < VALUES; i++) {
        all[i] = (uint64_t)rand_r(&seed) >> (unsigned)rand_r(&seed) % 31;
        all[i] *= 1 + (uint64_t)rand_r(&seed) % 1000;
        histogram_add(&h, all[i]);
    }
    qsort(all, VALUES, sizeof *all, compare);
    cr_assert_eq(taken()->total, VALUES);
    for (int i = 1; i < 1000; i++) {
        double q = i / 1000.0;
        size_t rank = (size_t)(q * VALUES);
        uint64_t exact = all[(double)rank < q * VALUES ? rank : rank - 1];
        uint64_t got = histogram_quantile(&s, q);

        cr_assert_eq(histogram_bucket(got), histogram_bucket(exact),
                     "q %g: %lu, exact %lu (seed 20261120)", q,
                     (unsigned long)got, (unsigned long)exact);
    }
    cr_assert_eq(histogram_bucket(histogram_quantile(&s, 1)),
                 histogram_bucket(all[VALUES - 1]));
}

Test(histogram, one_number_is_every_quantile)
{
    histogram_add(&h, 1000);
    cr_assert_eq(histogram_quantile(taken(), 0), histogram_quantile(&s, 1));
    cr_assert_eq(histogram_bucket(histogram_quantile(&s, 0.5)),
                 histogram_bucket(1000));
}

Test(histogram, an_empty_one_has_no_quantile)
{
    cr_assert_eq(histogram_quantile(taken(), 0.5), 0);
}

Test(histogram, upto_counts_whole_buckets_only)
{
    histogram_add(&h, 10);
    histogram_add(&h, 1000);
    histogram_add(&h, 1000000);
    taken();
    cr_assert_eq(histogram_upto(&s, 9), 0);
    cr_assert_eq(histogram_upto(&s, 10), 1);
    cr_assert_eq(histogram_upto(&s, histogram_low(histogram_bucket(1000))), 1);
    cr_assert_eq(histogram_upto(&s, 2000), 2);
    cr_assert_eq(histogram_upto(&s, UINT64_MAX), 3);
}

Test(histogram, since_is_what_came_between_and_never_negative)
{
    static struct histogram_sum first, diff;

    histogram_add(&h, 5);
    first = *taken();
    histogram_add(&h, 5);
    histogram_add(&h, 70000);
    histogram_since(&diff, taken(), &first);
    cr_assert_eq(diff.total, 2);
    cr_assert_eq(diff.count[5], 1);
    histogram_since(&diff, &first, &s);
    cr_assert_eq(diff.total, 0);
}

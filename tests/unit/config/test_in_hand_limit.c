/* test_in_hand_limit.c - the sum of all attempts against a dumb model, and what
 * it costs */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "worker/config/settings.h"

TestSuite(in_hand_limit);

/* Return true if all attempts, added one by one, stay below the limit. */
static bool model_fits(const struct settings *s, const struct backoff *b)
{
    uint64_t sum = s->timeout_ns;

    for (uint32_t n = 1; n < s->max_attempts && sum < IN_HAND_LIMIT_NS; n++) {
        uint64_t wait = backoff_delay(b, n, 0);

        sum += wait + wait / 100 * s->jitter_percent + s->timeout_ns;
    }
    return sum < IN_HAND_LIMIT_NS;
}

Test(in_hand_limit, is_kept_as_a_dumb_model_says)
{
    static const char *const specs[] = {
        "exp:1ms,10ms", "exp:1s,5m", "exp:0s,1m",  "1ms",         "0s",
        "9s,1s,2ms",    "5m,0s",     "exp:1ms,1h", "exp:7ms,7ms", "1ms,2ms,3s",
    };
    struct settings s;
    struct backoff b;
    struct problem p;

    settings_init(&s);
    srandom(1);
    for (int i = 0; i < 3000; i++) {
        size_t at = (size_t)random() % (sizeof specs / sizeof *specs);

        cr_assert_eq(backoff_parse(specs[at], &b, &p), 0);
        s.max_attempts = 1 + (uint64_t)random() % (i % 2 ? 1000 : 10);
        s.jitter_percent = (uint64_t)random() % 101;
        s.timeout_ns = (uint64_t)random() % (i % 3 ? 100 : 100000) * NS_PER_MS;
        cr_assert_eq(in_hand_limit_check(&s, &b, &p) == 0, model_fits(&s, &b),
                     "%s, %" PRIu64 " times %" PRIu64 " ns", specs[at],
                     (uint64_t)s.max_attempts, (uint64_t)s.timeout_ns);
    }
}

/* The worker asks for each message whose handler wants a delay. If each call
 * counted a million attempts, this test would reach its time limit. */
Test(in_hand_limit, of_many_attempts_costs_no_more_than_of_few)
{
    uint64_t sum = 0;
    struct settings s;
    struct backoff b;
    struct problem p;

    settings_init(&s);
    s.max_attempts = 1000000;
    cr_assert_eq(backoff_parse("1us", &b, &p), 0);
    for (int i = 0; i < 100000; i++)
        sum += in_hand_limit_wait(&s, &b, 1);
    cr_assert_gt(sum, 0);
}

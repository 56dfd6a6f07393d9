/* test_stderr_limit.c - what handlers may log: a rate, a burst, and the count
 * of what is over */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/process/stderr_tail.h"

#define RATE  50
#define BURST (10 * RATE)

/* ---- the clock, in place of libc's for the whole program ---- */

static uint64_t now_ns;

/* The system call with times of 64 bits. */
#ifdef SYS_clock_gettime64
#define CLOCK_CALL SYS_clock_gettime64
#else
#define CLOCK_CALL SYS_clock_gettime
#endif

int clock_gettime(clockid_t id, struct timespec *now)
{
    if (now_ns == 0 || id != CLOCK_MONOTONIC)
        return (int)syscall(CLOCK_CALL, id, now);
    now->tv_sec = (time_t)(now_ns / NS_PER_S);
    now->tv_nsec = (long)(now_ns % NS_PER_S);
    return 0;
}

/* ---- the log ---- */

static uint64_t logged, told, tellings;

static void sink(enum log_level level, const char *line, size_t size, void *arg)
{
    const char *at = strstr(line, "event=handler_stderr_dropped ");

    (void)level;
    (void)size;
    (void)arg;
    if (at) {
        tellings++;
        told += strtoull(strstr(at, "lines=") + 6, NULL, 10);
    } else {
        logged++;
    }
}

static struct settings set;
static struct timers *timers;
static struct stderr_limit limit;

static void setup(void)
{
    now_ns = clock_mono_ns();
    log_setup(LOG_INFO, LOG_TEXT);
    log_divert(sink, NULL);
    settings_init(&set);
    set.stderr_rate = RATE;
    cr_assert_eq(timers_open(&timers), 0);
    stderr_limit_init(&limit, &set, timers);
}

static void teardown(void)
{
    stderr_limit_fini(&limit);
    timers_close(&timers);
    log_divert(NULL, NULL);
    now_ns = 0;
}

TestSuite(stderr_limit, .init = setup, .fini = teardown);

/* Return how many of `n` lines get through now. */
static unsigned taken(unsigned n)
{
    unsigned got = 0;

    while (n-- > 0)
        got += stderr_limit_take(&limit);
    return got;
}

/* Let time pass, and fire timers. */
static void later(uint64_t ns)
{
    now_ns += ns;
    timers_run(timers);
}

Test(stderr_limit, a_burst_then_the_rate)
{
    cr_assert_eq(taken(BURST), BURST);
    cr_assert_eq(taken(10), 0);
    for (int i = 0; i < 5; i++) {
        later(NS_PER_S);
        cr_assert_eq(taken(10 * RATE), RATE);
    }
    later(NS_PER_S / RATE);
    cr_assert_eq(taken(10), 1);
    later(3600 * NS_PER_S);
    cr_assert_eq(taken(2 * BURST), BURST, "more than the burst was saved up");
}

Test(stderr_limit, what_is_dropped_is_told_a_second_later_and_once_a_second)
{
    uint64_t dropped = 0;

    for (int ms = 0; ms < 20000; ms += 10) {
        dropped += 7 - taken(7);
        later(10 * NS_PER_MS);
    }
    cr_assert_gt(dropped, 0);
    later(NS_PER_S);
    cr_assert_eq(told, dropped);
    cr_assert_leq(tellings, 21);
    cr_assert_geq(tellings, 5);
    later(60 * NS_PER_S);
    cr_assert_leq(tellings, 21, "told, but nothing was dropped");
}

Test(stderr_limit, the_rest_is_told_at_the_end)
{
    taken(BURST + 3);
    cr_assert_eq(told, 0);
    stderr_limit_fini(&limit);
    cr_assert_eq(told, 3);
    stderr_limit_fini(&limit);
    cr_assert_eq(tellings, 1);
}

Test(stderr_limit, none_is_unlimited_and_a_change_counts_at_once)
{
    set.stderr_rate = 0;
    cr_assert_eq(taken(100000), 100000);
    set.stderr_rate = 1;
    cr_assert_eq(taken(100), 10);
    set.stderr_rate = 1000000;
    later(NS_PER_MS);
    cr_assert_eq(taken(2000), 1000);
    set.stderr_rate = 0;
    cr_assert_eq(taken(10), 10);
}

static void *take_many(void *arg)
{
    *(unsigned *)arg = taken(20000);
    return NULL;
}

Test(stderr_limit, threads_share_one_bucket)
{
    pthread_t threads[4];
    unsigned got[4], sum = 0;

    for (int i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, take_many, &got[i]), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        sum += got[i];
    }
    cr_assert_eq(sum, BURST);
    later(NS_PER_S);
    cr_assert_eq(told, 4 * 20000 - BURST);
}

Test(stderr_limit, a_tail_keeps_what_is_not_logged)
{
    static struct stderr_tail t;
    static struct outcome out;
    char line[16];

    stderr_tail_init(&t, "id", 0, &limit);
    for (int i = 0; i < 2 * BURST; i++)
        stderr_tail_add(&t, line,
                        (size_t)snprintf(line, sizeof line, "%07d\n", i));
    stderr_tail_end(&t, &out);
    cr_assert_eq(logged, BURST);
    cr_assert_eq(out.tail_size, OUTCOME_TAIL);
    snprintf(line, sizeof line, "%07d\n", 2 * BURST - 1);
    cr_assert_arr_eq(out.tail + OUTCOME_TAIL - 8, line, 8);
    stderr_limit_fini(&limit);
    cr_assert_eq(told, BURST);
}

Test(stderr_limit, what_would_not_be_logged_anyway_is_not_counted)
{
    static struct stderr_tail t;

    log_setup(LOG_WARN, LOG_TEXT);
    stderr_tail_init(&t, "id", 0, &limit);
    for (int i = 0; i < 2 * BURST; i++)
        stderr_tail_add(&t, "x\n", 2);
    stderr_limit_fini(&limit);
    cr_assert_eq(tellings + logged, 0);
}

/* test_hook_retries.c - when a failed command runs again, in virtual time; and
 * a stop while the command runs */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/log.h"
#include "tests/harness/harness.h"
#include "worker/config/settings.h"
#include "worker/hooks/on_dead.h"
#include "worker/source/source.h"

static struct hook_retries u;
static uint64_t now, due;

TestSuite(hook_retries);

Test(hook_retries, each_wait_doubles_by_itself_up_to_the_longest)
{
    uint64_t want = HOOK_RETRY_FIRST_NS;

    for (int i = 0; i < 12; i++) {
        cr_assert_eq(hook_retries_postpone(&u, 1, now), want);
        want = want * 2 < HOOK_RETRY_LAST_NS ? want * 2 : HOOK_RETRY_LAST_NS;
        hook_retries_end(&u, 99);
        now += NS_PER_S;
    }
    cr_assert_eq(want, HOOK_RETRY_LAST_NS);
    cr_assert_eq(hook_retries_postpone(&u, 2, now), HOOK_RETRY_FIRST_NS,
                 "not its own wait");
    cr_assert_eq(hook_retries_first(&u, &due), 2);
    cr_assert_eq(due, now + HOOK_RETRY_FIRST_NS);
}

Test(hook_retries, while_none_succeeds_they_pause_together)
{
    cr_assert_eq(hook_retries_first(&u, &due), 0);
    cr_assert_eq(due, UINT64_MAX);
    for (int64_t n = 1; n <= 3; n++)
        (void)hook_retries_postpone(&u, n, 0);
    now = HOOK_RETRY_FIRST_NS;
    cr_assert_eq(hook_retries_first(&u, &due), 1);
    cr_assert_eq(due, now, "a pause, before one has failed again");
    (void)hook_retries_postpone(&u, 1, now);
    cr_assert_eq(hook_retries_first(&u, &due), 2);
    cr_assert_eq(due, now + HOOK_RETRY_FIRST_NS);
    (void)hook_retries_postpone(&u, 2, due);
    now = due;
    cr_assert_eq(hook_retries_first(&u, &due), 3);
    cr_assert_eq(due, now + 2 * HOOK_RETRY_FIRST_NS);
    hook_retries_end(&u, 3);
    (void)hook_retries_first(&u, &due);
    cr_assert_leq(due, now + 2 * HOOK_RETRY_FIRST_NS, "the pause did not end");
    cr_assert_eq(u.pause_ns, 0);
    cr_assert_eq(u.count, 2);
}

Test(hook_retries, a_new_number_keeps_its_wait_and_one_that_is_gone_is_none)
{
    (void)hook_retries_postpone(&u, 1, now);
    hook_retries_renumber(&u, 1, 7);
    cr_assert(hook_retries_has(&u, 7) && !hook_retries_has(&u, 1));
    cr_assert_eq(hook_retries_postpone(&u, 7, now), 2 * HOOK_RETRY_FIRST_NS);
    hook_retries_renumber(&u, 7, 0);
    cr_assert_eq(u.count, 0);
    hook_retries_renumber(&u, 7, 8);
    cr_assert_eq(u.count, 0);
}

Test(hook_retries, those_that_have_no_room_are_not_noted)
{
    for (int64_t n = 1; n <= HOOK_RETRIES_MOST; n++)
        cr_assert_gt(hook_retries_postpone(&u, n, now), 0);
    cr_assert_eq(hook_retries_postpone(&u, HOOK_RETRIES_MOST + 1, now), 0);
    cr_assert_not(hook_retries_has(&u, HOOK_RETRIES_MOST + 1));
    cr_assert_gt(hook_retries_postpone(&u, 1, now), 0, "it is there already");
}

/* ---- a stop while the command runs ---- */

static atomic_bool dead;    /* a letter waits for its hook */
static atomic_bool started; /* the command was started, or soon is */
static atomic_bool reads;   /* the thread is about to read the second wake-up */
static atomic_bool ended;   /* the command ended before the stop, or failed */

/* Replace eventfd_read(3) for the thread of --on-dead: the second wake-up is
 * read only after the stop has added its own. */
int eventfd_read(int fd, eventfd_t *value)
{
    char path[64], line[64];
    unsigned long long count = 0;
    FILE *info;

    if (atomic_load(&started) && !atomic_exchange(&reads, true)) {
        snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
        while (count < 2) {
            info = fopen(path, "r");
            while (fgets(line, sizeof line, info))
                (void)sscanf(line, "eventfd-count: %llx", &count);
            fclose(info);
        }
    }
    return read(fd, value, sizeof *value) == sizeof *value ? 0 : -1;
}

static int hook(struct source *s, int64_t after, struct source_hook *out)
{
    (void)s;
    if (!atomic_load(&dead) || after >= 1)
        return -ENOENT;
    *out = (struct source_hook){.n = 1,
                                .letter = 1,
                                .json = strdup("{}"),
                                .json_size = 2,
                                .data = strdup("x"),
                                .size = 1};
    atomic_store(&started, true);
    return 0;
}

static int hook_end(struct source *s, int64_t n, bool told, int64_t *next)
{
    (void)s, (void)n, (void)told, (void)next;
    atomic_store(&ended, true);
    return 0;
}

static void count_ignore(void *arg, uint64_t letters, bool failed)
{
    (void)arg, (void)letters, (void)failed;
}

Test(hook_retries, a_stop_is_seen_that_comes_with_another_death,
     .init = harness_init, .fini = harness_fini)
{
    static const struct source_local_ops local = {.hook = hook,
                                                  .hook_end = hook_end};
    static struct source source = {.local = &local};
    struct settings set;
    struct on_dead *h;
    struct problem p;
    uint64_t begin;

    log_setup(LOG_ERROR + 1, LOG_TEXT);
    settings_init(&set);
    strcpy(set.queue, "/q");
    set.on_dead = "exec sleep 1000";
    set.timeout_ns = 60 * NS_PER_S;
    set.kill_after_ns = NS_PER_MS;
    cr_assert_eq(on_dead_open(&h,
                              &(struct on_dead_setup){.set = &set,
                                                      .source = &source,
                                                      .failing = count_ignore},
                              &p),
                 0);
    atomic_store(&dead, true);
    on_dead_wake(h);
    harness_until(atomic_load(&started), 20000);
    on_dead_wake(h);
    harness_until(atomic_load(&reads), 20000);
    begin = clock_mono_ns();
    on_dead_close(&h);
    cr_assert_null(h);
    cr_assert_not(atomic_load(&ended), "the command had ended");
    cr_assert_lt(clock_mono_ns() - begin, 50 * NS_PER_S);
}

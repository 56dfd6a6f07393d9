/* test_library_spool.c - libmqworker: the options of the spool and of dead
 * letters */
#include "tests/unit/handlers/library_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "tests/harness/letters.h"

TestSuite(library_spool, .init = harness_init, .fini = harness_fini);

#define SOON_MS 20000

static atomic_uint calls;
static atomic_bool gate; /* true: handlers return */
static int answer;

static int wait_for_gate(const struct mqw_message *m, struct mqw_context *c)
{
    (void)c;
    while (!atomic_load(&gate) && !mqw_cancelled(m))
        sched_yield();
    atomic_fetch_add(&calls, 1);
    return answer;
}

static struct mqw_options options(const char *queue)
{
    struct mqw_options o;

    cr_assert_eq(mqw_options_init(&o, sizeof o), 0);
    o.queue = queue;
    o.state_dir = harness_state_dir();
    o.max_concurrency = 1;
    o.log_level = MQW_LOG_WARN;
    return o;
}

Test(library_spool, options_begin_as_the_flags_do)
{
    struct mqw_options o = options("/a");

    cr_assert_eq(o.spool, 0);
    cr_assert_eq(o.spool_sync, 0);
    cr_assert_eq(o.keep_dead, MQW_NEVER);
    cr_assert_eq(o.max_dead, 0);
    cr_assert_null(o.on_dead);
}

Test(library_spool, what_is_out_of_range_is_named)
{
    char why[256];
    struct mqw_options o = options("/a");

    o.problem = why;
    o.problem_size = sizeof why;
    o.spool_sync = 2;
    cr_assert_eq(mqw_run(&o, wait_for_gate, NULL), -EINVAL);
    cr_assert_str_eq(why, "spool_sync: 2 is out of range, allowed are 0 to 1");
    o.spool_sync = 1;
    o.keep_dead = 5;
    cr_assert_eq(mqw_run(&o, wait_for_gate, NULL), -EINVAL);
    cr_assert(strstr(why, "keep_dead: 5 is out of range"), "%s", why);
    o.keep_dead = MQW_NEVER;
    o.max_dead = UINT64_MAX - 1;
    cr_assert_eq(mqw_run(&o, wait_for_gate, NULL), -EINVAL);
    cr_assert(strstr(why, "max_dead: "), "%s", why);
}

/* While one message runs, twenty go through a queue with room for two. What a
 * stop leaves is run by the next worker. */
Test(library_spool, what_waits_is_in_the_store_and_run_by_the_next)
{
    const char *q = harness_queue(2, 256);
    struct runner r = {.o = options(q)};

    r.o.spool = 100;
    r.o.spool_sync = 1;
    r.o.grace = 0;
    runner_start(&r, wait_for_gate, NULL);
    for (int i = 0; i < 20; i++) {
        char text[16];

        snprintf(text, sizeof text, "%d", i);
        struct harness_result s =
            harness_run("mqsend", "--wait", "20s", q, text);

        cr_assert_eq(s.status, 0, "a sender waits: %s", s.err);
    }
    runner_end(&r);
    cr_assert_eq(harness_queue_length(q), 0);
    atomic_store(&gate, true);
    atomic_store(&calls, 0);
    r = (struct runner){.o = r.o};
    runner_start(&r, wait_for_gate, NULL);
    harness_until(atomic_load(&calls) >= 19, SOON_MS);
    runner_end(&r);
}

/* Three messages die: the command runs once for each, the newest is kept. */
Test(library_spool, the_hook_hears_of_each_letter_and_the_oldest_go)
{
    const char *q = harness_queue(0, 0);
    struct runner r = {.o = options(q)};
    char command[256];
    size_t letters;

    snprintf(command, sizeof command, "cat >>%s/hooks", harness_state_dir());
    answer = MQW_DEAD;
    atomic_store(&gate, true);
    r.o.max_dead = 1;
    r.o.on_dead = command;
    runner_start(&r, wait_for_gate, NULL);
    for (int i = 0; i < 3; i++)
        harness_send_text(q, "bad");
    snprintf(command, sizeof command, "%s/hooks", harness_state_dir());
    harness_until_lines(command, 3, SOON_MS);
    do
        harness_letters(q, &letters);
    while (letters != 1);
    runner_end(&r);
    cr_assert_eq(harness_lines(command), 3);
}

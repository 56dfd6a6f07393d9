/* test_groups_kill.c - kill the worker again and again: groups keep their
 * order, deliveries of a group never overlap, and nothing is lost
 *
 * The handler (turn.c) notes when each delivery starts and ends. KILLS=n makes
 * n instead of 20 kills, SEED=n repeats their moments.
 */
#include <criterion/criterion.h>
#include <bsd/stdlib.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/harness/harness.h"
#include "tests/harness/letters.h"
#include "tests/harness/turns.h"

#define KILLS   20
#define LATE_US 20000 /* most time between an awaited event and the kill */

TestSuite(groups_kill, .init = harness_init, .fini = harness_fini,
          .timeout = 3600);

static unsigned from_environment(const char *name, unsigned preset)
{
    const char *text = getenv(name);

    return text && text[0] ? (unsigned)strtoul(text, NULL, 10) : preset;
}

/* Seed the random numbers and print the seed. */
static unsigned seed_random(void)
{
    unsigned seed = from_environment("SEED", arc4random());

    fprintf(stderr, "SEED=%u\n", seed);
    srandom(seed);
    return seed;
}

/* Start a worker; each one has a generation number. */
static struct harness_process *worker_start(const char *q, const char *slots,
                                            const char *ms, const char *percent)
{
    static unsigned generation;
    char text[16];

    snprintf(text, sizeof text, "%u", ++generation);
    return harness_worker(q, "-q", "-c", "8", "--max-attempts", "100000",
                          "--max-crashes", "10000", "--backoff", "10ms,40ms",
                          "--jitter", "100", "--lookahead", slots, "--", TURN,
                          ms, percent, text);
}

/* Kill a running worker at a random moment. */
static void kill_soon(struct harness_process *w)
{
    nanosleep(&(struct timespec){.tv_nsec = random() % LATE_US * 1000}, NULL);
    cr_assert(harness_running(w), "%s", harness_said());
    harness_kill(w);
}

/* Return true if each message was done and none is left in the store. */
static bool all_done(const char *q, size_t messages)
{
    return turns_done() >= messages && turns_distinct() == messages &&
           turns_rows(q, TURNS_ANY) == 0;
}

/* Let the worker finish, and check the result. */
static void finish(struct harness_process *w, const char *q, size_t messages)
{
    struct turns t;

    harness_until(!harness_running(w) || all_done(q, messages), 120000);
    cr_assert(harness_running(w), "%s", harness_said());
    cr_assert_eq(harness_stop(w, 10000), 0);
    w = harness_worker(q, "--exit-when-idle=50ms", "--", TURN, "0", "0", "0");
    cr_assert_eq(harness_wait(w, 20000), 0);
    t = turns_read();
    for (size_t i = 0; i < t.count; i++)
        cr_assert_neq(t.at[i].generation, 0u, "%s ran last", t.at[i].body);
    cr_assert_eq(turns_check(&t), messages);
    fprintf(stderr, "%zu messages, %zu notes\n", messages, t.count);
}

Test(groups_kill, order_holds_and_nothing_is_lost_under_full_load)
{
    unsigned kills = from_environment("KILLS", KILLS);
    const struct turns_plan plan = {.producers = 4,
                                    .groups = 200,
                                    .each = 50,
                                    .block = 16,
                                    .high_in = 5,
                                    .seed = seed_random()};
    size_t all = (size_t)plan.groups * plan.each;
    const char *q = harness_queue(0, 0);

    turns_produce(q, &plan);
    for (unsigned i = 1; i <= kills; i++) {
        struct harness_process *w = worker_start(q, "64", "3", "5");

        harness_until(!harness_running(w) ||
                          turns_done() >= all / (kills + 1) * i,
                      60000);
        kill_soon(w);
    }
    struct harness_process *w = worker_start(q, "64", "3", "5");
    harness_until(turns_produced(), 120000);
    finish(w, q, all);
}

/* One head fails until the end. Kills come while the other messages move to the
 * store, wait there and come back. */
Test(groups_kill, order_holds_while_messages_are_parked_and_come_back)
{
    enum { EACH = 300, ROUNDS = 8 };
    const struct turns_plan plan = {.producers = 1,
                                    .groups = 3,
                                    .each = EACH,
                                    .block = 3,
                                    .high_in = 6,
                                    .seed = seed_random()};
    const char *q = harness_queue(0, 0);
    struct harness_process *w;

    turns_tell("fail", "0.0");
    turns_produce(q, &plan);
    for (long long i = 0; i < ROUNDS; i++) {
        w = worker_start(q, "16", "1", "0");
        harness_until(!harness_running(w) || turns_rows(q, TURNS_PARKED) >
                                                 i * (3 * EACH - 100) / ROUNDS,
                      60000);
        kill_soon(w);
    }
    w = worker_start(q, "16", "1", "0");
    harness_until(turns_produced(), 60000);
    harness_until(harness_queue_length(q) == 0, 60000);
    harness_kill(w);
    turns_untell("fail", "0.0");
    for (size_t i = 1; i <= ROUNDS; i++) {
        w = worker_start(q, "16", "1", "0");
        harness_until(!harness_running(w) ||
                          turns_done() >= i * 3 * EACH / (ROUNDS + 1),
                      60000);
        kill_soon(w);
    }
    finish(worker_start(q, "16", "1", "0"), q, 3 * EACH);
}

/* The same message is running at each kill. */
Test(groups_kill, a_group_goes_on_in_order_when_its_head_was_killed)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w;

    turns_tell("gate", "0.0");
    for (unsigned i = 0; i < 10; i++)
        turns_send_number(q, "a", i % 2 ? 4 : 0, 0, i);
    for (size_t i = 1; i <= 5; i++) {
        w = worker_start(q, "64", "0", "0");
        harness_until(harness_lines("turns") >= i, 10000);
        harness_kill(w);
    }
    turns_untell("gate", "0.0");
    finish(worker_start(q, "64", "0", "0"), q, 10);
}

Test(groups_kill, a_parked_message_says_that_it_came_before_and_dies_of_crashes)
{
    const char *q = harness_queue(0, 0);
    const struct harness_letter *l;
    struct harness_process *w = worker_start(q, "1", "0", "0");

    turns_tell("fail", "0.0");
    for (unsigned i = 0; i < 3; i++)
        turns_send_number(q, "a", 0, 0, i);
    harness_until(turns_rows(q, TURNS_PARKED) == 2, 10000);
    turns_tell("gate", "0.1"); /* before the message can have its turn */
    turns_untell("fail", "0.0");
    for (size_t i = 1; i <= 2; i++) {
        harness_until(harness_lines_with("turns", " 0.1") >= i, 10000);
        harness_kill(w);
        w = harness_worker(q, "-q", "--max-crashes", "2", "--", TURN, "0", "0",
                           i == 1 ? "100" : "101");
    }
    l = harness_wait_letters(q, 1, 10000);
    harness_until(turns_done() == 2, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_str_eq(turns_order("a"), "0.0 0.2 ");
    cr_assert_str_eq(l->body, "0.1");
    cr_assert_str_eq(l->reason, "crashed");
    cr_assert_eq(l->crashes, 2);
    cr_assert(l->redelivered);
    cr_assert_eq(harness_lines_with("turns", " 1 100 "), 1, "marked at once");
}

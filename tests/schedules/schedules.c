/* schedules.c - run flow under many schedules of its threads
 *
 * Usage: schedules [--scene NAME] [--singles N] [--pairs N] [--runs N]
 *        schedules --scene NAME --seed S --runs 1      repeat a random run
 *
 * Gate, schedule, work items, settle and groups run over the source in memory
 * and in virtual time, as in their unit tests, but with real threads, a real
 * pool and a real loop. One thread runs at a time (turn.h). Each scene is run
 * with switches only where a thread must wait, then with one additional switch
 * at each point to each other thread, then with two (N of these, evenly spread;
 * 0: all), then with N random schedules. In each run every message must be
 * settled, and:
 *   no message is overlooked: when no thread runs and nothing keeps the worker
 *   from taking messages (schedule_why), no message is ready;
 *   no message runs twice at a time, or more often than it should;
 *   no more handlers run than the cap allows;
 *   the messages of a group run one at a time and in order.
 * A fault is printed with the flags that repeat it, and the status is 1. Only
 * the order of steps is varied; the order of memory accesses is checked by the
 * thread sanitizer.
 */
#include "tests/schedules/scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OTHERS = 3 };

static const char *name; /* of the current scene */
static uint64_t runs;

/* Run a plan, and name it for turn_fault. */
static uint64_t plan_run(const struct turn_plan *plan)
{
    runs++;
    if (plan->rate)
        turn_name("--scene %s --runs 1 --seed %llu", name,
                  (unsigned long long)plan->seed);
    else
        turn_name("scene %s, %u switches: at %llu to %u, at %llu to %u", name,
                  plan->count, (unsigned long long)plan->at[0].step,
                  plan->at[0].which, (unsigned long long)plan->at[1].step,
                  plan->at[1].which);
    return scene_run(plan);
}

/* Return the stride that takes `most` of all positions; 0: all. */
static uint64_t stride(uint64_t all, uint64_t most)
{
    return most && all > most ? all / most : 1;
}

/* Run with no additional switch, with one at each point to each other thread,
 * and with two; an even selection of these. */
static void each_switch(uint64_t singles, uint64_t pairs)
{
    struct turn_plan plan = {0};
    uint64_t points = plan_run(&plan);
    uint64_t of_one = points * OTHERS, of_two = of_one * of_one / 2;

    plan.count = 1;
    for (uint64_t i = 0; i < of_one; i += stride(of_one, singles)) {
        plan.at[0].step = 1 + i / OTHERS;
        plan.at[0].which = (unsigned)(i % OTHERS);
        plan_run(&plan);
    }
    plan.count = 2;
    for (uint64_t i = 0; i < of_two; i += stride(of_two, pairs)) {
        uint64_t both = i / (OTHERS * OTHERS);

        plan.at[0].step = 1 + both % points;
        plan.at[1].step = plan.at[0].step + 1 + both / points;
        plan.at[0].which = (unsigned)(i % OTHERS);
        plan.at[1].which = (unsigned)(i / OTHERS % OTHERS);
        plan_run(&plan);
    }
}

/* Run random schedules with seeds from `seed` on, at different rates of
 * switches. */
static void random_runs(uint64_t seed, uint64_t n)
{
    static const unsigned rates[] = {2, 4, 8, 16, 32, 64, 128, 512};

    for (uint64_t i = 0; i < n; i++) {
        struct turn_plan plan = {.seed = seed + i,
                                 .rate = rates[(seed + i) % 8]};

        plan_run(&plan);
    }
}

static uint64_t number(const char *text)
{
    char *end;
    uint64_t n = strtoull(text, &end, 10);

    if (*end || end == text) {
        fprintf(stderr, "schedules: \"%s\" is not a number\n", text);
        exit(64);
    }
    return n;
}

int main(int argc, char **argv)
{
    uint64_t n = 200, seed = 0, singles = 200, pairs = 200;
    const char *only = NULL;

    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--runs") == 0)
            n = number(argv[i + 1]);
        else if (strcmp(argv[i], "--seed") == 0)
            seed = number(argv[i + 1]);
        else if (strcmp(argv[i], "--singles") == 0)
            singles = number(argv[i + 1]);
        else if (strcmp(argv[i], "--pairs") == 0)
            pairs = number(argv[i + 1]);
        else if (strcmp(argv[i], "--scene") == 0)
            only = argv[i + 1];
    }
    turn_one_processor();
    for (unsigned i = 0; (name = scene_choose(i)); i++) {
        uint64_t before = runs;

        if (only && strcmp(only, name) != 0)
            continue;
        if (!seed)
            each_switch(singles, pairs);
        random_runs(seed ? seed : 1, n);
        printf("%s: %llu schedules, in %llu handlers ran side by side\n", name,
               (unsigned long long)(runs - before),
               (unsigned long long)scene_together());
        fflush(stdout);
    }
    printf("%llu schedules: no fault\n", (unsigned long long)runs);
    return 0;
}

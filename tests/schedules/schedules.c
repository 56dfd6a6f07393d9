/* schedules.c - flow under every order of its threads, as far as that goes
 *
 * Usage: schedules [--scene NAME] [--singles N] [--pairs N] [--runs N]
 *        schedules --scene NAME --seed S --runs 1      once more
 * Gate, schedule, work items, settle and groups, over the source in memory and
 * in virtual time, as the unit tests have them; but with their real threads,
 * pool and loop, of which one runs at a time (turn.h). First each run with no
 * switch but where a thread must wait; then with one switch more, at each point
 * to each other thread; then with two; N of these, evenly, or with 0 all; then
 * N random ones. Each run is to end with every message settled:
 *   no message is slept over: while nobody runs, and nothing says why none is
 *   taken (schedule_why), none is ready; no lock waits for itself
 *   no message runs twice at once, nor more often than it was told to
 *   no more handlers run than the cap allows
 *   a group's messages run one by one, in their order
 * What is wrong is printed with what to give to see it again: status 1.
 * Only orders of steps are tried; those of memory are the thread sanitizer's.
 */
#include "tests/schedules/scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OTHERS = 3 };

static const char *name; /* of the scene */
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

/* bench_handler.c - a C function that takes its time, on two threads
 *
 * The ideal is two threads that do nothing but the handlers' work: no queue, no
 * sender. It is measured and not computed, so that other programs slow both
 * alike. It cannot be reached where handlers are busy on all of the processors,
 * since the sender needs some processor time for each message, too; the second
 * rival shows how far a loop written by hand gets under the same conditions.
 */
#include "common/base/clock.h"
#include "tests/bench/bench.h"
#include "tests/bench/library.h"
#include "tests/bench/place.h"
#include "tests/bench/rivals.h"

#define THREADS 2

static const struct duel duels[] = {
    {.rows = {{"busy-20us", "busy for 20 us, -c 2, a sender beside / the ideal",
               "/s", MORE, 0.90, 0.98}},
     .ours = {.go = library_rate},
     .rival = {.go = ideal_rate},
     .task = {.n = 20000,
              .depth = DEEP,
              .size = 64,
              .work_ns = 20 * NS_PER_US,
              .threads = THREADS,
              .how = HOW_SENDER}},
    {.rows = {{"busy-1ms", "busy for 1 ms, -c 2, a sender beside / the ideal",
               "/s", MORE, 0.90, 0.98}},
     .ours = {.go = library_rate},
     .rival = {.go = ideal_rate},
     .task = {.n = 400,
              .depth = DEEP,
              .size = 64,
              .work_ns = NS_PER_MS,
              .threads = THREADS,
              .how = HOW_SENDER}},
    {.rows = {{"sleep-1ms",
               "sleeping for 1 ms, -c 2, a sender beside / the ideal", "/s",
               MORE, 0.90, 0.98}},
     .ours = {.go = library_rate},
     .rival = {.go = ideal_rate},
     .task = {.n = 400,
              .depth = DEEP,
              .size = 64,
              .work_ns = NS_PER_MS,
              .threads = THREADS,
              .how = HOW_SENDER | HOW_SLEEPS}},
    {.rows = {{"busy-20us-pool",
               "busy for 20 us, -c 2 / 2 threads that block in mq_receive, a "
               "sender beside",
               "/s", MORE, 0, 0}},
     .ours = {.go = library_rate},
     .rival = {.go = pool_rate},
     .task = {.n = 20000,
              .depth = DEEP,
              .size = 64,
              .work_ns = 20 * NS_PER_US,
              .threads = THREADS,
              .how = HOW_SENDER}},
    {.rows = {{"floor-busy-20us-pool",
               "busy for 20 us, 2 threads that receive one after the other, "
               "which keeps the order / 2 threads that block in mq_receive, a "
               "sender beside",
               "/s", MORE, 0, 0}},
     .ours = {.go = turns_rate},
     .rival = {.go = pool_rate},
     .task = {.n = 20000,
              .depth = DEEP,
              .size = 64,
              .work_ns = 20 * NS_PER_US,
              .threads = THREADS,
              .how = HOW_SENDER}},
};

const struct section section_handler = {
    .name = "handler",
    .what = "a C function that takes its time, on two threads",
    .usual = true,
    DUELS(duels),
};

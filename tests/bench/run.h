/* run.h - measure the two sides of a duel in turn
 *
 * WHAT   Runs each measurement in a process of its own, ours and the rival's by
 *        turns. Takes the median of each and of the ratios of pairs: other load
 *        on the machine then slows both alike.
 * WHO    The process that was started, alone.
 * OWNS   The measuring processes; none is left when a call returns.
 * FAILS  A row that could not be measured says so; -EINTR after a signal
 *        (interrupt.h).
 */
#ifndef TESTS_BENCH_RUN_H
#define TESTS_BENCH_RUN_H

#include "tests/bench/bench.h"

struct plan {
    unsigned runs; /* pairs, 1 to RUNS_MOST */
    bool usual;    /* nobody asked for so many: some duels take more */
    bool quick;    /* less work in each measurement */
};

enum state { ROW_MEASURED, ROW_NOT_BUILT, ROW_FAILED };
enum met { MET_NOTHING, MET_AIM, MET_MUST, MET_NOT }; /* nothing: no demand */

struct result {
    const struct row *row;
    enum state state;
    enum met met;
    bool compared;                  /* with a rival */
    unsigned runs;                  /* pairs that were measured */
    double ours, rival;             /* medians */
    double ratio, least, most, mad; /* of the pairs' ratios; without a rival
                                       of the values of ours */
};

/* Measure a duel; fill in one result for each of its rows. */
int duel_run(const struct duel *duel, const struct plan *plan,
             struct result result[ROWS_MOST]);

#endif

/* report.h - what the benchmark prints
 *
 * WHAT   A table for people, one line a row as soon as it is measured, or one
 *        JSON object a row.
 * WHO    The process that was started, alone.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef TESTS_BENCH_REPORT_H
#define TESTS_BENCH_REPORT_H

#include "tests/bench/run.h"

struct report {
    bool json;
    double load; /* of the last minute, when the benchmark started */
    long processors;
};

/* Print what the machine is, and warn on stderr if it is busy. */
void report_begin(struct report *report, const struct plan *plan);
void report_section(const struct report *report, const struct section *section);
void report_row(const struct report *report, const struct section *section,
                const struct result *result);
/* Print the sections and their rows, for --list. */
void report_list(const struct section *const *sections, size_t count);

#endif

/* inversions.h - the file that plugins/inversions.c shares with the sender */
#ifndef TESTS_HARNESS_PLUGINS_INVERSIONS_H
#define TESTS_HARNESS_PLUGINS_INVERSIONS_H

#include <stdatomic.h>
#include <stdint.h>

#define INVERSIONS_PRIORITIES 10

struct inversions {
    _Atomic uint64_t sent[INVERSIONS_PRIORITIES]; /* sends that have returned */
    _Atomic uint64_t came[INVERSIONS_PRIORITIES];
    _Atomic uint64_t inverted;    /* arrived before an earlier message of a
                                   * higher priority */
    _Atomic uint64_t out_of_line; /* arrived out of the order of its priority */
};

#endif

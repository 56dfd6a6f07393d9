/* letters.h - a queue's dead letters, as `mqdlq list --json` tells of them
 *
 * WHAT   What an end-to-end test of the worker wants to know of a letter.
 * WHO    The test's main thread.
 * OWNS   All it hands out, until harness_fini.
 * FAILS  By ending the test.
 */
#ifndef TESTS_HARNESS_LETTERS_H
#define TESTS_HARNESS_LETTERS_H

#include <stdbool.h>
#include <stddef.h>

#include "tests/harness/harness.h"

struct harness_letter {
    long long row;
    long long attempts, crashes, priority;
    bool redelivered;
    const char *id, *reason, *error, *group; /* NULL: null */
    const char *body;                        /* NULL: not UTF-8 */
    size_t body_size;
    const char *said; /* end of the last attempt's stderr; NULL: not UTF-8 */
    size_t said_size;
    size_t history;            /* failed deliveries */
    const char *const *errors; /* of each of them, oldest first */
};

/* Newest first; *count of them. None if the queue has no state yet. */
const struct harness_letter *harness_letters(const char *queue, size_t *count);
/* The same, once there are at least `count`; more than that ends the test. */
const struct harness_letter *
harness_wait_letters(const char *queue, size_t count, unsigned limit_ms);

#ifndef HARNESS_INTERNAL
#define harness_letters(...) HARNESS_HERE_(harness_letters(__VA_ARGS__))
#define harness_wait_letters(...) \
    HARNESS_HERE_(harness_wait_letters(__VA_ARGS__))
#endif

#endif

/* letters.h - a queue's dead letters, as `mqdlq list --json` prints them
 *
 * WHAT   The fields of a letter that end-to-end tests of the worker check.
 * WHO    The test's main thread.
 * OWNS   All that it hands out, until harness_fini.
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
    const char *id, *reason, *error, *group; /* NULL: null in JSON */
    const char *body;                        /* NULL: not UTF-8 */
    size_t body_size;
    const char *said; /* end of the last attempt's stderr; NULL: not UTF-8 */
    size_t said_size;
    size_t history;            /* number of failed deliveries */
    const char *const *errors; /* error of each failed delivery, oldest first */
};

/* Return the letters, the newest first, and their number in *count; none if the
 * queue has no state yet. */
const struct harness_letter *harness_letters(const char *queue, size_t *count);
/* Wait until there are `count` letters and return them; more than that fail the
 * test. */
const struct harness_letter *
harness_wait_letters(const char *queue, size_t count, unsigned limit_ms);

#ifndef HARNESS_INTERNAL
#define harness_letters(...) HARNESS_HERE_(harness_letters(__VA_ARGS__))
#define harness_wait_letters(...) \
    HARNESS_HERE_(harness_wait_letters(__VA_ARGS__))
#endif

#endif

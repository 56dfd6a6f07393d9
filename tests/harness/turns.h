/* turns.h - groups in end-to-end tests: sending, and what ran when
 *
 * WHAT   Messages with a group, producers in their own processes, the notes of
 *        handlers/turn.c and checks of them. A body is "PRODUCER.NUMBER"; the
 *        numbers of a producer grow in each group.
 * WHO    The test's main thread.
 * OWNS   All that it hands out, until harness_fini.
 * FAILS  By ending the test.
 */
#ifndef TESTS_HARNESS_TURNS_H
#define TESTS_HARNESS_TURNS_H

#include <stdbool.h>
#include <stddef.h>

#include "tests/harness/harness.h"

#define TURN harness_handler("turn")

/* Send a message with a header and a group (NULL: none); waits 10 s for
 * room. */
void turns_send(const char *queue, const char *group, unsigned priority,
                const char *body);
/* Send the same with the body "PRODUCER.NUMBER". */
void turns_send_number(const char *queue, const char *group, unsigned priority,
                       unsigned producer, unsigned number);

/* Wait until everything now in the queue was taken: until a later message has
 * run. */
void turns_passed(const char *queue);

/* ---- control of the handler, by files (handlers/turn.c) ---- */

/* Create or remove such a file; `what` is "gate", "fail" or "dead". */
void turns_tell(const char *what, const char *body);
void turns_untell(const char *what, const char *body);

/* ---- producers ---- */

struct turns_plan {
    unsigned producers, groups, each; /* `each` messages per group, from all
                                       * producers */
    unsigned block;     /* number of groups that get messages at a time */
    unsigned high_in;   /* one message in so many has priority 3; 0: none */
    unsigned seed;      /* for the order of groups */
    const char *prefix; /* start of group names, before a number; NULL: "g" */
};
/* Start the producers; they exit when everything is sent. */
void turns_produce(const char *queue, const struct turns_plan *plan);
/* Return true if all producers have exited. */
bool turns_produced(void);

/* ---- what ran ---- */

struct turn {
    char what; /* 'S' or 'E' */
    char group[64], body[48];
    unsigned priority, attempt, generation;
    bool redelivered;
    int pid, status;
    size_t line;
};
struct turns {
    const struct turn *at; /* in order of time */
    size_t count;
};
struct turns turns_read(void);
/* Count done deliveries so far, including repeats. Cheap to call repeatedly. */
size_t turns_done(void);
/* Count messages (by group and body) that were done at least once. */
size_t turns_distinct(void);
/* Return the bodies of successes in order of time, each followed by a blank,
 * for one group or (NULL) all. */
const char *turns_order(const char *group);
/* Return the most deliveries at a time, for a run without kills. */
unsigned turns_most(const struct turns *t);
/* Return the index of the first S line of a body, or (size_t)-1. */
size_t turns_start(const struct turns *t, const char *body);
/* Count the S lines of a group with an index from `from` to before `to`. */
size_t turns_starts(const struct turns *t, const char *group, size_t from,
                    size_t to);

/* Check that no two deliveries of a group overlap (a delivery without an end
 * was killed with its worker, so the next one has another generation), that
 * first successes come in the order sent for each group, producer and priority,
 * and that repeated successes are marked. Return how many messages
 * succeeded. */
size_t turns_check(const struct turns *t);

/* ---- the store ---- */

/* Count the rows of the queue's store that fulfil the SQL condition; 0 if there
 * is no store yet. */
long long turns_rows(const char *queue, const char *condition);
#define TURNS_PARKED  "state = 2"
#define TURNS_WAITING "state = 1"
#define TURNS_ANY     "1"

#ifndef HARNESS_INTERNAL
#define turns_send(...)   HARNESS_HERE_(turns_send(__VA_ARGS__))
#define turns_check(...)  HARNESS_HERE_(turns_check(__VA_ARGS__))
#define turns_passed(...) HARNESS_HERE_(turns_passed(__VA_ARGS__))
#endif

#endif

/* turns.h - ordered groups in end-to-end tests: sending, and what ran when
 *
 * WHAT   Messages with a group; producers in processes of their own; the notes
 *        of handlers/turn.c, and what must hold of them. A body is
 *        "PRODUCER.NUMBER"; the numbers of a producer grow in each group.
 * WHO    The test's main thread.
 * OWNS   All it hands out, until harness_fini.
 * FAILS  By ending the test.
 */
#ifndef TESTS_HARNESS_TURNS_H
#define TESTS_HARNESS_TURNS_H

#include <stdbool.h>
#include <stddef.h>

#include "tests/harness/harness.h"

#define TURN harness_handler("turn")

/* A message of a group (NULL: none), with a header; waits 10 s for room. */
void turns_send(const char *queue, const char *group, unsigned priority,
                const char *body);
/* The same with a body "PRODUCER.NUMBER". */
void turns_send_number(const char *queue, const char *group, unsigned priority,
                       unsigned producer, unsigned number);

/* Whether all that is in the queue now was taken: waits until something behind
 * it has run. */
void turns_passed(const char *queue);

/* ---- what the handler is to do; a file each (handlers/turn.c) ---- */

/* `what`: "gate", "fail" or "dead". */
void turns_tell(const char *what, const char *body);
void turns_untell(const char *what, const char *body);

/* ---- producers ---- */

struct turns_plan {
    unsigned producers, groups, each; /* `each` messages a group, of all */
    unsigned block;     /* so many groups get messages at a time */
    unsigned high_in;   /* every so many-th message has priority 3; 0: none */
    unsigned seed;      /* of the order of groups */
    const char *prefix; /* of a group's name, a number follows; NULL: "g" */
};
/* Start them; they end when all is sent. */
void turns_produce(const char *queue, const struct turns_plan *plan);
/* Whether all of them have ended; false while one runs. */
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
/* Deliveries that ended done so far, repeated ones too: quick to ask again. */
size_t turns_done(void);
/* Messages (group and body) that ended done at least once. */
size_t turns_distinct(void);
/* The bodies of successes in order of time, a blank behind each; of one group,
 * NULL: of all. */
const char *turns_order(const char *group);
/* Most deliveries at once; of a run in which no worker was killed. */
unsigned turns_most(const struct turns *t);
/* The first S of a body; its index, or (size_t)-1. */
size_t turns_start(const struct turns *t, const char *body);
/* S lines of a group from index `from` up to before `to`. */
size_t turns_starts(const struct turns *t, const char *group, size_t from,
                    size_t to);

/* No two deliveries of a group at once (a delivery without an end is one that
 * was killed with its worker: the next one is of another generation); first
 * successes in the order sent, for each group, producer and priority; a success
 * that is repeated says so. How many messages succeeded. */
size_t turns_check(const struct turns *t);

/* ---- the store ---- */

/* Rows of the queue's store for which the SQL condition holds; 0 if there is no
 * store yet. */
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

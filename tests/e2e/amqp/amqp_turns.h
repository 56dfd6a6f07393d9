/* amqp_turns.h - which runs of groups began and ended, and in which order
 *
 * WHAT   Workers of a queue with partitions, whose plugin (plugins/turns.c)
 *        notes each run; messages of many groups; whether each group ran in its
 *        order.
 * WHO    Tests of groups on a broker, in place of amqp_fixture.h.
 * OWNS   What was read of the file "turns".
 * FAILS  By ending the test.
 */
#ifndef TESTS_AMQP_TURNS_H
#define TESTS_AMQP_TURNS_H

#include "tests/e2e/amqp/amqp_fixture.h"

#include <time.h>

#include "common/amqp/topology.h"

#define GROUPS 100
#define EACH   12 /* messages of a group */
#ifndef DRAIN
#define DRAIN 60000 /* ms */
#endif

/* ---- what ran, and in which order ---- */

/* One group, as its lines in "turns" were read. */
struct turns {
    bool ended[64], began[64];
    unsigned open; /* the number that has begun last, and not ended; 0: none */
    int pid;       /* of that */
};
static struct turns turns[GROUPS];

/* Check that no earlier message of the group is missing, and that a second run
 * is marked. */
static inline void began_read(const char *line)
{
    unsigned g, n, attempt, redelivered;
    struct turns *t;
    int pid;

    cr_assert_eq(
        sscanf(line, "b g%u %u %u %u %d", &g, &n, &attempt, &redelivered, &pid),
        5, "%s", line);
    cr_assert(g < GROUPS && n > 0 && n < 64, "%s", line);
    t = &turns[g];
    for (unsigned i = 1; i < n; i++)
        cr_assert(t->ended[i], "%u of g%u runs before %u is done", n, g, i);
    cr_assert(!t->began[n] || attempt > 1 || redelivered,
              "a second run is not marked: %s", line);
    t->began[n] = true;
    t->open = n;
    t->pid = pid;
}

/* Check that no other message of its group began in the meantime. */
static inline void ended_read(const char *line)
{
    unsigned g, n;
    int pid;

    cr_assert_eq(sscanf(line, "e g%u %u %d", &g, &n, &pid), 3, "%s", line);
    cr_assert(turns[g].open == n && turns[g].pid == pid,
              "%u of g%u has begun before %s", turns[g].open, g, line);
    turns[g].ended[n] = true;
    turns[g].open = 0;
}

/* Count the messages that "turns" does not show as run to their end. */
static inline unsigned missing(unsigned groups, unsigned each)
{
    FILE *f = fopen(harness_path("turns"), "re");
    unsigned n = groups * each;
    char line[128];

    memset(turns, 0, sizeof turns);
    while (f && fgets(line, sizeof line, f) && strchr(line, '\n'))
        (line[0] == 'b' ? began_read : ended_read)(line);
    if (f)
        fclose(f);
    for (unsigned g = 0; g < groups; g++)
        for (unsigned i = 1; i <= each; i++)
            n -= turns[g].ended[i];
    return n;
}

/* ---- workers, senders ---- */

#define OPERAND amqp_operand(amqp_queue, 1)

/* Start worker number `n`, with a state directory of its own. */
static inline struct harness_process *worker_start(unsigned n,
                                                   const char *partitions)
{
    return harness_start(&(struct harness_spec){
        .argv = HARNESS_LIST("mqworker", "--state-dir",
                             harness_path("state%u", n), OPERAND, "-c", "8",
                             "--partitions", partitions, "--backoff", "200ms",
                             "--plugin", harness_plugin("turns"))});
}

static inline struct harness_process *worker(unsigned n, const char *partitions)
{
    return amqp_started(worker_start(n, partitions));
}

/* Publish all numbers of all groups to the exchange, as another producer would.
 */
static inline void rounds_publish(unsigned groups, unsigned each,
                                  unsigned partitions)
{
    char group[16], body[16], key[12], exchange[100];

    snprintf(exchange, sizeof exchange, "%s.partitions.%u", amqp_queue,
             partitions);
    for (unsigned i = 0; i < groups * each; i++) {
        amqp_table_entry_t named = {.key = amqp_word("mqw-group"),
                                    .value = {.kind = AMQP_FIELD_KIND_UTF8}};
        amqp_basic_properties_t p = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG |
                                               AMQP_BASIC_HEADERS_FLAG,
                                     .delivery_mode = 2,
                                     .headers = {1, &named}};

        snprintf(group, sizeof group, "g%u", i % groups);
        snprintf(body, sizeof body, "%u", 1 + i / groups);
        named.value.value.bytes = amqp_word(group);
        snprintf(key, sizeof key, "%u",
                 partition_of(group, strlen(group), partitions));
        cr_assert_eq(amqp_basic_publish(amqp_client, 1, amqp_word(exchange),
                                        amqp_word(key), 1, 0, &p,
                                        amqp_word(body)),
                     AMQP_STATUS_OK);
        amqp_published++;
    }
    amqp_confirmed();
}

static inline const char *part(unsigned n)
{
    char text[12];

    snprintf(text, sizeof text, "%u", n);
    return amqp_of(text);
}

/* Wait until all messages but `left` were run to their end. */
static inline void until_left(unsigned groups, unsigned each, unsigned left)
{
    const struct timespec look = {.tv_nsec = 50000000}; /* it reads all */
    uint64_t end = harness_deadline(DRAIN);

    while (missing(groups, each) > left) {
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &look, NULL);
        harness_nap(end, "messages of groups run");
    }
}

#endif

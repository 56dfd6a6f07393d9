/* bench_groups.c - ordered groups beside a plain queue, one message at a time
 *
 * The same messages go through both, in the same order: in by add (push), out
 * by lease, peek, take and release (pop), as group_dispatch.c does it. One
 * producer, and the handler is empty.
 * "steady": a fixed number of messages waits, and for each that is taken
 * another comes. "burst": all come, then all are taken. What is measured is
 * processor time.
 */
#include <bsd/sys/queue.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "worker/groups/groups.h"

#define QUANTUM   10
#define LOOKAHEAD 64   /* that many wait unless the worker is told more */
#define LEAST     4096 /* messages of a round */
#define LARGEST   100000
#define ROUNDS    22

struct key {
    size_t size;
    char text[24];
};

struct message {
    struct group_item item;
    TAILQ_ENTRY(message) link;
    const struct key *key;
};

struct contender {
    void (*in)(struct message *m);
    struct message *(*out)(void);
};

static struct message message[LARGEST];
static struct message *slot[LARGEST]; /* the same in any order */
static struct key key[LARGEST];       /* of what comes, in turn */

/* ---- the plain queue ---- */

static TAILQ_HEAD(, message) plain = TAILQ_HEAD_INITIALIZER(plain);
static pthread_mutex_t mtx = PTHREAD_MUTEX_INITIALIZER;

static void plain_in(struct message *m)
{
    pthread_mutex_lock(&mtx);
    TAILQ_INSERT_TAIL(&plain, m, link);
    pthread_mutex_unlock(&mtx);
}

static struct message *plain_out(void)
{
    struct message *m;

    pthread_mutex_lock(&mtx);
    m = TAILQ_FIRST(&plain);
    if (m)
        TAILQ_REMOVE(&plain, m, link);
    pthread_mutex_unlock(&mtx);
    return m;
}

/* ---- groups ---- */

static struct groups *groups;
static struct group *lease;
static uint64_t seq;

static void groups_in(struct message *m)
{
    m->item.seq = ++seq;
    m->item.priority = 0;
    if (groups_add(groups, m->key->text, m->key->size, &m->item))
        abort();
}

/* Take a message as a thread of the worker does. */
static struct message *groups_out(void)
{
    struct group_item *item;

    if (lease && !groups_release(groups, lease))
        abort();
    lease = groups_lease(groups);
    if (!lease)
        return NULL;
    item = groups_peek(groups, lease);
    groups_take(groups, lease, item, 0);
    return (struct message *)item;
}

/* ---- measuring ---- */

/* Give each group its share, in a random order. The messages lie in random
 * order, too, as slots do when they have been in use for a while. */
static void load_fill(const struct task *task, uint64_t *seed)
{
    for (size_t i = 0; i < task->n; i++) {
        size_t j = random_next(seed) % (i + 1), k = random_next(seed) % (i + 1);

        key[i] = key[j];
        key[j].size = (size_t)snprintf(key[j].text, sizeof key[j].text,
                                       "account-%06zu", i % task->groups);
        slot[i] = slot[k];
        slot[k] = &message[i];
    }
}

/* Add the first `n` messages. */
static void fill(const struct contender *c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        slot[i]->key = &key[i];
        c->in(slot[i]);
    }
}

/* Take all messages; there must be `n`. */
static void drain(const struct contender *c, size_t n)
{
    size_t out = 0;

    while (c->out())
        out++;
    if (out != n)
        fail(0, "%zu of %zu messages came out", out, n);
}

/* Return the ns for one message, in and out, while others wait. */
static double take_steady(const struct contender *c, const struct task *task)
{
    uint64_t ns;

    fill(c, task->waiting);
    ns = cpu_ns();
    for (size_t i = 0; i < task->n; i++) {
        struct message *m = c->out();

        m->key = &key[i];
        c->in(m);
    }
    ns = cpu_ns() - ns;
    drain(c, task->waiting);
    return (double)ns / (double)task->n;
}

/* Return the ns for one message, in and out, when all come before any goes. */
static double take_burst(const struct contender *c, const struct task *task)
{
    uint64_t ns = cpu_ns();

    fill(c, task->n);
    drain(c, task->n);
    return (double)(cpu_ns() - ns) / (double)task->n;
}

/* Be a second thread: in a program with one, locks cost next to nothing. */
static void *stay(void *arg)
{
    (void)arg;
    pause();
    return NULL;
}

/* Return the median of some rounds. The first, in which memory grows, does not
 * count. */
static enum measured take(const struct contender *c, const struct task *task,
                          double value[ROWS_MOST])
{
    unsigned rounds = task->n > LEAST ? 3 : ROUNDS;
    uint64_t seed = task->run;
    double ns[ROUNDS];
    pthread_t other;

    if (pthread_create(&other, NULL, stay, NULL) ||
        groups_open(&groups, QUANTUM, false, NULL))
        fail(ENOMEM, "groups_open");
    for (unsigned r = 0; r < rounds; r++) {
        load_fill(task, &seed);
        ns[r] = (task->how & HOW_BURST ? take_burst : take_steady)(c, task);
    }
    value[0] = at_part(ns + 1, rounds - 1, 0.5);
    return MEASURED;
}

static enum measured take_groups(const struct task *task,
                                 double value[ROWS_MOST])
{
    return take(&(struct contender){groups_in, groups_out}, task, value);
}

static enum measured take_plain(const struct task *task,
                                double value[ROWS_MOST])
{
    return take(&(struct contender){plain_in, plain_out}, task, value);
}

/* A row: so many groups, messages and messages that wait; at most `must` times
 * the cost of a plain queue. */
#define LOAD(name_, what_, groups_, n_, waiting_, how_, must_)                \
    {                                                                         \
        .rows = {{"groups-" name_, what_ " / plain queue", "ns", LESS, must_, \
                  0}},                                                        \
        .ours = {.go = take_groups}, .rival = {.go = take_plain},             \
        .task = {.n = (n_),                                                   \
                 .groups = (groups_),                                         \
                 .waiting = (waiting_),                                       \
                 .how = (how_)},                                              \
        .whole = true                                                         \
    }

static const struct duel duels[] = {
    LOAD("1", "1 group, 64 messages wait", 1, LEAST, LOOKAHEAD, 0, 3),
    LOAD("1-deep", "1 group, 4096 wait", 1, LEAST, LEAST, 0, 3),
    LOAD("1-burst", "1 group, 4096 come, then go", 1, LEAST, LEAST, HOW_BURST,
         0),
    LOAD("1k", "1000 groups, 64 wait", 1000, LEAST, LOOKAHEAD, 0, 3),
    LOAD("1k-deep", "1000 groups, 4096 wait", 1000, LEAST, LEAST, 0, 3),
    LOAD("1k-burst", "1000 groups, 4096 come, then go", 1000, LEAST, LEAST,
         HOW_BURST, 0),
    LOAD("100k", "100,000 groups, 64 wait", LARGEST, LARGEST, LOOKAHEAD, 0, 3),
    LOAD("100k-deep", "100,000 groups, 100,000 wait", LARGEST, LARGEST, LARGEST,
         0, 4),
    LOAD("100k-burst", "100,000 groups, 100,000 come, then go", LARGEST,
         LARGEST, LARGEST, HOW_BURST, 0),
};

const struct section section_groups = {
    .name = "groups",
    .what = "ordered groups, processor time a message, in and out",
    DUELS(duels),
};

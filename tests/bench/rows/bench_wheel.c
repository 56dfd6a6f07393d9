/* bench_wheel.c - the timer wheel beside a heap, a tree and a plainer wheel
 *
 * Both of a pair get the same deadlines in the same order. What is measured is
 * processor time.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "tests/unit/wheel/wheel_check.h"
#include "tests/bench/bench.h"
#include "tests/bench/wheel_rivals.h"

#define SPAN   (10 * NS_PER_S) /* deadlines are within it */
#define STEPS  1000            /* advances that the span is served in */
#define BUDGET 4096            /* of one advance, as worker/timers has it */
#define ROUNDS 101             /* at most */

enum { ADD, CANCEL, EXPIRE, CHURN, PHASES };

struct contender {
    void (*open)(void);
    void (*add)(const struct load *l);
    void (*cancel)(const struct load *l);
    void (*churn)(const struct load *l); /* cancel and add each */
    size_t (*expire)(uint64_t now_ns);
};

static size_t expired;

/* ---- the wheel ---- */

static struct wheel *wheel;
static struct wheel_timer *timer;

static void count_fire(struct wheel_timer *t)
{
    (void)t;
    expired++;
}

static void wheel_begin(void)
{
    wheel_reset(wheel, 0);
}

static void wheel_add(const struct load *l)
{
    for (size_t i = 0; i < l->n; i++)
        wheel_start(wheel, &timer[i], l->when[i]);
}

static void wheel_remove(const struct load *l)
{
    for (size_t i = 0; i < l->n; i++)
        wheel_cancel(wheel, &timer[l->order[i]]);
}

static void wheel_churn(const struct load *l)
{
    for (size_t i = 0; i < l->n; i++) {
        wheel_cancel(wheel, &timer[l->order[i]]);
        wheel_start(wheel, &timer[l->order[i]], l->other[i]);
    }
}

static size_t wheel_expire(uint64_t now_ns)
{
    expired = 0;
    while (wheel_advance(wheel, now_ns, BUDGET, count_fire))
        continue;
    return expired;
}

/* ---- measuring ---- */

static const struct contender of_wheel = {wheel_begin, wheel_add, wheel_remove,
                                          wheel_churn, wheel_expire},
                              of_heap = {heap_begin, heap_add, heap_cancel,
                                         heap_churn, heap_expire},
                              of_tree = {tree_begin, tree_add, tree_cancel,
                                         tree_churn, tree_expire},
                              of_ticks = {tick_begin, tick_add, tick_cancel,
                                          tick_churn, tick_expire};

/* Make fresh deadlines and a fresh order. */
static void load_fill(struct load *l, uint64_t *seed)
{
    for (size_t i = 0; i < l->n; i++) {
        size_t j = random_next(seed) % (i + 1);

        l->when[i] = 1 + random_next(seed) % SPAN;
        l->other[i] = 1 + random_next(seed) % SPAN;
        l->order[i] = l->order[j];
        l->order[j] = (unsigned)i;
    }
}

/* Return memory that is zeroed, touched, and begins a cache line. */
static void *array(size_t n, size_t size)
{
    void *at;

    if (posix_memalign(&at, 64, n * size) != 0)
        fail(ENOMEM, "%zu timers", n);
    explicit_bzero(at, n * size); /* no page is made while the clock runs */
    return at;
}

/* Allocate for all contenders, so that none has more room in the caches than
 * another. */
static void load_open(struct load *l, size_t n)
{
    l->n = n;
    l->when = array(n, sizeof *l->when);
    l->other = array(n, sizeof *l->other);
    l->order = array(n, sizeof *l->order);
    timer = array(n, sizeof *timer);
    heap = array(n, sizeof *heap);
    heap_at = array(n, sizeof *heap_at);
    node = array(n, sizeof *node);
    tick_timer = array(n, sizeof *tick_timer);
    if (wheel_open(&wheel, 0) < 0)
        fail(ENOMEM, "wheel_open");
    for (size_t i = 0; i < n; i++)
        wheel_timer_init(&timer[i]);
}

/* Return the ns for one operation. */
static double take_phase(void (*work)(const struct load *l),
                         const struct load *l)
{
    uint64_t start = cpu_ns();

    work(l);
    return (double)(cpu_ns() - start) / (double)l->n;
}

/* Return the ns for each timer that expires, over the whole span. */
static double take_expire(const struct contender *c, const struct load *l)
{
    uint64_t start = cpu_ns();
    size_t n = 0;

    for (unsigned s = 1; s <= STEPS; s++)
        n += c->expire(SPAN / STEPS * s);
    if (n != l->n)
        fail(0, "%zu of %zu timers expired", n, l->n);
    return (double)(cpu_ns() - start) / (double)n;
}

/* Let a contender take the memory that it needs when it grows. */
static void warm_up(const struct contender *c, struct load *l, uint64_t *seed)
{
    load_fill(l, seed);
    c->open();
    c->add(l);
    c->cancel(l);
}

/* Measure add and cancel, add and expire, and cancel and add, at `n` pending
 * timers, in ns. */
static enum measured take(const struct task *task, const struct contender *c,
                          double value[ROWS_MOST])
{
    static double of[PHASES][ROUNDS];
    unsigned rounds = task->n <= 1000 ? ROUNDS : task->n <= 100000 ? 3 : 1;
    uint64_t seed = task->run;
    struct load l;

    load_open(&l, task->n);
    warm_up(c, &l, &seed);
    for (unsigned r = 0; r < rounds; r++) {
        load_fill(&l, &seed);
        c->open();
        of[ADD][r] = take_phase(c->add, &l);
        of[CHURN][r] = take_phase(c->churn, &l);
        of[CANCEL][r] = take_phase(c->cancel, &l);
        c->add(&l);
        of[EXPIRE][r] = take_expire(c, &l);
    }
    value[0] = at_part(of[ADD], rounds, 0.5);
    value[1] = value[0] + at_part(of[EXPIRE], rounds, 0.5);
    value[0] += at_part(of[CANCEL], rounds, 0.5);
    value[2] = at_part(of[CHURN], rounds, 0.5);
    return MEASURED;
}

static enum measured take_wheel(const struct task *task,
                                double value[ROWS_MOST])
{
    return take(task, &of_wheel, value);
}

static enum measured take_heap(const struct task *task, double value[ROWS_MOST])
{
    return take(task, &of_heap, value);
}

static enum measured take_tree(const struct task *task, double value[ROWS_MOST])
{
    return take(task, &of_tree, value);
}

static enum measured take_ticks(const struct task *task,
                                double value[ROWS_MOST])
{
    return take(task, &of_ticks, value);
}

/* ---- how long the lock would be held ---- */

/* Return the ns of the longest single advance, served in `steps`. */
static double longest_once(const struct load *l, unsigned steps)
{
    uint64_t longest = 0;
    bool more;

    wheel_begin();
    wheel_add(l);
    for (unsigned s = 1; s <= steps; s++)
        do {
            uint64_t start = cpu_ns(), took;

            more = wheel_advance(wheel, SPAN / steps * s, BUDGET, count_fire);
            took = cpu_ns() - start;
            if (took > longest)
                longest = took;
        } while (more);
    return (double)longest;
}

static enum measured take_longest(const struct task *task,
                                  double value[ROWS_MOST])
{
    uint64_t seed = task->run;
    struct load l;

    load_open(&l, task->n);
    load_fill(&l, &seed);
    value[0] = longest_once(&l, 1);
    value[1] = longest_once(&l, STEPS);
    return MEASURED;
}

/* The three rows of the wheel beside one rival, at one number of pending
 * timers, with the ratio that each must reach; 0: none. */
#define BESIDE(prefix_, n_, text_, rival_, take_, cancel_, expire_, churn_)    \
    {                                                                          \
        .rows = {{prefix_ "-" text_ "-cancel",                                 \
                  "add and cancel at " text_ " pending / " rival_, "ns", LESS, \
                  cancel_, 0},                                                 \
                 {prefix_ "-" text_ "-expire",                                 \
                  "add and expire at " text_ " pending / " rival_, "ns", LESS, \
                  expire_, 0},                                                 \
                 {prefix_ "-" text_ "-churn",                                  \
                  "cancel and add at " text_ " pending / " rival_, "ns", LESS, \
                  churn_, 0}},                                                 \
        .ours = {.go = take_wheel}, .rival = {.go = (take_)},                  \
        .task = {.n = (n_)}, .whole = true                                     \
    }

/* The rows beside all rivals. `cancel_`: the share of the tree's time. */
#define SIZE(n_, text_, cancel_)                                              \
    BESIDE("wheel", n_, text_, "red-black tree", take_tree, cancel_, 1 / 1.5, \
           0),                                                                \
        BESIDE("heap", n_, text_, "4-ary heap", take_heap, 0, 0, 1.0),        \
        BESIDE("ticks", n_, text_, "wheel of 1 ms ticks", take_ticks, 0, 0, 0)

static const struct duel duels[] = {
    SIZE(1000, "1k", 0.1),
    SIZE(100000, "100k", 0),
    SIZE(1000000, "1m", 0.05),
    {.rows = {{"wheel-stall",
               "longest hold of the lock, 1m pending, after a stall", "ns",
               LESS, 1e6, 0},
              {"wheel-steps", "the same, served in time", "ns", LESS, 1e6, 0}},
     .ours = {.go = take_longest},
     .task = {.n = 1000000},
     .whole = true},
};

const struct section section_wheel = {
    .name = "wheel",
    .what = "timers, processor time an operation",
    DUELS(duels),
};

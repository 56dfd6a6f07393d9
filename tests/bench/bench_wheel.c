/* bench_wheel.c - the timer wheel beside a 4-ary heap and a red-black tree
 *
 * Each measures the same deadlines in turn, round by round; the medians are
 * printed. --strict: exit 1 if a ratio that docs/ promises is not reached.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "common/wheel.h"
#include "tests/bench/rivals.h"

#define SPAN    (10 * NS_PER_S) /* deadlines are within it */
#define STEPS   1000            /* advances that the span is served in */
#define BUDGET  4096            /* of one advance, as worker/timers has it */
#define LARGEST 1000000
#define ROUNDS  301

enum { ADD, CANCEL, EXPIRE, CHURN, PHASES };
enum { WHEEL, HEAP, TREE, CONTENDERS };

struct contender {
    const char *name;
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

static void count_fire(struct wheel_timer *t, uint64_t missed)
{
    (void)t;
    (void)missed;
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
    while (wheel_advance(wheel, now_ns, BUDGET))
        continue;
    return expired;
}

/* ---- measuring ---- */

static const struct contender contenders[CONTENDERS] = {
    [WHEEL] = {"wheel", wheel_begin, wheel_add, wheel_remove, wheel_churn,
               wheel_expire},
    [HEAP] = {"4-ary heap", heap_begin, heap_add, heap_cancel, heap_churn,
              heap_expire},
    [TREE] = {"red-black tree", tree_begin, tree_add, tree_cancel, tree_churn,
              tree_expire},
};

static double sample[CONTENDERS][PHASES][ROUNDS];
static double median[CONTENDERS][PHASES];

/* random64 - splitmix64 */
static uint64_t random64(void)
{
    static uint64_t state = 42;
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* load_fill - fresh deadlines and a fresh order */
static void load_fill(struct load *l)
{
    for (size_t i = 0; i < l->n; i++) {
        size_t j = random64() % (i + 1);

        l->when[i] = 1 + random64() % SPAN;
        l->other[i] = 1 + random64() % SPAN;
        l->order[i] = l->order[j];
        l->order[j] = (unsigned)i;
    }
}

/* cpu_ns - time this thread has run; other programs do not count */
static uint64_t cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* take_phase - ns for one operation */
static double take_phase(void (*work)(const struct load *l),
                         const struct load *l)
{
    uint64_t start = cpu_ns();

    work(l);
    return (double)(cpu_ns() - start) / (double)l->n;
}

/* take_expire - ns for each timer that expires, the whole span long */
static double take_expire(const struct contender *c, const struct load *l)
{
    uint64_t start = cpu_ns();
    size_t n = 0;

    for (unsigned s = 1; s <= STEPS; s++)
        n += c->expire(SPAN / STEPS * s);
    if (n != l->n) {
        fprintf(stderr, "%s: %zu of %zu expired\n", c->name, n, l->n);
        exit(1);
    }
    return (double)(cpu_ns() - start) / (double)n;
}

/* take_round - one contender, all phases */
static void take_round(unsigned which, const struct load *l, unsigned round)
{
    const struct contender *c = &contenders[which];
    double(*to)[ROUNDS] = sample[which];

    c->open();
    to[ADD][round] = take_phase(c->add, l);
    to[CHURN][round] = take_phase(c->churn, l);
    to[CANCEL][round] = take_phase(c->cancel, l);
    c->add(l);
    to[EXPIRE][round] = take_expire(c, l);
}

static int double_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* take_medians - rounds of all contenders in turn, at `l->n` pending */
static void take_medians(struct load *l)
{
    unsigned rounds = l->n <= 1000 ? ROUNDS : l->n <= 100000 ? 11 : 5;

    for (unsigned r = 0; r < rounds; r++) {
        load_fill(l);
        for (unsigned c = 0; c < CONTENDERS; c++)
            take_round((c + r) % CONTENDERS, l, r);
    }
    for (unsigned c = 0; c < CONTENDERS; c++)
        for (unsigned p = 0; p < PHASES; p++) {
            qsort(sample[c][p], rounds, sizeof(double), double_compare);
            median[c][p] = sample[c][p][rounds / 2];
        }
}

/* print_ratio - and whether it is what was promised (0: nothing was) */
static bool print_ratio(const char *what, double ratio, double promised)
{
    bool good = ratio >= promised;

    printf("  %-28s %6.1f times the tree's speed", what, ratio);
    if (promised > 0)
        printf(", at least %.1f: %s", promised, good ? "ok" : "NOT REACHED");
    printf("\n");
    return good;
}

/* bench_size - measure and print one size */
static bool bench_size(struct load *l)
{
    const double *w = median[WHEEL], *t = median[TREE];
    double promised = l->n <= 1000 ? 10 : l->n >= LARGEST ? 20 : 0;
    bool good;

    take_medians(l);
    printf("%zu pending, ns      add  cancel  expire  churn\n", l->n);
    for (unsigned c = 0; c < CONTENDERS; c++)
        printf("  %-16s %7.1f %7.1f %7.1f %6.1f\n", contenders[c].name,
               median[c][ADD], median[c][CANCEL], median[c][EXPIRE],
               median[c][CHURN]);
    good = print_ratio("add + cancel",
                       (t[ADD] + t[CANCEL]) / (w[ADD] + w[CANCEL]), promised);
    good &= print_ratio("add + expire",
                        (t[ADD] + t[EXPIRE]) / (w[ADD] + w[EXPIRE]), 1.5);
    print_ratio("churn", t[CHURN] / w[CHURN], 0);
    return good;
}

/* longest_once - us of the longest single advance, served in `steps` */
static double longest_once(const struct load *l, unsigned steps)
{
    uint64_t longest = 0;
    bool more;

    wheel_begin();
    wheel_add(l);
    for (unsigned s = 1; s <= steps; s++)
        do {
            uint64_t start = cpu_ns(), took;

            more = wheel_advance(wheel, SPAN / steps * s, BUDGET);
            took = cpu_ns() - start;
            if (took > longest)
                longest = took;
        } while (more);
    return (double)longest / 1e3;
}

/* longest_advance - the least of three: what disturbs only adds */
static double longest_advance(const struct load *l, unsigned steps)
{
    double least = longest_once(l, steps);

    for (unsigned i = 1; i < 3; i++) {
        double again = longest_once(l, steps);

        if (again < least)
            least = again;
    }
    return least;
}

/* bench_advance - how long the lock would be held */
static bool bench_advance(const struct load *l)
{
    double stall = longest_advance(l, 1), steps = longest_advance(l, STEPS);

    printf("longest advance, %zu pending, budget %d: %.0f us after a stall, "
           "%.0f us in steps\n",
           l->n, BUDGET, stall, steps);
    return stall < 1000 && steps < 1000;
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {1000, 100000, LARGEST};
    bool strict = argc > 1 && !strcmp(argv[1], "--strict"), good = true;
    struct load l = {
        .when = calloc(LARGEST, sizeof *l.when),
        .other = calloc(LARGEST, sizeof *l.other),
        .order = calloc(LARGEST, sizeof *l.order),
    };

    timer = calloc(LARGEST, sizeof *timer);
    heap = calloc(LARGEST, sizeof *heap);
    heap_at = calloc(LARGEST, sizeof *heap_at);
    node = calloc(LARGEST, sizeof *node);
    if (!l.when || !l.other || !l.order || !timer || !heap || !heap_at ||
        !node || wheel_open(&wheel, 0))
        return 71;
    for (size_t i = 0; i < LARGEST; i++)
        wheel_timer_init(&timer[i], count_fire);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        l.n = sizes[s];
        good &= bench_size(&l);
    }
    good &= bench_advance(&l);
    return strict && !good;
}

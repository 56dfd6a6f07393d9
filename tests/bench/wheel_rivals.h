/* wheel_rivals.h - what bench_wheel.c compares the timer wheel with
 *
 * WHAT   A 4-ary heap with cached keys, the tree of <bsd/sys/tree.h>, and a
 *        hashed hierarchical wheel of the plain kind.
 * WHO    bench_wheel.c alone, which allocates `heap`, `heap_at`, `node` and
 *        `tick_timer`.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef TESTS_BENCH_WHEEL_RIVALS_H
#define TESTS_BENCH_WHEEL_RIVALS_H

#include <bsd/sys/tree.h>
#include <stddef.h>
#include <stdint.h>

/* The work of one round, the same for all. */
struct load {
    size_t n;
    uint64_t *when, *other; /* deadlines: of the add, after a churn */
    unsigned *order;        /* of cancels and churn */
};

/* ---- a 4-ary heap with cached keys ---- */

struct entry {
    uint64_t when;
    size_t *at; /* where its owner keeps the entry's index */
};

static struct entry *heap;
static size_t heap_size, *heap_at;

static void heap_set(size_t i, struct entry e)
{
    heap[i] = e;
    *e.at = i;
}

static void heap_up(size_t i, struct entry e)
{
    while (i && e.when < heap[(i - 1) / 4].when) {
        heap_set(i, heap[(i - 1) / 4]);
        i = (i - 1) / 4;
    }
    heap_set(i, e);
}

static void heap_down(size_t i, struct entry e)
{
    for (;;) {
        size_t first = 4 * i + 1, last = first + 4, least = first;

        if (first >= heap_size)
            break;
        if (last > heap_size)
            last = heap_size;
        for (size_t c = first + 1; c < last; c++)
            if (heap[c].when < heap[least].when)
                least = c;
        if (heap[least].when >= e.when)
            break;
        heap_set(i, heap[least]);
        i = least;
    }
    heap_set(i, e);
}

static void heap_push(size_t owner, uint64_t when)
{
    heap_up(heap_size++, (struct entry){when, &heap_at[owner]});
}

static void heap_take(size_t i)
{
    struct entry e = heap[--heap_size];

    if (i == heap_size)
        return;
    if (i && e.when < heap[(i - 1) / 4].when)
        heap_up(i, e);
    else
        heap_down(i, e);
}

static void heap_begin(void)
{
    heap_size = 0;
}

static void heap_add(const struct load *l)
{
    for (size_t i = 0; i < l->n; i++)
        heap_push(i, l->when[i]);
}

static void heap_cancel(const struct load *l)
{
    for (size_t i = 0; i < l->n; i++)
        heap_take(heap_at[l->order[i]]);
}

static void heap_churn(const struct load *l)
{
    for (size_t i = 0; i < l->n; i++) {
        heap_take(heap_at[l->order[i]]);
        heap_push(l->order[i], l->other[i]);
    }
}

static size_t heap_expire(uint64_t now_ns)
{
    size_t n = 0;

    for (; heap_size && heap[0].when <= now_ns; n++)
        heap_take(0);
    return n;
}

/* ---- the red-black tree of <bsd/sys/tree.h> ---- */

struct node {
    RB_ENTRY(node) link;
    uint64_t when;
};

static int node_compare(const struct node *a, const struct node *b)
{
    if (a->when != b->when)
        return a->when < b->when ? -1 : 1;
    return (a > b) - (a < b);
}

static RB_HEAD(tree, node) tree;
static struct node *node;

RB_GENERATE_INTERNAL(tree, node, link, node_compare,
                     static __attribute__((unused)))

static void tree_begin(void)
{
    RB_INIT(&tree);
}

static void tree_put(struct node *n, uint64_t when)
{
    n->when = when;
    RB_INSERT(tree, &tree, n);
}

static void tree_add(const struct load *l)
{
    for (size_t i = 0; i < l->n; i++)
        tree_put(&node[i], l->when[i]);
}

static void tree_cancel(const struct load *l)
{
    for (size_t i = 0; i < l->n; i++)
        RB_REMOVE(tree, &tree, &node[l->order[i]]);
}

static void tree_churn(const struct load *l)
{
    for (size_t i = 0; i < l->n; i++) {
        RB_REMOVE(tree, &tree, &node[l->order[i]]);
        tree_put(&node[l->order[i]], l->other[i]);
    }
}

static size_t tree_expire(uint64_t now_ns)
{
    struct node *first;
    size_t n = 0;

    for (; (first = RB_MIN(tree, &tree)) && first->when <= now_ns; n++)
        RB_REMOVE(tree, &tree, first);
    return n;
}

/* ---- the wheel that Linux had until 4.8 (kernel/time/timer.c) ----
 *
 * Ticks of a millisecond, 256 slots for the next 256 of them and four rings of
 * 64 slots behind those; each time a ring has gone round, a slot of the next
 * one is spread over it. It does less than the others: a timer is late by up to
 * a tick, and those of one tick fire in no order of deadline. */

#define TICK_NS   1000000u
#define NEAR_BITS 8u /* of the first ring */
#define FAR_BITS  6u /* of each other */
#define FAR_RINGS 4u
#define NEAR      (1u << NEAR_BITS)
#define FAR       (1u << FAR_BITS)

struct tick_timer {
    struct tick_timer *next, *prev;
    uint32_t tick;
    void (*fire)(struct tick_timer *t);
};

static struct tick_timer *tick_timer;
static struct tick_timer near[NEAR], far[FAR_RINGS][FAR];
static uint32_t tick_now; /* the next tick that is to be served */

/* Return the slot of a timer: its ring is the first that reaches its tick. */
static struct tick_timer *tick_slot(uint32_t tick)
{
    uint32_t delta = tick - tick_now;
    unsigned ring = 0, shift = NEAR_BITS;

    if (delta < NEAR)
        return &near[tick % NEAR];
    while (ring < FAR_RINGS - 1 && delta >> shift >> FAR_BITS) {
        ring++;
        shift += FAR_BITS;
    }
    return &far[ring][(tick >> shift) % FAR];
}

static void tick_file(struct tick_timer *t)
{
    struct tick_timer *list = tick_slot(t->tick);

    t->next = list;
    t->prev = list->prev;
    list->prev->next = t;
    list->prev = t;
}

static void tick_unlink(struct tick_timer *t)
{
    t->next->prev = t->prev;
    t->prev->next = t->next;
    t->next = NULL;
}

static void tick_list_init(struct tick_timer *list)
{
    list->next = list->prev = list;
}

static void tick_begin(void)
{
    for (unsigned i = 0; i < NEAR; i++)
        tick_list_init(&near[i]);
    for (unsigned r = 0; r < FAR_RINGS; r++)
        for (unsigned i = 0; i < FAR; i++)
            tick_list_init(&far[r][i]);
    tick_now = 0;
}

static void tick_start(size_t owner, uint64_t when)
{
    tick_timer[owner].tick = (uint32_t)((when + TICK_NS - 1) / TICK_NS);
    tick_file(&tick_timer[owner]);
}

static void tick_add(const struct load *l)
{
    for (size_t i = 0; i < l->n; i++)
        tick_start(i, l->when[i]);
}

static void tick_cancel(const struct load *l)
{
    for (size_t i = 0; i < l->n; i++)
        tick_unlink(&tick_timer[l->order[i]]);
}

static void tick_churn(const struct load *l)
{
    for (size_t i = 0; i < l->n; i++) {
        tick_unlink(&tick_timer[l->order[i]]);
        tick_start(l->order[i], l->other[i]);
    }
}

/* Spread the far slots whose turn has come over the nearer rings. */
static void tick_cascade(void)
{
    unsigned shift = NEAR_BITS;

    for (unsigned ring = 0; ring < FAR_RINGS; ring++, shift += FAR_BITS) {
        unsigned at = (tick_now >> shift) % FAR;
        struct tick_timer *list = &far[ring][at], *t = list->next, *next;

        tick_list_init(list);
        for (; t != list; t = next) {
            next = t->next;
            tick_file(t);
        }
        if (at)
            return;
    }
}

static size_t tick_expire(uint64_t now_ns)
{
    size_t n = 0;

    for (; tick_now <= now_ns / TICK_NS; tick_now++) {
        struct tick_timer *list = &near[tick_now % NEAR];

        if (tick_now % NEAR == 0)
            tick_cascade();
        for (; list->next != list; n++)
            tick_unlink(list->next);
    }
    return n;
}

#endif

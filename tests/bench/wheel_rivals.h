/* wheel_rivals.h - what bench_wheel.c compares the timer wheel with
 *
 * WHAT   A 4-ary heap with cached keys and the tree of <bsd/sys/tree.h>.
 * WHO    bench_wheel.c alone, which allocates `heap`, `heap_at` and `node`.
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

#endif

/* test_groups_model.c - ordered groups beside a dumb model, in random turns
 *
 * The model is arrays that are searched from end to end. Several leases and
 * several batches of parked items are open at once. MQW_SEED repeats a run,
 * MQW_OPS sets its length.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/harness/sweep.h"
#include "tests/unit/groups/groups_check.h"

#define KEYS    12
#define ITEMS   400
#define LEASES  5
#define BATCHES 3
#define BATCH   8
#define OPS     150000

enum state { NONE, QUEUED, RUNNING, BLOCKED, HELD, PARKING };

struct item {
    struct group_item item;
    enum { FREE, WAITS, TAKEN, AWAY } where; /* AWAY: in a batch */
    unsigned key;
    uint32_t priority; /* its own, also with GROUP_FRONT */
};

struct model {
    enum state state;
    uint64_t turn; /* QUEUED: lower is sooner */
    uint64_t parked;
    int64_t head;
    unsigned parking, used, high;
    bool recheck;
};

struct lease {
    struct group *group; /* NULL: none */
    unsigned key;
    struct item *ahead; /* what peek will say; NULL: what is first then */
    struct item *taken;
    bool took;
};

struct batch {
    struct group_item *items[BATCH];
    size_t n;
    bool one; /* begun by groups_park_one */
};

static struct groups *groups;
static struct item item[ITEMS];
static struct model model[KEYS];
static struct lease lease[LEASES];
static struct batch batch[BATCHES];
static unsigned quantum;
static bool keep_front; /* GROUP_FRONT is not parked */
static uint64_t seed, seq, first_turn, last_turn;
static uint64_t added, taken, parks, unparked, restored;
static unsigned long op;

/* Return the next number of xorshift64*. */
static uint64_t random64(void)
{
    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;
    return seed * UINT64_C(2685821657736338717);
}

static unsigned random_below(unsigned n)
{
    return (unsigned)(random64() >> 33) % n;
}

/* Check a fact, or say which operation went wrong. */
#define expect(what)                                                  \
    do {                                                              \
        if (!(what))                                                  \
            cr_assert_fail("MQW_SEED above, op %lu: not " #what, op); \
    } while (0)

/* Return the text of a key; some are short, some are long. */
static const char *key_of(unsigned k, size_t *size)
{
    static char text[GROUP_KEY_MAX];

    memset(text, 'k', sizeof text);
    text[0] = (char)k;
    *size = k % 4 == 3 ? GROUP_KEY_MAX - k : 1 + k;
    return text;
}

/* Return true if `a` is delivered before `b`. */
static bool comes_before(const struct item *a, const struct item *b)
{
    if (a->item.priority != b->item.priority)
        return a->item.priority > b->item.priority;
    return a->item.seq < b->item.seq;
}

/* Return what is first in a group; `low`: what is of the lowest priority. */
static struct item *first_of(unsigned k, bool low)
{
    struct item *first = NULL, *lowest = NULL;

    for (struct item *i = item; i < item + ITEMS; i++) {
        if (i->where != WAITS || i->key != k)
            continue;
        if (!first || comes_before(i, first))
            first = i;
        if (!lowest || i->item.priority < lowest->item.priority ||
            (i->item.priority == lowest->item.priority &&
             i->item.seq < lowest->item.seq))
            lowest = i;
    }
    return low && first && first->item.priority != GROUP_FRONT ? lowest : first;
}

static size_t count_of(unsigned k)
{
    size_t n = 0;

    for (const struct item *i = item; i < item + ITEMS; i++)
        n += i->where == WAITS && i->key == k;
    return n;
}

/* Return true if an item may be parked. */
static bool parkable(const struct item *i)
{
    return !keep_front || i->item.priority != GROUP_FRONT;
}

/* Count the items of a group that may be parked; find the first of them. */
static size_t parkables(unsigned k, struct item **first)
{
    size_t n = 0;

    *first = NULL;
    for (struct item *i = item; i < item + ITEMS; i++) {
        if (i->where != WAITS || i->key != k || !parkable(i))
            continue;
        if (!*first || comes_before(i, *first))
            *first = i;
        n++;
    }
    return n;
}

/* ---- what the model does ---- */

static void model_queue(struct model *m, bool front)
{
    m->state = QUEUED;
    m->head = 0;
    m->turn = front ? --first_turn : ++last_turn;
}

static void model_wake(unsigned k)
{
    struct model *m = &model[k];

    m->used = 0;
    m->head = 0;
    if (m->parking)
        m->state = PARKING;
    else if (count_of(k) || m->parked)
        model_queue(m, false);
    else
        *m = (struct model){0};
}

static void model_release(unsigned k)
{
    struct model *m = &model[k];

    if (!m->parking && (count_of(k) || m->parked) && m->used + 1 < quantum) {
        m->used++;
        model_queue(m, true);
    } else {
        model_wake(k);
    }
}

/* Return the key of the first group on the run queue, or KEYS. */
static unsigned model_next(void)
{
    unsigned next = KEYS;

    for (unsigned k = 0; k < KEYS; k++)
        if (model[k].state == QUEUED &&
            (next == KEYS || model[k].turn < model[next].turn))
            next = k;
    return next;
}

/* ---- one operation each ---- */

static void op_add(void)
{
    struct item *i = &item[random_below(ITEMS)];
    static const uint32_t priorities[] = {0, 0, 0, 1, 7, 7, 7, GROUP_FRONT};
    struct model *m;
    const char *key;
    size_t size;
    int err;

    if (i->where != FREE)
        return;
    i->key = random_below(KEYS);
    i->priority = i->item.priority = priorities[random_below(8)];
    if (i->priority == GROUP_FRONT)
        i->priority = random_below(3);
    i->item.seq = ++seq;
    m = &model[i->key];
    key = key_of(i->key, &size);
    err = groups_add(groups, key, size, &i->item);
    expect(err == 0);
    added++;
    i->where = WAITS;
    if (m->state == NONE ||
        (m->state == HELD && i->item.priority == GROUP_FRONT))
        model_queue(m, false);
}

/* Note a lease of key k, and what it must say; KEYS: there must be none. */
static void leased(struct lease *l, struct group *group, unsigned k)
{
    const char *key, *is;
    size_t size, is_size;

    l->group = group;
    expect((group == NULL) == (k == KEYS));
    if (!group)
        return;
    key = key_of(k, &size);
    is = groups_key(group, &is_size);
    expect(is_size == size && memcmp(is, key, size) == 0);
    *l = (struct lease){.group = group, .key = k};
    model[k].state = RUNNING;
    if (!model[k].parked && !model[k].head)
        l->ahead = first_of(k, model[k].high >= GROUP_HIGH_ROW);
}

/* Return a random lease, if it is open, or closed, as wanted; else NULL. */
static struct lease *lease_pick(bool open)
{
    struct lease *l = &lease[random_below(LEASES)];

    return (l->group != NULL) == open ? l : NULL;
}

static void op_lease(void)
{
    struct lease *l = lease_pick(false);

    if (l)
        leased(l, groups_lease(groups), model_next());
}

static void op_take(void)
{
    struct lease *l = lease_pick(true);
    struct model *m = l ? &model[l->key] : NULL;
    struct item *next;
    bool low, front;
    uint32_t priority;

    if (!l || l->took || m->head)
        return;
    low = m->high >= GROUP_HIGH_ROW;
    next = l->ahead ? l->ahead : first_of(l->key, low);
    expect(groups_low_turn(l->group) == low);
    expect(groups_parked_of(l->group) == m->parked);
    expect(groups_peek(groups, l->group) == (next ? &next->item : NULL));
    l->ahead = next;
    if (random_below(4) == 0)
        return; /* others get in line meanwhile */
    front = next && next->item.priority == GROUP_FRONT;
    if (m->parked && !front && random_below(2)) {
        next = NULL;
        m->parked--;
    } else if (!next) {
        return;
    }
    priority = next ? next->priority : random_below(2);
    front = front && next;
    groups_take(groups, l->group, next ? &next->item : NULL, priority);
    l->took = true;
    l->taken = next;
    taken++;
    if (next)
        next->where = TAKEN;
    if (priority == 0 || (low && !front))
        m->high = 0;
    else if (!low)
        m->high++;
}

static void op_unpark(void)
{
    struct lease *l = lease_pick(true);

    if (!l || random_below(10))
        return;
    groups_unpark(groups, l->group);
    unparked += model[l->key].parked;
    model[l->key].parked = 0;
}

/* Settle what a lease has taken, and end the lease. */
static void put_away(struct lease *l)
{
    if (l->taken)
        l->taken->where = FREE;
    l->group = NULL;
}

static void op_release(void)
{
    struct lease *l = lease_pick(true);
    struct group *group = l ? l->group : NULL;

    if (!l || (!l->took && random_below(4)))
        return;
    if (model[l->key].recheck) {
        model[l->key].recheck = false;
        expect(!groups_release(groups, group));
        return;
    }
    put_away(l);
    model_release(l->key);
    expect(groups_release(groups, group));
    if (random_below(2))
        leased(l, groups_lease(groups), model_next());
}

static void op_block(void)
{
    struct lease *l = lease_pick(true);
    struct group *group = l ? l->group : NULL;

    if (!l || (!l->took && !model[l->key].head))
        return;
    put_away(l);
    model[l->key].state = BLOCKED;
    model[l->key].head = (int64_t)++seq;
    groups_block(groups, group, (int64_t)seq);
}

static void op_hold(void)
{
    struct lease *l = lease_pick(true);
    struct group *group = l ? l->group : NULL;
    struct item *first;

    if (!l || (!l->took && !model[l->key].head) || random_below(2))
        return;
    put_away(l);
    model[l->key].used = 0;
    model[l->key].head = 0;
    model[l->key].recheck = false;
    first = first_of(l->key, false);
    if (first && first->item.priority == GROUP_FRONT)
        model_queue(&model[l->key], false);
    else
        model[l->key].state = HELD;
    groups_hold(groups, group);
}

/* Return an item that was taken, or a slot into which a parked one was read. */
static void op_return(void)
{
    struct lease *l = lease_pick(true);
    struct item *i = l && l->taken ? l->taken : &item[random_below(ITEMS)];

    if (!l || !l->took || (!l->taken && i->where != FREE))
        return;
    if (!l->taken) {
        i->key = l->key;
        i->priority = random_below(3);
        i->item.seq = ++seq;
    }
    groups_return(groups, l->group, &i->item);
    expect(i->item.priority == GROUP_FRONT);
    i->where = WAITS;
    taken--;
    model_queue(&model[l->key], true);
    l->group = NULL;
}

static void op_resume(void)
{
    unsigned k = random_below(KEYS);
    struct lease *l = lease_pick(false);
    bool right = model[k].state == BLOCKED && random_below(4);
    int64_t row = right ? model[k].head : (int64_t)++seq;
    struct group *group;
    const char *key;
    size_t size;

    if (!l)
        return;
    key = key_of(k, &size);
    group = groups_resume(groups, key, size, row, NULL);
    leased(l, group, right ? k : KEYS);
    if (right)
        model[k].used = quantum;
}

static void op_unhold(void)
{
    unsigned k = random_below(KEYS);
    const char *key;
    size_t size;

    key = key_of(k, &size);
    if (model[k].state == HELD && model[k].recheck) {
        model[k].recheck = false;
        expect(!groups_unhold(groups, key, size));
        return;
    }
    expect(groups_unhold(groups, key, size));
    if (model[k].state == HELD)
        model_wake(k);
}

static void op_hold_late(void)
{
    unsigned k = random_below(KEYS);
    struct model *m = &model[k];
    struct item *first = first_of(k, false);
    bool front = first && first->item.priority == GROUP_FRONT;
    bool held = m->state != BLOCKED && m->state != HELD;
    const char *key;
    size_t size;

    if (random_below(8))
        return;
    if (m->state == RUNNING || m->state == HELD || front) {
        m->recheck = true;
        held = false;
    }
    key = key_of(k, &size);
    expect(groups_hold_late(groups, key, size) == held);
    if (held) {
        m->state = HELD;
        m->used = 0;
    }
}

static void op_restore(void)
{
    unsigned k = random_below(KEYS), parked = random_below(3);
    int64_t head = random_below(2) ? (int64_t)++seq : 0;
    struct model *m = &model[k];
    bool held = random_below(2);
    const char *key;
    size_t size;
    int err;

    if (random_below(20))
        return;
    key = key_of(k, &size);
    err = groups_restore(groups, key, size, parked, head, held);
    if (!parked && !head && !held) {
        expect(err == 0);
    } else if (m->state != NONE) {
        expect(err == -EEXIST);
    } else {
        expect(err == 0);
        restored += parked;
        m->parked = parked;
        if (!head && !held)
            model_queue(m, false);
        else
            m->state = head ? BLOCKED : HELD;
        m->head = head;
    }
}

static void op_known(void)
{
    unsigned k = random_below(KEYS);
    size_t size;
    const char *key = key_of(k, &size);

    expect(groups_known(groups, key, size) == (model[k].state != NONE));
}

static void op_park_begin(void)
{
    struct batch *b = &batch[random_below(BATCHES)];
    size_t room = random_below(BATCH + 1), parkable = groups_parkable(groups);

    if (b->n || random_below(3))
        return;
    b->one = false;
    b->n = groups_park_begin(groups, b->items, room);
    expect(b->n == (room < parkable ? room : parkable));
    for (size_t n = 0; n < b->n; n++) {
        struct item *i = (struct item *)b->items[n];
        struct model *m = &model[i->key];
        struct item *first;

        expect(m->state == BLOCKED || m->state == HELD);
        (void)parkables(i->key, &first);
        expect(i == first);
        i->where = AWAY;
        m->parking++;
    }
}

static void op_park_one(void)
{
    struct batch *b = &batch[random_below(BATCHES)];
    struct item *i = &item[random_below(ITEMS)];
    struct model *m;
    const char *key;
    size_t size;
    int err;

    if (b->n || i->where != FREE)
        return;
    i->key = random_below(KEYS);
    i->priority = i->item.priority = random_below(3);
    i->item.seq = ++seq;
    m = &model[i->key];
    key = key_of(i->key, &size);
    err = groups_park_one(groups, key, size, &i->item);
    expect(err == 0);
    added++;
    i->where = AWAY;
    m->parking++;
    if (m->state == NONE)
        m->state = PARKING;
    b->items[0] = &i->item;
    b->n = 1;
    b->one = true;
}

/* Undo the parking of an item that could not be stored and waits elsewhere. */
static void undo(struct batch *b)
{
    struct item *i = (struct item *)b->items[0];
    struct model *m = &model[i->key];

    groups_park_undo(groups, b->items[0]);
    i->where = FREE;
    added--;
    m->parking--;
    if (m->parking == 0 && m->state == PARKING)
        model_wake(i->key);
    b->n = 0;
}

static void op_park_end(void)
{
    struct batch *b = &batch[random_below(BATCHES)];
    bool parked = random_below(2);

    if (b->n && b->one && random_below(2)) {
        undo(b);
        return;
    }
    groups_park_end(groups, b->items, b->n, parked);
    for (size_t n = 0; n < b->n; n++) {
        struct item *i = (struct item *)b->items[n];
        struct model *m = &model[i->key];

        i->where = parked ? FREE : WAITS;
        parks += parked;
        m->parked += parked;
        m->parking--;
        if (!parked && m->state == HELD && i->item.priority == GROUP_FRONT)
            model_queue(m, false);
        if (m->parking == 0 && m->state == PARKING)
            model_wake(i->key);
    }
    b->n = 0;
}

/* ---- looking ---- */

struct listing {
    unsigned key;
    size_t n;
    const struct group_item *before;
};

/* Check that an item is of the listed group, behind the one before. */
static bool listed(const struct group_item *at, void *arg)
{
    const struct item *i = (const struct item *)at;
    struct listing *list = arg;

    expect(i->where == WAITS && i->key == list->key);
    expect(!list->before || comes_before((const struct item *)list->before, i));
    list->before = at;
    list->n++;
    return true;
}

/* Check the list of a group; the item ahead of a lease may be missing. */
static void check_list(unsigned k)
{
    struct listing list = {.key = k};
    size_t size, n = count_of(k);
    const char *key = key_of(k, &size);
    int err = groups_list(groups, key, size, listed, &list);
    bool leased;

    expect(err == (model[k].state == NONE ? -ENOENT : 0));
    expect(list.n == n || (model[k].state == RUNNING && list.n + 1 == n));
    expect(!groups_resume(groups, key, size, -1, &leased));
    expect(leased == (model[k].state == RUNNING));
}

/* Check that the keys of the held groups are listed, each once. */
static void check_held(size_t held)
{
    size_t count, size;
    struct group_key *keys = groups_held_keys(groups, &count);
    bool seen[KEYS] = {false};

    expect((keys == NULL) == (held == 0));
    expect(count == held);
    for (size_t i = 0; i < count; i++) {
        unsigned k = (unsigned)(unsigned char)keys[i].at[0];
        const char *key;

        expect(k < KEYS && model[k].state == HELD && !seen[k]);
        seen[k] = true;
        key = key_of(k, &size);
        expect(keys[i].size == size && memcmp(keys[i].at, key, size) == 0);
    }
    free(keys);
}

/* Check all that can be seen from outside, and every invariant. */
static void check(void)
{
    size_t ready = 0, waiting = 0, parkable = 0, held = 0, count = 0, ahead = 0;
    const char *wrong = groups_check(groups);
    uint64_t parked = 0;

    if (wrong)
        cr_assert_fail("MQW_SEED above, op %lu: %s", op, wrong);
    for (unsigned k = 0; k < KEYS; k++) {
        const struct model *m = &model[k];
        bool off = m->state == BLOCKED || m->state == HELD;
        struct item *first;

        ready += m->state == QUEUED;
        held += m->state == HELD;
        count += m->state != NONE;
        waiting += count_of(k);
        parkable += off ? parkables(k, &first) : 0;
        parked += m->parked;
    }
    for (const struct lease *l = lease; l < lease + LEASES; l++)
        ahead += l->group && l->ahead && l->ahead != l->taken;
    expect(groups_ready(groups) == ready);
    expect(groups_waiting(groups) <= waiting);
    expect(groups_waiting(groups) + ahead >= waiting);
    expect(groups_parkable(groups) == parkable);
    expect(groups_held(groups) == held);
    expect(groups_count(groups) == count);
    expect(groups_parked(groups) == parked);
    if (random_below(8) == 0)
        check_held(held);
    check_list(random_below(KEYS));
}

/* Do a random operation that adds nothing, so that all groups end. */
static void one_step(void)
{
    static void (*const steps[])(void) = {
        op_lease, op_take, op_release, op_resume, op_unhold, op_park_end,
    };

    steps[random_below(sizeof steps / sizeof *steps)]();
}

/* Do a random operation. */
static void any_step(void)
{
    static void (*const steps[])(void) = {
        op_add,      op_add,      op_add,     op_add,       op_lease,
        op_lease,    op_take,     op_take,    op_take,      op_release,
        op_release,  op_block,    op_hold,    op_return,    op_resume,
        op_resume,   op_unhold,   op_restore, op_known,     op_park_begin,
        op_park_one, op_park_end, op_unpark,  op_hold_late,
    };

    steps[random_below(sizeof steps / sizeof *steps)]();
}

/* Do random operations, then let all that is left leave. */
static void run(unsigned long ops)
{
    cr_assert_eq(groups_open(&groups, quantum, false, NULL), 0);
    if (keep_front)
        groups->keep_front = true;
    first_turn = last_turn = UINT64_MAX / 2;
    added = taken = parks = unparked = restored = 0;
    for (op = 0; op < ops; op++) {
        any_step();
        check();
    }
    for (; groups_count(groups) > 0 && op < 2 * ops + 1000000; op++) {
        one_step();
        check();
    }
    expect(groups_count(groups) == 0);
    expect(groups_waiting(groups) == 0 && groups_parked(groups) == 0);
    expect(added + restored == taken + unparked);
    groups_close(&groups);
    cr_assert_null(groups);
}

Test(groups_model, does_what_a_dumb_model_does, .timeout = 300)
{
    const char *given = getenv("MQW_SEED"), *ops = getenv("MQW_OPS");
    static const unsigned quanta[] = {1, 2, 3, 10};
    unsigned long all =
        ops ? strtoul(ops, NULL, 10) : sweep_share("random operations", OPS);

    seed = given ? strtoull(given, NULL, 10)
                 : (unsigned long long)getpid() << 32 |
                       (unsigned long long)time(NULL);
    seed |= 1;
    fprintf(stderr, "MQW_SEED=%llu\n", (unsigned long long)seed);
    for (unsigned q = 0; q < 2 * sizeof quanta / sizeof *quanta; q++) {
        quantum = quanta[q / 2];
        keep_front = q % 2;
        run(all / 8);
    }
}

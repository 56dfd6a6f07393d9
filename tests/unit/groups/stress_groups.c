/* stress_groups.c - ordered groups from many threads at once
 *
 * A plain program, as Criterion cannot start under the thread sanitizer. One
 * thread brings messages, three deliver, one parks what is behind blocked
 * heads, one releases held groups and looks. Whatever a delivery touches of its
 * group has no lock and is no atomic: one lease at a time is what protects it.
 * Arguments: messages (60000), seed. Exit 1 when something was wrong.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "tests/unit/groups/groups_check.h"

#define KEYS       40
#define PRIORITIES 3
#define WORKERS    3
#define SLOTS      256
/* Slots that new messages may not take. A thread needs one to deliver what was
 * parked, and each group may have one that was returned. Otherwise all slots
 * could wait behind parked messages. */
#define RESERVE (WORKERS + KEYS)
#define BATCH   16

struct message {
    struct group_item item;
    struct message *free;
    uint32_t priority;
    unsigned key;
};

/* A parked message, as the store would hold it. */
struct row {
    uint64_t seq;
    uint32_t priority;
};

struct rows {
    struct row *row;
    size_t n, room;
};

/* State of a group, touched only by the thread that has its lease. */
struct coprocess {
    uint64_t last[PRIORITIES]; /* settled */
    struct row head;           /* of a blocked group */
    uint64_t settled;
};

/* s = under slot_mtx   t = under store_mtx   r = under retry_mtx   a = atomic
 * l = by lease */
static struct groups *groups;
static pthread_mutex_t slot_mtx = PTHREAD_MUTEX_INITIALIZER;
static struct message slot[SLOTS];
static struct message *free_slots; /* s */
static unsigned free_count;        /* s */
static pthread_mutex_t store_mtx = PTHREAD_MUTEX_INITIALIZER;
static struct rows store[KEYS]; /* t */
static pthread_mutex_t retry_mtx = PTHREAD_MUTEX_INITIALIZER;
static bool retry[KEYS];                 /* r  its head may be tried again */
static int64_t retry_row[KEYS];          /* r */
static struct coprocess coprocess[KEYS]; /* l */
static atomic_bool leased[KEYS];         /* a */
static atomic_ulong settled, parks;      /* a */
static unsigned long messages = 60000, seed;

/* Print what was wrong, and exit. */
static void fail(const char *what)
{
    fprintf(stderr, "stress_groups: %s (seed %lu)\n", what, seed);
    exit(1);
}

/* Return the next number of xorshift64, with one state for each thread. */
static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state >> 11;
}

static uint64_t random_seed(uint64_t thread)
{
    return seed * 2654435761 + thread * 40503 + 1;
}

static bool finished(void)
{
    return atomic_load(&settled) == messages;
}

/* Return a key as text. */
static const char *key_of(const unsigned *k)
{
    return (const char *)k;
}

/* ---- slots ---- */

/* Wait for more than `least` free slots and take one; NULL: all is over. */
static struct message *slot_get(unsigned least)
{
    struct message *m = NULL;

    while (!m && !finished()) {
        pthread_mutex_lock(&slot_mtx);
        if (free_count > least) {
            m = free_slots;
            free_slots = m->free;
            free_count--;
        }
        pthread_mutex_unlock(&slot_mtx);
        if (!m)
            sched_yield();
    }
    return m;
}

static void slot_put(struct message *m)
{
    pthread_mutex_lock(&slot_mtx);
    m->free = free_slots;
    free_slots = m;
    free_count++;
    pthread_mutex_unlock(&slot_mtx);
}

/* ---- the store ---- */

static void store_add(unsigned k, struct row row)
{
    struct rows *rows = &store[k];

    pthread_mutex_lock(&store_mtx);
    if (rows->n == rows->room) {
        rows->room = rows->room ? 2 * rows->room : 16;
        rows->row = realloc(rows->row, rows->room * sizeof *rows->row);
        if (!rows->row)
            fail("no memory");
    }
    rows->row[rows->n++] = row;
    pthread_mutex_unlock(&store_mtx);
}

/* Return true if `a` is delivered before `b`. */
static bool row_before(struct row a, struct row b, bool low)
{
    if (a.priority != b.priority)
        return low ? a.priority < b.priority : a.priority > b.priority;
    return a.seq < b.seq;
}

/* Take the next row, if it comes before `item`. */
static bool store_take(unsigned k, bool low, const struct group_item *item,
                       struct row *out)
{
    struct rows *rows = &store[k];
    bool found;
    size_t at = 0;

    pthread_mutex_lock(&store_mtx);
    if (rows->n == 0)
        fail("a parked message is not in the store");
    for (size_t i = 1; i < rows->n; i++)
        if (row_before(rows->row[i], rows->row[at], low))
            at = i;
    *out = rows->row[at];
    found = !item ||
            (item->priority != GROUP_FRONT &&
             row_before(*out, (struct row){item->seq, item->priority}, low));
    if (found)
        rows->row[at] = rows->row[--rows->n];
    pthread_mutex_unlock(&store_mtx);
    return found;
}

/* ---- delivering ---- */

/* Settle a message: in order inside its priority, and once. */
static void settle(unsigned k, struct row row)
{
    struct coprocess *l = &coprocess[k];

    if (row.seq <= l->last[row.priority])
        fail("out of order, or twice");
    l->last[row.priority] = row.seq;
    l->settled++;
}

/* Mark a group as leased, which it must not be; return its key. */
static unsigned own(struct group *lease)
{
    size_t size;
    unsigned k;

    memcpy(&k, groups_key(lease, &size), sizeof k);
    if (atomic_exchange(&leased[k], true))
        fail("two leases of one group");
    return k;
}

/* Pick the next message of a lease; a parked one goes into *own_slot. */
static struct message *pick(struct group *lease, unsigned k,
                            struct message **own_slot)
{
    struct group_item *item = groups_peek(groups, lease);
    bool low = groups_low_turn(lease);
    struct message *m = *own_slot;
    struct row row;

    if (groups_parked_of(lease) > 0 && store_take(k, low, item, &row)) {
        *m = (struct message){
            .item = {.seq = row.seq}, .priority = row.priority, .key = k};
        groups_take(groups, lease, NULL, row.priority);
        *own_slot = NULL;
        return m;
    }
    if (!item)
        fail("a leased group has nothing");
    m = (struct message *)item;
    groups_take(groups, lease, item, m->priority);
    return m;
}

/* End a lease in a random way; return the next lease, if it is at hand. */
static struct group *end_lease(struct group *lease, unsigned k, struct row row,
                               uint64_t random)
{
    struct group *next = NULL;

    if (random % 8 == 0) {
        coprocess[k].head = row;
        atomic_store(&leased[k], false);
        groups_block(groups, lease, (int64_t)row.seq);
        pthread_mutex_lock(&retry_mtx);
        retry[k] = true;
        retry_row[k] = (int64_t)row.seq;
        pthread_mutex_unlock(&retry_mtx);
        return NULL;
    }
    settle(k, row);
    atomic_store(&leased[k], false);
    if (random % 8 == 1)
        groups_hold(groups, lease);
    else
        groups_release(groups, lease);
    if (random % 8 >= 4)
        next = groups_lease(groups);
    atomic_fetch_add(&settled, 1);
    return next;
}

/* Resume a group whose head waits for a retry, and end its lease. */
static void resume(unsigned k, uint64_t random)
{
    struct group *lease;
    int64_t row;
    bool due;

    pthread_mutex_lock(&retry_mtx);
    due = retry[k];
    row = retry_row[k];
    retry[k] = false;
    pthread_mutex_unlock(&retry_mtx);
    if (!due)
        return;
    lease = groups_resume(groups, key_of(&k), sizeof k, row, NULL);
    if (!lease)
        fail("a head cannot be resumed");
    if (own(lease) != k || coprocess[k].head.seq != (uint64_t)row)
        fail("another head");
    lease = end_lease(lease, k, coprocess[k].head, random & ~UINT64_C(4));
    if (lease)
        groups_release(groups, lease);
}

/* Serve one lease; return the next one, if it is at hand. */
static struct group *serve(struct group *lease, struct message **own_slot,
                           uint64_t random)
{
    unsigned k = own(lease);
    struct message *m = pick(lease, k, own_slot);
    struct row row = {m->item.seq, m->priority};

    if (random % 16 == 15) {
        atomic_store(&leased[k], false);
        groups_return(groups, lease, &m->item);
        return NULL;
    }
    slot_put(m);
    return end_lease(lease, k, row, random >> 4);
}

/* Run one of the WORKERS. */
static void *work(void *arg)
{
    uint64_t state = random_seed((uintptr_t)arg + 1);
    struct message *own_slot = NULL;
    struct group *lease = NULL;

    while (!finished()) {
        if (!own_slot)
            own_slot = slot_get(0);
        if (!own_slot)
            break;
        if (!lease)
            lease = groups_lease(groups);
        if (lease)
            lease = serve(lease, &own_slot, random_next(&state));
        else
            sched_yield();
        if (!lease)
            resume((unsigned)(random_next(&state) % KEYS), random_next(&state));
    }
    return NULL;
}

/* ---- the others ---- */

/* Bring all messages, in the order of their sequence. */
static void *bring(void *arg)
{
    uint64_t state = random_seed(0);

    (void)arg;
    for (uint64_t seq = 1; seq <= messages; seq++) {
        struct message *m = slot_get(RESERVE);

        if (!m)
            fail("more was settled than came");
        *m = (struct message){
            .priority = (uint32_t)(random_next(&state) % PRIORITIES),
            .key = (unsigned)(random_next(&state) % KEYS),
        };
        m->item.seq = seq;
        m->item.priority = m->priority;
        if (groups_add(groups, key_of(&m->key), sizeof m->key, &m->item))
            fail("a message was refused");
    }
    return NULL;
}

/* Park one batch at a time, as the worker does. */
static void *park(void *arg)
{
    uint64_t state = random_seed(99);
    struct group_item *items[BATCH];

    (void)arg;
    while (!finished()) {
        size_t n = groups_parkable(groups)
                       ? groups_park_begin(groups, items, BATCH)
                       : 0;
        bool parked = random_next(&state) % 4 > 0;

        for (size_t i = 0; i < n && parked; i++) {
            struct message *m = (struct message *)items[i];

            store_add(m->key, (struct row){m->item.seq, m->priority});
        }
        groups_park_end(groups, items, n, parked);
        for (size_t i = 0; i < n && parked; i++)
            slot_put((struct message *)items[i]);
        atomic_fetch_add(&parks, parked ? n : 0);
        if (n == 0)
            sched_yield();
    }
    return NULL;
}

static bool look(const struct group_item *item, void *arg)
{
    (void)arg;
    return item->seq > 0;
}

/* Release held groups, by copies of their keys, and look at the others. */
static void *release(void *arg)
{
    (void)arg;
    while (!finished()) {
        const char *wrong = groups_check(groups);
        size_t count;
        struct group_key *keys = groups_held_keys(groups, &count);

        if (wrong)
            fail(wrong);
        for (size_t i = 0; i < count; i++)
            groups_unhold(groups, keys[i].at, keys[i].size);
        free(keys);
        for (unsigned k = 0; k < KEYS; k++)
            groups_list(groups, key_of(&k), sizeof k, look, NULL);
        sched_yield();
    }
    return NULL;
}

/* Release groups that their last message left held; nothing may be left. */
static void leave(void)
{
    for (unsigned k = 0; k < KEYS; k++)
        groups_unhold(groups, key_of(&k), sizeof k);
    if (groups_check(groups))
        fail(groups_check(groups));
    if (groups_count(groups) || groups_waiting(groups) ||
        groups_parked(groups) || groups_ready(groups) || groups_held(groups))
        fail("something is left");
    groups_close(&groups);
}

int main(int argc, char **argv)
{
    static void *(*const jobs[])(void *) = {bring, park, release};
    pthread_t thread[WORKERS + 3];
    uint64_t sum = 0;

    messages = argc > 1 ? strtoul(argv[1], NULL, 10) : messages;
    seed =
        argc > 2 ? strtoul(argv[2], NULL, 10) : (unsigned long)clock_wall_ns();
    for (unsigned i = 0; i < SLOTS; i++)
        slot_put(&slot[i]);
    if (groups_open(&groups, 3, false, NULL))
        fail("no memory");
    for (uintptr_t i = 0; i < WORKERS + 3; i++)
        if (pthread_create(&thread[i], NULL,
                           i < WORKERS ? work : jobs[i - WORKERS], (void *)i))
            fail("no thread");
    for (unsigned i = 0; i < WORKERS + 3; i++)
        pthread_join(thread[i], NULL);
    leave();
    for (unsigned k = 0; k < KEYS; k++) {
        sum += coprocess[k].settled;
        free(store[k].row);
    }
    if (sum != messages)
        fail("the sums do not match");
    printf("stress_groups: seed %lu, %lu messages, %lu parked\n", seed,
           messages, (unsigned long)parks);
    return 0;
}

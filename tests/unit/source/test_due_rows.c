/* test_due_rows.c - rows are handed out when they are due, once, earliest first
 *
 * Time stands still until timer_fires lets it pass.
 */
#include "tests/fixtures/store_fixture.h"

#include <bsd/stdlib.h>
#include <errno.h>

#include "common/base/clock.h"
#include "worker/source/mq/due_rows.h"

#define FLYING 256
#define HOUR   (3600 * NS_PER_S)

static struct store *store;
static struct timers *timers;
static struct due_rows *due_rows;
static struct attention attention;
static struct source source = {.attention = &attention};
static unsigned dues;          /* calls of the callback */
static void (*on_clock)(void); /* called whenever somebody asks for the time */

static uint64_t now_ns = 1000 * NS_PER_S;

/* Take the place of clock_now.c. */
uint64_t clock_mono_ns(void)
{
    if (on_clock)
        on_clock();
    return now_ns;
}

uint64_t clock_boot_ns(void)
{
    return clock_mono_ns();
}

uint64_t clock_wall_ns(void)
{
    return UINT64_C(1700000000) * NS_PER_S + clock_mono_ns();
}

static void on_due(struct flow *flow)
{
    (void)flow;
    dues++;
}

static void setup(void)
{
    fixture_init();
    store = fixture_open();
    cr_assert_eq(timers_open(&timers), 0);
    cr_assert_eq(due_rows_open(&due_rows, store, timers, FLYING, false, &source,
                               on_due, NULL),
                 0);
    dues = 0;
}

static void teardown(void)
{
    due_rows_close(&due_rows);
    timers_close(&timers);
    store_close(&store);
    fixture_fini();
}

TestSuite(due_rows, .init = setup, .fini = teardown);

static uint64_t seq; /* of the last row */

/* Put a row that has been due for `late_ns` into the store; return it. */
static int64_t waiting(uint64_t late_ns)
{
    struct store_row m = fixture_row(STORE_WAITING, "body");
    int64_t row;

    m.receive_seq = ++seq;
    m.due_ns = clock_boot_ns() - late_ns;
    cr_assert_eq(store_put(store, &m, NULL, &row), 0);
    return row;
}

/* Put a row that is due in `ns` into the store, and note it as settle does. */
static int64_t waiting_in(uint64_t ns)
{
    struct store_row m = fixture_row(STORE_WAITING, "body");
    int64_t row;

    m.due_ns = clock_boot_ns() + ns;
    cr_assert_eq(store_put(store, &m, NULL, &row), 0);
    due_rows_expect(due_rows, m.due_ns);
    return row;
}

static int64_t taken(void)
{
    int64_t row = 0;
    int err = due_rows_take(due_rows, &row);

    cr_assert_eq(err, 0, "nothing is due: %d", err);
    return row;
}

static void none_is_due(void)
{
    int64_t row;

    cr_assert_eq(due_rows_take(due_rows, &row), -EAGAIN);
}

/* Let time pass until the timer fires, at most so many milliseconds. Returns
 * whether it fired. */
static bool timer_fires(unsigned limit_ms)
{
    unsigned before = dues;

    timers_run(timers);
    for (unsigned ms = 0; ms < limit_ms && dues == before; ms++) {
        now_ns += NS_PER_MS;
        timers_run(timers);
    }
    return dues != before;
}

Test(due_rows, what_the_last_run_left_is_looked_at_without_a_timer)
{
    int64_t row = waiting(NS_PER_S);

    cr_assert(source_due(&source));
    cr_assert_eq(taken(), row);
    none_is_due();
    cr_assert_not(source_due(&source), "the store is still looked at");
}

Test(due_rows, whether_one_is_due_is_found_out_where_it_is_not_known)
{
    cr_assert_not(due_rows_any(due_rows));
    cr_assert_not(source_due(&source), "the store is still looked at");
    int64_t row = waiting(NS_PER_S);
    due_rows_expect(due_rows, clock_boot_ns());
    cr_assert(timer_fires(10000));
    cr_assert(due_rows_any(due_rows));
    cr_assert(due_rows_any(due_rows), "gone, but it was not taken");
    cr_assert_eq(taken(), row);
    cr_assert_not(due_rows_any(due_rows), "due, but it is in flight");
}

Test(due_rows, earliest_due_comes_first)
{
    int64_t c = waiting(1 * NS_PER_S), a = waiting(9 * NS_PER_S),
            b = waiting(5 * NS_PER_S);

    cr_assert_eq(taken(), a);
    cr_assert_eq(taken(), b);
    cr_assert_eq(taken(), c);
    none_is_due();
}

/* Put a row with a priority that has been due for `late_ns` into the store. */
static int64_t waiting_with(uint64_t late_ns, uint32_t priority)
{
    struct store_row m = fixture_row(STORE_WAITING, "body");

    m.receive_seq = ++seq;
    m.priority = priority;
    m.due_ns = clock_boot_ns() - late_ns;
    return fixture_put(store, &m);
}

Test(due_rows, what_is_due_at_one_time_comes_by_priority_then_in_its_order)
{
    int64_t a = waiting_with(NS_PER_S, 1), b = waiting_with(NS_PER_S, 9),
            c = waiting_with(NS_PER_S, 9), d = waiting_with(2 * NS_PER_S, 1);

    cr_assert_eq(taken(), b);
    cr_assert_eq(taken(), c);
    cr_assert_eq(taken(), d, "not the earlier one of its priority");
    cr_assert_eq(taken(), a);
}

Test(due_rows,
     what_becomes_due_with_a_higher_priority_comes_before_those_at_hand)
{
    int64_t a = waiting_with(NS_PER_S, 1), b = waiting_with(NS_PER_S, 1), high;

    cr_assert_eq(taken(), a, "not first; the other one is read with it");
    high = waiting_with(0, 2);
    due_rows_expect(due_rows, clock_boot_ns());
    cr_assert(timer_fires(1000));
    cr_assert_eq(taken(), high);
    cr_assert_eq(taken(), b);
}

Test(due_rows,
     what_is_not_due_any_more_since_the_clock_was_set_is_not_handed_out)
{
    waiting(NS_PER_S);
    waiting(NS_PER_S);
    (void)taken();
    fixture_sql("UPDATE messages SET due_ns = due_ns + 3600000000000");
    due_rows_look(due_rows);
    none_is_due();
}

Test(due_rows, row_that_is_not_due_stays)
{
    waiting_in(HOUR);
    none_is_due();
    cr_assert_not(source_due(&source));
    cr_assert_not(timer_fires(0));
}

Test(due_rows, row_becomes_due_by_the_timer)
{
    int64_t row = waiting_in(30 * NS_PER_MS);

    none_is_due();
    while (dues == 0)
        cr_assert(timer_fires(10000));
    cr_assert(source_due(&source));
    cr_assert_eq(taken(), row);
    cr_assert_eq(dues, 1);
}

Test(due_rows, noted_row_is_never_taken_before_its_time)
{
    struct store_row m = fixture_row(STORE_WAITING, "body");
    int64_t row;
    uint64_t due;

    none_is_due();
    m.due_ns = due = clock_boot_ns() + 20 * NS_PER_MS;
    cr_assert_eq(store_put(store, &m, NULL, &row), 0);
    due_rows_expect(due_rows, due);
    while (dues == 0)
        cr_assert(timer_fires(10000));
    cr_assert_geq(clock_boot_ns(), due);
    cr_assert_eq(taken(), row);
}

Test(due_rows, earlier_row_moves_the_timer_forward)
{
    int64_t row;

    waiting_in(HOUR);
    none_is_due();
    row = waiting_in(10 * NS_PER_MS);
    while (dues == 0)
        cr_assert(timer_fires(10000));
    cr_assert_eq(taken(), row);
    none_is_due();
}

Test(due_rows, later_row_does_not_put_the_timer_off)
{
    int64_t row = waiting_in(30 * NS_PER_MS);

    none_is_due();
    waiting_in(HOUR);
    while (dues == 0)
        cr_assert(timer_fires(10000));
    cr_assert_eq(taken(), row);
}

Test(due_rows, row_in_flight_is_not_handed_out_again_until_it_landed)
{
    int64_t row = waiting(NS_PER_S);

    cr_assert_eq(taken(), row);
    none_is_due();
    cr_assert(due_rows_claim(due_rows, row, CLAIM_LEND) != 0,
              "claimed while it is in flight");
    due_rows_release(due_rows, row);
    due_rows_expect(due_rows, 0); /* it was stored again, due at once */
    while (dues == 0)
        cr_assert(timer_fires(10000));
    cr_assert_eq(taken(), row);
}

/* A retry is in the store before it is noted as landed; an operator who makes
 * it due between the two must not wait for the time that it had. */
Test(due_rows, row_that_is_made_due_in_flight_is_looked_for_when_it_landed)
{
    int64_t row = waiting(0), got;

    cr_assert_eq(due_rows_take(due_rows, &got), 0);
    due_rows_sooner(due_rows, row);
    due_rows_expect(due_rows, clock_boot_ns());
    cr_assert(timer_fires(0));
    cr_assert_eq(due_rows_take(due_rows, &got), -EAGAIN,
                 "taken while it is in flight");
    cr_assert_not(source_due(&source));
    due_rows_release(due_rows, row);
    cr_assert(timer_fires(0));
    cr_assert(source_due(&source));
    cr_assert_eq(taken(), row);
    due_rows_release(due_rows, row);
    cr_assert_not(timer_fires(0), "the timer fires twice");
}

Test(due_rows, row_of_a_held_slot_is_not_handed_out)
{
    int64_t held = waiting(9 * NS_PER_S), other = waiting(NS_PER_S);

    cr_assert_not(due_rows_is_claimed(held, due_rows));
    cr_assert(due_rows_claim(due_rows, held, CLAIM_LEND) == 0);
    cr_assert(due_rows_claim(due_rows, held, CLAIM_LEND) != 0);
    cr_assert(due_rows_is_claimed(held, due_rows));
    cr_assert_eq(taken(), other);
    cr_assert(due_rows_is_claimed(other, due_rows));
    none_is_due();
    due_rows_release(due_rows, held);
    cr_assert_not(due_rows_is_claimed(held, due_rows));
    due_rows_release(due_rows, held); /* twice does no harm */
    cr_assert(due_rows_claim(due_rows, held, CLAIM_LEND) == 0);
}

Test(due_rows, a_letter_that_is_moved_is_told_from_one_in_flight)
{
    int64_t moved = waiting(9 * NS_PER_S), held = waiting(8 * NS_PER_S);

    cr_assert_eq(due_rows_claim(due_rows, moved, CLAIM_MOVE), 0);
    cr_assert(due_rows_claim(due_rows, held, CLAIM_LEND) == 0);
    cr_assert_eq(due_rows_claim(due_rows, moved, CLAIM_LEND), -EXDEV);
    cr_assert_eq(due_rows_claim(due_rows, held, CLAIM_LEND), -EALREADY);
    cr_assert_neq(due_rows_claim(due_rows, held, CLAIM_MOVE), 0);
    cr_assert_eq(due_rows_claim(due_rows, held, CLAIM_LEND), -EALREADY,
                 "it is taken for moved");
    due_rows_release(due_rows, moved);
    cr_assert(due_rows_claim(due_rows, moved, CLAIM_LEND) == 0);
    cr_assert_eq(due_rows_claim(due_rows, moved, CLAIM_LEND), -EALREADY);
}

Test(due_rows, row_that_waits_in_the_batch_cannot_be_flown_by_another)
{
    int64_t a = waiting(9 * NS_PER_S), b = waiting(NS_PER_S);

    cr_assert_eq(taken(), a);
    cr_assert(due_rows_claim(due_rows, b, CLAIM_LEND) != 0);
    cr_assert_eq(taken(), b);
}

Test(due_rows, more_rows_than_a_batch_all_come_in_order)
{
    int64_t row[200];

    for (int i = 0; i < 200; i++)
        row[i] = waiting((uint64_t)(1000 - i) * NS_PER_MS);
    for (int i = 0; i < 200; i++)
        cr_assert_eq(taken(), row[i], "number %d", i);
    none_is_due();
}

Test(due_rows, no_more_fly_than_there_is_room_for)
{
    int64_t row[FLYING + 10], last;

    for (int i = 0; i < FLYING + 10; i++)
        row[i] = waiting((uint64_t)(1000 - i) * NS_PER_MS);
    for (int i = 0; i < FLYING; i++)
        last = taken();
    none_is_due();
    cr_assert(source_due(&source), "no more is due");
    due_rows_release(due_rows, last);
    store_delete(store, last, NULL);
    cr_assert_eq(taken(), row[FLYING]);
}

Test(due_rows, closing_takes_the_timer_along)
{
    waiting_in(300 * NS_PER_MS);
    none_is_due();
    due_rows_close(&due_rows);
    cr_assert_not(timer_fires(350)); /* nor is freed memory read */
    cr_assert_eq(dues, 0);
    due_rows_close(&due_rows);
}

/* ---- against a dumb model ---- */

enum { LIFE_NONE, LIFE_WAITS, LIFE_FLIES };
#define ROWS 100

struct life {
    int64_t row;
    int state;
};

/* Return true if a row is still to come. */
static bool any_waits(const struct life *lives)
{
    for (int i = 0; i < ROWS; i++)
        if (lives[i].state == LIFE_WAITS)
            return true;
    return false;
}

static struct life *life_of(struct life *lives, int64_t row)
{
    for (int i = 0; i < ROWS; i++)
        if (lives[i].row == row && lives[i].state != LIFE_NONE)
            return &lives[i];
    return NULL;
}

/* Rows are added, taken, fail again and end at random. None may be given out
 * twice or forgotten. */
Test(due_rows, random_lives_lose_no_row_and_repeat_none)
{
    struct life lives[ROWS] = {{0}};
    unsigned seed = arc4random(), flying = 0;

    fprintf(stderr, "seed: %u\n", seed);
    srandom(seed);
    for (int step = 0; step < 3000; step++) {
        struct life *l = &lives[random() % ROWS];
        int64_t row;

        if (l->state == LIFE_NONE) {
            *l = (struct life){.row = waiting(0), .state = LIFE_WAITS};
            due_rows_expect(due_rows, 0);
        } else if (l->state == LIFE_FLIES && random() % 2) {
            cr_assert_eq(store_delete(store, l->row, NULL), 0);
            due_rows_release(due_rows, l->row);
            l->state = LIFE_NONE;
            flying--;
        } else if (l->state == LIFE_FLIES) {
            struct store_row m = fixture_row(STORE_WAITING, "again");

            m.row = l->row;
            m.receive_seq = ++seq;
            m.due_ns = clock_boot_ns();
            cr_assert_eq(store_put(store, &m, NULL, NULL), 0);
            due_rows_release(due_rows, l->row);
            due_rows_expect(due_rows, m.due_ns);
            l->state = LIFE_WAITS;
            flying--;
        } else if (due_rows_take(due_rows, &row) == 0) {
            l = life_of(lives, row);
            cr_assert(l && l->state == LIFE_WAITS, "row %lld came twice",
                      (long long)row);
            l->state = LIFE_FLIES;
            flying++;
        }
    }
    while (any_waits(lives)) {
        struct life *l = life_of(lives, taken());

        cr_assert(l && l->state == LIFE_WAITS);
        l->state = LIFE_FLIES;
        flying++;
    }
    none_is_due();
    cr_assert_gt(flying, 0);
}

static unsigned looks;

static void look(void)
{
    looks++;
    cr_assert(source_due(&source));
}

/* A work item that leaves while the idle check asks the store would wait for
 * the queue, and the timer has fired already: nobody would wake it. */
Test(due_rows, what_may_be_due_is_ready_while_the_store_is_asked)
{
    waiting(NS_PER_S);
    looks = 0;
    on_clock = look;
    cr_assert_eq(due_rows_any(due_rows), 1);
    on_clock = NULL;
    cr_assert_gt(looks, 0, "nobody asked for the time while it was due");
    cr_assert(source_due(&source));
    taken();
}

/* test_recover.c - what recovery does with the messages of a killed worker:
 * whose crashes it counts, and which messages become dead letters
 *
 * Custody and store are real files. The last worker is a process that exits
 * without closing them, which leaves the same bytes as a kill.
 */
#include "tests/fixtures/mq_fixture.h"

#include <errno.h>
#include <sys/wait.h>
#include <sysexits.h>

#include "worker/flow/recovery.h"

enum { MAX_CRASHES = 3, SLOTS = 4 };

/* A message in custody, as the last worker left it. */
struct left {
    uint64_t seq;
    int64_t row;
    unsigned crashes, failures, flags;
    bool runs;
};

static void setup(void)
{
    settings_init(&set);
    snprintf(set.queue, sizeof set.queue, "/q");
    set.max_crashes = MAX_CRASHES;
    mq_files("/tmp/mqw-recover-XXXXXX");
}

TestSuite(recover, .init = setup, .fini = mq_parts_close);

/* Run the last worker in a process of its own, which exits with these messages
 * in flight. */
static void ran_before(const struct left *left, size_t n)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        mq_custody(64, SLOTS, SLOTS);
        custody_recover(mq.custody, &problem);
        for (size_t i = 0; i < n; i++) {
            struct slot *slot = custody_acquire(mq.custody);

            memcpy(slot->body, "body", 4);
            slot_hold(slot, &(struct slot_meta){.seq = left[i].seq,
                                                .row = left[i].row,
                                                .crashes = left[i].crashes,
                                                .failures = left[i].failures,
                                                .flags = left[i].flags,
                                                .id = ulid_make(1),
                                                .length = 4,
                                                .received_ns = 1});
            if (left[i].runs)
                slot_run(slot, 1);
        }
        _exit(0);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert_eq(status, 0);
}

/* Start the next worker; return how recovery ends. */
static int starts(void)
{
    mq_custody(64, SLOTS, SLOTS);
    mq_parts(0);
    return recovery_run(&flow, &problem);
}

/* Check that a message is a dead letter, because of its crashes. */
static void dead(uint64_t seq)
{
    struct store_row m;
    int64_t at;

    cr_assert_eq(store_find_seq(mq.store, seq, &at), 0);
    cr_assert_eq(store_get(mq.store, at, &m, NULL, 0, NULL), 0);
    cr_assert_eq(m.state, STORE_DEAD);
    cr_assert_eq(m.reason, REASON_CRASHED);
}

/* Take the next ready message; check which it is, and its crashes. */
static void next_runs(uint64_t seq, unsigned crashes)
{
    const struct message *m = ready_take(&flow.ready, 0);

    cr_assert_not_null(m);
    cr_assert_eq(m->seq, seq);
    cr_assert_eq(m->crashes, crashes);
}

static void none_runs(void)
{
    cr_assert(ready_empty(&flow.ready));
}

Test(recover, nothing_is_left_of_nothing)
{
    ran_before(NULL, 0);
    cr_assert_eq(starts(), 0);
    none_runs();
    cr_assert_eq(custody_free_slots(mq.custody), SLOTS);
}

Test(recover, all_run_again_in_the_order_of_the_queue)
{
    const struct left left[] = {
        {.seq = 9, .runs = true}, {.seq = 7}, {.seq = 8, .runs = true}};

    ran_before(left, 3);
    cr_assert_eq(starts(), 0);
    next_runs(7, 0);
    next_runs(8, 1);
    next_runs(9, 1);
    none_runs();
    cr_assert_eq(mq_numbers().crashes, 2, "of the two messages that ran");
}

Test(recover, what_may_have_run_says_so)
{
    const struct left left[] = {{.seq = 7}, {.seq = 8, .runs = true}};
    const struct message *m;

    ran_before(left, 2);
    cr_assert_eq(starts(), 0);
    m = ready_take(&flow.ready, 0);
    cr_assert(!(m->flags & MESSAGE_REDELIVERED));
    m = ready_take(&flow.ready, 0);
    cr_assert(m->flags & MESSAGE_REDELIVERED);
}

Test(recover, of_those_that_ran_together_none_is_blamed)
{
    const struct left left[] = {
        {.seq = 7, .crashes = MAX_CRASHES - 2, .runs = true},
        {.seq = 8, .crashes = MAX_CRASHES - 1, .runs = true},
        {.seq = 9, .runs = true}};

    ran_before(left, 3);
    cr_assert_eq(starts(), 0);
    next_runs(7, MAX_CRASHES - 1);
    next_runs(8, MAX_CRASHES);
    next_runs(9, 1);
    cr_assert_eq(mq_numbers().dead, 0);
}

Test(recover, what_ran_alone_is_blamed)
{
    const struct left left[] = {
        {.seq = 7}, {.seq = 8, .crashes = MAX_CRASHES - 1, .runs = true}};

    ran_before(left, 2);
    cr_assert_eq(starts(), 0);
    dead(8);
    next_runs(7, 0);
    none_runs();
    cr_assert_eq(mq_numbers().dead, 1);
    cr_assert_eq(custody_free_slots(mq.custody), SLOTS - 1);
}

/* Message 7 ran beside others at its last crash (SLOT_BESIDE) and has not run
 * since, because it waits behind another suspect or recovery was killed. */
Test(recover, what_has_not_run_alone_since_is_not_blamed)
{
    const struct left left[] = {
        {.seq = 7, .crashes = MAX_CRASHES, .flags = SLOT_BESIDE},
        {.seq = 8,
         .crashes = MAX_CRASHES - 1,
         .flags = SLOT_BESIDE,
         .runs = true}};

    ran_before(left, 2);
    cr_assert_eq(starts(), 0);
    dead(8);
    next_runs(7, MAX_CRASHES);
}

Test(recover, a_letter_that_the_last_start_could_not_write_is_one_now)
{
    const struct left left[] = {{.seq = 7, .crashes = MAX_CRASHES}};

    ran_before(left, 1);
    cr_assert_eq(starts(), 0);
    dead(7);
    none_runs();
    cr_assert_eq(mq_numbers().crashes, 0, "it did not run in between");
}

Test(recover, one_crash_is_enough_where_one_is_allowed)
{
    const struct left left[] = {{.seq = 7, .runs = true}};

    set.max_crashes = 1;
    ran_before(left, 1);
    cr_assert_eq(starts(), 0);
    dead(7);
}

/* ---- runs of stored messages ---- */

/* Put a retry into the store, with this receive sequence. Returns its row. */
static int64_t waits(uint64_t seq, unsigned attempts)
{
    struct store_row m = fixture_row(STORE_WAITING, "body");

    m.receive_seq = seq;
    m.attempts = attempts;
    return fixture_put(mq.store, &m);
}

static struct store_row row_of(int64_t row)
{
    struct store_row m;

    cr_assert_eq(store_get(mq.store, row, &m, NULL, 0, NULL), 0);
    return m;
}

Test(recover, the_row_takes_the_crash_and_waits_again)
{
    struct left left = {.seq = 7, .failures = 1, .runs = true};

    left.row = waits(7, 1);
    ran_before(&left, 1);
    cr_assert_eq(starts(), 0);
    none_runs();
    cr_assert_eq(row_of(left.row).state, STORE_WAITING);
    cr_assert_eq(row_of(left.row).crashes, 1);
    cr_assert_eq(row_of(left.row).attempts, 1, "a crash is no failure");
    cr_assert(row_of(left.row).flags & STORE_REDELIVERED);
    cr_assert_eq(custody_free_slots(mq.custody), SLOTS);
    cr_assert(source_due(&mq.source), "the row is not due");
}

Test(recover, a_row_may_be_dead_by_it)
{
    struct left left = {
        .seq = 7, .failures = 1, .crashes = MAX_CRASHES - 1, .runs = true};

    left.row = waits(7, 1);
    ran_before(&left, 1);
    cr_assert_eq(starts(), 0);
    dead(7);
    cr_assert_eq(mq_numbers().dead, 1);
}

Test(recover, rows_that_ran_together_wait_with_their_crash)
{
    struct left left[] = {
        {.seq = 7, .failures = 1, .crashes = MAX_CRASHES - 1, .runs = true},
        {.seq = 8, .failures = 1, .crashes = MAX_CRASHES - 2, .runs = true}};

    left[0].row = waits(7, 1);
    left[1].row = waits(8, 1);
    ran_before(left, 2);
    cr_assert_eq(starts(), 0);
    cr_assert_eq(row_of(left[0].row).state, STORE_WAITING);
    cr_assert_eq(row_of(left[0].row).crashes, MAX_CRASHES);
    cr_assert_eq(row_of(left[1].row).crashes, MAX_CRASHES - 1);
}

Test(recover, a_verdict_that_is_written_is_not_given_twice)
{
    struct left left = {.seq = 7, .failures = 1, .runs = true};

    left.row = waits(7, 2); /* the failure is counted; the slot was not freed */
    ran_before(&left, 1);
    cr_assert_eq(starts(), 0);
    none_runs();
    cr_assert_eq(row_of(left.row).crashes, 0);
    cr_assert_eq(row_of(left.row).attempts, 2);
    cr_assert_eq(mq_numbers().crashes, 0);
}

Test(recover, nor_if_its_row_is_gone)
{
    struct left left = {.seq = 7, .row = 99, .failures = 1, .runs = true};

    ran_before(&left, 1);
    cr_assert_eq(starts(), 0);
    none_runs();
    cr_assert_eq(custody_free_slots(mq.custody), SLOTS);
    cr_assert_eq(mq_numbers().crashes, 0);
}

Test(recover, nor_a_fresh_one_whose_row_is_there)
{
    const struct left left = {.seq = 7, .runs = true};

    waits(7, 1);
    ran_before(&left, 1);
    cr_assert_eq(starts(), 0);
    none_runs();
    cr_assert_eq(mq_numbers().crashes, 0);
}

/* ---- again and again ---- */

Test(recover, crashes_add_up_over_starts_until_it_is_dead)
{
    struct left left = {.seq = 7, .runs = true};

    for (unsigned i = 1; i < MAX_CRASHES; i++) {
        ran_before(&left, 1);
        cr_assert_eq(starts(), 0);
        next_runs(7, i);
        left.crashes = i;
        mq_parts_close();
        setup();
    }
    ran_before(&left, 1);
    cr_assert_eq(starts(), 0);
    dead(7);
    none_runs();
}

Test(recover, a_store_that_cannot_be_read_refuses_the_start)
{
    const struct left left = {.seq = 7, .runs = true};

    ran_before(&left, 1);
    fixture_sql("DROP TABLE messages");
    cr_assert_lt(starts(), 0);
    cr_assert_eq(problem.status, EX_CANTCREAT, "%s", problem.text);
    cr_assert_not_null(strstr(problem.text, "nothing was lost"), "%s",
                       problem.text);
    cr_assert_eq(custody_free_slots(mq.custody), SLOTS - 1);
}

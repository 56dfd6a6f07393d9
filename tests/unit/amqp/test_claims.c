/* test_claims.c - messages from a broker: until when a worker holds them, and
 * which of them it marks as repeats */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "tests/fixtures/virtual_clock.h"
#include "worker/source/amqp/claims.h"

static char folder[] = "/tmp/mqw-claims-XXXXXX", path[64];
static struct settings set = {.plugin = "p", .concurrency = 1, .window = 1};
static struct broker_operand operand = {.queue = "q", .shown = "amqp://h/v/q"};
static struct amqp_queue queue = {
    .set = &set, .operand = &operand, .topology = {.operand = &operand}};
static struct claims *claims;
static struct attention attention;

static void setup(void)
{
    struct problem p;

    log_setup(LOG_ERROR + 1, LOG_TEXT);
    cr_assert_eq(rabbit_load(&p), 0, "%s", p.text);
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/runs", folder);
    cr_assert_eq(run_file_open(&queue.runs, path, &queue.source.nonce,
                               &queue.first_seq, &p),
                 0, "%s", p.text);
    cr_assert_eq(side_init(&queue.inbox, &queue, "inbox"), 0);
    cr_assert_eq(side_init(&queue.outbox, &queue, "outbox"), 0);
    cr_assert_eq(claims_open(&claims, &queue), 0);
    queue.claims = claims;
    claims_begin(claims);
}

static void teardown(void)
{
    claims_close(&claims);
    close(queue.inbox.wake_fd);
    close(queue.outbox.wake_fd);
    run_file_close(&queue.runs);
    unlink(path);
    rmdir(folder);
}

TestSuite(claims, .init = setup, .fini = teardown);

/* Let a message of one byte arrive with these headers. */
static void arrive_with(char body, amqp_table_entry_t *headers, int count,
                        uint8_t priority)
{
    static unsigned char room[4096];
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_HEADERS_FLAG |
                                                    AMQP_BASIC_PRIORITY_FLAG,
                                          .headers = {count, headers},
                                          .priority = priority};
    int n = amqp_encode_properties(AMQP_BASIC_CLASS, &properties,
                                   (amqp_bytes_t){sizeof room, room});
    struct incoming in = {
        .before = sizeof(struct amqp_message), .gap = HEADER_MAX, .tag = 1};
    amqp_frame_t f = {
        .frame_type = AMQP_FRAME_HEADER,
        .payload.properties = {.body_size = 1, .raw = {(size_t)n, room}}};

    cr_assert_gt(n, 0);
    cr_assert_eq(incoming_frame(&in, NULL, &f), NO);
    f = (amqp_frame_t){.frame_type = AMQP_FRAME_BODY,
                       .payload.body_fragment = {1, &body}};
    cr_assert_eq(incoming_frame(&in, NULL, &f), YES);
    claims_arrived(claims, &in, 0);
    claims_place(claims);
}

/* Let a message arrive that is due in `ms`. Its id is derived. */
static void arrive(char body, uint64_t ms, uint8_t priority)
{
    amqp_table_entry_t due =
        entry_number("mqw-due", clock_wall_ns() + ms * NS_PER_MS);

    arrive_with(body, &due, 1, priority);
}

/* Let a message arrive that has an id, without the broker's redelivered flag.
 * `line` 0: it is an original; otherwise it is a copy. */
static void arrive_named(char body, uint64_t line, uint64_t attempt,
                         uint64_t hop)
{
    amqp_table_entry_t headers[] = {
        entry_text("mqw-id", "01JD3Z6Q9V0X8N5T2K7B4M1C3F"),
        entry_number("mqw-attempt", attempt), entry_number("mqw-line", line),
        entry_number("mqw-hop", hop)};

    arrive_with(body, headers, 4, 0);
}

/* Return the oldest job for the outbox. */
static struct amqp_job *job_next(void)
{
    struct unconfirmed_list jobs = TAILQ_HEAD_INITIALIZER(jobs);

    claims_jobs_take(claims, &jobs);
    cr_assert_not(TAILQ_EMPTY(&jobs));
    return amqp_job_of(TAILQ_FIRST(&jobs));
}

static struct message *taken; /* the message that take() took last */

/* Take the next message; return the last byte of its body, 0 without one. */
static char take(void)
{
    if (claims_take(&queue.source, 0, clock_wall_ns(), &taken) == -EAGAIN)
        return 0;
    return ((const char *)taken->data)[taken->size - 1];
}

/* Take the next message, which must be there. Return true for a repeat. */
static bool take_marked(void)
{
    cr_assert_neq(take(), 0);
    return taken->flags & MESSAGE_REDELIVERED;
}

/* Events of the source, ignored. */
static void settled(struct flow *flow, struct settle *st)
{
    (void)flow, (void)st;
}

static void changed(struct flow *flow)
{
    (void)flow;
}

static void settle(enum settle_kind kind)
{
    struct settle st = {.m = taken, .kind = kind, .due_boot_ns = 1};

    cr_assert_eq(claims_settle(&queue.source, &st, 1), 0);
}

Test(claims, those_for_one_time_are_held_by_priority_then_as_they_came)
{
    arrive('l', 300, 9); /* late */
    arrive('a', 200, 4);
    arrive('h', 200, 5); /* high */
    arrive('b', 200, 4);
    arrive('e', 100, 0); /* early */
    cr_assert_eq(claims_count(claims).delayed, 5);
    cr_assert_eq(take(), 0, "a message is taken before it is due");
    cr_assert_eq(claims_due(claims), 100 * NS_PER_MS);
    atomic_fetch_add(&virtual_ns, 100 * NS_PER_MS);
    cr_assert_eq(claims_due(claims), 100 * NS_PER_MS, "until the next");
    cr_assert_eq(take(), 'e');
    cr_assert_eq(take(), 0);
    atomic_fetch_add(&virtual_ns, 200 * NS_PER_MS);
    cr_assert_eq(claims_due(claims), UINT64_MAX);
    for (const char *c = "habl"; *c; c++)
        cr_assert_eq(take(), *c);
    cr_assert_eq(take(), 0);
}

Test(claims, a_connection_that_is_lost_takes_what_nobody_has)
{
    size_t n;

    arrive('h', 100, 0);
    arrive('n', 0, 0);
    cr_assert_eq(claims_count(claims).arrived, 1);
    cr_assert_not(claims_void(claims), "the connection was not seen");
    cr_assert(claims_void(claims), "a connection, but there was none since");
    cr_assert_eq(claims_count(claims).arrived, 0);
    cr_assert_eq(claims_count(claims).delayed, 0);
    cr_assert_null(claims_take_back(claims, &n));
    cr_assert_eq(take(), 0);
}

/* A broker's node that hung delivers the first copy after the second one. */
Test(claims, a_message_that_comes_again_unmarked_is_marked)
{
    arrive_named('a', 0, 0, 0);
    arrive_named('a', 0, 0, 0);
    cr_assert_not(take_marked());
    cr_assert(take_marked(), "unmarked, but the first one is in hand");
    settle(SETTLE_DONE);
    arrive_named('a', 0, 0, 0);
    cr_assert(take_marked(), "unmarked, but the second one is settled");
    arrive_named('b', 0, 0, 0);
    cr_assert_not(take_marked(), "marked, but its body is another");
}

/* Two workers ran the original, and each published a retry. */
Test(claims, copies_that_failed_as_often_are_repeats_of_each_other)
{
    arrive_named('a', 7, 1, 1);
    cr_assert_not(take_marked());
    arrive_named('a', 8, 1, 2);
    cr_assert(take_marked(), "unmarked, but the first one is in hand");
    settle(SETTLE_DONE);
    arrive_named('a', 8, 1, 2);
    cr_assert_eq(take(), 0, "a settled copy is taken again");
    arrive_named('a', 9, 2, 1);
    cr_assert_not(take_marked(), "marked, but it failed again");
    settle(SETTLE_DONE);
    arrive_named('a', 10, 2, 1);
    cr_assert(take_marked(), "unmarked, but the other one is settled");
}

Test(claims, a_copy_that_was_moved_without_a_run_makes_no_repeat)
{
    struct settle st = {.kind = SETTLE_RETRY, .lane = LANE_NONE};
    struct amqp_job *job;

    queue.events.settled = settled;
    arrive_named('a', 7, 1, 1);
    cr_assert_not(take_marked());
    st.m = taken;
    cr_assert_eq(claims_settle(&queue.source, &st, 1), -EINPROGRESS);
    job = job_next();
    arrive_named('a', 7, 1, 2);
    cr_assert_not(take_marked(), "marked before the confirm");
    settle(SETTLE_RETURN);
    claims_confirmed(claims, job);
    cr_assert_eq(st.err, 0);
    claims_lane_rest(&queue.source, 0);
    cr_assert_eq(claims_due(claims), UINT64_MAX);
    cr_assert_not(take_marked(), "marked after the confirm");
}

/* The message goes through two wait queues, the second time as a copy. The copy
 * of that copy arrives before its confirm. */
Test(claims, a_delayed_message_is_no_repeat_of_itself)
{
    struct amqp_job *job;

    for (uint64_t line = 0; line < 2; line++) {
        amqp_table_entry_t headers[] = {
            entry_text("mqw-id", "01JD3Z6Q9V0X8N5T2K7B4M1C3F"),
            entry_number("mqw-due", clock_wall_ns() + 10 * NS_PER_S),
            entry_number("mqw-line", line), entry_number("mqw-hop", line)};

        arrive_with('a', headers, 4, 0);
        job = job_next();
        if (line == 0)
            claims_confirmed(claims, job);
    }
    arrive_named('a', 1, 0, 2);
    cr_assert_not(take_marked());
    claims_confirmed(claims, job);
    arrive_named('a', 2, 0, 2);
    cr_assert(take_marked(), "unmarked, but the first one is in hand");
}

Test(claims, a_marked_message_that_is_put_back_is_not_taken_for_settled)
{
    arrive_named('a', 0, 0, 0);
    cr_assert_not(take_marked());
    settle(SETTLE_DONE);
    arrive_named('a', 0, 0, 0);
    cr_assert(take_marked());
    settle(SETTLE_RETURN);
    claims_lane_rest(&queue.source, 0);
    cr_assert_eq(claims_due(claims), UINT64_MAX);
    cr_assert(take_marked());
}

/* The head failed, and waits for its retry in the worker. */
Test(claims, a_copy_behind_a_failed_head_is_marked)
{
    amqp_table_entry_t headers[] = {
        entry_text("mqw-id", "01JD3Z6Q9V0X8N5T2K7B4M1C3F"),
        entry_text("mqw-group", "g")};

    queue.source.attention = &attention;
    queue.events.changed = changed;
    queue.topology.partitions = 1;
    arrive_with('a', headers, 2, 0);
    arrive_with('a', headers, 2, 0);
    cr_assert_not(take_marked());
    settle(SETTLE_RETRY);
    cr_assert(take_marked());
    settle(SETTLE_DONE);
    cr_assert_eq(claims_due(claims), UINT64_MAX);
    cr_assert_eq(claims_take_due(&queue.source, 0, &taken), 0);
    cr_assert_eq(take(), 0);
}

Test(claims, equal_messages_without_an_id_are_not_marked)
{
    arrive('a', 0, 0);
    arrive('a', 0, 0);
    cr_assert_not(take_marked());
    settle(SETTLE_DONE);
    cr_assert_not(take_marked());
}

Test(claims, retries_of_equal_messages_without_an_id_are_not_marked)
{
    for (uint64_t line = 1; line < 4; line++) {
        amqp_table_entry_t headers[] = {
            entry_text("mqw-id", "01JD3Z6Q9V0X8N5T2K7B4M1C3F"),
            entry_number("mqw-derived", 1), entry_number("mqw-attempt", 1),
            entry_number("mqw-line", line)};

        arrive_with('a', headers, 4, 0);
        cr_assert_not(take_marked());
        if (line == 1) {
            settle(SETTLE_DONE);
            arrive_with('a', headers, 4, 0);
            cr_assert_eq(take(), 0, "a settled copy is taken again");
        }
    }
}

/* Let a copy arrive that failed once. Its original had no id. */
static void arrive_derived(uint64_t line)
{
    amqp_table_entry_t headers[] = {
        entry_text("mqw-id", "01JD3Z6Q9V0X8N5T2K7B4M1C3F"),
        entry_text("mqw-group", "g"), entry_number("mqw-derived", 1),
        entry_number("mqw-attempt", 1), entry_number("mqw-line", line)};

    arrive_with('a', headers, 5, 0);
}

/* A wait queue forwards a copy twice, and a kill ends the first run. */
Test(claims, a_copy_without_an_id_that_killed_its_worker_is_marked)
{
    queue.topology.partitions = 1;
    arrive_derived(7);
    cr_assert_not(take_marked());
    taken->ops->run(taken, 1);
    cr_assert_eq(run_file_crashed(queue.runs), 1);
    claims_close(&claims);
    cr_assert_eq(claims_open(&claims, &queue), 0);
    queue.claims = claims;
    claims_begin(claims);
    arrive_derived(8);
    arrive_derived(7);
    cr_assert_not(take_marked(), "an equal message is marked");
    settle(SETTLE_DONE);
    cr_assert(take_marked());
    cr_assert_eq(taken->crashes, 1);
}

Test(claims, a_copy_without_an_id_behind_its_failed_twin_is_marked)
{
    queue.source.attention = &attention;
    queue.events.changed = changed;
    queue.topology.partitions = 1;
    arrive_derived(7);
    cr_assert_not(take_marked());
    settle(SETTLE_RETRY);
    arrive_derived(8);
    cr_assert_not(take_marked(), "an equal message is marked");
    settle(SETTLE_DONE);
    arrive_derived(7);
    cr_assert(take_marked());
}

Test(claims, a_message_says_that_its_id_is_derived)
{
    arrive('a', 0, 0);
    cr_assert_neq(take(), 0);
    cr_assert(taken->flags & MESSAGE_ID_DERIVED);
    settle(SETTLE_DONE);
    arrive_named('a', 0, 0, 0);
    cr_assert_neq(take(), 0);
    cr_assert_not(taken->flags & MESSAGE_ID_DERIVED);
}

/* A killed worker was running a copy; another copy comes first. */
Test(claims, a_crash_counts_for_each_copy_that_failed_as_often)
{
    arrive_named('a', 7, 1, 0);
    cr_assert_not(take_marked());
    taken->ops->run(taken, 1);
    cr_assert_eq(run_file_crashed(queue.runs), 1);
    cr_assert_not(claims_void(claims));
    claims_begin(claims);
    arrive_named('a', 8, 1, 0);
    cr_assert(take_marked());
    cr_assert_eq(taken->crashes, 1);
    settle(SETTLE_DONE);
    arrive_named('a', 9, 1, 0);
    cr_assert(take_marked());
    cr_assert_eq(taken->crashes, 0);
}

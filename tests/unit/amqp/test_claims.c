/* test_claims.c - messages of a broker that are held until a time */
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

/* Let a message of one byte arrive that is due in `ms`. */
static void arrive(char body, uint64_t ms, uint8_t priority)
{
    static unsigned char room[4096];
    amqp_table_entry_t due = {
        .key = amqp_cstring_bytes("mqw-due"),
        .value = {.kind = AMQP_FIELD_KIND_I64,
                  .value.i64 = (int64_t)(clock_wall_ns() + ms * NS_PER_MS)}};
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_HEADERS_FLAG |
                                                    AMQP_BASIC_PRIORITY_FLAG,
                                          .headers = {1, &due},
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

/* Take the next message: its body, or 0. */
static char take(void)
{
    struct message *m;

    if (claims_take(&queue.source, 0, clock_wall_ns(), &m) == -EAGAIN)
        return 0;
    return ((const char *)m->data)[m->size - 1];
}

Test(claims, those_for_one_time_are_held_by_priority_then_as_they_came)
{
    arrive('l', 300, 9); /* late */
    arrive('a', 200, 4);
    arrive('h', 200, 5); /* high */
    arrive('b', 200, 4);
    arrive('e', 100, 0); /* early */
    cr_assert_eq(claims_count(claims).held, 5);
    cr_assert_eq(take(), 0, "none is due");
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
    cr_assert_not(claims_void(claims), "there was a connection");
    cr_assert(claims_void(claims), "there has been none since");
    cr_assert_eq(claims_count(claims).arrived, 0);
    cr_assert_eq(claims_count(claims).held, 0);
    cr_assert_null(claims_take_back(claims, &n));
    cr_assert_eq(take(), 0);
}

/* test_envelope.c - the properties of a message on a broker */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/amqp/envelope.h"
#include "common/amqp/topology.h"
#include "common/base/clock.h"

static struct envelope e;
static char head[HEADER_MAX];
static unsigned char raw[100000];

static amqp_bytes_t word(const char *text)
{
    return (amqp_bytes_t){strlen(text), (void *)(uintptr_t)text};
}

static amqp_table_entry_t number(const char *name, int64_t n)
{
    return (amqp_table_entry_t){
        .key = word(name),
        .value = {.kind = AMQP_FIELD_KIND_I64, .value.i64 = n}};
}

static amqp_table_entry_t said(const char *name, const char *value)
{
    return (amqp_table_entry_t){
        .key = word(name),
        .value = {.kind = AMQP_FIELD_KIND_UTF8, .value.bytes = word(value)}};
}

/* Encode properties as a frame has them. */
static amqp_bytes_t encode(amqp_basic_properties_t *props)
{
    int n = amqp_encode_properties(AMQP_BASIC_CLASS, props,
                                   (amqp_bytes_t){sizeof raw, raw});

    cr_assert_gt(n, 0);
    return (amqp_bytes_t){(size_t)n, raw};
}

static amqp_bytes_t with(amqp_table_entry_t *entries, int count)
{
    amqp_basic_properties_t props = {
        ._flags = AMQP_BASIC_HEADERS_FLAG,
        .headers = {count, entries},
    };

    return encode(&props);
}

/* Return the header that envelope_read wrote, parsed as for a handler. */
static struct header header_of(const char *body)
{
    static char all[HEADER_MAX + 100];
    char why[HEADER_WHY];
    struct header h;

    memcpy(all, head, e.head);
    strcpy(all + e.head, body);
    cr_assert_eq(header_parse(all, e.head + strlen(body), &h, why), 0, "%s",
                 why);
    return h;
}

static void setup(void)
{
    struct problem p;

    cr_assert_eq(rabbit_load(&p), 0, "%s", p.text);
}

TestSuite(envelope, .init = setup);

Test(envelope, ours_becomes_a_header)
{
    amqp_table_entry_t all[] = {
        said("mqw-id", "01JD3Z6Q9V0X8N5T2K7B4M1C3F"),
        number("mqw-sent", 1732126091123456789),
        number("mqw-expires", 1732129691000000000),
        number("mqw-timeout", 5000),
        number("mqw-attempt", 3),
        number("mqw-first", 77),
        number("mqw-due", 99),
        number("mqw-resent", 1),
        said("x-trace", "abc"),
    };
    struct header h;
    char id[ULID_TEXT];

    cr_assert_eq(envelope_read(&e, with(all, 9), "hello", 5, head), 0);
    h = header_of("hello");
    cr_assert_str_eq(ulid_print(h.id, id), "01JD3Z6Q9V0X8N5T2K7B4M1C3F");
    cr_assert_eq(h.sent_ns, 1732126091123456789U);
    cr_assert_eq(h.expires_ns, 1732129691000000000U);
    cr_assert_eq(h.timeout_ms, 5000);
    cr_assert_eq(h.size, 5);
    cr_assert_eq(h.x_count, 1);
    cr_assert_eq(e.attempt, 3);
    cr_assert_eq(e.first_ns, 77);
    cr_assert_eq(e.due_ns, 99);
    cr_assert(e.resent);
    cr_assert_not(e.derived);
}

Test(envelope, of_the_broker_nothing_is_handed_on)
{
    amqp_table_entry_t all[] = {
        said("x-death", "a"),
        said("x-first-death-queue", "b"),
        number("x-delivery-count", 4),
        said("x-last-death-reason", "c"),
        said("x-BAD", "d"),
        said("x-newline", "e\nf"),
        said("other", "g"),
        number("mqw-timeout", -1),
    };

    cr_assert_eq(envelope_read(&e, with(all, 8), "", 0, head), 0);
    cr_assert_eq(header_of("").x_count, 0);
    cr_assert_eq(header_of("").fields, HEADER_ID | HEADER_SIZE);
}

Test(envelope, a_restriction_without_a_valid_value_is_told)
{
    amqp_table_entry_t all[] = {number("mqw-timeout", INT64_MAX)};
    const amqp_table_entry_t bad[] = {
        number("mqw-timeout", 0), said("mqw-timeout", "5s"),
        number("mqw-expires", -1), said("mqw-expires", "tomorrow"),
        said("mqw-due", "99")};

    cr_assert_eq(envelope_read(&e, with(all, 1), "", 0, head), 0);
    cr_assert_eq(header_of("").fields, HEADER_ID | HEADER_SIZE);
    cr_assert_str_eq(e.wrong, "mqw-timeout is not a number of ms above 0");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        all[0] = bad[i];
        cr_assert_eq(envelope_read(&e, with(all, 1), "", 0, head), 0);
        cr_assert_not_null(e.wrong, "%zu", i);
        cr_assert_eq(memcmp(e.wrong, all[0].key.bytes, all[0].key.len), 0);
    }
    all[0] = number("mqw-timeout", (int64_t)HEADER_MS_MAX);
    cr_assert_eq(envelope_read(&e, with(all, 1), "", 0, head), 0);
    cr_assert_eq(header_of("").timeout_ms, HEADER_MS_MAX);
    cr_assert_null(e.wrong);
}

Test(envelope, a_derived_id_is_the_same_in_each_delivery)
{
    amqp_table_entry_t again[] = {number("x-delivery-count", 1)};
    struct ulid first;

    cr_assert_eq(envelope_read(&e, with(NULL, 0), "body", 4, head), 0);
    cr_assert(e.derived);
    first = e.id;
    cr_assert_eq(envelope_read(&e, with(again, 1), "body", 4, head), 0);
    cr_assert_eq(memcmp(&first, &e.id, sizeof first), 0);
    cr_assert_eq(envelope_read(&e, with(again, 1), "bodz", 4, head), 0);
    cr_assert_neq(memcmp(&first, &e.id, sizeof first), 0);
}

Test(envelope, a_message_id_that_is_a_ulid_is_the_id)
{
    amqp_basic_properties_t props = {
        ._flags = AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_TIMESTAMP_FLAG |
                  AMQP_BASIC_PRIORITY_FLAG,
        .message_id = word("01JD3Z6Q9V0X8N5T2K7B4M1C3F"),
        .timestamp = 1732126091,
        .priority = 7};

    cr_assert_eq(envelope_read(&e, encode(&props), "", 0, head), 0);
    cr_assert_not(e.derived);
    cr_assert_eq(e.priority, 7);
    cr_assert_eq(header_of("").sent_ns, 1732126091 * NS_PER_S);
}

Test(envelope, lines_that_do_not_fit_are_left_out)
{
    static char names[20][32], value[HEADER_VALUE_MAX + 1];
    amqp_table_entry_t all[20];

    memset(value, 'v', HEADER_VALUE_MAX);
    for (int i = 0; i < 20; i++) {
        snprintf(names[i], sizeof names[i], "x-%c", 'a' + i);
        all[i] = said(names[i], value);
    }
    cr_assert_eq(envelope_read(&e, with(all, 20), "", 0, head), 0);
    cr_assert_eq(header_of("").x_count, 3);
}

Test(envelope, what_is_no_properties_is_refused)
{
    static unsigned char broken[] = {0xff, 0xff, 0xff};

    cr_assert_lt(envelope_read(&e, (amqp_bytes_t){3, broken}, "", 0, head), 0);
    cr_assert_lt(envelope_read(&e, (amqp_bytes_t){0, broken}, "", 0, head), 0);
}

/* ---- copies ---- */

static struct envelope_copy copy;

static const amqp_field_value_t *in_copy(const char *name)
{
    const amqp_table_t *t = &copy.properties.headers;

    for (int i = 0; i < t->num_entries; i++)
        if (t->entries[i].key.len == strlen(name) &&
            memcmp(t->entries[i].key.bytes, name, strlen(name)) == 0)
            return &t->entries[i].value;
    return NULL;
}

Test(envelope, a_copy_keeps_what_is_foreign_but_not_its_way)
{
    amqp_table_entry_t all[] = {said("x-trace", "abc"), said("CC", "q2"),
                                said("x-death", "old"),
                                number("mqw-attempt", 1)};
    amqp_basic_properties_t props = {
        ._flags = AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_USER_ID_FLAG |
                  AMQP_BASIC_EXPIRATION_FLAG | AMQP_BASIC_CORRELATION_ID_FLAG,
        .headers = {4, all},
        .user_id = word("other"),
        .expiration = word("10"),
        .correlation_id = word("corr")};
    struct ulid id = {{1}};
    struct envelope_change change = {
        .id = &id, .attempt = 2, .number = 9, .due_ns = 5};

    cr_assert_eq(envelope_copy(&copy, encode(&props), &change, false), 0);
    cr_assert_not_null(in_copy("x-trace"));
    cr_assert_null(in_copy("CC"));
    cr_assert_null(in_copy("x-death"));
    cr_assert_eq(in_copy("mqw-attempt")->value.i64, 2);
    cr_assert_eq(in_copy("mqw-due")->value.i64, 5);
    cr_assert_eq(copy.properties.delivery_mode, 2);
    cr_assert_eq(copy.properties._flags & AMQP_BASIC_USER_ID_FLAG, 0);
    cr_assert_eq(copy.properties._flags & AMQP_BASIC_EXPIRATION_FLAG, 0);
    cr_assert_neq(copy.properties._flags & AMQP_BASIC_CORRELATION_ID_FLAG, 0);
    cr_assert_eq(envelope_number(encode(&copy.properties)), 9);
    envelope_copy_free(&copy);
}

Test(envelope, history_keeps_the_first_and_the_last)
{
    static unsigned char last[sizeof raw];
    amqp_bytes_t was = with(NULL, 0);
    struct ulid id = {{1}};
    struct letter_envelope l;
    const amqp_array_t *all;

    for (uint64_t i = 1; i <= 40; i++) {
        struct envelope_attempt failed = {.at_ns = i,
                                          .number = i,
                                          .error = "exit 1",
                                          .machine = "here",
                                          .tail = "noise",
                                          .tail_size = 5,
                                          .usage = {i * 1000, i << 10}};
        struct envelope_change change = {
            .id = &id, .attempt = i, .failed = &failed, .failed_count = 1};

        cr_assert_eq(envelope_copy(&copy, was, &change, false), 0);
        was = encode(&copy.properties);
        memcpy(last, raw, was.len);
        was.bytes = last;
        cr_assert_lt(was.len, 10000);
        all = &in_copy("mqw-history")->value.array;
        cr_assert_eq(all->num_entries, i < 16 ? (int)i : 16);
        cr_assert_eq(all->entries[0].value.table.entries[0].value.value.i64, 1);
        cr_assert_eq(all->entries[all->num_entries - 1]
                         .value.table.entries[0]
                         .value.value.i64,
                     (int64_t)i);
        cr_assert_eq(in_copy("mqw-stderr")->value.bytes.len, 5);
        envelope_copy_free(&copy);
    }
    cr_assert_eq(letter_envelope_read(&l, was), 0);
    cr_assert_eq(l.attempts[15].usage.cpu_ns, 40000);
    cr_assert_eq(l.attempts[15].usage.peak_bytes, 40 << 10);
    letter_envelope_free(&l);
}

Test(envelope, copies_of_a_message_with_a_derived_id_say_so)
{
    amqp_table_entry_t marked[] = {number("mqw-derived", 1)};
    struct ulid id = {{1}};
    struct envelope_change change = {.id = &id, .derived = true};

    cr_assert_eq(envelope_copy(&copy, with(NULL, 0), &change, false), 0);
    cr_assert_eq(in_copy("mqw-derived")->value.i64, 1);
    envelope_copy_free(&copy);
    cr_assert_eq(envelope_copy(&copy, with(marked, 1), &change, false), 0);
    cr_assert_eq(in_copy("mqw-derived")->value.i64, 1);
    envelope_copy_free(&copy);
    change.derived = false; /* a replay of mqdlq */
    cr_assert_eq(envelope_copy(&copy, with(marked, 1), &change, false), 0);
    cr_assert_eq(in_copy("mqw-derived")->value.i64, 1);
    cr_assert_eq(envelope_read(&e, encode(&copy.properties), "body", 4, head),
                 0);
    cr_assert(e.derived);
    envelope_copy_free(&copy);
}

Test(envelope, a_plain_copy_has_no_history)
{
    struct envelope_attempt failed = {.error = "exit 1", .machine = "here"};
    struct ulid id = {{1}};
    struct envelope_change change = {
        .id = &id, .failed = &failed, .failed_count = 1};

    cr_assert_eq(envelope_copy(&copy, with(NULL, 0), &change, true), 0);
    cr_assert_null(in_copy("mqw-history"));
    cr_assert_null(in_copy("mqw-stderr"));
    envelope_copy_free(&copy);
}

Test(envelope, a_letter_says_why_it_died_and_where)
{
    amqp_table_entry_t run[] = {number("at", 5),         number("ms", 7),
                                said("error", "exit 1"), said("machine", "mq1"),
                                number("cpu-us", 11),    number("peak-kib", 3)};
    amqp_field_value_t one = {.kind = AMQP_FIELD_KIND_TABLE,
                              .value.table = {6, run}};
    amqp_table_entry_t all[] = {
        said("mqw-reason", "rejected"),
        said("mqw-error", "exit 65"),
        number("mqw-died", 99),
        said("mqw-stderr", "why"),
        number("x-delivery-count", 12),
        {.key = word("mqw-history"),
         .value = {.kind = AMQP_FIELD_KIND_ARRAY, .value.array = {1, &one}}}};
    struct letter_envelope l;

    cr_assert_eq(letter_envelope_read(&l, with(all, 6)), 0);
    cr_assert_eq(l.reason, REASON_REJECTED);
    cr_assert_eq(l.died_ns, 99);
    cr_assert_eq(l.deliveries, 12);
    cr_assert_eq(l.attempt_count, 1);
    cr_assert_eq(l.attempts[0].ms, 7);
    cr_assert_eq(l.attempts[0].usage.cpu_ns, 11000);
    cr_assert_eq(l.attempts[0].usage.peak_bytes, 3072);
    cr_assert_eq(memcmp(l.attempts[0].machine.bytes, "mq1", 3), 0);
    letter_envelope_free(&l);
    cr_assert_eq(letter_envelope_same(&copy, with(all, 6)), 0);
    cr_assert_eq(copy.properties.headers.num_entries, 5,
                 "want all headers but the count of deliveries");
    envelope_copy_free(&copy);
}

Test(envelope, a_letter_of_the_brokers_own_has_its_word_for_why)
{
    amqp_table_entry_t death[] = {said("reason", "expired"),
                                  number("time", 1700000000)};
    amqp_field_value_t one = {.kind = AMQP_FIELD_KIND_TABLE,
                              .value.table = {2, death}};
    amqp_table_entry_t all[] = {
        {.key = word("x-death"),
         .value = {.kind = AMQP_FIELD_KIND_ARRAY, .value.array = {1, &one}}}};
    struct letter_envelope l;

    cr_assert_eq(letter_envelope_read(&l, with(all, 1)), 0);
    cr_assert_eq(l.reason, REASON_EXPIRED);
    cr_assert_eq(l.died_ns, 1700000000U * NS_PER_S);
    letter_envelope_free(&l);
}

Test(envelope, a_replay_has_its_number_and_a_new_life)
{
    amqp_table_entry_t all[] = {
        said("mqw-reason", "exhausted"), number("mqw-attempt", 3),
        number("mqw-replay", 1), number("mqw-expires", 5), said("x-a", "b")};
    struct ulid id = {.bytes = {1}};
    const struct envelope_change change = {
        .id = &id, .replay = 2, .no_expiry = true};
    amqp_bytes_t sent;

    cr_assert_eq(envelope_copy(&copy, with(all, 5), &change, false), 0);
    sent = encode(&copy.properties);
    cr_assert_eq(envelope_read(&e, sent, "", 0, head), 0);
    cr_assert_eq(e.replay, 2);
    cr_assert_eq(e.attempt, 0);
    cr_assert_null(memmem(sent.bytes, sent.len, "mqw-reason", 10));
    cr_assert_null(memmem(sent.bytes, sent.len, "mqw-expires", 11));
    envelope_copy_free(&copy);
}

Test(envelope, one_that_is_made_says_what_a_message_of_a_posix_queue_said)
{
    static const char text[] =
        "MQW/1\nsent: 5\nexpires: 7\ntimeout: 9\nx-who: me\n\nbody";
    const struct ulid id = ulid_make(clock_wall_ns());
    const struct envelope_attempt failed = {.at_ns = 11,
                                            .duration_ns = 12,
                                            .number = 1,
                                            .error = "exit 1",
                                            .machine = "here",
                                            .tail = "oops",
                                            .tail_size = 4};
    const struct envelope_change change = {.id = &id,
                                           .attempt = 1,
                                           .first_ns = 3,
                                           .line = 77,
                                           .resent = true,
                                           .failed = &failed,
                                           .failed_count = 1};
    char why[HEADER_WHY];
    struct header h;

    cr_assert_eq(header_parse(text, sizeof text - 1, &h, why), 0);
    cr_assert_eq(envelope_make(&copy, 300, text, &h, &change), 0);
    cr_assert_eq(envelope_read(&e, encode(&copy.properties), "body", 4, head),
                 0);
    cr_assert_eq(in_copy("mqw-history")->value.array.num_entries, 1);
    cr_assert_eq(in_copy("mqw-stderr")->value.bytes.len, 4);
    envelope_copy_free(&copy);
    h = header_of("body");
    cr_assert(memcmp(&e.id, &id, sizeof id) == 0);
    cr_assert(e.priority == 255 && e.attempt == 1 && e.first_ns == 3);
    cr_assert(e.line == 77 && e.resent && !e.has_group);
    cr_assert(h.sent_ns == 5 && h.expires_ns == 7 && h.timeout_ms == 9);
    cr_assert_eq(h.x_count, 1);
}

Test(envelope, all_x_lines_of_a_full_header_are_sent_and_read)
{
    const struct ulid id = {.bytes = {1}};
    const struct envelope_change change = {.id = &id};
    char text[HEADER_MAX + 100] = "MQW/1\n", why[HEADER_WHY];
    struct header h;

    for (int i = 0; i < 120; i++)
        strcat(text, "x-a: b\n");
    strcat(text, "\nbody");
    cr_assert_eq(header_parse(text, strlen(text), &h, why), 0, "%s", why);
    cr_assert_eq(envelope_make(&copy, 0, text, &h, &change), 0);
    cr_assert_eq(envelope_read(&e, encode(&copy.properties), "body", 4, head),
                 0);
    envelope_copy_free(&copy);
    cr_assert_eq(header_of("body").x_count, 120);
}

Test(envelope, a_failed_attempt_is_added_to_encoded_properties)
{
    const struct ulid id = {.bytes = {1}};
    const struct envelope_attempt failed = {
        .number = 3, .error = "exit 1", .machine = "here"};
    amqp_table_entry_t line = number("mqw-line", 7);
    amqp_bytes_t more;

    cr_assert_eq(envelope_attempt_add(&more, with(&line, 1), &id, &failed), 0);
    cr_assert_eq(envelope_read(&e, more, "body", 4, head), 0);
    cr_assert(e.attempt == 3 && e.line == 7);
    cr_assert_not_null(memmem(more.bytes, more.len, "mqw-history", 11));
    free(more.bytes);
}

Test(envelope, a_group_is_in_the_header_if_it_can_be_one)
{
    amqp_table_entry_t group = said("mqw-group", "customer-17");
    struct header h;

    cr_assert_eq(envelope_read(&e, with(&group, 1), "body", 4, head), 0);
    h = header_of("body");
    cr_assert(e.has_group && e.good_group);
    cr_assert_eq(e.group_crc, partition_crc("customer-17", 11));
    cr_assert(h.group.size == 11 && !memcmp(h.group.at, "customer-17", 11));
    group = said("mqw-group", "two\nlines");
    cr_assert_eq(envelope_read(&e, with(&group, 1), "body", 4, head), 0);
    cr_assert(e.has_group && !e.good_group);
    group = number("mqw-group", 17);
    cr_assert_eq(envelope_read(&e, with(&group, 1), "body", 4, head), 0);
    cr_assert(e.has_group && !e.good_group);
}

/* test_custody_look.c - slots as another process sees them */
#include <criterion/criterion.h>
#include <errno.h>
#include <sysexits.h>

#include "common/custody/custody.h"
#include "tests/unit/custody/custody_fixture.h"

TestSuite(custody_look, .init = fixture_init, .fini = fixture_fini);

static struct custody_seen seen[64];
static int count;
static struct problem p;

static int keep(const struct custody_seen *s, void *arg)
{
    seen[count++] = *s;
    return arg && count == *(int *)arg ? 7 : 0;
}

/* Collect all slots; return the result of custody_look. */
static int look(void)
{
    count = 0;
    return custody_look(fixture_file, keep, NULL, &p);
}

/* Open custody with free slots only. */
static struct custody *fresh(unsigned slots)
{
    struct custody *c = fixture_open(slots);

    cr_assert_eq(fixture_recover(c).count, 0);
    return c;
}

/* Add a HELD slot with this text. */
static struct slot *message(struct custody *c, const char *text, uint64_t seq)
{
    struct slot *slot = custody_acquire(c);
    struct slot_meta meta = {.row = 5,
                             .length = (uint32_t)strlen(text),
                             .priority = 3,
                             .failures = 2,
                             .seq = seq,
                             .received_ns = 1000 + seq,
                             .id = {{1, 2, (uint8_t)seq}}};

    cr_assert_not_null(slot);
    memcpy(slot->body, text, strlen(text));
    slot_hold(slot, &meta);
    return slot;
}

Test(custody_look, sees_what_is_held_and_runs_and_nothing_else)
{
    struct custody *c = fresh(4);
    struct slot *a, *b;

    cr_assert_eq(look(), 0);
    cr_assert_eq(count, 0);
    a = message(c, "MQW/1\nid: 01JD3Z6Q9V0X8N5T2K7B4M1C3F\ngroup: g7\n\nbody",
                1);
    b = message(c, "no header", 2);
    slot_run(b, 5000);
    atomic_store(&b->handler_pgid, 77);
    cr_assert_eq(look(), 0);
    cr_assert_eq(count, 2);
    const struct custody_seen *first = &seen[seen[0].seq == 1 ? 0 : 1];
    const struct custody_seen *second = &seen[seen[0].seq == 1 ? 1 : 0];
    cr_assert_eq(first->w.state, SLOT_HELD);
    cr_assert_str_eq(first->group, "g7");
    cr_assert_eq(first->row, 5);
    cr_assert_eq(first->failures, 2);
    cr_assert_eq(first->id.bytes[2], 1);
    cr_assert_eq(second->w.state, SLOT_RUNNING);
    cr_assert_eq(second->w.attempt, 3);
    cr_assert_str_eq(second->group, "");
    cr_assert_eq(second->pgid, 77);
    cr_assert_eq(second->started_ns, 5000);
    slot_retire(a);
    slot_retire(b);
    custody_release(c, a);
    custody_release(c, b);
    cr_assert_eq(look(), 0);
    cr_assert_eq(count, 0);
    custody_close(&c);
}

Test(custody_look, a_broken_header_is_none)
{
    struct custody *c = fresh(4);

    message(c, "MQW/1\ngroup g7\n\nbody", 1);
    cr_assert_eq(look(), 0);
    cr_assert_eq(count, 1);
    cr_assert_eq(seen[0].header.fields, 0);
    cr_assert_str_eq(seen[0].group, "");
    custody_close(&c);
}

Test(custody_look, a_visitor_may_end_it)
{
    struct custody *c = fresh(4);
    int most = 1;

    message(c, "a", 1);
    message(c, "b", 2);
    count = 0;
    cr_assert_eq(custody_look(fixture_file, keep, &most, &p), 7);
    cr_assert_eq(count, 1);
    custody_close(&c);
}

Test(custody_look, refuses_what_it_cannot_read)
{
    struct custody *c;
    uint32_t version = 99;
    int fd;

    cr_assert_eq(look(), -ENOENT);
    c = fresh(4);
    custody_close(&c);
    fd = open(fixture_file, O_WRONLY);
    cr_assert_eq(pwrite(fd, &version, sizeof version, AT_VERSION), 4);
    cr_assert_lt(look(), 0);
    cr_assert_eq(p.status, EX_CONFIG);
    cr_assert_eq(ftruncate(fd, 100), 0);
    cr_assert_lt(look(), 0);
    close(fd);
}

Test(custody_look, a_file_cut_short_is_not_read_past_its_end)
{
    struct custody *c = fresh(16);

    message(c, "a", 1);
    custody_close(&c);
    cr_assert_eq(truncate(fixture_file, AT_SLOT + 600), 0);
    cr_assert_eq(look(), 0);
    cr_assert_leq(count, 1);
}

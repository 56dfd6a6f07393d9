/* test_status.c - what others see of a worker */
#include "tests/fixtures/flow_fixture.h"

#include <inttypes.h>

#include "worker/operate/status.h"

static struct status status;
static struct source_ops ops;
static int64_t letters; /* the count of the source, or -errno */

static int64_t count(struct source *s, enum source_count what)
{
    (void)s;
    return what == COUNT_DEAD ? letters : 0;
}

static void setup(void)
{
    flow_settings();
    flow_open();
    ops = *fake.source.ops;
    ops.count = count;
    fake.source.ops = &ops;
    status_init(&status, &flow);
}

static void teardown(void)
{
    flow_close();
}

TestSuite(status, .init = setup, .fini = teardown);

static void shows(int64_t counted, int64_t shown)
{
    letters = counted;
    status_count(&status);
    cr_assert_eq(atomic_load(&status.rows[COUNT_DEAD]), shown,
                 "%" PRId64 " where %" PRId64 " were counted",
                 atomic_load(&status.rows[COUNT_DEAD]), counted);
}

/* If a broker does not answer, the last count of its letters stays. */
Test(status, a_count_that_fails_changes_nothing)
{
    shows(-EAGAIN, 0);
    shows(7, 7);
    shows(-EAGAIN, 7);
    shows(-EIO, 7);
    shows(3, 3);
}

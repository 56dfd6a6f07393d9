/* test_mqdlq_removed.c - mqdlq: the queue is removed during a replay */
#include "tests/e2e/mqdlq/mqdlq_fixture.h"

#include <fcntl.h>
#include <mqueue.h>
#include <signal.h>

TestSuite(mqdlq_removed, .init = harness_init, .fini = harness_fini);

/* Replay letters 1 and 2 to a queue with room for one. When letter 2 waits for
 * room, the name is removed and room is made. Return what mqdlq prints (its
 * status is 66), and letter 2 in *came. */
static const char *removed_under(const char *q, const char *flag,
                                 char came[ROOM + 1])
{
    struct harness_process *p =
        harness_program("mqdlq", "replay", "--state-dir", harness_state_dir(),
                        flag, q, "1", "2");
    harness_until(
        harness_queue_length(q) == 1 && waits_for_room(harness_pid(p)), 10000);
    mqd_t held = mq_open(q, O_RDONLY | O_CLOEXEC);
    cr_assert_geq(held, 0);
    harness_signal(p,
                   SIGSTOP); /* the queue must not be seen full and without its
                              * name */
    cr_assert_eq(mq_unlink(q), 0);
    cr_assert_gt(mq_receive(held, came, ROOM, NULL), 0);
    harness_signal(p, SIGCONT);
    cr_assert_eq(harness_wait(p, 10000), 66);
    ssize_t n = mq_receive(held, came, ROOM, NULL);
    cr_assert_gt(n, 0);
    came[n] = '\0';
    mq_close(held);
    return harness_stderr(p, NULL);
}

/* Check that mqdlq names the letter that may be lost. */
static void told(const char *err)
{
    cr_assert(strstr(err, "removed just as letter 2 was sent"), "%s", err);
}

Test(mqdlq_removed, a_letter_that_a_worker_may_have_stays_marked)
{
    char came[ROOM + 1];
    const char *q = harness_queue(1, 0);
    good(dlq_input(three, "import", q));
    told(removed_under(q, "--wait=60s", came));
    cr_assert(strstr(came, "letter: 2\n"), "%s", came);
    cr_assert_eq(count("--replayed", q), 2, "letter 2 lost its mark");
}

Test(mqdlq_removed, a_letter_without_its_number_stays_as_it_was)
{
    char came[ROOM + 1];
    const char *q = harness_queue(1, 0);
    good(dlq_input(three, "import", q));
    told(removed_under(q, "--raw", came));
    cr_assert(strstr(came, "second"), "%s", came);
    cr_assert_eq(count(q), 2, "the first went");
    good(dlq("show", q, "2"));
}

Test(mqdlq_removed, a_letter_that_waits_for_a_removed_queue_is_dead_again)
{
    const char *q = harness_queue(1, 0);
    good(dlq_input(three, "import", q));
    struct harness_process *p = harness_program(
        "mqdlq", "replay", "--state-dir", harness_state_dir(), q, "1", "2");
    harness_until(
        harness_queue_length(q) == 1 && waits_for_room(harness_pid(p)), 10000);
    cr_assert_eq(mq_unlink(q), 0);
    mqd_t fresh = mq_open(q, O_CREAT | O_RDONLY | O_CLOEXEC, 0600,
                          &(struct mq_attr){.mq_maxmsg = 2, .mq_msgsize = 256});
    cr_assert_eq(harness_wait(p, 10000), 66);
    cr_assert(strstr(harness_stderr(p, NULL), "letter 2 was not sent"));
    mq_close(fresh);
    cr_assert_eq(count("--replayed", q), 1, "the first is still on its way");
    cr_assert_eq(count(q), 2, "the second is dead again");
}

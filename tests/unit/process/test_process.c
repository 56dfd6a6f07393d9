/* test_process.c - start a child, look it up */
#include <criterion/criterion.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker/process/process.h"

static char sleep_word[] = "sleep", time_word[] = "1000";
static char *const sleeper[] = {sleep_word, time_word, NULL};
static char *const none[] = {NULL};
static pid_t child;

/* teardown - a failed test leaves its process */
static void teardown(void)
{
    if (child > 0)
        kill(child, SIGKILL);
}

TestSuite(process, .fini = teardown, .timeout = 60);

/* start - a process that stays; ended by stop */
static pid_t start(void)
{
    char path[PATH_MAX];
    pid_t pid;

    cr_assert_eq(process_find("sleep", path), 0);
    cr_assert_eq(process_start(&pid, path, sleeper, none, (int[]){-1, -1, -1}),
                 0);
    child = pid;
    return pid;
}

static void stop(pid_t pid)
{
    kill(pid, SIGKILL);
    cr_assert_eq(waitpid(pid, NULL, 0), pid);
    child = 0;
}

Test(process, stat_tells_parent_group_and_start)
{
    struct process_stat st;
    pid_t pid = start();

    cr_assert(process_stat(pid, &st));
    cr_assert_eq(st.parent, getpid());
    cr_assert_eq(st.group, pid);
    cr_assert_eq(st.start, process_start_time(pid));
    cr_assert_gt(st.start, 0);
    stop(pid);
    cr_assert_not(process_stat(pid, &st));
    cr_assert_eq(process_start_time(pid), 0);
}

/* What saves the look into /proc at each start. */
Test(process, the_tick_at_its_start_is_its_start_time)
{
    unsigned same = 0;

    for (unsigned i = 0; i < 50; i++) {
        uint64_t before = process_tick();
        pid_t pid = start();

        if (process_tick() == before) {
            cr_assert_eq(process_start_time(pid), before);
            same++;
        }
        stop(pid);
    }
    cr_assert_gt(same, 0, "no start was within one tick");
}

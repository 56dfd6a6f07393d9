/* test_process_search.c - find and kill the processes that a handler started,
 * in whatever session they are */
#include <criterion/criterion.h>
#include <signal.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "worker/process/environment.h"
#include "worker/process/leftovers.h"
#include "worker/process/process.h"

#define CHILDREN 16
#define FDS      64 /* above the descriptors of the search */

static struct process_search *marked;
static uint64_t nonce;
static pid_t child[CHILDREN];
static unsigned children;

static void setup(void)
{
    /* Processes of another run of this test have another nonce. */
    nonce = clock_wall_ns() * 2654435761u + (uint64_t)getpid();
    cr_assert_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    cr_assert_eq(process_search_open(&marked), 0);
}

static void teardown(void)
{
    struct process_search_delivery all[] = {
        {.seq = 1}, {.seq = 7}, {.seq = 8}, {.seq = 12}, {.seq = 121}};

    process_search_end(
        marked, &(struct process_search_choice){
                    .nonce = nonce, .of = all, .count = 5, .ours = true});
    for (unsigned i = 0; i < children; i++)
        kill(-child[i], SIGKILL);
    process_search_close(&marked);
    cr_assert_null(marked);
}

TestSuite(marked, .init = setup, .fini = teardown);

/* Start "sh -c SCRIPT" as the handler of delivery `seq`, and wait until each of
 * its `parts` processes has written a byte to stderr. */
static pid_t start(uint64_t seq, const char *script, unsigned parts)
{
    char mark[ENVIRONMENT_MARK], sh[] = "sh", option[] = "-c", byte;
    char path[] = "PATH=/usr/bin:/bin", text[1024];
    char *argv[] = {sh, option, text, NULL}, *env[] = {path, mark, NULL};
    struct process p;
    int fds[2];

    environment_mark(nonce, seq, mark);
    snprintf(text, sizeof text, "%s", script);
    cr_assert_eq(pipe2(fds, O_CLOEXEC), 0);
    cr_assert_eq(
        process_start(&p, "/bin/sh", argv, env, (int[]){-1, -1, fds[1]}, 0), 0);
    close(p.end);
    child[children++] = p.pid;
    close(fds[1]);
    for (unsigned i = 0; i < parts; i++)
        cr_assert_eq(read(fds[0], &byte, 1), 1);
    close(fds[0]);
    return p.pid;
}

#define UP     "printf x >&2; "
#define STAY   UP "exec sleep 1000 2>&-"
#define SETSID "setsid sh -c '" STAY "' & "

/* Find the processes of one delivery by their mark, among our descendants. */
static int find(uint64_t seq)
{
    struct process_search_delivery one = {.seq = seq};

    return process_search_find(
        marked, &(struct process_search_choice){
                    .nonce = nonce, .of = &one, .count = 1, .ours = true});
}

/* Kill the processes of a delivery whose leader has exited. */
static int end(uint64_t seq, pid_t group)
{
    struct process_search_delivery one = {.seq = seq, .group = group};

    return process_search_end(
        marked, &(struct process_search_choice){
                    .nonce = nonce, .of = &one, .count = 1, .ours = true});
}

Test(marked, every_process_with_the_mark_is_found_in_any_session)
{
    start(7, SETSID SETSID STAY, 3);
    cr_assert_eq(find(7), 3);
    cr_assert_eq(find(7), 3, "a search starts anew");
}

Test(marked, another_delivery_is_not_found_though_its_number_begins_alike)
{
    start(1, STAY, 1);
    start(12, STAY, 1);
    start(121, STAY, 1);
    cr_assert_eq(find(12), 1);
    nonce++;
    cr_assert_eq(find(12), 0, "a process of another worker");
    nonce--;
}

Test(marked, a_child_that_cleared_its_environment_is_found_by_its_parent)
{
    start(7, "setsid env -i sh -c '" STAY "' & " STAY, 2);
    cr_assert_eq(find(7), 2);
}

Test(marked, end_leaves_nothing_and_no_zombie_but_the_leader)
{
    pid_t pid = start(7,
                      SETSID "(setsid sh -c 'trap \"\" TERM HUP; " UP
                             "exec sleep 1000 2>&-' &) ; sh -c '" STAY "' & " UP
                             "exit 3",
                      4);
    siginfo_t info;

    cr_assert_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    cr_assert_geq(end(7, pid), 3);
    cr_assert_eq(find(7), 0);
    cr_assert_eq(waitid(P_ALL, 0, &info, WEXITED | WNOHANG), 0);
    cr_assert_eq(info.si_pid, pid, "the leader keeps its status");
    cr_assert_eq(info.si_status, 3);
    cr_assert_eq(waitid(P_ALL, 0, &info, WEXITED | WNOHANG), -1,
                 "another zombie is left");
}

Test(marked, end_does_not_touch_a_neighbour)
{
    pid_t other = start(8, SETSID STAY, 2);
    pid_t pid = start(7, SETSID "exit 0", 1);
    siginfo_t info = {0};

    cr_assert_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    cr_assert_eq(end(7, pid), 1);
    cr_assert_eq(find(8), 2);
    cr_assert_eq(waitid(P_PID, (id_t)other, &info, WEXITED | WNOHANG), 0);
    cr_assert_eq(info.si_pid, 0, "the other handler has exited");
}

Test(marked, groups_only_are_members_without_the_leader)
{
    pid_t pid = start(7, SETSID "sh -c '" STAY "' & " STAY, 3);
    struct process_search_delivery one = {.group = pid};
    struct process_search_choice choice = {
        .of = &one, .count = 1, .groups_only = true};

    cr_assert_eq(process_search_find(marked, &choice), 1);
    cr_assert_eq(process_search_living(marked), 1);
}

/* ---- another process has copies of the search's descriptors ---- */

/* Return true if fdinfo (proc(5)) shows the descriptor as a pidfd. */
static bool is_pidfd(int fd)
{
    char path[64], line[128];
    bool found = false;
    FILE *f;

    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof line, f))
        found = strncmp(line, "Pid:", 4) == 0;
    if (f)
        fclose(f);
    return found;
}

/* Copy each pidfd of the search, as a child that another thread starts has them
 * until its execve. Returns how many there are. */
static unsigned pidfds_copy(void)
{
    unsigned n = 0;

    for (int fd = 0; fd < FDS; fd++)
        n += is_pidfd(fd) && fcntl(fd, F_DUPFD_CLOEXEC, FDS) >= 0;
    return n;
}

/* Kill a process, and wait until the descriptor of the search is readable. */
static void ended(pid_t pid)
{
    struct pollfd p = {.fd = process_search_fd(marked), .events = POLLIN};

    cr_assert_eq(kill(pid, SIGKILL), 0);
    cr_assert_eq(poll(&p, 1, -1), 1);
}

Test(marked, an_end_is_told_once_though_another_has_the_descriptor)
{
    struct pollfd p = {.fd = process_search_fd(marked), .events = POLLIN};
    pid_t one = start(7, STAY, 1), two = start(7, STAY, 1);

    cr_assert_eq(find(7), 2);
    cr_assert_eq(pidfds_copy(), 2);
    ended(one);
    cr_assert_eq(process_search_living(marked), 1);
    cr_assert_eq(poll(&p, 1, 0), 0, "one end was reported twice");
    cr_assert_eq(process_search_living(marked), 1);
    ended(two);
    cr_assert_eq(process_search_living(marked), 0);
}

Test(marked, a_search_is_not_told_of_what_an_earlier_one_found)
{
    pid_t one = start(7, STAY, 1), two = start(8, STAY, 1);

    cr_assert_eq(find(7), 1);
    cr_assert_eq(pidfds_copy(), 1);
    cr_assert_eq(find(8), 1);
    cr_assert_eq(kill(one, SIGKILL), 0);
    cr_assert_eq(waitpid(one, NULL, 0), one);
    cr_assert_eq(process_search_living(marked), 1);
    ended(two);
    cr_assert_eq(process_search_living(marked), 0);
}

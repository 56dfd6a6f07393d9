/* test_stale_handlers.c - what a dead worker's handlers left is killed, nobody
 * else
 *
 * Each process or tree of processes holds the writing end of a pipe: once all
 * of it is gone, the pipe is at its end.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/sweep.h"
#include "worker/process/environment.h"
#include "worker/process/leftovers.h"
#include "worker/process/process.h"

#define LIMIT_MS 20000
#define SLEEP    "sleep 600"

static uint64_t nonce; /* of this test alone: others run at the same time */

/* A tree of processes. */
struct tree {
    pid_t pid; /* its root, our child and leader of its group */
    int gone;  /* at its end once all of it has ended */
};

static void setup(void)
{
    nonce = (uint64_t)getpid() << 32 | 0xabcdef;
}

TestSuite(leftover, .init = setup);

/* Become `script`, with these variables. */
static _Noreturn void tree_child(const char *script, char *const env[],
                                 int ready)
{
    char sh[] = "sh", option[] = "-c";
    char *argv[] = {sh, option, (char *)script, NULL};

    setpgid(0, 0);
    dup2(ready, 1);
    execve("/bin/sh", argv, env);
    _exit(127);
}

/* Let a shell run `script`, and wait until it prints a line to say that it has
 * started. `mark` NULL: it carries none. */
static struct tree tree_start(const char *script, const char *mark)
{
    char path[512], first;
    char *env[] = {path, mark ? (char *)mark : NULL, NULL};
    int alive[2], ready[2];
    struct tree t;

    snprintf(path, sizeof path, "PATH=%s", getenv("PATH"));
    cr_assert(pipe(alive) == 0 && pipe2(ready, O_CLOEXEC) == 0);
    fcntl(alive[0], F_SETFD, FD_CLOEXEC);
    t.pid = fork();
    cr_assert(t.pid >= 0);
    if (t.pid == 0)
        tree_child(script, env, ready[1]);
    close(alive[1]);
    close(ready[1]);
    cr_assert_eq(read(ready[0], &first, 1), 1, "\"%s\" did not start", script);
    close(ready[0]);
    t.gone = alive[0];
    return t;
}

static struct tree tree_of(const char *script, uint64_t seq)
{
    char mark[ENVIRONMENT_MARK];

    return tree_start(script, environment_mark(nonce, seq, mark));
}

/* Return true if all of the tree has ended. Zombies hold no pipe. */
static bool is_gone(const struct tree *t, int wait_ms)
{
    struct pollfd p = {.fd = t->gone, .events = POLLIN};

    return poll(&p, 1, wait_ms) == 1 && p.revents & POLLHUP;
}

/* Check that the tree is still alive, and end it. */
static void tree_end(struct tree *t)
{
    cr_assert_not(is_gone(t, 0), "a neighbour was killed");
    kill(-t->pid, SIGKILL);
    waitpid(t->pid, NULL, 0);
    close(t->gone);
}

/* Reap a tree that was killed. A process that exits gives up its memory, and
 * the mark in it, before its descriptors: it runs nothing any more, but its
 * pipe is open for a moment. */
static void tree_reap(struct tree *t, const char *what)
{
    cr_assert(is_gone(t, LIMIT_MS), "%s lives on", what);
    waitpid(t->pid, NULL, 0);
    close(t->gone);
}

/* Describe a tree as recovery reads it from the slot. */
static struct stale_handler leftover_of(const struct tree *t, uint64_t seq)
{
    return (struct stale_handler){
        .mark = seq, .pgid = t->pid, .start = process_start_time(t->pid)};
}

Test(leftover, nothing_to_do_does_nothing)
{
    cr_assert_eq(stale_handlers_kill(nonce, NULL, 0), 0);
    cr_assert_eq(
        stale_handlers_kill(nonce, &(struct stale_handler){.mark = 1}, 1), 0);
}

Test(leftover, handler_is_killed_by_its_group_and_is_gone_on_return)
{
    struct tree t = tree_of("echo; " SLEEP "; :", 7);
    struct stale_handler l = leftover_of(&t, 7);

    cr_assert_gt(stale_handlers_kill(nonce, &l, 1), 0);
    tree_reap(&t, "the handler");
}

Test(leftover, handler_whose_group_was_not_noted_is_found_by_its_mark)
{
    struct tree t = tree_of("echo; " SLEEP "; :", 7);

    cr_assert_gt(
        stale_handlers_kill(nonce, &(struct stale_handler){.mark = 7}, 1), 0);
    tree_reap(&t, "the handler");
}

Test(leftover, what_left_the_group_is_found_by_its_mark)
{
    struct tree t = tree_of("setsid sh -c 'echo; " SLEEP "; :'", 7);
    struct stale_handler l = leftover_of(&t, 7);

    cr_assert_gt(stale_handlers_kill(nonce, &l, 1), 1);
    tree_reap(&t, "the session");
}

Test(leftover, daemon_whose_parents_are_gone_is_found)
{
    struct tree t =
        tree_of("setsid sh -c '(echo; " SLEEP "; :) & exit' & exit", 7);

    waitpid(t.pid, NULL, 0); /* the leader: its number may be anybody's */
    cr_assert_gt(
        stale_handlers_kill(
            nonce,
            &(struct stale_handler){.mark = 7, .pgid = t.pid, .start = 1}, 1),
        0);
    cr_assert(is_gone(&t, LIMIT_MS));
}

Test(leftover, process_without_the_mark_goes_with_its_group)
{
    struct tree t =
        tree_of("env -i /bin/sh -c 'echo; exec " SLEEP "' & wait", 7);
    struct stale_handler l = leftover_of(&t, 7);

    stale_handlers_kill(nonce, &l, 1);
    /* The process was killed, but only those with the mark were waited for. */
    poll(&(struct pollfd){.fd = t.gone}, 1, LIMIT_MS);
    tree_reap(&t, "the one without a mark");
}

Test(leftover, process_without_the_mark_goes_with_its_parent)
{
    struct tree t =
        tree_of("setsid env -i /bin/sh -c 'echo; exec " SLEEP "' & wait", 7);
    struct stale_handler l = leftover_of(&t, 7);

    /* Without its group, only the mark leads to the parent. */
    l.pgid = 0;
    stale_handlers_kill(nonce, &l, 1);
    tree_reap(&t, "the one without a mark");
}

Test(leftover, neighbours_live_on)
{
    struct tree mine = tree_of("echo; " SLEEP "; :", 7);
    struct tree other[] = {
        tree_of("echo; " SLEEP "; :", 71),
        tree_of("echo; " SLEEP "; :", 1),
        tree_start("echo; " SLEEP "; :", NULL),
        tree_start("echo; " SLEEP "; :", "MQW_DELIVERY=0000000000000001-7"),
    };
    struct stale_handler l = leftover_of(&mine, 7);

    cr_assert_gt(stale_handlers_kill(nonce, &l, 1), 0);
    tree_reap(&mine, "the handler");
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++)
        tree_end(&other[i]);
}

Test(leftover, group_number_that_is_somebody_elses_by_now_is_left_alone)
{
    struct tree t = tree_start("echo; " SLEEP "; :", NULL);
    struct stale_handler l = leftover_of(&t, 7);

    l.start--;
    cr_assert_eq(stale_handlers_kill(nonce, &l, 1), 0);
    l.start = 0;
    cr_assert_eq(stale_handlers_kill(nonce, &l, 1), 0);
    tree_end(&t);
}

Test(leftover, our_own_group_is_never_killed)
{
    struct stale_handler l[] = {{.mark = 7, .pgid = 0, .start = 1},
                                {.mark = 7, .pgid = 1, .start = 1},
                                {.mark = 7, .pgid = -1, .start = 1}};

    cr_assert_eq(stale_handlers_kill(nonce, l, 3), 0);
}

Test(leftover, many_deliveries_go_in_one_search)
{
    struct tree t[8];
    struct stale_handler l[8];

    for (uint64_t i = 0; i < 8; i++) {
        t[i] = tree_of("setsid sh -c 'echo; " SLEEP "; :'", 100 + i);
        l[i] = leftover_of(&t[i], 100 + i);
    }
    cr_assert_geq(stale_handlers_kill(nonce, l, 8), 8);
    for (int i = 0; i < 8; i++)
        tree_reap(&t[i], "one of many");
}

Test(leftover, stopped_process_is_killed)
{
    struct tree t = tree_of("echo; kill -STOP $$; :", 7);

    waitpid(t.pid, NULL, WUNTRACED);
    cr_assert_gt(
        stale_handlers_kill(nonce, &(struct stale_handler){.mark = 7}, 1), 0);
    tree_reap(&t, "the stopped one");
}

Test(leftover, process_that_ignores_signals_is_killed)
{
    struct tree t = tree_of("trap '' TERM INT HUP QUIT; echo; " SLEEP "; :", 7);

    cr_assert_gt(
        stale_handlers_kill(nonce, &(struct stale_handler){.mark = 7}, 1), 0);
    tree_reap(&t, "the deaf one");
}

/* A process that forks while the search goes on, from a session of its own. */
Test(leftover, tree_that_goes_on_forking_is_gone_on_return)
{
    for (int i = 0; i < 5; i++) {
        struct tree t = tree_of(
            "setsid sh -c 'echo; while :; do (sleep 0.02 &) ; done'", 7);
        struct stale_handler l = leftover_of(&t, 7);

        cr_assert_gt(stale_handlers_kill(nonce, &l, 1), 0);
        tree_reap(&t, "something of it");
    }
}

Test(leftover, mark_at_the_end_of_a_large_environment_is_found)
{
    static char large[100000];
    char mark[ENVIRONMENT_MARK];
    struct tree t;

    memset(large, 'x', sizeof large - 1);
    memcpy(large, "LARGE=", 6);
    environment_mark(nonce, 7, mark);
    setenv("LARGE", large + 6, 1);
    putenv(mark);
    t.pid = fork();
    if (t.pid == 0) {
        execlp("sleep", "sleep", "600", NULL);
        _exit(127);
    }
    unsetenv("MQW_DELIVERY");
    while (stale_handlers_kill(nonce, &(struct stale_handler){.mark = 7}, 1) ==
           0)
        cr_assert_eq(waitpid(t.pid, NULL, WNOHANG), 0);
    cr_assert(waitpid(t.pid, NULL, 0) == t.pid || errno == ECHILD);
}

/* Between the old memory and the new one, a process in execve(2) shows no
 * environment; and by then it has let go of the dead worker's lock. */
Test(leftover, process_in_the_middle_of_execve_is_found)
{
    char script[64], start[80], text[128];
    unsigned rounds;
    bool gone;
    int fd;

    strcpy(script, "/tmp/mqw-leftover-XXXXXX");
    fd = mkstemp(script);
    cr_assert(fd >= 0 && fchmod(fd, 0700) == 0);
    snprintf(text, sizeof text, "#!/bin/sh\n[ $1 ] || echo\nexec %s again\n",
             script);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    snprintf(start, sizeof start, "exec %s", script);
    rounds = sweep_share("searches during execve", 200);
    for (unsigned i = 0; i < rounds; i++) {
        struct tree t = tree_of(start, 7);

        stale_handlers_kill(nonce, &(struct stale_handler){.mark = 7}, 1);
        gone = is_gone(&t, LIMIT_MS);
        kill(-t.pid, SIGKILL); /* or it would run for ever */
        cr_assert(gone, "it was not found in round %u", i);
        tree_reap(&t, "a process in execve");
    }
    unlink(script);
}

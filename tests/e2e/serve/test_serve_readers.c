/* mqctl serve --group: people who look, and change nothing */
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tests/e2e/serve/serve_fixture.h"

TestSuite(serve_readers, .init = harness_init, .fini = harness_fini);

#define GROUP "daemon" /* on every Linux */

/* Run a program as a user who is in that group, or as one who is not. */
#define member(...)                                                          \
    harness_run("setpriv", "--reuid=65534", "--regid=65534",                 \
                "--groups=" GROUP, "--inh-caps=-all", "--ambient-caps=-all", \
                __VA_ARGS__)
#define stranger(...)                                                          \
    harness_run("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", \
                "--inh-caps=-all", "--ambient-caps=-all", __VA_ARGS__)

/* Let other users into the scratch directory, but not into the state directory.
 * Skip the test without root. */
static void needs_root(void)
{
    if (member("true").status != 0)
        cr_skip_test("becoming another user needs root, and setpriv");
    if (member("test", "-x", harness_bin("mqctl")).status != 0)
        cr_skip_test("nobody cannot run the programs where they are built");
    cr_assert_eq(chmod(harness_dir(), 0711), 0);
}

static struct web readers_start(const char *token)
{
    return web_ready(harness_program(
        "mqctl", "serve", "--state-dir", harness_state_dir(), "--listen",
        "127.0.0.1:0", "--group", GROUP, "--token-file", token));
}

Test(serve_readers, one_of_the_group_sees_all_and_changes_nothing)
{
    static const char *const looks[] = {"", "/messages", "/letters", "/groups",
                                        "/letters/1"};
    static const char *const orders[] = {"pause",           "drain",
                                         "letters/discard", "letters/replay",
                                         "messages/cancel", "groups/close"};
    const char *token, *q;
    struct harness_process *worker;
    struct harness_result r;
    struct web w;
    struct stat st;
    char path[4096];

    needs_root();
    q = dead_letters(1, &worker);
    token = harness_path("look.token");
    w = readers_start(token);
    cr_assert_eq(stat(token, &st), 0);
    cr_assert_eq(st.st_mode & 07777, 0640);
    cr_assert_eq(st.st_gid, getgrnam(GROUP)->gr_gid);

    r = member("cat", token);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_eq(strncmp(r.out, w.token, 64), 0, "not the page's token");
    cr_assert_neq(stranger("cat", token).status, 0);

    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++)
        (void)web_get(&w, "/api/v1/queues/%s%s", q + 1, looks[i]);
    cr_assert(strstr(web_get(&w, "/metrics"), "mqworker_up"));
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        snprintf(path, sizeof path, "/api/v1/queues/%s/%s", q + 1, orders[i]);
        cr_assert_eq(web_ask(&w, "POST", path, WEB_WRITE, "{}")->status, 403,
                     "%s", orders[i]);
    }
    snprintf(path, sizeof path, "/api/v1/queues/%s/settings", q + 1);
    cr_assert_eq(web_ask(&w, "PATCH", path, WEB_WRITE, "{}")->status, 403);

    snprintf(path, sizeof path, "%s%s/store.db", harness_state_dir(), q);
    cr_assert_neq(member("cat", path).status, 0, "the group reads the store");
    r = member(harness_bin("mqctl"), "pause", "--state-dir",
               harness_state_dir(), q);
    cr_assert_neq(r.status, 0, "%s", r.out);
    cr_assert(ctl_is(q, "state", "running"));
    cr_assert_eq(ctl_number(q, "dead"), 1);
    web_stop(&w);
    cr_assert_eq(harness_stop(worker, SOON_MS), 0);
}

Test(serve_readers, its_token_is_never_that_of_a_page_that_may_write)
{
    char remove[4200];
    struct harness_result r;
    const char *token;
    struct stat st;
    struct web w;

    needs_root();
    token = harness_path("look.token");
    w = readers_start(token);
    web_stop(&w);
    w = readers_start(token);
    web_stop(&w);
    r = ctl("serve", "--token-file", token, "--allow-write");
    cr_assert_eq(r.status, 73, "the group knows it: %d %s", r.status, r.err);
    r = ctl("serve", "--token-file", token, "--group", "0");
    cr_assert_eq(r.status, 73, "a token of another group: %s", r.err);
    r = ctl("serve", "--token-file", token, "--group", GROUP, "--allow-write");
    cr_assert_eq(r.status, 64);
    cr_assert(strstr(r.err, "leave out --allow-write"), "%s", r.err);

    token = harness_path("write.token");
    w = web_start("--allow-write", "--token-file", token);
    web_stop(&w);
    r = ctl("serve", "--token-file", token, "--group", GROUP);
    cr_assert_eq(r.status, 73, "%d %s", r.status, r.err);
    cr_assert(strstr(r.err, "was not made for that --group"), "%s", r.err);
    cr_assert(strstr(r.err, "it has mode 0600"), "what it is: %s", r.err);
    snprintf(remove, sizeof remove, "`rm %s` and start again", token);
    cr_assert(strstr(r.err, remove), "what to do: %s", r.err);
    cr_assert_eq(stat(token, &st), 0);
    cr_assert_eq(st.st_mode & 07777, 0600, "it was not opened to anybody");
    cr_assert_eq(unlink(token), 0);
    w = readers_start(token);
    web_stop(&w);
}

/* Start a server with --group that is killed when it makes that system call. */
static void killed_at(unsigned call, const char *token)
{
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog prog = {4, steps};
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
            prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) == 0)
            execl(harness_bin("mqctl"), "mqctl", "serve", "--state-dir",
                  harness_state_dir(), "--listen", "nonsense", "--group", GROUP,
                  "--token-file", token, NULL);
        _exit(1);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFSIGNALED(status), "call %u: %d", call, status);
}

/* List the token file and the files whose names begin like its name. */
static const char *beside(void)
{
    return harness_run("sh", "-c", "ls -d look.token*").out;
}

Test(serve_readers, a_start_that_is_killed_leaves_no_token_of_another_mode)
{
    static const unsigned calls[] = {SYS_fchown, SYS_fchmod, SYS_fsync};
    const char *token;
    struct web w;

    needs_root();
    token = harness_path("look.token");
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        killed_at(calls[i], token);
        cr_assert(!harness_exists("look.token"), "call %u", calls[i]);
        cr_assert_eq(strncmp(beside(), "look.token.new-", 15), 0, "%s",
                     beside());
    }
    w = readers_start(token);
    cr_assert_str_eq(beside(), "look.token\n",
                     "a killed server's file is left");
    web_stop(&w);
}

Test(serve_readers, a_copy_that_somebody_made_beside_the_token_stays)
{
    const char *token;
    struct web w;

    needs_root();
    token = harness_path("look.token");
    harness_write("look.token.backup", "x\n", 2);
    harness_write("look.token.new-XXXXXX", "x\n", 2);
    w = readers_start(token);
    cr_assert_str_eq(beside(), "look.token\nlook.token.backup\n");
    web_stop(&w);
}

Test(serve_readers, a_server_without_rights_gives_it_to_a_group_of_its_own)
{
    struct harness_result r;
    struct stat st;

    needs_root();
    cr_assert_eq(mkdir(harness_path("theirs"), 0755), 0);
    cr_assert_eq(chown(harness_path("theirs"), 65534, 65534), 0);
    r = stranger(harness_bin("mqctl"), "serve", "--state-dir",
                 harness_path("theirs/state"), "--group", GROUP, "--token-file",
                 harness_path("theirs/token"));
    cr_assert_eq(r.status, 73, "%d %s", r.status, r.err);
    cr_assert(strstr(r.err, "run as a member of the --group"), "%s", r.err);
    cr_assert(!harness_exists("theirs/token"), "a token is left");
    /* The server makes the token before it looks at the address, and fails
     * there. */
    r = member(harness_bin("mqctl"), "serve", "--state-dir",
               harness_path("theirs/state"), "--group", GROUP, "--token-file",
               harness_path("theirs/token"), "--listen", "nonsense");
    cr_assert_eq(r.status, 64, "%d %s", r.status, r.err);
    cr_assert_eq(stat(harness_path("theirs/token"), &st), 0);
    cr_assert_eq(st.st_mode & 07777, 0640);
    cr_assert_eq(st.st_gid, getgrnam(GROUP)->gr_gid);
}

Test(serve_readers, what_cannot_be_is_a_usage_error)
{
    struct harness_result r = ctl("serve", "--group", GROUP);

    cr_assert_eq(r.status, 64);
    cr_assert(strstr(r.err, "needs a --token-file"), "%s", r.err);
    r = ctl("serve", "--group", "no-such-group", "--token-file",
            harness_path("t"));
    cr_assert_eq(r.status, 64);
    cr_assert(strstr(r.err, "no group \"no-such-group\""), "%s", r.err);
    cr_assert(!harness_exists("t"));
}

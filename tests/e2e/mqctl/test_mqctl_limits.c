/* test_mqctl_limits.c - mqctl doctor and mqctl explain ERROR: what they say of
 * the kernel's limits is what the kernel then does
 *
 * Each test is in an IPC namespace of its own, as a user without other queues,
 * because the kernel counts the queues of a user across all namespaces. */
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/e2e/tools/mqctl_fixture.h"

static pid_t holder; /* a process that queues_hold started; 0: none */

static void end(void)
{
    if (holder > 0) {
        kill(holder, SIGKILL);
        waitpid(holder, NULL, 0);
    }
    holder = 0;
}

static void fini(void)
{
    end();
    harness_fini();
}

TestSuite(mqctl_limits, .init = harness_init, .fini = fini);

#define SHARE 819200 /* bytes, the kernel's default of RLIMIT_MSGQUEUE */

static uid_t user; /* of this test, without queues */

/* Enter new IPC and mount namespaces, and mount the new queues on
 * /dev/mqueue. */
static void namespace_enter(void)
{
    char flag[32];

    if (geteuid() != 0 || unshare(CLONE_NEWIPC | CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        cr_skip_test("no permission for a name space");
    (void)mount("none", "/dev/mqueue", "mqueue", 0, NULL);
    user = 100000 + (uid_t)getpid();
    snprintf(flag, sizeof flag, "--reuid=%u", (unsigned)user);
    if (harness_run("setpriv", flag, "true").status != 0)
        cr_skip_test("the user namespace lacks a user %u", (unsigned)user);
    cr_assert_eq(chmod(harness_dir(), 0755), 0);
}

/* Run one of our programs as that user, with a limit of RLIMIT_MSGQUEUE. */
static struct harness_result as_user(uid_t uid, long limit,
                                     const char *const *words)
{
    char bytes[48], id[2][32];
    const char *argv[24] = {"prlimit",        bytes, "setpriv", id[0],
                            "--clear-groups", id[1]};
    struct harness_result r;
    size_t n = 6;

    snprintf(bytes, sizeof bytes, "--msgqueue=%ld", limit);
    snprintf(id[0], sizeof id[0], "--reuid=%u", (unsigned)uid);
    snprintf(id[1], sizeof id[1], "--regid=%u", (unsigned)uid);
    argv[n++] = harness_bin(words[0]);
    while (*++words)
        argv[n++] = *words;
    r = harness_run_spec(&(struct harness_spec){.argv = argv});
    if (r.status == 126 || r.status == 127)
        cr_skip_test("the programs are where no ordinary user can run them");
    return r;
}
#define AS_USER(limit, ...) as_user(user, limit, HARNESS_LIST(__VA_ARGS__))

/* Return errno of mq_open for a new queue of that user; 0: it fits. */
static int kernel_says(uid_t uid, long limit, long depth, long size)
{
    struct mq_attr attr = {.mq_maxmsg = depth, .mq_msgsize = size};
    struct rlimit r = {(rlim_t)limit, (rlim_t)limit};
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        if (setrlimit(RLIMIT_MSGQUEUE, &r) < 0 || setresuid(uid, uid, uid) < 0)
            _exit(255);
        if (mq_open("/proof", O_CREAT | O_EXCL | O_RDWR, 0600, &attr) < 0)
            _exit(errno);
        mq_unlink("/proof");
        _exit(0);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) != 255);
    return WEXITSTATUS(status);
}

/* What doctor prints for each errno of mq_open, and the error's name for
 * explain. */
static const struct answer {
    int err;
    const char *name, *doctor;
} answers[] = {
    {0, NULL, " fits: one was created and removed"},
    {EMFILE, "EMFILE", " fails with EMFILE"},
    {EINVAL, "EINVAL", " is over fs.mqueue."},
    {ENOSPC, "ENOSPC", " sysctl fs.mqueue.queues_max=1024,"},
};
#define ANSWERS (sizeof answers / sizeof answers[0])

/* Check that the kernel, doctor and explain agree about a queue of that size;
 * return doctor's output. */
static const char *agree(int err, long limit, long depth, long size)
{
    char sizes[2][40];
    struct harness_result doctor, explain;

    snprintf(sizes[0], sizeof sizes[0], "--queue-depth=%ld", depth);
    snprintf(sizes[1], sizeof sizes[1], "--message-size=%ld", size);
    doctor = AS_USER(limit, "mqctl", "doctor", "--state-dir",
                     harness_state_dir(), sizes[0], sizes[1]);
    cr_assert_eq(kernel_says(user, limit, depth, size), err, "%ld x %ld", depth,
                 size);
    cr_assert_eq(doctor.status, err != 0, "%s%s", doctor.out, doctor.err);
    for (size_t i = 0; i < ANSWERS; i++) {
        const struct answer *a = &answers[i];

        cr_assert_eq(strstr(doctor.out, a->doctor) != NULL, a->err == err,
                     "%d: \"%s\": %s", err, a->doctor, doctor.out);
        if (!a->name)
            continue;
        explain = AS_USER(limit, "mqctl", "explain", "--state-dir",
                          harness_state_dir(), sizes[0], sizes[1], a->name);
        cr_assert_eq(explain.status, 0, "%s", explain.err);
        cr_assert_eq(strstr(explain.out, "warn  mq_open: ") ||
                         strstr(explain.out, "bad   mq_open: "),
                     a->err == err, "%d: %s: %s", err, a->name, explain.out);
    }
    return doctor.out;
}

static void says(const char *text, const char *part)
{
    cr_assert_not_null(strstr(text, part), "no \"%s\" in: %s", part, text);
}

enum hold { HOLD_OPEN, HOLD_REMOVED, HOLD_CLOSED };

/* Start a process of that user, which makes queues of 10 x 8192 bytes in this
 * IPC namespace, or in a new one (`away`), and keeps them open. HOLD_REMOVED:
 * it removes their names; HOLD_CLOSED: it closes them and keeps only the
 * namespace. Return its pid. */
static pid_t queues_hold(int count, bool away, enum hold how)
{
    int ready[2];
    char byte = 0, name[32];
    mqd_t q;

    cr_assert_eq(pipe(ready), 0);
    holder = fork();
    if (holder == 0) {
        if ((away && unshare(CLONE_NEWIPC) < 0) ||
            setresgid(user, user, user) < 0 ||
            setresuid(user, user, user) < 0 ||
            prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 ||
            prctl(PR_SET_DUMPABLE, 1) < 0) /* its descriptors can be seen */
            _exit(1);
        for (int i = 0; i < count; i++) {
            snprintf(name, sizeof name, "/held-%d", i);
            q = mq_open(name, O_CREAT | O_EXCL | O_RDWR, 0600, NULL);
            if (q < 0)
                _exit(1);
            if (how == HOLD_REMOVED)
                mq_unlink(name);
            if (how == HOLD_CLOSED)
                mq_close(q);
        }
        if (write(ready[1], &byte, 1) == 1)
            for (;;)
                pause();
        _exit(1);
    }
    close(ready[1]);
    cr_assert_eq(read(ready[0], &byte, 1), 1, "it made no queues");
    close(ready[0]);
    return holder;
}

/* Set a sysctl of this namespace. */
static void limit_set(const char *name, int value)
{
    int fd = open(harness_path("/proc/sys/fs/mqueue/%s", name),
                  O_WRONLY | O_CLOEXEC);

    cr_assert_geq(fd, 0, "%s", name);
    cr_assert_gt(dprintf(fd, "%d\n", value), 0);
    close(fd);
}

/* Create a queue as a user, with a mode. */
static void queue_make(const char *name, uid_t uid, mode_t mode)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        umask(0);
        _exit(setresuid(uid, uid, uid) < 0 ||
              mq_open(name, O_CREAT | O_EXCL | O_RDWR, mode, NULL) < 0);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert_eq(status, 0, "%s", name);
}

Test(mqctl_limits, queues_of_another_ipc_namespace_are_counted_by_trial)
{
    char text[160];
    pid_t pid;

    namespace_enter();
    (void)agree(0, SHARE, 10, 8192);
    pid = queues_hold(9, true, HOLD_OPEN);
    says(agree(EMFILE, SHARE, 10, 8192), " is charged 745920 of 819200 bytes");
    (void)agree(0, SHARE, 10, 7232); /* the 73280 bytes that are left */
    (void)agree(EMFILE, SHARE, 10, 7233);
    snprintf(text, sizeof text,
             "745920 for 9 queues of other IPC namespaces (open in pid %d)",
             (int)pid);
    says(agree(0, SHARE, 1, 1), text);
    end(); /* the kernel removes a namespace a little later */
    harness_until(kernel_says(user, SHARE, 10, 8192) == 0, SOON_MS);
    (void)queues_hold(9, true, HOLD_CLOSED);
    says(agree(EMFILE, SHARE, 10, 8192),
         "745920 for queues that cannot be seen from here, of other IPC "
         "namespaces");
    end();
    harness_until(kernel_says(user, SHARE, 10, 8192) == 0, SOON_MS);
    (void)agree(0, SHARE, 10, 8192);
}

Test(mqctl_limits, a_removed_queue_counts_while_a_process_has_it_open)
{
    char text[160];
    pid_t pid;

    namespace_enter();
    pid = queues_hold(9, false, HOLD_REMOVED);
    snprintf(text, sizeof text, "745920 for 9 removed queues (open in pid %d)",
             (int)pid);
    says(agree(EMFILE, SHARE, 10, 8192), text);
    snprintf(text, sizeof text, "pid %d still has a removed one open",
             (int)pid);
    says(agree(EMFILE, SHARE, 10, 8192), text);
    end();
    (void)agree(0, SHARE, 10, 8192);
}

/* The shell has the kernel's default limit, the worker has a lower one. */
Test(mqctl_limits, the_limit_of_a_worker_is_proved_beside_that_of_the_shell)
{
    struct harness_process *w;
    struct harness_result r;
    char text[160];

    namespace_enter();
    const char *q = harness_queue(1, 64);
    w = ctl_ready(harness_program("prlimit", "--msgqueue=82879",
                                  harness_bin("mqworker"), "--state-dir",
                                  harness_state_dir(), q, "--", "true"));
    cr_assert_eq(kernel_says(0, 82879, 10, 8192), EMFILE);
    r = ctl("doctor", q);
    snprintf(text, sizeof text, " of 82879 bytes that worker %d of %s may have",
             (int)harness_pid(w), q);
    says(r.out, text);
    says(r.out, " = 82880 and fails with EMFILE");
    says(r.out, " in its unit (systemctl edit mqworker@");
    r = ctl("explain", "EMFILE");
    says(r.out, "warn  mq_open: ");
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* The test's own systemctl tells the limits of the unit. */
Test(mqctl_limits, the_limit_of_a_unit_is_proved_before_its_worker_starts)
{
    static const char script[] =
        "mount -t tmpfs none /run && mount -t tmpfs none /etc && "
        "mkdir -p /etc/mqworker /run/systemd/system && "
        "echo root:x:0:0::/:/bin/sh >/etc/passwd && "
        "echo q:x:$2:$2::/:/bin/sh >>/etc/passwd && "
        ": >/etc/mqworker/orders.conf && PATH=$1:${4%/*}:$PATH && "
        "mqctl create --mode 0666 /orders && "
        "mqctl doctor --state-dir \"$3\" /orders";
    struct harness_result r;
    char uid[32], text[160];

    namespace_enter();
    harness_script("systemctl", "[ \"$8\" = mqworker@orders ] || exit 1\n"
                                "echo User=q\necho LimitMSGQUEUE=500000\n"
                                "echo LimitMSGQUEUESoft=82879\n");
    snprintf(uid, sizeof uid, "%u", (unsigned)user);
    r = harness_run("sh", "-c", script, "sh", harness_dir(), uid,
                    harness_state_dir(), harness_bin("mqctl"));
    cr_assert_eq(kernel_says(user, 82879, 10, 8192), EMFILE);
    cr_assert_eq(r.status, 1, "%d: %s%s", r.status, r.out, r.err);
    snprintf(text, sizeof text,
             "q is charged 0 of 82879 bytes that mqworker@orders may have "
             "(hard limit 500000)");
    says(r.out, text);
    says(r.out, "systemctl edit mqworker@orders");
}

Test(mqctl_limits, lowered_sysctls_are_what_counts)
{
    namespace_enter();
    limit_set("msg_max", 5);
    says(agree(EINVAL, SHARE, 6, 64), "fs.mqueue.msg_max = 5");
    (void)agree(0, SHARE, 5, 64);
    limit_set("msgsize_max", 128);
    says(agree(EINVAL, SHARE, 5, 129), "fs.mqueue.msgsize_max = 128");
    (void)agree(0, SHARE, 5, 128);
}

/* 300 x 16 is 4800, but the kernel adds 96 for each message. */
Test(mqctl_limits, the_overhead_of_small_messages_is_counted)
{
    namespace_enter();
    limit_set("msg_max", 500);
    says(agree(EMFILE, 5000, 300, 16), " 300 x 16 + 96 x 300 = 33600 ");
    (void)agree(EMFILE, 33599, 300, 16);
    (void)agree(0, 33600, 300, 16);
    (void)agree(EMFILE, 33600, 500, 16);
    (void)agree(0, 56000, 500, 16);
    limit_set("msg_max", 299);
    (void)agree(EINVAL, SHARE, 300, 16);
}

/* A queue also counts in the outer user namespaces, with the limits of the
 * processes that made these namespaces. */
Test(mqctl_limits, the_limit_of_an_outer_user_namespace_is_named)
{
    static const char script[] =
        "prlimit --msgqueue=50000:819200 setpriv --reuid=$1 --regid=$1 "
        "--clear-groups unshare -Uri sh -c '"
        "prlimit --msgqueue=819200:819200 $1 doctor --state-dir \"$2\"; "
        "prlimit --msgqueue=819200:819200 $1 create /q' sh \"$2\" \"$3\" 2>&1";
    struct harness_result r;
    char id[32];

    namespace_enter();
    snprintf(id, sizeof id, "%u", (unsigned)user);
    r = harness_run("sh", "-c", script, "sh", id, harness_bin("mqctl"),
                    harness_state_dir());
    if (!strstr(r.out, "charged"))
        cr_skip_test("no permission for a user namespace: %s", r.out);
    cr_assert_eq(r.status, 71, "%d: %s", r.status, r.out);
    says(r.out, "is charged 0 of 819200 bytes");
    says(r.out, "fails with EMFILE: queues that cannot be seen, or the account "
                "of an outer user namespace");
}

/* mq_open opens an existing queue even if the given sizes differ. */
Test(mqctl_limits, an_existing_queue_of_other_sizes_is_reported)
{
    struct mq_attr attr = {.mq_maxmsg = 5, .mq_msgsize = 16};
    struct harness_result r;
    mqd_t q;

    namespace_enter();
    q = mq_open("/q", O_CREAT | O_RDWR, 0600, &attr);
    cr_assert_geq(q, 0);
    attr.mq_maxmsg = 3;
    cr_assert_geq(mq_open("/q", O_CREAT | O_RDWR, 0600, &attr), 0);
    r = ctl("doctor", "--queue-depth=3", "--message-size=16", "q");
    cr_assert_eq(r.status, 1, "%s", r.out);
    says(r.out, "mq_open takes it as it is: queue depth is 5, not 3");
    r = ctl("doctor", "--queue-depth=5", "--message-size=16", "q");
    cr_assert_null(strstr(r.out, "as it is"), "%s", r.out);
    says(r.out, " for 1 queue here");
}

/* A container does not inherit the limits of its machine. */
Test(mqctl_limits, a_new_namespace_starts_with_the_defaults_of_the_kernel)
{
    namespace_enter();
    limit_set("msg_max", 100);
    (void)agree(0, SHARE, 100, 64);
    cr_assert_eq(unshare(CLONE_NEWIPC), 0);
    says(agree(EINVAL, SHARE, 100, 64), "fs.mqueue.msg_max = 10");
    (void)agree(0, SHARE, 10, 8192);
    says(agree(EINVAL, SHARE, 10, 8193), "fs.mqueue.msgsize_max = 8192");
}

Test(mqctl_limits, the_number_of_queues_is_proved)
{
    namespace_enter();
    limit_set("queues_max", 2);
    queue_make("/a", user, 0600);
    (void)agree(0, SHARE, 1, 1);
    says(ctl("doctor", "/a").out, "1 of 2 queues");
    queue_make("/b", user + 1, 0600);
    (void)agree(ENOSPC, SHARE, 1, 1);
    says(ctl("doctor", "/a").out, "2 of 2 queues");
    mq_unlink("/a");
    (void)agree(0, SHARE, 1, 1);
}

/* Folders of the state directory are no queues, and the kernel counts a removed
 * queue until its last descriptor is closed. */
Test(mqctl_limits, the_number_of_queues_is_that_of_the_kernel)
{
    struct harness_result r;
    char text[96];
    pid_t pid;

    namespace_enter();
    if (access("/dev/mqueue", F_OK) < 0)
        cr_skip_test("no folder /dev/mqueue to mount on");
    limit_set("queues_max", 4);
    harness_run("mkdir", "-p", harness_path("%s/a", harness_state_dir()),
                harness_path("%s/b", harness_state_dir()),
                harness_path("%s/c", harness_state_dir()),
                harness_path("%s/d", harness_state_dir()));
    cr_assert_eq(chmod(harness_state_dir(), 0755), 0);
    r = AS_USER(SHARE, "mqctl", "doctor", "--state-dir", harness_state_dir());
    says(r.out, " 0 of 4 queues in this IPC namespace");
    harness_run("rm", "-r", harness_state_dir());
    pid = queues_hold(3, false, HOLD_REMOVED);
    says(agree(0, SHARE, 1, 1), " 3 of 4 queues in this IPC namespace");
    queue_make("/q", user + 1, 0600);
    snprintf(text, sizeof text,
             "1 existing and 3 removed but still open, in pid %d", (int)pid);
    says(agree(ENOSPC, SHARE, 1, 1), text);
    snprintf(text, sizeof text, "-> restart pid %d, or sysctl fs.mqueue.",
             (int)pid);
    says(ctl("doctor", NULL).out, text);
    end();
    (void)agree(0, SHARE, 1, 1);
}

/* An error that comes before RLIMIT_MSGQUEUE proves nothing about it. */
Test(mqctl_limits, a_queue_that_fails_for_another_reason_is_not_said_to_be_fine)
{
    static const char *const sizes[] = {"--queue-depth=300",
                                        "--message-size=16"};
    struct harness_result r;

    namespace_enter();
    limit_set("msg_max", 299);
    r = AS_USER(SHARE, "mqctl", "explain", sizes[0], sizes[1], "EMFILE");
    says(r.out, "note  mq_open: ");
    says(r.out, "costs 300 x 16 + 96 x 300 = 33600 and fails with EINVAL ");
    says(r.out, "-> mqctl explain --queue-depth 300 --message-size 16 EINVAL");
    limit_set("msg_max", 300);
    limit_set("queues_max", 0);
    r = AS_USER(SHARE, "mqctl", "explain", sizes[0], sizes[1], "EMFILE");
    says(r.out, " and fails with ENOSPC ");
    says(r.out, "-> mqctl explain --queue-depth 300 --message-size 16 ENOSPC");
}

Test(mqctl_limits, a_queue_of_another_user_names_its_owner_and_his_share)
{
    struct harness_result r;
    char text[160];

    namespace_enter();
    queue_make("/his", user + 1, 0600);
    r = AS_USER(SHARE, "mqctl", "explain", "/his", "EACCES");
    says(r.out, "bad   mq_open: the mode bits deny it");
    /* Only a mounted /dev/mqueue shows the owner. */
    if (harness_exists("/dev/mqueue/his"))
        snprintf(text, sizeof text, "belongs to uid %u", (unsigned)user + 1);
    else
        snprintf(text, sizeof text,
                 "to see who that is, mount /dev/mqueue as root");
    says(r.out, text);
    r = AS_USER(SHARE, "mqsend", "/his", "x");
    cr_assert_eq(r.status, 77, "%d: %s", r.status, r.err);
    says(r.err, text);
    says(agree(0, SHARE, 10, 8192), " is charged 0 of 819200 bytes");
    r = ctl("doctor", "/his");
    snprintf(text, sizeof text,
             "uid %u is charged 82880 of 819200 bytes that this process may "
             "have",
             (unsigned)user + 1);
    says(r.out, text);
}

Test(mqctl_limits, the_mode_bits_are_checked_as_the_kernel_does)
{
    static const struct {
        mode_t mode;
        bool owner, denied;
    } all[] = {{0600, true, false},  {0400, true, true},  {0200, true, true},
               {0666, false, false}, {0644, false, true}, {0066, true, true}};
    struct harness_result r;
    char name[16];

    namespace_enter();
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        snprintf(name, sizeof name, "/m%zu", i);
        queue_make(name, user + !all[i].owner, all[i].mode);
        r = AS_USER(SHARE, "mqctl", "explain", name, "EACCES");
        cr_assert_eq(strstr(r.out, "bad   mq_open: the mode bits deny it. "
                                   "Here: queue /m") != NULL,
                     all[i].denied, "%04o: %s", all[i].mode, r.out);
        cr_assert_eq(strstr(r.out, "ok    mq_open: this process may") != NULL,
                     !all[i].denied, "%04o: %s", all[i].mode, r.out);
    }
}

/* Explain the other errors, each for a queue that shows its cause or its
 * absence. */
Test(mqctl_limits, errors_of_one_queue_are_explained_with_its_numbers)
{
    struct sigevent notice = {.sigev_notify = SIGEV_NONE};
    struct harness_result r;
    const char *out;
    char text[64], body[8192];
    mqd_t q;

    namespace_enter();
    q = mq_open("/q", O_CREAT | O_RDWR, 0600, NULL);
    cr_assert_geq(q, 0);
    cr_assert_eq(mq_send(q, "x", 1, 0), 0);
    says(ctl_out("explain", "/q", "EMSGSIZE"), "at most 8192 bytes");
    says(ctl_out("explain", "/q", "EMSGSIZE"), "-> send at most that, or see");
    cr_assert_eq(mq_receive(q, body, sizeof body, NULL), 1);
    says(ctl_out("explain", "q", "EEXIST"), "with 10 x 8192 bytes");
    says(ctl_out("explain", "/no", "ENOENT"), "queue /no does not exist");
    says(ctl_out("explain", "/q", "EBUSY"), "ok    mq_notify: no process is");
    cr_assert_eq(mq_notify(q, &notice), 0);
    snprintf(text, sizeof text, "pid %d is registered", (int)getpid());
    says(ctl_out("explain", "/q", "EBUSY"), text);
    says(ctl_out("explain", "ENOSYS"), "ok    mq_open: this kernel has POSIX");
    says(ctl_out("explain", "/q", "ENOENT"), "ok    mq_open: /q exists now");
    says(ctl_out("explain", "EINVAL"), "mq_timedreceive: tv_nsec of the dead");
    says(ctl_out("explain", "/q", "EACCES"), "ok    mq_unlink: /q belongs to");
    says(ctl_out("explain", "/q", "EPERM"), "ok    unlink: /q belongs to");
    queue_make("/own", user, 0600);
    r = AS_USER(SHARE, "mqctl", "explain", "/own", "EACCES");
    says(r.out, "ok    mq_unlink: /own belongs to ");
    queue_make("/his", user + 1, 0666);
    r = AS_USER(SHARE, "mqctl", "explain", "/his", "EACCES");
    says(r.out, "bad   mq_unlink: only the owner and root may");
    /* A cause that does not apply is not printed as a fact, and needs no
     * fix. */
    out = ctl_out("explain", "EINVAL");
    says(out, "ok    mq_open: fs.mqueue.msg_max is 10 ");
    cr_assert_null(strstr(out, " is over msg_max"), "%s", out);
    cr_assert_null(strstr(out, "->"), "%s", out);
    says(ctl_out("explain", "--json", "EBADF"),
         "\"check\":\"mq_send, mq_receive\",\"level\":\"note\"");
    r = ctl("explain", "ENOTHING");
    cr_assert_eq(r.status, 64);
    says(r.err, "or an error: EMFILE, ENFILE, EINVAL, ");
    mq_close(q);
}

/* Advice for one direction would be wrong for the other. */
Test(mqctl_limits, a_queue_without_room_or_messages_is_explained_by_call)
{
    static const char *const errors[] = {"eagain", "ETIMEDOUT"};
    static const struct {
        long length;
        const char *says[2][2]; /* of each error, to a sender and a receiver */
    } all[] = {
        {0,
         {{"call mq_send again: it is not full", "wait with poll(2), or call"},
          {"call mq_timedsend again: it is not full",
           "call it again to wait longer"}}},
        {1,
         {{"call mq_send again: ", "call mq_receive again: it is not empty"},
          {"call mq_timedsend again: ",
           "call mq_timedreceive again: it is not empty"}}},
        {2,
         {{"says why it is full; without O_NONBLOCK, mq_send waits",
           "call mq_receive again: "},
          {"says why it is full; a later deadline",
           "call mq_timedreceive again: "}}},
    };
    struct mq_attr attr = {.mq_maxmsg = 2, .mq_msgsize = 16};
    mqd_t q;

    namespace_enter();
    q = mq_open("/q", O_CREAT | O_RDWR, 0600, &attr);
    cr_assert_geq(q, 0);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        for (size_t k = 0; k < 2; k++) {
            const char *out = ctl_out("explain", "/q", errors[k]), *receive;
            char length[40];

            snprintf(length, sizeof length, "it has %ld of 2 messages now",
                     all[i].length);
            says(out, length);
            says(out, all[i].says[k][0]);
            receive = strstr(out, k ? "mq_timedreceive: " : "mq_receive: ");
            cr_assert_not_null(receive, "%s", out);
            says(receive, all[i].says[k][1]);
            cr_assert_null(strstr(receive, "mq_send"), "%s", out);
        }
        cr_assert(i == 2 || mq_send(q, "x", 1, 0) == 0);
    }
    mq_close(q);
}

/* Old container profiles filter system calls like this, with EPERM or
 * ENOSYS. */
Test(mqctl_limits, a_filter_that_denies_mq_open_is_named_by_every_program)
{
    static const struct {
        int err;
        const char *name, *says;
    } all[] = {{ENOSYS, "ENOSYS", "but a filter of system calls (seccomp)"},
               {EPERM, "EPERM", "this process has a seccomp filter"}};
    const char *denied = harness_handler("denied"), *dir = harness_state_dir();
    struct harness_result r[5];
    char rule[32];

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const char *q = harness_queue_name();

        snprintf(rule, sizeof rule, "mq_open=%d", all[i].err);
        r[0] = harness_run(denied, rule, harness_bin("mqworker"), "--state-dir",
                           dir, q, "--", "true");
        if (r[0].status == 77 && strstr(r[0].err, "denied: no filter"))
            cr_skip_test("no filter of system calls here: %s", r[0].err);
        r[1] = harness_run(denied, rule, harness_bin("mqsend"), q, "x");
        r[2] = harness_run(denied, rule, harness_bin("mqctl"), "create", q);
        r[3] = harness_run(denied, rule, harness_bin("mqctl"), "doctor",
                           "--state-dir", dir);
        r[4] = harness_run(denied, rule, harness_bin("mqctl"), "explain",
                           all[i].name);
        for (size_t k = 0; k < 5; k++) {
            cr_expect_eq(r[k].status,
                         k == 4   ? 0
                         : k == 3 ? 1
                                  : (all[i].err == EPERM ? 77 : 71),
                         "%zu: %d: %s%s", k, r[k].status, r[k].out, r[k].err);
            says(k < 3 ? r[k].err : r[k].out, all[i].says);
        }
        says(r[3].out, "bad   limits: ");
        says(r[4].out, "bad   mq_open: ");
    }
}

/* One queue is left and named, not one for each limit that was tried. */
Test(mqctl_limits, a_filter_that_denies_mq_unlink_leaves_one_queue_that_is_told)
{
    const char *denied = harness_handler("denied"), *at;
    struct harness_result r;
    char rule[32], left[64];

    namespace_enter();
    snprintf(rule, sizeof rule, "mq_unlink=%d", EPERM);
    for (size_t i = 0; i < 2; i++) {
        r = i ? harness_run(denied, rule, harness_bin("mqctl"), "explain",
                            "EACCES")
              : harness_run(denied, rule, harness_bin("mqctl"), "doctor",
                            "--state-dir", harness_state_dir());
        if (r.status == 77)
            cr_skip_test("no filter of system calls here: %s", r.err);
        cr_assert_null(strstr(r.out, "created and removed"), "%s", r.out);
        says(r.out, "bad   limits: the queue /mqworker-probe-");
        at = strstr(r.out, "-> mqctl remove --force /mqworker-probe-");
        cr_assert_not_null(at, "%s", r.out);
        at = strchr(at, '/');
        snprintf(left, sizeof left, "%.*s", (int)strcspn(at, "\n"), at);
        r = ctl("queues", NULL);
        at = strstr(r.out, "/mqworker-probe-");
        cr_assert(at && strncmp(at, left, strlen(left)) == 0 &&
                      !strstr(at + 1, "/mqworker-probe-"),
                  "%s and %s", left, r.out);
        r = ctl("remove", "--force", left);
        cr_assert_eq(r.status, 0, "%s", r.err);
    }
}

/* Without CONFIG_POSIX_MQUEUE, /proc/filesystems has no mqueue. */
Test(mqctl_limits, a_kernel_without_message_queues_is_named)
{
    static const char systems[] = "nodev\tproc\n\text4\n";
    static const char *const programs[] = {"mqworker", "mqsend", "mqctl"};
    const char *denied = harness_handler("denied"), *dir = harness_state_dir();
    struct harness_result r;
    char rule[32];

    namespace_enter();
    harness_write("filesystems", systems, sizeof systems - 1);
    cr_assert_eq(mount(harness_path("filesystems"), "/proc/filesystems", NULL,
                       MS_BIND, NULL),
                 0);
    snprintf(rule, sizeof rule, "mq_open=%d", ENOSYS);
    for (size_t i = 0; i < 3; i++) {
        r = i == 0 ? harness_run(denied, rule, harness_bin(programs[i]),
                                 "--state-dir", dir, "/q", "--", "true")
            : i == 1
                ? harness_run(denied, rule, harness_bin(programs[i]), "/q", "x")
                : harness_run(denied, rule, harness_bin(programs[i]), "doctor",
                              "--state-dir", dir);
        if (r.status == 77)
            cr_skip_test("no filter of system calls here: %s", r.err);
        says(i == 2 ? r.out : r.err, "CONFIG_POSIX_MQUEUE=y");
    }
}

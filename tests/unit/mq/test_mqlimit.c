/* test_mqlimit.c - limits explained from given numbers; the cost of a queue
 *
 * test_queue.c hits the same limits for real.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <grp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/mq/mqlimit.h"
#include "common/mq/queue.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

/* Check that all of these texts are in the problem, on one line. */
static void says(const struct problem *p, const char *const *texts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        cr_assert(strstr(p->text, texts[i]) != NULL, "no \"%s\" in: %s",
                  texts[i], p->text);
    cr_assert(strchr(p->text, '\n') == NULL, "%s", p->text);
    cr_assert(strlen(p->text) < sizeof p->text - 1, "cut: %s", p->text);
}
#define SAYS(p, ...)                            \
    says(p, (const char *const[]){__VA_ARGS__}, \
         COUNT(((const char *const[]){__VA_ARGS__})))

static const struct mqlimit usual = {.depth_max = 10,
                                     .depth_default = 10,
                                     .message_size_max = 8192,
                                     .message_size_default = 8192,
                                     .queues_max = 256,
                                     .bytes = 819200,
                                     .descriptors = 1024};

Test(mqlimit, the_cost_is_what_the_kernel_charges)
{
    cr_assert(mqlimit_cost(10, 8192) == 82880);
    cr_assert(mqlimit_cost(90, 8192) == 745920);
    cr_assert(mqlimit_cost(32768, 1) == UINT64_C(32768) * 97);
    cr_assert(mqlimit_cost(65536, 16) == 65536 * 64 + 48 * 32768);
    cr_assert(mqlimit_cost(UINT64_MAX, 2) == UINT64_MAX);
    cr_assert(mqlimit_cost(2, UINT64_MAX) == UINT64_MAX);
}

Test(mqlimit, the_cost_is_exact_to_the_byte_on_this_kernel)
{
    char own[64];
    struct queue *q;
    const struct queue_attr attr = {.depth = 3, .message_size = 33};
    snprintf(own, sizeof own, "/mqw-test-cost-%d", (int)getpid());
    if (geteuid() != 0 || setresuid(61234, 61234, 61234) != 0)
        cr_skip("needs a user without other queues");
    struct rlimit r = {mqlimit_cost(3, 33) - 1, mqlimit_cost(3, 33)};
    cr_assert(setrlimit(RLIMIT_MSGQUEUE, &r) == 0);
    cr_assert(queue_open(&q, own, QUEUE_SEND | QUEUE_CREATE, &attr, NULL,
                         NULL) == -EMFILE);
    r.rlim_cur = r.rlim_max;
    cr_assert(setrlimit(RLIMIT_MSGQUEUE, &r) == 0);
    cr_assert(
        queue_open(&q, own, QUEUE_SEND | QUEUE_CREATE, &attr, NULL, NULL) == 0);
    queue_unlink(own);
    queue_close(&q);
}

Test(mqlimit, defaults_are_capped_by_the_maximum)
{
    struct mqlimit limit = usual;
    uint64_t depth = 0, size = 0;
    limit.depth_max = 5;
    limit.message_size_max = 100;
    mqlimit_fill(&limit, &depth, &size);
    cr_assert(depth == 5 && size == 100);
    depth = 7;
    mqlimit_fill(&limit, &depth, &size);
    cr_assert(depth == 7 && size == 100);
}

static struct problem explain(int err, uint64_t depth, uint64_t size, bool gone)
{
    struct problem p = {0};
    const struct mqlimit_request r = {"/orders", depth, size, gone};
    cr_assert(mqlimit_explain(&usual, &r, err, &p) == -err);
    cr_assert(p.status == EX_OSERR);
    return p;
}

/* A user is allowed what the bits of one class allow, and root everything. */
Test(mqlimit, mode_bits_are_read_as_by_the_kernel)
{
    if (geteuid() != 0)
        cr_skip("becoming another user needs root");
    cr_assert(mqlimit_allows(1, 1, 0, 6));
    cr_assert_not(mqlimit_allows(65534, 1, 0, 6));
    cr_assert(setgroups(1, &(gid_t){61233}) == 0 &&
              setresgid(61235, 61235, 61235) == 0 &&
              setresuid(61234, 61234, 61234) == 0);
    cr_assert(mqlimit_allows(61234, 1, 0600, 6));
    cr_assert_not(mqlimit_allows(61234, 61235, 0066, 4));
    cr_assert(mqlimit_allows(1, 61235, 0040, 4));
    cr_assert(mqlimit_allows(1, 61233, 0060, 6));
    cr_assert_not(mqlimit_allows(1, 61233, 0646, 6));
    cr_assert(mqlimit_allows(1, 1, 0002, 2));
    cr_assert_not(mqlimit_allows(1, 1, 0664, 2));
}

Test(mqlimit, the_charge_of_a_user_is_exact_to_the_byte)
{
    char left[QUEUE_PROBE];
    const struct queue_attr attr = {.depth = 3, .message_size = 33};
    struct rlimit before, after;
    struct queue *q;
    char own[64];

    snprintf(own, sizeof own, "/mqw-test-charge-%d", (int)getpid());
    if (geteuid() != 0 || setresuid(61235, 61235, 61235) != 0)
        cr_skip("needs a user without other queues");
    cr_assert(getrlimit(RLIMIT_MSGQUEUE, &before) == 0);
    cr_assert(queue_charged(left) == 0);
    cr_assert(
        queue_open(&q, own, QUEUE_SEND | QUEUE_CREATE, &attr, NULL, NULL) == 0);
    queue_unlink(own);
    cr_assert(queue_charged(left) == mqlimit_cost(3, 33));
    queue_close(&q);
    cr_assert(queue_charged(left) == 0);
    cr_assert(getrlimit(RLIMIT_MSGQUEUE, &after) == 0);
    cr_assert(before.rlim_cur == after.rlim_cur);
    after.rlim_cur = after.rlim_max = 96; /* not even 1 x 1 byte */
    cr_assert(setrlimit(RLIMIT_MSGQUEUE, &after) == 0);
    cr_assert(queue_charged(left) == UINT64_MAX);
}

/* A file with a label of AppArmor or SELinux is mounted in place of theirs. */
Test(mqlimit, the_label_of_a_security_module_is_named)
{
    static const char label[] = "docker-default (enforce)\n";
    char name[] = "/tmp/mqw-label-XXXXXX", guard[MQLIMIT_GUARD];
    int fd = mkstemp(name);

    cr_assert(fd >= 0);
    cr_assert(write(fd, label, sizeof label - 1) == sizeof label - 1);
    close(fd);
    if (unshare(CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount(name, "/proc/self/attr/current", NULL, MS_BIND, NULL) < 0) {
        unlink(name);
        cr_skip("no permission to mount");
    }
    mqlimit_guard(guard);
    unlink(name);
    cr_assert(strstr(guard, "label \"docker-default (enforce)\""), "%s", guard);
}

/* A denial that no mode bits explain comes from something else. */
Test(mqlimit, a_denial_that_no_mode_bits_explain_names_who_may_deny)
{
    struct mqlimit_request r = {.name = "/orders", .mode = 0666};
    struct problem p = {0};

    cr_assert(mqlimit_explain(&usual, &r, EACCES, &p) == -EACCES);
    cr_assert(p.status == EX_NOPERM);
    SAYS(&p, "/orders", "Permission denied", "the mode 0666 allows it",
         "a security module", "journalctl -k | grep DENIED", "ausearch -m avc");
    r.mode = 0;
    cr_assert(mqlimit_explain(&usual, &r, EPERM, &p) == -EPERM);
    SAYS(&p, "Operation not permitted", "no mode bits were involved",
         "seccomp");
}

Test(mqlimit, each_limit_is_named_with_its_value_and_the_command)
{
    struct problem p = explain(EMFILE, 90, 8192, false);
    SAYS(&p, "/orders", "90 x 8192 + 96 x 90 = 745920 of the 819200",
         "`mqctl explain --queue-depth 90 --message-size 8192 EMFILE`");
    p = explain(EMFILE, 40000, 8192, false);
    SAYS(&p, "40000 x 8192 + 48 x 40000 + 48 x 32768 = 331172864",
         "--queue-depth 40000 --message-size 8192 EMFILE`");
    cr_assert_null(strstr(p.text, "ulimit -q 3"), "a guess: %s", p.text);
    p = explain(EINVAL, 100, 8192, false);
    SAYS(&p, "queue depth 100", "fs.mqueue.msg_max = 10",
         "`sysctl fs.mqueue.msg_max=100`",
         "costs 828800 bytes, over the 819200 of RLIMIT",
         "`ulimit -q 1648000`");
    p = explain(EINVAL, 11, 9000, false);
    SAYS(&p, "fs.mqueue.msg_max=11", "message size 9000",
         "fs.mqueue.msgsize_max = 8192", "fs.mqueue.msgsize_max=9000");
    cr_assert(strstr(p.text, "RLIMIT") == NULL, "%s", p.text);
    p = explain(EINVAL, 10, 8192, false);
    SAYS(&p, "depth 10", "message size 8192");
    cr_assert(strstr(p.text, "is over") == NULL, "%s", p.text);
    p = explain(ENOSPC, 10, 8192, false);
    SAYS(&p, "fs.mqueue.queues_max = 256", "sysctl fs.mqueue.queues_max=512");
    p = explain(EMFILE, 10, 8192, true);
    SAYS(&p, "1024", "RLIMIT_NOFILE", "ulimit -n 2048");
    p = explain(ENFILE, 10, 8192, false);
    SAYS(&p, "fs.file-max");
    p = explain(ENOMEM, 10, 8192, false);
    SAYS(&p, "memory");
    p = explain(ENOSYS, 10, 8192, false);
    SAYS(&p, mqlimit_kernel_has_queues() ? "(seccomp)" : "CONFIG_POSIX_MQUEUE");
    p = explain(EIO, 10, 8192, false);
    SAYS(&p, "/orders", strerror(EIO));
}

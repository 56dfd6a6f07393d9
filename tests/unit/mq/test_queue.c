/* test_queue.c - a real kernel queue, and every limit that can stand in the way
 *
 * Queues are 10 x 256 bytes or smaller and carry the pid. Limits are lowered in
 * the test's own process (Criterion forks for each test), never system-wide.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/folder.h"
#include "common/base/safe_text.h"
#include "common/mq/mqlimit.h"
#include "common/mq/queue.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])
#define BOTH     (QUEUE_RECEIVE | QUEUE_SEND)
#define NOBODY   65534

static char name[64];
static const struct queue_attr small = {.depth = 4, .message_size = 256};

static void setup(void)
{
    snprintf(name, sizeof name, "/mqw-test-queue-%d", (int)getpid());
}

static void teardown(void)
{
    queue_unlink(name);
}

TestSuite(queue, .init = setup, .fini = teardown);

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

static struct queue *make(int flags)
{
    struct queue *q = NULL;
    struct problem p = {0};
    cr_assert(queue_open(&q, name, flags | QUEUE_CREATE, &small, NULL, &p) == 0,
              "%s", p.text);
    return q;
}

static void fill(struct queue *q)
{
    int err;
    while ((err = queue_send(q, "x", 1, 0)) == 0)
        ;
    cr_assert(err == -EAGAIN);
}

/* ---- names ---- */

Test(queue, names_get_their_slash)
{
    char out[QUEUE_NAME_MAX], longest[QUEUE_NAME_MAX] = "/";
    cr_assert(queue_name("orders", out, NULL) == 0);
    cr_assert(strcmp(out, "/orders") == 0);
    cr_assert(queue_name("/orders", out, NULL) == 0);
    cr_assert(strcmp(out, "/orders") == 0);
    memset(longest + 1, 'n', QUEUE_NAME_MAX - 2);
    cr_assert(queue_name(longest, out, NULL) == 0);
    cr_assert(strcmp(out, longest) == 0);
    cr_assert(queue_name(longest + 1, out, NULL) == 0);
    cr_assert(strcmp(out, longest) == 0);
}

Test(queue, bad_names_are_usage_errors_that_show_the_name_safely)
{
    char too_long[QUEUE_NAME_MAX + 1] = "/", out[QUEUE_NAME_MAX];
    const char *const bad[] = {"",        "/",    ".",     "..",    "/.",
                               "/..",     "//",   "/a/b",  "a/",    "a\nb",
                               "\x1b[2J", "\x7f", "/a\tb", too_long};
    memset(too_long + 1, 'n', QUEUE_NAME_MAX - 1);
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct problem p = {0};
        struct queue *q;
        cr_assert(queue_name(bad[i], out, &p) == -EINVAL, "%zu", i);
        cr_assert(p.status == EX_USAGE, "%zu", i);
        cr_assert(strpbrk(p.text, "\n\t\x1b\x7f") == NULL, "%s", p.text);
        cr_assert(strlen(p.text) > 20, "%s", p.text);
        cr_assert(queue_open(&q, bad[i], BOTH, NULL, NULL, NULL) == -EINVAL);
        cr_assert(q == NULL);
    }
}

/* ---- create and open ---- */

Test(queue, creation_tells_who_made_it_and_keeps_what_is_there)
{
    struct queue *first, *second;
    bool created = false;
    const struct queue_attr other = {.depth = 2, .message_size = 64};
    cr_assert(queue_open(&first, name, BOTH | QUEUE_CREATE, &small, &created,
                         NULL) == 0);
    cr_assert(created);
    cr_assert(queue_send(first, "kept", 4, 0) == 0);
    cr_assert(queue_open(&second, name, BOTH | QUEUE_CREATE, &other, &created,
                         NULL) == 0);
    cr_assert(!created);
    cr_assert(queue_depth(second) == 4 && queue_message_size(second) == 256);
    cr_assert(queue_length(second) == 1);
    cr_assert(strcmp(queue_label(second), name) == 0);
    queue_close(&first);
    queue_close(&second);
    cr_assert(first == NULL);
    queue_close(&first);
    queue_close(NULL);
}

Test(queue, an_existing_queue_opens_whatever_sizes_are_asked_for)
{
    const struct queue_attr absurd = {.depth = UINT64_MAX,
                                      .message_size = UINT64_MAX};
    struct queue *q = make(BOTH), *again;
    struct problem p = {0};
    cr_assert(
        queue_open(&again, name, BOTH | QUEUE_CREATE, &absurd, NULL, &p) == 0,
        "%s", p.text);
    queue_close(&again);
    queue_close(&q);
}

Test(queue, the_mode_of_a_new_queue_is_exact_whatever_the_umask)
{
    static const mode_t modes[][2] = {
        {0600, 0600}, {0666, 0666}, {0622, 0622}, {0, 0600}};
    for (size_t i = 0; i < COUNT(modes); i++) {
        struct queue_attr attr = small;
        struct queue *q;
        struct stat st;
        attr.mode = modes[i][0];
        umask(i % 2 ? 0077 : 0022);
        cr_assert(
            queue_open(&q, name, BOTH | QUEUE_CREATE, &attr, NULL, NULL) == 0);
        cr_assert(fstat(queue_fd(q), &st) == 0);
        cr_assert((st.st_mode & 07777) == modes[i][1], "%o", st.st_mode);
        queue_close(&q);
        cr_assert(queue_unlink(name) == 0);
    }
    cr_assert(queue_unlink(name) == -ENOENT);
}

Test(queue, what_is_not_asked_for_is_the_kernels_default)
{
    struct mqlimit limit;
    struct queue *q;
    uint64_t depth = 0, size = 0;
    mqlimit_read(&limit);
    mqlimit_fill(&limit, &depth, &size);
    const struct queue_attr only_depth = {.depth = 1};
    const struct queue_attr only_size = {.message_size = 64};
    cr_assert(queue_open(&q, name, BOTH | QUEUE_CREATE, &only_depth, NULL,
                         NULL) == 0);
    cr_assert(queue_depth(q) == 1 && queue_message_size(q) == size);
    queue_close(&q);
    queue_unlink(name);
    cr_assert(
        queue_open(&q, name, BOTH | QUEUE_CREATE, &only_size, NULL, NULL) == 0);
    cr_assert(queue_depth(q) == depth && queue_message_size(q) == 64);
    queue_close(&q);
}

Test(queue, descriptors_do_not_block_and_do_not_survive_exec)
{
    struct queue *q = make(BOTH);
    cr_assert(fcntl(queue_fd(q), F_GETFL) & O_NONBLOCK);
    cr_assert(fcntl(queue_fd(q), F_GETFD) & FD_CLOEXEC);
    queue_close(&q);
}

Test(queue, flags_give_no_more_access_than_asked_for)
{
    struct queue *q = make(BOTH), *in, *out, *look;
    char buf[256];
    uint32_t priority;
    cr_assert(queue_open(&in, name, QUEUE_RECEIVE, NULL, NULL, NULL) == 0);
    cr_assert(queue_open(&out, name, QUEUE_SEND, NULL, NULL, NULL) == 0);
    cr_assert(queue_open(&look, name, 0, NULL, NULL, NULL) == 0);
    cr_assert(queue_send(in, "x", 1, 0) == -EBADF);
    cr_assert(queue_receive(out, buf, &priority) == -EBADF);
    cr_assert(queue_length(look) == 0);
    queue_close(&in);
    queue_close(&out);
    queue_close(&look);
    queue_close(&q);
}

/* Make and remove the queue, over and over, until the pipe is closed. */
static void flip(int until)
{
    struct pollfd fd = {.fd = until, .events = POLLIN};
    while (poll(&fd, 1, 0) == 0) {
        struct queue *q;
        if (queue_open(&q, name, BOTH | QUEUE_CREATE, &small, NULL, NULL) == 0)
            queue_close(&q);
        queue_unlink(name);
    }
    _exit(0);
}

Test(queue, creating_while_another_process_makes_and_removes_it_never_fails)
{
    int end[2];
    unsigned made = 0, found = 0;
    cr_assert(pipe(end) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(end[1]);
        flip(end[0]);
    }
    for (int i = 0; i < 20000 && (i < 2000 || !made || !found); i++) {
        struct queue *q;
        struct problem p = {0};
        bool created;
        cr_assert(queue_open(&q, name, BOTH | QUEUE_CREATE, &small, &created,
                             &p) == 0,
                  "%s", p.text);
        made += created;
        found += !created;
        queue_close(&q);
        if (i % 3 == 0)
            queue_unlink(name);
    }
    close(end[1]);
    cr_assert(waitpid(child, NULL, 0) == child);
    cr_assert(made && found, "%u made, %u found", made, found);
}

Test(queue, a_missing_queue_says_how_to_create_it)
{
    struct queue *q;
    struct problem p = {0};
    cr_assert(queue_open(&q, name, BOTH, NULL, NULL, &p) == -ENOENT);
    cr_assert(p.status == EX_NOINPUT);
    SAYS(&p, name, "mqctl create", "--no-create");
}

Test(queue, no_permission_names_owner_and_mode)
{
    struct queue *q, *other;
    struct problem p = {0};
    struct queue_attr attr = small;
    char nobody[FOLDER_USER], user[FOLDER_USER + 8];
    if (geteuid() != 0)
        cr_skip("needs root to become another user");
    attr.mode = 0622;
    cr_assert(queue_open(&q, name, BOTH | QUEUE_CREATE, &attr, NULL, NULL) ==
              0);
    cr_assert(setresuid((uid_t)-1, NOBODY, 0) == 0);
    cr_assert(queue_open(&other, name, QUEUE_RECEIVE, NULL, NULL, &p) ==
              -EACCES);
    cr_assert(p.status == EX_NOPERM);
    snprintf(user, sizeof user, "for %s", folder_user(NOBODY, nobody));
    SAYS(&p, name, "no read permission", user, "belongs to root, group root",
         "0622");
    cr_assert(queue_open(&other, name, BOTH | QUEUE_CREATE, NULL, NULL, &p) ==
              -EACCES);
    SAYS(&p, "no read and write permission", "belongs to root");
    cr_assert_null(strstr(p.text, "0620"), "no help to receive: %s", p.text);
    cr_assert(queue_open(&other, name, QUEUE_SEND, NULL, NULL, NULL) == 0);
    queue_close(&other);
    cr_assert(fchmod(queue_fd(q), 0) == -1); /* not the owner any more */
    cr_assert(setresuid((uid_t)-1, 0, 0) == 0);
    cr_assert(fchmod(queue_fd(q), 0600) == 0);
    cr_assert(setresuid((uid_t)-1, NOBODY, 0) == 0);
    cr_assert(queue_open(&other, name, QUEUE_SEND, NULL, NULL, &p) == -EACCES);
    cr_assert(p.status == EX_NOPERM);
    SAYS(&p, name, "no write permission", user, "--mode 0620");
    cr_assert(setresuid((uid_t)-1, 0, 0) == 0);
    queue_close(&q);
}

/* ---- limits of this process, hit for real ---- */

static void limit_to(int which, rlim_t value)
{
    struct rlimit r;
    cr_assert(getrlimit((__rlimit_resource_t)which, &r) == 0);
    r.rlim_cur = value;
    cr_assert(setrlimit((__rlimit_resource_t)which, &r) == 0);
}

static void refused(const struct queue_attr *attr, struct problem *p)
{
    struct queue *q;
    bool created = false;
    *p = (struct problem){0};
    cr_assert(queue_open(&q, name, BOTH | QUEUE_CREATE, attr, &created, p) < 0);
    cr_assert(q == NULL && !created);
    cr_assert(p->status == EX_OSERR, "%d %s", p->status, p->text);
    cr_assert(queue_unlink(name) == -ENOENT, "something was left behind");
}

Test(queue, too_little_queue_memory_is_explained_with_the_arithmetic)
{
    const struct queue_attr attr = {.depth = 8, .message_size = 128};
    struct problem p;
    limit_to(RLIMIT_MSGQUEUE, 1000);
    refused(&attr, &p);
    SAYS(&p, name, "RLIMIT_MSGQUEUE", "8 x 128 + 96 x 8 = 1792 of the 1000",
         "`mqctl explain --queue-depth 8 --message-size 128 EMFILE`");
    cr_assert_null(strstr(p.text, "remove"), "no other queue helps: %s",
                   p.text);
    cr_assert_null(strstr(p.text, "ulimit -q 1"), "a guess: %s", p.text);
    limit_to(RLIMIT_MSGQUEUE, 1791);
    refused(&attr, &p);
}

Test(queue, queue_memory_that_other_queues_use_is_told_apart)
{
    const struct queue_attr attr = {.depth = 8, .message_size = 128};
    struct queue *held = make(BOTH); /* 4 x 256 + 96 x 4 = 1408 */
    struct problem p;
    queue_unlink(name);
    limit_to(RLIMIT_MSGQUEUE, 1792);
    refused(&attr, &p);
    SAYS(&p, "= 1792 of the 1792", "others (removed ones too, while open)",
         "`mqctl explain --queue-depth 8 --message-size 128 EMFILE`",
         "`mqctl remove --orphans`");
    cr_assert_null(strstr(p.text, "ulimit -q 1"), "a guess: %s", p.text);
    queue_close(&held);
}

Test(queue, a_shortage_of_descriptors_is_not_taken_for_queue_memory)
{
    struct problem p;
    struct rlimit old;
    cr_assert(getrlimit(RLIMIT_NOFILE, &old) == 0);
    int next = dup(0);
    cr_assert(next > 0);
    close(next);
    for (int fd = 0; fd < next; fd++)
        cr_assert(fcntl(fd, F_GETFD) >= 0, "a hole at %d", fd);
    limit_to(RLIMIT_NOFILE, (rlim_t)next);
    struct queue *q;
    p = (struct problem){0};
    cr_assert(queue_open(&q, name, BOTH | QUEUE_CREATE, &small, NULL, &p) ==
              -EMFILE);
    limit_to(RLIMIT_NOFILE, old.rlim_cur);
    cr_assert(p.status == EX_OSERR);
    SAYS(&p, name, "RLIMIT_NOFILE", "ulimit -n", "LimitNOFILE=", "nofile=");
    cr_assert(strstr(p.text, "MSGQUEUE") == NULL, "%s", p.text);
}

Test(queue, sizes_over_the_kernels_limits_name_the_sysctl)
{
    struct mqlimit limit;
    struct problem p;
    char want[2][64];
    mqlimit_read(&limit);
    struct queue_attr attr = {.depth = MQLIMIT_HARD_DEPTH + 1};
    refused(&attr, &p);
    SAYS(&p, name, "65537", "65536");
    attr = (struct queue_attr){.message_size = UINT64_MAX};
    refused(&attr, &p);
    SAYS(&p, name, "18446744073709551615", "16777216");
    if (limit.depth_max >= MQLIMIT_HARD_DEPTH)
        cr_skip("fs.mqueue.msg_max is at its end");
    attr =
        (struct queue_attr){.depth = limit.depth_max + 1, .message_size = 16};
    struct queue *q;
    if (queue_open(&q, name, BOTH | QUEUE_CREATE, &attr, NULL, &p) == 0) {
        queue_close(&q);
        queue_unlink(name); /* a skipped test has no clean-up */
        cr_skip("has CAP_SYS_RESOURCE");
    }
    cr_assert(p.status == EX_OSERR);
    snprintf(want[0], sizeof want[0], "fs.mqueue.msg_max = %" PRIu64,
             limit.depth_max);
    snprintf(want[1], sizeof want[1], "`sysctl fs.mqueue.msg_max=%" PRIu64 "`",
             limit.depth_max + 1);
    SAYS(&p, name, want[0], want[1], "docker run --sysctl");
}

Test(queue, too_many_queues_is_not_taken_for_a_full_disk)
{
    struct problem p;
    if (unshare(CLONE_NEWIPC) != 0)
        cr_skip("cannot make an IPC namespace");
    int fd = open("/proc/sys/fs/mqueue/queues_max", O_WRONLY);
    if (fd < 0 || write(fd, "0", 1) != 1)
        cr_skip("cannot set queues_max");
    close(fd);
    struct queue *q;
    if (queue_open(&q, name, BOTH | QUEUE_CREATE, &small, NULL, &p) == 0)
        cr_skip("has CAP_SYS_RESOURCE");
    refused(&small, &p);
    SAYS(&p, name, "fs.mqueue.queues_max = 0", "`sysctl fs.mqueue.queues_max=");
}

/* ---- messages ---- */

Test(queue, messages_come_by_priority_then_in_order_byte_for_byte)
{
    struct queue *q = make(BOTH);
    char buf[256];
    uint32_t priority = UINT32_MAX;
    cr_assert(queue_receive(q, buf, &priority) == -EAGAIN);
    cr_assert(priority == UINT32_MAX, "an empty queue wrote the priority");
    cr_assert(queue_send(q, "a\0b", 3, 0) == 0);
    cr_assert(queue_send(q, NULL, 0, 5) == 0);
    cr_assert(queue_send(q, "c", 1, 5) == 0);
    cr_assert(queue_send(q, "d", 1, QUEUE_PRIORITY_MAX) == 0);
    cr_assert(queue_length(q) == 4);
    cr_assert(queue_receive(q, buf, &priority) == 1 && buf[0] == 'd');
    cr_assert(priority == QUEUE_PRIORITY_MAX);
    cr_assert(queue_receive(q, buf, &priority) == 0 && priority == 5);
    cr_assert(queue_receive(q, buf, &priority) == 1 && buf[0] == 'c');
    cr_assert(queue_receive(q, buf, &priority) == 3 && priority == 0);
    cr_assert(memcmp(buf, "a\0b", 3) == 0);
    queue_close(&q);
}

Test(queue, what_cannot_be_sent_is_refused)
{
    struct queue *q = make(BOTH);
    char big[257] = {0};
    cr_assert(queue_send(q, big, 257, 0) == -EMSGSIZE);
    cr_assert(queue_send_wait(q, big, 257, 0, 0) == -EMSGSIZE);
    cr_assert(queue_send(q, big, 256, QUEUE_PRIORITY_MAX + 1) == -EINVAL);
    cr_assert(queue_send(q, big, 256, 0) == 0);
    fill(q);
    cr_assert(queue_length(q) == 4);
    queue_close(&q);
}

Test(queue, waiting_for_room_ends_at_the_monotonic_deadline)
{
    struct queue *q = make(BOTH);
    fill(q);
    uint64_t start = clock_mono_ns(), deadline = start + 30 * NS_PER_MS;
    cr_assert(queue_send_wait(q, "x", 1, 0, deadline) == -EAGAIN);
    uint64_t end = clock_mono_ns();
    cr_assert(end >= deadline, "%" PRIu64 " ns early", deadline - end);
    cr_assert(queue_send_wait(q, "x", 1, 0, start) == -EAGAIN);
    cr_assert(queue_length(q) == 4);
    queue_close(&q);
}

/* Several senders that wait for room at once. */
enum { SENDERS = 4, EACH = 300 };
struct sender {
    pthread_t thread;
    struct queue *queue;
    uint32_t number;
    int err;
};

static void *send_all(void *arg)
{
    struct sender *s = arg;
    for (uint32_t i = 0; i < EACH && !s->err; i++) {
        uint32_t m[2] = {s->number, i};
        s->err = queue_send_wait(s->queue, m, sizeof m, 0, UINT64_MAX);
    }
    return NULL;
}

Test(queue, several_senders_wait_and_each_message_arrives_once_in_order)
{
    struct queue *q = make(BOTH);
    struct sender s[SENDERS] = {0};
    uint32_t next[SENDERS] = {0}, m[64], priority;
    struct pollfd fd = {.fd = queue_fd(q), .events = POLLIN};
    for (uint32_t i = 0; i < SENDERS; i++) {
        s[i].queue = q;
        s[i].number = i;
        cr_assert(pthread_create(&s[i].thread, NULL, send_all, &s[i]) == 0);
    }
    for (int got = 0; got < SENDERS * EACH;) {
        ssize_t n = queue_receive(q, m, &priority);
        if (n == -EAGAIN) {
            poll(&fd, 1, -1);
            continue;
        }
        cr_assert(n == 8 && m[0] < SENDERS && m[1] == next[m[0]]);
        next[m[0]]++;
        got++;
    }
    for (int i = 0; i < SENDERS; i++) {
        pthread_join(s[i].thread, NULL);
        cr_assert(s[i].err == 0 && next[i] == EACH);
    }
    cr_assert(queue_length(q) == 0);
    queue_close(&q);
}

static void on_signal(int sig)
{
    (void)sig;
}

/* A thread that waits, and whether its wait is over. */
struct waiter {
    pthread_t thread;
    atomic_bool back;
};

/* Send signals until the wait is over: one before it begins ends nothing. */
static void *interrupt_it(void *arg)
{
    struct waiter *w = arg;
    while (!atomic_load(&w->back)) {
        pthread_kill(w->thread, SIGUSR1);
        sched_yield();
    }
    return NULL;
}

Test(queue, a_signal_ends_the_wait_for_room)
{
    struct sigaction act = {.sa_handler = on_signal};
    struct queue *q = make(BOTH);
    struct waiter self = {.thread = pthread_self()};
    pthread_t other;
    fill(q);
    sigaction(SIGUSR1, &act, NULL);
    cr_assert(pthread_create(&other, NULL, interrupt_it, &self) == 0);
    cr_assert(queue_send_wait(q, "x", 1, 0, UINT64_MAX) == -EINTR);
    atomic_store(&self.back, true);
    pthread_join(other, NULL);
    queue_close(&q);
}

Test(queue, a_removed_queue_is_gone_but_keeps_what_is_in_it)
{
    struct queue *q = make(BOTH), *next;
    char buf[256];
    uint32_t priority;
    bool created = false;
    cr_assert(queue_send(q, "last", 4, 0) == 0);
    cr_assert(!queue_gone(q));
    cr_assert(queue_unlink(name) == 0);
    cr_assert(queue_gone(q));
    cr_assert(queue_receive(q, buf, &priority) == 4);
    cr_assert(queue_open(&next, name, BOTH | QUEUE_CREATE, &small, &created,
                         NULL) == 0);
    cr_assert(created && !queue_gone(next) && queue_gone(q));
    queue_close(&next);
    queue_close(&q);
}

/* ---- the rest ---- */

Test(queue, differences_name_both_values)
{
    struct queue *q = make(BOTH);
    struct queue_attr want = {0};
    char text[256] = "old";
    cr_assert(!queue_differs(q, &want, text, sizeof text) && text[0] == '\0');
    want = (struct queue_attr){4, 256, 0600};
    cr_assert(!queue_differs(q, &want, text, sizeof text));
    want = (struct queue_attr){20, 1024, 0640};
    cr_assert(queue_differs(q, &want, text, sizeof text));
    cr_assert(strcmp(text, "queue depth is 4, not 20 as requested; "
                           "message size is 256, not 1024 as requested; "
                           "mode is 0600, not 0640 as requested") == 0,
              "%s", text);
    char *tight = malloc(10);
    cr_assert(queue_differs(q, &want, tight, 10) && strlen(tight) == 9);
    free(tight);
    want = (struct queue_attr){0, 0, 0640};
    cr_assert(queue_differs(q, &want, text, sizeof text));
    cr_assert(strncmp(text, "mode", 4) == 0);
    queue_close(&q);
}

Test(queue, a_passed_descriptor_is_taken_over_and_made_non_blocking)
{
    struct queue *q = make(BOTH), *adopted;
    int fd = dup(queue_fd(q));
    cr_assert(fcntl(fd, F_SETFL, 0) == 0 && fcntl(fd, F_SETFD, 0) == 0);
    cr_assert(queue_adopt(&adopted, name, fd, NULL) == 0);
    cr_assert(queue_fd(adopted) == fd && queue_depth(adopted) == 4);
    cr_assert(fcntl(fd, F_GETFL) & O_NONBLOCK);
    cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    queue_close(&adopted);
    cr_assert(fcntl(fd, F_GETFD) == -1 && errno == EBADF);
    queue_close(&q);
}

Test(queue, a_passed_descriptor_has_a_name_also_where_no_queue_has_it)
{
    struct queue *q = make(BOTH);
    char other[300];
    int fd = queue_fd(q);
    snprintf(other, sizeof other, "%s-other", name);
    cr_assert(queue_match(fd, name) == QUEUE_SAME);
    cr_assert(queue_match(fd, other) == QUEUE_OTHER);
    cr_assert(queue_unlink(name) == 0);
    cr_assert(queue_match(fd, name) == QUEUE_SAME,
              "a removed queue has lost its name");
    cr_assert(queue_match(fd, other) == QUEUE_OTHER);
    queue_close(&q);
}

Test(queue, a_passed_descriptor_that_is_no_queue_is_refused_and_left_open)
{
    struct queue *q;
    struct problem p = {0};
    int fd = open("/dev/null", O_RDONLY);
    cr_assert(queue_adopt(&q, name, fd, &p) == -EBADF && q == NULL);
    cr_assert(p.status == EX_USAGE);
    SAYS(&p, name, "not an open message queue", "ListenMessageQueue=");
    cr_assert(fcntl(fd, F_GETFD) >= 0);
    close(fd);
}

/* ---- a queue that is created to prove a limit ---- */

static char *probed; /* gets the name, then SIGTERM is raised */

/* Replace mq_unlink(3) in this program: a signal ends the process first, unless
 * it is blocked. */
int mq_unlink(const char *queue)
{
    int rc;

    if (probed) {
        snprintf(probed, sizeof name, "%s", queue);
        raise(SIGTERM);
    }
    rc = (int)syscall(SYS_mq_unlink, queue + 1);
    if (rc < 0 && errno == EPERM)
        errno = EACCES; /* as the C library */
    return rc;
}

Test(queue, a_signal_leaves_no_queue_of_a_probe)
{
    char *shared = mmap(NULL, sizeof name, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child;
    int status;

    cr_assert_neq(shared, MAP_FAILED);
    child = fork();
    if (child == 0) {
        probed = shared;
        (void)signal(SIGTERM, SIG_DFL);
        (void)queue_probe(1, 1, (char[QUEUE_PROBE]){0});
        _exit(0);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM, "%x", status);
    cr_assert_neq(shared[0], '\0', "no queue was created");
    cr_assert_lt(mq_open(shared, O_RDONLY), 0, "%s is left", shared);
    cr_assert_eq(errno, ENOENT);
}

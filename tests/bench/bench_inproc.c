/* bench_inproc.c - a C function for each message, against bare loops
 *
 * bench_inproc [--json] [MESSAGES] [ROUNDS] [PART]. A part runs its rivals in
 * turn, A B A B, so that a busy machine spoils all alike, and prints medians of
 * the rates and of the ratios inside a round. One sender process each; the time
 * is from the first message to the last.
 */
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "worker/mqworker.h"

#define ROUNDS_MAX 101
#define RIVALS_MAX 6
#define BODY_MAX   4096
#define THREADS    2

static char queue[64], state[] = "/tmp/bench_inproc.XXXXXX", journal_path[64];
static unsigned messages = 200000, rounds = 7;
static bool json;

/* What one run counts; the part that runs sets it. */
static struct run {
    unsigned long n;  /* messages */
    size_t size;      /* of each */
    uint64_t work_ns; /* of a handler */
    uint64_t first_ns, last_ns;
    atomic_ulong seen;
    struct mqw_worker *worker;
} run;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

/* work - what a handler does: burns its time, or sleeps where that is long */
static void work(void)
{
    uint64_t end;

    if (run.work_ns >= NS_PER_MS) {
        nanosleep(&(struct timespec){.tv_nsec = (long)run.work_ns}, NULL);
        return;
    }
    end = run.work_ns ? clock_mono_ns() + run.work_ns : 0;
    while (end && clock_mono_ns() < end)
        ;
}

/* count - one message; true for the last */
static bool count(void)
{
    unsigned long at =
        atomic_fetch_add_explicit(&run.seen, 1, memory_order_relaxed);

    if (at == 0)
        run.first_ns = clock_mono_ns();
    if (at + 1 != run.n)
        return false;
    run.last_ns = clock_mono_ns();
    return true;
}

/* sender - a process that fills the queue until all are out */
static pid_t sender(void)
{
    static char body[BODY_MAX];
    pid_t pid = fork();

    if (pid < 0)
        die("fork");
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    mqd_t mq = mq_open(queue, O_WRONLY);

    memset(body, 'x', sizeof body);
    for (unsigned long i = 0; i < run.n; i++)
        if (mq_send(mq, body, run.size, 0) < 0)
            _exit(1);
    _exit(0);
}

/* next - non-blocking, poll when empty: what any loop of this kind does */
static ssize_t next(mqd_t mq, char *body)
{
    struct pollfd p = {.fd = (int)mq, .events = POLLIN};
    ssize_t n;

    while ((n = mq_receive(mq, body, BODY_MAX, NULL)) < 0) {
        if (errno != EAGAIN)
            die("mq_receive");
        poll(&p, 1, -1);
    }
    return n;
}

/* ---- rivals: each receives run.n messages ---- */

/* bare - nothing but the loop */
static void bare(void)
{
    char body[BODY_MAX];
    mqd_t mq = mq_open(queue, O_RDONLY | O_NONBLOCK);

    do
        next(mq, body);
    while (!count());
    mq_close(mq);
}

/* journal - receive, then write it down, as people do who fear a crash (and
 * lose what the kill catches between the two) */
static void journal(void)
{
    char body[BODY_MAX];
    mqd_t mq = mq_open(queue, O_RDONLY | O_NONBLOCK);
    int fd = open(journal_path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    off_t at = 0;

    do {
        ssize_t n = next(mq, body);

        if (pwrite(fd, body, (size_t)n, at % (1 << 20)) != n)
            die("pwrite");
        at += n;
    } while (!count());
    close(fd);
    mq_close(mq);
}

static int handle(const struct mqw_message *m, struct mqw_context *c)
{
    (void)m;
    work();
    if (count())
        mqw_stop(mqw_worker_of(c));
    return MQW_DONE;
}

/* worker - the library */
static void worker(unsigned threads, uint64_t timeout_ns)
{
    char why[512] = "";
    struct mqw_options o;

    mqw_options_init(&o, sizeof o);
    o.queue = queue;
    o.state_dir = state;
    o.max_concurrency = threads;
    o.timeout = timeout_ns;
    o.log_level = MQW_LOG_WARN;
    o.problem = why;
    o.problem_size = sizeof why;
    if (mqw_run(&o, handle, NULL) != 0) {
        fprintf(stderr, "bench_inproc: %s\n", why);
        exit(1);
    }
}

static void worker_1(void)
{
    worker(1, MQW_NEVER);
}

static void worker_2(void)
{
    worker(2, MQW_NEVER);
}

static void worker_8(void)
{
    worker(8, MQW_NEVER);
}

static void worker_64(void)
{
    worker(64, MQW_NEVER);
}

static void worker_limit(void)
{
    worker(1, 60 * NS_PER_S);
}

static void *ideal_thread(void *arg)
{
    (void)arg;
    while (atomic_load(&run.seen) < run.n) {
        work();
        count();
    }
    return NULL;
}

/* ideal - the handler's work on as many threads, no queue at all */
static void ideal(void)
{
    pthread_t t[THREADS];

    for (int i = 0; i < THREADS; i++)
        pthread_create(&t[i], NULL, ideal_thread, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
}

/* ---- parts ---- */

struct rival {
    const char *name;
    void (*go)(void);
};

struct part {
    const char *name;
    long depth;
    size_t size;
    uint64_t work_ns;
    unsigned share;                  /* of the messages: 1 in so many */
    struct rival rivals[RIVALS_MAX]; /* the first is the measure */
};

static const struct part parts[] = {
    {"no-op, 64 B, queue of 90",
     90,
     64,
     0,
     1,
     {{"bare loop", bare},
      {"worker -c 1", worker_1},
      {"worker -c 8", worker_8},
      {"worker -c 64", worker_64},
      {"worker, time limit", worker_limit},
      {"journal", journal}}},
    {"no-op, 4 KiB, queue of 90",
     90,
     4096,
     0,
     1,
     {{"bare loop", bare},
      {"worker -c 1", worker_1},
      {"worker -c 8", worker_8},
      {"journal", journal}}},
    {"no-op, 64 B, queue of 10",
     10,
     64,
     0,
     4,
     {{"bare loop", bare},
      {"worker -c 1", worker_1},
      {"worker -c 8", worker_8}}},
    {"20 us handler, -c 2",
     90,
     64,
     20 * NS_PER_US,
     10,
     {{"ideal", ideal}, {"worker -c 2", worker_2}}},
    {"1 ms handler, -c 2",
     90,
     64,
     NS_PER_MS,
     200,
     {{"ideal", ideal}, {"worker -c 2", worker_2}}},
};

static void queue_make(long depth, size_t size)
{
    struct mq_attr attr = {.mq_maxmsg = depth, .mq_msgsize = (long)size};
    mqd_t mq;

    mq_unlink(queue);
    mq = mq_open(queue, O_RDWR | O_CREAT | O_EXCL, 0600, &attr);
    if (mq == (mqd_t)-1)
        die(queue);
    mq_close(mq);
}

/* rate - messages a second of one run */
static double rate(const struct rival *r)
{
    pid_t pid = 0;
    int status = 0;

    atomic_store(&run.seen, 0);
    if (r->go != ideal)
        pid = sender();
    r->go();
    if (pid && (waitpid(pid, &status, 0) != pid || status != 0))
        die("sender");
    return (double)(run.n - 1) * 1e9 / (double)(run.last_ns - run.first_ns);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double at_part(double *of, size_t n, double part)
{
    qsort(of, n, sizeof *of, by_value);
    return of[(size_t)((double)(n - 1) * part)];
}

static void print_line(const char *part, const char *name, double value,
                       const char *unit, double ratio)
{
    if (json)
        printf("{\"part\":\"%s\",\"rival\":\"%s\",\"%s\":%.0f,"
               "\"ratio\":%.3f}\n",
               part, name, unit, value, ratio);
    else
        printf("%-28s %-22s %12.0f %-4s %6.3f\n", part, name, value, unit,
               ratio);
    fflush(stdout);
}

static void part_run(const struct part *p)
{
    static double value[RIVALS_MAX][ROUNDS_MAX], ratio[RIVALS_MAX][ROUNDS_MAX];

    queue_make(p->depth, p->size < BODY_MAX ? 64 : BODY_MAX);
    run.n = messages / p->share;
    run.size = p->size;
    run.work_ns = p->work_ns;
    for (unsigned i = 0; i < rounds; i++)
        for (int r = 0; r < RIVALS_MAX && p->rivals[r].go; r++) {
            value[r][i] = rate(&p->rivals[r]);
            ratio[r][i] = value[r][i] / value[0][i];
        }
    for (int r = 0; r < RIVALS_MAX && p->rivals[r].go; r++)
        print_line(p->name, p->rivals[r].name, at_part(value[r], rounds, 0.5),
                   "/s", at_part(ratio[r], rounds, 0.5));
}

/* ---- latency: from mq_send to the first instruction behind it ---- */

#define SAMPLES 500
static double late[2][SAMPLES * ROUNDS_MAX];
static size_t late_count[2];
static int late_of; /* which rival measures now */

static bool late_note(const void *body)
{
    uint64_t now = clock_mono_ns(), sent;

    memcpy(&sent, body, sizeof sent);
    late[late_of][late_count[late_of]++] = (double)(now - sent);
    return late_count[late_of] % SAMPLES == 0;
}

static int handle_late(const struct mqw_message *m, struct mqw_context *c)
{
    if (late_note(m->body))
        mqw_stop(mqw_worker_of(c));
    return MQW_DONE;
}

/* trickle - a process that sends now and then, so that all are asleep */
static pid_t trickle(void)
{
    char body[64] = "";
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    mqd_t mq = mq_open(queue, O_WRONLY);

    for (int i = 0; i < SAMPLES; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        uint64_t now = clock_mono_ns();

        memcpy(body, &now, sizeof now);
        if (mq_send(mq, body, sizeof body, 0) < 0)
            _exit(1);
    }
    _exit(0);
}

static void late_blocked(void)
{
    char body[64];
    mqd_t mq = mq_open(queue, O_RDONLY);

    do {
        if (mq_receive(mq, body, sizeof body, NULL) < 0)
            die("mq_receive");
    } while (!late_note(body));
    mq_close(mq);
}

static void late_worker(void)
{
    struct mqw_options o;

    mqw_options_init(&o, sizeof o);
    o.queue = queue;
    o.state_dir = state;
    o.log_level = MQW_LOG_WARN;
    if (mqw_run(&o, handle_late, NULL) != 0)
        die("mqw_run");
}

static void latency(void)
{
    static const char *const names[] = {"blocked in mq_receive", "worker"};
    double half[2], most[2];

    queue_make(10, 64);
    for (unsigned i = 0; i < rounds; i++)
        for (late_of = 0; late_of < 2; late_of++) {
            pid_t pid = trickle();

            if (late_of)
                late_worker();
            else
                late_blocked();
            waitpid(pid, NULL, 0);
        }
    for (int r = 0; r < 2; r++) {
        half[r] = at_part(late[r], late_count[r], 0.5);
        most[r] = at_part(late[r], late_count[r], 0.99);
        print_line("latency, median", names[r], half[r], "ns",
                   half[r] / half[0]);
        print_line("latency, p99", names[r], most[r], "ns", most[r] / most[0]);
    }
}

/* file_put - one write; false: not possible */
static bool file_put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    bool put = fd >= 0 && write(fd, text, strlen(text)) > 0;

    if (fd >= 0)
        close(fd);
    return put;
}

/* room_for_deep - where a queue of 90 may not be made, an IPC namespace of our
 * own in which it may */
static void room_for_deep(void)
{
    static const char most[] = "/proc/sys/fs/mqueue/msg_max";
    char user[64], group[64];
    FILE *f = fopen(most, "r");
    int limit = 0;

    if (!f || fscanf(f, "%d", &limit) != 1)
        die(most);
    fclose(f);
    if (limit >= 90)
        return;
    snprintf(user, sizeof user, "0 %d 1", (int)getuid());
    snprintf(group, sizeof group, "0 %d 1", (int)getgid());
    if (unshare(CLONE_NEWUSER | CLONE_NEWIPC) < 0 ||
        !file_put("/proc/self/uid_map", user) ||
        !file_put("/proc/self/setgroups", "deny") ||
        !file_put("/proc/self/gid_map", group) || !file_put(most, "90")) {
        fprintf(stderr, "bench_inproc: sysctl fs.mqueue.msg_max=90\n");
        exit(71);
    }
}

static pid_t owner; /* senders are no owners */

static void clean(void)
{
    char command[128];

    if (getpid() != owner)
        return;
    mq_unlink(queue);
    snprintf(command, sizeof command, "rm -rf %s", state);
    if (system(command) != 0)
        fprintf(stderr, "%s stays\n", state);
}

int main(int argc, char **argv)
{
    const size_t n = sizeof parts / sizeof parts[0];
    size_t only = SIZE_MAX;

    if (argc > 1 && strcmp(argv[1], "--json") == 0) {
        json = true;
        argc--, argv++;
    }
    if (argc > 1)
        messages = (unsigned)strtoul(argv[1], NULL, 10);
    if (argc > 2)
        rounds = (unsigned)strtoul(argv[2], NULL, 10);
    if (argc > 3)
        only = strtoul(argv[3], NULL, 10);
    if (messages < 1000 || rounds < 1 || rounds > ROUNDS_MAX)
        return 64;
    room_for_deep();
    snprintf(queue, sizeof queue, "/bench_inproc.%d", (int)getpid());
    if (!mkdtemp(state))
        die(state);
    snprintf(journal_path, sizeof journal_path, "%s/journal", state);
    owner = getpid();
    atexit(clean);
    for (size_t i = 0; i < n; i++)
        if (only == SIZE_MAX || only == i)
            part_run(&parts[i]);
    if (only == SIZE_MAX || only == n)
        latency();
    return 0;
}

/* bench_exec.c - a process for each message, against doing only that
 *
 * bench_exec [MESSAGES] [ROUNDS]. Runs in turn, so that a busy machine spoils
 * all alike: a bare loop of posix_spawn and waitpid, the worker, the worker with
 * a time limit; on one thread and on two. Prints the medians.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <mqueue.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"

#define THREADS    2
#define ROUNDS_MAX 101

static char program[] = "/bin/true";
static char *const argv_true[] = {program, NULL};
static char worker[4096], queue[64], state[] = "/tmp/bench_exec.XXXXXX";
static unsigned messages = 500, rounds = 11;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

/* spawn_loop - what any worker has to do */
static void *spawn_loop(void *arg)
{
    unsigned n = *(unsigned *)arg;

    while (n-- > 0) {
        pid_t pid;

        if (posix_spawn(&pid, program, NULL, NULL, argv_true, environ) != 0 ||
            waitpid(pid, NULL, 0) != pid)
            die("posix_spawn");
    }
    return NULL;
}

/* bare - messages a second of the loop */
static double bare(unsigned threads)
{
    unsigned share = messages / threads;
    pthread_t thread[THREADS];
    uint64_t before = clock_mono_ns();

    for (unsigned i = 0; i < threads; i++)
        if (pthread_create(&thread[i], NULL, spawn_loop, &share) != 0)
            die("pthread_create");
    for (unsigned i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    return (double)(share * threads) * 1e9 / (double)(clock_mono_ns() - before);
}

/* worker_start - its stderr is the descriptor */
static pid_t worker_start(int *log, unsigned threads, const char *limit)
{
    char cap[16], most[16];
    int fds[2];
    pid_t pid;

    snprintf(cap, sizeof cap, "%u", threads);
    snprintf(most, sizeof most, "%u", messages);
    if (pipe(fds) < 0)
        die("pipe");
    pid = fork();
    if (pid == 0) {
        dup2(fds[1], 2);
        execl(worker, worker, "--state-dir", state, "-c", cap, "--timeout",
              limit, "--max-deliveries", most, queue, "--", program, NULL);
        _exit(127);
    }
    close(fds[1]);
    *log = fds[0];
    return pid;
}

/* ran_ns - how long the worker ran, as it says itself */
static uint64_t ran_ns(int log)
{
    char text[16384];
    size_t size = 0;
    ssize_t n;
    uint64_t ns = 0;
    char *at;

    while ((n = read(log, text + size, sizeof text - 1 - size)) > 0)
        size += (size_t)n;
    text[size] = '\0';
    at = strstr(text, " ran=");
    if (at) {
        at[5 + strcspn(at + 5, " ")] = '\0';
        if (duration_parse(at + 5, &ns) < 0)
            ns = 0;
    }
    if (ns == 0) {
        fprintf(stderr, "no result from %s:\n%s\n", worker, text);
        exit(1);
    }
    return ns;
}

/* through_worker - messages a second */
static double through_worker(unsigned threads, const char *limit)
{
    int log;
    mqd_t mq = mq_open(queue, O_WRONLY);
    pid_t pid;
    uint64_t ns;

    if (mq == (mqd_t)-1)
        die("mq_open");
    pid = worker_start(&log, threads, limit);
    for (unsigned i = 0; i < messages; i++)
        if (mq_send(mq, "x", 1, 0) < 0)
            die("mq_send");
    ns = ran_ns(log);
    close(log);
    waitpid(pid, NULL, 0);
    mq_close(mq);
    return (double)messages * 1e9 / (double)ns;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *of)
{
    qsort(of, rounds, sizeof *of, by_value);
    return of[rounds / 2];
}

/* compare - all three in turn; each round's rates with each other, as what else
 * the machine does changes from round to round */
static void compare(unsigned threads)
{
    double loop[ROUNDS_MAX] = {0}, plain[ROUNDS_MAX] = {0};
    double ratio[2][ROUNDS_MAX] = {0};

    for (unsigned i = 0; i < rounds; i++) {
        double limited;

        loop[i] = bare(threads);
        plain[i] = through_worker(threads, "none");
        limited = through_worker(threads, "60s");
        ratio[0][i] = plain[i] / loop[i];
        ratio[1][i] = limited / plain[i];
    }
    printf("-c %u: bare loop %.0f/s, worker %.0f/s (%.3f); a time limit: %.3f "
           "of the worker's rate\n",
           threads, median(loop), median(plain), median(ratio[0]),
           median(ratio[1]));
}

/* clean - the queue, the state */
static void clean(void)
{
    char command[128];

    mq_unlink(queue);
    snprintf(command, sizeof command, "rm -rf %s", state);
    if (system(command) != 0)
        fprintf(stderr, "%s stays\n", state);
}

int main(int argc, char **argv)
{
    struct mq_attr attr = {.mq_maxmsg = 10, .mq_msgsize = 256};
    char self[4096];
    mqd_t mq;

    if (argc > 1)
        messages = (unsigned)strtoul(argv[1], NULL, 10);
    if (argc > 2)
        rounds = (unsigned)strtoul(argv[2], NULL, 10);
    if (messages < THREADS || rounds < 1 || rounds > ROUNDS_MAX)
        return 64;
    snprintf(self, sizeof self, "%s", argv[0]);
    snprintf(worker, sizeof worker, "%.4000s/../../bin/mqworker",
             dirname(self));
    snprintf(queue, sizeof queue, "/bench_exec.%d", (int)getpid());
    mq = mq_open(queue, O_RDWR | O_CREAT | O_EXCL, 0600, &attr);
    if (mq == (mqd_t)-1 || !mkdtemp(state))
        die(queue);
    mq_close(mq);
    atexit(clean);
    for (unsigned threads = 1; threads <= THREADS; threads++)
        compare(threads);
    return 0;
}

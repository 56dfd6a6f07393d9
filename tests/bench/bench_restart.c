/* bench_restart.c - from the start of a worker to its first delivery, while
 * many retries wait
 *
 * bench_restart [ROWS...] (10000 100000 1000000). For each number a store is
 * filled once, with bodies of 100 bytes; then a worker is started on it, some
 * times, and stopped: until its handler has written a byte, and how much more
 * memory it holds by then than one for which nothing waits. Three kinds of rows: due in an hour with
 * one message in the queue; all due now; due in an hour, each in a group of its
 * own. A message is delivered by /bin/echo, whose start is in the time.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <mqueue.h>
#include <poll.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/statedir.h"
#include "common/store.h"

#define ROUNDS   5
#define MIDDLE   2
#define LIMIT_MS 120000

enum kind { LATER, NOW, GROUPED, KINDS };
static const char *const kinds[KINDS] = {"due in an hour", "due now",
                                         "in groups, due in an hour"};

static char worker[4096], queue[64], state[] = "/tmp/bench_restart.XXXXXX";

static void die(const char *what)
{
    perror(what);
    exit(1);
}

/* A worker that was started. */
struct run {
    pid_t pid;
    int out, log; /* its handlers' stdout; its stderr */
    uint64_t started_ns;
};

/* run_start - now */
static struct run run_start(void)
{
    struct run r;
    int out[2];

    if (pipe2(out, O_CLOEXEC) < 0)
        die("pipe");
    r.log = open("/dev/null", O_WRONLY | O_CLOEXEC);
    r.started_ns = clock_mono_ns();
    r.pid = fork();
    if (r.pid == 0) {
        dup2(out[1], 1);
        dup2(r.log, 2);
        execl(worker, worker, "--state-dir", state, "-c", "2", "-q", queue,
              "--", "/bin/echo", "x", NULL);
        _exit(127);
    }
    close(out[1]);
    r.out = out[0];
    return r;
}

/* run_first_ns - until the first byte of a handler */
static uint64_t run_first_ns(const struct run *r)
{
    struct pollfd p = {.fd = r->out, .events = POLLIN};

    if (poll(&p, 1, LIMIT_MS) != 1 || !(p.revents & POLLIN)) {
        fprintf(stderr, "no delivery\n");
        exit(1);
    }
    return clock_mono_ns() - r->started_ns;
}

static void run_end(struct run *r)
{
    int status;

    kill(r->pid, SIGTERM);
    if (waitpid(r->pid, &status, 0) != r->pid || status != 0) {
        fprintf(stderr, "%s: status %x\n", worker, (unsigned)status);
        exit(1);
    }
    close(r->out);
    close(r->log);
}

/* run_kb - private memory of the worker */
static long run_kb(const struct run *r)
{
    char path[64], line[256];
    long kb = -1;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/status", (int)r->pid);
    f = fopen(path, "re");
    while (f && kb < 0 && fgets(line, sizeof line, f))
        if (strncmp(line, "RssAnon:", 8) == 0)
            kb = atol(line + 8);
    if (f)
        fclose(f);
    return kb;
}

/* store_path - of the queue; the folder is made */
static void store_path(char path[PATH_MAX])
{
    struct statedir dir;
    struct problem p;

    if (statedir_open(&dir, state, queue, true, &p) < 0 ||
        statedir_path(&dir, STATEDIR_STORE, path, &p) < 0) {
        fprintf(stderr, "%s\n", p.text);
        exit(1);
    }
}

/* store_fill - one transaction, as a worker of a busy year would leave it */
static void store_fill(uint64_t rows, enum kind kind)
{
    char path[PATH_MAX], sql[1024], *why = NULL;
    struct problem p;
    struct store *s;
    sqlite3 *db;
    uint64_t due = clock_wall_ns();

    store_path(path);
    if (store_open(&s, path, true, &p) < 0) {
        fprintf(stderr, "%s\n", p.text);
        exit(1);
    }
    store_close(&s);
    due = kind == NOW ? due - NS_PER_S : due + 3600 * NS_PER_S;
    snprintf(sql, sizeof sql,
             "DELETE FROM messages;"
             "WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c"
             " WHERE n < %" PRIu64 ") INSERT INTO messages (state, receive_seq,"
             " id, priority, attempts, crashes, flags, group_key, due_ns,"
             " first_received_ns, died_ns, reason, header_size, data) SELECT 1,"
             " n, randomblob(16), 0, 1, 0, 0, %s, %" PRIu64 " + n * 1000, 1, 0,"
             " 0, 0, zeroblob(100) FROM c;",
             rows, kind == GROUPED ? "'group-' || n" : "NULL", due);
    if (sqlite3_open(path, &db) != SQLITE_OK ||
        sqlite3_exec(db, rows ? sql : "DELETE FROM messages;", NULL, NULL,
                     &why) != SQLITE_OK) {
        fprintf(stderr, "%s: %s\n", path, why ? why : sqlite3_errmsg(db));
        exit(1);
    }
    sqlite3_close(db);
}

static void message_send(void)
{
    mqd_t mq = mq_open(queue, O_WRONLY | O_NONBLOCK | O_CLOEXEC);

    if (mq == (mqd_t)-1 || mq_send(mq, "x", 1, 0) < 0)
        die("mq_send");
    mq_close(mq);
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* measure - times in order, and the memory after the last first delivery */
static long measure(uint64_t took[ROUNDS], enum kind kind)
{
    long kb = 0;

    for (int i = 0; i < ROUNDS; i++) {
        struct run r;

        if (kind != NOW)
            message_send();
        r = run_start();
        took[i] = run_first_ns(&r);
        kb = run_kb(&r);
        run_end(&r);
    }
    qsort(took, ROUNDS, sizeof *took, by_value);
    return kb;
}

/* compare - with a worker that has nothing waiting */
static void compare(uint64_t rows, enum kind kind)
{
    uint64_t took[ROUNDS], none[ROUNDS];
    long kb, base;

    store_fill(0, LATER);
    base = measure(none, LATER);
    store_fill(rows, kind);
    kb = measure(took, kind);
    printf("%8" PRIu64 " %-26s first delivery after %6.1f ms (%.1f to %.1f; "
           "none waiting: %.1f), %.2f bytes each\n",
           rows, kinds[kind], (double)took[MIDDLE] / 1e6, (double)took[0] / 1e6,
           (double)took[ROUNDS - 1] / 1e6, (double)none[MIDDLE] / 1e6,
           (double)(kb - base) * 1024 / (double)rows);
    fflush(stdout);
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
    static const char *const preset[] = {"", "10000", "100000", "1000000",
                                         NULL};
    struct mq_attr attr = {.mq_maxmsg = 10, .mq_msgsize = 256};
    const char *const *rows = argc > 1 ? (const char *const *)argv : preset;
    char self[4096];
    mqd_t mq;

    snprintf(self, sizeof self, "%s", argv[0]);
    snprintf(worker, sizeof worker, "%.4000s/../../bin/mqworker",
             dirname(self));
    snprintf(queue, sizeof queue, "/bench_restart.%d", (int)getpid());
    mq = mq_open(queue, O_RDWR | O_CREAT | O_EXCL, 0600, &attr);
    if (mq == (mqd_t)-1 || !mkdtemp(state))
        die(queue);
    mq_close(mq);
    atexit(clean);
    while (*++rows)
        for (enum kind kind = LATER; kind < KINDS; kind++)
            if (strtoull(*rows, NULL, 10) > 0)
                compare(strtoull(*rows, NULL, 10), kind);
    return 0;
}

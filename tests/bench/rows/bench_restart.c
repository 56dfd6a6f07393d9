/* bench_restart.c - from the start of a worker to its first delivery, while
 * many retries wait
 *
 * The store is filled with rows of 100 bytes, then a worker is started on it:
 * the rows are the time until its handler has written a byte, and the memory
 * that the worker then holds; the rival is a worker for which nothing waits.
 * The handler is /bin/echo, whose start is part of the time.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <mqueue.h>
#include <poll.h>
#include <sqlite3.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/state/statedir.h"
#include "common/store/store.h"
#include "tests/bench/bench.h"
#include "tests/bench/feed.h"
#include "tests/bench/program.h"

#define LIMIT_MS 60000
/* More than any row has: at this limit a worker takes nothing from the
 * queue. */
#define WAITING_MOST "2000000"

/* Make the queue's folder; return the path of its store. */
static void store_path(char path[PATH_MAX])
{
    struct statedir dir;
    struct problem p;

    if (statedir_open(&dir, place->state, place->queue, true, &p) < 0 ||
        statedir_path(&dir, STATEDIR_STORE, path, &p) < 0)
        fail(0, "%s", p.text);
}

/* Sync the store, or else the worker's first sync would wait for all of it. */
static void store_sync(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || fsync(fd) < 0)
        fail(errno, "%s", path);
    close(fd);
}

/* Fill the store in one transaction with the waiting rows of a busy year. */
static void store_fill(uint64_t rows, unsigned how)
{
    char path[PATH_MAX], sql[1024], *why = NULL;
    struct problem p;
    struct store *s;
    sqlite3 *db;
    uint64_t due = clock_wall_ns();

    store_path(path);
    if (store_open(&s, path, true, &p) < 0)
        fail(0, "%s", p.text);
    store_close(&s);
    due = how & HOW_NOW ? due - NS_PER_S : due + 3600 * NS_PER_S;
    snprintf(sql, sizeof sql,
             "DELETE FROM messages;"
             "WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c"
             " WHERE n < %" PRIu64 ") INSERT INTO messages (state, receive_seq,"
             " id, priority, attempts, crashes, flags, group_key, due_ns,"
             " first_received_ns, died_ns, reason, header_size, data) SELECT 1,"
             " n, randomblob(16), 0, 1, 0, 0, %s, %" PRIu64 " + n * 1000, 1, 0,"
             " 0, 0, zeroblob(100) FROM c;",
             rows, how & HOW_GROUPS ? "'group-' || n" : "NULL", due);
    if (sqlite3_open(path, &db) != SQLITE_OK ||
        sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK)
        fail(0, "%s: %s", path, why ? why : sqlite3_errmsg(db));
    sqlite3_close(db);
    store_sync(path);
}

/* Return a descriptor from which all later output to stdout can be read. */
static int stdout_catch(void)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0 || dup2(fds[1], 1) < 0)
        fail(errno, "pipe");
    close(fds[1]);
    return fds[0];
}

/* Wait for the first byte of a handler. */
static void first_wait(int out)
{
    struct pollfd p = {.fd = out, .events = POLLIN};

    if (poll(&p, 1, LIMIT_MS) != 1 || !(p.revents & POLLIN))
        fail(0, "no delivery in %d s", LIMIT_MS / 1000);
}

/* Measure the time to the first delivery, and the memory. */
static enum measured start(const struct task *task, double value[ROWS_MOST])
{
    int out = stdout_catch(), pid;
    uint64_t before;

    store_fill(task->n, task->how);
    if (task->n == 0 || !(task->how & HOW_NOW))
        program_send((int)feed_open(O_WRONLY), 1, task->size);
    before = clock_mono_ns();
    pid =
        program_start((const char *[]){"-c", "2", "--max-waiting", WAITING_MOST,
                                       "--", "/bin/echo", "x", NULL});
    first_wait(out);
    value[0] = (double)(clock_mono_ns() - before);
    value[1] = status_bytes(pid, "RssAnon:");
    program_stop(pid);
    return MEASURED;
}

static enum measured start_empty(const struct task *task,
                                 double value[ROWS_MOST])
{
    struct task none = *task;

    none.n = 0;
    return start(&none, value);
}

#define ROW(name_, what_, n_, how_)                                            \
    {                                                                          \
        .rows = {{"restart-" name_, what_ ": first delivery / none waiting",   \
                  "ns", LESS, 0, 0},                                           \
                 {"rss-" name_, what_ ": memory / none waiting", "B", LESS, 0, \
                  0}},                                                         \
        .ours = {.go = start}, .rival = {.go = start_empty},                   \
        .task = {.n = (n_), .depth = 10, .size = 256, .how = (how_)},          \
        .whole = true                                                          \
    }

static const struct duel duels[] = {
    ROW("10k", "10,000 due in an hour", 10000, 0),
    ROW("100k", "100,000 due in an hour", 100000, 0),
    ROW("1m", "1,000,000 due in an hour", 1000000, 0),
    ROW("100k-now", "100,000 due now", 100000, HOW_NOW),
    ROW("10k-group", "10,000 in as many groups", 10000, HOW_GROUPS),
    ROW("100k-group", "100,000 in as many groups", 100000, HOW_GROUPS),
};

const struct section section_restart = {
    .name = "restart",
    .what = "starting a worker while retries wait",
    DUELS(duels),
};

/* bench_spool.c - messages that wait on the disk (--spool)
 *
 * Intake: a sender fills a queue of ten while the only handler is busy; the
 * clock runs until the last message is on disk. The rival is what people write
 * who fear a reboot: a loop that receives and appends to SQLite, 64 messages in
 * a commit, with full sync. Sender: the handler sleeps for a millisecond, with
 * and without a spool; the clock runs until the sender has sent its last
 * message. Drain: from the disk, where all rows are at the start, to a C
 * function that does nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <mqueue.h>
#include <poll.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/state/statedir.h"
#include "common/store/spool.h"
#include "tests/bench/bench.h"
#include "tests/bench/feed.h"
#include "tests/bench/library.h"
#include "tests/bench/place.h"
#include "tests/bench/program.h"
#include "tests/bench/work.h"

#define BATCH   64
#define LIMIT_S 60

/* Make the queue's folder; return the path of its store. */
static void store_path(char path[PATH_MAX])
{
    struct statedir dir;
    struct problem p;

    if (statedir_open(&dir, place->state, place->queue, true, &p) < 0 ||
        statedir_path(&dir, STATEDIR_STORE, path, &p) < 0)
        fail(0, "%s", p.text);
}

static sqlite3 *db_open(const char *path, int flags)
{
    sqlite3 *db;

    if (sqlite3_open_v2(path, &db, flags, NULL) != SQLITE_OK)
        fail(0, "%s: %s", path, sqlite3_errmsg(db));
    sqlite3_busy_timeout(db, 10000);
    return db;
}

static void db_run(sqlite3 *db, const char *sql)
{
    char *why = NULL;

    if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK)
        fail(0, "%s: %s", sql, why ? why : sqlite3_errmsg(db));
}

/* ---- intake ---- */

/* Wait until the disk has `n` rows. One look a millisecond at a counter
 * disturbs little. */
static void rows_wait(sqlite3 *db, const char *sql, int64_t n)
{
    uint64_t end = clock_mono_ns() + LIMIT_S * NS_PER_S;
    int64_t have = -1;

    while (have < n) {
        sqlite3_stmt *st;

        if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK &&
            sqlite3_step(st) == SQLITE_ROW)
            have = sqlite3_column_int64(st, 0);
        sqlite3_finalize(st);
        if (have < n)
            (void)poll(NULL, 0, 1);
        if (clock_mono_ns() > end)
            fail(0, "%" PRId64 " of %" PRId64 " are on the disk after %d s",
                 have, n, LIMIT_S);
    }
}

/* Start a worker whose only handler has a message and keeps it. */
static int busy(const struct task *task, mqd_t mq)
{
    int pid =
        program_start((const char *[]){"-c", "1", "--spool", "--grace", "1ms",
                                       "--", "/bin/sleep", "1000", NULL});
    struct mq_attr attr = {.mq_curmsgs = 1};

    program_send((int)mq, 1, task->size);
    while (attr.mq_curmsgs > 0) {
        (void)poll(NULL, 0, 1);
        if (mq_getattr(mq, &attr) < 0)
            fail(errno, "mq_getattr");
    }
    return pid;
}

static enum measured intake(const struct task *task, double value[ROWS_MOST])
{
    mqd_t mq = feed_open(O_WRONLY);
    char path[PATH_MAX];
    int pid = busy(task, mq);
    uint64_t before;
    sqlite3 *db;

    store_path(path);
    db = db_open(path, SQLITE_OPEN_READWRITE);
    before = clock_mono_ns();
    program_send((int)mq, task->n, task->size);
    rows_wait(db, "SELECT count FROM spool_state", (int64_t)task->n);
    value[0] = 1e9 * (double)task->n / (double)(clock_mono_ns() - before);
    sqlite3_close(db);
    program_stop(pid);
    return MEASURED;
}

/* Receive up to `most` messages into one transaction; return how many. */
static unsigned long receive_batch(mqd_t mq, sqlite3 *db, sqlite3_stmt *st,
                                   unsigned long most)
{
    struct pollfd p = {.fd = (int)mq, .events = POLLIN};
    unsigned long n = 0;
    char body[FEED_MOST];
    ssize_t size;

    (void)poll(&p, 1, -1);
    db_run(db, "BEGIN IMMEDIATE");
    while (n < most) {
        size = mq_receive(mq, body, sizeof body, NULL);
        if (size < 0) {
            if (errno != EAGAIN)
                fail(errno, "mq_receive");
            (void)poll(&p, 1, -1);
            continue;
        }
        sqlite3_bind_blob(st, 1, body, (int)size, SQLITE_STATIC);
        if (sqlite3_step(st) != SQLITE_DONE)
            fail(0, "%s", sqlite3_errmsg(db));
        sqlite3_reset(st);
        n++;
    }
    db_run(db, "COMMIT");
    return n;
}

/* Measure what people write: this process receives, another one sends, as with
 * ours. */
static enum measured append(const struct task *task, double value[ROWS_MOST])
{
    mqd_t mq = feed_open(O_RDONLY | O_NONBLOCK);
    char path[PATH_MAX + 16];
    unsigned long left = task->n;
    sqlite3_stmt *st;
    uint64_t before;
    sqlite3 *db;
    int sender;

    snprintf(path, sizeof path, "%s/append.db", place->dir);
    db = db_open(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    db_run(db, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
               "CREATE TABLE t (n INTEGER PRIMARY KEY, body BLOB)");
    if (sqlite3_prepare_v2(db, "INSERT INTO t (body) VALUES (?1)", -1, &st,
                           NULL) != SQLITE_OK)
        fail(0, "%s", sqlite3_errmsg(db));
    before = clock_mono_ns();
    sender = feed_start(task);
    while (left > 0)
        left -= receive_batch(mq, db, st, left < BATCH ? left : BATCH);
    value[0] = 1e9 * (double)task->n / (double)(clock_mono_ns() - before);
    sqlite3_finalize(st);
    sqlite3_close(db);
    child_done(sender, "sender");
    return MEASURED;
}

/* ---- drain ---- */

/* Fill the spool as an intake would have left it. */
static void rows_fill(const struct task *task)
{
    char path[PATH_MAX], sql[512];
    struct problem p;
    struct store *s;
    sqlite3 *db;

    store_path(path);
    if (store_open(&s, path, true, &p) < 0)
        fail(0, "%s", p.text);
    store_close(&s);
    db = db_open(path, SQLITE_OPEN_READWRITE);
    snprintf(sql, sizeof sql,
             "WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c"
             " WHERE n < %lu) INSERT INTO spool SELECT %" PRId64
             " + n, 1, NULL, 0, 0, NULL, zeroblob(%zu) FROM c;"
             "UPDATE spool_state SET count = %lu;",
             task->n, store_spool_key(0, 0), task->size, task->n);
    db_run(db, sql);
    sqlite3_close(db);
}

struct drained {
    struct tally tally;
};

static int drain_one(const struct mqw_message *m, struct mqw_context *c)
{
    struct drained *d = mqw_user(c);

    (void)m;
    if (tally_count(&d->tally))
        mqw_stop(mqw_worker_of(c));
    return MQW_DONE;
}

static enum measured drain(const struct task *task, double value[ROWS_MOST])
{
    static struct drained d;
    struct task one = *task;

    one.threads = 1;
    rows_fill(task);
    tally_plan(&d.tally, task->n);
    library_run(&one, drain_one, &d);
    value[0] = tally_rate(&d.tally);
    return MEASURED;
}

/* ---- the sender ---- */

#define WITHOUT \
    50 /* without a spool so many times fewer: they take the time of
                    * their handlers */

static int work_one(const struct mqw_message *m, struct mqw_context *c)
{
    (void)m;
    work(mqw_user(c));
    return MQW_DONE;
}

/* Measure how fast messages can be sent. The first ones, which wait until the
 * worker is there, do not count. */
static enum measured sender(const struct task *task, double value[ROWS_MOST])
{
    unsigned long n = task->how & HOW_SPOOL ? task->n : task->n / WITHOUT;
    struct task one = *task;
    int worker = fork_bound();
    uint64_t before;
    mqd_t mq;

    if (worker == 0)
        library_run(&one, work_one, &one);
    mq = feed_open(O_WRONLY);
    program_send((int)mq, 2 * (unsigned long)task->depth, task->size);
    before = clock_mono_ns();
    program_send((int)mq, n, task->size);
    value[0] = 1e9 * (double)n / (double)(clock_mono_ns() - before);
    if (kill(worker, SIGKILL) < 0 || waitpid(worker, NULL, 0) < 0)
        fail(errno, "the worker");
    return MEASURED;
}

static const struct duel duels[] = {
    {.rows = {{"spool-intake",
               "64 B, a queue of 10, the handler is busy / mq_receive and "
               "SQLite, 64 a commit",
               "/s", MORE, 1.0, 1.5}},
     .ours = {.go = intake},
     .rival = {.go = append},
     .task = {.n = 100000, .depth = 10, .size = 64}},
    {.rows = {{"spool-sender",
               "64 B, a queue of 10, the handler sleeps 1 ms, --spool / "
               "without it",
               "/s", MORE, 10, 20}},
     .ours = {.go = sender, .how = HOW_SPOOL},
     .rival = {.go = sender},
     .task = {.n = 100000,
              .depth = 10,
              .size = 64,
              .work_ns = NS_PER_MS,
              .threads = 1,
              .how = HOW_SLEEPS}},
    {.rows = {{"spool-drain", "64 B, from the disk to a no-op", "/s", MORE,
               100000, 200000}},
     .ours = {.go = drain},
     .task = {.n = 200000, .depth = 10, .size = 64}},
};

const struct section section_spool = {
    .name = "spool",
    .what = "messages that wait on the disk",
    DUELS(duels),
};

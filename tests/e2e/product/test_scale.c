/* test_scale.c - mqworker: many waiting messages
 *
 * Rows are put into the store as a worker would have left them.
 * tests/bench/rows/bench_restart.c uses a million.
 */
#include "tests/e2e/tools/run_fixture.h"

#include <sqlite3.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

TestSuite(scale, .init = harness_init, .fini = harness_fini);

#define SOON_MS 10000
#define NS_MS   UINT64_C(1000000)
#define MANY    10000

static uint64_t clock_ns(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * 1000 * NS_MS + (uint64_t)now.tv_nsec;
}

/* Return the path of the queue's store. */
static const char *store_path(const char *q)
{
    return harness_path("%s%s/store.db", harness_state_dir(), q);
}

/* Run a worker once; return the path of the store that it leaves. */
static const char *store_ready(const char *q)
{
    struct harness_process *w =
        harness_worker(q, "--exit-when-idle", "--", SPAN, "0");
    run_end(w, SOON_MS);
    return store_path(q);
}

/* Add rows that wait, numbered from `first` and due `gap_ns` apart; a body has
 * the number and the time. One transaction is used, because many take long on a
 * busy disk. */
static void rows_put(const char *path, int first, int n, uint64_t due_ns,
                     uint64_t gap_ns)
{
    char sql[1024], *why = NULL;
    sqlite3 *db;
    snprintf(sql, sizeof sql,
             "WITH RECURSIVE c (n, due) AS (SELECT %d, %" PRIu64
             " UNION ALL SELECT n + 1, due + %" PRIu64 " FROM c WHERE n < %d)"
             " INSERT INTO messages (state, id, priority, attempts, crashes,"
             " flags, due_ns, first_received_ns, died_ns, reason, header_size,"
             " data) SELECT 1, randomblob(16), 0, 0, 0, 0, due, 1, 0, 0, 0,"
             " CAST(n || ' ' || due AS BLOB) FROM c",
             first, due_ns, gap_ns, first + n - 1);
    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(db, sql, NULL, NULL, &why), SQLITE_OK, "%s", why);
    sqlite3_close(db);
}

/* Return the worker's memory as the kernel counts it. */
static long memory_kb(const struct harness_process *w)
{
    const char *status =
        harness_read(harness_path("/proc/%d/status", harness_pid(w)), NULL);
    const char *at = strstr(status, "RssAnon:");
    cr_assert_not_null(at);
    return atol(at + strlen("RssAnon:"));
}

static bool sanitized(const struct harness_process *w)
{
    const char *maps = harness_path("/proc/%d/maps", harness_pid(w));
    return harness_lines_with(maps, "libasan") ||
           harness_lines_with(maps, "libtsan");
}

Test(scale, ten_thousand_delayed_messages_cost_no_slots_and_no_memory)
{
    const char *q = harness_queue(0, 0);
    char *lines = calloc(MANY + 1, 7);
    cr_assert_not_null(lines);
    for (int i = 0; i < MANY; i++)
        sprintf(lines + 7 * i, "%6d\n", i);
    struct harness_process *w = harness_worker(q, "-c", "2", "--", SPAN, "0");
    harness_wait_log(w, "event=started", SOON_MS);
    harness_send_text(q, "first");
    harness_until_lines("spans", 1, SOON_MS);
    const char *custody = harness_custody(q);
    struct stat before, after;
    cr_assert_eq(stat(custody, &before), 0);
    long memory = memory_kb(w);
    struct harness_process *sender = harness_start(&(struct harness_spec){
        .argv = HARNESS_LIST("mqsend", "--lines", "--delay", "1h", q),
        .input = lines,
        .input_size = 7 * MANY});
    cr_assert_eq(harness_wait(sender, 60000), 0);
    free(lines);
    harness_send_text(q, "now");
    harness_until_lines("spans", 2, 10000);
    cr_assert_eq(harness_queue_length(q), 0);
    cr_assert_eq(stat(custody, &after), 0);
    cr_assert_eq(before.st_size, after.st_size, "waiting messages take slots");
    /* The cache of the store takes about 900 KiB, more on a busy machine. */
    if (!sanitized(w))
        cr_assert_leq(memory_kb(w) - memory, 200 * MANY / 1024, "%ld KiB more",
                      memory_kb(w) - memory);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(
        harness_sql(q, "SELECT count(*) FROM messages WHERE state = 1"), MANY);
    cr_assert_eq(harness_lines("spans"), 2);
}

/* Check that no message ran before it was due. Return how many ran, and in
 * *late_ms by how much the last one was late, counted from its time or from the
 * start of the worker. */
static size_t due_check(uint64_t *late_ms)
{
    size_t n;
    uint64_t late = 0;
    const struct run_span *spans = run_spans(&n);
    uint64_t first = UINT64_MAX;
    /* Difference of the two clocks, which are not set meanwhile. */
    uint64_t apart = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC);
    bool *seen = calloc(MANY, sizeof *seen);
    for (size_t i = 0; i < n; i++)
        if (spans[i].start_ns + apart < first)
            first = spans[i].start_ns + apart;
    for (size_t i = 0; i < n; i++) {
        int number;
        uint64_t due, ran = spans[i].start_ns + apart;
        cr_assert_eq(sscanf(spans[i].body, "%d %" SCNu64, &number, &due), 2);
        cr_assert(number >= 0 && number < MANY && !seen[number]);
        seen[number] = true;
        cr_assert_geq(ran + NS_MS, due, "%d came early", number);
        due = due > first ? due : first;
        late = ran > due + late ? ran - due : late;
    }
    free(seen);
    *late_ms = late / NS_MS;
    return n;
}

/* An upper bound of time must hold in one of so many runs, because the machine
 * may be busy. */
#define RUNS 3

Test(scale, what_is_due_among_ten_thousand_comes_when_it_is_due)
{
    enum { SOON = 500 };
    uint64_t late_ms;
    int runs = 0;
    do {
        const char *q = harness_queue(0, 0);
        const char *path = store_ready(q);
        harness_write("spans", "", 0);
        rows_put(path, SOON, MANY - SOON,
                 clock_ns(CLOCK_REALTIME) + 3600000 * NS_MS, 1);
        /* One row every 4 ms, beginning in half a second. */
        rows_put(path, 0, SOON,
                 clock_ns(CLOCK_REALTIME) + run_slow(500) * NS_MS,
                 run_slow(4) * NS_MS);
        struct harness_process *w =
            harness_worker(q, "-c", "2", "--", SPAN, "0");
        harness_until_lines("spans", SOON, 20000);
        cr_assert_eq(harness_stop(w, SOON_MS), 0);
        cr_assert_eq(due_check(&late_ms), SOON);
    } while (late_ms > run_slow(1000) && ++runs < RUNS);
    cr_assert_leq(late_ms, run_slow(1000));
}

Test(scale, ten_thousand_that_are_due_at_once_all_run_once)
{
    int many = MANY / (int)run_slow(1); /* a process for each */
    uint64_t late_ms;
    const char *q = harness_queue(0, 0);
    rows_put(store_ready(q), 0, many,
             clock_ns(CLOCK_REALTIME) + run_slow(200) * NS_MS, 0);
    struct harness_process *w = harness_worker(q, "-c", "4", "--", SPAN, "0");
    harness_until_lines("spans", many, 60000);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(due_check(&late_ms), (size_t)many);
    cr_assert_leq(late_ms, 60000 * run_slow(1));
}

Test(scale, a_restart_with_ten_thousand_that_wait_is_quick)
{
    size_t n;
    uint64_t took;
    int runs = 0;
    const char *q = harness_queue(0, 0);
    rows_put(store_ready(q), 0, MANY,
             clock_ns(CLOCK_REALTIME) + 3600000 * NS_MS, 1);
    do {
        harness_send_text(q, "x");
        uint64_t before = clock_ns(CLOCK_MONOTONIC);
        struct harness_process *w = harness_worker(q, "--", SPAN, "0");
        harness_until_lines("spans", runs + 1, SOON_MS);
        took = run_spans(&n)[runs].start_ns - before;
        cr_assert_eq(harness_stop(w, SOON_MS), 0);
        /* 150 ms is promised for an idle machine; this one may be busy. */
    } while (took > run_slow(1000) * NS_MS && ++runs < RUNS);
    cr_assert_leq(took, run_slow(1000) * NS_MS, "%" PRIu64 " ms", took / NS_MS);
}

/* test_soak.c - weeks in minutes: nothing grows, and each message ends once
 *
 * The test runs a worker and mqctl serve ("the page") and sets their clock
 * ahead a day at a time, and sometimes back. Each day brings messages, retries,
 * dead letters, groups and delays, and one of: a full disk, a removed queue, a
 * lowered cap and a pause, replayed letters. At the end of a day everything is
 * at rest: the counters must add up, and what the programs hold is compared
 * with the days before. After a span of days the worker is stopped in the
 * middle of its work and another one continues. MQW_SOAK_SECONDS makes the test
 * longer (make soak SOAK_SECONDS=3600). Under a sanitizer (make soak-asan)
 * memory is not compared, because sanitizers keep freed memory for a while.
 */
#include "tests/crash/soak_samples.h"
#include "tests/e2e/serve/serve_fixture.h"
#include "tests/harness/disk.h"
#include "tests/harness/preload.h"
#include "tests/harness/turns.h"

#include <fcntl.h>
#include <mqueue.h>
#include <sqlite3.h>
#include <unistd.h>

#define SHORT_DAYS 12  /* without MQW_SOAK_SECONDS; the next worker adds one */
#define SPAN_DAYS  400 /* days of one worker */
#define LEAK_DAYS  8
#define DAY_S      86400L
#define NUMBERS    2000000
#define REST_MS    30000
#define BATCH      40
#define GROUP      8 /* messages a day with a group */
#define HELD       9 /* messages that have room in the queue */
/* Smaller growth is noise: pages of the journal and of the allocator that are
 * touched for the first time, and a -wal below the 4 MiB at which SQLite starts
 * it again from the front. */
#define MEMORY_KIB 256
#define WAL_KIB    1400
#define STORE_KIB  256

/* What is known of a message, whose body is its number (plugins/ledger.c). */
struct entry {
    uint8_t ends;
    bool sent, cancelled;
    uint32_t attempts; /* bits of the attempts that were started */
};

static struct soak {
    const char *queue;
    struct harness_process *worker;
    struct web page;
    int stream; /* connection that reads the events of the page */
    unsigned long sent, cancelled, letters_gone;
    unsigned long cancelled_before; /* before this worker */
    unsigned long runs, repeats, marked;
    unsigned long died, logged; /* deaths: in the counters; in the log */
    unsigned long full;         /* times that the log reported a full disk */
    unsigned workers;
    const char *leak;
    long days;
    long began_at, ended_at; /* position in the notes of the plugin */
    struct entry *entries;
    struct series memory, descriptors, threads, wal, store, files, groups;
    struct series page_memory, page_descriptors, page_threads;
} soak;

TestSuite(soak, .init = preload_init, .fini = harness_fini, .timeout = 8000);

/* ---- the ledger ---- */

static struct entry *entry(unsigned long n)
{
    cr_assert(n > 0 && n < NUMBERS, "number %lu", n);
    return &soak.entries[n];
}

/* Return true for a message that dies at each attempt. */
static bool is_letter(unsigned long n)
{
    return n % 100 == 0;
}

/* Read the new notes. No worker is killed, so only a replayed letter may start
 * the same attempt twice. */
static void ledger_read(void)
{
    unsigned long n, attempt, redelivered;
    char line[128];

    while (harness_next_line("began", &soak.began_at, line, sizeof line)) {
        cr_assert_eq(sscanf(line, "%lu %lu %lu", &n, &attempt, &redelivered),
                     3);
        cr_assert(attempt > 0 && attempt < 32, "%s", line);
        cr_assert(!entry(n)->cancelled, "%lu was cancelled and ran", n);
        soak.runs++;
        if (entry(n)->attempts & 1U << attempt && !is_letter(n)) {
            soak.repeats++;
            soak.marked += redelivered == 1;
        }
        entry(n)->attempts |= 1U << attempt;
    }
    while (harness_next_line("ended", &soak.ended_at, line, sizeof line)) {
        cr_assert_eq(sscanf(line, "%lu", &n), 1);
        entry(n)->ends++;
    }
}

/* ---- rest ---- */

/* Return true if no message is under way and each delivery has ended. */
static bool is_at_rest(void)
{
    static const char *const none[] = {"depth",   "waiting", "parked",
                                       "spooled", "custody", "in_flight"};
    json_t *o = ctl_status(soak.queue);
    bool rests = true;

#define COUNT(name) json_integer_value(json_object_get(o, name))
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        rests &= COUNT(none[i]) == 0;
    rests &= COUNT("deliveries") ==
                 COUNT("done") + COUNT("retried") + COUNT("died") &&
             COUNT("discarded") ==
                 (json_int_t)(soak.cancelled - soak.cancelled_before) &&
             COUNT("crashes") == 0;
#undef COUNT
    json_decref(o);
    return rests;
}

/* ---- the log ---- */

/* The configuration in docs/systemd.md; without logrotate, the same by hand. */
static const char rotation[] =
    "cd \"$1\"; umask 077\n"
    "PATH=$PATH:/usr/sbin\n"
    "command -v logrotate >/dev/null || { cp log log.1; : >log; exit 0; }\n"
    "echo \"\"$1\"/log { rotate 1\n missingok\n copytruncate\n }\" >rotate\n"
    "logrotate --force --state \"$1\"/rotated rotate";

/* Rotate the log while nothing writes to it, and count lines of the part that
 * was rotated out. */
static void log_rotate(void)
{
    struct harness_result r =
        harness_run("sh", "-euc", rotation, "sh", harness_dir());
    size_t size;
    const char *text;

    cr_assert_eq(r.status, 0, "%s%s", r.out, r.err);
    text = harness_read("log.1", &size);
    cr_assert_null(memchr(text, '\0', size), "a hole in the log");
    soak.logged += harness_lines_with("log.1", "event=dead ");
    soak.full += harness_lines_with("log.1", "event=store_cannot_write") > 0;
}

/* ---- a day's work ---- */

/* Set the clock of the programs of this test. */
static void clock_set(long seconds)
{
    char text[32];

    snprintf(text, sizeof text, "%ld\n", seconds);
    harness_write("clock.new", text, strlen(text));
    cr_assert_eq(rename(harness_path("clock.new"), harness_path("clock")), 0);
}

#define mqsend(...) cr_assert_eq(harness_run("mqsend", __VA_ARGS__).status, 0)

/* Send the next n messages, with a group or without. */
static void send_batch(unsigned n, const char *group)
{
    char lines[BATCH * 12];
    size_t size = 0;
    struct harness_result r;

    for (unsigned i = 0; i < n; i++) {
        entry(++soak.sent)->sent = true;
        size += (size_t)snprintf(lines + size, sizeof lines - size, "%lu\n",
                                 soak.sent);
    }
    r = harness_run_spec(&(struct harness_spec){
        .argv = group
                    ? HARNESS_LIST("mqsend", "--lines", "--quiet", "--group",
                                   group, soak.queue)
                    : HARNESS_LIST("mqsend", "--lines", "--quiet", soak.queue),
        .input = lines,
        .input_size = size});
    cr_assert_eq(r.status, 0, "%s", r.err);
}

/* Send a message for tomorrow and wait until it is stored; return its id. */
static const char *send_delayed(void)
{
    static char id[32];
    char body[16];
    struct harness_result r;

    entry(++soak.sent)->sent = true;
    snprintf(body, sizeof body, "%lu", soak.sent);
    r = harness_run("mqsend", "--print-id", "--delay", "20h", soak.queue, body);
    cr_assert_eq(r.status, 0, "%s", r.err);
    snprintf(id, sizeof id, "%.26s", r.out);
    harness_until(ctl_number(soak.queue, "waiting") > 0, REST_MS);
    return id;
}

/* Cancel one delayed message and run another one now. */
static void use_delays(void)
{
    const char *id = send_delayed();

    (void)ctl_out("cancel", "-q", soak.queue, id);
    entry(soak.sent)->cancelled = true;
    soak.cancelled++;
    harness_until(ctl_number(soak.queue, "waiting") == 0, REST_MS);
    id = send_delayed();
    (void)ctl_out("run-now", "-q", soak.queue, id);
}

static long wal_kib(void)
{
    return soak_kib(
        harness_path("%s%s/store.db-wal", harness_state_dir(), soak.queue));
}

/* Empty the -wal from another process, so that each commit needs space on the
 * disk again. */
static void wal_empty(void)
{
    sqlite3 *db;

    cr_assert_eq(sqlite3_open(harness_path("%s%s/store.db", harness_state_dir(),
                                           soak.queue),
                              &db),
                 SQLITE_OK);
    /* A connection that has read nothing would not find the -wal. */
    cr_assert_eq(sqlite3_exec(db, "SELECT 1 FROM messages", NULL, NULL, NULL),
                 SQLITE_OK);
    harness_until(sqlite3_wal_checkpoint_v2(db, NULL,
                                            SQLITE_CHECKPOINT_TRUNCATE, NULL,
                                            NULL) == SQLITE_OK,
                  REST_MS);
    sqlite3_close(db);
    cr_assert_eq(wal_kib(), 0);
}

/* Send messages until one of the next HELD ones will die. */
static void send_until_letter(void)
{
    unsigned long before = soak.sent % 100;

    while (before + HELD < 100) {
        unsigned n = (unsigned)(100 - HELD - before);

        send_batch(n < BATCH ? n : BATCH, NULL);
        before = soak.sent % 100;
    }
    harness_until(is_at_rest(), REST_MS);
}

/* Fill the disk while messages fail; they all have room in the queue. Short
 * delays are spent in custody, and an existing -wal has room for some commits,
 * so the worker notices a full disk only if a letter must be written to an
 * empty -wal. That is done on few days, because the size of the -wal is
 * compared. */
static void fill_disk(void)
{
    bool noticed = soak.days % 16 == 1;

    if (noticed) {
        send_until_letter();
        wal_empty();
    }
    disk_fill();
    send_batch(HELD, NULL);
    harness_until(noticed
                      ? harness_lines_with("log", "event=store_cannot_write")
                      : harness_queue_length(soak.queue) == 0 ||
                            !ctl_is(soak.queue, "state", "running"),
                  REST_MS);
    disk_free();
}

/* Remove the queue; the worker creates it again. */
static void remove_queue(void)
{
    cr_assert_eq(mq_unlink(soak.queue), 0);
    harness_until(harness_queue_length(soak.queue) >= 0, REST_MS);
    send_batch(BATCH, NULL);
}

/* Set all settings in one command to the values that they have. */
static void set_all(void)
{
    json_t *o = ctl_status(soak.queue), *value;
    const char *argv[64] = {"mqctl", "set", "--state-dir", harness_state_dir(),
                            soak.queue},
               *name;
    char words[40][64];
    size_t n = 0;

    json_object_foreach(json_object_get(o, "settings"), name, value)
    {
        cr_assert_lt(n, sizeof words / sizeof *words);
        if (json_is_string(value))
            snprintf(words[n], sizeof *words, "%s=%s", name,
                     json_string_value(value));
        else
            snprintf(words[n], sizeof *words, "%s=%lld", name,
                     (long long)json_integer_value(value));
        argv[5 + n] = words[n];
        n++;
    }
    cr_assert_gt(n, 15, "%zu settings", n);
    (void)ctl_good(harness_run_spec(&(struct harness_spec){.argv = argv}));
    json_decref(o);
}

/* Lower the cap, pause, resume, raise the cap, change settings. */
static void steer(void)
{
    set_all();
    (void)ctl_out("set", soak.queue, "max-concurrency=2", "timeout=30s");
    send_batch(BATCH, NULL);
    harness_until(harness_queue_length(soak.queue) == 0, REST_MS);
    (void)ctl_out("pause", soak.queue);
    send_batch(HELD, NULL);
    (void)ctl_out("resume", soak.queue);
    (void)ctl_out("set", soak.queue, "max-concurrency=8", "timeout=1m");
}

#define dlq(verb, ...)                                               \
    harness_run("mqdlq", (verb), "--state-dir", harness_state_dir(), \
                soak.queue, __VA_ARGS__)

/* List, replay and discard letters. */
static void use_letters(void)
{
    long long letters = turns_rows(soak.queue, "state = 3");

    (void)ctl_out("list", soak.queue);
    (void)ctl_out("groups", soak.queue);
    cr_assert_eq(dlq("list", NULL).status, 0);
    if (letters == 0)
        return;
    cr_assert_eq(dlq("replay", "--all").status, 0);
    harness_until(turns_rows(soak.queue, "state = 3") == letters, REST_MS);
    cr_assert_eq(dlq("discard", "--all").status, 0);
    soak.letters_gone += (unsigned long)letters;
}

/* Load each view of the page and read its events. */
static void view_page(void)
{
    char text[4096];

    (void)web_get(&soak.page, "/api/v1/queues/%s", soak.queue + 1);
    (void)web_get(&soak.page, "/api/v1/queues/%s/messages", soak.queue + 1);
    (void)web_get(&soak.page, "/api/v1/letters/groups?queue=%s",
                  soak.queue + 1);
    (void)web_get(&soak.page, "/api/v1/queues/%s/letters", soak.queue + 1);
    (void)web_get(&soak.page, "/metrics");
    while (recv(soak.stream, text, sizeof text, MSG_DONTWAIT) > 0)
        continue;
}

/* Record what the programs hold at the end of a day. */
static void samples_take(void)
{
    pid_t w = harness_pid(soak.worker), p = harness_pid(soak.page.p);

    series_add(&soak.memory, soak_memory(w));
    series_add(&soak.descriptors, soak_descriptors(w));
    series_add(&soak.threads, soak_threads(w));
    series_add(&soak.wal, wal_kib());
    series_add(&soak.store,
               soak_kib(harness_path("%s%s/store.db", harness_state_dir(),
                                     soak.queue)));
    series_add(
        &soak.files,
        soak_entries(harness_path("%s%s", harness_state_dir(), soak.queue)) +
            soak_entries(harness_runtime_folder(soak.queue)));
    series_add(&soak.groups, ctl_number(soak.queue, "groups"));
    series_add(&soak.page_memory, soak_memory(p));
    series_add(&soak.page_descriptors, soak_descriptors(p));
    series_add(&soak.page_threads, soak_threads(p));
}

/* Run one day. The clock goes ahead, and on each fifth day back by more than an
 * hour. */
static void run_day(void)
{
    static void (*const events[])(void) = {use_letters, fill_disk, remove_queue,
                                           steer};
    char group[32];

    clock_set(soak.days * DAY_S - (soak.days % 5 == 3 ? 5400 : 0));
    snprintf(group, sizeof group, "day %ld", soak.days);
    send_batch(BATCH, NULL);
    send_batch(GROUP, group);
    harness_until(is_at_rest(), REST_MS);
    use_delays();
    harness_until(is_at_rest(), REST_MS);
    events[soak.days % 4]();
    view_page();
    harness_until(is_at_rest(), REST_MS);
    log_rotate();
    ledger_read();
    samples_take();
    soak.days++;
}

/* ---- from start to end ---- */

#define SERIES(what, step)              \
    (struct series)                     \
    {                                   \
        .name = (what), .grain = (step) \
    }

/* Start all series, for a new worker and for the page. */
static void series_begin(void)
{
    soak.memory = SERIES("memory of the worker, KiB", MEMORY_KIB);
    soak.descriptors = SERIES("descriptors of the worker", 0);
    soak.threads = SERIES("threads of the worker", 1);
    soak.wal = SERIES("-wal, KiB", WAL_KIB);
    soak.store = SERIES("store, KiB", STORE_KIB);
    soak.files = SERIES("files of the queue", 0);
    soak.groups = SERIES("known groups", 0);
    soak.page_memory = SERIES("memory of the page, KiB", MEMORY_KIB);
    soak.page_descriptors = SERIES("descriptors of the page", 0);
    soak.page_threads = SERIES("threads of the page", 1);
}

/* Start a worker; its log must be empty or missing. */
static void worker_begin(void)
{
    const char *more = "exec \"$@\" 2>>\"$TEST_DIR/log\"";

    soak.worker = harness_start(&(struct harness_spec){
        .argv = HARNESS_LIST("sh", "-c", more, "sh", harness_bin("mqworker"),
                             "--state-dir", harness_state_dir(), soak.queue,
                             "-c", "8", "--backoff", "20ms", "--plugin",
                             harness_plugin("ledger")),
        .env = HARNESS_LIST(soak.leak)});
    harness_until(harness_lines_with("log", "event=started") > 0, SOON_MS);
    soak.workers++;
    soak.cancelled_before = soak.cancelled;
    series_begin();
}

/* Stop the worker cleanly and keep its count of deaths. */
static void worker_end(void)
{
    soak.died += (unsigned long)ctl_number(soak.queue, "died");
    cr_assert_eq(harness_stop(soak.worker, SOON_MS), 0);
    log_rotate();
}

/* Restart the worker while messages wait and run; the page stays. No message is
 * delayed: after the clock of a worker was set, its rows would be due that much
 * too early or late for the next worker (docs/design/lifecycle.md). */
static void restart(void)
{
    send_batch(HELD, NULL);
    worker_end();
    worker_begin();
}

/* Start the worker and the page. `leak`: an environment variable that makes the
 * plugin keep descriptors; NULL: none. */
static void soak_start(const char *leak)
{
    char text[512];

    disk_mount("16m");
    clock_set(0);
    setenv("CLOCK_SHIFT", harness_path("clock"), 1);
    setenv("LD_PRELOAD", harness_plugin("clock_shift"), 1);
    soak = (struct soak){.queue = harness_queue(0, 0),
                         .leak = leak,
                         .entries = calloc(NUMBERS, sizeof *soak.entries)};
    cr_assert_not_null(soak.entries);
    worker_begin();
    soak.page = web_start(NULL);
    soak.stream = web_connect(&soak.page);
    snprintf(text, sizeof text,
             "GET /api/v1/events HTTP/1.1\r\nHost: localhost:%u\r\n"
             "Authorization: Bearer %s\r\n\r\n",
             soak.page.port, soak.page.token);
    (void)send(soak.stream, text, strlen(text), MSG_NOSIGNAL);
    cr_assert(strstr(web_read(soak.stream, "\n\n")->text, "event: hello"));
}

/* Check that each message ended once. */
static void audit(void)
{
    unsigned long dead = (unsigned long)turns_rows(soak.queue, "state = 3");
    unsigned long letters = 0;

    for (unsigned long n = 1; n <= soak.sent; n++) {
        const struct entry *e = entry(n);
        unsigned wanted = !e->cancelled && !is_letter(n);

        letters += !e->cancelled && is_letter(n);
        cr_expect_eq(e->ends, wanted, "number %lu has %u ends", n, e->ends);
        cr_expect(e->cancelled || e->attempts, "number %lu is lost", n);
    }
    cr_expect_eq(dead + soak.letters_gone, letters, "%lu + %lu letters of %lu",
                 dead, soak.letters_gone, letters);
    cr_expect_eq(soak.repeats, soak.marked);
    cr_expect_eq(soak.logged, soak.died, "%lu deaths, %lu lines of the log",
                 soak.died, soak.logged);
    cr_expect_gt(soak.full, 0, "no disk was full");
    printf("soak: %ld days, %u workers, %lu messages, each with one end; %lu "
           "deliveries, %lu repeats, %lu cancelled, %lu letters, %lu full "
           "disks\n",
           soak.days, soak.workers, soak.sent, soak.runs, soak.repeats,
           soak.cancelled, letters, soak.full);
}

/* Check that nothing that the programs hold has grown. */
static void held_flat(void)
{
    const struct series *memory[] = {&soak.memory, &soak.page_memory};
    const struct series *all[] = {&soak.descriptors,
                                  &soak.threads,
                                  &soak.wal,
                                  &soak.store,
                                  &soak.files,
                                  &soak.groups,
                                  &soak.page_descriptors,
                                  &soak.page_threads};

    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (!getenv("MQW_SANITIZED"))
            series_flat(memory[i]);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        series_flat(all[i]);
}

static void soak_end(void)
{
    close(soak.stream);
    web_stop(&soak.page);
    free(soak.entries);
}

/* Run days with one worker, at most until `end_ms`. */
static void run_days(long days, uint64_t end_ms)
{
    for (long i = 0; i < days && harness_now_ms() < end_ms; i++)
        run_day();
}

Test(soak, nothing_grows_and_each_message_has_one_end)
{
    const char *text = getenv("MQW_SOAK_SECONDS");
    uint64_t seconds = text ? strtoull(text, NULL, 10) : 0;
    uint64_t end_ms = seconds ? harness_now_ms() + seconds * 1000 : UINT64_MAX;

    soak_start(NULL);
    do {
        run_days(seconds ? SPAN_DAYS : SHORT_DAYS, end_ms);
        held_flat();
        restart();
        run_days(1, UINT64_MAX);
    } while (seconds && harness_now_ms() < end_ms && soak.days < SOAK_DAYS);
    worker_end();
    audit();
    soak_end();
}

/* The test must find a leak of one descriptor for each message. */
Test(soak, descriptors_that_are_kept_are_found)
{
    soak_start("LEDGER_KEEPS=1");
    for (; soak.days < LEAK_DAYS; soak.days++) {
        send_batch(5, NULL);
        harness_until(is_at_rest(), REST_MS);
        samples_take();
    }
    cr_expect(series_grows(&soak.descriptors));
    cr_expect_not(series_grows(&soak.threads));
    worker_end();
    soak_end();
}

/* A step, a sawtooth and a constant are not growth. */
Test(soak, only_what_goes_on_growing_is_growth)
{
    static const struct {
        long at[16];
        bool grows;
    } cases[] = {
        {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, true},
        {{1, 9, 9, 9, 5, 5, 5, 5, 5, 5, 9, 9, 9, 9, 9, 9}, false},
        {{1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 4}, false},
        {{7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7}, false},
        {{0, 0, 0, 0, 4, 5, 4, 6, 6, 7, 8, 8, 9, 11, 10, 11}, true},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct series *s = &soak.memory;

        *s = (struct series){.n = 16};
        memcpy(s->at, cases[i].at, sizeof cases[i].at);
        cr_expect_eq(series_grows(s), cases[i].grows, "%zu", i);
    }
}

/* test_store_commit.c - shared commits: grouping, failures, a full disk
 *
 * The seam is the system call that makes a commit durable: this program's
 * fdatasync and fsync stand in front of the C library's, also for SQLite.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "common/custody/slot.h"
#include "tests/fixtures/store_fixture.h"
#include "tests/unit/store/store_stats.h"

TestSuite(commit, .init = fixture_init, .fini = fixture_fini);

#define THREADS 16

/* ---- the seam ---- */

static atomic_bool gate_closed; /* syncs wait while it is */
static atomic_int at_gate;      /* syncs that wait */
static atomic_int syncs;        /* syncs that were let through */
static atomic_int fail_from;    /* the n-th sync and later fail; 0: none */
static void (*at_sync)(void);   /* runs in each sync; NULL: nothing */

static int sync_hook(int fd, long call)
{
    if (at_sync)
        at_sync();
    atomic_fetch_add(&at_gate, 1);
    while (atomic_load(&gate_closed))
        sched_yield();
    atomic_fetch_sub(&at_gate, 1);
    int n = atomic_fetch_add(&syncs, 1) + 1;
    if (fail_from && n >= fail_from) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(call, fd);
}

int fdatasync(int fd)
{
    return sync_hook(fd, SYS_fdatasync);
}

int fsync(int fd)
{
    return sync_hook(fd, SYS_fsync);
}

/* ---- writers ---- */

struct writer {
    pthread_t thread;
    struct store *s;
    struct store_row m;
    int puts; /* how many to make; stops at the first error */
    int result;
    int64_t row;
};

static void *writer_run(void *arg)
{
    struct writer *w = arg;
    for (int i = 0; i < w->puts && w->result == 0; i++)
        w->result = store_put(w->s, &w->m, NULL, &w->row);
    return NULL;
}

static void writer_start(struct writer *w, struct store *s, const char *text)
{
    *w = (struct writer){.s = s, .puts = 1};
    w->m = fixture_row(STORE_DEAD, text);
    pthread_create(&w->thread, NULL, writer_run, w);
}

static unsigned waiting(struct store *s)
{
    struct store_stats stats;
    store_stats(s, &stats);
    return stats.waiting;
}

/* Get one writer into its sync, and n - 1 more behind it. */
static void writers_pile_up(struct writer *w, int n, struct store *s)
{
    atomic_store(&gate_closed, true);
    writer_start(&w[0], s, "first");
    WAIT_FOR(atomic_load(&at_gate) == 1);
    for (int i = 1; i < n; i++)
        writer_start(&w[i], s, "more");
    WAIT_FOR(waiting(s) == (unsigned)n - 1);
}

static void writers_finish(struct writer *w, int n)
{
    atomic_store(&gate_closed, false);
    for (int i = 0; i < n; i++)
        pthread_join(w[i].thread, NULL);
}

/* ---- grouping ---- */

Test(commit, writers_that_come_during_a_sync_share_the_next_one)
{
    struct writer w[THREADS];
    struct store_stats stats;
    struct store *s = fixture_open();
    int64_t seen[THREADS + 1] = {0};
    writers_pile_up(w, THREADS, s);
    writers_finish(w, THREADS);
    store_stats(s, &stats);
    cr_assert(stats.commits == 2, "%d commits", (int)stats.commits);
    cr_assert(stats.waiting == 0);
    cr_assert(store_count(s, STORE_DEAD) == THREADS);
    for (int i = 0; i < THREADS; i++) {
        cr_assert(w[i].result == 0 && w[i].row >= 1 && w[i].row <= THREADS);
        cr_assert(seen[w[i].row]++ == 0, "two writers got one row");
    }
    store_close(&s);
}

/* ---- the slot that a row came from ---- */

static struct store *later_store;
static struct slot *later_slot;
static atomic_int
    later_states[SLOT_RUNNING + 1]; /* at syncs of later commits */

/* Return a HELD slot, in memory of its own. */
static struct slot *slot_held(void)
{
    struct slot *slot = aligned_alloc(64, SLOT_HEADER);
    cr_assert(slot);
    memset(slot, 0, SLOT_HEADER);
    slot_hold(slot, &(struct slot_meta){.seq = 1});
    return slot;
}

static void look_at_slot(void)
{
    if (waiting(later_store) == 0) /* they are in the transaction */
        atomic_fetch_add(&later_states[slot_word(later_slot).state], 1);
}

/* A reader of the row may have changed it before its writer is awake. */
Test(commit, the_slot_is_free_before_anything_later_is_written)
{
    struct writer w[3];
    struct store *s = later_store = fixture_open();
    later_slot = slot_held();
    atomic_store(&gate_closed, true);
    w[0] = (struct writer){.s = s, .puts = 1};
    w[0].m = fixture_row(STORE_WAITING, "first");
    w[0].m.slot = later_slot;
    w[0].m.retire = slot_retire;
    pthread_create(&w[0].thread, NULL, writer_run, &w[0]);
    WAIT_FOR(atomic_load(&at_gate) == 1);
    cr_assert_eq(slot_word(later_slot).state, SLOT_HELD, "free too early");
    writer_start(&w[1], s, "later");
    writer_start(&w[2], s, "later");
    WAIT_FOR(waiting(s) == 2);
    at_sync = look_at_slot;
    writers_finish(w, 3);
    at_sync = NULL;
    cr_assert_geq(later_states[SLOT_FREE], 1);
    cr_assert_eq(later_states[SLOT_HELD], 0);
    cr_assert(slot_free(later_slot));
    free(later_slot);
    store_close(&s);
}

Test(commit, slots_are_in_use_as_before_when_a_sync_fails)
{
    struct slot *slot = slot_held();
    struct store *s = fixture_open();
    struct store_row m = fixture_row(STORE_WAITING, "x");
    m.slot = slot;
    m.retire = slot_retire;
    atomic_store(&fail_from, atomic_load(&syncs) + 1);
    cr_assert_eq(store_put(s, &m, NULL, NULL), -EIO);
    cr_assert_eq(slot_word(slot).state, SLOT_HELD);
    cr_assert_eq(store_put_all(s, &m, 1), -EIO);
    cr_assert_eq(slot_word(slot).state, SLOT_HELD);
    atomic_store(&fail_from, 0);
    cr_assert_eq(store_put_all(s, &m, 1), 0);
    cr_assert(slot_free(slot));
    free(slot);
    store_close(&s);
}

Test(commit, sixteen_threads_need_fewer_commits_than_writes)
{
    enum { PUTS = 100 };
    struct writer w[THREADS];
    struct store_stats stats;
    struct store *s = fixture_open();
    uint64_t start = clock_mono_ns();
    for (int i = 0; i < THREADS; i++) {
        w[i] = (struct writer){.s = s, .puts = PUTS};
        w[i].m = fixture_row(STORE_DEAD, "0123456789");
        pthread_create(&w[i].thread, NULL, writer_run, &w[i]);
    }
    writers_finish(w, THREADS);
    double seconds = (double)(clock_mono_ns() - start) / 1e9;
    store_stats(s, &stats);
    printf("%d commits, %.0f writes/s\n", (int)stats.commits,
           THREADS * PUTS / seconds);
    cr_assert(stats.commits * 2 < (uint64_t)THREADS * PUTS);
    cr_assert(store_count(s, STORE_DEAD) == THREADS * PUTS);
    store_close(&s);
}

Test(commit, a_write_returns_only_after_a_sync)
{
    struct store *s = fixture_open();
    struct store_row m = fixture_row(STORE_DEAD, "x");
    for (int i = 0; i < 5; i++) {
        int before = atomic_load(&syncs);
        fixture_put(s, &m);
        cr_assert(atomic_load(&syncs) > before);
    }
    store_close(&s);
}

Test(commit, one_failing_write_does_not_take_the_others_along)
{
    struct writer w[THREADS];
    struct store_stats stats;
    struct store *s = fixture_open();
    atomic_store(&gate_closed, true);
    writer_start(&w[0], s, "first");
    WAIT_FOR(atomic_load(&at_gate) == 1);
    for (int i = 1; i < THREADS; i++) {
        w[i] = (struct writer){.s = s, .puts = 1};
        w[i].m = fixture_row(STORE_DEAD, "more");
        w[i].m.receive_seq = i % 2 ? 0 : 7; /* each second one collides */
        if (i % 5 == 0)
            w[i].m.row = 1000 + i; /* gone */
        pthread_create(&w[i].thread, NULL, writer_run, &w[i]);
    }
    WAIT_FOR(waiting(s) == THREADS - 1);
    writers_finish(w, THREADS);
    int good = 0, taken = 0;
    for (int i = 0; i < THREADS; i++) {
        good += w[i].result == 0;
        taken += w[i].result == -EEXIST;
        cr_assert(i == 0 || i % 5 || w[i].result == -ENOENT);
    }
    store_stats(s, &stats);
    cr_assert(stats.commits == 2);
    cr_assert(good == 1 + 6 + 1 && taken == 5, "%d good", good);
    cr_assert(store_count(s, STORE_DEAD) == good);
    store_close(&s);
}

Test(commit, a_reader_does_not_wait_for_a_writers_sync)
{
    struct writer w[2];
    struct store_row out;
    struct store *s = fixture_open(), *other;
    struct store_row m = fixture_row(STORE_WAITING, "before");
    int64_t row = fixture_put(s, &m), rows[2];
    uint64_t next;
    writers_pile_up(w, 2, s);
    char data[16];
    cr_assert(store_get(s, row, &out, data, sizeof data, NULL) == 0);
    cr_assert(store_due(s, 1, rows, 2, NULL, NULL, &next) == 1);
    cr_assert(store_count(s, STORE_DEAD) == 0, "seen before it is durable");
    cr_assert(store_open(&other, fixture_db, false, NULL) == 0);
    cr_assert(store_count(other, STORE_WAITING) == 1);
    store_close(&other); /* and a reader's close syncs nothing */
    cr_assert(atomic_load(&at_gate) == 1);
    writers_finish(w, 2);
    cr_assert(store_count(s, STORE_DEAD) == 2);
    store_close(&s);
}

/* ---- failures ---- */

Test(commit, a_failed_sync_is_told_to_all_and_nothing_has_happened)
{
    struct writer w[THREADS];
    struct store_stats before, after;
    struct store *s = fixture_open();
    struct store_row m = fixture_row(STORE_DEAD, "x");
    fixture_put(s, &m);
    store_stats(s, &before);
    writers_pile_up(w, THREADS, s);
    atomic_store(&fail_from, atomic_load(&syncs) + 2);
    writers_finish(w, THREADS);
    cr_assert(w[0].result == 0);
    for (int i = 1; i < THREADS; i++)
        cr_assert(w[i].result == -EIO, "%d: %d", i, w[i].result);
    store_stats(s, &after);
    cr_assert(after.commits == before.commits + 1);
    cr_assert(store_count(s, STORE_DEAD) == 2);
    cr_assert(fixture_rows_after_kill() == 2, "it came back");
    atomic_store(&fail_from, 0);
    fixture_put(s, &m);
    cr_assert(store_count(s, STORE_DEAD) == 3);
    store_close(&s);
    cr_assert(fixture_sql("SELECT count(*) FROM messages") == 3);
}

static int locked_out(struct store *s, sqlite3 **db)
{
    struct store_row m = fixture_row(STORE_DEAD, "x");
    fixture_put(s, &m);
    cr_assert(sqlite3_open(fixture_db, db) == SQLITE_OK);
    return sqlite3_exec(*db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
}

Test(commit, a_write_waits_for_another_program_to_finish)
{
    sqlite3 *db;
    struct writer w;
    struct store *s = fixture_open();
    cr_assert(locked_out(s, &db) == SQLITE_OK);
    writer_start(&w, s, "x");
    WAIT_FOR(waiting(s) == 0);
    sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    pthread_join(w.thread, NULL);
    cr_assert(w.result == 0);
    sqlite3_close(db);
    store_close(&s);
}

Test(commit, another_program_that_never_finishes_is_busy_after_5_s)
{
    sqlite3 *db;
    struct store *s = fixture_open();
    struct store_row m = fixture_row(STORE_DEAD, "x");
    cr_assert(locked_out(s, &db) == SQLITE_OK);
    fixture_sleeps_pass();
    cr_assert(store_put(s, &m, NULL, NULL) == -EBUSY);
    cr_assert(fixture_slept_us > 4900000 && fixture_slept_us <= 5000000,
              "%lld us", (long long)fixture_slept_us);
    sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    fixture_put(s, &m);
    sqlite3_close(db);
    store_close(&s);
}

/* ---- no room ---- */

/* Put bodies of 8 KiB until the disk is full, which is error `full`. Returns
 * how many went in. */
static int fill_up(struct store *s, int full)
{
    static char body[8192];
    struct store_row m = fixture_row(STORE_DEAD, "");
    int64_t waits = rows_waiting(s);
    m.data = body;
    m.size = sizeof body;
    int n = 0, err;
    while ((err = store_put(s, &m, NULL, NULL)) == 0)
        cr_assert(++n < 10000, "the disk does not get full");
    cr_assert(err == full, "%s", strerror(-err));
    m.state = STORE_WAITING;
    cr_assert(store_put(s, &m, NULL, NULL) == full);
    cr_assert(store_put_all(s, &m, 1) == full);
    cr_assert(rows_waiting(s) == waits, "a failed row counts as waiting");
    return n;
}

/* Check a store that was full with n rows and has room again. */
static void usable_again(struct store *s, int64_t n)
{
    struct store_row m = fixture_row(STORE_DEAD, "x");
    cr_assert(store_count(s, STORE_DEAD) == n);
    int64_t row = fixture_put(s, &m);
    cr_assert(row > n);
    cr_assert(store_delete(s, row, NULL) == 0);
    cr_assert(store_count(s, STORE_DEAD) == n);
    store_close(&s);
    cr_assert(fixture_sql("SELECT count(*) FROM messages") == n);
    cr_assert(fixture_sql("SELECT count(*) FROM pragma_integrity_check"
                          " WHERE integrity_check <> 'ok'") == 0);
}

Test(commit, a_file_size_limit_is_no_space_and_passes)
{
    struct rlimit old, small;
    struct store *s = fixture_open();
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small = (struct rlimit){.rlim_cur = 300000, .rlim_max = old.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    int n = fill_up(s, -EFBIG);
    cr_assert(n > 5);
    setrlimit(RLIMIT_FSIZE, &old);
    usable_again(s, n);
}

/* Mount a small file system over the scratch folder. */
static void small_disk(const char *options)
{
    if (unshare(CLONE_NEWNS) < 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", fixture_dir, "tmpfs", 0, options) < 0)
        cr_skip_test("cannot mount a file system: %s", strerror(errno));
}

static void filler_write(const char *path)
{
    char block[4096] = {1};
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    while (write(fd, block, sizeof block) == sizeof block)
        ;
    cr_assert(errno == ENOSPC);
    close(fd);
}

Test(commit, a_full_disk_is_no_space_and_passes)
{
    char filler[PATH_MAX + 8];
    small_disk("size=2m");
    struct store *s = fixture_open();
    struct store_row m = fixture_row(STORE_DEAD, "x");
    fixture_put(s, &m);
    snprintf(filler, sizeof filler, "%s/filler", fixture_dir);
    filler_write(filler);
    int n = 1 + fill_up(s, -ENOSPC);
    cr_assert(store_count(s, STORE_DEAD) == n);
    unlink(filler);
    usable_again(s, n);
    umount(fixture_dir);
}

/* The store grew to some size, what it kept was settled, and somebody else
 * fills the disk: with room inside its files the store goes on. */
Test(commit, a_full_disk_does_not_stop_what_fits_into_the_files)
{
    char filler[PATH_MAX + 8];
    int64_t rows[50];
    small_disk("size=8m");
    struct store *s = fixture_open();
    struct store_row m = fixture_row(STORE_WAITING, "some text");
    for (int i = 0; i < 50; i++)
        rows[i] = fixture_put(s, &m);
    for (int i = 0; i < 50; i++)
        cr_assert(store_delete(s, rows[i], NULL) == 0);
    fixture_sql("PRAGMA wal_checkpoint");
    snprintf(filler, sizeof filler, "%s/filler", fixture_dir);
    filler_write(filler);
    for (int i = 0; i < 1000; i++) {
        int64_t row = fixture_put(s, &m);
        cr_assert(store_delete(s, row, NULL) == 0);
    }
    store_close(&s);
    umount(fixture_dir);
}

Test(commit, a_full_disk_at_the_start_is_said_so)
{
    char filler[PATH_MAX + 8];
    struct store *s;
    struct problem p = {0};
    small_disk("size=256k");
    snprintf(filler, sizeof filler, "%s/filler", fixture_dir);
    filler_write(filler);
    cr_assert(store_open(&s, fixture_db, true, &p) == -ENOSPC);
    cr_assert(p.status == 73 && strstr(p.text, "free some space on "), "%s",
              p.text);
    unlink(filler);
    s = fixture_open();
    store_close(&s);
    umount(fixture_dir);
}

Test(commit, a_large_message_that_finds_no_room_lets_small_ones_pass)
{
    enum { LARGE = 3 };
    static char body[1 << 20];
    struct writer w[THREADS];
    small_disk("size=1m");
    struct store *s = fixture_open();
    atomic_store(&gate_closed, true);
    writer_start(&w[0], s, "first");
    WAIT_FOR(atomic_load(&at_gate) == 1);
    for (int i = 1; i < THREADS; i++) {
        w[i] = (struct writer){.s = s, .puts = 1};
        w[i].m = fixture_row(STORE_DEAD, "small");
        if (i == LARGE) {
            w[i].m.data = body;
            w[i].m.size = sizeof body;
        }
        pthread_create(&w[i].thread, NULL, writer_run, &w[i]);
    }
    WAIT_FOR(waiting(s) == THREADS - 1);
    writers_finish(w, THREADS);
    for (int i = 0; i < THREADS; i++)
        cr_assert(w[i].result == (i == LARGE ? -ENOSPC : 0), "%d: %d", i,
                  w[i].result);
    cr_assert(store_count(s, STORE_DEAD) == THREADS - 1);
    store_close(&s);
    umount(fixture_dir);
}

/* ---- a -wal that has grown ---- */

static unsigned larges;

static void large(void *arg)
{
    (void)arg;
    larges++;
}

static off_t wal_size(void)
{
    char path[PATH_MAX + 8];
    struct stat st;
    snprintf(path, sizeof path, "%s-wal", fixture_db);
    cr_assert_eq(stat(path, &st), 0);
    return st.st_size;
}

Test(commit, a_wal_that_a_reader_let_grow_is_emptied_once_he_is_gone)
{
    enum { BODY = 100000, ROWS = 100 };
    static char body[BODY + 1];
    struct store *s = fixture_open();
    struct store_row m;
    sqlite3 *reader;
    memset(body, 'x', BODY);
    m = fixture_row(STORE_DEAD, body);
    store_watch_wal(s, large, NULL);
    fixture_put(s, &m);
    cr_assert_eq(larges, 0);
    cr_assert_eq(sqlite3_open(fixture_db, &reader), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(reader, "BEGIN; SELECT count(*) FROM messages",
                              NULL, NULL, NULL),
                 SQLITE_OK);
    for (int i = 0; i < ROWS; i++)
        fixture_put(s, &m);
    cr_assert_gt(larges, 0);
    cr_assert_gt(wal_size(), 8 << 20);
    cr_assert_eq(store_empty_wal(s), -EBUSY);
    sqlite3_close(reader);
    cr_assert_eq(store_empty_wal(s), 0);
    cr_assert_eq(wal_size(), 0);
    larges = 0;
    fixture_put(s, &m);
    cr_assert_eq(larges, 0);
    cr_assert_eq(store_count(s, STORE_DEAD), ROWS + 2);
    store_close(&s);
}

static void *stop_often(void *s)
{
    for (int i = 0; i < 100; i++)
        if (store_empty_wal(s) != 0)
            return s;
    return NULL;
}

/* Emptying the -wal and putting back a removed file may come together. */
Test(commit, several_stops_at_once_all_end, .timeout = 300)
{
    enum { STOPS = 3, ROWS = 50 };
    struct store *s = fixture_open();
    struct store_row m = fixture_row(STORE_DEAD, "x");
    pthread_t stops[STOPS];
    void *failed;
    for (int i = 0; i < STOPS; i++)
        pthread_create(&stops[i], NULL, stop_often, s);
    for (int i = 0; i < ROWS; i++)
        fixture_put(s, &m);
    for (int i = 0; i < STOPS; i++) {
        pthread_join(stops[i], &failed);
        cr_expect_null(failed);
    }
    cr_assert_eq(store_count(s, STORE_DEAD), ROWS);
    store_close(&s);
}

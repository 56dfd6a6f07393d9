/* test_store_claim.c - store_claim: many may open the store at once; a commit
 * that was cut off is not seen later
 *
 * The seam is the system call that makes a commit durable.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tests/fixtures/store_fixture.h"

TestSuite(store_claim, .init = fixture_init, .fini = fixture_fini);

/* Open the store, write, and die, n times. */
static void live(int n)
{
    for (int i = 0; i < n; i++) {
        pid_t child = fork();
        if (child == 0) {
            struct store *s;
            struct problem p = {0};
            struct store_row row = fixture_row(STORE_DEAD, "x");
            if (store_open(&s, fixture_db, true, &p) < 0) {
                fprintf(stderr, "%s\n", p.text);
                _exit(1);
            }
            for (int k = 0; k <= i % 4; k++) {
                int err;
                /* Six writers on a slow machine may wait too long for the
                 * lock; the worker writes the row again, too. */
                do
                    err = store_put(s, &row, NULL, NULL);
                while (err == -EBUSY);
                if (err < 0) {
                    fprintf(stderr, "store_put: %s\n", strerror(-err));
                    _exit(2);
                }
            }
            if (i % 3 == 0)
                store_close(&s);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        if (status)
            _exit(1);
    }
    _exit(0);
}

Test(store_claim, many_may_open_write_and_die_at_once)
{
    pid_t pids[6];
    struct store *s = fixture_open();
    store_close(&s);
    for (int i = 0; i < 6; i++)
        if ((pids[i] = fork()) == 0)
            live(20);
    for (int i = 0; i < 6; i++) {
        int status;
        waitpid(pids[i], &status, 0);
        cr_assert(status == 0, "%d", status);
    }
    s = fixture_open();
    cr_assert(store_count(s, STORE_DEAD) == INT64_C(6) * 50);
    store_close(&s);
}

/* ---- a commit that is cut off while others have the store open ---- */

static bool die_in_sync;
static int syncs;

int fdatasync(int fd)
{
    if (die_in_sync)
        raise(SIGKILL);
    syncs++;
    return (int)syscall(SYS_fdatasync, fd);
}

/* Kill a worker in its second commit, of `rows` rows. */
static void cut_off(size_t rows)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        struct store *s = fixture_open();
        struct store_row all[16];
        for (size_t i = 0; i < rows; i++)
            all[i] = fixture_row(STORE_WAITING, "x");
        fixture_put(s, &all[0]);
        die_in_sync = true;
        store_put_all(s, all, rows);
        _exit(0);
    }
    waitpid(child, &status, 0);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* Slots are judged by the rows that are there: no other may come later. */
Test(store_claim, a_commit_that_was_cut_off_does_not_come_back)
{
    struct problem p = {0};
    struct store *other = fixture_open();
    cut_off(16);
    struct store *s = fixture_open();
    cr_assert_eq(store_count(s, STORE_WAITING), 1);
    cr_assert_eq(fixture_rows_after_kill(), 17,
                 "the commit is not in the -wal");
    fixture_sleeps_pass();
    cr_assert_eq(store_claim(s, NULL, &p), 0, "%s", p.text);
    cr_assert_eq(store_count(s, STORE_WAITING), 1);
    cr_assert_eq(fixture_rows_after_kill(), 1);
    store_close(&s);
    store_close(&other);
}

Test(store_claim, nor_if_a_reader_is_in_the_way)
{
    struct problem p = {0};
    sqlite3 *reader;
    store_close(&(struct store *){fixture_open()});
    cr_assert(sqlite3_open(fixture_db, &reader) == SQLITE_OK);
    cr_assert(sqlite3_exec(reader, "BEGIN; SELECT * FROM messages", NULL, NULL,
                           NULL) == SQLITE_OK);
    cut_off(16);
    struct store *s = fixture_open();
    cr_assert_eq(fixture_rows_after_kill(), 17,
                 "the commit is not in the -wal");
    fixture_sleeps_pass();
    cr_assert_eq(store_claim(s, NULL, &p), 0, "%s", p.text);
    cr_assert_eq(fixture_rows_after_kill(), 1);
    sqlite3_close(reader);
    store_close(&s);
}

/* Let no write pass that many bytes of a file, so that writes fail as on a full
 * disk. */
static void limit_files(rlim_t bytes)
{
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){bytes, RLIM_INFINITY}), 0);
}

Test(store_claim, a_full_disk_is_no_reason_to_refuse_a_start)
{
    struct problem p = {0};
    struct store *other = fixture_open();
    struct store_row m = fixture_row(STORE_WAITING, "x");
    fixture_put(other, &m);
    struct store *s = fixture_open();
    limit_files(1);
    cr_assert_neq(store_put(s, &m, NULL, NULL), 0, "it is not full");
    cr_assert_eq(store_claim(s, NULL, &p), 0, "%s", p.text);
    limit_files(RLIM_INFINITY);
    cr_assert_eq(store_count(s, STORE_WAITING), 1);
    fixture_put(s, &m);
    store_close(&s);
    store_close(&other);
}

/* With nobody else there, whoever comes first takes over what is whole. It was
 * not synced: a power cut must not take it away. */
Test(store_claim, a_commit_that_was_cut_off_with_nobody_there_is_taken_over)
{
    struct problem p = {0};
    cut_off(3);
    struct store *s = fixture_open();
    int before = syncs;
    cr_assert_eq(store_claim(s, NULL, &p), 0, "%s", p.text);
    cr_assert_gt(syncs, before);
    cr_assert_eq(store_count(s, STORE_WAITING), 4);
    store_close(&s);
}

/* Return which files have a name that a store has while it is made, as bits. */
static int drafts(void)
{
    char path[PATH_MAX + 16];
    int n = 0;

    snprintf(path, sizeof path, "%s.abcDE1", fixture_db);
    n += access(path, F_OK) == 0;
    snprintf(path, sizeof path, "%s.abcDE2", fixture_db);
    n += 2 * (access(path, F_OK) == 0);
    snprintf(path, sizeof path, "%s.behind.1", fixture_db);
    return n + 4 * (access(path, F_OK) == 0);
}

/* A kill during a copy leaves such a file; a program at work has it locked. */
Test(store_claim, what_a_kill_left_of_a_copy_is_removed)
{
    static const char *const tails[] = {"abcDE1", "behind.1", "abcDE2"};
    struct store *s = fixture_open();
    struct problem p = {0};
    char path[PATH_MAX + 16];
    int fd = -1;

    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s.%s", fixture_db, tails[i]);
        if (fd >= 0)
            close(fd);
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        cr_assert_geq(fd, 0);
    }
    cr_assert_eq(flock(fd, LOCK_EX), 0); /* the last one is being made */
    cr_assert_eq(drafts(), 7);
    cr_assert_eq(store_claim(s, NULL, &p), 0, "%s", p.text);
    cr_assert_eq(drafts(), 6);
    close(fd);
    store_close(&s);
}

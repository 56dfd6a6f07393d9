/* store_wal_check: the -wal is judged by the first that opens the store, and by
 * nobody while others are at it; a commit that was cut off is not seen later
 *
 * The seam is the system call that makes a commit durable.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sysexits.h>

#include "tests/unit/storage/store_fixture.h"

TestSuite(store_wal_check, .init = fixture_init, .fini = fixture_fini,
          .timeout = 60);

static const char *path_of(const char *tail)
{
    static char path[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s%s", fixture_db, tail);
    return path;
}

/* killed - a store with some letters in its -wal, whose owner is dead */
static void killed(void)
{
    pid_t child = fork();
    if (child == 0) {
        struct store *s = fixture_open();
        struct store_row row = fixture_row(STORE_DEAD, "x");
        for (int i = 0; i < 4; i++)
            fixture_put(s, &row);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void byte_flip(off_t at)
{
    unsigned char byte;
    int fd = open(path_of("-wal"), O_RDWR);
    cr_assert(pread(fd, &byte, 1, at) == 1);
    byte ^= 1;
    cr_assert(pwrite(fd, &byte, 1, at) == 1);
    close(fd);
}

/* refused - status and a word of why */
static void refused(const char *word)
{
    struct store *s;
    struct problem p = {0};
    cr_assert(store_open(&s, fixture_db, true, &p) < 0);
    cr_assert(p.status == EX_CANTCREAT && strstr(p.text, word), "%s", p.text);
}

/* locker - a process that recovers the store, as seen by others: it has the
 * lock of who uses the -shm (byte 128) and that of who writes (120) */
static pid_t locker(void)
{
    int ready[2];
    char c;
    cr_assert(pipe(ready) == 0);
    pid_t child = fork();
    if (child == 0) {
        int fd = open(path_of("-shm"), O_RDWR | O_CREAT | O_TRUNC, 0600);
        struct flock used = {.l_type = F_RDLCK, .l_start = 128, .l_len = 1};
        struct flock writes = {.l_type = F_WRLCK, .l_start = 120, .l_len = 1};
        if (fcntl(fd, F_SETLK, &used) < 0 || fcntl(fd, F_SETLK, &writes) < 0 ||
            write(ready[1], "", 1) < 0)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    cr_assert(read(ready[0], &c, 1) == 1);
    close(ready[0]);
    return child;
}

Test(store_wal_check, a_file_that_another_one_recovers_is_not_judged)
{
    killed();
    byte_flip(100);
    pid_t other = locker();
    refused("was locked by another program for 5s");
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    refused("is damaged");
    byte_flip(100);
    struct store *s = fixture_open();
    cr_assert(store_count(s, STORE_DEAD) == 4);
    store_close(&s);
}

/* What it reads of it may be of any moment: only a start reads it. */
Test(store_wal_check, a_store_that_somebody_uses_is_not_judged)
{
    killed();
    struct store *s = fixture_open(), *second;
    struct problem p = {0};
    byte_flip(100);
    cr_assert(store_open(&second, fixture_db, true, &p) == 0, "%s", p.text);
    byte_flip(100);
    cr_assert(store_count(second, STORE_DEAD) == 4);
    store_close(&second);
    store_close(&s);
}

Test(store_wal_check, a_refusal_keeps_no_lock_and_changes_nothing)
{
    killed();
    byte_flip(100);
    for (int i = 0; i < 3; i++)
        refused("is damaged");
    byte_flip(100);
    cr_assert(fixture_sql("SELECT count(*) FROM messages") == 4);
}

/* live - open, write, and die, as often as that goes */
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
            for (int k = 0; k <= i % 4; k++)
                if (store_put(s, &row, NULL, NULL) < 0)
                    _exit(2);
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

Test(store_wal_check, many_that_open_write_and_die_at_once_are_not_refused)
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

/* cut_off - the last worker was killed in its second commit, of `rows` rows */
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

/* Its slots say that what is not there never was, so it is not there later. */
Test(store_wal_check, a_commit_that_was_cut_off_does_not_come_back)
{
    struct problem p = {0};
    struct store *other = fixture_open();
    cut_off(16);
    struct store *s = fixture_open();
    cr_assert_eq(store_count(s, STORE_WAITING), 1);
    cr_assert_eq(fixture_rows_after_kill(), 17, "nothing to see here");
    cr_assert_eq(store_claim(s, &p), 0, "%s", p.text);
    cr_assert_eq(store_count(s, STORE_WAITING), 1);
    cr_assert_eq(fixture_rows_after_kill(), 1);
    store_close(&s);
    store_close(&other);
}

Test(store_wal_check, nor_if_a_reader_is_in_the_way)
{
    struct problem p = {0};
    sqlite3 *reader;
    store_close(&(struct store *){fixture_open()});
    cr_assert(sqlite3_open(fixture_db, &reader) == SQLITE_OK);
    cr_assert(sqlite3_exec(reader, "BEGIN; SELECT * FROM messages", NULL, NULL,
                           NULL) == SQLITE_OK);
    cut_off(16);
    struct store *s = fixture_open();
    cr_assert_eq(fixture_rows_after_kill(), 17, "nothing to see here");
    cr_assert_eq(store_claim(s, &p), 0, "%s", p.text);
    cr_assert_eq(fixture_rows_after_kill(), 1);
    sqlite3_close(reader);
    store_close(&s);
}

/* limit_files - nothing may be written behind that many bytes of a file: what a
 * full disk says, at the first write */
static void limit_files(rlim_t bytes)
{
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){bytes, RLIM_INFINITY}), 0);
}

Test(store_wal_check, a_full_disk_is_no_reason_to_refuse_a_start)
{
    struct problem p = {0};
    struct store *other = fixture_open();
    struct store_row m = fixture_row(STORE_WAITING, "x");
    fixture_put(other, &m);
    struct store *s = fixture_open();
    limit_files(1);
    cr_assert_neq(store_put(s, &m, NULL, NULL), 0, "it is not full");
    cr_assert_eq(store_claim(s, &p), 0, "%s", p.text);
    limit_files(RLIM_INFINITY);
    cr_assert_eq(store_count(s, STORE_WAITING), 1);
    fixture_put(s, &m);
    store_close(&s);
    store_close(&other);
}

/* With nobody else there, what is whole was taken over by who came first. It
 * was killed before its sync: a power cut must not take it from us again. */
Test(store_wal_check, a_commit_that_was_cut_off_with_nobody_there_is_taken_over)
{
    struct problem p = {0};
    cut_off(3);
    struct store *s = fixture_open();
    int before = syncs;
    cr_assert_eq(store_claim(s, &p), 0, "%s", p.text);
    cr_assert_gt(syncs, before);
    cr_assert_eq(store_count(s, STORE_WAITING), 4);
    store_close(&s);
}

/* test_store_behind.c - store_behind: the commits of a worker have numbers,
 * which tell a store that lost some from one that did not */
#include <sys/wait.h>

#include "tests/fixtures/store_fixture.h"

TestSuite(store_behind, .init = fixture_init, .fini = fixture_fini);

static _Atomic uint64_t last;

/* Open a store whose worker counts its commits. */
static struct store *claimed(void)
{
    struct problem p = {0};
    struct store *s = fixture_open();
    atomic_store(&last, store_commits(s));
    cr_assert_eq(store_claim(s, &last, &p), 0, "%s", p.text);
    return s;
}

static const char *path_of(const char *tail)
{
    static char path[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s%s", fixture_db, tail);
    return path;
}

static off_t size_of(const char *path)
{
    struct stat st;
    cr_assert_eq(stat(path, &st), 0, "%s", path);
    return st.st_size;
}

Test(store_behind, each_commit_has_the_next_number_and_the_store_has_it)
{
    struct store *s = claimed();
    struct store_row m = fixture_row(STORE_WAITING, "x");
    cr_assert_eq(store_commits(s), 0);
    int64_t row = fixture_put(s, &m);
    cr_assert(atomic_load(&last) == 1 && store_commits(s) == 1);
    cr_assert_eq(store_delete(s, row, NULL), 0);
    cr_assert(atomic_load(&last) == 2 && store_commits(s) == 2);
    store_close(&s);
    s = claimed();
    cr_assert_eq(atomic_load(&last), 2);
    m.row = 77; /* there is none */
    cr_assert_eq(store_put(s, &m, NULL, NULL), -ENOENT);
    cr_assert_eq(atomic_load(&last), store_commits(s));
    store_close(&s);
}

/* Let a worker die after a commit; return the size of its -wal. */
static off_t killed(void)
{
    struct store_row m = fixture_row(STORE_DEAD, "x");
    pid_t pid = fork();

    if (pid == 0) {
        struct store *s = fixture_open();

        fixture_put(s, &m);
        _exit(0);
    }
    cr_assert_eq(waitpid(pid, NULL, 0), pid);
    return size_of(path_of("-wal"));
}

/* Copying the -wal back takes as long as the disk does, under a lock, and the
 * next worker may be starting. */
Test(store_behind, one_who_only_looks_leaves_the_commits_of_a_killed_worker)
{
    struct store_row m = fixture_row(STORE_DEAD, "y");
    struct store *s;
    off_t size = killed();

    cr_assert_gt(size, 0);
    for (int i = 0; i < 2; i++) {
        s = fixture_open();
        cr_assert_eq(store_count(s, STORE_DEAD), 1);
        store_close(&s);
        cr_assert_eq(size_of(path_of("-wal")), size);
    }
    s = fixture_open();
    fixture_put(s, &m);
    store_close(&s);
    cr_assert_neq(access(path_of("-wal"), F_OK), 0, "a writer left the -wal");
    s = fixture_open();
    cr_assert_eq(store_count(s, STORE_DEAD), 2);
    store_close(&s);
    cr_assert_neq(access(path_of("-wal"), F_OK), 0, "a -wal was left");
}

/* An operator's program writes, too, and counts nothing. */
Test(store_behind, others_change_no_number)
{
    struct store *s = claimed(), *other = fixture_open();
    struct store_row m = fixture_row(STORE_DEAD, "x");
    fixture_put(s, &m);
    fixture_put(other, &m);
    cr_assert(atomic_load(&last) == 1 && store_commits(other) == 1);
    fixture_put(s, &m);
    cr_assert(atomic_load(&last) == 2 && store_commits(other) == 2);
    store_close(&other);
    store_close(&s);
}

Test(store_behind, a_commit_that_fails_has_no_number)
{
    struct store *s = claimed();
    struct store_row m = fixture_row(STORE_DEAD, "x");
    sqlite3 *db;
    fixture_put(s, &m);
    cr_assert(sqlite3_open(fixture_db, &db) == SQLITE_OK);
    cr_assert(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) ==
              SQLITE_OK);
    fixture_sleeps_pass();
    cr_assert_eq(store_put(s, &m, NULL, NULL), -EBUSY);
    cr_assert_eq(atomic_load(&last), 1);
    sqlite3_close(db);
    fixture_put(s, &m);
    cr_assert(atomic_load(&last) == 2 && store_commits(s) == 2);
    store_close(&s);
}

/* Wherever the -wal is cut, the store has a commit for each number up to its
 * own, and one row for each. */
Test(store_behind, a_wal_that_lost_its_end_is_behind_and_is_set_aside)
{
    enum { COMMITS = 8 };
    int status;
    pid_t child = fork();
    if (child == 0) {
        struct store *s = claimed();
        struct store_row m = fixture_row(STORE_DEAD, "x");
        for (int i = 0; i < COMMITS; i++)
            fixture_put(s, &m);
        _exit(0);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    for (off_t size = size_of(path_of("-wal")); size > 0; size -= 3000) {
        char copy[PATH_MAX], wal[PATH_MAX + 8];
        cr_assert_eq(truncate(path_of("-wal"), size), 0);
        cr_assert_eq(unlink(path_of("-shm")) < 0 && errno != ENOENT, 0);
        child = fork(); /* changes nothing, as it does not close the store */
        if (child == 0) {
            struct store *s = fixture_open();
            uint64_t n = store_commits(s);
            cr_assert_leq(n, COMMITS);
            cr_assert_eq(store_count(s, STORE_DEAD), (int64_t)n);
            cr_assert_eq(store_set_aside(s, copy), 0);
            cr_assert_eq(size_of(copy), size_of(fixture_db));
            snprintf(wal, sizeof wal, "%s-wal", copy);
            cr_assert_eq(size_of(wal), size);
            _exit(n < COMMITS ? 1 : 0);
        }
        cr_assert_eq(waitpid(child, &status, 0), child);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) <= 1);
        if (size < size_of(path_of("-wal")))
            cr_assert_eq(WEXITSTATUS(status), 1, "%d", (int)size);
    }
    cr_assert_eq(WEXITSTATUS(status), 1);
}

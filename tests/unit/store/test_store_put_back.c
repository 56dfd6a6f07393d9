/* test_store_put_back.c - a store whose file is removed while it is open */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "tests/harness/sweep.h"
#include "tests/fixtures/store_fixture.h"

TestSuite(store_put_back, .init = fixture_init, .fini = fixture_fini);

/* Put one more row into the store. */
static void put(struct store *s, uint64_t seq)
{
    struct store_row m = {
        .state = STORE_WAITING, .receive_seq = seq, .data = "body", .size = 4};

    cr_assert_eq(store_put(s, &m, NULL, NULL), 0);
}

/* Remove some of the three files: the database (d), -wal (w), -shm (s). */
static void removed(const char *tails)
{
    static const char *const all[] = {"", "-wal", "-shm"};
    char path[PATH_MAX + 8];

    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s%s", fixture_db, all[i]);
        if (strchr(tails, "dws"[i]))
            cr_assert_eq(unlink(path), 0, "%s", path);
    }
}

/* Remove these files and put the store back: all rows must be on the disk. */
static void put_back(const char *tails)
{
    struct store *s = fixture_open();
    struct stat replace[2] = {0};
    struct problem p = {0};

    cr_assert_eq(stat(fixture_db, &replace[0]), 0);
    put(s, 1);
    removed(tails);
    put(s, 2);
    cr_assert_eq(store_put_back(s, fixture_db, replace, &p), 0, "%s", p.text);
    put(s, 3);
    cr_assert_eq(store_count(s, STORE_WAITING), 3);
    cr_assert_eq(fixture_rows_after_kill(), 3);
    cr_assert_eq(fixture_sql("SELECT count(*) FROM messages"), 3);
    store_close(&s);
    cr_assert_eq(fixture_sql("SELECT count(*) FROM messages"), 3);
}

Test(store_put_back, all_of_it)
{
    put_back("dws");
}

Test(store_put_back, the_database_alone)
{
    put_back("d");
}

Test(store_put_back, the_wal_alone)
{
    put_back("w");
}

Test(store_put_back, the_shm_alone)
{
    put_back("s");
}

Test(store_put_back, a_closed_store_takes_nothing_of_the_new_one_away)
{
    struct store *old = fixture_open(), *s;
    struct problem p = {0};

    put(old, 1);
    removed("dws");
    s = fixture_open();
    put(s, 2);
    put(s, 3);
    store_close(&old);
    cr_assert_eq(fixture_rows_after_kill(), 2);
    cr_assert_eq(store_put_back(s, fixture_db, NULL, &p), -EEXIST);
    cr_assert(strstr(p.text, fixture_db), "%s", p.text);
    store_close(&s);
}

/* Make a file that is somebody else's. */
static void stranger(const char *path)
{
    FILE *f = fopen(path, "w");

    cr_assert_not_null(f);
    cr_assert(fputs("a stranger", f) >= 0);
    cr_assert_eq(fclose(f), 0);
}

/* A file may come between the look at its name and the copy. */
Test(store_put_back, a_file_that_is_none_of_ours_is_not_replaced)
{
    struct store *s = fixture_open();
    struct stat replace[2] = {0}, is;
    struct problem p = {0};
    char text[16] = "";
    FILE *f;

    cr_assert_eq(stat(fixture_db, &replace[0]), 0);
    put(s, 1);
    removed("d");
    stranger(fixture_db);
    /* a file system may give the number of the one that was removed again */
    cr_assert_eq(stat(fixture_db, &is), 0);
    if (is.st_ino == replace[0].st_ino)
        replace[0].st_ino = 0;
    cr_assert_eq(store_put_back(s, fixture_db, replace, &p), -EEXIST);
    f = fopen(fixture_db, "r");
    cr_assert_not_null(f);
    cr_assert(fgets(text, sizeof text, f));
    cr_assert_str_eq(text, "a stranger");
    (void)fclose(f);
    store_close(&s);
}

Test(store_put_back, a_copy_beside_it)
{
    struct store *s = fixture_open();
    char path[PATH_MAX + 8];

    snprintf(path, sizeof path, "%s.saved", fixture_db);
    put(s, 1);
    removed("dws");
    put(s, 2);
    cr_assert_eq(store_put_back(s, path, NULL, NULL), 0);
    cr_assert_eq(store_put_back(s, path, NULL, NULL), -EEXIST);
    store_close(&s);
    cr_assert_eq(rename(path, fixture_db), 0);
    cr_assert_eq(fixture_sql("SELECT count(*) FROM messages"), 2);
}

/* Threads that write or read meanwhile wait, and see all that was written. */
struct load {
    struct store *s;
    atomic_bool stop;
    _Atomic uint64_t seq;
};

static void *writer(void *arg)
{
    struct load *load = arg;

    while (!atomic_load(&load->stop))
        put(load->s, atomic_fetch_add(&load->seq, 1) + 1);
    return NULL;
}

static void *reader(void *arg)
{
    struct load *load = arg;
    int64_t seen = 0, n;

    while (!atomic_load(&load->stop)) {
        n = store_count(load->s, STORE_WAITING);
        cr_assert_geq(n, seen);
        seen = n;
    }
    return NULL;
}

Test(store_put_back, under_load_no_row_is_missing)
{
    struct load load = {.s = fixture_open()};
    struct problem p = {0};
    pthread_t thread[4];

    for (int i = 0; i < 4; i++)
        pthread_create(&thread[i], NULL, i < 3 ? writer : reader, &load);
    for (unsigned n = sweep_share("files put back under load", 14); n > 0;
         n--) {
        uint64_t seq = atomic_load(&load.seq);

        while (atomic_load(&load.seq) < seq + 20)
            sched_yield();
        removed("dws");
        cr_assert_eq(store_put_back(load.s, fixture_db, NULL, &p), 0, "%s",
                     p.text);
    }
    atomic_store(&load.stop, true);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    cr_assert_eq(store_count(load.s, STORE_WAITING),
                 (int64_t)atomic_load(&load.seq));
    store_close(&load.s);
    cr_assert_eq(fixture_sql("SELECT count(*) FROM messages"),
                 (int64_t)atomic_load(&load.seq));
}

/* Another program must not take part in what it cannot see all of. */
Test(store_put_back, a_second_one_does_not_open_what_has_lost_its_wal)
{
    struct store *s = fixture_open(), *second;
    struct stat replace[2] = {0};
    struct problem p = {0};

    cr_assert_eq(stat(fixture_db, &replace[1]), 0);
    put(s, 1);
    removed("w");
    /* -ENOENT would say that there is no store. */
    cr_assert_eq(store_open(&second, fixture_db, false, &p), -EBUSY);
    cr_assert(strstr(p.text, "was removed while another program"), "%s",
              p.text);
    cr_assert_eq(store_put_back(s, fixture_db, replace, &p), 0, "%s", p.text);
    cr_assert_eq(store_open(&second, fixture_db, false, &p), 0, "%s", p.text);
    store_close(&second);
    store_close(&s);
}

Test(store_put_back, a_wal_without_its_store_starts_no_new_one)
{
    struct store *s = fixture_open();
    struct problem p = {0};
    char copy[PATH_MAX + 8], wal[PATH_MAX + 8], command[2 * PATH_MAX + 40];

    put(s, 1);
    snprintf(wal, sizeof wal, "%s-wal", fixture_db);
    snprintf(copy, sizeof copy, "%s.copy", fixture_db);
    snprintf(command, sizeof command, "cp %s %s", wal, copy);
    cr_assert_eq(system(command), 0);
    store_close(&s);
    cr_assert(unlink(fixture_db) == 0 && rename(copy, wal) == 0);
    cr_assert_eq(store_open(&s, fixture_db, true, &p), -ENOENT);
    cr_assert(strstr(p.text, "its -wal is there"), "%s", p.text);
}

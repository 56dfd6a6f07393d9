/* test_store_mark.c - whether a store has changed, seen from its files alone
 *
 * Another process has the store open, as its worker has.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include "tests/fixtures/store_fixture.h"

TestSuite(mark, .init = fixture_init, .fini = fixture_fini);

/* Set the time of the file's last write back by so many seconds. */
static void file_age(time_t seconds)
{
    struct timespec at = {.tv_sec =
                              (time_t)(clock_wall_ns() / NS_PER_S) - seconds};

    cr_assert_eq(
        utimensat(AT_FDCWD, fixture_db, (const struct timespec[]){at, at}, 0),
        0);
}

/* A process that has the store open: it puts a message for each byte, and
 * answers with that byte. */
struct other {
    pid_t pid;
    int to, from;
};

static void other_put(const struct other *o)
{
    char byte = 'p';

    cr_assert_eq(write(o->to, &byte, 1), 1);
    cr_assert_eq(read(o->from, &byte, 1), 1);
}

static struct other other_start(void)
{
    struct store_row m = fixture_row(STORE_DEAD, "x");
    struct store *s;
    int to[2], from[2];
    struct other o;
    char byte = 'o';

    cr_assert(pipe(to) == 0 && pipe(from) == 0);
    o = (struct other){.pid = fork(), .to = to[1], .from = from[0]};
    if (o.pid == 0) {
        s = fixture_open();
        while (write(from[1], &byte, 1) == 1 && read(to[0], &byte, 1) == 1)
            (void)fixture_put(s, &m);
        _exit(0);
    }
    cr_assert_eq(read(o.from, &byte, 1), 1);
    return o;
}

static void other_kill(const struct other *o)
{
    kill(o->pid, SIGKILL);
    cr_assert_eq(waitpid(o->pid, NULL, 0), o->pid);
}

Test(mark, a_commit_changes_it_and_a_look_does_not)
{
    struct store_mark mark = {0};
    struct other other = other_start();

    file_age(60);
    cr_assert(!store_unchanged(fixture_db, &mark), "unchanged without a mark");
    cr_assert(store_unchanged(fixture_db, &mark));
    cr_assert(store_unchanged(fixture_db, &mark));
    for (int i = 0; i < 3; i++) {
        other_put(&other);
        cr_assert(!store_unchanged(fixture_db, &mark), "commit %d", i);
        cr_assert(store_unchanged(fixture_db, &mark), "commit %d", i);
    }
    other_kill(&other);
    cr_assert(store_unchanged(fixture_db, &mark), "a kill changed it");
}

/* A commit that waits for a slow disk has written the -wal long before a reader
 * finds it there, and the -shm then gets no later time. */
Test(mark, the_index_of_the_wal_is_what_counts)
{
    struct store_mark mark = {0};
    struct other other = other_start();
    char shm[PATH_MAX + 8], byte = 0;
    int fd;

    file_age(60);
    other_kill(&other);
    (void)store_unchanged(fixture_db, &mark);
    cr_assert(store_unchanged(fixture_db, &mark));
    snprintf(shm, sizeof shm, "%s-shm", fixture_db);
    fd = open(shm, O_RDWR | O_CLOEXEC);
    cr_assert_eq(pread(fd, &byte, 1, 8), 1); /* iChange, the lowest byte */
    byte++;
    cr_assert_eq(pwrite(fd, &byte, 1, 8), 1);
    close(fd);
    cr_assert(!store_unchanged(fixture_db, &mark));
}

Test(mark, a_closed_store_is_known_by_its_file)
{
    struct store_mark mark = {0};
    struct store_row m = fixture_row(STORE_DEAD, "x");
    struct store *s;

    cr_assert(!store_unchanged(fixture_db, &mark), "unchanged without a file");
    cr_assert(!store_unchanged(fixture_db, &mark), "unchanged without a file");
    s = fixture_open();
    store_close(&s);
    file_age(60);
    (void)store_unchanged(fixture_db, &mark);
    cr_assert(store_unchanged(fixture_db, &mark));
    s = fixture_open();
    store_close(&s);
    cr_assert(store_unchanged(fixture_db, &mark),
              "changed, but nothing was written");
    s = fixture_open();
    (void)fixture_put(s, &m);
    store_close(&s);
    file_age(60);
    cr_assert(!store_unchanged(fixture_db, &mark));
}

/* A second write in one tick of the file system's clock leaves the same time,
 * so a fresh file is never called unchanged; nor is one of the future, whose
 * age is unknown. */
Test(mark, a_fresh_file_is_not_trusted)
{
    struct store_mark mark = {0};
    struct store *s = fixture_open();

    store_close(&s);
    for (time_t age = 1; age >= -60; age -= 61) {
        file_age(age);
        for (int i = 0; i < 3; i++)
            cr_assert(!store_unchanged(fixture_db, &mark), "%ld", (long)age);
    }
}

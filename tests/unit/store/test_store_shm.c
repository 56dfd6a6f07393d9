/* test_store_shm.c - the -shm has its disk before SQLite touches it */
#include "tests/unit/store/store_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "common/store/sql.h"
#include "tests/harness/disk.h"

#define REGION 32768

static void setup(void)
{
    harness_init();
    fixture_init();
}

static void teardown(void)
{
    fixture_fini();
    harness_fini();
}

TestSuite(store_shm, .init = setup, .fini = teardown);

/* ---- the guard alone: a file whose real methods give `mapped` ---- */

static char *mapped;
static int answer = SQLITE_OK;

static int fake_map(sqlite3_file *f, int region, int size, int extend,
                    void volatile **at)
{
    (void)f, (void)region, (void)size, (void)extend;
    *at = mapped;
    return answer;
}

static int control(sqlite3_file *f, int op, void *arg)
{
    (void)f, (void)op, (void)arg;
    return SQLITE_OK;
}

/* region_of - through the guard, what a mapping of `path` gives */
static int region_of(const char *path, off_t bytes, void volatile **at)
{
    static const sqlite3_io_methods real = {
        .iVersion = 3, .xFileControl = control, .xShmMap = fake_map};
    struct store_shm shm = {.methods = real, .real = &real};
    sqlite3_file file = {.pMethods = &shm.methods};
    sqlite3 *db;
    sqlite3_file *own;
    int rc, fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    /* The guard's own function, as it puts it before a file's. */
    cr_assert_eq(sqlite3_open(fixture_db, &db), SQLITE_OK);
    struct store_shm of_db;
    store_shm_guard(&of_db, db);
    sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &own);
    cr_assert_eq(own->pMethods, &of_db.methods);
    shm.methods.xShmMap = of_db.methods.xShmMap;

    cr_assert(fd >= 0 && ftruncate(fd, bytes) == 0);
    mapped = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    cr_assert(mapped != MAP_FAILED);
    rc = file.pMethods->xShmMap(&file, 0, REGION, 1, at);
    sqlite3_close(db);
    close(fd);
    return rc;
}

static long blocks_of(const char *path)
{
    struct stat st;

    cr_assert_eq(stat(path, &st), 0);
    return (long)st.st_blocks;
}

Test(store_shm, a_region_is_allocated_and_stays_what_it_is)
{
    const char *path = harness_path("shm");
    void volatile *at;

    harness_write(path, "words", 5);
    cr_assert_eq(region_of(path, REGION, &at), SQLITE_OK);
    cr_assert_eq(at, mapped);
    cr_assert_eq(memcmp(mapped, "words", 6), 0);
    cr_assert_eq(msync(mapped, REGION, MS_SYNC), 0);
    cr_assert_geq(blocks_of(path), REGION / 512);
}

Test(store_shm, a_page_that_cannot_be_had_is_an_error_and_no_signal)
{
    void volatile *at;

    cr_assert_eq(region_of(harness_path("shm"), REGION - 4096, &at),
                 SQLITE_IOERR_SHMSIZE);
    cr_assert_null((void *)at);
}

Test(store_shm, what_sqlite_itself_refuses_is_left_alone)
{
    void volatile *at;

    answer = SQLITE_READONLY;
    cr_assert_eq(region_of(harness_path("shm"), 0, &at), SQLITE_READONLY);
    answer = SQLITE_OK;
}

/* ---- a store whose -shm grows on a full disk ---- */

enum {
    FRAME = 4096 + 24,
    FIRST = 4062, /* frames of the first region: sqlite.org/walformat.html */
};

/* frames - of the -wal, which only grows, as somebody reads its beginning */
static long frames(void)
{
    char wal[PATH_MAX + 8];
    struct stat st;

    snprintf(wal, sizeof wal, "%s-wal", fixture_db);
    return stat(wal, &st) < 0 ? 0 : (long)((st.st_size - 32) / FRAME);
}

/* rows_after_kill - on another disk */
static int64_t rows_after_kill(void)
{
    char was[PATH_MAX], command[3 * PATH_MAX];

    snprintf(command, sizeof command, "cp %s %s-wal %s", fixture_db, fixture_db,
             fixture_dir);
    cr_assert_eq(system(command), 0);
    strcpy(was, fixture_db);
    snprintf(fixture_db, sizeof fixture_db, "%s/store.db", fixture_dir);
    int64_t rows = fixture_sql("SELECT count(*) FROM messages");
    strcpy(fixture_db, was);
    return rows;
}

/* put - a row; how many frames it took */
static long put(struct store *s, const char *text)
{
    struct store_row m = fixture_row(STORE_WAITING, text);
    long before = frames();

    m.due_ns = clock_wall_ns();
    fixture_put(s, &m);
    return frames() - before;
}

Test(store_shm, a_second_region_without_room_is_a_full_disk)
{
    static char body[60000];
    int64_t rows = 0;
    sqlite3 *reader;
    long took;

    fixture_sleeps_pass(); /* somebody reads all the time */
    disk_mount_ext4(40 << 10, 1024);
    snprintf(fixture_db, sizeof fixture_db, "%s/store.db", harness_state_dir());
    struct store *s = fixture_open();
    cr_assert_eq(sqlite3_open(fixture_db, &reader), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(reader, "BEGIN; SELECT count(*) FROM messages",
                              NULL, NULL, NULL),
                 SQLITE_OK);
    memset(body, 'x', sizeof body - 1);
    for (; frames() < FIRST - 40; rows++)
        put(s, body);
    do {
        took = put(s, "small");
        rows++;
    } while (frames() + took <= FIRST);
    cr_assert_leq(frames(), FIRST);

    /* Its frames find room in the -wal, and not all of the region. */
    disk_leave((unsigned)(took * FRAME / 1024) + 16);
    struct store_row m = fixture_row(STORE_WAITING, "small");
    m.due_ns = clock_wall_ns();
    cr_assert_eq(store_put(s, &m, NULL, NULL), -ENOSPC);
    cr_assert_gt(frames(), FIRST, "it was not the -wal");
    cr_assert_eq(rows_after_kill(), rows, "it does not come back");

    disk_free();
    cr_assert_eq(store_put(s, &m, NULL, NULL), 0);
    cr_assert_eq(rows_after_kill(), rows + 1);
    sqlite3_close(reader);
    store_close(&s);
    cr_assert_eq(fixture_sql("SELECT count(*) FROM messages"), rows + 1);
}

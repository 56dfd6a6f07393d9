/* test_store.c - the store's file: made, refused, damaged, killed */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <sysexits.h>

#include "common/base/folder.h"
#include "tests/fixtures/store_fixture.h"

TestSuite(store, .init = fixture_init, .fini = fixture_fini);

static void file_write(const void *data, size_t size)
{
    int fd = open(fixture_db, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    cr_assert(write(fd, data, size) == (ssize_t)size);
    close(fd);
}

static size_t file_read(char *data, size_t room)
{
    int fd = open(fixture_db, O_RDONLY);
    ssize_t size = read(fd, data, room);
    cr_assert(size >= 0);
    close(fd);
    return (size_t)size;
}

static mode_t mode_of(const char *tail)
{
    char path[PATH_MAX + 8];
    struct stat st;
    snprintf(path, sizeof path, "%s%s", fixture_db, tail);
    cr_assert(stat(path, &st) == 0, "%s: %s", path, strerror(errno));
    return st.st_mode & 07777;
}

/* Check that opening fails with `status`, and leaves every byte. */
static void refused(int status, const char *word)
{
    static char before[1 << 20], after[1 << 20];
    struct store *s;
    struct problem p = {0};
    size_t size = file_read(before, sizeof before);
    cr_assert(store_open(&s, fixture_db, true, &p) < 0);
    cr_assert(s == NULL);
    cr_assert(p.status == status, "%d: %s", p.status, p.text);
    cr_assert(strstr(p.text, word), "%s", p.text);
    cr_assert(strstr(p.text, fixture_db));
    cr_assert(file_read(after, sizeof after) == size);
    cr_assert(memcmp(before, after, size) == 0, "the file was changed");
}

/* Check that not even SQLite's own side files were made. */
static void not_opened(void)
{
    char wal[PATH_MAX + 8];
    snprintf(wal, sizeof wal, "%s-wal", fixture_db);
    cr_assert(access(wal, F_OK) != 0);
}

Test(store, a_new_store_is_private_whatever_the_umask)
{
    umask(0);
    struct store *s = fixture_open();
    struct store_row m = fixture_row(STORE_WAITING, "x");
    fixture_put(s, &m);
    cr_assert(mode_of("") == 0600);
    cr_assert(mode_of("-wal") == 0600);
    cr_assert(mode_of("-shm") == 0600);
    store_close(&s);
    cr_assert(s == NULL);
    store_close(&s);
    chmod(fixture_db, 0644);
    s = fixture_open();
    cr_assert(mode_of("") == 0600);
    store_close(&s);
}

Test(store, a_missing_store_is_made_only_when_asked_for)
{
    struct store *s;
    struct problem p = {0};
    cr_assert(store_open(&s, fixture_db, false, &p) == -ENOENT);
    cr_assert(access(fixture_db, F_OK) != 0);
    cr_assert(p.status == EX_CANTCREAT && strstr(p.text, fixture_db));
}

Test(store, closing_brings_all_into_one_file)
{
    char wal[PATH_MAX + 8];
    struct store *s = fixture_open();
    struct store_row m = fixture_row(STORE_DEAD, "x");
    fixture_put(s, &m);
    store_close(&s);
    snprintf(wal, sizeof wal, "%s-wal", fixture_db);
    cr_assert(access(wal, F_OK) != 0);
    cr_assert(fixture_sql("SELECT count(*) FROM messages") == 1);
    cr_assert(rmdir(fixture_dir) < 0 && unlink(fixture_db) == 0);
    cr_assert(rmdir(fixture_dir) == 0, "something else was left there");
}

Test(store, opening_an_existing_store_takes_less_than_10_ms)
{
    uint64_t best = UINT64_MAX;
    struct store *s = fixture_open();
    struct store_row m = fixture_row(STORE_DEAD, "x");
    for (int i = 0; i < 50; i++)
        fixture_put(s, &m);
    store_close(&s);
    for (int i = 0; i < 100 && best >= 10 * NS_PER_MS; i++) {
        uint64_t start = clock_mono_ns();
        s = fixture_open();
        uint64_t took = clock_mono_ns() - start;
        best = took < best ? took : best;
        store_close(&s);
    }
    printf("store_open: %.2f ms\n", (double)best / 1e6);
    cr_assert(best < 10 * NS_PER_MS);
}

Test(store, a_file_that_is_no_database_is_refused_untouched)
{
    char text[5000];
    memset(text, 'a', sizeof text);
    file_write(text, sizeof text);
    refused(EX_CANTCREAT, "SQLite");
    file_write("short", 5);
    refused(EX_CANTCREAT, "SQLite");
    file_write("", 0);
    refused(EX_CANTCREAT, "SQLite");
    not_opened();
}

Test(store, a_database_of_another_program_is_refused_untouched)
{
    fixture_sql("CREATE TABLE t (a)");
    refused(EX_CANTCREAT, "another program");
    not_opened();
}

Test(store, a_store_of_another_version_is_refused_untouched)
{
    struct store *s = fixture_open();
    store_close(&s);
    fixture_sql("PRAGMA user_version = 2");
    refused(EX_CONFIG, "version 2");
    fixture_sql("PRAGMA user_version = 0");
    refused(EX_CONFIG, "version 0");
    not_opened();
}

Test(store, a_newer_version_that_is_only_in_the_wal_is_refused_untouched)
{
    struct store *s = fixture_open();
    store_close(&s);
    pid_t child = fork();
    if (child == 0) { /* dies before the -wal is copied back */
        sqlite3 *db;
        sqlite3_open(fixture_db, &db);
        sqlite3_exec(db, "PRAGMA user_version = 2", NULL, NULL, NULL);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    refused(EX_CONFIG, "version 2");
    cr_assert(fixture_sql("PRAGMA user_version") == 2);
}

Test(store, a_damaged_file_is_refused_untouched)
{
    char noise[4096 - 100];
    struct store *s = fixture_open();
    store_close(&s);
    memset(noise, 0xa5, sizeof noise);
    int fd = open(fixture_db, O_WRONLY);
    cr_assert(pwrite(fd, noise, sizeof noise, 100) == sizeof noise);
    close(fd);
    refused(EX_CANTCREAT, "damaged");
}

Test(store, a_directory_in_the_place_of_the_file_is_refused)
{
    struct store *s;
    struct problem p = {0};
    mkdir(fixture_db, 0700);
    cr_assert(store_open(&s, fixture_db, true, &p) < 0);
    cr_assert(p.status == EX_CANTCREAT, "%d %s", p.status, p.text);
}

Test(store, a_file_that_may_not_be_written_is_refused)
{
    struct store *s;
    struct problem p = {0};
    char user[FOLDER_USER];
    if (geteuid() != 0)
        cr_skip_test("needs root to become somebody else");
    s = fixture_open();
    store_close(&s);
    chmod(fixture_dir, 0777); /* its -wal could be made */
    chmod(fixture_db, 0644);
    cr_assert(seteuid(65534) == 0);
    int err = store_open(&s, fixture_db, true, &p);
    cr_assert(seteuid(0) == 0);
    cr_assert(err < 0);
    cr_assert(p.status == EX_CANTCREAT, "%d %s", p.status, p.text);
    cr_assert(strstr(p.text, folder_user(65534, user)), "%s", p.text);
}

Test(store, a_folder_that_may_not_be_written_is_refused)
{
    struct store *s;
    struct problem p = {0};
    if (geteuid() != 0)
        cr_skip_test("needs root to become somebody else");
    chmod(fixture_dir, 0755);
    cr_assert(seteuid(65534) == 0);
    int err = store_open(&s, fixture_db, true, &p);
    cr_assert(seteuid(0) == 0);
    cr_assert(err == -EACCES);
    cr_assert(p.status == EX_CANTCREAT, "%d %s", p.status, p.text);
}

Test(store, what_root_makes_belongs_to_the_owner_of_the_folder)
{
    static const char *const tails[] = {"", "-wal", "-shm"};
    char path[PATH_MAX + 8];
    struct stat st;
    if (geteuid() != 0)
        cr_skip_test("needs root");
    cr_assert(chown(fixture_dir, 65534, 65533) == 0);
    struct store *s = fixture_open();
    struct store_row m = fixture_row(STORE_DEAD, "x");
    fixture_put(s, &m);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s%s", fixture_db, tails[i]);
        cr_assert(stat(path, &st) == 0);
        cr_assert(st.st_uid == 65534 && st.st_gid == 65533, "%s", path);
    }
    /* and the owner can use it beside root */
    struct store *owner;
    struct problem p = {0};
    cr_assert(setegid(65533) == 0 && seteuid(65534) == 0);
    int err = store_open(&owner, fixture_db, false, &p);
    if (!err)
        err = store_put(owner, &m, NULL, NULL);
    cr_assert(err == 0, "%s", p.text);
    store_close(&owner);
    cr_assert(seteuid(0) == 0);
    cr_assert(store_count(s, STORE_DEAD) == 2);
    store_close(&s);
}

#define IDENTITY "SELECT total(length(id)) FROM identity"

/* Return the identity of the store as a number; there must be one. */
static int64_t identity(void)
{
    cr_assert(fixture_sql("SELECT count(*) FROM identity") == 1);
    cr_assert(fixture_sql(IDENTITY) == STORE_IDENTITY);
    /* its last four bytes: SQL has no number of eight */
    return fixture_sql("SELECT unicode(substr(hex(id), 16)) + 100 *"
                       " unicode(substr(hex(id), 14)) + 10000 *"
                       " unicode(substr(hex(id), 12)) FROM identity");
}

Test(store, two_new_stores_have_other_identities)
{
    int64_t was = -1, same = 0;
    for (int i = 0; i < 8; i++) {
        struct store *s = fixture_open();
        int64_t now = identity();
        same += now == was;
        was = now;
        store_close(&s);
        unlink(fixture_db);
    }
    cr_assert(same < 4, "12 random bits are the same %d times of 7", (int)same);
}

Test(store, damage_that_is_found_later_is_an_error_of_its_own)
{
    struct store_row out, m = fixture_row(STORE_DEAD, "some text");
    struct store *s = fixture_open();
    char data[64], found[STORE_FOUND];
    for (int i = 0; i < 300; i++)
        fixture_put(s, &m);
    store_close(&s);
    s = fixture_open();
    pid_t child = fork(); /* closing the file here would drop our locks */
    if (child == 0) {
        char noise[4096];
        struct stat st;
        memset(noise, 0xa5, sizeof noise);
        int fd = open(fixture_db, O_WRONLY);
        fstat(fd, &st);
        for (off_t at = 4096; at < st.st_size; at += 4096)
            if (pwrite(fd, noise, sizeof noise, at) != sizeof noise)
                _exit(1);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    cr_assert(status == 0);
    cr_assert(store_get(s, 5, &out, data, sizeof data, NULL) == -EUCLEAN);
    cr_assert(store_count(s, STORE_DEAD) == -EUCLEAN);
    cr_assert(store_put(s, &m, NULL, NULL) == -EUCLEAN);
    cr_assert_eq(store_check(s, NULL, found), -EUCLEAN);
    cr_assert_neq(found[0], '\0');
    cr_assert_neq(found[0], '*', "it names what is damaged: %s", found);
    store_close(&s);
}

/* ---- memory of SQLite, which runs out ---- */

static sqlite3_mem_methods real_memory;
static uint64_t allocations,
    denied; /* counted from 1; from `denied` on: none */
static bool denied_once;

static void *memory_take(int size)
{
    allocations++;
    if (denied && (denied_once ? allocations == denied : allocations >= denied))
        return NULL;
    return real_memory.xMalloc(size);
}

/* Make a store with letters on several pages, and with free pages. */
static struct store *large_made(void)
{
    static char text[20000];
    struct store *s = fixture_open();
    memset(text, 'x', sizeof text - 1);
    struct store_row m = fixture_row(STORE_DEAD, text);
    for (int i = 0; i < 40; i++) {
        m.row = 0;
        int64_t row = fixture_put(s, &m);
        if (i % 4 == 0)
            cr_assert_eq(store_delete(s, row, NULL), 0);
    }
    return s;
}

Test(store, a_lack_of_memory_in_the_check_is_not_taken_for_damage)
{
    sqlite3_mem_methods memory;
    char found[STORE_FOUND];
    if (sqlite3_libversion_number() >= 3046000)
        cr_skip_test(
            "SQLite %s reads a null pointer in sqlite3BlobCompare() if an "
            "allocation fails",
            sqlite3_libversion());
    cr_assert_eq(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &real_memory), 0);
    memory = real_memory;
    memory.xMalloc = memory_take;
    cr_assert_eq(sqlite3_config(SQLITE_CONFIG_MALLOC, &memory), 0);
    struct store *s = large_made();
    allocations = 0;
    cr_assert_eq(store_check(s, NULL, found), 0, "%s", found);
    uint64_t all = allocations, failed = 0;
    cr_assert_gt(all, 20);
    for (uint64_t i = 0; i < 2 * all; i++) {
        denied_once = i % 2 == 0;
        denied = 1 + i / 2;
        allocations = 0;
        int err = store_check(s, NULL, found);
        failed += err != 0;
        cr_assert(err == 0 || err == -ENOMEM || err == -EIO, "%d at %u: %s",
                  err, (unsigned)denied, found);
        cr_assert_str_eq(found, "", "at %u", (unsigned)denied);
    }
    cr_assert_gt(failed, 20);
    denied = 0;
    store_close(&s);
}

/* Put messages until killed; *acked counts those that were said to be safe. */
static void put_until_killed(_Atomic uint64_t *acked, uint64_t seq)
{
    struct store *s;
    struct store_attempt a = {.error = "exit 1"};
    if (store_open(&s, fixture_db, true, NULL) < 0)
        _exit(1);
    for (;; seq++) {
        struct store_row m = {.state = STORE_WAITING,
                              .receive_seq = seq,
                              .data = &seq,
                              .size = sizeof seq};
        if (store_put(s, &m, &a, NULL) < 0)
            _exit(1);
        *acked = seq;
    }
}

Test(store, what_was_acknowledged_survives_a_kill)
{
    _Atomic uint64_t *acked = mmap(NULL, sizeof *acked, PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    unsigned seed = (unsigned)clock_wall_ns();
    uint64_t next = 1;
    printf("seed %u\n", seed);
    for (int round = 0; round < 15; round++) {
        uint64_t until = next + (unsigned)rand_r(&seed) % 20;
        pid_t child = fork();
        if (child == 0)
            put_until_killed(acked, next);
        WAIT_FOR(*acked >= until || waitpid(child, NULL, WNOHANG) > 0);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        cr_assert(*acked >= until, "the child ended by itself");
        struct store *s = fixture_open();
        int64_t row;
        for (uint64_t seq = 1; seq <= *acked; seq++)
            cr_assert(store_find_seq(s, seq, &row) == 0);
        cr_assert(store_max_seq(s, &next) == 0);
        cr_assert(next == *acked || next == *acked + 1);
        next++;
        store_close(&s);
    }
    cr_assert(fixture_sql("SELECT count(*) - (SELECT count(*) FROM attempts)"
                          " FROM messages") == 0);
}

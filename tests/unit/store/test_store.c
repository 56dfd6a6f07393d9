/* test_store.c - the store's file: made, refused, damaged, killed */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <sysexits.h>

#include "common/file/folder.h"
#include "common/letter/letters.h"
#include "tests/unit/store/store_fixture.h"

TestSuite(store, .init = fixture_init, .fini = fixture_fini, .timeout = 60);

/* Versions as they were shipped. Never change one; add the next one beside
 * it. */
#define VERSION_1_TABLES                                                     \
    "CREATE TABLE messages (row INTEGER PRIMARY KEY AUTOINCREMENT,"          \
    " state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 4),"                 \
    " receive_seq INTEGER, id BLOB NOT NULL, priority INTEGER NOT NULL,"     \
    " attempts INTEGER NOT NULL, crashes INTEGER NOT NULL,"                  \
    " flags INTEGER NOT NULL, group_key TEXT, due_ns INTEGER NOT NULL,"      \
    " first_received_ns INTEGER NOT NULL, died_ns INTEGER NOT NULL,"         \
    " reason INTEGER NOT NULL, error TEXT, boot TEXT,"                       \
    " header_size INTEGER NOT NULL, data BLOB NOT NULL);"                    \
    "CREATE UNIQUE INDEX messages_seq ON messages (receive_seq)"             \
    " WHERE receive_seq IS NOT NULL;"                                        \
    "CREATE INDEX messages_due ON messages (state, due_ns) WHERE state = 1;" \
    "CREATE INDEX messages_parked ON messages"                               \
    " (state, group_key, priority, receive_seq) WHERE state = 2;"            \
    "CREATE INDEX messages_groups ON messages (group_key, state, attempts)"  \
    " WHERE group_key IS NOT NULL;"                                          \
    "CREATE INDEX messages_letters ON messages (state, died_ns)"             \
    " WHERE state >= 3;"                                                     \
    "CREATE TABLE attempts ("                                                \
    " row INTEGER NOT NULL REFERENCES messages (row) ON DELETE CASCADE,"     \
    " n INTEGER NOT NULL, started_ns INTEGER NOT NULL,"                      \
    " duration_ns INTEGER NOT NULL, error TEXT, stderr BLOB NOT NULL,"       \
    " PRIMARY KEY (row, n)) WITHOUT ROWID;"
#define NUMBERS(version)                                                \
    "PRAGMA auto_vacuum=INCREMENTAL; PRAGMA application_id=0x4d515753;" \
    "PRAGMA user_version=" version "; PRAGMA journal_mode=WAL;"
static const char version_1[] = NUMBERS("1") VERSION_1_TABLES
    "INSERT INTO messages VALUES (7, 3, 12, zeroblob(16), 5, 2, 1, 2, 'g', 0,"
    " 100, 200, 1, 'exit 1', NULL, 3, CAST('hd\nbody' AS BLOB));"
    "INSERT INTO attempts VALUES (7, 1, 1, 2, 'exit 1', x'00ff');";
#define VERSION_2_TABLES                                                  \
    "CREATE TABLE replays ("                                              \
    " row INTEGER NOT NULL REFERENCES messages (row) ON DELETE CASCADE,"  \
    " n INTEGER NOT NULL, token BLOB NOT NULL, died_ns INTEGER NOT NULL," \
    " marked_ns INTEGER NOT NULL, sent INTEGER NOT NULL,"                 \
    " PRIMARY KEY (row, n)) WITHOUT ROWID;"                               \
    "CREATE TABLE identity (id BLOB NOT NULL);"
static const char version_2[] = NUMBERS("2") VERSION_1_TABLES VERSION_2_TABLES
    "INSERT INTO identity VALUES (x'0102030405060708');"
    "INSERT INTO messages VALUES (7, 3, 12, zeroblob(16), 5, 2, 1, 2, 'g', 0,"
    " 100, 200, 1, 'exit 1', NULL, 3, CAST('hd\nbody' AS BLOB));"
    "INSERT INTO attempts VALUES (7, 1, 1, 2, 'exit 1',"
    " CAST('no such order' || char(10) AS BLOB));"
    "INSERT INTO replays VALUES (7, 1, zeroblob(16), 150, 160, 1);";
/* Version 3: as 2, with a column of attempts that ALTER TABLE adds. */
#define VERSION_3_TABLES                                                   \
    VERSION_1_TABLES VERSION_2_TABLES                                      \
        "ALTER TABLE attempts ADD COLUMN said INTEGER NOT NULL DEFAULT 0;" \
        "CREATE TABLE hooks (n INTEGER PRIMARY KEY AUTOINCREMENT,"         \
        " row INTEGER NOT NULL UNIQUE REFERENCES messages (row)"           \
        " ON DELETE CASCADE);"
static const char version_3[] = NUMBERS("3") VERSION_3_TABLES;
static const char version_4[] = NUMBERS("4") VERSION_3_TABLES
    "CREATE TABLE spool (key INTEGER PRIMARY KEY,"
    " received_ns INTEGER NOT NULL, id BLOB, crashes INTEGER NOT NULL,"
    " flags INTEGER NOT NULL, letter INTEGER, data BLOB NOT NULL);"
    "CREATE INDEX spool_letters ON spool (letter) WHERE letter IS NOT NULL;"
    "CREATE TABLE spool_state (count INTEGER NOT NULL, boot TEXT,"
    " run INTEGER NOT NULL, doubt INTEGER NOT NULL);"
    "CREATE TABLE keys (key TEXT PRIMARY KEY, seq INTEGER NOT NULL,"
    " id BLOB NOT NULL, from_ns INTEGER NOT NULL, until_ns INTEGER NOT NULL) "
    "WITHOUT ROWID;"
    "CREATE INDEX keys_until ON keys (until_ns);";

/* file_of - a store as that version made it */
static void file_of(const char *version)
{
    sqlite3 *db;
    sqlite3_open(fixture_db, &db);
    cr_assert(sqlite3_exec(db, version, NULL, NULL, NULL) == SQLITE_OK);
    sqlite3_close(db);
}

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

/* Opening must fail with `status`, and leave every byte. */
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

/* Not even SQLite's own side files were made. */
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
    for (int i = 0; i < 10; i++) {
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
    fixture_sql("PRAGMA user_version = 5");
    refused(EX_CONFIG, "version 5");
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
        sqlite3_exec(db, "PRAGMA user_version = 5", NULL, NULL, NULL);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    refused(EX_CONFIG, "version 5");
    cr_assert(fixture_sql("PRAGMA user_version") == 5);
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

Test(store, version_1_can_be_read)
{
    struct store_row m;
    char data[16], group[256];
    file_of(version_1);
    struct store *s = fixture_open();
    cr_assert(store_get(s, 7, &m, data, sizeof data, group) == 0);
    cr_assert(m.state == STORE_DEAD && m.receive_seq == 12 && m.priority == 5);
    cr_assert(m.attempts == 2 && m.crashes == 1 && m.flags == 2);
    cr_assert(m.group_size == 1 && group[0] == 'g');
    cr_assert(m.first_received_ns == 100 && m.died_ns == 200);
    cr_assert(m.reason == REASON_EXHAUSTED && m.header_size == 3);
    cr_assert(m.size == 7 && !memcmp(data, "hd\nbody", 7));
    store_close(&s);
}

/* line_of - visit: what a person would say, of the only letter */
static int line_of(const struct letter *l, void *arg)
{
    snprintf(arg, 64, "%s", l->error_text ? l->error_text : "");
    return 0;
}

Test(store, version_2_can_be_read_and_its_letters_say_why)
{
    char text[64] = "";
    file_of(version_2);
    struct store *s = fixture_open();
    cr_assert(fixture_sql("PRAGMA user_version") == 4);
    cr_assert(letters_get(s, 7, line_of, text) == 0);
    cr_assert_str_eq(text, "no such order");
    cr_assert(fixture_sql("SELECT count(*) FROM replays") == 1);
    cr_assert(fixture_sql("SELECT hex(id) = '0102030405060708'"
                          " FROM identity") == 1);
    store_close(&s);
}

#define IDENTITY "SELECT total(length(id)) FROM identity"

/* identity - of the store, as a number; there is one */
static int64_t identity(void)
{
    cr_assert(fixture_sql("SELECT count(*) FROM identity") == 1);
    cr_assert(fixture_sql(IDENTITY) == STORE_IDENTITY);
    /* its last four bytes: SQL has no number of eight */
    return fixture_sql("SELECT unicode(substr(hex(id), 16)) + 100 *"
                       " unicode(substr(hex(id), 14)) + 10000 *"
                       " unicode(substr(hex(id), 12)) FROM identity");
}

Test(store, version_1_becomes_version_4_once)
{
    file_of(version_1);
    struct store *s = fixture_open();
    cr_assert(fixture_sql("PRAGMA user_version") == 4);
    cr_assert(fixture_sql("SELECT count(*) FROM attempts") == 1);
    int64_t was = identity();
    store_close(&s);
    s = fixture_open();
    cr_assert(identity() == was, "another open leaves it alone");
    store_close(&s);
}

Test(store, version_3_becomes_version_4_with_an_empty_spool)
{
    file_of(version_3);
    fixture_sql("INSERT INTO identity VALUES (x'0102030405060708')");
    int64_t was = identity();
    struct store *s = fixture_open();
    cr_assert(fixture_sql("PRAGMA user_version") == 4);
    cr_assert(identity() == was);
    cr_assert(fixture_sql("SELECT count FROM spool_state") == 0);
    store_close(&s);
    fixture_sql("PRAGMA user_version = 3"); /* store_wal_bury of the old one */
    fixture_sql("UPDATE spool_state SET doubt = 5");
    s = fixture_open();
    cr_assert(fixture_sql("SELECT doubt FROM spool_state") == 5);
    cr_assert(fixture_sql("SELECT count(*) FROM spool_state") == 1);
    store_close(&s);
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

/* A worker of version 1 that had the store open writes its number again when
 * the -wal cannot be begun anew. */
Test(store, version_4_that_says_an_older_one_is_version_4)
{
    file_of(version_1);
    struct store *s = fixture_open();
    store_close(&s);
    int64_t was = identity();
    for (int says = 1; says <= 3; says++) {
        static const char *const sets[] = {"PRAGMA user_version = 1",
                                           "PRAGMA user_version = 2",
                                           "PRAGMA user_version = 3"};
        fixture_sql(sets[says - 1]);
        s = fixture_open();
        cr_assert(fixture_sql("PRAGMA user_version") == 4);
        cr_assert(identity() == was);
        store_close(&s);
    }
}

/* An upgrade of the package leaves the old worker running for a while, and the
 * first mqdlq of the new one brings its store up to version 4. */
Test(store, a_program_of_version_1_goes_on_while_it_is_upgraded)
{
    static const char put[] =
        "INSERT INTO messages (state, id, priority, attempts, crashes, flags,"
        " due_ns, first_received_ns, died_ns, reason, header_size, data)"
        " VALUES (3, zeroblob(16), 0, 0, 0, 0, 0, 0, 1, 1, 0, x'61')";
    sqlite3 *db;
    sqlite3_stmt *st;
    file_of(version_1);
    sqlite3_open(fixture_db, &db);
    cr_assert(sqlite3_prepare_v2(db, put, -1, &st, NULL) == SQLITE_OK);
    cr_assert(sqlite3_step(st) == SQLITE_DONE);
    sqlite3_reset(st);
    struct store *s = fixture_open();
    cr_assert(sqlite3_step(st) == SQLITE_DONE, "%s", sqlite3_errmsg(db));
    sqlite3_finalize(st);
    sqlite3_close(db);
    cr_assert(store_count(s, STORE_DEAD) == 3);
    store_close(&s);
}

Test(store, several_programs_upgrade_it_at_once)
{
    for (int round = 0; round < 10; round++) {
        file_of(version_1);
        for (int i = 0; i < 4; i++) {
            struct store *s;
            struct problem p;
            if (fork() == 0)
                _exit(store_open(&s, fixture_db, false, &p) != 0);
        }
        for (int i = 0, status; i < 4; i++) {
            cr_assert(wait(&status) > 0);
            cr_assert(status == 0);
        }
        cr_assert(fixture_sql("PRAGMA user_version") == 4);
        (void)identity();
        cr_assert(unlink(fixture_db) == 0);
    }
}

/* Some indexes are of no version: a store may be without them
 * (test_waiting.c). */
Test(store, a_new_file_has_the_schema_of_its_version)
{
    char other[PATH_MAX + 8], sql[PATH_MAX + 400];
    sqlite3 *db;
    struct store *s = fixture_open();
    store_close(&s);
    snprintf(other, sizeof other, "%s.golden", fixture_db);
    sqlite3_open(other, &db);
    cr_assert(sqlite3_exec(db, version_4, NULL, NULL, NULL) == SQLITE_OK);
    snprintf(sql, sizeof sql, "ATTACH '%s' AS new", fixture_db);
    cr_assert(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK);
    sqlite3_stmt *st;
    static const char differ[] =
        "WITH a AS (SELECT name, replace(replace(sql, '( ', '('), '  ', ' ')"
        " AS t FROM main.sqlite_schema), b AS (SELECT name,"
        " replace(replace(sql, '( ', '('), '  ', ' ') AS t"
        " FROM new.sqlite_schema WHERE name NOT IN ('messages_waiting',"
        " 'messages_letter_ids', 'messages_cancelled', 'spool_cancelled'))"
        " SELECT count(*) FROM (SELECT * FROM (SELECT * FROM a EXCEPT SELECT *"
        " FROM b) UNION ALL SELECT * FROM (SELECT * FROM b EXCEPT"
        " SELECT * FROM a))";
    cr_assert(sqlite3_prepare_v2(db, differ, -1, &st, NULL) == SQLITE_OK);
    cr_assert(sqlite3_step(st) == SQLITE_ROW);
    cr_assert(sqlite3_column_int(st, 0) == 0, "raise STORE_VERSION");
    sqlite3_finalize(st);
    sqlite3_close(db);
}

Test(store, damage_that_is_found_later_is_an_io_error)
{
    struct store_row out, m = fixture_row(STORE_DEAD, "some text");
    struct store *s = fixture_open();
    char data[64];
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
    cr_assert(store_get(s, 5, &out, data, sizeof data, NULL) == -EIO);
    cr_assert(store_count(s, STORE_DEAD) == -EIO);
    cr_assert(store_put(s, &m, NULL, NULL) == -EIO);
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

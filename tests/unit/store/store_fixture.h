/* store_fixture.h - a scratch folder and sample rows for the store's tests */
#ifndef TESTS_UNIT_STORE_STORE_FIXTURE_H
#define TESTS_UNIT_STORE_STORE_FIXTURE_H

#include <criterion/criterion.h>
#include <ftw.h>
#include <limits.h>
#include <sched.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/store/store.h"

static char fixture_dir[64];
static char fixture_db[PATH_MAX];

static inline int fixture_unlink(const char *path, const struct stat *st,
                                 int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

static inline void fixture_init(void)
{
    strcpy(fixture_dir, "/tmp/mqw-store-XXXXXX");
    cr_assert(mkdtemp(fixture_dir));
    snprintf(fixture_db, sizeof fixture_db, "%s/store.db", fixture_dir);
}

static inline void fixture_fini(void)
{
    nftw(fixture_dir, fixture_unlink, 8, FTW_DEPTH | FTW_PHYS);
}

static inline struct store *fixture_open(void)
{
    struct store *s;
    struct problem p = {0};
    int err = store_open(&s, fixture_db, true, &p);
    cr_assert(err == 0, "%s", p.text);
    return s;
}

/* Run SQL of our own beside the store; the first value of the last row. */
static inline int64_t fixture_sql(const char *sql)
{
    sqlite3 *db;
    sqlite3_stmt *st;
    int64_t value = -1;
    cr_assert(sqlite3_open(fixture_db, &db) == SQLITE_OK);
    sqlite3_busy_timeout(db, 10000);
    int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
    cr_assert(rc == SQLITE_OK, "%s: %s", sql, sqlite3_errmsg(db));
    while ((rc = sqlite3_step(st)) == SQLITE_ROW)
        value = sqlite3_column_int64(st, 0);
    cr_assert(rc == SQLITE_DONE, "%s: %s", sql, sqlite3_errmsg(db));
    sqlite3_finalize(st);
    sqlite3_close(db);
    return value;
}

/* Rows that are found if everybody who has the store open is killed now: who
 * opens copies of the files has them without the index. */
static inline int64_t fixture_rows_after_kill(void)
{
    char was[PATH_MAX], command[512];
    snprintf(command, sizeof command,
             "mkdir -p %s/killed && cp %s/store.db %s/store.db-wal %s/killed",
             fixture_dir, fixture_dir, fixture_dir, fixture_dir);
    cr_assert(system(command) == 0);
    strcpy(was, fixture_db);
    snprintf(fixture_db, sizeof fixture_db, "%s/killed/store.db", fixture_dir);
    int64_t rows = fixture_sql("SELECT count(*) FROM messages");
    strcpy(fixture_db, was);
    return rows;
}

static inline struct store_row fixture_row(enum store_state state,
                                           const char *text)
{
    return (struct store_row){
        .state = state,
        .id = ulid_make(clock_wall_ns()),
        .data = text,
        .size = strlen(text),
    };
}

static inline int64_t fixture_put(struct store *s, const struct store_row *m)
{
    int64_t row = 0;
    int err = store_put(s, m, NULL, &row);
    cr_assert(err == 0, "store_put: %s", strerror(-err));
    return row;
}

static int64_t fixture_slept_us;

static inline int fixture_sleep(sqlite3_vfs *vfs, int us)
{
    (void)vfs;
    fixture_slept_us += us;
    return us;
}

/* From here on SQLite's waits for another program's lock are over at once, and
 * counted. */
static inline void fixture_sleeps_pass(void)
{
    sqlite3_vfs_find(NULL)->xSleep = fixture_sleep;
    fixture_slept_us = 0;
}

/* Wait for `condition`, at most 20 s. */
#define WAIT_FOR(condition)                                             \
    do {                                                                \
        uint64_t end_ = clock_mono_ns() + 20 * NS_PER_S;                \
        while (!(condition)) {                                          \
            cr_assert(clock_mono_ns() < end_, "never: %s", #condition); \
            sched_yield();                                              \
        }                                                               \
    } while (0)

#endif

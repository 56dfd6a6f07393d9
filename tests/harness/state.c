/* state.c - the store and the custody file of a queue (see harness.h) */
#include "tests/harness/internal.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int value_take(void *arg, int count, char **values, char **names)
{
    long long *value = arg;

    (void)count;
    (void)names;
    *value = values[0] ? atoll(values[0]) : 0;
    return 0;
}

long long harness_sql(const char *queue, const char *sql)
{
    const char *path =
        harness_path("%s%s/store.db", harness_state_dir(), queue);
    bool reads = strncmp(sql, "SELECT", 6) == 0;
    long long value = -1;
    sqlite3 *db = NULL;

    if (reads && !harness_exists(path))
        return -1;
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK)
        harness_fail("%s: %s", path, sqlite3_errmsg(db));
    /* The last connection to close would copy the -wal under a lock that keeps
     * a worker from starting, for as long as the disk takes. */
    sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    sqlite3_busy_timeout(db, 10000);
    if (sqlite3_exec(db, sql, value_take, &value, NULL) != SQLITE_OK &&
        (!reads || strncmp(sqlite3_errmsg(db), "no such table", 13) != 0))
        harness_fail("%s: %s: %s", path, sql, sqlite3_errmsg(db));
    if (!reads && sqlite3_changes(db) == 0)
        harness_fail("%s: %s: no row was changed", path, sql);
    sqlite3_close(db);
    return value;
}

unsigned harness_busy_slots(const char *queue)
{
    const char *path = harness_custody(queue);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    uint64_t stride = 0;
    uint32_t slots = 0;
    unsigned char state = 0;
    unsigned busy = 0;

    if (pread(fd, &stride, sizeof stride, 32) != sizeof stride ||
        pread(fd, &slots, sizeof slots, 56) != sizeof slots)
        harness_fail("%s: cannot be read", path);
    for (uint32_t i = 0; i < slots; i++) {
        if (pread(fd, &state, 1, (off_t)(4096 + stride * i)) != 1)
            harness_fail("%s: slot %u cannot be read", path, i);
        busy += state != 0;
    }
    close(fd);
    return busy;
}

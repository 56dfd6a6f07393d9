/* store_clock.c - make due times follow the clock; see store.h
 *
 * The table `clock` has the distance of the wall clock from CLOCK_BOOTTIME at
 * the worker's last check, and all due times refer to that wall clock. When the
 * clock is set, one commit moves the delays and stores the new distance. So no
 * reader compares a due time of one clock with another clock, and rows written
 * later use the new distance (SQL_INSERT). If the process is killed before the
 * commit, the next start finds the old distance and moves all delays. After the
 * commit, the next start finds nothing to move.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/boot_id.h"
#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/store/sql.h"

#define BOOT_MAX 128

struct follow {
    char boot[BOOT_MAX]; /* of now; "" if unknown */
    int64_t ahead_ns;    /* the same */
    int64_t step_ns;     /* shift of the end of each delay */
    bool other;          /* another boot: the due times are from an earlier run
                            of the machine */
};

/* boot_read - read the run of the machine and the time namespace of
 * CLOCK_BOOTTIME */
static void boot_read(char boot[BOOT_MAX])
{
    char text[BOOT_TEXT], space[40] = "";
    struct boot now;
    ssize_t size;

    boot[0] = '\0';
    boot_now(&now);
    if (!now.id[0])
        return;
    size = readlink("/proc/self/ns/time", space, sizeof space - 1);
    space[size > 0 ? size : 0] = '\0';
    snprintf(boot, BOOT_MAX, "%s/%s", boot_print(&now, text), space);
}

/* Read the stored distance and the current one; 0 or -errno. */
static int clock_compare(struct store *s, struct follow *f)
{
    sqlite3_stmt *st;
    int found = store_ask(s, &st, SQL_CLOCK, NULL);
    const char *boot;

    if (found == STEP_ROW) {
        boot = (const char *)sqlite3_column_text(st, 1);
        f->other = !boot || !f->boot[0] || sql_elsewhere(boot, f->boot);
        f->step_ns = f->other ? 0 : f->ahead_ns - sqlite3_column_int64(st, 0);
    }
    return store_answered(s, st, found);
}

/* Write the rows and the distance in one transaction. */
static int follow_apply(struct sql *sql, void *arg)
{
    const struct follow *f = arg;
    /* Read here, where nobody else writes: a row that was written before this
     * commit was received before now, and is not cut to less than its delay. */
    uint64_t wall_ns = (uint64_t)((int64_t)clock_boot_ns() + f->ahead_ns);
    int err = sql_run(sql, SQL_CLOCK_ROWS,
                      SQL_VALUES(value_int(f->step_ns), value_u64(wall_ns)));

    return err ? err
               : sql_change(
                     sql, SQL_CLOCK_SET,
                     SQL_VALUES(value_int(f->ahead_ns), value_string(f->boot)));
}

int store_clock_follow(struct store *s)
{
    struct follow f = {.ahead_ns = clock_ahead_ns()};
    int err;

    boot_read(f.boot);
    err = clock_compare(s, &f);
    if (err || (!f.other && llabs(f.step_ns) < SQL_CLOCK_SMALL_NS))
        return err;
    FAULT_POINT("store_clock_before");
    err = store_write(s, follow_apply, NULL, &f);
    FAULT_POINT("store_clock_after");
    return err;
}

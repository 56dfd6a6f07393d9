/* store_clock.c - due times while somebody sets the clock; see store.h
 *
 * The table `clock` says how far the wall clock was ahead of CLOCK_BOOTTIME
 * when the worker looked last. All due times are by the wall clock of that
 * look. When the clock is set, the delays move with it, in the same commit as
 * the new distance. So no reader sees a due time by one clock and judges it by
 * another, and a row that is written later takes the new distance (SQL_INSERT).
 * Crash before the commit: the next start finds the old distance and moves all
 * of them. After it: the next start finds nothing to move.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/boot_id.h"
#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/store/store_sql.h"

#define SMALL_NS (10 * (int64_t)NS_PER_MS) /* less is not worth a commit */
#define BOOT_MAX 128

struct follow {
    char boot[BOOT_MAX]; /* of now; "" if not known */
    int64_t ahead_ns;    /* the same */
    uint64_t wall_ns;    /* the same */
    int64_t step_ns;     /* so much later is each delay over */
    bool other;          /* boot: the due times are of another run */
};

/* boot_read - what CLOCK_BOOTTIME belongs to: a run of the machine, and a time
 * namespace */
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

/* look - what the last look noted, beside what is now; 0 or -errno */
static int look(struct store *s, struct follow *f)
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

/* follow_apply - the rows and the distance together */
static int follow_apply(struct sql *sql, void *arg)
{
    const struct follow *f = arg;
    int err = sql_run(sql, SQL_CLOCK_ROWS,
                      SQL_VALUES(value_int(f->step_ns), value_u64(f->wall_ns)));

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
    f.wall_ns = (uint64_t)((int64_t)clock_boot_ns() + f.ahead_ns);
    err = look(s, &f);
    if (err || (!f.other && llabs(f.step_ns) < SMALL_NS))
        return err;
    FAULT_POINT("store_clock_before");
    err = store_write(s, follow_apply, NULL, &f);
    FAULT_POINT("store_clock_after");
    return err;
}

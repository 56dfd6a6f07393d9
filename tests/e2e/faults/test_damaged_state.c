/* test_damaged_state.c - mqworker: damaged files
 *
 * A damaged file is refused and left unchanged, or read as far as possible;
 * what cannot be read is copied aside. The worker never crashes.
 */
#include "tests/harness/disk.h"
#include "tests/harness/harness.h"
#include "tests/harness/letters.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

TestSuite(damaged_state, .init = harness_init, .fini = harness_fini);

#define MESSAGES 3
#define SLOTS_AT 4096 /* from docs/formats/custody.md */

/* Seed the random numbers and print the seed, which repeats the run. */
static void seed_set(void)
{
    const char *given = getenv("MQW_DAMAGE_SEED");
    unsigned seed =
        given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
    printf("MQW_DAMAGE_SEED=%u\n", seed);
    fflush(stdout);
    srandom(seed);
}

static const char *folder_of(const char *q)
{
    return harness_path("%s%s", harness_state_dir(), q);
}

/* ---- the custody file ---- */

/* Return the custody file of a worker that was killed while three messages were
 * running. */
static unsigned char *custody_made(const char *q, size_t *size)
{
    for (int i = 0; i < MESSAGES; i++) {
        char body[16];
        snprintf(body, sizeof body, "m%d", i);
        harness_send_text(q, body);
    }
    struct harness_process *w = harness_worker(
        q, "-c", "3", "--", "sh", "-c", "echo >>started; exec sleep 1000");
    harness_until_lines("started", MESSAGES, 10000);
    harness_kill(w);
    const char *data = harness_read(harness_custody(q), size);
    unsigned char *copy = malloc(*size);
    cr_assert_not_null(copy);
    memcpy(copy, data, *size);
    return copy;
}

/* Replace the state folder by one with the file `runtime` only, which leads to
 * this custody file. */
static void folder_fresh(const char *q, const void *custody, size_t size)
{
    static unsigned number;
    const char *folder = folder_of(q);
    const char *aside = harness_path("old.%u", number++);
    cr_assert_eq(rename(folder, aside), 0);
    cr_assert_eq(mkdir(folder, 0700), 0);
    cr_assert_eq(rename(harness_path("%s/runtime", aside),
                        harness_path("%s/runtime", folder)),
                 0);
    const char *path = harness_custody(q);
    cr_assert(unlink(path) == 0);
    harness_write(path, custody, size);
    cr_assert_eq(chmod(path, 0600), 0);
}

static struct harness_result worker_run(const char *q)
{
    return harness_run("mqworker", "--state-dir", harness_state_dir(),
                       "--exit-when-idle", "--max-crashes", "2", q, "--", "sh",
                       "-c", "cat >>runs; echo >>runs");
}

/* Check that the damaged file was copied unchanged. Return how many of its
 * slots were given up, from the log. */
static size_t aside(const char *q, const struct harness_result *r,
                    const unsigned char *custody, size_t size)
{
    const char *line = strstr(r->err, "event=custody_damaged");
    if (!line)
        return 0;
    const char *count = strstr(line, " slots=");
    cr_assert_not_null(count, "%s", r->err);
    DIR *dir = opendir(folder_of(q));
    bool found = false;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (strncmp(e->d_name, "custody.damaged.", 16) != 0)
            continue;
        size_t copied;
        const char *copy = harness_read(
            harness_path("%s/%s", folder_of(q), e->d_name), &copied);
        found = true;
        cr_assert_eq(copied, size);
        /* The header is not compared: it is marked as in use by now. */
        cr_assert_arr_eq(copy + SLOTS_AT, custody + SLOTS_AT, size - SLOTS_AT);
    }
    closedir(dir);
    cr_assert(found, "no copy: %s", r->err);
    return strtoul(count + 7, NULL, 10);
}

/* Start a worker on the file with one flipped bit: it must refuse the file and
 * leave it, or no message may be lost. */
static void flipped_check(const char *q, unsigned char *custody, size_t size,
                          size_t at, unsigned bit)
{
    size_t after, letters;
    custody[at] ^= (unsigned char)(1u << bit);
    folder_fresh(q, custody, size);
    harness_write("runs", "", 0);
    struct harness_result r = worker_run(q);
    if (r.status == 78) {
        const char *left = harness_read(harness_custody(q), &after);
        cr_assert(after == size && memcmp(left, custody, size) == 0,
                  "byte %zu, bit %u: changed", at, bit);
    } else {
        cr_assert_eq(r.status, 0, "byte %zu, bit %u: %d: %s", at, bit, r.status,
                     r.err);
        harness_letters(q, &letters);
        cr_assert_eq(harness_lines("runs") + letters +
                         aside(q, &r, custody, size),
                     MESSAGES, "byte %zu, bit %u: %s", at, bit, r.err);
    }
    custody[at] ^= (unsigned char)(1u << bit);
}

Test(damaged_state, a_bit_of_the_custody_files_header_costs_no_message)
{
    /* bytes of: magic version head slot_head clean body stride nonce sum slots
     * unused sequence boot id */
    static const size_t at[] = {0,  7,  8,  11, 12, 16, 20, 24, 30, 32,
                                40, 47, 48, 55, 56, 59, 60, 64, 71, 72};
    const char *q = harness_queue(0, 0);
    size_t size;
    seed_set();
    unsigned char *custody = custody_made(q, &size);
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++)
        flipped_check(q, custody, size, at[i], (unsigned)random() % 8);
    free(custody);
}

/* A record is set aside if its damage can be detected
 * (docs/formats/custody.md). Other fields only accompany the message, which
 * runs anyway. */
Test(damaged_state, a_bit_of_a_record_costs_no_message)
{
    /* first byte, number of bytes, lowest bit */
    static const struct {
        size_t at, bytes;
        unsigned low;
    } fields[] = {
        {0, 1, 0},   {1, 1, 0},  {2, 2, 0},   {4, 4, 0},   {8, 4, 0},
        {12, 4, 0},  {16, 8, 0}, {24, 8, 0},  {32, 8, 0},  {40, 8, 0},
        {48, 16, 0}, {64, 8, 0}, {72, 4, 0},  {76, 4, 0},  {80, 4, 0},
        {84, 4, 0},  {88, 8, 0}, {96, 32, 0}, {128, 2, 0}, {130, 64, 0},
    };
    const char *q = harness_queue(0, 0);
    size_t size, used = SLOTS_AT;
    seed_set();
    unsigned char *custody = custody_made(q, &size);
    while (custody[used] != 3) /* RUNNING */
        used += 384;           /* 128 + 256 */
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        for (int n = 0; n < 4; n++)
            flipped_check(
                q, custody, size,
                used + fields[i].at + (size_t)random() % fields[i].bytes,
                fields[i].low + (unsigned)random() % (8 - fields[i].low));
    free(custody);
}

Test(damaged_state, a_custody_file_cut_short_is_78_and_left_untouched)
{
    const char *q = harness_queue(0, 0);
    size_t size, after;
    unsigned char *custody = custody_made(q, &size);
    const size_t sizes[] = {0,    1,    64,          112,     4095,
                            4096, 4200, size - 4096, size - 1};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        folder_fresh(q, custody, sizes[i]);
        struct harness_result r = worker_run(q);
        cr_assert_eq(r.status, 78, "%zu bytes: %d: %s", sizes[i], r.status,
                     r.err);
        cr_assert(strstr(r.err, "/custody"), "%s", r.err);
        const char *left = harness_read(harness_custody(q), &after);
        cr_assert_eq(after, sizes[i]);
        cr_assert_arr_eq(left, custody, after);
    }
    folder_fresh(q, custody, size);
    cr_assert_eq(worker_run(q).status, 0);
    cr_assert_eq(harness_lines("runs"), MESSAGES);
    free(custody);
}

/* ---- the store ---- */

/* Make a store with some letters and close it; return its path. */
static const char *store_made(const char *q)
{
    for (int i = 0; i < 8; i++) {
        char body[200];
        memset(body, 'a' + i, sizeof body);
        harness_send(q, body, sizeof body, 0);
    }
    struct harness_result r =
        harness_run("mqworker", "--state-dir", harness_state_dir(),
                    "--exit-when-idle", q, "--", "sh", "-c", "exit 65");
    cr_assert_eq(r.status, 0, "%s", r.err);
    return harness_path("%s/store.db", folder_of(q));
}

/* Overwrite 16 bytes at a random place. */
static void store_damage(const char *path, const char *data, size_t size)
{
    char *copy = malloc(size);
    cr_assert_not_null(copy);
    memcpy(copy, data, size);
    size_t at = (size_t)random() % (size - 16);
    for (size_t i = 0; i < 16; i++)
        copy[at + i] = (char)random();
    harness_write(path, copy, size);
    free(copy);
}

/* Check that the worker does not crash and does not replace the store. */
static void refused_or_run(const char *q, const char *path)
{
    size_t size;
    struct stat before, after;
    cr_assert_eq(stat(path, &before), 0);
    struct harness_result r = worker_run(q);
    cr_assert(r.status == 0 || r.status == 73 || r.status == 78, "%d: %s",
              r.status, r.err);
    if (r.status)
        cr_assert(strstr(r.err, "mqworker: ") ||
                      strstr(r.err, "event=store_unreadable"),
                  "%s", r.err);
    r = harness_run("mqdlq", "list", "--json", "--state-dir",
                    harness_state_dir(), q);
    cr_assert_geq(r.status, 0, "%d", r.status);
    cr_assert_eq(stat(path, &after), 0);
    cr_assert_eq(before.st_ino, after.st_ino, "the file was replaced");
    harness_read(path, &size);
    cr_assert_gt(size, 0);
}

/* Empty the index of letters, which SQLite reads without an error: every letter
 * is hidden. */
static void index_damage(const char *path)
{
    const unsigned char none[2] = {0, 0};
    sqlite3 *db;
    sqlite3_stmt *st;
    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_prepare_v2(db,
                                    "SELECT rootpage FROM sqlite_schema"
                                    " WHERE name = 'messages_letters'",
                                    -1, &st, NULL),
                 SQLITE_OK);
    cr_assert_eq(sqlite3_step(st), SQLITE_ROW);
    off_t at = (off_t)(sqlite3_column_int64(st, 0) - 1) * 4096 + 3;
    sqlite3_finalize(st);
    sqlite3_close(db);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    cr_assert_eq(pwrite(fd, none, sizeof none, at), (ssize_t)sizeof none);
    close(fd);
}

static struct harness_result doctor(const char *q)
{
    return harness_run("mqctl", "doctor", "--state-dir", harness_state_dir(),
                       q);
}

Test(damaged_state, damage_that_only_hides_rows_is_found_before_a_run)
{
    const char *q = harness_queue(0, 0), *path = store_made(q);
    struct harness_result r = doctor(q);
    cr_assert_null(strstr(r.out, "damage"), "%s", r.out);
    index_damage(path);
    r = worker_run(q);
    cr_assert_eq(r.status, 73, "%d: %s", r.status, r.err);
    cr_assert(strstr(r.err, "store.db is damaged ("), "%s", r.err);
    cr_assert(strstr(r.err, "docs/backup.md"), "%s", r.err);
    r = doctor(q);
    cr_assert_eq(r.status, 1, "%s", r.out);
    cr_assert(strstr(r.out, "store.db is damaged: "), "%s", r.out);
}

/* Grow the store so that it is not checked before the worker starts. */
static void store_grow(const char *path)
{
    sqlite3 *db;
    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(db,
                              "CREATE TABLE filler AS"
                              " SELECT zeroblob(17 << 20) AS bytes",
                              NULL, NULL, NULL),
                 SQLITE_OK);
    sqlite3_close(db);
}

Test(damaged_state, a_large_store_is_checked_while_the_worker_runs)
{
    const char *q = harness_queue(0, 0), *path = store_made(q);
    store_grow(path);
    struct harness_process *w = harness_worker(q, "--", "true");
    harness_wait_log(w, "event=store_checked", 20000);
    cr_assert_eq(harness_stop(w, 20000), 0);
    index_damage(path);
    w = harness_worker(q, "--", "true");
    harness_wait_log(w, "event=store_damaged", 20000);
    harness_until(strstr(harness_run("mqctl", "status", "--state-dir",
                                     harness_state_dir(), q)
                             .out,
                         "store is damaged"),
                  20000);
    cr_assert_eq(harness_stop(w, 20000), 0);
    struct harness_result r = worker_run(q);
    cr_assert_eq(r.status, 73, "not refused: %s", r.err);
}

Test(damaged_state, a_damaged_store_is_refused_or_read_and_never_replaced)
{
    const char *q = harness_queue(0, 0), *path = store_made(q);
    size_t size;
    const char *data = harness_read(path, &size);
    seed_set();
    for (int i = 0; i < 20; i++) {
        store_damage(path, data, size);
        refused_or_run(q, path);
        unlink(harness_path("%s-wal", path));
        unlink(harness_path("%s-shm", path));
    }
    static const double parts[] = {0, 0.01, 0.1, 0.5, 0.9};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        harness_write(path, data, (size_t)(parts[i] * (double)size));
        struct harness_result r = worker_run(q);
        cr_assert(r.status == 73 || (r.status == 0 && parts[i] > 0.1),
                  "%zu: %d: %s", i, r.status, r.err);
    }
}

/* Kill a worker whose store has 8 letters, all of them in the -wal. */
static const char *wal_made(const char *q)
{
    for (int i = 0; i < 8; i++)
        harness_send_text(q, "a letter");
    struct harness_process *w =
        harness_worker(q, "-c1", "--", "sh", "-c", "exit 65");
    harness_wait_letters(q, 8, 10000); /* the log line comes before the
                                        * letter */
    harness_kill(w);
    return harness_path("%s/store.db-wal", folder_of(q));
}

/* Check that the worker starts and logs how many commits are missing, and that
 * the -wal was copied in its full size. */
static void behind(const char *q, const char *wal, size_t size)
{
    size_t letters, kept;
    struct harness_result r = worker_run(q);
    const char *line = strstr(r.err, "event=store_behind"), *number;
    cr_assert_eq(r.status, 0, "%d: %s", r.status, r.err);
    cr_assert_not_null(line, "%s", r.err);
    number = strstr(line, "commits=");
    harness_letters(q, &letters);
    cr_assert(letters < 8, "%zu", letters);
    cr_assert_eq(strtoul(number + 8, NULL, 10), 8 - letters, "%s", line);
    const char *copy = strstr(line, "copy=") + 5;
    copy = harness_path("%.*s-wal", (int)strcspn(copy, " \n"), copy);
    cr_assert_str_eq(harness_read(copy, &kept) ? strrchr(copy, '-') : "",
                     strrchr(wal, '-'));
    cr_assert_eq(kept, size);
    r = worker_run(q);
    cr_assert_null(strstr(r.err, "event=store_behind"), "told again: %s",
                   r.err);
}

Test(damaged_state, a_store_that_lost_commits_is_told_and_a_copy_kept)
{
    const char *q = harness_queue(0, 0), *path = wal_made(q);
    size_t size;
    harness_read(path, &size);
    cr_assert_eq(truncate(path, (off_t)size / 2), 0);
    behind(q, path, size / 2);
}

Test(damaged_state, a_damaged_wal_is_told_and_a_copy_kept)
{
    const char *q = harness_queue(0, 0), *path = wal_made(q);
    size_t size;
    char *data = (char *)harness_read(path, &size);
    data[size / 2] ^= 4;
    harness_write(path, data, size);
    behind(q, path, size);
}

Test(damaged_state, a_store_that_was_replaced_by_an_older_one_is_told)
{
    const char *q = harness_queue(0, 0), *path = wal_made(q);
    const char *db = harness_path("%s/store.db", folder_of(q));
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(unlink(db), 0);
    struct harness_result r = worker_run(q);
    cr_assert_eq(r.status, 0, "%d: %s", r.status, r.err);
    cr_assert(strstr(r.err, "event=store_behind"), "%s", r.err);
    cr_assert(strstr(r.err, "commits=9 "), "%s", r.err);
}

Test(damaged_state, a_wal_that_is_not_damaged_has_all_letters)
{
    const char *q = harness_queue(0, 0);
    size_t letters;
    wal_made(q);
    struct harness_result r = worker_run(q);
    cr_assert_eq(r.status, 0);
    cr_assert_null(strstr(r.err, "store_behind"), "%s", r.err);
    harness_letters(q, &letters);
    cr_assert_eq(letters, 8);
}

Test(damaged_state, a_store_that_is_locked_for_long_is_waited_for)
{
    const char *q = harness_queue(0, 0);
    store_made(q);
    struct harness_process *w =
        harness_worker(q, "--", "sh", "-c", "echo >>runs; exit 65");
    harness_wait_log(w, "event=started", 10000);
    struct sqlite3 *db = disk_lock(q);
    harness_send_text(q, "x");
    harness_wait_log(w, "event=store_cannot_write", 20000);
    cr_assert_eq(harness_lines("runs"), 1);
    disk_unlock(db);
    harness_wait_log(w, "event=store_writes_again", 20000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    size_t letters;
    harness_letters(q, &letters);
    cr_assert_eq(letters, 9);
    cr_assert_eq(harness_lines("runs"), 1, "it ran again");
}

Test(damaged_state, a_start_waits_for_a_store_that_is_locked)
{
    const char *q = harness_queue(0, 0);
    store_made(q);
    struct sqlite3 *db = disk_lock(q);
    struct harness_process *w = harness_worker(q, "--", "true");
    const char *path = harness_path("%s/worker.pid", folder_of(q));
    harness_until(atol(harness_read(path, NULL)) == harness_pid(w), 10000);
    disk_unlock(db);
    harness_wait_log(w, "event=started", 20000);
    cr_assert_eq(harness_stop(w, 10000), 0);
}

/* Each write at the end would wait for 5 s if the stop did not skip it;
 * event=stopped must be the last line. */
Test(damaged_state, a_stop_beside_a_locked_store_is_short_and_says_so_last)
{
    const char *q = harness_queue(0, 0), *line, *last;
    store_made(q);
    struct harness_process *w =
        harness_worker(q, "-c", "1", "--", "sh", "-c", "exit 65");
    harness_wait_log(w, "event=started", 20000);
    struct sqlite3 *db = disk_lock(q);
    harness_send_text(q, "a letter");
    line = harness_wait_log(w, "event=store_cannot_write", 20000);
    cr_assert(strstr(line, "locked_by=\"test_damaged_st (pid "), "%s", line);
    cr_assert(strstr(line, "wait for it to finish, or stop it"), "%s", line);
    cr_assert_eq(harness_stop(w, 14000), 0);
    last = strstr(harness_stderr(w, NULL), "event=stopped");
    cr_assert_not_null(last);
    cr_assert_null(strstr(last, "event=not_kept"), "%s", last);
    cr_assert_null(strstr(last, "event=unfinished"), "%s", last);
    disk_unlock(db);
}

Test(damaged_state, a_start_beside_a_store_that_stays_locked_is_refused)
{
    const char *q = harness_queue(0, 0);
    store_made(q);
    struct sqlite3 *db = disk_lock(q);
    struct harness_result r = worker_run(q);
    cr_assert_eq(r.status, 73, "%d: %s", r.status, r.err);
    cr_assert(strstr(r.err, "is locked by test_damaged_st (pid "), "%s", r.err);
    cr_assert_eq(harness_lines("runs"), 0);
    disk_unlock(db);
    r = worker_run(q);
    cr_assert_eq(r.status, 0, "still refused: %s", r.err);
}

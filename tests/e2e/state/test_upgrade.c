/* test_upgrade.c - mqworker, mqdlq, mqctl: state of other versions
 *
 * State that a killed worker left, at another path and in another boot of the
 * machine, is taken over completely. State of an unknown version is refused
 * and not changed. tests/golden/make describes the messages.
 */
#include "tests/harness/custody_seal.h"
#include "tests/harness/harness.h"
#include "tests/harness/letters.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

TestSuite(upgrade, .init = harness_init, .fini = harness_fini);

#define SOON_MS    20000
#define VERSION_AT 8 /* offset in the custody file (docs/formats/custody.md) */
#define GOLDEN     "version-1"

/* ---- folders ---- */

static const char *folder(const char *q)
{
    return harness_path("%s%s", harness_state_dir(), q);
}

static const char *in_memory(const char *q)
{
    return harness_runtime_folder(q);
}

/* Unpack archive $1 as a queue's folders: $2 on disk, $3 in memory, of boot $4
 * of the machine. An empty $4 stands for a restart, after which memory is
 * empty. */
static const char place[] =
    "umask 077\n"
    "mkdir golden; tar -xzf $1 -C golden\n"
    "mkdir -p ${2%/*} ${3%/*}; mv golden/state/q $2\n"
    "[ -z \"$4\" ] || mv golden/run/q $3\n"
    "sed -i \"s|^folder .*|folder $3|; s|^home .*|home $2|\" $2/runtime\n"
    "[ -z \"$4\" ] || sed -i \"s/^boot .*/boot $4/\" $2/runtime\n";

/* Return this boot of the machine as a worker writes it to `runtime`. */
static const char *boot_now(void)
{
    const char *q = harness_queue(0, 256);
    static char text[128];
    const char *at;

    cr_assert_eq(
        harness_wait(harness_worker(q, "--exit-when-idle", "--", "true"),
                     SOON_MS),
        0);
    at = strstr(harness_read(harness_path("%s/runtime", folder(q)), NULL),
                "\nboot ");
    cr_assert(at && sscanf(at, "\nboot %127s", text) == 1);
    return text;
}

/* Set this boot of the machine in the store and in custody, and the IPC
 * namespace of the queue in the store. */
static void boots_edit(const char *q, const char *boot)
{
    int fd = open(harness_path("%s/custody", in_memory(q)), O_RDWR | O_CLOEXEC);
    char ipc[64] = "", sql[600];
    sqlite3 *db;

    cr_assert(custody_seal(fd, boot));
    close(fd);
    cr_assert_gt(readlink("/proc/self/ns/ipc", ipc, sizeof ipc - 1), 0);
    snprintf(sql, sizeof sql,
             "UPDATE messages SET boot = '%s/%s' WHERE boot IS NOT NULL;"
             "UPDATE spool_state SET boot = '%s/%s'",
             boot, ipc, boot, ipc);
    cr_assert_eq(sqlite3_open(harness_path("%s/store.db", folder(q)), &db),
                 SQLITE_OK);
    cr_assert_eq(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK, "%s",
                 sqlite3_errmsg(db));
    sqlite3_close(db);
}

static void placed(const char *q, bool same_boot)
{
    char *golden = realpath("tests/golden", NULL);
    const char *boot = same_boot ? boot_now() : "";
    struct harness_result r = harness_run(
        "sh", "-euc", place, "sh", harness_path("%s/" GOLDEN ".tar.gz", golden),
        folder(q), in_memory(q), boot);

    cr_assert_eq(r.status, 0, "%s", r.err);
    if (same_boot)
        boots_edit(q, boot);
    free(golden);
}

/* Return a check sum of all files except those that SQLite recreates. */
static const char *sum(const char *q)
{
    return harness_run("sh", "-euc",
                       "find $1 $2 -type f ! -name '*-shm' | sort |"
                       " xargs sha256sum",
                       "sh", folder(q), in_memory(q))
        .out;
}

/* ---- state that can be read ---- */

/* A handler that notes attempt and mark and never fails. */
#define HANDLER "read -r b; echo \"$b $MQW_ATTEMPT $MQW_REDELIVERED\" >>ran"

static struct harness_process *worker(const char *q, const char *more)
{
    return harness_worker(q, "-c", "4", more, "--",
                          harness_script("handler", HANDLER));
}

/* Check that messages NAME `from` to `to` ran once, in this attempt and with
 * this mark. */
static void ran(const char *name, int from, int to, int attempt, bool marked)
{
    for (int n = from; n <= to; n++) {
        char line[64];

        snprintf(line, sizeof line, "%s %d %d %d", name, n, attempt, marked);
        cr_assert_eq(harness_lines_with("ran", line), 1, "%s:\n%s", line,
                     harness_read("ran", NULL));
    }
}

/* Check that messages of a group ran in the order sent. */
static void in_order(const char *name, int from, int to)
{
    const char *all = harness_read("ran", NULL), *last = all;

    for (int n = from; n <= to; n++) {
        char text[32];
        const char *at;

        snprintf(text, sizeof text, "%s %d ", name, n);
        at = strstr(all, text);
        cr_assert(at >= last, "%s:\n%s", text, all);
        last = at;
    }
}

/* Check that a letter exists with all its fields. */
static void letter(const char *q, const char *body, const char *reason)
{
    size_t count;
    const struct harness_letter *l = harness_letters(q, &count);

    for (size_t i = 0; i < count; i++) {
        if (strcmp(l[i].body, body) != 0)
            continue;
        cr_assert_str_eq(l[i].reason, reason, "%s", body);
        cr_assert_eq(l[i].attempts, 1, "%s", body);
        cr_assert_eq(l[i].history, 1, "%s", body);
        cr_assert_str_eq(l[i].errors[0], "exit 65");
        cr_assert(strstr(l[i].said, "no such account"), "%s", l[i].said);
        return;
    }
    cr_assert(false, "no letter %s", body);
}

static size_t letters(const char *q)
{
    size_t count;

    (void)harness_letters(q, &count);
    return count;
}

/* Let a worker of this version run all messages, due or not; the next worker
 * must find nothing. */
static void all_ran(const char *q, size_t lines)
{
    struct harness_process *w = worker(q, "--max-attempts=9");
    struct harness_result r;

    harness_wait_log(w, "event=started", SOON_MS);
    r = harness_run("mqctl", "run-now", "--state-dir", harness_state_dir(), q,
                    "--all");
    cr_assert_eq(r.status, 0, "%s", r.err);
    harness_until_lines("ran", lines, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    w = worker(q, "--exit-when-idle");
    cr_assert_eq(harness_wait(w, SOON_MS), 0);
    cr_assert_eq(harness_lines("ran"), lines, "%s", harness_read("ran", NULL));
}

/* Replay a letter of the archive. */
static void replayed(const char *q, size_t lines)
{
    size_t before = letters(q);
    struct harness_result r =
        harness_run("mqdlq", "replay", "--state-dir", harness_state_dir(), q,
                    "--match", "dead 1");

    cr_assert_eq(r.status, 0, "%s", r.err);
    all_ran(q, lines + 1);
    cr_assert_eq(harness_lines_with("ran", "dead 1 "), 1);
    cr_assert_eq(letters(q), before - 1);
}

/* Check that all stored messages ran, and no dead letter. */
static void waited(bool marked)
{
    ran("retry", 1, 2, 2, marked);
    ran("retry", 3, 8, 1, marked);
    in_order("retry", 2, 8);
    ran("later", 1, 2, 1, marked);
    ran("spooled", 1, 6, 1, marked);
    for (int n = 1; n <= 2; n++)
        cr_assert_eq(harness_lines_with("ran", n == 1 ? "dead 1" : "dead 2"),
                     0);
}

/* All messages run, and those that had started are marked. */
Test(upgrade, what_a_kill_left_is_run)
{
    const char *q = harness_queue(0, 256);
    const size_t lines = 23;
    struct harness_result r;

    placed(q, true);
    all_ran(q, lines);
    ran("running", 1, 2, 1, true);
    ran("running", 6, 7, 1, true);
    ran("running", 3, 5, 1, false);
    in_order("running", 2, 5);
    waited(false);
    cr_assert_eq(letters(q), 2);
    letter(q, "dead 1", "rejected");
    letter(q, "dead 2", "rejected");
    r = harness_run("mqdlq", "list", "--replayed", "--count", "--state-dir",
                    harness_state_dir(), q);
    cr_assert_str_eq(r.out, "1\n", "the one on its way is gone");
    replayed(q, lines);
}

/* Only files on disk are left. The tools read them before a worker does. */
Test(upgrade, what_a_reboot_left_is_run)
{
    const char *q = harness_queue(0, 256);
    struct harness_result r;

    placed(q, false);
    letter(q, "dead 1", "rejected");
    r = harness_run("mqctl", "list", "--state-dir", harness_state_dir(), q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert(strstr(r.out, "retry"), "%s", r.out);
    all_ran(q, 16);
    cr_assert_eq(harness_lines_with("ran", "running"), 0);
    waited(true); /* custody, which is lost, knew what had run */
    letter(q, "again 1", "rejected");
    cr_assert_eq(letters(q), 3);
}

/* Return all statements that create a store's tables, sorted by name. */
static const char *schema(const char *store)
{
    static char text[2][16384];
    static int next;
    char *out = text[next++ % 2];
    size_t used = 0;
    sqlite3_stmt *st;
    sqlite3 *db;

    out[0] = '\0';
    cr_assert_eq(sqlite3_open(store, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_prepare_v2(db,
                                    "SELECT sql FROM sqlite_schema WHERE sql"
                                    " IS NOT NULL ORDER BY name",
                                    -1, &st, NULL),
                 SQLITE_OK);
    while (sqlite3_step(st) == SQLITE_ROW) {
        used += (size_t)snprintf(out + used, sizeof text[0] - used, "%s\n",
                                 (const char *)sqlite3_column_text(st, 0));
        cr_assert_lt(used, sizeof text[0]);
    }
    sqlite3_finalize(st);
    sqlite3_close(db);
    return out;
}

/* The first failed attempt adds the columns that the archive lacks. */
Test(upgrade, a_store_of_the_archive_gets_the_tables_of_a_new_one)
{
    const char *q = harness_queue(0, 256), *other = harness_queue(0, 256);
    struct harness_process *w;
    size_t before;

    placed(q, false);
    all_ran(q, 16);
    before = letters(q);
    w = harness_worker(q, "--max-attempts=1", "--", "false");
    harness_send_text(q, "new 1");
    harness_until(letters(q) == before + 1, SOON_MS);
    letter(q, "dead 1", "rejected");
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(harness_wait(worker(other, "--exit-when-idle"), SOON_MS), 0);
    cr_assert_str_eq(schema(harness_path("%s/store.db", folder(q))),
                     schema(harness_path("%s/store.db", folder(other))),
                     "run tests/golden/make, or raise STORE_VERSION");
}

/* ---- state that cannot be read ---- */

/* Check status 78 with these words. */
static void refused(struct harness_result r, const char *words)
{
    cr_assert_eq(r.status, EX_CONFIG, "%d: %s%s", r.status, r.out, r.err);
    cr_assert(strstr(r.err, words), "%s", r.err);
}

static struct harness_result worker_refused(const char *q)
{
    return harness_run("mqworker", "--state-dir", harness_state_dir(),
                       "--exit-when-idle", q, "--", "true");
}

/* Check that verbs of mqctl which need store and custody refuse, and that
 * doctor prints the same words. */
static void tools_refuse(const char *q, const char *words)
{
    static const char *const verbs[] = {"list", "groups"};
    const char *dir = harness_state_dir();
    struct harness_result r;

    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        refused(harness_run("mqctl", verbs[i], "--state-dir", dir, q), words);
    refused(harness_run("mqctl", "run-now", "--state-dir", dir, q, "--all"),
            words);
    r = harness_run("mqctl", "doctor", "--state-dir", dir, q);
    cr_assert_eq(r.status, 1);
    cr_assert(strstr(r.out, words), "%s", r.out);
}

Test(upgrade, a_store_of_a_newer_version_is_refused_and_stays_as_it_is)
{
    static const char *const verbs[] = {"list", "replay", "discard"};
    const char *q = harness_queue(0, 256), *before;
    sqlite3 *db;

    placed(q, true);
    cr_assert_eq(sqlite3_open(harness_path("%s/store.db", folder(q)), &db),
                 SQLITE_OK);
    cr_assert_eq(sqlite3_exec(db, "PRAGMA user_version = 2", NULL, NULL, NULL),
                 SQLITE_OK);
    sqlite3_close(db);
    before = sum(q);
    refused(worker_refused(q), "version 2");
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        refused(harness_run("mqdlq", verbs[i], "--state-dir",
                            harness_state_dir(), q, i ? "--all" : "--json"),
                "version 2");
    tools_refuse(q, "version 2");
    cr_assert_str_eq(sum(q), before);
}

Test(upgrade, custody_of_another_version_is_refused_and_stays_as_it_is)
{
    const char *q = harness_queue(0, 256), *before;
    struct harness_result r;
    size_t size;
    char *data;

    placed(q, true);
    data = (char *)harness_read(harness_custody(q), &size);
    data[VERSION_AT]++;
    harness_write(harness_custody(q), data, size);
    before = sum(q);
    r = worker_refused(q);
    refused(r, "version 2");
    cr_assert(strstr(r.err, "run the version that wrote it"), "%s", r.err);
    cr_assert_str_eq(sum(q), before);
    tools_refuse(q, "version 2");
    cr_assert_str_eq(sum(q), before);
}

/* `ends` names done messages of the spool; without it they would run again. */
Test(upgrade, ends_of_a_newer_version_are_refused_and_stay_as_they_are)
{
    const char *q = harness_queue(0, 256), *before, *path;
    size_t size;
    char *data;

    placed(q, true);
    path = harness_path("%s/ends", in_memory(q));
    data = (char *)harness_read(path, &size);
    cr_assert(size > 8 && memcmp(data, "MQWENDS1", 8) == 0);
    data[7]++;
    harness_write(path, data, size);
    before = sum(q);
    refused(worker_refused(q), "run that version and mqctl drain");
    cr_assert_str_eq(sum(q), before);
}

/* test_upgrade.c - mqworker, mqdlq, mqctl: what any older version left behind
 * is taken over whole; what a newer one left is refused, and stays as it is
 *
 * tests/golden/make says which messages there are.
 */
#include "tests/harness/harness.h"
#include "tests/harness/letters.h"

#include <criterion/criterion.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

TestSuite(upgrade, .init = harness_init, .fini = harness_fini, .timeout = 120);

#define SOON_MS    20000
#define VERSION_AT 8 /* in the custody file, docs/formats/custody.md */

/* What a version left behind, and what the machine did since. */
struct left {
    const char *file; /* in tests/golden/ */
    bool beside;      /* custody is in the state directory */
    bool spools;
};
static const struct left lefts[] = {
    {.file = "store-1-custody-2-beside", .beside = true},
    {.file = "store-1-custody-2"},
    {.file = "store-2-custody-2"},
    {.file = "store-2-custody-3"},
    {.file = "store-3-custody-3"},
    {.file = "store-4-custody-3", .spools = true},
};
#define NEWEST (&lefts[sizeof lefts / sizeof *lefts - 1])

/* ---- folders ---- */

static const char *folder(const char *q)
{
    return harness_path("%s%s", harness_state_dir(), q);
}

static const char *in_memory(const char *q)
{
    return harness_path("%s%s", harness_runtime_dir(), q);
}

/* The folders of a version become those of a queue, $2 and $3, as if they had
 * been left a moment ago, in the run of the machine $4. Without $4 it was
 * started since, and memory is empty. */
static const char place[] =
    "umask 077\n"
    "mkdir golden; tar -xzf $1 -C golden\n"
    "mkdir -p ${2%/*} ${3%/*}; mv golden/state/q $2\n"
    "[ -z \"$4\" ] || [ ! -d golden/run/q ] || mv golden/run/q $3\n"
    "for f in $2/store.db $2/runtime $2/custody $3/owner $3/custody $3/ends; "
    "do\n"
    "    [ -e $f ] || continue\n"
    "    to=$2; [ $f != $2/runtime ] || to=$3\n"
    "    [ $f = $2/store.db ] || sed -i \"s|^folder .*|folder $to|\" $f\n"
    "    LC_ALL=C sed -i "
    "\"s/00000000-0000-4000-8000-000000000000/${4:-&}/g\" $f\n"
    "done\n";

static void placed(const char *q, const char *file, bool same_boot)
{
    char *golden = realpath("tests/golden", NULL), boot[37] = {0};
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    struct harness_result r;

    cr_assert(f && fread(boot, 36, 1, f) == 1);
    fclose(f);
    r = harness_run("sh", "-euc", place, "sh",
                    harness_path("%s/%s.tar.gz", golden, file), folder(q),
                    in_memory(q), same_boot ? boot : "");
    cr_assert_eq(r.status, 0, "%s", r.err);
    free(golden);
}

/* sum - of all files, but for what SQLite makes anew and what says that this
 * worker has the folder */
static const char *sum(const char *q)
{
    return harness_run(
               "sh", "-euc",
               "find $1 $2 -type f ! -name '*-shm' ! -name owner | sort |"
               " xargs sha256sum",
               "sh", folder(q),
               harness_exists(in_memory(q)) ? in_memory(q) : folder(q))
        .out;
}

/* ---- an older one ---- */

/* Each message says how it was run; none fails. */
#define HANDLER "read -r b; echo \"$b $MQW_ATTEMPT $MQW_REDELIVERED\" >>ran"

static struct harness_process *worker(const char *q, const char *more)
{
    return harness_worker(q, "-c", "4", more, "--",
                          harness_script("handler", HANDLER));
}

/* ran - messages NAME `from` to `to` ran, once: at that attempt, and marked */
static void ran(const char *name, int from, int to, int attempt, bool marked)
{
    for (int n = from; n <= to; n++) {
        char line[64];

        snprintf(line, sizeof line, "%s %d %d %d", name, n, attempt, marked);
        cr_assert_eq(harness_lines_with("ran", line), 1, "%s:\n%s", line,
                     harness_read("ran", NULL));
    }
}

/* in_order - as they were sent, those of a group ran */
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

/* letter - there is one, with all that was known of it */
static void letter(const char *q, const char *body, const char *reason)
{
    size_t count;
    const struct harness_letter *l = harness_letters(q, &count);

    for (size_t i = 0; i < count; i++) {
        if (strcmp(l[i].body, body) != 0)
            continue;
        cr_assert_str_eq(l[i].reason, reason, "%s", body);
        if (strcmp(reason, "crashed") == 0)
            return;
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

/* all_ran - a worker of today runs what there is, whenever it is due, and ends;
 * the next one finds nothing */
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

/* replayed - a letter of that version can be sent once more */
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

/* waited - what is in the store is what it was */
static void waited(const struct left *l, bool marked)
{
    ran("retry", 1, 2, 2, marked);
    ran("retry", 3, 8, 1, marked);
    in_order("retry", 2, 8);
    ran("later", 1, 2, 1, marked);
    if (l->spools)
        ran("spooled", 1, 6, 1, marked);
    for (int n = 1; n <= 2; n++)
        cr_assert_eq(harness_lines_with("ran", n == 1 ? "dead 1" : "dead 2"),
                     0);
}

/* after_a_kill - all of it is run, and what had begun says so */
static void after_a_kill(const struct left *l)
{
    const char *q = harness_queue(0, 256);
    size_t lines = 17 + (l->spools ? 6 : 0);
    struct harness_result r;

    placed(q, l->file, true);
    all_ran(q, lines);
    ran("running", 1, 2, 1, true);
    ran("running", 6, 7, 1, true);
    ran("running", 3, 5, 1, false);
    in_order("running", 2, 5);
    waited(l, false);
    cr_assert_eq(letters(q), 2);
    letter(q, "dead 1", "rejected");
    letter(q, "dead 2", "rejected");
    r = harness_run("mqdlq", "list", "--replayed", "--count", "--state-dir",
                    harness_state_dir(), q);
    cr_assert_str_eq(r.out, "1\n", "its queue may be there still");
    replayed(q, lines);
}

/* after_a_reboot - what was on the disk is there; the tools come first */
static void after_a_reboot(const struct left *l)
{
    const char *q = harness_queue(0, 256);
    size_t lines = 10 + (l->spools ? 6 : 0);
    struct harness_result r;

    placed(q, l->file, false);
    letter(q, "dead 1", "rejected");
    r = harness_run("mqctl", "list", "--state-dir", harness_state_dir(), q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert(strstr(r.out, "retry"), "%s", r.out);
    all_ran(q, lines);
    cr_assert_eq(harness_lines_with("ran", "running"), 0);
    waited(l, !l->beside); /* custody says which had begun */
    letter(q, "again 1", "rejected");
    if (!l->beside) {
        cr_assert_eq(letters(q), 3);
        return;
    }
    cr_assert_eq(letters(q), 10, "what was in flight on a disk is a letter");
    letter(q, "running 1", "crashed");
    letter(q, "running 5", "crashed");
}

/* Those that this program can read. */
Test(upgrade, of_custody_in_the_state_directory)
{
    after_a_kill(&lefts[0]);
}

Test(upgrade, of_custody_in_the_state_directory_after_a_reboot)
{
    after_a_reboot(&lefts[0]);
}

Test(upgrade, of_store_1)
{
    after_a_kill(&lefts[1]);
}

Test(upgrade, of_store_1_after_a_reboot)
{
    after_a_reboot(&lefts[1]);
}

Test(upgrade, of_store_2)
{
    after_a_kill(&lefts[2]);
}

Test(upgrade, of_store_2_after_a_reboot)
{
    after_a_reboot(&lefts[2]);
}

Test(upgrade, of_custody_3)
{
    after_a_kill(&lefts[3]);
}

Test(upgrade, of_custody_3_after_a_reboot)
{
    after_a_reboot(&lefts[3]);
}

Test(upgrade, of_store_3)
{
    after_a_kill(&lefts[4]);
}

Test(upgrade, of_store_3_after_a_reboot)
{
    after_a_reboot(&lefts[4]);
}

Test(upgrade, of_today)
{
    after_a_kill(&lefts[5]);
}

Test(upgrade, of_today_after_a_reboot)
{
    after_a_reboot(&lefts[5]);
}

/* ---- one that cannot be read ---- */

/* refused - status 78, with these words */
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

/* tools_refuse - mqctl where it needs both; the words are doctor's, too */
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

    placed(q, NEWEST->file, true);
    cr_assert_eq(sqlite3_open(harness_path("%s/store.db", folder(q)), &db),
                 SQLITE_OK);
    cr_assert_eq(sqlite3_exec(db, "PRAGMA user_version = 5", NULL, NULL, NULL),
                 SQLITE_OK);
    sqlite3_close(db);
    before = sum(q);
    refused(worker_refused(q), "version 5");
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        refused(harness_run("mqdlq", verbs[i], "--state-dir",
                            harness_state_dir(), q, i ? "--all" : "--json"),
                "version 5");
    tools_refuse(q, "version 5");
    cr_assert_str_eq(sum(q), before);
}

/* custody_is_refused - and what can be done is said, which is possible: the
 * store is what it was, even where this program would bring it up to date */
static void custody_is_refused(const char *q, const char *words)
{
    const char *before = sum(q);
    struct harness_result r = worker_refused(q);

    refused(r, words);
    cr_assert(strstr(r.err, "run the version that wrote it"), "%s", r.err);
    cr_assert_str_eq(sum(q), before);
    tools_refuse(q, words);
}

Test(upgrade, custody_of_a_newer_version_is_refused_and_stays_as_it_is)
{
    const char *q = harness_queue(0, 256), *before;
    size_t size;
    char *data;

    placed(q, NEWEST->file, true);
    data = (char *)harness_read(harness_custody(q), &size);
    data[VERSION_AT]++;
    harness_write(harness_custody(q), data, size);
    before = sum(q);
    custody_is_refused(q, "version 4");
    cr_assert_str_eq(sum(q), before);
}

/* What ended and is in the spool still would run again. */
Test(upgrade, ends_of_a_newer_version_are_refused_and_stay_as_they_are)
{
    const char *q = harness_queue(0, 256), *before, *path;
    size_t size;
    char *data;

    placed(q, NEWEST->file, true);
    path = harness_path("%s/ends", in_memory(q));
    data = (char *)harness_read(path, &size);
    cr_assert(size > 8 && memcmp(data, "MQWENDS1", 8) == 0);
    data[7]++;
    harness_write(path, data, size);
    before = sum(q);
    refused(worker_refused(q), "run the version that wrote it");
    cr_assert_str_eq(sum(q), before);
}

/* The first one wrote no check sum over a slot. */
Test(upgrade, custody_of_version_1_is_refused_and_stays_as_it_is)
{
    const char *q = harness_queue(0, 256);

    placed(q, "store-1-custody-1", true);
    custody_is_refused(q, "version 1");
}

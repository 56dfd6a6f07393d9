/* test_runtimedir.c - where the messages in flight are, and whose they are
 *
 * What a file system is, is told by the test (runtimedir_statfs): all that is
 * below a folder "mem" is tmpfs, all else a disk.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/custody/custody.h"
#include "common/custody/custody_look.h"
#include "common/state/runtimedir_note.h"

#define TMPFS  0x01021994
#define EXT4   0xEF53
#define NOBODY 65534

static char top[256], memory[300];
static bool shm_memory,
    run_memory; /* what those of the machine are taken for */

/* feigned - statfs(2) of a path that is there */
static int feigned(const char *path, struct statfs *out)
{
    bool mem = strncmp(path, memory, strlen(memory)) == 0 ||
               (shm_memory && strncmp(path, "/dev/shm", 8) == 0) ||
               (run_memory && strncmp(path, "/run", 4) == 0);

    if (access(path, F_OK) < 0)
        return -1;
    memset(out, 0, sizeof *out);
    out->f_type = mem ? TMPFS : EXT4;
    return 0;
}

static void setup(void)
{
    umask(022);
    snprintf(top, sizeof top, "/tmp/mqw-runtimedir-XXXXXX");
    cr_assert(mkdtemp(top) != NULL);
    snprintf(memory, sizeof memory, "%s/mem", top);
    cr_assert_eq(mkdir(memory, 0700), 0);
    runtimedir_statfs = feigned;
    unsetenv("RUNTIME_DIRECTORY");
    unsetenv("XDG_RUNTIME_DIR");
}

static int node_remove(const char *path, const struct stat *st, int type,
                       struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void teardown(void)
{
    if (geteuid() != 0 && getuid() == 0)
        cr_assert(seteuid(0) == 0);
    nftw(top, node_remove, 8, FTW_DEPTH | FTW_PHYS);
}

TestSuite(runtimedir, .init = setup, .fini = teardown);

/* below - top/rest in one of a few static buffers */
static const char *below(const char *rest)
{
    static char paths[8][512];
    static unsigned turn;
    char *path = paths[turn++ % 8];

    snprintf(path, sizeof paths[0], "%s/%s", top, rest);
    return path;
}

/* ---- the rule ---- */

static void expect_root(const char *flag, const char *want)
{
    const struct runtimedir_wish wish = {.dir = flag, .holds = custody_holds};
    struct problem p = {0};
    char root[PATH_MAX];
    bool disk;

    cr_assert_eq(runtimedir_root(root, &wish, &disk, &p), 0, "%s", p.text);
    cr_assert_str_eq(root, want);
    cr_assert(!disk);
}

static void refused_root(const char *flag, const char *say)
{
    const struct runtimedir_wish wish = {.dir = flag, .holds = custody_holds};
    struct problem p = {0};
    char root[PATH_MAX];
    bool disk;

    cr_assert_lt(runtimedir_root(root, &wish, &disk, &p), 0);
    cr_assert_eq(p.status, EX_CANTCREAT);
    cr_assert(strstr(p.text, say) != NULL, "no \"%s\" in: %s", say, p.text);
}

Test(runtimedir, the_first_that_lies_in_memory)
{
    char shm[64];

    snprintf(shm, sizeof shm, "/dev/shm/mqworker-%u", (unsigned)geteuid());
    shm_memory = true;
    expect_root(NULL, shm);
    setenv("XDG_RUNTIME_DIR", below("none"), 1);
    expect_root(NULL, shm); /* the session is over */
    setenv("XDG_RUNTIME_DIR", top, 1);
    expect_root(NULL, shm); /* a disk */
    setenv("XDG_RUNTIME_DIR", "relative", 1);
    expect_root(NULL, shm); /* to be ignored, says XDG */
    setenv("XDG_RUNTIME_DIR", memory, 1);
    expect_root(NULL, below("mem/mqworker"));
    setenv("RUNTIME_DIRECTORY", below("disk"), 1);
    expect_root(NULL, below("mem/mqworker"));
    setenv("RUNTIME_DIRECTORY", "", 1);
    expect_root(NULL, below("mem/mqworker"));
    char two[700];
    snprintf(two, sizeof two, "%s/a/b:%s/c", memory, memory);
    setenv("RUNTIME_DIRECTORY", two, 1);
    expect_root(NULL, below("mem/a/b"));
    expect_root(below("mem/x//"), below("mem/x"));
    cr_assert_eq(chdir(memory), 0);
    snprintf(memory, sizeof memory, "%s", "."); /* as relative paths end */
    expect_root("rel/x", "rel/x");
}

Test(runtimedir, root_has_run_before_the_session)
{
    if (geteuid() != 0)
        cr_skip("needs root");
    setenv("XDG_RUNTIME_DIR", memory, 1);
    run_memory = true;
    expect_root(NULL, "/run/mqworker");
    run_memory = false;
    expect_root(NULL, below("mem/mqworker"));
}

Test(runtimedir, the_session_of_another_user_is_not_for_us)
{
    if (geteuid() != 0)
        cr_skip("needs root");
    shm_memory = true;
    setenv("XDG_RUNTIME_DIR", memory, 1);
    cr_assert_eq(chown(memory, NOBODY, NOBODY), 0);
    expect_root(NULL, "/dev/shm/mqworker-0");
}

Test(runtimedir, without_memory_it_says_what_was_looked_at_and_the_ways_out)
{
    const struct runtimedir_wish allow = {.allow_disk = true};
    const struct runtimedir_wish given = {.dir = top, .allow_disk = true};
    struct problem p = {0};
    char root[PATH_MAX];
    bool disk;

    setenv("RUNTIME_DIRECTORY", below("d"), 1);
    setenv("XDG_RUNTIME_DIR", top, 1);
    refused_root(NULL, below("d (ext4), "));
    refused_root(NULL, below("mqworker (ext4), /dev/shm/mqworker-"));
    refused_root(NULL, "--runtime-dir DIR on a tmpfs");
    refused_root(NULL, "docker run --tmpfs");
    refused_root(NULL, "--allow-disk-custody");
    refused_root(top, "is not a tmpfs");
    refused_root(top, "--allow-disk-custody");
    refused_root("", "--runtime-dir is empty");
    refused_root(below("mem/a\nb"), "newline");
    cr_assert_eq(runtimedir_root(root, &allow, &disk, &p), 0, "%s", p.text);
    cr_assert(disk && root[0] == '\0', "the state folder");
    cr_assert_eq(runtimedir_root(root, &given, &disk, &p), 0, "%s", p.text);
    cr_assert(disk && strcmp(root, top) == 0);
}

/* ---- whose a folder is ---- */

/* state - the state folder of /orders below `name` */
static struct statedir state(const char *name)
{
    struct statedir dir;
    struct problem p = {0};

    cr_assert_eq(statedir_open(&dir, below(name), "/orders", true, &p), 0, "%s",
                 p.text);
    return dir;
}

/* started_at - a worker with the state directory `name` that has gone as far as
 * custody; its folder is `want` in memory, or below `runtime` there */
static struct runtimedir started_at(const char *name, const char *runtime,
                                    const char *want)
{
    const struct runtimedir_wish wish = {.dir = runtime,
                                         .holds = custody_holds};
    struct statedir dir = state(name);
    struct problem p = {0};
    struct runtimedir r;

    cr_assert_eq(runtimedir_open(&r, &wish, &dir, &p), 0, "%s", p.text);
    cr_assert_str_eq(r.folder, below(want));
    return r;
}

static struct runtimedir started(const char *name, const char *want)
{
    return started_at(name, memory, want);
}

static void settled(struct runtimedir *r, const char *name)
{
    struct statedir dir = state(name);
    struct problem p = {0};

    cr_assert_eq(runtimedir_settle(r, &dir, &p), 0, "%s", p.text);
}

/* stopped - in good order if it left nothing */
static void stopped(struct runtimedir *r, const char *name, bool orderly)
{
    struct statedir dir = state(name);

    runtimedir_close(r, &dir, orderly);
}

static void passed_by(struct slot *slot, void *arg)
{
    (void)slot;
    (void)arg;
}

/* custody_put - a custody file with a message, or without */
static void custody_put(const char *folder, bool busy)
{
    const struct custody_spec spec = {
        .body_bytes = 64, .slots = 2, .slots_max = 2};
    struct problem p = {0};
    struct custody *c;
    struct slot *slot;
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/custody", folder);
    cr_assert_eq(custody_open(&c, path, &spec, &p), 0, "%s", p.text);
    cr_assert_eq(custody_recover(c, passed_by, NULL, &p), 0, "%s", p.text);
    if (busy) {
        slot = custody_acquire(c);
        slot_arm(slot, custody_fill(c), custody_seq_next(c));
        slot->priority = 0;
        slot_taken(slot, 0, 1);
    }
    custody_close(&c);
}

Test(runtimedir, one_folder_for_a_queue_however_often_it_is_started)
{
    for (int i = 0; i < 3; i++) {
        struct runtimedir r = started("a", "mem/orders");

        cr_assert_eq(r.past, RUNTIMEDIR_KEPT);
        cr_assert(r.from[0] == '\0');
        custody_put(r.folder, i == 1);
        settled(&r, "a");
        stopped(&r, "a", i == 0);
    }
    struct stat st;
    cr_assert(stat(below("mem/orders"), &st) == 0);
    cr_assert_eq(st.st_mode & 07777, 0700);
}

Test(runtimedir, two_state_directories_never_share_a_folder)
{
    struct runtimedir a = started("a", "mem/orders"), b, c;

    settled(&a, "a");
    custody_put(a.folder, true);
    b = started("b", "mem/orders.2"); /* it is locked */
    settled(&b, "b");
    custody_put(b.folder, true);
    stopped(&a, "a", false);
    stopped(&b, "b", false);
    c = started("c", "mem/orders.3"); /* they are claimed */
    a = started("a", "mem/orders");
    b = started("b", "mem/orders.2");
    stopped(&a, "a", false);
    stopped(&b, "b", false);
    stopped(&c, "c", false);
}

static void state_remove(const char *name)
{
    nftw(below(name), node_remove, 8, FTW_DEPTH | FTW_PHYS);
}

Test(runtimedir, of_a_state_directory_that_is_gone_only_what_is_empty_is_used)
{
    struct runtimedir a = started("a", "mem/orders"), b;

    custody_put(a.folder, true);
    settled(&a, "a");
    stopped(&a, "a", false);
    state_remove("a");
    b = started("b", "mem/orders.2");
    cr_assert_str_eq(b.strange, below("mem/orders"));
    stopped(&b, "b", true);
    cr_assert_eq(unlink(below("mem/orders/custody")), 0);
    custody_put(below("mem/orders"), false);
    b = started("b", "mem/orders");
    cr_assert(b.strange[0] == '\0');
    cr_assert(access(below("mem/orders/custody"), F_OK) < 0, "nothing in it");
    stopped(&b, "b", true);
}

/* Another container may have another directory at that path. */
Test(runtimedir, a_state_directory_made_again_is_another_one)
{
    struct runtimedir a = started("a", "mem/orders"), live;
    struct runtimedir_note note;

    custody_put(a.folder, true);
    settled(&a, "a");
    state_remove("a");
    live = started("a", "mem/orders.2");
    stopped(&live, "a", true);
    stopped(&a, "a", false);
    a = started("a", "mem/orders.2");
    cr_assert_str_eq(a.strange, below("mem/orders"));
    custody_put(a.folder, false);
    settled(&a, "a");
    stopped(&a, "a", true);
    /* As docs/runbook.md has it. */
    cr_assert_eq(runtimedir_note_read(&note, below("mem/orders"), "owner"), 0);
    snprintf(note.folder, sizeof note.folder, "%s", below("mem/orders"));
    cr_assert_eq(runtimedir_note_write(&note, below("a/orders"), "runtime"), 0);
    a = started("a", "mem/orders");
    cr_assert(access(below("mem/orders/custody"), F_OK) == 0);
    cr_assert_eq(a.past, RUNTIMEDIR_KEPT);
    stopped(&a, "a", false);
}

Test(runtimedir, the_end_of_a_worker_leaves_the_note_of_another_one)
{
    struct runtimedir a = started("a", "mem/orders"), b;

    settled(&a, "a");
    state_remove("a"); /* under a worker that runs; another one is started */
    b = started("a", "mem/orders.2");
    custody_put(b.folder, true);
    settled(&b, "a");
    stopped(&a, "a", true);
    stopped(&b, "a", false);
    b = started("a", "mem/orders");
    cr_assert_str_eq(b.from, below("mem/orders.2"), "in flight of the killed");
    stopped(&b, "a", false);
}

/* Both in memory: the state folder does for both, and no other folder lies
 * beside it, where each is that of a queue. */
Test(runtimedir, that_of_the_state_is_used_for_both)
{
    struct runtimedir r = started_at("mem", memory, "mem/orders");
    struct stat st;

    cr_assert_eq(r.lock, -1, "that of the state folder is held already");
    custody_put(r.folder, true);
    settled(&r, "mem");
    stopped(&r, "mem", false);
    r = started_at("mem", below("mem/../mem/"), "mem/orders");
    cr_assert_eq(r.past, RUNTIMEDIR_KEPT);
    cr_assert(r.from[0] == '\0');
    settled(&r, "mem");
    stopped(&r, "mem", false);
    cr_assert(stat(below("mem/orders.2"), &st) < 0);
}

Test(runtimedir, a_state_directory_that_was_moved_keeps_its_folder)
{
    struct runtimedir a = started("a", "mem/orders");

    custody_put(a.folder, true);
    settled(&a, "a");
    stopped(&a, "a", false);
    cr_assert_eq(rename(below("a"), below("b")), 0);
    a = started("b", "mem/orders");
    cr_assert_eq(a.past, RUNTIMEDIR_KEPT);
    stopped(&a, "b", false);
}

Test(runtimedir, the_copy_of_a_state_directory_gets_a_folder_of_its_own)
{
    struct runtimedir a = started("a", "mem/orders"), b;
    struct runtimedir_note note;

    custody_put(a.folder, true);
    settled(&a, "a");
    stopped(&a, "a", false);
    (void)state("b");
    cr_assert_eq(runtimedir_note_read(&note, below("a/orders"), "runtime"), 0);
    cr_assert_eq(runtimedir_note_write(&note, below("b/orders"), "runtime"), 0);
    b = started("b", "mem/orders.2");
    cr_assert(b.from[0] == '\0', "nothing is taken from the original");
    cr_assert_eq(b.past, RUNTIMEDIR_KEPT, "nor is it missing");
    custody_put(b.folder, false);
    settled(&b, "b");
    a = started("a", "mem/orders");
    stopped(&a, "a", false);
    stopped(&b, "b", true);
}

static void planted(const struct statedir *dir, const char *say)
{
    const struct runtimedir_wish wish = {.dir = memory, .holds = custody_holds};
    struct problem p = {0};
    struct runtimedir r;

    cr_assert_eq(runtimedir_open(&r, &wish, dir, &p), -EPERM);
    cr_assert(strstr(p.text, say) != NULL, "no \"%s\" in: %s", say, p.text);
}

Test(runtimedir, a_planted_folder_is_refused)
{
    const struct runtimedir_wish wish = {.dir = memory, .holds = custody_holds};
    struct statedir dir = state("a");
    struct problem p = {0};
    struct runtimedir r;

    cr_assert_eq(symlink(top, below("mem/orders")), 0);
    cr_assert_eq(runtimedir_open(&r, &wish, &dir, &p), -ELOOP, "%s", p.text);
    cr_assert_eq(p.status, EX_CANTCREAT);
    cr_assert(strstr(p.text, "symbolic link") &&
                  strstr(p.text, "--runtime-dir"),
              "%s", p.text);
    cr_assert_eq(unlink(below("mem/orders")), 0);
    cr_assert_eq(mkdir(below("mem/orders"), 0700), 0);
    cr_assert_eq(chmod(below("mem/orders"), 0720), 0);
    cr_assert_eq(runtimedir_open(&r, &wish, &dir, &p), -EPERM);
    cr_assert(strstr(p.text, "its group (mode 0720)"), "%s", p.text);
    cr_assert_eq(chmod(below("mem/orders"), 0700), 0);
    cr_assert_eq(chmod(memory, 0707), 0);
    cr_assert_eq(runtimedir_open(&r, &wish, &dir, &p), -EPERM);
    cr_assert(strstr(p.text, "others (mode 0707)"), "%s", p.text);
    cr_assert_eq(chmod(memory, 0700), 0);
    if (geteuid() != 0)
        return;
    cr_assert_eq(chown(below("mem/orders"), NOBODY, 0), 0);
    planted(&dir, "mem/orders belongs to nobody, and this runs as root; find "
                  "out who made it and move it away, or give another "
                  "--runtime-dir DIR");
    cr_assert_eq(chown(below("mem/orders"), 0, 0), 0);
    cr_assert_eq(chown(memory, NOBODY, 0), 0);
    planted(&dir, "mem belongs to nobody, and this runs as root; find out who "
                  "made it and move it away");
}

Test(runtimedir, who_cannot_change_a_mode_is_told_who_can)
{
    struct statedir dir;

    if (geteuid() != 0)
        return;
    cr_assert_eq(chmod(top, 0755), 0);
    cr_assert_eq(mkdir(below("state"), 0755), 0);
    cr_assert_eq(chown(below("state"), NOBODY, 0), 0);
    cr_assert_eq(chmod(memory, 0777), 0); /* it is not the root of a mount */
    cr_assert_eq(seteuid(NOBODY), 0);
    dir = state("state");
    planted(&dir, "mem is writable by others (mode 0777); have root do `chmod "
                  "go-w ");
    cr_assert_eq(seteuid(0), 0);
}

Test(runtimedir, a_link_to_a_disk_is_called_a_link)
{
    const char *link = below("link");

    cr_assert_eq(symlink(top, link), 0);
    refused_root(link, "link (a symbolic link to /tmp/mqw-runtimedir-");
    refused_root(link, ", on ext4) is not a tmpfs");
    refused_root(top, " (ext4) is not a tmpfs");
}

Test(runtimedir, a_start_that_fails_leaves_no_folder)
{
    struct runtimedir r = started("a", "mem/orders");

    stopped(&r, "a", false);
    cr_assert(access(below("mem/orders"), F_OK) < 0);
    cr_assert(access(below("a/orders/runtime"), F_OK) < 0);
}

/* ---- the note ---- */

static void note_say(const char *name, bool other_boot, bool open)
{
    struct runtimedir_note note;

    cr_assert_eq(runtimedir_note_read(&note, below(name), "runtime"), 0);
    if (other_boot)
        note.boot = (struct boot){.id = "00000000-dead-4eef-8000-000000000000"};
    note.open = open;
    cr_assert_eq(runtimedir_note_write(&note, below(name), "runtime"), 0);
}

/* run - a start and its stop; what it made of the past */
static enum runtimedir_past run(bool orderly)
{
    struct runtimedir r = started("a", "mem/orders");
    enum runtimedir_past past = r.past;

    custody_put(r.folder, !orderly);
    settled(&r, "a");
    stopped(&r, "a", orderly);
    return past;
}

Test(runtimedir, custody_that_is_gone_is_told_once)
{
    cr_assert_eq(run(false), RUNTIMEDIR_KEPT);
    state_remove("mem/orders");
    cr_assert_eq(run(true), RUNTIMEDIR_GONE);
    state_remove("mem/orders");
    cr_assert_eq(run(false), RUNTIMEDIR_KEPT, "nothing was in it");
    state_remove("mem/orders");
    note_say("a/orders", true, true);
    cr_assert_eq(run(true), RUNTIMEDIR_REBOOT);
    state_remove("mem/orders");
    note_say("a/orders", true, false);
    cr_assert_eq(run(true), RUNTIMEDIR_KEPT, "in good order");
}

Test(runtimedir, another_rule_finds_what_the_last_one_left)
{
    struct runtimedir r;

    cr_assert_eq(run(false), RUNTIMEDIR_KEPT);
    r = started_at("a", below("mem/other"), "mem/other/orders");
    cr_assert_eq(r.past, RUNTIMEDIR_KEPT);
    cr_assert_str_eq(r.from, below("mem/orders"));
    cr_assert_str_eq(r.was, below("mem/orders"));
    stopped(&r, "a", false); /* a crash here changes nothing */
    r = started_at("a", below("mem/other"), "mem/other/orders");
    cr_assert_str_eq(r.from, below("mem/orders"));
    custody_put(r.folder, true);
    settled(&r, "a");
    cr_assert(access(below("mem/orders"), F_OK) < 0, "it is removed");
    stopped(&r, "a", false);
    r = started_at("a", below("mem/other"), "mem/other/orders");
    cr_assert(r.from[0] == '\0' && r.here);
    stopped(&r, "a", false);
}

Test(runtimedir, custody_on_the_disk_without_a_note_is_carried)
{
    struct runtimedir r;

    (void)state("a");
    custody_put(below("a/orders"), true);
    r = started("a", "mem/orders");
    cr_assert_str_eq(r.from, below("a/orders"));
    custody_put(r.folder, true);
    settled(&r, "a");
    cr_assert(access(below("a/orders/custody"), F_OK) < 0);
    stopped(&r, "a", false);
}

Test(runtimedir, a_copy_on_the_disk_that_a_kill_left_is_removed)
{
    struct runtimedir r;

    cr_assert_eq(run(true), RUNTIMEDIR_KEPT);
    custody_put(below("a/orders"), true);
    r = started("a", "mem/orders");
    cr_assert(r.from[0] == '\0' && r.here);
    settled(&r, "a");
    cr_assert(access(below("a/orders/custody"), F_OK) < 0);
    cr_assert(access(below("mem/orders/custody"), F_OK) == 0);
    stopped(&r, "a", false);
}

Test(runtimedir, a_damaged_note_is_refused_and_left_as_it_is)
{
    const struct runtimedir_wish wish = {.dir = memory, .holds = custody_holds};
    struct statedir dir = state("a");
    struct problem p = {0};
    struct runtimedir r;
    FILE *f;

    cr_assert_eq(run(false), RUNTIMEDIR_KEPT);
    f = fopen(below("a/orders/runtime"), "w");
    cr_assert(f != NULL);
    fputs("folder /x\nboot y\nid 0123456789abcdef\nstate op", f);
    fclose(f);
    cr_assert_eq(runtimedir_open(&r, &wish, &dir, &p), -EBADMSG);
    cr_assert_eq(p.status, EX_CONFIG);
    cr_assert(strstr(p.text, "orders/runtime is damaged"), "%s", p.text);
}

/* ---- who looks ---- */

static void looks(const char *file, const char *want)
{
    struct statedir dir = state("a");
    struct problem p = {0};
    char path[PATH_MAX];

    cr_assert_eq(runtimedir_file(&dir, file, path, &p), 0, "%s", p.text);
    cr_assert_str_eq(path, below(want));
}

Test(runtimedir, who_looks_needs_the_state_directory_alone)
{
    looks("custody", "a/orders/custody");
    cr_assert_eq(run(false), RUNTIMEDIR_KEPT);
    looks("custody", "mem/orders/custody");
    looks("counters", "a/orders/counters"); /* of an orderly stop */
    cr_assert_eq(chmod(below("mem/orders"), 0777), 0);
    looks("custody", "a/orders/custody"); /* not to be trusted */
    state_remove("mem/orders");
    looks("custody", "a/orders/custody");
}

Test(runtimedir, disk_if_it_is_allowed_is_the_state_folder)
{
    const struct runtimedir_wish wish = {.allow_disk = true,
                                         .holds = custody_holds};
    struct statedir dir = state("a");
    struct problem p = {0};
    struct runtimedir r;

    cr_assert_eq(runtimedir_open(&r, &wish, &dir, &p), 0, "%s", p.text);
    cr_assert_str_eq(r.folder, below("a/orders"));
    custody_put(r.folder, true);
    cr_assert_eq(runtimedir_settle(&r, &dir, &p), 0);
    runtimedir_close(&r, &dir, false);
    looks("custody", "a/orders/custody");
    r = started("a", "mem/orders"); /* there is memory by now */
    cr_assert_str_eq(r.from, below("a/orders"));
    custody_put(r.folder, true);
    settled(&r, "a");
    cr_assert(access(below("a/orders/custody"), F_OK) < 0);
    cr_assert(access(below("a/orders/runtime"), F_OK) == 0);
    stopped(&r, "a", false);
}

/* test_runtimedir.c - where the messages in flight are
 *
 * The test says what a file system is (runtimedir_statfs): everything below a
 * folder "mem" is a tmpfs, everything else a disk.
 */
#include "tests/fixtures/passing_clock.h"

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

#include "common/base/boot_id.h"
#include "common/custody/custody.h"
#include "common/state/runtimedir.h"

#define TMPFS  0x01021994
#define EXT4   0xEF53
#define NOBODY 65534

static char top[256], memory[300];
static bool shm_memory, run_memory; /* whether /dev/shm and /run are tmpfs */

/* Feign statfs(2): a path that is there is on a tmpfs or on ext4. */
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

/* Skip the test if this is not root. A skip does not run the teardown. */
static void root_needed(void)
{
    if (geteuid() == 0)
        return;
    teardown();
    cr_skip_test("needs root");
}

TestSuite(runtimedir, .init = setup, .fini = teardown);

/* Return top/rest, in one of a few static buffers. */
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

    cr_assert_eq(runtimedir_root(root, &wish, &p), 0, "%s", p.text);
    cr_assert_str_eq(root, want);
}

static void refused_root(const char *flag, const char *say)
{
    const struct runtimedir_wish wish = {.dir = flag, .holds = custody_holds};
    struct problem p = {0};
    char root[PATH_MAX];

    cr_assert_lt(runtimedir_root(root, &wish, &p), 0);
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
    snprintf(memory, sizeof memory, "%s", "."); /* relative paths count too */
    expect_root("rel/x", "rel/x");
}

Test(runtimedir, root_has_run_before_the_session)
{
    root_needed();
    setenv("XDG_RUNTIME_DIR", memory, 1);
    run_memory = true;
    expect_root(NULL, "/run/mqworker");
    run_memory = false;
    expect_root(NULL, below("mem/mqworker"));
}

Test(runtimedir, the_session_of_another_user_is_not_for_us)
{
    root_needed();
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
    cr_assert_eq(runtimedir_root(root, &allow, &p), 0, "%s", p.text);
    cr_assert(root[0] == '\0', "want the state folder");
    cr_assert_eq(runtimedir_root(root, &given, &p), 0, "%s", p.text);
    cr_assert_str_eq(root, top);
}

/* ---- the folder of a queue ---- */

/* Open the state folder of /orders below `name`. */
static struct statedir state(const char *name)
{
    struct statedir dir;
    struct problem p = {0};

    cr_assert_eq(statedir_open(&dir, below(name), "/orders", true, &p), 0, "%s",
                 p.text);
    return dir;
}

/* Return the folder below `root` for the queue of state directory `name`. */
static const char *folder_in(const char *root, const char *name)
{
    static char paths[4][PATH_MAX];
    static unsigned turn;
    char *path = paths[turn++ % 4], home[PATH_MAX], at[64];

    snprintf(at, sizeof at, "%s/orders", name);
    cr_assert(realpath(below(at), home) != NULL);
    cr_assert(runtimedir_folder(path, root, home));
    return path;
}

/* Open the folder of a state directory; return the result. */
static int opened(struct runtimedir *r, const char *name, const char *flag,
                  struct problem *p)
{
    const struct runtimedir_wish wish = {.dir = flag, .holds = custody_holds};
    struct statedir dir = state(name);

    return runtimedir_open(r, &wish, &dir, p);
}

/* Start a worker with the state directory `name`, as far as custody. */
static struct runtimedir started_at(const char *name, const char *flag)
{
    struct problem p = {0};
    struct runtimedir r;

    cr_assert_eq(opened(&r, name, flag, &p), 0, "%s", p.text);
    return r;
}

/* Do the same in memory, and check the folder. */
static struct runtimedir started(const char *name)
{
    struct runtimedir r = started_at(name, memory);

    cr_assert_str_eq(r.folder, folder_in(memory, name));
    return r;
}

static void refused(const char *name, const char *flag, int err,
                    const char *say)
{
    struct problem p = {0};
    struct runtimedir r;

    cr_assert_eq(opened(&r, name, flag, &p), err, "%s", p.text);
    cr_assert(strstr(p.text, say) != NULL, "no \"%s\" in: %s", say, p.text);
}

static void settled(struct runtimedir *r, const char *name)
{
    struct statedir dir = state(name);
    struct problem p = {0};

    cr_assert_eq(runtimedir_settle(r, &dir, &p), 0, "%s", p.text);
}

/* Stop a worker; in good order if it left nothing. */
static void stopped(struct runtimedir *r, const char *name, bool orderly)
{
    struct statedir dir = state(name);

    runtimedir_close(r, &dir, orderly);
}

/* Make a custody file with a message, or without one. */
static void custody_put(const char *folder, bool busy)
{
    const struct custody_spec spec = {
        .body_bytes = 64, .slots = 2, .slots_max = 2};
    struct problem p = {0};
    struct custody *c;
    struct slot *slot;
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/custody", folder);
    (void)unlink(path);
    cr_assert_eq(custody_open(&c, path, &spec, &p), 0, "%s", p.text);
    cr_assert_eq(custody_recover(c, &p), 0, "%s", p.text);
    if (busy) {
        slot = custody_acquire(c);
        slot_arm(slot, custody_fill(c), custody_seq_next(c));
        slot->priority = 0;
        slot_taken(slot, 0, 1);
    }
    custody_close(&c);
}

/* Start and stop a worker that leaves a message, or none. Returns what the
 * start made of the past. */
static enum runtimedir_past run_at(const char *name, const char *flag,
                                   bool busy)
{
    struct runtimedir r = started_at(name, flag);
    enum runtimedir_past past = r.past;

    custody_put(r.folder, busy);
    settled(&r, name);
    stopped(&r, name, !busy);
    return past;
}

static enum runtimedir_past run(bool orderly)
{
    return run_at("a", memory, !orderly);
}

static void folder_gone(const char *path)
{
    cr_assert_eq(nftw(path, node_remove, 8, FTW_DEPTH | FTW_PHYS), 0);
}

Test(runtimedir, one_folder_for_a_queue_however_often_it_is_started)
{
    struct stat st;

    for (int i = 0; i < 3; i++) {
        struct runtimedir r = started("a");

        cr_assert_eq(r.past, RUNTIMEDIR_KEPT);
        custody_put(r.folder, i == 1);
        settled(&r, "a");
        stopped(&r, "a", i != 1);
    }
    cr_assert(stat(folder_in(memory, "a"), &st) == 0);
    cr_assert_eq(st.st_mode & 07777, 0700);
}

Test(runtimedir, two_state_directories_never_share_a_folder)
{
    struct runtimedir a = started("a"), b = started("b");

    cr_assert_str_neq(a.folder, b.folder);
    custody_put(a.folder, true);
    settled(&a, "a");
    custody_put(b.folder, false);
    settled(&b, "b");
    cr_assert(access(folder_in(memory, "a"), F_OK) == 0);
    stopped(&a, "a", false);
    stopped(&b, "b", true);
}

Test(runtimedir, a_name_of_any_length_has_a_folder)
{
    char home[300], path[PATH_MAX];

    memset(home, 'n', sizeof home - 1);
    home[0] = '/';
    home[sizeof home - 1] = '\0';
    (void)state("a");
    cr_assert(runtimedir_folder(path, "/mem", home));
    cr_assert_lt(strlen(strrchr(path, '/') + 1), 256);
}

/* Two containers may have different directories at one path, and one memory. */
Test(runtimedir, a_folder_that_another_worker_has_is_refused)
{
    const char *folder;
    int other;

    clock_passes = clock_always;
    (void)state("a");
    folder = folder_in(memory, "a");
    cr_assert_eq(mkdir(folder, 0700), 0);
    other = open(folder, O_RDONLY | O_DIRECTORY);
    cr_assert_eq(flock(other, LOCK_EX | LOCK_NB), 0);
    refused("a", memory, -EWOULDBLOCK, "another process has ");
    close(other);
    cr_assert_eq(run(true), RUNTIMEDIR_KEPT);
}

Test(runtimedir, what_a_removed_state_directory_had_is_run_by_the_next_there)
{
    struct runtimedir r;

    cr_assert_eq(run(false), RUNTIMEDIR_KEPT);
    folder_gone(below("a"));
    r = started("a");
    cr_assert_eq(r.past, RUNTIMEDIR_KEPT);
    cr_assert(!r.made, "a new folder without what was left");
    stopped(&r, "a", false);
    cr_assert(access(folder_in(memory, "a"), F_OK) == 0);
}

Test(runtimedir, the_end_of_a_worker_leaves_the_note_of_another_one)
{
    struct runtimedir a = started("a"), b;
    const char *elsewhere = below("mem/other");

    settled(&a, "a");
    folder_gone(below("a")); /* under a worker that runs; another starts */
    b = started_at("a", elsewhere);
    custody_put(b.folder, true);
    settled(&b, "a");
    stopped(&a, "a", true);
    stopped(&b, "a", false);
    refused("a", memory, -EBUSY, b.folder);
}

/* Both are in memory, so the state folder serves for both. No other folder may
 * lie beside it, as each one there is that of a queue. */
Test(runtimedir, that_of_the_state_is_used_for_both)
{
    struct runtimedir r = started_at("mem", memory);

    cr_assert_str_eq(r.folder, below("mem/orders"));
    cr_assert_eq(r.lock, -1,
                 "locked, but the state folder's lock is held already");
    custody_put(r.folder, true);
    settled(&r, "mem");
    stopped(&r, "mem", false);
    r = started_at("mem", below("mem/../mem/"));
    cr_assert_str_eq(r.folder, below("mem/orders"));
    cr_assert_eq(r.past, RUNTIMEDIR_KEPT);
    settled(&r, "mem");
    stopped(&r, "mem", false);
    cr_assert(access(below("mem/orders/custody"), F_OK) == 0);
}

Test(runtimedir, a_state_directory_that_was_moved_finds_its_messages)
{
    char old[PATH_MAX];
    struct runtimedir r;

    cr_assert_eq(run(false), RUNTIMEDIR_KEPT);
    snprintf(old, sizeof old, "%s", folder_in(memory, "a"));
    cr_assert_eq(rename(below("a"), below("b")), 0);
    for (int i = 0; i < 2; i++) {
        r = started_at("b", i ? memory : NULL);
        cr_assert_str_eq(r.folder, old);
        cr_assert_eq(r.past, RUNTIMEDIR_KEPT);
        settled(&r, "b");
        stopped(&r, "b", false);
    }
    custody_put(old, false);
    r = started("b"); /* from here on its own */
    custody_put(r.folder, false);
    settled(&r, "b");
    cr_assert(access(old, F_OK) < 0, "the old folder is left");
    stopped(&r, "b", true);
}

Test(runtimedir, the_copy_of_a_state_directory_takes_nothing_from_the_original)
{
    struct runtimedir r;

    cr_assert_eq(run(false), RUNTIMEDIR_KEPT);
    (void)state("b");
    cr_assert_eq(link(below("a/orders/runtime"), below("b/orders/runtime")), 0);
    r = started("b");
    cr_assert_eq(r.past, RUNTIMEDIR_KEPT);
    cr_assert_eq(r.was[0], '\0');
    custody_put(r.folder, false);
    settled(&r, "b");
    stopped(&r, "b", true);
    r = started("a");
    cr_assert(!r.made);
    stopped(&r, "a", false);
}

Test(runtimedir, a_planted_folder_is_refused)
{
    const char *folder;

    (void)state("a");
    folder = folder_in(memory, "a");
    cr_assert_eq(symlink(top, folder), 0);
    refused("a", memory, -ELOOP, "symbolic link");
    cr_assert_eq(unlink(folder), 0);
    cr_assert_eq(mkdir(folder, 0700), 0);
    cr_assert_eq(chmod(folder, 0720), 0);
    refused("a", memory, -EPERM, "its group (mode 0720)");
    cr_assert_eq(chmod(folder, 0700), 0);
    cr_assert_eq(chmod(memory, 0707), 0);
    refused("a", memory, -EPERM, "others (mode 0707)");
}

Test(runtimedir, a_folder_of_another_user_is_refused)
{
    const char *folder;

    root_needed();
    (void)state("a");
    folder = folder_in(memory, "a");
    cr_assert_eq(mkdir(folder, 0700), 0);
    cr_assert_eq(chown(folder, NOBODY, 0), 0);
    refused("a", memory, -EPERM,
            " belongs to nobody, but you are root; find out who made it "
            "and move it away, or give another --runtime-dir DIR");
    cr_assert_eq(chown(folder, 0, 0), 0);
    cr_assert_eq(chown(memory, NOBODY, 0), 0);
    refused("a", memory, -EPERM,
            "mem belongs to nobody, but you are root; find out who made "
            "it and move it away");
}

Test(runtimedir, who_cannot_change_a_mode_is_told_who_can)
{
    root_needed();
    cr_assert_eq(chmod(top, 0755), 0);
    cr_assert_eq(mkdir(below("state"), 0755), 0);
    cr_assert_eq(chown(below("state"), NOBODY, 0), 0);
    cr_assert_eq(chmod(memory, 0777), 0); /* it is not the root of a mount */
    cr_assert_eq(seteuid(NOBODY), 0);
    refused("state", memory, -EPERM,
            "mem is writable by others (mode 0777); have root do `chmod go-w ");
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
    struct runtimedir r = started("a");

    stopped(&r, "a", false);
    cr_assert(access(folder_in(memory, "a"), F_OK) < 0);
    cr_assert(access(below("a/orders/runtime"), F_OK) < 0);
}

/* ---- the note ---- */

/* Write the note of `a` as another run of the machine would have written it, or
 * a worker that ended in another way. */
static void note_say(const char *boot, const char *how)
{
    char home[PATH_MAX];
    FILE *f;

    cr_assert(realpath(below("a/orders"), home) != NULL);
    f = fopen(below("a/orders/runtime"), "w");
    cr_assert(f != NULL);
    fprintf(f, "folder %s\nhome %s\nboot %s\nstate %s\n",
            folder_in(memory, "a"), home, boot, how);
    fclose(f);
}

#define OTHER_BOOT "00000000-dead-4eef-8000-000000000000@1"

Test(runtimedir, custody_that_is_gone_is_told_once)
{
    char folder[PATH_MAX];

    cr_assert_eq(run(false), RUNTIMEDIR_KEPT);
    snprintf(folder, sizeof folder, "%s", folder_in(memory, "a"));
    folder_gone(folder);
    cr_assert_eq(run(true), RUNTIMEDIR_GONE);
    folder_gone(folder);
    cr_assert_eq(run(false), RUNTIMEDIR_KEPT, "told, but nothing was in it");
    folder_gone(folder);
    note_say(OTHER_BOOT, "open");
    cr_assert_eq(run(true), RUNTIMEDIR_REBOOT);
    folder_gone(folder);
    note_say(OTHER_BOOT, "closed");
    cr_assert_eq(run(true), RUNTIMEDIR_KEPT,
                 "told, but it was closed in good order");
    folder_gone(folder);
    note_say(OTHER_BOOT, "open");
    cr_assert_eq(run_at("a", below("mem/other"), false), RUNTIMEDIR_REBOOT,
                 "not told to a start with another directory");
}

Test(runtimedir, another_directory_is_refused_while_messages_are_in_flight)
{
    struct runtimedir r;
    char other[320];

    snprintf(other, sizeof other, "%s/other", memory);
    cr_assert_eq(run(false), RUNTIMEDIR_KEPT);
    refused("a", other, -EBUSY, folder_in(memory, "a"));
    refused("a", other, -EBUSY, "mqctl drain --state-dir /");
    cr_assert(access(other, F_OK) < 0, "a folder was made there");
    r = started_at("a", NULL); /* as the line says */
    cr_assert_str_eq(r.folder, folder_in(memory, "a"));
    custody_put(r.folder, false);
    settled(&r, "a");
    stopped(&r, "a", true);
    r = started_at("a", other);
    cr_assert_str_eq(r.folder, folder_in(other, "a"));
    cr_assert_eq(r.past, RUNTIMEDIR_KEPT);
    stopped(&r, "a", false); /* a crash here changes nothing */
    cr_assert(access(folder_in(memory, "a"), F_OK) == 0);
    cr_assert_eq(run_at("a", other, true), RUNTIMEDIR_KEPT);
    cr_assert(access(folder_in(memory, "a"), F_OK) < 0,
              "the old folder is left");
    refused("a", memory, -EBUSY, folder_in(other, "a"));
}

Test(runtimedir, custody_on_the_disk_is_not_left_behind)
{
    const struct runtimedir_wish wish = {
        .dir = memory, .allow_disk = true, .holds = custody_holds};
    struct statedir dir = state("a");
    struct problem p = {0};
    struct runtimedir r;

    custody_put(below("a/orders"), true); /* and the note was lost */
    refused("a", memory, -EBUSY, "messages in flight are in ");
    refused("a", NULL, -EXDEV, "--allow-disk-custody once");
    custody_put(below("a/orders"), false);
    cr_assert_eq(runtimedir_open(&r, &wish, &dir, &p), 0, "%s", p.text);
    cr_assert_str_eq(r.folder, folder_in(memory, "a"));
    settled(&r, "a");
    cr_assert(access(below("a/orders/custody"), F_OK) < 0);
    cr_assert(access(below("a/orders/runtime"), F_OK) == 0);
    stopped(&r, "a", false);
}

Test(runtimedir, a_damaged_note_is_refused_and_left_as_it_is)
{
    FILE *f;

    cr_assert_eq(run(false), RUNTIMEDIR_KEPT);
    f = fopen(below("a/orders/runtime"), "w");
    cr_assert(f != NULL);
    fputs("folder /x\nhome /y\nboot z\nstate op", f);
    fclose(f);
    refused("a", memory, -EBADMSG, "orders/runtime is damaged");
}

/* ---- programs that look ---- */

static void looks(const char *file, const char *folder)
{
    struct statedir dir = state("a");
    struct problem p = {0};
    char path[PATH_MAX], want[PATH_MAX + 16];

    snprintf(want, sizeof want, "%s/%s", folder, file);
    cr_assert_eq(runtimedir_file(&dir, file, path, &p), 0, "%s", p.text);
    cr_assert_str_eq(path, want);
}

Test(runtimedir, who_looks_needs_the_state_directory_alone)
{
    char folder[PATH_MAX], disk[300];

    snprintf(disk, sizeof disk, "%s/a/orders", top);
    looks("custody", disk);
    cr_assert_eq(run(false), RUNTIMEDIR_KEPT);
    snprintf(folder, sizeof folder, "%s", folder_in(memory, "a"));
    looks("custody", folder);
    looks("counters", disk); /* of an orderly stop */
    cr_assert_eq(chmod(folder, 0777), 0);
    looks("custody", disk); /* not to be trusted */
    folder_gone(folder);
    looks("custody", disk);
}

Test(runtimedir, disk_if_it_is_allowed_is_the_state_folder)
{
    const struct runtimedir_wish wish = {.allow_disk = true,
                                         .holds = custody_holds};
    struct statedir dir = state("a");
    struct problem p = {0};
    struct runtimedir r;

    for (int i = 0; i < 2; i++) {
        cr_assert_eq(runtimedir_open(&r, &wish, &dir, &p), 0, "%s", p.text);
        cr_assert_str_eq(r.folder, below("a/orders"));
        custody_put(r.folder, true);
        cr_assert_eq(runtimedir_settle(&r, &dir, &p), 0);
        runtimedir_close(&r, &dir, false);
        looks("custody", below("a/orders"));
        shm_memory = true; /* there is memory by now */
    }
}

/* ---- removed ---- */

static int removed(char out[PATH_MAX])
{
    struct statedir dir = state("a");

    return runtimedir_remove(&dir, custody_holds, out);
}

Test(runtimedir, a_folder_is_removed_unless_it_holds_messages)
{
    char out[PATH_MAX], folder[PATH_MAX];
    struct runtimedir r;

    (void)state("a");
    cr_assert_eq(removed(out), -ENOENT);
    cr_assert_eq(run(false), RUNTIMEDIR_KEPT);
    snprintf(folder, sizeof folder, "%s", folder_in(memory, "a"));
    cr_assert_eq(removed(out), -ENOTEMPTY);
    cr_assert_str_eq(out, folder);
    custody_put(folder, false);
    r = started("a");
    cr_assert_eq(removed(out), -EBUSY);
    stopped(&r, "a", false);
    cr_assert_eq(removed(out), 0);
    cr_assert(access(folder, F_OK) < 0);
    cr_assert_eq(run(true), RUNTIMEDIR_KEPT, "told, but nothing was lost");
}

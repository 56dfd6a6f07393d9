/* test_statedir.c - where the files are, and which folders are refused
 *
 * Each test works in a directory of its own under $TMPDIR or /tmp. As root the
 * tests of permission become another user first.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/state/statedir.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])
#define NOBODY   65534

static char top[256];

static void setup(void)
{
    const char *tmp = getenv("TMPDIR");
    umask(022);
    snprintf(top, sizeof top, "%.200s/mqw-statedir-XXXXXX", tmp ? tmp : "/tmp");
    cr_assert(mkdtemp(top) != NULL);
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

/* Skip the test, with the clean-up, which cr_skip leaves out. */
static void skip(const char *why)
{
    teardown();
    cr_skip("%s", why);
}

TestSuite(statedir, .init = setup, .fini = teardown);

/* Return top/rest, in one of a few static buffers. */
static const char *below(const char *rest)
{
    static char paths[4][512];
    static unsigned turn;
    char *path = paths[turn++ % COUNT(paths)];
    snprintf(path, sizeof paths[0], "%s/%s", top, rest);
    return path;
}

static mode_t mode_of(const char *path)
{
    struct stat st;
    cr_assert(lstat(path, &st) == 0, "%s: %s", path, strerror(errno));
    return st.st_mode & 07777;
}

static void touch(const char *path, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    cr_assert(fd >= 0 && fchmod(fd, mode) == 0, "%s", path);
    close(fd);
}

/* If this is root, become another user. */
static void become_other(void)
{
    if (geteuid() != 0)
        return;
    cr_assert(chown(top, NOBODY, (gid_t)-1) == 0);
    cr_assert(setresuid(NOBODY, NOBODY, 0) == 0);
}

static void refused(const char *flag, bool create, int err, const char *say,
                    const char *also)
{
    struct statedir dir;
    struct problem p = {0};
    int got = statedir_open(&dir, flag, "/orders", create, &p);
    cr_assert(got == -err, "%d: %s", got, p.text);
    cr_assert(p.status == EX_CANTCREAT, "%d: %s", p.status, p.text);
    cr_assert(strstr(p.text, say) != NULL, "no \"%s\" in: %s", say, p.text);
    cr_assert(strstr(p.text, also) != NULL, "no \"%s\" in: %s", also, p.text);
    cr_assert(strchr(p.text, '\n') == NULL);
}

/* ---- the state directory ---- */

static void expect_root(const char *flag, const char *want)
{
    char root[PATH_MAX];
    struct problem p = {0};
    cr_assert(statedir_root(root, flag, &p) == 0, "%s", p.text);
    cr_assert(strcmp(root, want) == 0, "%s, not %s", root, want);
}

static void clear_environment(void)
{
    unsetenv("STATE_DIRECTORY");
    unsetenv("XDG_STATE_HOME");
    unsetenv("HOME");
}

static void expect_operand(const char *root, const char *want)
{
    cr_assert_str_eq(STATEDIR_OPERAND(root, "/a b"), want);
}

Test(statedir, advice_names_a_directory_that_is_not_the_usual_one)
{
    become_other();
    clear_environment();
    setenv("HOME", "/home/u", 1);
    expect_operand("/home/u/.local/state/mqworker", "'/a b'");
    expect_operand("", "'/a b'"); /* the queue is on a broker */
    expect_operand("/it's", "--state-dir '/it'\\''s' '/a b'");
    setenv("STATE_DIRECTORY", "/var/lib/a",
           1); /* the reader's shell has none */
    expect_operand("/var/lib/a", "--state-dir /var/lib/a '/a b'");
}

Test(statedir, flag_then_systemd_then_home)
{
    become_other();
    clear_environment();
    setenv("HOME", "/home/u", 1);
    expect_root(NULL, "/home/u/.local/state/mqworker");
    setenv("XDG_STATE_HOME", "relative", 1); /* to be ignored, says XDG */
    expect_root(NULL, "/home/u/.local/state/mqworker");
    setenv("XDG_STATE_HOME", "/xdg", 1);
    expect_root(NULL, "/xdg/mqworker");
    setenv("STATE_DIRECTORY", "", 1);
    expect_root(NULL, "/xdg/mqworker");
    setenv("STATE_DIRECTORY", "/var/lib/a:/var/lib/b", 1);
    expect_root(NULL, "/var/lib/a");
    expect_root("/flag//", "/flag");
    expect_root("relative/dir", "relative/dir");
    expect_root("/", "/");
}

Test(statedir, root_has_its_own_default)
{
    if (geteuid() != 0)
        skip("needs root");
    clear_environment();
    setenv("XDG_STATE_HOME", "/xdg", 1);
    expect_root(NULL, "/var/lib/mqworker");
    setenv("STATE_DIRECTORY", "/s", 1);
    expect_root(NULL, "/s");
}

Test(statedir, without_any_hint_it_says_which_flag_to_give)
{
    char root[PATH_MAX], *too_long = malloc(PATH_MAX + 1);
    struct problem p = {0};
    become_other();
    clear_environment();
    cr_assert(statedir_root(root, NULL, &p) == -ENOENT);
    cr_assert(p.status == EX_CANTCREAT && strstr(p.text, "--state-dir"));
    cr_assert(statedir_root(root, "", &p) == -EINVAL);
    cr_assert(p.status == EX_CANTCREAT && strstr(p.text, "--state-dir"));
    memset(too_long, 'd', PATH_MAX);
    too_long[PATH_MAX] = '\0';
    cr_assert(statedir_root(root, too_long, &p) == -ENAMETOOLONG);
    cr_assert(p.status == EX_CANTCREAT);
    too_long[PATH_MAX - 4] = '\0';
    refused(too_long, true, ENAMETOOLONG, "orders", "--state-dir");
    free(too_long);
}

/* The path is as long as SQLite takes, then a byte longer. */
Test(statedir, a_path_that_sqlite_would_not_open_is_refused)
{
    char root[700] = "", *real = realpath(below(""), NULL);
    size_t folder = 497 - strlen("/orders/store.db");
    struct statedir dir;
    struct problem p = {0};

    cr_assert_not_null(real);
    strcpy(root, real);
    while (strlen(root) < folder)
        strcat(root, strlen(root) % 200 ? "d" : "/");
    root[folder] = '\0';
    if (root[folder - 1] == '/')
        root[folder - 1] = 'd';
    cr_expect_eq(statedir_open(&dir, root, "orders", true, &p), 0, "%s",
                 p.text);
    strcat(root, "d");
    cr_expect_eq(statedir_open(&dir, root, "orders", true, &p), -ENAMETOOLONG);
    cr_expect(p.status == EX_CANTCREAT &&
                  strstr(p.text,
                         "is 498 bytes long, and SQLite allows 497; give a "
                         "shorter --state-dir"),
              "%s", p.text);
    free(real);
}

/* ---- the folder ---- */

Test(statedir, the_folder_and_its_parents_are_made_private)
{
    struct statedir dir;
    struct problem p = {0};
    umask(0);
    cr_assert(statedir_open(&dir, below("a/b//c"), "orders", true, &p) == 0,
              "%s", p.text);
    cr_assert(strcmp(dir.folder, below("a/b//c/orders")) == 0, "%s",
              dir.folder);
    cr_assert(strcmp(dir.root, below("a/b//c")) == 0);
    cr_assert(mode_of(below("a")) == 0700);
    cr_assert(mode_of(below("a/b")) == 0700);
    cr_assert(mode_of(below("a/b/c")) == 0700);
    cr_assert(mode_of(dir.folder) == 0700);
    cr_assert(statedir_open(&dir, below("a/b//c"), "/orders", true, &p) == 0,
              "%s", p.text);
    cr_assert(statedir_open(&dir, below("a/b//c"), "/orders", false, &p) == 0,
              "%s", p.text);
}

Test(statedir, a_relative_directory_works)
{
    struct statedir dir;
    cr_assert(chdir(top) == 0);
    cr_assert(statedir_open(&dir, "rel", "/orders", true, NULL) == 0);
    cr_assert(strcmp(dir.folder, "rel/orders") == 0);
    cr_assert(statedir_open(&dir, "d/e", "/orders", true, NULL) == 0);
    cr_assert(mode_of(below("d/e/orders")) == 0700);
}

Test(statedir, nothing_is_made_unless_asked_for)
{
    refused(below("none"), false, ENOENT, below("none/orders"), "state-dir");
    cr_assert(access(below("none"), F_OK) == -1 && errno == ENOENT);
}

Test(statedir, a_bad_queue_name_never_becomes_a_path)
{
    static const char *const bad[] = {"..", "/..", ".", "/", "", "a/../../b"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct statedir dir;
        struct problem p = {0};
        cr_assert(statedir_open(&dir, top, bad[i], true, &p) == -EINVAL);
        cr_assert(p.status == EX_USAGE, "%s", p.text);
    }
}

Test(statedir, a_folder_that_others_may_write_is_refused)
{
    struct statedir dir;
    cr_assert(mkdir(below("orders"), 0700) == 0);
    cr_assert(chmod(below("orders"), 0770) == 0);
    refused(top, true, EPERM, "its group (mode 0770)", "`chmod go-w ");
    cr_assert(chmod(below("orders"), 0702) == 0);
    refused(top, false, EPERM, "others (mode 0702)", below("orders`"));
    cr_assert(chmod(below("orders"), 0755) == 0);
    cr_assert(statedir_open(&dir, top, "/orders", true, NULL) == 0);
}

Test(statedir, a_symbolic_link_as_folder_is_refused)
{
    cr_assert(mkdir(below("real"), 0700) == 0);
    cr_assert(symlink(below("real"), below("orders")) == 0);
    refused(top, true, ELOOP, "symbolic link", below("orders"));
    refused(top, false, ELOOP, "symbolic link", below("orders"));
    cr_assert(unlink(below("orders")) == 0);
    cr_assert(symlink(below("nowhere"), below("orders")) == 0);
    refused(top, true, ELOOP, "symbolic link", below("orders"));
    cr_assert(access(below("nowhere"), F_OK) == -1);
}

Test(statedir, a_state_directory_that_others_may_write_is_refused)
{
    struct statedir dir;
    cr_assert(mkdir(below("open"), 0700) == 0);
    cr_assert(chmod(below("open"), 0770) == 0);
    refused(below("open"), true, EPERM, "its group (mode 0770)", "`chmod go-w");
    cr_assert(chmod(below("open"), 0777) == 0);
    refused(below("open"), true, EPERM, "others (mode 0777)", "`chmod go-w");
    refused(below("open"), false, EPERM, "others (mode 0777)", below("open"));
    cr_assert(access(below("open/orders"), F_OK) == -1, "a folder was made");
    refused(below("open/ours"), true, EPERM, "others (mode 0777)", "above");
    cr_assert(access(below("open/ours"), F_OK) == -1, "a folder was made");
    cr_assert(chmod(below("open"), 01777) == 0);
    cr_assert(statedir_open(&dir, below("open"), "/orders", true, NULL) == 0,
              "refused, but nobody else can rename a folder of ours");
}

/* Check that a state directory below "open" is refused. */
static void above_refused(const char *say, const char *also)
{
    refused(below("open/state"), true, EPERM, say, also);
    refused(below("open/a/b"), true, EPERM, say, "above");
    refused(below("link/state"), true, EPERM, say, also);
    cr_assert(access(below("open/state"), F_OK) == -1, "a folder was made");
}

Test(statedir, a_parent_that_others_may_write_is_refused)
{
    struct statedir dir;
    cr_assert(mkdir(below("open"), 0700) == 0);
    cr_assert(symlink("open", below("link")) == 0);
    cr_assert(chmod(below("open"), 0707) == 0);
    above_refused("others (mode 0707)", "`chmod +t ");
    cr_assert(chmod(below("open"), 01707) == 0);
    cr_assert(statedir_open(&dir, below("open/state"), "/orders", true, NULL) ==
                  0,
              "refused, but nobody else can move it away");
    cr_assert(rmdir(dir.folder) == 0 && rmdir(dir.root) == 0);
    cr_assert(chmod(below("open"), 0770) == 0);
    cr_assert(statedir_open(&dir, below("open/state"), "/orders", true, NULL) ==
                  0,
              "refused for the user's private group, which has his number");
    cr_assert(rmdir(dir.folder) == 0 && rmdir(dir.root) == 0);
    if (geteuid() != 0)
        skip("needs root to give it away");
    cr_assert(chown(below("open"), 0, NOBODY) == 0);
    above_refused("its group (mode 0770)", "`chmod g-w ");
    cr_assert(chmod(below("open"), 0755) == 0);
    cr_assert(chown(below("open"), NOBODY, 0) == 0);
    above_refused("belongs to nobody", "give another --state-dir");
    cr_assert(mkdir(below("open/state"), 0755) == 0);
    cr_assert(mkdir(below("open/state/orders"), 0755) == 0);
    cr_assert(
        statedir_open(&dir, below("open/state"), "/orders", false, NULL) == 0,
        "root may not look");
    cr_assert(chmod(top, 0755) == 0);
    cr_assert(chown(below("open/state"), NOBODY, 0) == 0);
    cr_assert(chown(below("open/state/orders"), NOBODY, 0) == 0);
    cr_assert(setresuid(NOBODY, NOBODY, 0) == 0);
    cr_assert(statedir_open(&dir, below("open/state"), "/orders", true, NULL) ==
              0);
    cr_assert(seteuid(0) == 0);
}

Test(statedir, a_symbolic_link_as_state_directory_is_refused)
{
    cr_assert(mkdir(below("private"), 0700) == 0);
    cr_assert(symlink("private", below("link")) == 0);
    refused(below("link"), true, ELOOP, "symbolic link", below("link"));
    refused(below("link"), false, ELOOP, "symbolic link", below("link"));
    cr_assert(access(below("private/orders"), F_OK) == -1);
    cr_assert(symlink("nowhere", below("dangling")) == 0);
    refused(below("dangling"), true, ELOOP, "symbolic link", "dangling");
    cr_assert(access(below("nowhere"), F_OK) == -1);
}

Test(statedir, systemd_may_give_a_link_of_roots)
{
    struct statedir dir;
    if (geteuid() != 0)
        skip("needs root to make it");
    cr_assert(mkdir(below("private"), 0700) == 0);
    cr_assert(symlink("private", below("link")) == 0);
    cr_assert(setenv("STATE_DIRECTORY", below("link"), 1) == 0);
    cr_assert(statedir_open(&dir, NULL, "/orders", true, NULL) == 0);
    cr_assert(mode_of(below("private/orders")) == 0700);
    cr_assert(chmod(below("private"), 0777) == 0);
    refused(NULL, true, EPERM, "others (mode 0777)", below("link"));
    cr_assert(chmod(below("private"), 0700) == 0);
    cr_assert(lchown(below("link"), NOBODY, 0) == 0);
    refused(NULL, true, ELOOP, "symbolic link", below("link"));
}

Test(statedir, a_state_directory_of_another_user_is_refused)
{
    struct statedir dir;
    if (geteuid() != 0)
        skip("needs root to make it");
    cr_assert(chmod(top, 0755) == 0);
    cr_assert(mkdir(below("theirs"), 0755) == 0);
    cr_assert(statedir_open(&dir, below("theirs"), "/orders", true, NULL) == 0);
    cr_assert(chown(below("theirs"), NOBODY, NOBODY) == 0);
    refused(below("theirs"), true, EPERM, "belongs to nobody",
            "sudo -u nobody ");
    cr_assert(statedir_open(&dir, below("theirs"), "/orders", false, NULL) == 0,
              "root may not look at that of a user");
    cr_assert(chown(below("theirs/orders"), NOBODY, NOBODY) == 0);
    cr_assert(chown(below("theirs"), 65533, 65533) == 0);
    cr_assert(setresuid(NOBODY, NOBODY, 0) == 0);
    refused(below("theirs"), true, EPERM, "belongs to uid 65533",
            "sudo -u '#65533' ");
    cr_assert(seteuid(0) == 0);
    cr_assert(chown(below("theirs"), 0, 0) == 0);
    cr_assert(setresuid(NOBODY, NOBODY, 0) == 0);
    cr_assert(statedir_open(&dir, below("theirs"), "/orders", true, NULL) == 0,
              "root's directory is refused");
    cr_assert(seteuid(0) == 0);
}

Test(statedir, a_file_in_place_of_a_directory_is_refused)
{
    touch(below("orders"), 0600);
    refused(top, true, ENOTDIR, "is no directory", "move it away");
    refused(below("orders"), true, ENOTDIR, "is no directory", "move it away");
    refused(below("orders/x"), true, ENOTDIR, "orders/x", "Not a directory");
}

Test(statedir, a_folder_of_another_user_is_refused)
{
    struct statedir dir;
    if (geteuid() != 0)
        skip("needs root to make it");
    cr_assert(statedir_open(&dir, top, "/orders", true, NULL) == 0);
    cr_assert(chmod(top, 0755) == 0);
    cr_assert(setresuid(NOBODY, NOBODY, 0) == 0);
    refused(top, false, EPERM, "belongs to root, but you are nobody",
            "sudo -u root ");
    cr_assert(seteuid(0) == 0);
    cr_assert(chown(below("orders"), NOBODY, 0) == 0);
    refused(top, true, EPERM, "belongs to nobody, but you are root",
            "sudo -u nobody ");
    cr_assert(statedir_open(&dir, top, "/orders", false, NULL) == 0,
              "root may not look into the folder of a user");
}

Test(statedir, the_user_is_named_only_if_permission_is_missing)
{
    struct statedir dir;
    struct problem p = {0};

    if (geteuid() != 0)
        skip("needs root, whom /proc refuses with ENOENT");
    cr_assert(statedir_open(&dir, "/proc/x", "/orders", true, &p) == -ENOENT);
    cr_assert(strstr(p.text, "give another --state-dir"), "%s", p.text);
    cr_assert_null(strstr(p.text, "you are"), "%s", p.text);
    cr_assert(chmod(top, 0755) == 0);
    cr_assert(setresuid(NOBODY, NOBODY, 0) == 0);
    refused(below("mine"), true, EACCES, "you are nobody", "--state-dir");
    cr_assert(seteuid(0) == 0);
}

Test(statedir, who_may_not_look_is_told_as_whom_to_run)
{
    struct statedir dir;
    if (geteuid() != 0)
        skip("needs root to make it");
    cr_assert(chmod(top, 0755) == 0);
    cr_assert(statedir_open(&dir, below("shut"), "/orders", true, NULL) == 0);
    cr_assert(setresuid(NOBODY, NOBODY, 0) == 0);
    refused(below("shut"), false, EACCES,
            "shut belongs to root, but you are nobody; run as its owner: "
            "sudo -u root ",
            "give another --state-dir");
    cr_assert(seteuid(0) == 0);
}

Test(statedir, no_permission_is_a_state_directory_that_cannot_be_used)
{
    become_other();
    cr_assert(chmod(top, 0500) == 0);
    refused(below("deep/er"), true, EACCES, "cannot make", "--state-dir");
    cr_assert(chmod(top, 0700) == 0);
    cr_assert(mkdir(below("orders"), 0700) == 0);
    cr_assert(chmod(below("orders"), 0500) == 0);
    refused(top, true, EACCES, "mode 0500", "`chmod u+rwx ");
    cr_assert(chmod(top, 0) == 0);
    refused(top, false, EACCES, "cannot look at", "Permission denied");
    cr_assert(chmod(top, 0700) == 0);
}

/* ---- files ---- */

static void file_refused(const struct statedir *dir, int err, const char *say)
{
    char path[PATH_MAX];
    struct problem p = {0};
    cr_assert(statedir_path(dir, STATEDIR_STORE, path, &p) == -err, "%s",
              p.text);
    cr_assert(p.status == EX_CANTCREAT, "%s", p.text);
    cr_assert(strstr(p.text, say) != NULL, "no \"%s\" in: %s", say, p.text);
    cr_assert(strstr(p.text, "store.db") != NULL, "%s", p.text);
}

Test(statedir, a_file_is_missing_or_a_regular_file_of_our_own)
{
    struct statedir dir;
    char path[PATH_MAX], want[PATH_MAX];
    cr_assert(statedir_open(&dir, top, "/orders", true, NULL) == 0);
    cr_assert(statedir_path(&dir, STATEDIR_STORE, path, NULL) == 0);
    snprintf(want, sizeof want, "%s", below("orders/store.db"));
    cr_assert(strcmp(path, want) == 0, "%s", path);
    touch(path, 0644);
    cr_assert(statedir_path(&dir, STATEDIR_STORE, path, NULL) == 0);
    cr_assert(chmod(path, 0620) == 0);
    file_refused(&dir, EPERM, "`chmod go-w ");
    cr_assert(unlink(path) == 0 && symlink("/etc/passwd", path) == 0);
    file_refused(&dir, ELOOP, "symbolic link");
    cr_assert(unlink(path) == 0 && symlink("dangling", path) == 0);
    file_refused(&dir, ELOOP, "symbolic link");
    cr_assert(unlink(path) == 0 && mkfifo(path, 0600) == 0);
    file_refused(&dir, EINVAL, "is no regular file");
    cr_assert(unlink(path) == 0 && mkdir(path, 0700) == 0);
    file_refused(&dir, EINVAL, "is no regular file");
}

Test(statedir, a_file_must_belong_to_the_owner_of_the_folder)
{
    struct statedir dir;
    char path[PATH_MAX];
    if (geteuid() != 0)
        skip("needs root");
    cr_assert(statedir_open(&dir, top, "/orders", true, NULL) == 0);
    cr_assert(statedir_path(&dir, STATEDIR_STORE, path, NULL) == 0);
    touch(path, 0600);
    cr_assert(chown(path, NOBODY, 0) == 0);
    file_refused(&dir, EPERM, "belongs to nobody, and its folder to root");
    cr_assert(chown(dir.folder, NOBODY, 0) == 0);
    cr_assert(statedir_path(&dir, STATEDIR_STORE, path, NULL) == 0);
}

Test(statedir, a_folder_that_vanished_is_named)
{
    struct statedir dir;
    char path[PATH_MAX];
    struct problem p = {0};
    cr_assert(statedir_open(&dir, top, "/orders", true, NULL) == 0);
    cr_assert(rmdir(dir.folder) == 0);
    cr_assert(statedir_path(&dir, STATEDIR_STORE, path, &p) == -ENOENT);
    cr_assert(p.status == EX_CANTCREAT && strstr(p.text, dir.folder));
}

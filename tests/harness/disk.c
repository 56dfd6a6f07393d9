/* disk.c - fill and free the file system of a state directory (see disk.h) */
#include "tests/harness/internal.h"

#include "tests/harness/disk.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* Return the path of the file that takes the remaining space. */
static const char *ballast(void)
{
    return harness_path("%s/ballast", harness_state_dir());
}

/* Enter a mount namespace of this test and make the folder to mount on. Return
 * false if that is not permitted. */
static bool apart(void)
{
    return unshare(CLONE_NEWNS) == 0 &&
           mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mkdir(harness_state_dir(), 0700) == 0;
}

void disk_mount(const char *size)
{
    char options[32];

    snprintf(options, sizeof options, "size=%s", size);
    if (!apart() ||
        mount("tmpfs", harness_state_dir(), "tmpfs", 0, options) < 0)
        cr_skip_test("no small disk can be mounted here (%s): run as root",
                     strerror(errno));
}

/* Without a journal, the space of a removed file is free immediately. */
void disk_mount_ext4(unsigned kib, unsigned block)
{
    char command[PATH_MAX];
    const char *image = harness_path("disk.img");

    snprintf(command, sizeof command,
             "PATH=$PATH:/sbin:/usr/sbin; exec 2>&1 >/dev/null; truncate -s "
             "%uK %s && mkfs.ext4 -q -F -m 0 -O ^has_journal -b %u %s && mount "
             "-o loop %s %s && rmdir %s/lost+found",
             kib, image, block, image, image, harness_state_dir(),
             harness_state_dir());
    if (!apart() || system(command) != 0)
        cr_skip_test("no ext4 can be mounted here: run as root, with mkfs.ext4 "
                     "and loop devices");
}

void disk_read_only(void)
{
    if (mount(NULL, harness_state_dir(), NULL, MS_REMOUNT | MS_RDONLY, NULL) <
        0)
        harness_fail("%s: remount: %s", harness_state_dir(), strerror(errno));
}

void disk_fill(void)
{
    static const char zeros[4096];
    int fd = open(ballast(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

    if (fd < 0)
        harness_fail("%s: %s", ballast(), strerror(errno));
    for (size_t piece = sizeof zeros; piece > 0;) {
        if (write(fd, zeros, piece) <= 0)
            piece /= 2;
    }
    if (errno != ENOSPC)
        harness_fail("%s: %s; a full disk was expected", ballast(),
                     strerror(errno));
    close(fd);
}

void disk_leave(unsigned kib)
{
    struct stat st;
    int fd;

    disk_fill();
    fd = open(ballast(), O_WRONLY | O_CLOEXEC);
    if (fd < 0 || syncfs(fd) < 0 || fstat(fd, &st) < 0 ||
        ftruncate(fd, st.st_size - (off_t)kib * 1024) < 0 || syncfs(fd) < 0)
        harness_fail("%s: %s", ballast(), strerror(errno));
    close(fd);
}

void disk_free(void)
{
    if (unlink(ballast()) < 0)
        harness_fail("%s: %s", ballast(), strerror(errno));
}

struct sqlite3 *disk_lock(const char *queue)
{
    const char *path =
        harness_path("%s%s/store.db", harness_state_dir(), queue);
    sqlite3 *db;

    if (sqlite3_open(path, &db) != SQLITE_OK ||
        sqlite3_busy_timeout(db, 10000) != SQLITE_OK ||
        sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
        harness_fail("%s: %s", path, sqlite3_errmsg(db));
    return db;
}

void disk_unlock(struct sqlite3 *lock)
{
    sqlite3_close(lock);
}

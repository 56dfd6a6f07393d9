/* disk.c - see disk.h */
#include "tests/harness/internal.h"

#include "tests/harness/disk.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* ballast - the file that takes what is left */
static const char *ballast(void)
{
    return harness_path("%s/ballast", harness_state_dir());
}

void disk_mount(const char *size)
{
    char options[32];

    snprintf(options, sizeof options, "size=%s", size);
    if (unshare(CLONE_NEWNS) < 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mkdir(harness_state_dir(), 0700) < 0 ||
        mount("tmpfs", harness_state_dir(), "tmpfs", 0, options) < 0)
        cr_skip_test("no small disk can be mounted here (%s): run as root",
                     strerror(errno));
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
        sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
        harness_fail("%s: %s", path, sqlite3_errmsg(db));
    return db;
}

void disk_unlock(struct sqlite3 *lock)
{
    sqlite3_close(lock);
}

/* test_mount_point.c - where a file system is mounted */
#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"

Test(mount_point, it_is_above_the_file_or_the_path_itself)
{
    char out[PATH_MAX];

    cr_assert_str_eq(mount_point("/proc/self/fd", out), "/proc");
    cr_assert_str_eq(mount_point("/proc", out), "/proc");
    cr_assert_str_eq(mount_point("/", out), "/");
    cr_assert_str_eq(mount_point("/proc/self/../..", out), "/");
}

Test(mount_point, what_is_not_there_comes_back_as_it_is)
{
    char out[PATH_MAX];

    cr_assert_str_eq(mount_point("no/such file", out), "no/such file");
}

/* A bind mount has the device number of the folder above it. */
Test(mount_point, a_folder_that_is_bound_is_one)
{
    char top[] = "/tmp/mqw-mount-XXXXXX", out[PATH_MAX], deep[64];

    cr_assert_not_null(mkdtemp(top));
    snprintf(deep, sizeof deep, "%s/a", top);
    cr_assert_eq(mkdir(deep, 0700), 0);
    if (unshare(CLONE_NEWNS) < 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount(top, top, NULL, MS_BIND, NULL) < 0) {
        rmdir(deep);
        rmdir(top);
        cr_skip_test("nothing can be mounted here (%s): run as root",
                     strerror(errno));
    }
    cr_assert_str_eq(mount_point(deep, out), top);
    cr_assert_eq(umount(top), 0);
    rmdir(deep);
    rmdir(top);
}

/* test_unix_socket.c - sockets by path: their mode, long paths, what is in the
 * way */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "common/base/unix_socket.h"

static char dir[64], path[PATH_MAX];
static time_t limit_s; /* the last SO_SNDTIMEO, s */

#ifndef SO_SNDTIMEO_OLD
#define SO_SNDTIMEO_OLD SO_SNDTIMEO
#endif

/* Replace setsockopt(2) in this program: a limit of seconds becomes one of a
 * millisecond, in machine words, which every kernel and emulator takes. */
int setsockopt(int fd, int level, int name, const void *value, socklen_t size)
{
    static const long brief[] = {0, 1000};

    if (name == SO_SNDTIMEO) {
        limit_s = ((const struct timeval *)value)->tv_sec;
        name = SO_SNDTIMEO_OLD;
        value = brief;
        size = sizeof brief;
    }
    return (int)syscall(SYS_setsockopt, fd, level, name, value, size);
}

static void setup(void)
{
    strcpy(dir, "/tmp/mqw-local-XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/control", dir);
}

static void teardown(void)
{
    char command[128];

    snprintf(command, sizeof command, "rm -rf %s", dir);
    cr_assert_eq(system(command), 0);
}

TestSuite(local, .init = setup, .fini = teardown);

/* Connect to the listening socket, send a byte and receive it. */
static void reach(int door)
{
    int to = unix_socket_connect(path), from;
    char c = 0;

    cr_assert_geq(to, 0, "%s", strerror(-to));
    from = accept(door, NULL, NULL);
    cr_assert_geq(from, 0);
    cr_assert_eq(write(to, "x", 1), 1);
    cr_assert_eq(read(from, &c, 1), 1);
    cr_assert_eq(c, 'x');
    close(to);
    close(from);
}

Test(local, who_listens_is_reached)
{
    int door = unix_socket_listen(path, 4);

    cr_assert_geq(door, 0, "%s", strerror(-door));
    reach(door);
    close(door);
}

Test(local, the_mode_is_0600_whatever_the_umask)
{
    struct stat st;
    int door;

    umask(0);
    door = unix_socket_listen(path, 4);
    cr_assert_geq(door, 0);
    cr_assert_eq(lstat(path, &st), 0);
    cr_assert_eq(st.st_mode, (mode_t)(S_IFSOCK | 0600));
    close(door);
}

Test(local, a_path_longer_than_an_address_works_the_same)
{
    size_t used = (size_t)snprintf(path, sizeof path, "%s", dir);
    int door;

    for (int i = 0; i < 3; i++) {
        memset(path + used, 'd', 100);
        path[used] = '/';
        path[used + 100] = '\0';
        used += 100;
        cr_assert_eq(mkdir(path, 0700), 0);
    }
    strcpy(path + used, "/control");
    door = unix_socket_listen(path, 4);
    cr_assert_geq(door, 0, "%s", strerror(-door));
    cr_assert_eq(access(path, F_OK), 0);
    reach(door);
    close(door);
    cr_assert_eq(unix_socket_connect(path), -ECONNREFUSED);
}

Test(local, a_socket_that_nobody_listens_at_is_replaced)
{
    int door = unix_socket_listen(path, 4);

    cr_assert_geq(door, 0);
    close(door);
    cr_assert_eq(unix_socket_connect(path), -ECONNREFUSED);
    door = unix_socket_listen(path, 4);
    cr_assert_geq(door, 0);
    reach(door);
    close(door);
}

Test(local, what_cannot_be_removed_or_made_is_an_error)
{
    cr_assert_eq(unix_socket_connect(path), -ENOENT);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_lt(unix_socket_listen(path, 4), 0);
    strcat(path, "/nowhere/control");
    cr_assert_lt(unix_socket_listen(path, 4), 0);
}

Test(local, descriptors_are_closed_on_exec)
{
    int door = unix_socket_listen(path, 4), to = unix_socket_connect(path);

    cr_assert(fcntl(door, F_GETFD) & FD_CLOEXEC);
    cr_assert(fcntl(to, F_GETFD) & FD_CLOEXEC);
    cr_assert(fcntl(door, F_GETFL) & O_NONBLOCK);
    close(to);
    close(door);
}

Test(local, a_full_backlog_is_not_waited_for_without_end)
{
    int door = unix_socket_listen(path, 1), fd = 0;

    cr_assert_geq(door, 0);
    while (fd >= 0)
        fd = unix_socket_connect(path); /* closed as the test ends */
    cr_assert_eq(fd, -EAGAIN, "%d", fd);
    cr_assert(limit_s > 0 && limit_s < 10);
    close(door);
}

/* unix_socket.c - UNIX sockets by path (see unix_socket.h) */
#include "common/base/unix_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/file.h"

#define CONNECT_S 3 /* longest wait of connect(2) and send(2), seconds */

/* On s390x and i386 the C library creates sockets by socketcall(2), which the
 * filter of `mqctl serve` refuses (serve/confine.c). */
#if defined(SYS_socketcall) && defined(SYS_socket)
#define socket(...) (int)syscall(SYS_socket, __VA_ARGS__)
#endif

/* Make the address of a path. If *folder is not -1 afterwards, close it when
 * the address has been used. */
static int address_make(const char *path, struct sockaddr_un *out, int *folder)
{
    const char *slash = strrchr(path, '/');
    char dir[PATH_MAX];
    int n;

    *folder = -1;
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) < sizeof out->sun_path) {
        memcpy(out->sun_path, path, strlen(path));
        return 0;
    }
    if (!slash || (size_t)(slash - path) >= sizeof dir)
        return -ENAMETOOLONG;
    snprintf(dir, sizeof dir, "%.*s", (int)(slash - path), path);
    *folder = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (*folder < 0)
        return -errno;
    n = snprintf(out->sun_path, sizeof out->sun_path, "/proc/self/fd/%d%.64s",
                 *folder, slash);
    return n < (int)sizeof out->sun_path && strlen(slash) <= 64 ? 0
                                                                : -ENAMETOOLONG;
}

/* Create a socket and connect or bind it; returns the descriptor. */
static int socket_open(const char *path, int flags, bool connects)
{
    const struct timeval limit = {.tv_sec = CONNECT_S};
    struct sockaddr_un to;
    const struct sockaddr *at = (const struct sockaddr *)&to;
    int folder, err = address_make(path, &to, &folder);
    int fd = err ? -1 : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);

    if (!err && fd < 0)
        err = -errno;
    /* bind creates a file with the mode of the socket, cut by the umask. */
    if (!err && fchmod(fd, 0600) < 0)
        err = -errno;
    /* Without a time limit, connect(2) waits for ever if the backlog is full
     * and the owner of the socket accepts no connection. The limit also applies
     * to send(2). */
    if (!err && connects &&
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) < 0)
        err = -errno;
    if (!err &&
        (connects ? connect(fd, at, sizeof to) : bind(fd, at, sizeof to)) < 0)
        err = -errno;
    fd_close(&folder);
    if (err && fd >= 0)
        close(fd);
    return err ? err : fd;
}

int unix_socket_listen(const char *path, int backlog)
{
    int fd, err;

    if (unlink(path) < 0 && errno != ENOENT)
        return -errno;
    fd = socket_open(path, SOCK_NONBLOCK, false);
    if (fd < 0 || listen(fd, backlog) == 0)
        return fd;
    err = -errno;
    close(fd);
    unlink(path);
    return err;
}

int unix_socket_connect(const char *path)
{
    return socket_open(path, 0, true);
}

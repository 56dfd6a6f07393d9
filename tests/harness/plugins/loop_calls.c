/* loop_calls.c - note the calls of the event loop that may wait for a disk
 *
 * A library for LD_PRELOAD, not a handler. Each such call appends a line to the
 * file named by $MQW_LOOP_CALLS: "loop NAME" if the thread of the event loop
 * made it between two calls of epoll_wait, "pool NAME" if another thread did.
 * Calls of the main thread after its last epoll_wait are not in the loop.
 * Programs started by this one do not inherit any of this.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/libc.h"

#define CALLS_MOST 1000

static char *path;
static pid_t loop;                   /* the thread that waits in epoll_wait */
static atomic_bool started;          /* it has called epoll_wait */
static const char *made[CALLS_MOST]; /* calls since the last wait; used by the
                                      * loop only */
static unsigned made_count;

__attribute__((constructor)) static void begin(void)
{
    const char *given = getenv("MQW_LOOP_CALLS");

    path = given ? realpath(given, NULL) : NULL;
    unsetenv("MQW_LOOP_CALLS");
    unsetenv("LD_PRELOAD");
}

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

/* Append a line. The file is opened each time, because the worker closes
 * inherited descriptors when it starts. */
static void line(const char *who, const char *name)
{
    int (*real)(const char *, int, ...);
    int fd;

    *(void **)&real = next("open");
    fd = path ? real(path, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    dprintf(fd, "%s %s\n", who, name);
    close(fd);
}

static void note(const char *name)
{
    if (!atomic_load(&started))
        return;
    if (gettid() != loop)
        line("pool", name);
    else if (made_count < CALLS_MOST)
        made[made_count++] = name;
}

int epoll_wait(int fd, struct epoll_event *events, int most, int ms)
{
    int (*real)(int, struct epoll_event *, int, int);

    if (gettid() == getpid()) {
        loop = gettid();
        atomic_store(&started, true);
        for (unsigned i = 0; i < made_count; i++)
            line("loop", made[i]);
        made_count = 0;
    }
    *(void **)&real = next("epoll_wait");
    return real(fd, events, most, ms);
}

/* Define a function that notes its call and makes it. */
#define CALL(type, name, parameters, arguments) \
    type name parameters                        \
    {                                           \
        static __typeof__(name) *real;          \
                                                \
        note(#name);                            \
        *(void **)&real = next(#name);          \
        return real arguments;                  \
    }

CALL(int, fallocate, (int fd, int mode, off_t at, off_t size),
     (fd, mode, at, size))
CALL(int, posix_fallocate, (int fd, off_t at, off_t size), (fd, at, size))
CALL(int, ftruncate, (int fd, off_t size), (fd, size))
CALL(int, fsync, (int fd), (fd))
CALL(int, fdatasync, (int fd), (fd))
CALL(int, msync, (void *at, size_t size, int flags), (at, size, flags))
CALL(int, mlock, (const void *at, size_t size), (at, size))
CALL(int, madvise, (void *at, size_t size, int what), (at, size, what))
CALL(ssize_t, pread, (int fd, void *to, size_t size, off_t at),
     (fd, to, size, at))
CALL(ssize_t, pwrite, (int fd, const void *from, size_t size, off_t at),
     (fd, from, size, at))
CALL(ssize_t, pread64, (int fd, void *to, size_t size, off64_t at),
     (fd, to, size, at))
CALL(ssize_t, pwrite64, (int fd, const void *from, size_t size, off64_t at),
     (fd, from, size, at))
CALL(int, stat, (const char *of, struct stat *st), (of, st))
CALL(int, lstat, (const char *of, struct stat *st), (of, st))
CALL(int, mkdir, (const char *of, mode_t mode), (of, mode))
CALL(int, link, (const char *from, const char *to), (from, to))
CALL(int, rename, (const char *from, const char *to), (from, to))
CALL(int, unlink, (const char *of), (of))
CALL(int, mkostemp, (char *of, int flags), (of, flags))

int bind(int fd, __CONST_SOCKADDR_ARG address, socklen_t size)
{
    int (*real)(int, __CONST_SOCKADDR_ARG, socklen_t);

    if (address.__sockaddr__->sa_family == AF_UNIX)
        note("bind");
    *(void **)&real = next("bind");
    return real(fd, address, size);
}

/* Note an open, except on the kernel's own file systems, which have no disk. */
static void opened(const char *name, const char *of)
{
    if (strncmp(of, "/proc/", 6) != 0 && strncmp(of, "/sys/", 5) != 0 &&
        strncmp(of, "/dev/", 5) != 0)
        note(name);
}

#define OPEN(name)                           \
    int name(const char *of, int flags, ...) \
    {                                        \
        int (*real)(const char *, int, ...); \
        mode_t mode = 0;                     \
        va_list more;                        \
                                             \
        opened(#name, of);                   \
        if (flags & (O_CREAT | O_TMPFILE)) { \
            va_start(more, flags);           \
            mode = va_arg(more, mode_t);     \
            va_end(more);                    \
        }                                    \
        *(void **)&real = next(#name);       \
        return real(of, flags, mode);        \
    }

OPEN(open)
OPEN(open64)

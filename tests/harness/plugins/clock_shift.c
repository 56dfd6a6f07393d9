/* clock_shift.c - set the clock for one program
 *
 * A library for LD_PRELOAD, not a handler. CLOCK_REALTIME is shifted by the
 * seconds in the file named by $CLOCK_SHIFT, which is read at each call; a
 * missing file counts as 0. Replace the file in one step (rename). With
 * $CLOCK_LEAP, in milliseconds, CLOCK_MONOTONIC leaps ahead by that much at
 * each call, so any shorter limit passes immediately. Other clocks are
 * unchanged.
 *
 * A CLOCK_REALTIME timer that is cancelled when the clock is set
 * (timerfd_create(2)) is cancelled when the file is replaced: its descriptor is
 * an inotify(7) descriptor for the file's folder.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

/* Read the shift in the file. */
static time_t shift_s(void)
{
    const char *path = getenv("CLOCK_SHIFT");
    char text[32];
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t size;

    if (fd < 0)
        return 0;
    size = read(fd, text, sizeof text - 1);
    close(fd);
    text[size > 0 ? size : 0] = '\0';
    return (time_t)strtoll(text, NULL, 10);
}

/* Add one more leap. */
static void leap(struct timespec *now)
{
    static _Atomic int64_t calls;
    const char *text = getenv("CLOCK_LEAP");
    int64_t ns = text ? ++calls * strtoll(text, NULL, 10) * 1000000 : 0;

    ns += now->tv_nsec;
    now->tv_sec += (time_t)(ns / 1000000000);
    now->tv_nsec = (long)(ns % 1000000000);
}

/* Call the kernel directly: a sanitizer may read the clock before dlsym
 * works. */
int clock_gettime(clockid_t id, struct timespec *now)
{
    int rc = (int)syscall(SYS_clock_gettime, id, now);

    if (rc == 0 && id == CLOCK_REALTIME)
        now->tv_sec += shift_s();
    if (rc == 0 && id == CLOCK_MONOTONIC)
        leap(now);
    return rc;
}

static _Atomic int watch = -1; /* descriptor in place of the timer */

int timerfd_create(int clock, int flags)
{
    const char *path = getenv("CLOCK_SHIFT");
    char folder[PATH_MAX];
    int fd;

    if (clock != CLOCK_REALTIME || !path)
        return (int)syscall(SYS_timerfd_create, clock, flags);
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = '\0';
    fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (fd >= 0 && inotify_add_watch(fd, folder, IN_MOVED_TO) < 0)
        return -1;
    atomic_store(&watch, fd);
    return fd;
}

int timerfd_settime(int fd, int flags, const struct itimerspec *at,
                    struct itimerspec *was)
{
    if (fd >= 0 && fd == atomic_load(&watch))
        return 0;
    return (int)syscall(SYS_timerfd_settime, fd, flags, at, was);
}

/* Read the descriptor as the kernel reads a cancelled timer. */
ssize_t read(int fd, void *to, size_t size)
{
    char events[4096];

    if (fd < 0 || fd != atomic_load(&watch))
        return syscall(SYS_read, fd, to, size);
    if (syscall(SYS_read, fd, events, sizeof events) > 0)
        errno = ECANCELED;
    return -1;
}

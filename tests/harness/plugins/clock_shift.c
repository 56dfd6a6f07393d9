/* clock_shift.c - somebody sets the clock, for one program only
 *
 * A library for LD_PRELOAD, not a handler: CLOCK_REALTIME is shifted by the
 * seconds in the file that $CLOCK_SHIFT names, read anew at each call; no file
 * is 0. Replace the file in one step (rename). All other clocks stay as they
 * are. tests/e2e/faults/test_clock_steps.c.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* shift_s - what the file says now */
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

/* clock_gettime - straight to the kernel: a sanitizer may call it before it can
 * be asked for the next one of that name */
int clock_gettime(clockid_t id, struct timespec *now)
{
    int rc = (int)syscall(SYS_clock_gettime, id, now);

    if (rc == 0 && id == CLOCK_REALTIME)
        now->tv_sec += shift_s();
    return rc;
}

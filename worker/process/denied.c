/* denied.c - see denied.h
 *
 * A filter (seccomp(2)) answers with whatever errno it was told to, most often
 * EPERM, or ENOSYS, which an old kernel says as well. Each row here has the
 * errors that the call gives by itself; any other is a denial.
 */
#include "worker/process/denied.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/problem.h"

#define NEEDED "waitid, pidfd_open and memfd_create"

/* waitid_ask - for ourselves, who are no child of ours: ECHILD is its answer;
 * no child is reaped, and nothing is waited for */
static int waitid_ask(void)
{
    siginfo_t info;
    int rc;

    do
        rc = waitid(P_PID, (id_t)getpid(), &info, WEXITED | WNOHANG | WNOWAIT);
    while (rc < 0 && errno == EINTR);
    return rc < 0 && errno != ECHILD ? -errno : 0;
}

/* made - a descriptor that was asked for; that there is no room for another one
 * is no denial, and may have passed when it is needed */
static int made(int fd)
{
    if (fd >= 0)
        close(fd);
    return fd >= 0 || errno == EMFILE || errno == ENFILE || errno == ENOMEM
               ? 0
               : -errno;
}

static int refuse(const char *call, int err, struct problem *p)
{
    return problem_set(
        p, EX_OSERR, -err,
        "handlers cannot be run: %s(2): %s; a filter of system calls (seccomp) "
        "denies it%s: allow " NEEDED ", systemd `SystemCallFilter=`, in a "
        "container its seccomp profile",
        call, errno_text(-err),
        err == -ENOSYS ? ", or the kernel is older than 5.3" : "");
}

int denied_check(bool bodies, struct problem *p)
{
    int err = waitid_ask();

    if (err)
        return refuse("waitid", err, p);
    err = made(pidfd_open(getpid(), 0));
    if (err)
        return refuse("pidfd_open", err, p);
    err = bodies ? made(memfd_create("mqworker-probe", MFD_CLOEXEC)) : 0;
    return err ? refuse("memfd_create", err, p) : 0;
}

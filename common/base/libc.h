/* libc.h - functions and constants that an older C library does not declare
 *
 * WHAT   The names of glibc 2.36, for glibc 2.28 and newer and for musl. Each
 *        function is the system call of its name: 0 or a descriptor, or -1 and
 *        errno, which is ENOSYS if the kernel is too old for the call.
 * WHO    Include it instead of <sys/pidfd.h>, and where one of the other names
 *        is used. Remove a block once no supported system needs it.
 */
#ifndef COMMON_BASE_LIBC_H
#define COMMON_BASE_LIBC_H

#include <errno.h>
#include <features.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef __GLIBC_PREREQ /* musl */
#define __GLIBC_PREREQ(major, minor) 0
#endif

#ifndef CLONE_PIDFD /* Linux 5.2 */
#define CLONE_PIDFD 0x1000
#endif
/* Linux 5.14 */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* System calls since Linux 5.1 have the same number on every machine but Alpha
 * (Documentation/process/adding-syscalls.rst, asm-generic/unistd.h). */
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424 /* Linux 5.1 */
#endif
#ifndef SYS_fsopen /* Linux 5.2 */
#define SYS_fsopen   430
#define SYS_fsconfig 431
#define SYS_fsmount  432
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434 /* Linux 5.3 */
#endif
#ifndef SYS_close_range
#define SYS_close_range 436 /* Linux 5.9 */
#endif

#if __has_include(<sys/pidfd.h>)
#include <sys/pidfd.h>
#else
static inline int pidfd_open(pid_t pid, unsigned flags)
{
    return (int)syscall(SYS_pidfd_open, pid, flags);
}

static inline int pidfd_send_signal(int fd, int sig, siginfo_t *info,
                                    unsigned flags)
{
    return (int)syscall(SYS_pidfd_send_signal, fd, sig, info, flags);
}
#endif

/* For waitid(2), Linux 5.4. */
#if !__GLIBC_PREREQ(2, 33)
#define P_PIDFD ((idtype_t)3)
#endif

/* The kernel's struct rusage, which waitid(2) fills through a fifth argument
 * that no C library passes on. On some 32-bit machines the struct rusage of the
 * C library has longer times. */
struct kernel_rusage {
    long user_s, user_us, system_s, system_us, peak_kib, others[13];
};

#if __GLIBC_PREREQ(2, 1) && !__GLIBC_PREREQ(2, 33)
#define mallinfo2 mallinfo
#endif

#if __GLIBC_PREREQ(2, 1) && !__GLIBC_PREREQ(2, 30)
static inline pid_t gettid(void)
{
    return (pid_t)syscall(SYS_gettid);
}
#endif

#if !__GLIBC_PREREQ(2, 34)
void closefrom(int first); /* of libbsd */
#endif

#if !__GLIBC_PREREQ(2, 36)
#define FSOPEN_CLOEXEC      1
#define FSMOUNT_CLOEXEC     1
#define FSCONFIG_CMD_CREATE 6

static inline int fsopen(const char *type, unsigned flags)
{
    return (int)syscall(SYS_fsopen, type, flags);
}

static inline int fsconfig(int fs, unsigned command, const char *key,
                           const void *value, int aux)
{
    return (int)syscall(SYS_fsconfig, fs, command, key, value, aux);
}

static inline int fsmount(int fs, unsigned flags, unsigned attributes)
{
    return (int)syscall(SYS_fsmount, fs, flags, attributes);
}
#endif

#if !__GLIBC_PREREQ(2, 32)
/* Older glibc and musl have the names of signals only as sentences. */
static inline const char *sigabbrev_np(int sig)
{
    static const char *const names[] = {
        [SIGHUP] = "HUP",   [SIGINT] = "INT",   [SIGQUIT] = "QUIT",
        [SIGILL] = "ILL",   [SIGTRAP] = "TRAP", [SIGABRT] = "ABRT",
        [SIGBUS] = "BUS",   [SIGFPE] = "FPE",   [SIGKILL] = "KILL",
        [SIGUSR1] = "USR1", [SIGSEGV] = "SEGV", [SIGUSR2] = "USR2",
        [SIGPIPE] = "PIPE", [SIGALRM] = "ALRM", [SIGTERM] = "TERM",
        [SIGCHLD] = "CHLD", [SIGCONT] = "CONT", [SIGSTOP] = "STOP",
        [SIGTSTP] = "TSTP", [SIGXCPU] = "XCPU", [SIGXFSZ] = "XFSZ",
        [SIGSYS] = "SYS",
    };

    return sig >= 0 && (size_t)sig < sizeof names / sizeof *names ? names[sig]
                                                                  : NULL;
}

/* strerror(3) is thread-safe for known numbers, and no program here sets
 * LC_MESSAGES. */
static inline const char *strerrordesc_np(int err)
{
    return strerror(err);
}
#endif

/* ---- musl ---- */

#ifndef __GLIBC__
typedef int __rlimit_resource_t;
#define PTHREAD_MUTEX_ADAPTIVE_NP PTHREAD_MUTEX_NORMAL

struct passwd; /* pwd.h */
struct group;  /* grp.h; not included, because worker/groups has this name */

/* Find no entry. Callers then use getpwuid_r(3), which loads no library in
 * musl, unlike in glibc. */
static inline int fgetpwent_r(FILE *file, struct passwd *entry, char *text,
                              size_t size, struct passwd **found)
{
    (void)file, (void)entry, (void)text, (void)size;
    *found = NULL;
    return ENOENT;
}

/* Find no entry, as fgetpwent_r. */
static inline int fgetgrent_r(FILE *file, struct group *entry, char *text,
                              size_t size, struct group **found)
{
    (void)file, (void)entry, (void)text, (void)size;
    *found = NULL;
    return ENOENT;
}
#endif

#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE 2

static inline int renameat2(int from, const char *old, int to, const char *new,
                            unsigned flags)
{
    return (int)syscall(SYS_renameat2, from, old, to, new, flags);
}
#endif

#ifndef RWF_NOWAIT
#define RWF_NOWAIT 8

/* Write at the file's present position if `at` is -1. */
static inline ssize_t pwritev2(int fd, const struct iovec *part, int parts,
                               off_t at, int flags)
{
    return syscall(SYS_pwritev2, fd, part, parts, (long)at, (long)(at >> 32),
                   flags);
}
#endif

#ifndef STATX_BASIC_STATS
#include <linux/stat.h>

static inline int statx(int folder, const char *path, int flags, unsigned mask,
                        struct statx *out)
{
    return (int)syscall(SYS_statx, folder, path, flags, mask, out);
}
#endif
#ifndef STATX_ATTR_MOUNT_ROOT
#define STATX_ATTR_MOUNT_ROOT 0x2000 /* Linux 5.8 */
#endif

#endif

/* confine.c - see confine.h
 *
 * The lists have the calls that the server, its children and mqdlq were seen to
 * make, and those that other machines, C libraries and versions of SQLite make
 * instead. rule_add skips calls that the machine does not have. A later C
 * library tries newer calls first; ENOSYS makes it fall back to listed ones.
 */
#include "scripts/mqctl/serve/confine.h"

#include <errno.h>
#include <linux/net.h>
#include <linux/sched.h>
#include <seccomp.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "common/base/log.h"
#include "common/base/problem.h"

#define NEWER      "clone3" /* the first of the newer calls */
#define NEWER_MANY 160      /* number of newer calls to list */
#define WORD       0xffffffffU
#define NAMESPACES                                                 \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | \
     CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)

/* Calls that are always allowed. */
static const char *const always[] = {
    /* memory */
    "brk", "madvise", "mlock", "mremap", "msync", "munlock", "munmap",
    /* files; SQLite makes a -shm and a -wal even to read */
    "_llseek", "access", "close", "close_range", "dup", "dup2", "dup3",
    "faccessat", "fallocate", "fchmod", "fchown", "fchown32", "fcntl",
    "fcntl64", "fdatasync", "flock", "fstat", "fstat64", "fstatat64", "fstatfs",
    "fstatfs64", "fsync", "ftruncate", "ftruncate64", "getcwd", "getdents64",
    "lseek", "lstat", "lstat64", "memfd_create", "newfstatat", "open", "openat",
    "pipe2", "pread64", "pwrite64", "pwritev2", "read", "readlink",
    "readlinkat", "readv", "stat", "stat64", "statfs", "statfs64", "statx",
    "unlink", "unlinkat", "write", "writev",
    /* queues; without a mounted queue file system, one is opened unmounted */
    "fsconfig", "fsmount", "fsopen", "mq_getsetattr", "mq_open",
    /* connections */
    "accept", "accept4", "connect", "getpeername", "getsockname", "getsockopt",
    "recv", "recvfrom", "recvmsg", "send", "sendmsg", "sendto", "setsockopt",
    "shutdown",
    /* waiting */
    "_newselect", "alarm", "clock_nanosleep", "clock_nanosleep_time64",
    "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_wait", "eventfd2",
    "futex", "futex_time64", "nanosleep", "poll", "ppoll", "ppoll_time64",
    "pselect6", "pselect6_time64", "restart_syscall", "sched_yield",
    "setitimer", "signalfd4",
    /* time and random numbers */
    "clock_getres", "clock_getres_time64", "clock_gettime", "clock_gettime64",
    "getrandom", "gettimeofday", "time",
    /* the process itself */
    "getegid", "getegid32", "geteuid", "geteuid32", "getgid", "getgid32",
    "getpid", "getppid", "getrusage", "gettid", "getuid", "getuid32",
    "sched_getaffinity", "sysinfo", "ugetrlimit", "uname",
    /* processes and signals */
    "exit", "exit_group", "fork", "kill", "rseq", "rt_sigaction",
    "rt_sigprocmask", "rt_sigreturn", "set_robust_list", "set_tid_address",
    "sigaltstack", "sigreturn", "tgkill", "tkill", "wait4", "waitpid", NULL};

/* Calls that start mqdlq, and with which mqdlq sends letters and records what
 * it sent. */
static const char *const to_write[] = {
    "arch_prctl", "chmod", "execve", "fchmodat", "link", "linkat", "mkdir",
    "mkdirat", "mq_timedsend", "mq_timedsend_time64", "rename", "renameat",
    "renameat2", "rmdir",
    /* the thread pointer of MIPS, i386 and ARM */
    "set_thread_area", "set_tls", NULL};

/* Calls that are allowed if (argument & mask) == value, by any of their rows.
 * No mapping can be writable and executable, at the same time or in turn. A
 * file can be mapped executable, because libraries and mqdlq must be loaded;
 * the filter cannot see who wrote the file. */
static const struct with_argument {
    const char *call;
    unsigned argument;
    scmp_datum_t mask, value;
} some[] = {
    {"ioctl", 1, WORD, TCGETS},          {"ioctl", 1, WORD, TIOCGWINSZ},
    {"ioctl", 1, WORD, FIONREAD},        {"ioctl", 1, WORD, FIONBIO},
    {"mmap2", 2, PROT_EXEC, 0},          {"mmap2", 2, PROT_WRITE, 0},
    {"mprotect", 2, PROT_EXEC, 0},       {"prctl", 0, WORD, PR_SET_PDEATHSIG},
    {"prctl", 0, WORD, PR_CAPBSET_READ}, /* libcap, of libnss */
    {"prlimit64", 0, WORD, 0},           /* its own limits */
    {"socket", 0, WORD, AF_UNIX},        {"socketpair", 0, WORD, AF_UNIX},
};

/* Add a rule, and return 0 if it has been added or the machine has no such
 * call. */
static int rule_add(scmp_filter_ctx f, uint32_t action, const char *call,
                    unsigned count, struct scmp_arg_cmp when)
{
    int number = seccomp_syscall_resolve_name(call);
    int err = number == __NR_SCMP_ERROR
                  ? 0
                  : seccomp_rule_add(f, action, number, count, when);

    return err == -EDOM || err == -EFAULT ? 0 : err;
}

static int rules_allow(scmp_filter_ctx f, const char *const *calls)
{
    int err = 0;

    for (; !err && *calls; calls++)
        err = rule_add(f, SCMP_ACT_ALLOW, *calls, 0, (struct scmp_arg_cmp){0});
    return err;
}

/* Add the rules of calls whose arguments differ between machines. */
static int rules_of_machine(scmp_filter_ctx f, uint32_t machine)
{
    bool s390 = machine == SCMP_ARCH_S390X || machine == SCMP_ARCH_S390;
    int err = rule_add(f, SCMP_ACT_ALLOW, "clone", 1,
                       SCMP_CMP(s390, SCMP_CMP_MASKED_EQ, NAMESPACES, 0));

    if (err || machine == SCMP_ARCH_X86)
        return err; /* C libraries use mmap2 there, and no mmap */
    /* The arguments of this mmap are in memory, where no filter sees them. */
    if (s390)
        return rule_add(f, SCMP_ACT_ALLOW, "mmap", 0, (struct scmp_arg_cmp){0});
    err = rule_add(f, SCMP_ACT_ALLOW, "mmap", 1,
                   SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    return err ? err
               : rule_add(f, SCMP_ACT_ALLOW, "mmap", 1,
                          SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_WRITE, 0));
}

/* Make unlisted calls that are newer than the lists fail with ENOSYS. */
static int rules_newer(scmp_filter_ctx f)
{
    int first = seccomp_syscall_resolve_name(NEWER), err = 0;

    for (int i = 0; !err && i < NEWER_MANY; i++) {
        err = seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS), first + i, 0);
        if (err == -EEXIST || err == -EFAULT)
            err = 0; /* listed; or unknown for another machine */
    }
    return err;
}

/* Add the rules of all lists, of the machine, and of newer calls. */
static int rules_list(scmp_filter_ctx f, uint32_t machine, bool write)
{
    int err = rules_allow(f, always);

    for (size_t i = 0; !err && i < sizeof some / sizeof *some; i++)
        err = rule_add(f, SCMP_ACT_ALLOW, some[i].call, 1,
                       SCMP_CMP(some[i].argument, SCMP_CMP_MASKED_EQ,
                                some[i].mask, some[i].value));
    err = err ? err : rules_of_machine(f, machine);
    err = err || !write ? err : rules_allow(f, to_write);
    return err ? err : rules_newer(f);
}

/* Add the rules against socketcall(2), whose other arguments no filter sees.
 * libseccomp allows it with every call that it stands for, so that these rules
 * need a filter of their own. */
static int rules_no_socketcall(scmp_filter_ctx f)
{
    int err = rule_add(f, SCMP_ACT_ERRNO(EPERM), "socketcall", 1,
                       SCMP_A0(SCMP_CMP_EQ, SYS_SOCKET));

    return err ? err
               : rule_add(f, SCMP_ACT_ERRNO(EPERM), "socketcall", 1,
                          SCMP_A0(SCMP_CMP_EQ, SYS_SOCKETPAIR));
}

/* Make one of the two filters for a machine. The caller releases it. */
static int filter_make(scmp_filter_ctx *out, uint32_t machine, bool sockets,
                       bool write)
{
    scmp_filter_ctx f =
        seccomp_init(sockets ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(EPERM));
    int err = f ? 0 : -ENOMEM;

    if (!err && machine != seccomp_arch_native()) {
        err = seccomp_arch_remove(f, SCMP_ARCH_NATIVE);
        err = err ? err : seccomp_arch_add(f, machine);
    }
    if (!err)
        err = sockets ? rules_no_socketcall(f) : rules_list(f, machine, write);
    if (err) {
        seccomp_release(f);
        return err;
    }
    /* Kernels older than 4.14 have neither: they log no refused call, and kill
     * the thread instead of the process. */
    (void)seccomp_attr_set(f, SCMP_FLTATR_CTL_LOG, 1);
    (void)seccomp_attr_set(f, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    (void)seccomp_attr_set(f, SCMP_FLTATR_API_SYSRAWRC, 1);
    *out = f;
    return 0;
}

static int filter_install(bool sockets, bool write)
{
    scmp_filter_ctx f = NULL;
    int err = filter_make(&f, seccomp_arch_native(), sockets, write);

    err = err ? err : seccomp_load(f);
    seccomp_release(f);
    return err;
}

void confine(bool write)
{
    bool sanitized = false;
    int err = 0;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    sanitized = true; /* a sanitizer makes calls of its own */
#endif
    if (sanitized)
        return;
    /* The second filter allows no further one. */
    if (seccomp_syscall_resolve_name("socketcall") >= 0)
        err = filter_install(true, write);
    err = err ? err : filter_install(false, write);
    if (err)
        log_warn("web_unconfined", F_STR("error", errno_text(-err)),
                 F_STR("next", "mqctl serve runs without a filter of system "
                               "calls; see docs/web.md"));
}

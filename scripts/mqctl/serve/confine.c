/* confine.c - see confine.h
 *
 * The list has the calls that were seen of the server, its children and mqdlq,
 * and what other versions of the C library and of SQLite may call instead. A
 * later C library tries new calls first. ENOSYS makes it fall back to the calls
 * in the list.
 */
#include "scripts/mqctl/serve/confine.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__) && defined(__LP64__)
static const uint32_t machine = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__) && defined(__AARCH64EL__)
static const uint32_t machine = AUDIT_ARCH_AARCH64;
#elif defined(__riscv) && __riscv_xlen == 64
static const uint32_t machine = AUDIT_ARCH_RISCV64;
#else
#define NO_LIST
#endif

#ifndef NO_LIST
#define NEWER 435 /* calls from here on fail with ENOSYS, if not in the list */
#define NAMESPACES                                                 \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | \
     CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)

/* Calls that are always allowed. */
static const uint32_t always[] = {
#ifdef SYS_dup2
    /* calls that newer machines do not have */
    SYS_access, SYS_alarm, SYS_dup2, SYS_epoll_wait, SYS_fork, SYS_lstat,
    SYS_open, SYS_poll, SYS_readlink, SYS_stat, SYS_time, SYS_unlink,
#endif
    /* memory */
    SYS_brk, SYS_madvise, SYS_mlock, SYS_mremap, SYS_msync, SYS_munlock,
    SYS_munmap,
    /* files; SQLite makes a -shm and a -wal even to read */
    SYS_close, SYS_close_range, SYS_dup, SYS_dup3, SYS_faccessat, SYS_fallocate,
    SYS_fchmod, SYS_fchown, SYS_fcntl, SYS_fdatasync, SYS_flock, SYS_fstat,
    SYS_fstatfs, SYS_fsync, SYS_ftruncate, SYS_getcwd, SYS_getdents64,
    SYS_lseek, SYS_memfd_create, SYS_newfstatat, SYS_openat, SYS_pipe2,
    SYS_pread64, SYS_pwrite64, SYS_pwritev2, SYS_read, SYS_readlinkat,
    SYS_readv, SYS_statfs, SYS_statx, SYS_unlinkat, SYS_write, SYS_writev,
    /* queues; without a mounted queue file system, one is opened unmounted */
    SYS_fsconfig, SYS_fsmount, SYS_fsopen, SYS_mq_getsetattr, SYS_mq_open,
    /* connections */
    SYS_accept, SYS_accept4, SYS_connect, SYS_getpeername, SYS_getsockname,
    SYS_getsockopt, SYS_recvfrom, SYS_recvmsg, SYS_sendmsg, SYS_sendto,
    SYS_setsockopt, SYS_shutdown,
    /* waiting */
    SYS_clock_nanosleep, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait,
    SYS_eventfd2, SYS_futex, SYS_nanosleep, SYS_ppoll, SYS_pselect6,
    SYS_restart_syscall, SYS_sched_yield, SYS_setitimer, SYS_signalfd4,
    /* time and chance */
    SYS_clock_getres, SYS_clock_gettime, SYS_getrandom, SYS_gettimeofday,
    /* the process itself */
    SYS_getegid, SYS_geteuid, SYS_getgid, SYS_getpid, SYS_getppid,
    SYS_getrusage, SYS_gettid, SYS_getuid, SYS_sched_getaffinity, SYS_sysinfo,
    SYS_uname,
    /* processes and signals */
    SYS_exit, SYS_exit_group, SYS_kill, SYS_rseq, SYS_rt_sigaction,
    SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_set_robust_list,
    SYS_set_tid_address, SYS_sigaltstack, SYS_tgkill, SYS_tkill, SYS_wait4};

/* Calls that run mqdlq, and that mqdlq needs to send letters and to record
 * that. */
static const uint32_t to_write[] = {
#ifdef SYS_dup2
    SYS_arch_prctl, SYS_chmod,        SYS_link,
    SYS_mkdir,      SYS_rename,       SYS_rmdir,
#endif
#ifdef SYS_renameat
    SYS_renameat, /* rename(3) of ARM64 */
#endif
    SYS_execve,     SYS_fchmodat,     SYS_linkat,
    SYS_mkdirat,    SYS_mq_timedsend, SYS_renameat2};

/* Calls that are allowed if (argument & mask) == value, by any of their rows.
 * No mapping can be both written and executed, at once or later. A file can,
 * because libraries and mqdlq are loaded; who wrote it cannot be seen. */
static const struct with_argument {
    uint32_t nr, argument, mask, value;
} some[] = {
    {SYS_clone, 0, NAMESPACES, 0},
    {SYS_ioctl, 1, UINT32_MAX, TCGETS},
    {SYS_ioctl, 1, UINT32_MAX, TIOCGWINSZ},
    {SYS_ioctl, 1, UINT32_MAX, FIONREAD},
    {SYS_ioctl, 1, UINT32_MAX, FIONBIO},
    {SYS_mmap, 2, PROT_EXEC, 0},
    {SYS_mmap, 2, PROT_WRITE, 0},
    {SYS_mprotect, 2, PROT_EXEC, 0},
    {SYS_prctl, 0, UINT32_MAX, PR_SET_PDEATHSIG},
    {SYS_prctl, 0, UINT32_MAX, PR_CAPBSET_READ}, /* libcap, of libnss */
    {SYS_prlimit64, 0, UINT32_MAX, 0},           /* its own limits */
    {SYS_socket, 0, UINT32_MAX, AF_UNIX},
    {SYS_socketpair, 0, UINT32_MAX, AF_UNIX},
};

struct program {
    struct sock_filter at[BPF_MAXINSNS];
    unsigned short n;
};

/* Append an instruction. */
static void program_add(struct program *p, unsigned code, uint32_t k,
                        uint8_t if_true, uint8_t if_false)
{
    p->at[p->n++] =
        (struct sock_filter)BPF_JUMP((uint16_t)code, k, if_true, if_false);
}

/* Append a load of a field of struct seccomp_data. */
static void program_load(struct program *p, size_t offset)
{
    program_add(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void program_return(struct program *p, uint32_t with)
{
    program_add(p, BPF_RET | BPF_K, with, 0, 0);
}

/* Allow all calls of a list. */
static void program_allow(struct program *p, const uint32_t *calls,
                          size_t count)
{
    for (size_t i = 0; i < count; i++) {
        program_add(p, BPF_JMP | BPF_JEQ | BPF_K, calls[i], 0, 1);
        program_return(p, SECCOMP_RET_ALLOW);
    }
}

static void program_build(struct program *p, bool write)
{
    /* For a program of another architecture the numbers mean other calls. */
    program_load(p, offsetof(struct seccomp_data, arch));
    program_add(p, BPF_JMP | BPF_JEQ | BPF_K, machine, 1, 0);
    program_return(p, SECCOMP_RET_KILL_PROCESS);
    program_load(p, offsetof(struct seccomp_data, nr));
    program_allow(p, always, sizeof always / sizeof *always);
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        const struct with_argument *c = &some[i];

        program_add(p, BPF_JMP | BPF_JEQ | BPF_K, c->nr, 0, 5);
        /* The machines above have the low half of an argument first. */
        program_load(p,
                     offsetof(struct seccomp_data, args) + 8UL * c->argument);
        program_add(p, BPF_ALU | BPF_AND | BPF_K, c->mask, 0, 0);
        program_add(p, BPF_JMP | BPF_JEQ | BPF_K, c->value, 0, 1);
        program_return(p, SECCOMP_RET_ALLOW);
        program_load(p, offsetof(struct seccomp_data, nr));
    }
    if (write)
        program_allow(p, to_write, sizeof to_write / sizeof *to_write);
    program_add(p, BPF_JMP | BPF_JGE | BPF_K, NEWER, 0, 1);
    program_return(p, SECCOMP_RET_ERRNO | ENOSYS);
    program_return(p, SECCOMP_RET_ERRNO | EPERM);
}

#endif

int confine(bool write)
{
#if defined(NO_LIST)
    (void)write;
    return -ENOSYS;
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    (void)write, (void)program_build; /* a sanitizer makes calls of its own */
    return 0;
#else
    static struct program p;
    struct sock_fprog prog = {.filter = p.at};
    long done;

    program_build(&p, write);
    prog.len = p.n;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    done = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                   SECCOMP_FILTER_FLAG_LOG, &prog);
    /* A kernel before 4.14 cannot log refused calls and refuses the flag. */
    if (done < 0 && errno == EINVAL)
        done = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog);
    return done < 0 ? -errno : 0;
#endif
}

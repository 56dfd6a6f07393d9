/* intruder.c - try what a program that was taken over could do
 *
 * A library for LD_PRELOAD, not a handler. $MQW_INTRUDER names a file for lines
 * "WHEN CALL ERRNO". WHEN is "before" at the start of the program and "after"
 * when it has accepted its first connection; ERRNO is 0 if the call succeeded.
 * With $MQW_INTRUDER_OLD, seccomp(2) knows no flags, as before Linux 4.14.
 * Programs started by this one do not inherit any of this.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int told = -1;

static long program_run(void)
{
    const char *const argv[] = {"true", NULL};

    return syscall(SYS_execve, "/bin/true", argv, NULL);
}

static long trace(void)
{
    return syscall(SYS_ptrace, PTRACE_TRACEME, 0, NULL, NULL);
}

static long internet(void)
{
    return syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);
}

static long local_socket(void)
{
    return syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0);
}

static long written_code(void)
{
    return syscall(SYS_mmap, NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static long code_made_of_data(void)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return syscall(SYS_mprotect, page, 4096, PROT_READ | PROT_EXEC);
}

/* Map a file as a library is mapped. */
static long written_file(void)
{
    int fd = (int)syscall(SYS_memfd_create, "intruder", 0);

    if (fd < 0 || syscall(SYS_write, fd, "code", 4) < 0)
        return -1;
    return syscall(SYS_mmap, NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd,
                   0);
}

static long other_memory(void)
{
    return syscall(SYS_process_vm_readv, getpid(), NULL, 0, NULL, 0, 0);
}

static long namespaces(void)
{
    long pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, 0);

    if (pid == 0)
        _exit(0);
    return pid;
}

static long keystrokes(void)
{
    return syscall(SYS_ioctl, STDIN_FILENO, TIOCSTI, "x");
}

static long option(void)
{
    return syscall(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0);
}

static long queue_removed(void)
{
    return syscall(SYS_mq_unlink, "mqw-intruder-none");
}

static long message_sent(void)
{
    return syscall(SYS_mq_timedsend, -1, "", 0, 0, NULL);
}

static long newer_call(void)
{
    return syscall(SYS_clone3, NULL, 0);
}

static const struct attempt {
    const char *name;
    long (*make)(void);
} attempts[] = {
    {"program_run", program_run},
    {"trace", trace},
    {"internet", internet},
    {"local_socket", local_socket},
    {"written_code", written_code},
    {"code_made_of_data", code_made_of_data},
    {"written_file", written_file},
    {"other_memory", other_memory},
    {"namespaces", namespaces},
    {"keystrokes", keystrokes},
    {"option", option},
    {"queue_removed", queue_removed},
    {"message_sent", message_sent},
    {"newer_call", newer_call},
};

/* Try in a child, because success may replace the process. */
static int try(const struct attempt *a)
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0)
        _exit(a->make() < 0 ? errno : 0);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void try_all(const char *when)
{
    for (size_t i = 0; i < sizeof attempts / sizeof *attempts; i++)
        dprintf(told, "%s %s %d\n", when, attempts[i].name, try(&attempts[i]));
}

/* Install a filter that makes seccomp(2) with a flag fail with EINVAL. It reads
 * the low half of the argument, which little-endian machines have first. */
static void old_kernel(void)
{
    struct sock_filter at[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_seccomp, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                 offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog prog = {sizeof at / sizeof *at, at};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0)
        _exit(71);
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("MQW_INTRUDER");

    if (getenv("MQW_INTRUDER_OLD"))
        old_kernel();
    unsetenv("MQW_INTRUDER_OLD");
    if (path)
        told = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    unsetenv("MQW_INTRUDER");
    unsetenv("LD_PRELOAD");
    if (told >= 0)
        try_all("before");
}

int accept4(int fd, __SOCKADDR_ARG from, socklen_t *restrict size, int flags)
{
    int got = (int)syscall(SYS_accept4, fd, from.__sockaddr__, size, flags);

    if (got >= 0 && told >= 0) {
        try_all("after");
        close(told);
        told = -1;
    }
    return got;
}

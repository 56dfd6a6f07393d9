/* faults.c - make one call of a program fail
 *
 * A library for LD_PRELOAD, not a handler. $MQW_FAULT is CALL[@TEXT]:N:ERRNO or
 * CALL[@TEXT]:N:ERRNO:COUNT. Of the calls that main and its threads make, the
 * Nth and the next COUNT - 1 fail with ERRNO (COUNT is 1 by default; 0: all
 * from the Nth on). CALL is one of the groups below ("malloc" is the whole
 * family; "mq_received" is an mq_receive that fails after it has taken the
 * message). TEXT must occur in the path of the file, or in what strdup copies;
 * it has no colon. ERRNO is a number: with 0 the call does not fail but is a
 * second late, with -N it is N seconds late. A late call returns
 * as soon as the test has removed the file $MQW_FAULT_SEEN.
 *
 * $MQW_FAULT_SEEN names a file for two 64-bit numbers: how many such calls
 * there were, and how many of them failed. The file is mapped, so the numbers
 * survive any end of the program. With $MQW_FAULT_TRACE a failing call prints
 * its callers to stderr. Programs started by this one do not inherit any of
 * this.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/libc.h"

struct tally {
    _Atomic uint64_t seen, failed;
};

static struct {
    char call[32], text[64];
    uint64_t first, count;
    int err;
    bool trace;
    struct tally *tally;
    char seen[PATH_MAX]; /* the file of the tally; "": none */
} fault;
static struct tally own_tally;
static atomic_bool active; /* main has been called */
static _Thread_local bool inside;

/* Return the function that this library replaces. */
static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

/* Parse CALL[@TEXT]:N:ERRNO[:COUNT]. Anything else is a mistake of the test and
 * ends the program, so that it cannot pass for a run without faults. */
static void spec_read(const char *spec)
{
    unsigned long long first, count = 1;
    int n = sscanf(spec, "%31[^:@]@%63[^:]:%llu:%d:%llu", fault.call,
                   fault.text, &first, &fault.err, &count);
    if (n < 2) {
        fault.text[0] = '\0';
        n = 1 + sscanf(spec, "%31[^:@]:%llu:%d:%llu", fault.call, &first,
                       &fault.err, &count);
    }
    if (n < 4 || first == 0) {
        fprintf(stderr, "faults: \"%s\" is no CALL[@TEXT]:N:ERRNO[:COUNT]\n",
                spec);
        abort();
    }
    fault.first = first;
    fault.count = count;
}

/* Map the counters into a file that outlives the program. */
static void tally_map(const char *path)
{
    void *at = MAP_FAILED;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd >= 0 && ftruncate(fd, sizeof own_tally) == 0)
        at = mmap(NULL, sizeof own_tally, PROT_READ | PROT_WRITE, MAP_SHARED,
                  fd, 0);
    if (fd >= 0)
        close(fd);
    if (at == MAP_FAILED) {
        fprintf(stderr, "faults: %s: %s\n", path, strerror(errno));
        abort();
    }
    fault.tally = at;
}

/* Read the environment. */
__attribute__((constructor)) static void faults_begin(void)
{
    const char *spec = getenv("MQW_FAULT"), *seen = getenv("MQW_FAULT_SEEN");
    void *ignored[1];
    fault.tally = &own_tally;
    fault.trace = getenv("MQW_FAULT_TRACE") != NULL;
    if (fault.trace)
        backtrace(ignored, 1); /* load what backtrace needs before calls are
                                * counted */
    if (spec)
        spec_read(spec);
    if (seen) {
        tally_map(seen);
        snprintf(fault.seen, sizeof fault.seen, "%s", seen);
    }
    unsetenv("LD_PRELOAD");
    unsetenv("MQW_FAULT");
    unsetenv("MQW_FAULT_SEEN");
    unsetenv("MQW_FAULT_TRACE");
}

/* Stop counting: what follows, such as the counters of a coverage build, is not
 * part of the program. */
static void faults_end(void)
{
    atomic_store(&active, false);
}

static int (*real_main)(int, char **, char **);

static int main_begin(int argc, char **argv, char **envp)
{
    atexit(faults_end);
    atomic_store(&active, fault.call[0] != '\0');
    return real_main(argc, argv, envp);
}

/* Start counting at main. */
int __libc_start_main(int (*start)(int, char **, char **), int argc,
                      char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end);
int __libc_start_main(int (*start)(int, char **, char **), int argc,
                      char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end)
{
    int (*real)(int (*)(int, char **, char **), int, char **, void (*)(void),
                void (*)(void), void (*)(void), void *);
    *(void **)&real = next("__libc_start_main");
    real_main = start;
    return real(main_begin, argc, argv, init, fini, rtld_fini, stack_end);
}

/* Return true if the fault is for that file. */
static bool named(int fd, const char *path)
{
    char link[64], target[PATH_MAX];
    if (!fault.text[0])
        return true;
    if (path)
        return strstr(path, fault.text) != NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, target, sizeof target - 1);
    target[n > 0 ? n : 0] = '\0';
    return strstr(target, fault.text) != NULL;
}

/* Print the callers. */
static void trace(void)
{
    void *frames[32];
    int n = backtrace(frames, 32);
    backtrace_symbols_fd(frames, n, STDERR_FILENO);
}

/* Sleep for `seconds`, or until the test removes the file of the tally. */
static void late(int seconds)
{
    for (int i = 0; i < seconds * 100; i++) {
        if (fault.seen[0] && access(fault.seen, F_OK) < 0 && errno == ENOENT)
            return;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}

/* Count this call. Return true and set errno if it must fail. */
static bool fails(const char *call, int fd, const char *path)
{
    if (!atomic_load_explicit(&active, memory_order_relaxed) || inside ||
        strcmp(call, fault.call) != 0)
        return false;
    int kept = errno;
    inside = true;
    bool hit = false;
    if (named(fd, path)) {
        uint64_t n = atomic_fetch_add(&fault.tally->seen, 1) + 1;
        hit = n >= fault.first &&
              (fault.count == 0 || n - fault.first < fault.count);
    }
    if (hit) {
        atomic_fetch_add(&fault.tally->failed, 1);
        if (fault.trace)
            trace();
    }
    if (hit && fault.err <= 0)
        late(fault.err ? -fault.err : 1);
    inside = false;
    errno = hit && fault.err > 0 ? fault.err : kept;
    return hit && fault.err > 0;
}

/* Define one function: its group, its result in case of failure, its descriptor
 * (-1: none) and path (NULL: none), its parameters and arguments. */
#define FAULTY(type, name, group, fail, fd, path, params, args) \
    type name params                                            \
    {                                                           \
        static __typeof__(name) *real;                          \
        if (fails(group, fd, path))                             \
            return fail;                                        \
        if (!real)                                              \
            *(void **)&real = next(#name);                      \
        return real args;                                       \
    }
#define FAULTY_FD(name, group, params, args, fd) \
    FAULTY(int, name, group, -1, fd, NULL, params, args)
#define FAULTY_PATH(name, params, args, path) \
    FAULTY(int, name, #name, -1, -1, path, params, args)

FAULTY_FD(fsync, "fsync", (int fd), (fd), fd)
FAULTY_FD(fdatasync, "fsync", (int fd), (fd), fd)
FAULTY_FD(ftruncate, "ftruncate", (int fd, off_t size), (fd, size), fd)
FAULTY_FD(ftruncate64, "ftruncate", (int fd, off_t size), (fd, size), fd)
FAULTY_FD(pipe2, "pipe2", (int fds[2], int flags), (fds, flags), -1)
#if __GLIBC_PREREQ(2, 36) /* before 2.36, by number (see syscall below) */
FAULTY_FD(pidfd_open, "pidfd_open", (pid_t pid, unsigned flags), (pid, flags),
          -1)
#endif
FAULTY_FD(memfd_create, "memfd_create", (const char *name, unsigned flags),
          (name, flags), -1)
FAULTY_FD(eventfd, "eventfd", (unsigned n, int flags), (n, flags), -1)
FAULTY_FD(timerfd_create, "timerfd_create", (int clock, int flags),
          (clock, flags), -1)
FAULTY_FD(epoll_create1, "epoll_create1", (int flags), (flags), -1)
FAULTY_FD(epoll_ctl, "epoll_ctl",
          (int ep, int op, int fd, struct epoll_event *ev), (ep, op, fd, ev),
          fd)
FAULTY_FD(epoll_wait, "epoll_wait",
          (int ep, struct epoll_event *ev, int n, int ms), (ep, ev, n, ms), -1)
FAULTY_FD(inotify_init1, "inotify_init1", (int flags), (flags), -1)
FAULTY_FD(msync, "msync", (void *at, size_t size, int flags), (at, size, flags),
          -1)
FAULTY_FD(mq_getattr, "mq_getattr", (int fd, struct mq_attr *attr), (fd, attr),
          fd)
#if __GLIBC_PREREQ(2, 33)
FAULTY_FD(fstat, "fstat", (int fd, struct stat *st), (fd, st), fd)
FAULTY_PATH(lstat, (const char *path, struct stat *st), (path, st), path)
FAULTY_PATH(stat, (const char *path, struct stat *st), (path, st), path)
#else /* stat and the like are inlined and call these */
FAULTY_FD(__fxstat, "fstat", (int version, int fd, struct stat *st),
          (version, fd, st), fd)
FAULTY(int, __lxstat, "lstat", -1, -1, path,
       (int version, const char *path, struct stat *st), (version, path, st))
FAULTY(int, __xstat, "stat", -1, -1, path,
       (int version, const char *path, struct stat *st), (version, path, st))
#endif
FAULTY_FD(fstatfs, "fstatfs", (int fd, struct statfs *st), (fd, st), fd)
FAULTY_FD(flock, "flock", (int fd, int how), (fd, how), fd)
FAULTY_FD(fallocate, "fallocate", (int fd, int mode, off_t from, off_t size),
          (fd, mode, from, size), fd)
FAULTY_FD(signalfd, "signalfd", (int fd, const sigset_t *set, int flags),
          (fd, set, flags), -1)
FAULTY_FD(timerfd_settime, "timerfd_settime",
          (int fd, int flags, const struct itimerspec *at,
           struct itimerspec *old),
          (fd, flags, at, old), -1)
FAULTY_FD(socket, "socket", (int domain, int type, int protocol),
          (domain, type, protocol), -1)
FAULTY_FD(bind, "bind", (int fd, __CONST_SOCKADDR_ARG at, socklen_t size),
          (fd, at, size), -1)
FAULTY_FD(connect, "connect", (int fd, __CONST_SOCKADDR_ARG at, socklen_t size),
          (fd, at, size), -1)
FAULTY_FD(listen, "listen", (int fd, int backlog), (fd, backlog), -1)
FAULTY_FD(accept4, "accept4",
          (int fd, __SOCKADDR_ARG from, socklen_t *size, int flags),
          (fd, from, size, flags), -1)
FAULTY_FD(poll, "poll", (struct pollfd * fds, nfds_t n, int ms), (fds, n, ms),
          -1)
FAULTY_FD(waitid, "waitid",
          (idtype_t type, id_t id, siginfo_t *info, int options),
          (type, id, info, options), -1)
FAULTY_FD(getsockopt, "getsockopt",
          (int fd, int level, int name, void *value, socklen_t *size),
          (fd, level, name, value, size), -1)
FAULTY(ssize_t, send, "send", -1, -1, NULL,
       (int fd, const void *data, size_t size, int flags),
       (fd, data, size, flags))
FAULTY(ssize_t, recv, "recv", -1, -1, NULL,
       (int fd, void *data, size_t size, int flags), (fd, data, size, flags))
FAULTY(DIR *, opendir, "opendir", NULL, -1, path, (const char *path), (path))
FAULTY(ssize_t, readlink, "readlink", -1, -1, path,
       (const char *path, char *out, size_t size), (path, out, size))
FAULTY_FD(madvise, "madvise", (void *at, size_t size, int advice),
          (at, size, advice), -1)
FAULTY_FD(mlock, "mlock", (const void *at, size_t size), (at, size), -1)
FAULTY_FD(mq_send, "mq_send",
          (mqd_t queue, const char *body, size_t size, unsigned priority),
          (queue, body, size, priority), queue)
FAULTY_PATH(rename, (const char *from, const char *to), (from, to), to)
FAULTY_PATH(unlink, (const char *path), (path), path)
FAULTY_PATH(mkdir, (const char *path, mode_t mode), (path, mode), path)
FAULTY_PATH(link, (const char *from, const char *to), (from, to), to)
FAULTY_PATH(mkostemp, (char *path, int flags), (path, flags), path)
FAULTY_PATH(inotify_add_watch, (int fd, const char *path, uint32_t events),
            (fd, path, events), path)
FAULTY(ssize_t, getrandom, "getrandom", -1, -1, NULL,
       (void *at, size_t size, unsigned flags), (at, size, flags))
FAULTY(int, posix_fallocate, "posix_fallocate", errno, fd, NULL,
       (int fd, off_t from, off_t size), (fd, from, size))
FAULTY(ssize_t, pwrite, "pwrite", -1, fd, NULL,
       (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
FAULTY(ssize_t, pwrite64, "pwrite", -1, fd, NULL,
       (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
FAULTY(ssize_t, write, "write", -1, fd, NULL,
       (int fd, const void *data, size_t size), (fd, data, size))
FAULTY(ssize_t, pread, "pread", -1, fd, NULL,
       (int fd, void *data, size_t size, off_t at), (fd, data, size, at))
FAULTY(ssize_t, pread64, "pread", -1, fd, NULL,
       (int fd, void *data, size_t size, off_t at), (fd, data, size, at))
FAULTY(ssize_t, read, "read", -1, fd, NULL, (int fd, void *data, size_t size),
       (fd, data, size))
FAULTY(void *, mmap, "mmap", MAP_FAILED, fd, NULL,
       (void *at, size_t size, int prot, int flags, int fd, off_t from),
       (at, size, prot, flags, fd, from))
FAULTY(void *, mmap64, "mmap", MAP_FAILED, fd, NULL,
       (void *at, size_t size, int prot, int flags, int fd, off_t from),
       (at, size, prot, flags, fd, from))
#if __GLIBC_PREREQ(2, 34)
FAULTY(int, close_range, "close_range", -1, -1, NULL,
       (unsigned first, unsigned last, int flags), (first, last, flags))
#endif
FAULTY(int, pthread_create, "pthread_create", errno, -1, NULL,
       (pthread_t * thread, const pthread_attr_t *attr, void *(*start)(void *),
        void *arg),
       (thread, attr, start, arg))
FAULTY(char *, strdup, "strdup", NULL, -1, text, (const char *text), (text))
FAULTY(void *, malloc, "malloc", NULL, -1, NULL, (size_t size), (size))
FAULTY(void *, realloc, "malloc", NULL, -1, NULL, (void *old, size_t size),
       (old, size))

/* Pass on the three arguments that may follow. The worker gives one, for
 * CLONE_PIDFD; pthread_create(3) of glibc before 2.34 gives all three, under
 * the other name, which the thread sanitizer uses as well. */
__attribute__((leaf, nothrow, alias("clone"))) extern __typeof__(clone)
    clone_too __asm__("__clone");
int clone(int (*child)(void *), void *stack, int flags, void *arg, ...)
{
    static __typeof__(clone) *real;
    va_list more;
    if (!(flags & CLONE_THREAD) && fails("clone", -1, NULL))
        return -1;
    if (!real)
        *(void **)&real = next("__clone");
    va_start(more, arg);
    void *parent_tid = va_arg(more, void *);
    void *tls = va_arg(more, void *);
    void *child_tid = va_arg(more, void *);
    va_end(more);
    return real(child, stack, flags, arg, parent_tid, tls, child_tid);
}

/* Sanitizers call this in each thread and abort without memory for the
 * answer. */
int pthread_getattr_np(pthread_t thread, pthread_attr_t *attr)
{
    static int (*real)(pthread_t, pthread_attr_t *);
    bool was = inside;
    if (!real)
        *(void **)&real = next("pthread_getattr_np");
    inside = true;
    int rc = real(thread, attr);
    inside = was;
    return rc;
}

/* dlsym may call this before it can return an address. */
void *calloc(size_t n, size_t size)
{
    static _Alignas(16) char early[4096];
    static size_t used;
    static void *(*real)(size_t, size_t);
    static bool asking;
    if (fails("malloc", -1, NULL))
        return NULL;
    if (!real && asking) {
        void *at = early + used;
        used += (n * size + 15) & ~(size_t)15;
        return used <= sizeof early ? at : NULL;
    }
    if (!real) {
        asking = true;
        *(void **)&real = next("calloc");
    }
    return real(n, size);
}

FAULTY(void *, aligned_alloc, "malloc", NULL, -1, NULL,
       (size_t align, size_t size), (align, size))

typedef int open_call(const char *path, int flags, ...);
typedef int openat_call(int dir, const char *path, int flags, ...);

/* Define a function that opens a file; it has a mode only with O_CREAT. */
#define FAULTY_OPEN(name, call, params, args) \
    int name params                           \
    {                                         \
        static call *real;                    \
        va_list more;                         \
        va_start(more, flags);                \
        mode_t mode = 0;                      \
        if (flags & (O_CREAT | __O_TMPFILE))  \
            mode = va_arg(more, mode_t);      \
        va_end(more);                         \
        if (fails("open", -1, path))          \
            return -1;                        \
        if (!real)                            \
            *(void **)&real = next(#name);    \
        return real args;                     \
    }
FAULTY_OPEN(open, open_call, (const char *path, int flags, ...),
            (path, flags, mode))
FAULTY_OPEN(open64, open_call, (const char *path, int flags, ...),
            (path, flags, mode))
FAULTY_OPEN(openat, openat_call, (int dir, const char *path, int flags, ...),
            (dir, path, flags, mode))

/* Return the group of a system call made by number, or "". Messages are
 * received and handlers are reaped like that; common/base/libc.h has the
 * others. */
static const char *numbered(long number)
{
    switch (number) {
    case SYS_mq_timedreceive:
        return "mq_receive";
    case SYS_pidfd_open:
        return "pidfd_open";
    case SYS_waitid:
        return "waitid";
    case SYS_close_range:
        return "close_range";
    default:
        return "";
    }
}

long syscall(long number, ...)
{
    static long (*real)(long, ...);
    long arg[6];
    va_list args;
    va_start(args, number);
    for (size_t i = 0; i < 6; i++)
        arg[i] = va_arg(args, long);
    va_end(args);
    if (fails(numbered(number), -1, NULL))
        return -1;
    if (!real)
        *(void **)&real = next("syscall");
    long got = real(number, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
    if (number == SYS_mq_timedreceive && got >= 0 &&
        fails("mq_received", -1, NULL))
        return -1;
    return got;
}

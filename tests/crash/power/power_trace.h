/* power_trace.h - record what programs do to the files of a state directory
 *
 * WHAT   A file of records. Its first page has a lock for all processes that
 *        append, so the order of the records is the order of the changes.
 * WHO    The recorder (tests/harness/plugins/power_record.c), the program that
 *        makes the load, and the reader of the trace.
 * FAILS  Prints why on stderr and aborts: a trace with a gap proves nothing.
 *        To kill a recorded program, hold the lock (power_load.c): otherwise
 *        the SIGKILL could leave a partial record, or a call without its
 *        record.
 */
#ifndef TESTS_CRASH_POWER_TRACE_H
#define TESTS_CRASH_POWER_TRACE_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define POWER_PAGE 4096

enum power_kind {
    POWER_CREATE = 1, /* folder, name, file */
    POWER_MKDIR,      /* folder, name, new folder */
    POWER_LINK,       /* folder, name, file with another name */
    POWER_UNLINK,     /* folder, name */
    POWER_RENAME,     /* folder, name, file; other, name2: its old place */
    POWER_EXCHANGE,   /* the same; `at`: the file that moves there */
    POWER_WRITE,      /* file, at, data */
    POWER_SIZE,       /* file, at: its new size */
    POWER_SYNC,       /* file or folder */
    POWER_UNSYNC,     /* a sync that was ignored on purpose */
    POWER_PROMISE,    /* a commit has returned to its caller */
    POWER_WORLD,      /* data: what a program outside has seen */
};

struct power_record {
    uint32_t kind;
    uint16_t name, name2; /* sizes of the names, which follow */
    uint64_t folder, other, file, at;
    uint64_t size; /* size of the data, behind the names */
};

struct power_head {
    pthread_mutex_t mtx; /* shared by processes that may be killed, so robust */
    _Atomic uint64_t syncs;
    /* For a replay (power.c): the inode of the state directory, and the pid in
     * the names of the run. */
    uint64_t root;
    int64_t pid;
};
_Static_assert(sizeof(struct power_head) <= POWER_PAGE, "one page");

struct power_trace {
    struct power_head *head;
    int fd; /* O_APPEND */
};

/* Print the failed call and errno, and abort. */
static inline void power_trace_panic(const char *what)
{
    fprintf(stderr, "power: the trace: %s: %s\n", what, strerror(errno));
    abort();
}

/* Open a trace; `make`: create it. */
static inline void power_trace_open(struct power_trace *t, const char *path,
                                    int make)
{
    pthread_mutexattr_t attr;

    t->fd = open(path,
                 O_RDWR | O_APPEND | O_CLOEXEC | (make ? O_CREAT | O_EXCL : 0),
                 0600);
    if (t->fd < 0 || (make && ftruncate(t->fd, POWER_PAGE) < 0))
        power_trace_panic(path);
    t->head =
        mmap(NULL, POWER_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, t->fd, 0);
    if (t->head == MAP_FAILED)
        power_trace_panic("mmap");
    if (!make)
        return;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&t->head->mtx, &attr);
}

static inline void power_trace_lock(struct power_trace *t)
{
    errno = pthread_mutex_lock(&t->head->mtx);
    if (errno != 0) /* EOWNERDEAD: a process died in a recorded call */
        power_trace_panic("its lock");
}

static inline void power_trace_unlock(struct power_trace *t)
{
    pthread_mutex_unlock(&t->head->mtx);
}

/* Append a record; the caller holds the lock. The sizes in the record are set
 * here. */
static inline void power_trace_add(struct power_trace *t, struct power_record r,
                                   const char *name, const char *name2,
                                   const void *data, size_t size)
{
    struct iovec parts[4];
    ssize_t all;

    r.name = (uint16_t)strlen(name);
    r.name2 = (uint16_t)strlen(name2);
    r.size = size;
    parts[0] = (struct iovec){&r, sizeof r};
    parts[1] = (struct iovec){(void *)name, r.name};
    parts[2] = (struct iovec){(void *)name2, r.name2};
    parts[3] = (struct iovec){(void *)data, size};
    all = (ssize_t)(sizeof r + r.name + r.name2 + size);
    if (writev(t->fd, parts, 4) != all)
        power_trace_panic("writev");
}

#endif

/* power_trace.h - what programs do to the files of a state directory, in order
 *
 * WHAT   A file of records. Its first page has the lock of all who append, so
 *        the order of the records is the order in which things happened.
 * WHO    The recorder (tests/harness/plugins/power_record.c), the program that
 *        makes the load, and whoever reads it later.
 * FAILS  Says why on stderr and aborts: a trace with a gap proves nothing.
 *        Whoever kills a program that is recorded holds the lock meanwhile
 *        (power_load.c): a SIGKILL in the middle of a write leaves a part of a
 *        record, and one before it leaves none of a call that was made.
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
    POWER_MKDIR,      /* the same, a folder */
    POWER_LINK,       /* the same, a file that has a name already */
    POWER_UNLINK,     /* folder, name */
    POWER_RENAME,     /* folder, name, file; other, name2: where it was */
    POWER_EXCHANGE,   /* the same, and `at`: the file that goes there */
    POWER_WRITE,      /* file, at, data */
    POWER_SIZE,       /* file, at: its new size */
    POWER_SYNC,       /* file or folder */
    POWER_UNSYNC,     /* a sync that was left out on purpose */
    POWER_PROMISE,    /* a commit has returned to who asked for it */
    POWER_WORLD,      /* data: what somebody outside has seen */
};

struct power_record {
    uint32_t kind;
    uint16_t name, name2; /* bytes of the names that follow */
    uint64_t folder, other, file, at;
    uint64_t size; /* bytes of data, behind the names */
};

struct power_head {
    pthread_mutex_t mtx; /* of all processes; robust, as they are killed */
    _Atomic uint64_t syncs;
    /* what a replay needs (power.c): the state directory's file, and whose
     * names the run has */
    uint64_t root;
    int64_t pid;
};
_Static_assert(sizeof(struct power_head) <= POWER_PAGE, "one page");

struct power_trace {
    struct power_head *head;
    int fd; /* O_APPEND */
};

/* power_trace_panic - `what` names the call, errno says the rest */
static inline void power_trace_panic(const char *what)
{
    fprintf(stderr, "power: the trace: %s: %s\n", what, strerror(errno));
    abort();
}

/* power_trace_open - `make`: a new one */
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
    if (errno != 0) /* EOWNERDEAD: whoever had it died in a call */
        power_trace_panic("its lock");
}

static inline void power_trace_unlock(struct power_trace *t)
{
    pthread_mutex_unlock(&t->head->mtx);
}

/* power_trace_add - under the lock; the record's sizes are those of the rest */
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

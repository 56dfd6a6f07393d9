/* place.c - see place.h */
#include "tests/bench/place.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/mq/queue.h"

static struct place here;
const struct place *const place = &here;

/* Make a fresh queue. */
static int queue_make(uint64_t depth, uint64_t size, struct problem *p)
{
    struct queue_attr attr = {.depth = depth, .message_size = size};
    struct queue *q;
    int err;

    queue_unlink(here.queue);
    err = queue_open(&q, here.queue, QUEUE_RECEIVE | QUEUE_CREATE, &attr, NULL,
                     p);
    queue_close(&q);
    return err;
}

/* Write a text to a file in one write. */
static int file_put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int err = fd >= 0 && write(fd, text, strlen(text)) > 0 ? 0 : -errno;

    if (fd >= 0)
        close(fd);
    return err;
}

/* Enter an IPC namespace of our own, in which we set the limits. */
static int namespace_enter(void)
{
    char user[64], group[64], depth[16];
    int err;

    snprintf(user, sizeof user, "0 %d 1", (int)getuid());
    snprintf(group, sizeof group, "0 %d 1", (int)getgid());
    snprintf(depth, sizeof depth, "%d", DEEP);
    if (unshare(CLONE_NEWUSER | CLONE_NEWIPC) < 0)
        return -errno;
    err = file_put("/proc/self/uid_map", user);
    if (!err)
        err = file_put("/proc/self/setgroups", "deny");
    if (!err)
        err = file_put("/proc/self/gid_map", group);
    return err ? err : file_put("/proc/sys/fs/mqueue/msg_max", depth);
}

/* Find a namespace that allows deep queues. Without one, the rows that need it
 * fail and say so. */
static void room_find(void)
{
    struct problem p;
    int err = queue_make(DEEP, 64, &p);

    if (err == -EINVAL && (err = namespace_enter()) < 0)
        fprintf(stderr,
                "bench: no queue of %d messages here, and no namespace for "
                "one: %s; try sysctl fs.mqueue.msg_max=%d\n",
                DEEP, strerror(-err), DEEP);
    queue_unlink(here.queue);
}

/* Find the paths of this program, and of mqworker in ../../bin or $MQW_BIN. */
static int names_find(struct problem *p)
{
    const char *bin = getenv("MQW_BIN");
    ssize_t n = readlink("/proc/self/exe", here.self, sizeof here.self - 1);
    char dir[PATH_MAX], *slash;

    if (n < 0)
        return problem_set(p, EX_OSERR, errno, "/proc/self/exe: %s",
                           strerror(errno));
    strlcpy(dir, here.self, sizeof dir);
    slash = strrchr(dir, '/');
    if (slash)
        *slash = '\0';
    if (bin)
        snprintf(here.mqworker, sizeof here.mqworker, "%.4000s/mqworker", bin);
    else
        snprintf(here.mqworker, sizeof here.mqworker,
                 "%.4000s/../../bin/mqworker", dir);
    return 0;
}

int place_open(bool pin, struct problem *p)
{
    const char *tmp = getenv("TMPDIR");
    int err = names_find(p);

    if (err)
        return err;
    here.pin = pin;
    snprintf(here.queue, sizeof here.queue, "/mqw-bench-%d", (int)getpid());
    room_find();
    snprintf(here.dir, sizeof here.dir, "%.3000s/mqw-bench.XXXXXX",
             tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(here.dir)) {
        err = problem_set(p, EX_CANTCREAT, errno,
                          "%s: %s; set TMPDIR to a directory with room",
                          here.dir, strerror(errno));
        here.dir[0] = '\0';
        return err;
    }
    snprintf(here.state, sizeof here.state, "%.4000s/state", here.dir);
    snprintf(here.runtime, sizeof here.runtime, "/dev/shm%.48s",
             strrchr(here.dir, '/'));
    setenv("RUNTIME_DIRECTORY", here.runtime, 1);
    return 0;
}

static int entry_remove(const char *path, const struct stat *st, int type,
                        struct FTW *at)
{
    (void)st;
    (void)type;
    return at->level > 0 ? remove(path) : 0;
}

/* Remove what the last measurement left. */
static void leavings_remove(void)
{
    queue_unlink(here.queue);
    if (here.dir[0])
        nftw(here.dir, entry_remove, 8, FTW_DEPTH | FTW_PHYS);
    if (here.runtime[0])
        nftw(here.runtime, entry_remove, 8, FTW_DEPTH | FTW_PHYS);
}

int place_ready(const struct task *task, struct problem *p)
{
    leavings_remove();
    if (mkdir(here.state, 0700) < 0)
        return problem_set(p, EX_CANTCREAT, errno, "%s: %s", here.state,
                           strerror(errno));
    return task->depth ? queue_make((uint64_t)task->depth, task->size, p) : 0;
}

void place_join(const char *queue)
{
    strlcpy(here.queue, queue, sizeof here.queue);
}

void place_close(void)
{
    leavings_remove();
    if (here.dir[0])
        rmdir(here.dir);
    if (here.runtime[0])
        rmdir(here.runtime);
}

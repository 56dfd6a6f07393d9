/* queues.c - the test's own access to its queues */
#include "tests/harness/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SEND_LIMIT_S = 60 };

/* Open a queue that exists, or fail the test. */
static mqd_t queue_use(const char *name, int flags)
{
    mqd_t q = mq_open(name, flags | O_CLOEXEC);
    if (q == (mqd_t)-1)
        harness_fail("%s: %s", name, strerror(errno));
    return q;
}

const char *harness_queue(long depth, long message_size)
{
    const char *name = harness_queue_name();
    struct mq_attr attr = {.mq_maxmsg = depth ? depth : 10,
                           .mq_msgsize = message_size ? message_size : 256};
    mqd_t q = mq_open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600, &attr);
    if (q == (mqd_t)-1)
        harness_fail("%s: %s%s", name, strerror(errno),
                     errno == EMFILE ? " (RLIMIT_MSGQUEUE of this user)" : "");
    mq_close(q);
    return name;
}

/* Send with a time limit; return 0 or errno. */
static int queue_put(const char *queue, const void *data, size_t size,
                     unsigned priority, int limit_s)
{
    struct timespec until;
    mqd_t q = queue_use(queue, O_WRONLY);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += limit_s;
    int rc = mq_timedsend(q, data, size, priority, &until);
    int err = rc < 0 ? errno : 0;
    mq_close(q);
    return err;
}

void harness_send(const char *queue, const void *data, size_t size,
                  unsigned priority)
{
    int err = queue_put(queue, data, size, priority, SEND_LIMIT_S);
    if (err)
        harness_fail("%s: send: %s", queue, strerror(err));
}

void harness_send_text(const char *queue, const char *text)
{
    harness_send(queue, text, strlen(text), 0);
}

bool harness_try_send(const char *queue, const void *data, size_t size,
                      unsigned priority)
{
    int err = queue_put(queue, data, size, priority, -1);
    if (err && err != ETIMEDOUT)
        harness_fail("%s: send: %s", queue, strerror(err));
    return err == 0;
}

ssize_t harness_receive(const char *queue, void *buf, size_t room,
                        unsigned *priority)
{
    struct mq_attr attr;
    mqd_t q = queue_use(queue, O_RDONLY | O_NONBLOCK);
    mq_getattr(q, &attr);
    char *message = malloc((size_t)attr.mq_msgsize);
    if (!message)
        harness_fail("out of memory");
    ssize_t size = mq_receive(q, message, (size_t)attr.mq_msgsize, priority);
    int err = errno;
    mq_close(q);
    if (size >= 0 && (size_t)size <= room)
        memcpy(buf, message, (size_t)size);
    free(message);
    if (size < 0 && err != EAGAIN)
        harness_fail("%s: receive: %s", queue, strerror(err));
    if (size > (ssize_t)room)
        harness_fail("%s: a message of %zd bytes", queue, size);
    return size;
}

long harness_queue_length(const char *queue)
{
    struct mq_attr attr;
    mqd_t q = mq_open(queue, O_RDONLY | O_CLOEXEC);
    if (q == (mqd_t)-1)
        return -1;
    mq_getattr(q, &attr);
    mq_close(q);
    return attr.mq_curmsgs;
}

/* tail.c - what a child writes to stderr (see tail.h) */
#include "worker/process/tail.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "worker/process/stderr_limit.h"

#define PIECE       4096
#define DRAIN_BYTES (128u << 10) /* twice what a pipe holds */

void tail_init(struct tail *t, const char *id, struct stderr_limit *limit)
{
    t->id = id;
    t->pid = 0;
    t->limit = limit;
    t->line_size = t->kept_size = t->kept_at = 0;
}

void tail_init_child(struct tail *t, pid_t pid, struct stderr_limit *limit)
{
    tail_init(t, NULL, limit);
    t->pid = pid;
}

void tail_forget(struct tail *t)
{
    t->kept_size = t->kept_at = 0;
}

/* line_out - one line to the log, if the limit has room for it */
static void line_out(struct tail *t)
{
    size_t size = t->line_size;

    t->line_size = 0;
    if (!log_enabled(LOG_INFO) || (t->limit && !stderr_limit_take(t->limit)))
        return;
    if (t->pid)
        log_info("handler_stderr", F_STR("msg", t->id), F_INT("pid", t->pid),
                 F_BYTES("line", t->line, size));
    else
        log_info("handler_stderr", F_STR("msg", t->id),
                 F_BYTES("line", t->line, size));
}

/* keep - the last OUTCOME_TAIL bytes, in a ring */
static void keep(struct tail *t, const char *data, size_t size)
{
    if (size > sizeof t->kept) {
        data += size - sizeof t->kept;
        size = sizeof t->kept;
    }
    while (size > 0) {
        size_t room = sizeof t->kept - t->kept_at;
        size_t n = size < room ? size : room;

        memcpy(t->kept + t->kept_at, data, n);
        t->kept_at = (t->kept_at + n) % sizeof t->kept;
        t->kept_size = t->kept_size + n < sizeof t->kept ? t->kept_size + n
                                                         : sizeof t->kept;
        data += n;
        size -= n;
    }
}

/* tail_add - bytes came */
void tail_add(struct tail *t, const char *data, size_t size)
{
    keep(t, data, size);
    while (size > 0) {
        const char *end = memchr(data, '\n', size);
        size_t n = end ? (size_t)(end - data) : size, room;

        if (t->line_size == sizeof t->line && n > 0)
            line_out(t);
        room = sizeof t->line - t->line_size;
        if (n > room)
            n = room;
        memcpy(t->line + t->line_size, data, n);
        t->line_size += n;
        data += n;
        size -= n;
        if (size > 0 && *data == '\n') {
            data++;
            size--;
            line_out(t);
        }
    }
}

/* read_piece - bytes that came, 0: none now, -1: the end of the stream */
static ssize_t read_piece(struct tail *t, int fd)
{
    char buf[PIECE];
    ssize_t n = read(fd, buf, sizeof buf);

    if (n > 0)
        tail_add(t, buf, (size_t)n);
    else
        n = n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
    return n;
}

bool tail_read(struct tail *t, int fd)
{
    return read_piece(t, fd) >= 0;
}

void tail_drain(struct tail *t, int fd)
{
    size_t total = 0;
    ssize_t n = 1;

    while (n > 0 && total < DRAIN_BYTES) {
        n = read_piece(t, fd);
        total += n > 0 ? (size_t)n : 0;
    }
}

/* tail_copy - the ring, from its oldest byte */
void tail_copy(const struct tail *t, struct outcome *out)
{
    size_t first = t->kept_size < sizeof t->kept ? 0 : t->kept_at;
    size_t n = t->kept_size - first;

    memcpy(out->tail, t->kept + first, n);
    memcpy(out->tail + n, t->kept, first);
    out->tail_size = t->kept_size;
}

void tail_finish(struct tail *t)
{
    if (t->line_size > 0)
        line_out(t);
}

/* tail_end - no more will come */
void tail_end(struct tail *t, struct outcome *out)
{
    tail_finish(t);
    tail_copy(t, out);
}

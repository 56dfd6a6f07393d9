/* stderr_tail.c - what a child writes to stderr (see stderr_tail.h) */
#include "worker/process/stderr_tail.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/log.h"

/* ---- how much is logged ---- */

#define BURST_NS (10 * NS_PER_S) /* a burst: the lines of this much time */
#define TELL_NS  NS_PER_S        /* from the first dropped line to the report */

/* Log how many lines were dropped since the last report. */
static void dropped_log(struct timer *timer)
{
    struct stderr_limit *l = CONTAINER_OF(timer, struct stderr_limit, timer);
    uint64_t lines = atomic_exchange(&l->dropped, 0);

    if (lines)
        log_warn("handler_stderr_dropped", F_STR("queue", l->set->queue),
                 F_UINT("lines", lines), F_UINT("rate", l->set->stderr_rate),
                 F_STR("next", "a dead letter still gets the last 4 KiB; to "
                               "log more lines a second, raise --stderr-rate, "
                               "or set it to 0 to log all"));
}

void stderr_limit_init(struct stderr_limit *l, const struct settings *set,
                       struct timers *timers)
{
    *l = (struct stderr_limit){.set = set, .timers = timers};
    timer_init(&l->timer, dropped_log);
}

/* The token bucket is stored as the time when it will be full again (GCRA,
 * ITU-T I.371). Each line moves that time forward by 1 s / rate, and may be
 * logged if the time is then at most BURST_NS ahead. */
bool stderr_limit_take(struct stderr_limit *l)
{
    uint64_t rate = l->set->stderr_rate, now, was, next;

    if (rate == 0)
        return true;
    now = clock_mono_ns();
    was = atomic_load_explicit(&l->next_ns, memory_order_relaxed);
    do {
        next = (was > now ? was : now) + NS_PER_S / rate;
        if (next > now + BURST_NS) {
            /* The first line dropped since the last report starts the timer of
             * the next one. */
            if (atomic_fetch_add(&l->dropped, 1) == 0)
                timers_start_after(l->timers, &l->timer, TELL_NS);
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(
        &l->next_ns, &was, next, memory_order_relaxed, memory_order_relaxed));
    return true;
}

void stderr_limit_fini(struct stderr_limit *l)
{
    if (l->timers)
        timers_cancel_sync(l->timers, &l->timer);
    dropped_log(&l->timer);
}

/* ---- what one child writes ---- */

#define PIECE       4096
#define DRAIN_BYTES (128u << 10) /* twice what a pipe holds */

/* Guards the kept end and the writer of every tail. Held for the copy of at
 * most 4 KiB. */
static pthread_mutex_t kept_mtx = PTHREAD_MUTEX_INITIALIZER;

static void kept_clear(struct stderr_tail *t)
{
    pthread_mutex_lock(&kept_mtx);
    t->kept_size = t->kept_at = 0;
    t->writer[0] = '\0';
    pthread_mutex_unlock(&kept_mtx);
}

void stderr_tail_init(struct stderr_tail *t, const char *id, pid_t pid,
                      struct stderr_limit *limit)
{
    t->id = id;
    t->pid = pid;
    t->limit = limit;
    t->line_size = 0;
    kept_clear(t);
}

void stderr_tail_forget(struct stderr_tail *t)
{
    if (t->kept_size)
        kept_clear(t);
}

/* Log one line, if the limit allows it. */
static void line_out(struct stderr_tail *t)
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

void stderr_tail_add(struct stderr_tail *t, const char *data, size_t size)
{
    size_t skip = size > sizeof t->kept ? size - sizeof t->kept : 0, n, room;

    /* Keep the last OUTCOME_TAIL bytes in a ring. */
    pthread_mutex_lock(&kept_mtx);
    strlcpy(t->writer, t->id ? t->id : "", sizeof t->writer);
    for (size_t at = skip; at < size; at += n) {
        room = sizeof t->kept - t->kept_at;
        n = size - at < room ? size - at : room;
        memcpy(t->kept + t->kept_at, data + at, n);
        t->kept_at = (t->kept_at + n) % sizeof t->kept;
        t->kept_size = t->kept_size + n < sizeof t->kept ? t->kept_size + n
                                                         : sizeof t->kept;
    }
    pthread_mutex_unlock(&kept_mtx);
    while (size > 0) {
        const char *end = memchr(data, '\n', size);

        n = end ? (size_t)(end - data) : size;
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

/* Read once, and add what came. Returns its size; 0: nothing is there now; -1:
 * the stream has ended. */
static ssize_t read_piece(struct stderr_tail *t, int fd)
{
    char buf[PIECE];
    ssize_t n = read(fd, buf, sizeof buf);

    if (n > 0)
        stderr_tail_add(t, buf, (size_t)n);
    else
        n = n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
    return n;
}

bool stderr_tail_read(struct stderr_tail *t, int fd)
{
    return read_piece(t, fd) >= 0;
}

void stderr_tail_drain(struct stderr_tail *t, int fd)
{
    size_t total = 0;
    ssize_t n = 1;

    while (n > 0 && total < DRAIN_BYTES) {
        n = read_piece(t, fd);
        total += n > 0 ? (size_t)n : 0;
    }
}

/* Copy the kept end, from its oldest byte. Returns its size. */
static size_t kept_copy(const struct stderr_tail *t, char out[OUTCOME_TAIL])
{
    size_t first = t->kept_size < sizeof t->kept ? 0 : t->kept_at;
    size_t n = t->kept_size - first;

    memcpy(out, t->kept + first, n);
    memcpy(out + n, t->kept, first);
    return t->kept_size;
}

bool stderr_tail_last(const struct stderr_tail *t, const char *id,
                      char text[ERROR_TEXT])
{
    char kept[OUTCOME_TAIL];
    size_t size = 0;

    pthread_mutex_lock(&kept_mtx);
    if (strcmp(t->writer, id) == 0)
        size = kept_copy(t, kept);
    pthread_mutex_unlock(&kept_mtx);
    return size && *error_text(text, NULL, false, kept, size);
}

void stderr_tail_copy(const struct stderr_tail *t, struct outcome *out)
{
    out->tail_size = kept_copy(t, out->tail);
}

void stderr_tail_finish(struct stderr_tail *t)
{
    if (t->line_size > 0)
        line_out(t);
}

void stderr_tail_end(struct stderr_tail *t, struct outcome *out)
{
    stderr_tail_finish(t);
    stderr_tail_copy(t, out);
}

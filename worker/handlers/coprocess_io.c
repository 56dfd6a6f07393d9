/* coprocess_io.c - the pipes of a coprocess's child, and waiting for them
 *
 * One epoll set has all that a coprocess waits for. Room in the child's input
 * is waited for only while there is something that the pipe had no room for;
 * reading goes on meanwhile, so that a child which answers before it has read
 * everything is no deadlock. That nobody can read its input any more is told at
 * all times, without being asked for. With one message at a time, that is a
 * write, a wait and a read.
 */
#include "worker/handlers/coprocess_inner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/log.h"

#define EVENTS 8

/* ---- output ---- */

/* shuts - it closed one of its ends */
static void shuts(struct coprocess *l, const char *what)
{
    if (!l->shut[0])
        strlcpy(l->shut, what, sizeof l->shut);
    coprocess_step(l, COPROCESS_SHUTS);
}

/* input_shut - nobody can read it; it would be told again and again */
static void input_shut(struct coprocess *l)
{
    coprocess_unwatch(l, l->child.in);
    child_close(&l->child.in);
    shuts(l, "closed its input");
}

/* flush - what there is, as far as the pipe has room */
static void flush(struct coprocess *l)
{
    struct coprocess_output *o = &l->output;
    ssize_t n;

    if (o->begin == o->end || !coprocess_feeds(l))
        return;
    n = write(l->child.in, o->bytes + o->begin, o->end - o->begin);
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        input_shut(l);
        return;
    }
    if (n > 0) {
        o->begin += (size_t)n;
        o->written += (uint64_t)n;
    }
    if (o->begin == o->end)
        o->begin = o->end = 0;
    coprocess_watch_input(l, o->end > 0);
}

/* ---- input ---- */

bool coprocess_read(struct coprocess *l)
{
    struct coprocess_input *in = &l->input;
    ssize_t n;

    if (l->child.out < 0)
        return false;
    if (in->begin == in->end || (l->count == 0 && !coprocess_feeds(l)))
        in->begin = in->end = 0; /* nobody asks one that is on its way out */
    if (in->end == sizeof in->bytes) {
        memmove(in->bytes, in->bytes + in->begin, in->end - in->begin);
        in->end -= in->begin;
        in->begin = 0;
    }
    n = read(l->child.out, in->bytes + in->end, sizeof in->bytes - in->end);
    if (n > 0) {
        in->end += (size_t)n;
        return true;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    coprocess_unwatch(l, l->child.out);
    child_close(&l->child.out);
    shuts(l, "closed its output");
    return false;
}

bool coprocess_line(struct coprocess *l, struct header_text *line)
{
    struct coprocess_input *in = &l->input;
    size_t size = in->end - in->begin;
    const char *at = in->bytes + in->begin, *end;

    if (size == 0)
        return false;
    end = memchr(at, '\n', size);
    *line = (struct header_text){at, end ? (size_t)(end - at) : size};
    if (line->size >= STREAM_ANSWER) {
        coprocess_fault(l, "wrote an over-long line", line);
        return false;
    }
    if (end)
        in->begin += line->size + 1;
    return end != NULL;
}

/* ---- waiting ---- */

/* limits_count - whether a time limit ends the child now; one that is ended for
 * another reason, or by the worker's stop, is not late any more */
static bool limits_count(const struct coprocess *l)
{
    return l->limited > 0 && coprocess_works(l) && !coprocess_stops(l);
}

/* until - when to look again without an event */
static uint64_t until(const struct coprocess *l)
{
    uint64_t first = l->until_ns;
    struct open_message *m;

    if (!limits_count(l))
        return first;
    TAILQ_FOREACH (m, &l->open, link)
        if (m->deadline_ns < first)
            first = m->deadline_ns;
    return first;
}

/* expire - those whose limit had passed when all that was there had been
 * read */
static void expire(struct coprocess *l)
{
    struct open_message *m;

    if (!limits_count(l))
        return;
    TAILQ_FOREACH (m, &l->open, link) {
        if (m->deadline_ns > l->seen_ns)
            continue;
        m->late = true;
        log_info("handler_timeout", F_STR("msg", delivery_id(m->d)),
                 F_INT("pid", l->child.pid), F_DURATION("limit", m->limit_ns),
                 F_DURATION("kill_after", l->stream->set->kill_after_ns));
        l->why = "timeout";
        strlcpy(l->cause, "ended for another message's timeout",
                sizeof l->cause);
    }
    if (l->cause[0])
        coprocess_step(l, COPROCESS_END);
}

/* due - the time of the state is over */
static void due(struct coprocess *l)
{
    if (l->state == COPROCESS_CLOSED)
        coprocess_fault(l, l->shut, NULL);
    else
        coprocess_step(l, COPROCESS_DUE);
}

/* on_event - by what it is of */
static void on_event(struct coprocess *l, const struct epoll_event *ev)
{
    uint64_t ignored;

    switch (ev->data.u32) {
    case COPROCESS_OF_OUT:
        (void)coprocess_read(l);
        break;
    case COPROCESS_OF_ERR:
        if (l->child.err >= 0 &&
            !stderr_tail_read(coprocess_tail(l), l->child.err)) {
            coprocess_unwatch(l, l->child.err);
            child_close(&l->child.err);
        }
        break;
    case COPROCESS_OF_IN:
        if (ev->events & (EPOLLERR | EPOLLHUP))
            input_shut(l);
        else
            flush(l);
        break;
    case COPROCESS_OF_END:
        if (coprocess_lives(l))
            coprocess_step(l, COPROCESS_EXIT);
        break;
    default:
        (void)!read(l->waker, &ignored, sizeof ignored);
        l->woken = l->ordered = true;
    }
}

/* coprocess_poll_once - an answer that was there before the look at the clock
 * has been read when its message's limit is looked at the next time: what is in
 * the pipe in time is in time */
void coprocess_poll_once(struct coprocess *l, bool wait)
{
    struct epoll_event events[EVENTS];
    uint64_t next, now = 0;
    int n;

    if (l->ordered)
        coprocess_cancels(l);
    expire(l);
    flush(l);
    next = until(l);
    n = epoll_wait(l->epoll, events, EVENTS, wait ? clock_ms_until(next) : 0);
    if (next != UINT64_MAX)
        now = clock_mono_ns();
    for (int i = 0; i < n; i++)
        on_event(l, &events[i]);
    if (l->input.end < sizeof l->input.bytes)
        l->seen_ns = now; /* else there is more */
    if (coprocess_stops(l) && coprocess_lives(l)) {
        l->why = "stopping";
        coprocess_step(l, COPROCESS_END);
    }
    if (l->until_ns <= now)
        due(l);
}

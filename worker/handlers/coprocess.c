/* coprocess.c - a long-lived child and the messages that it has open (see
 * coprocess.h)
 *
 * One epoll set has every descriptor of a coprocess. The thread waits for room
 * in the child's input only while the pipe is full, and keeps reading the
 * child's output in the meantime, so that a child which answers before it has
 * read everything does not deadlock. epoll reports a closed input even if no
 * event was requested. With one message at a time, a delivery is a write, a
 * wait and a read.
 *
 * coprocess_next returns each sent message exactly once: answered, or lost with
 * its child. A lost message is returned only after the child and all processes
 * that it started are gone, so that nothing can disturb the next attempt. A
 * message of which no byte reached the child is returned immediately, as if it
 * had never been sent.
 *
 * If the worker is killed at any point, the slot of a sent message reads
 * RUNNING and names the child, because that is written before the first byte
 * goes into the pipe. So the next worker kills the child before it runs the
 * message again.
 *
 * To cancel an open message, its child is terminated, as at a time limit.
 * Cancel orders are applied after all answers that were read, so a message that
 * was answered in time is not cancelled. If the worker is killed before the
 * verdict is durable, the message runs again; its cancellation has not been
 * reported to anybody.
 */
#include "worker/handlers/coprocess.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "worker/process/leftovers.h"
#include "worker/rules/verdict.h"

#define RSS_PAUSE     (100 * NS_PER_MS) /* between two checks of memory */
#define BACKOFF_FIRST (100 * NS_PER_MS)
#define BACKOFF_MOST  (10 * NS_PER_S)
#define QUOTED        256 /* bytes of a line that the log shows */
#define EVENTS        8

/* The descriptor that an event of the epoll set belongs to. */
enum {
    COPROCESS_OF_OUT,
    COPROCESS_OF_ERR,
    COPROCESS_OF_IN,
    COPROCESS_OF_END,
    COPROCESS_OF_WAKER
};

/* ---- descriptors and output ---- */

static int epoll_change(struct coprocess *l, int op, int fd, uint32_t of,
                        uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.u32 = of};

    return epoll_ctl(l->epoll, op, fd, &ev) < 0 ? -errno : 0;
}

/* Closing the descriptor does not remove it from the epoll set: a process that
 * is being started on another thread has copies of all descriptors until its
 * exec, and while it has one, the set keeps reporting the entry, as if it were
 * the next child's. */
void coprocess_drop_fd(struct coprocess *l, int *fd)
{
    if (*fd >= 0)
        (void)epoll_ctl(l->epoll, EPOLL_CTL_DEL, *fd, NULL);
    fd_close(fd);
}

static void coprocess_drop_fds(struct coprocess *l)
{
    coprocess_drop_fd(l, &l->child.in);
    coprocess_drop_fd(l, &l->child.out);
    coprocess_drop_fd(l, &l->child.err);
    coprocess_drop_fd(l, &l->child.end);
}

/* Watch for room in the pipe, or stop watching. The call should not fail,
 * because the descriptor is in the set. If it does, pending bytes are written
 * at the next event. */
static void coprocess_watch_input(struct coprocess *l, bool on)
{
    if (l->output.watched == on)
        return;
    l->output.watched = on;
    if (l->child.in >= 0)
        (void)epoll_change(l, EPOLL_CTL_MOD, l->child.in, COPROCESS_OF_IN,
                           on ? EPOLLOUT : 0);
}

/* Make room for `bytes` more bytes at the end of the output. */
static int output_reserve(struct coprocess_output *o, size_t bytes)
{
    size_t used = o->end - o->begin, room = o->room ? o->room : 1024;
    char *grown;

    if (bytes <= o->room - o->end)
        return 0;
    if (o->begin) {
        memmove(o->bytes, o->bytes + o->begin, used);
        o->begin = 0;
        o->end = used;
    }
    while (room - used < bytes)
        room *= 2;
    if (room == o->room)
        return 0;
    grown = realloc(o->bytes, room);
    if (!grown)
        return -ENOMEM;
    o->bytes = grown;
    o->room = room;
    return 0;
}

void coprocess_unfeed(struct coprocess *l)
{
    coprocess_watch_input(l, false);
    l->output.begin = l->output.end = 0;
}

/* Return the buffer of the child's stderr. A logged line names the message if
 * only one is open. */
static struct stderr_tail *coprocess_tail(struct coprocess *l)
{
    l->tail.id = l->count == 1 ? delivery_id(TAILQ_FIRST(&l->open)->d) : NULL;
    return &l->tail;
}

int coprocess_open(struct coprocess **out, struct stream *stream)
{
    struct coprocess *l = calloc(1, sizeof *l);
    size_t window = (size_t)stream->set->window;
    int err;

    *out = NULL;
    if (!l)
        return -ENOMEM;
    l->stream = stream;
    l->state = COPROCESS_EMPTY;
    l->until_ns = UINT64_MAX;
    l->child = (struct child)CHILD_NONE;
    TAILQ_INIT(&l->open);
    TAILQ_INIT(&l->spare);
    l->messages = calloc(window, sizeof *l->messages);
    for (size_t i = 0; l->messages && i < window; i++)
        TAILQ_INSERT_TAIL(&l->spare, &l->messages[i], link);
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    l->waker = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    err = !l->messages ? -ENOMEM : l->epoll < 0 || l->waker < 0 ? -errno : 0;
    if (!err)
        err = epoll_change(l, EPOLL_CTL_ADD, l->waker, COPROCESS_OF_WAKER,
                           EPOLLIN);
    if (err) {
        coprocess_close(&l);
        return err;
    }
    *out = l;
    return 0;
}

/* Terminate a child that broke the protocol: log the line, and read no more of
 * the child's output. */
static void coprocess_fault(struct coprocess *l, const char *what,
                            const struct header_text *line)
{
    size_t size = line && line->size < QUOTED ? line->size : QUOTED;

    log_warn("stream_protocol", F_INT("pid", l->child.pid), F_STR("what", what),
             F_BYTES("line", line ? line->at : NULL, size),
             F_UINT("open", l->count),
             F_STR("next",
                   "terminating the child. Its open messages count as failed. "
                   "An answer is OK, RETRY, DEAD or DISCARD and the id of an "
                   "open message"));
    if (!l->cause[0])
        strlcpy(l->cause, what, sizeof l->cause);
    l->why = what;
    coprocess_drop_fd(l, &l->child.out);
    l->input.begin = l->input.end = 0;
    coprocess_step(l, COPROCESS_END);
}

/* Remove a message from the open ones, and return its delivery. */
static struct delivery *coprocess_take_out(struct coprocess *l,
                                           struct open_message *m)
{
    TAILQ_REMOVE(&l->open, m, link);
    TAILQ_INSERT_HEAD(&l->spare, m, link);
    l->count--;
    if (m->deadline_ns != UINT64_MAX)
        l->limited--;
    return m->d;
}

/* ---- the end of a child ---- */

/* Collect the exit status of a child whose output was read to its end,
 * terminate what is left of it, and decide about its open messages. */
static void coprocess_reap(struct coprocess *l)
{
    struct child *c = &l->child;
    struct stream *s = l->stream;
    size_t unread = l->input.end - l->input.begin;
    char text[OUTCOME_ERROR] = "exit unknown", why[COMMAND_WHY];
    struct outcome none = {0};
    pid_t pid = c->pid;
    bool known, well, stops;
    uint64_t wait = 0;
    siginfo_t how;

    if (c->err >= 0)
        stderr_tail_drain(coprocess_tail(l), c->err);
    /* Terminate the other processes of the child if it left messages open,
     * because these may run again soon, or if the worker ended it. Otherwise
     * background processes of the child keep running. */
    if (l->why || l->count || coprocess_stops(l)) {
        if (!l->kill_at_ns)
            coprocess_term(l);
        leftovers_end(s->leftovers,
                      &(struct leftovers_of){.group = pid,
                                             .end = -1,
                                             .seq = c->mark,
                                             .kill_at_ns = l->kill_at_ns,
                                             .stderr_fd = c->err,
                                             .tail = &l->tail,
                                             .known = s->known,
                                             .known_count = s->known_count});
    }
    stderr_tail_finish(&l->tail);
    coprocess_drop_fds(l);
    how = child_reap(c);
    known = how.si_code != 0;
    well = known && how.si_code == CLD_EXITED && how.si_status == 0;
    stops = coprocess_stops(l);
    if (known)
        snprintf(text, sizeof text, "%s %d",
                 how.si_code == CLD_EXITED ? "exit" : "signal", how.si_status);
    l->kind = stops ? OUTCOME_STOPPED : OUTCOME_VERDICT;
    if (!l->cause[0])
        strlcpy(l->cause, text, sizeof l->cause);
    /* If a child never answered, its command possibly cannot be run. */
    if (!stops && !l->why && !l->answered && known &&
        how.si_code == CLD_EXITED && verdict_no_command(&none, how.si_status)) {
        l->kind = OUTCOME_NOT_STARTED;
        strlcpy(l->cause, none.error, sizeof l->cause);
        if (command_fault(&s->command, why))
            snprintf(l->cause, sizeof l->cause, "exit %d: %s", how.si_status,
                     why);
    }
    /* Start the next child without a delay if this one was replaced as planned,
     * or if it exited with 0 after answering all its messages. */
    if (!l->recycled && (!well || !l->answered || l->count || l->why)) {
        wait = BACKOFF_FIRST;
        for (unsigned i = 0; i < l->failures && wait < BACKOFF_MOST; i++)
            wait *= 2;
        if (wait > BACKOFF_MOST)
            wait = BACKOFF_MOST;
        l->failures++;
    }
    /* A planned replacement is logged at debug level, because it may happen
     * often. */
    LOG_AT(l->recycled && well                     ? LOG_DEBUG
           : stops || (wait == 0 && l->count == 0) ? LOG_INFO
                                                   : LOG_WARN,
           "stream_child_ended", F_INT("pid", pid), F_STR("how", text),
           F_STR("why", l->why), F_UINT("answered", l->answered),
           F_UINT("open", l->count),
           F_BYTES("unfinished",
                   unread ? l->input.bytes + l->input.begin : NULL,
                   unread < QUOTED ? unread : QUOTED),
           F_DURATION("again_in", wait));
    l->input.begin = l->input.end = 0;
    coprocess_step(l, COPROCESS_REAPED);
    l->until_ns = ns_add(clock_mono_ns(), wait);
}

/* Return the next message that ended without an answer, or NULL if there is
 * none. */
static struct delivery *coprocess_lost(struct coprocess *l, struct outcome *out)
{
    struct open_message *m = TAILQ_LAST(&l->open, open_list);

    if (!m)
        return NULL;
    /* Unsent messages go back to the front of their queue, so the last one is
     * returned first. */
    if (m->at == OPEN_NEVER ||
        (!coprocess_feeds(l) && m->at >= l->output.written)) {
        out->kind = OUTCOME_UNSENT;
        out->ran = m->cancelled;
        out->said = false;
        out->error[0] = '\0';
        out->tail_size = 0;
    } else if (l->state == COPROCESS_BACKOFF || l->state == COPROCESS_EMPTY) {
        if (l->kind != OUTCOME_NOT_STARTED)
            m = TAILQ_FIRST(&l->open);
        out->kind = l->kind;
        out->verdict = MQW_RETRY;
        out->ran = true;
        out->said = out->delayed = false;
        strlcpy(out->error, l->cause, sizeof out->error);
        stderr_tail_copy(&l->tail, out);
        if (m->late)
            verdict_timeout(out, m->limit_ns);
    } else {
        return NULL;
    }
    if (m->cancelled)
        verdict_cancelled(out);
    return coprocess_take_out(l, m);
}

/* ---- orders to cancel ---- */

/* Apply the orders given since the last call: terminate the child if one of
 * them names an open message. */
static void coprocess_cancels(struct coprocess *l)
{
    struct stream_cancels *c = &l->stream->cancels;
    char ids[STREAM_CANCELS][ULID_TEXT];
    struct open_message *m;
    bool found = false;
    size_t n = 0;

    l->ordered = false;
    pthread_mutex_lock(&c->mtx);
    if (c->count - l->cancel_seen > STREAM_CANCELS)
        l->cancel_seen = c->count - STREAM_CANCELS;
    for (; l->cancel_seen < c->count; l->cancel_seen++)
        memcpy(ids[n++], c->ids[l->cancel_seen % STREAM_CANCELS], ULID_TEXT);
    pthread_mutex_unlock(&c->mtx);
    for (size_t i = 0; i < n; i++) {
        TAILQ_FOREACH (m, &l->open, link)
            if (!m->cancelled && !m->heard &&
                strcmp(delivery_id(m->d), ids[i]) == 0)
                break;
        if (!m)
            continue;
        found = m->cancelled = true;
        log_info("handler_cancelled", F_STR("msg", ids[i]),
                 F_INT("pid", l->child.pid), F_UINT("open", l->count),
                 F_DURATION("kill_after", l->stream->set->kill_after_ns));
    }
    if (!found || !coprocess_works(l))
        return;
    l->why = "cancelled";
    strlcpy(l->cause, "ended for another message that was cancelled",
            sizeof l->cause);
    coprocess_step(l, COPROCESS_END);
}

/* ---- writing and reading ---- */

/* Handle a pipe that the child has closed. If the descriptor stayed in the
 * epoll set, it would be reported again and again. */
static void pipe_closed(struct coprocess *l, int *fd, const char *what)
{
    coprocess_drop_fd(l, fd);
    if (!l->shut[0])
        strlcpy(l->shut, what, sizeof l->shut);
    coprocess_step(l, COPROCESS_SHUTS);
}

static void output_flush(struct coprocess *l)
{
    struct coprocess_output *o = &l->output;
    ssize_t n;

    if (o->begin == o->end || !coprocess_feeds(l))
        return;
    n = write(l->child.in, o->bytes + o->begin, o->end - o->begin);
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        pipe_closed(l, &l->child.in, "closed its input");
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

/* Read more of the child's output. Returns false if there is none now. */
static bool coprocess_read(struct coprocess *l)
{
    struct coprocess_input *in = &l->input;
    ssize_t n;

    if (l->child.out < 0)
        return false;
    if (in->begin == in->end || (l->count == 0 && !coprocess_feeds(l)))
        in->begin = in->end = 0; /* discard the output of an ending child */
    if (in->end == sizeof in->bytes) {
        memmove(in->bytes, in->bytes + in->begin, in->end - in->begin);
        in->end -= in->begin;
        in->begin = 0;
    }
    n = read(l->child.out, in->bytes + in->end, sizeof in->bytes - in->end);
    if (n > 0)
        in->end += (size_t)n;
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        pipe_closed(l, &l->child.out, "closed its output");
    return n > 0;
}

/* ---- waiting ---- */

/* Terminate the child if an open message was not answered by its deadline: the
 * output up to seen_ns has been read, and seen_ns is not before the deadline.
 * Returns the next deadline; UINT64_MAX: none, or the child is terminated. */
static uint64_t limits_apply(struct coprocess *l)
{
    uint64_t next = UINT64_MAX;
    struct open_message *m;
    bool late = false;

    if (l->limited == 0 || !coprocess_works(l) || coprocess_stops(l))
        return UINT64_MAX;
    TAILQ_FOREACH (m, &l->open, link) {
        if (m->deadline_ns > l->seen_ns) {
            if (m->deadline_ns < next)
                next = m->deadline_ns;
            continue;
        }
        late = m->late = true;
        log_info("handler_timeout", F_STR("msg", delivery_id(m->d)),
                 F_INT("pid", l->child.pid), F_DURATION("limit", m->limit_ns),
                 F_DURATION("kill_after", l->stream->set->kill_after_ns));
    }
    if (!late)
        return next;
    l->why = "timeout";
    strlcpy(l->cause, "ended for another message's timeout", sizeof l->cause);
    coprocess_step(l, COPROCESS_END);
    return UINT64_MAX;
}

/* Wait once for events, at most until the state's time or the next deadline,
 * and handle them. All answers in `input` were parsed before. The clock is
 * read before the pipe, and limits are checked in the next call, after the
 * answers were parsed. So an answer that was in the pipe before its message's
 * deadline is accepted. */
static void coprocess_poll_once(struct coprocess *l, bool wait)
{
    struct epoll_event events[EVENTS];
    uint64_t next, now = 0, ignored;
    int n;

    if (l->ordered)
        coprocess_cancels(l);
    next = limits_apply(l);
    output_flush(l);
    if (l->until_ns < next)
        next = l->until_ns;
    n = epoll_wait(l->epoll, events, EVENTS, wait ? clock_ms_until(next) : 0);
    if (next != UINT64_MAX)
        now = clock_mono_ns();
    for (int i = 0; i < n; i++) {
        switch (events[i].data.u32) {
        case COPROCESS_OF_OUT:
            (void)coprocess_read(l);
            break;
        case COPROCESS_OF_ERR:
            if (l->child.err >= 0 &&
                !stderr_tail_read(coprocess_tail(l), l->child.err))
                coprocess_drop_fd(l, &l->child.err);
            break;
        case COPROCESS_OF_IN:
            if (events[i].events & (EPOLLERR | EPOLLHUP))
                pipe_closed(l, &l->child.in, "closed its input");
            else
                output_flush(l);
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
    if (l->input.end < sizeof l->input.bytes)
        l->seen_ns = now; /* else the pipe may have more */
    if (coprocess_stops(l) && coprocess_lives(l)) {
        l->why = "stopping";
        coprocess_step(l, COPROCESS_END);
    }
    if (l->until_ns > now)
        return;
    if (l->state == COPROCESS_CLOSED)
        coprocess_fault(l, l->shut, NULL);
    else
        coprocess_step(l, COPROCESS_DUE);
}

/* ---- starting ---- */

/* Start a child. On failure return -errno, and put the reason into `out`. */
static int child_begin(struct coprocess *l, struct outcome *out)
{
    struct stream *s = l->stream;
    struct child *c = &l->child;
    struct child_spec spec = {.command = &s->command,
                              .base = &s->base,
                              .mark = atomic_fetch_add(&s->marks, 1),
                              .signal = &s->signal,
                              .measured = s->set->max_rss != 0};
    int err = child_start(c, &spec);
    char why[COMMAND_WHY];

    if (!err)
        err = epoll_change(l, EPOLL_CTL_ADD, c->in, COPROCESS_OF_IN, 0);
    if (!err)
        err = epoll_change(l, EPOLL_CTL_ADD, c->out, COPROCESS_OF_OUT, EPOLLIN);
    if (!err)
        err = epoll_change(l, EPOLL_CTL_ADD, c->err, COPROCESS_OF_ERR, EPOLLIN);
    if (!err)
        err = epoll_change(l, EPOLL_CTL_ADD, c->end, COPROCESS_OF_END, EPOLLIN);
    if (err) {
        if (c->pid) {
            child_signal(c, SIGKILL);
            coprocess_drop_fds(l);
            (void)child_reap(c);
        }
        verdict_not_started(out, "cannot start %s: %s", s->set->command[0],
                            command_why(&s->command, err, why));
        out->ran = false;
        out->tail_size = 0;
        return err;
    }
    LOG_AT(l->recycled ? LOG_DEBUG : LOG_INFO, "stream_child_started",
           F_INT("pid", c->pid));
    stderr_tail_init(&l->tail, NULL, c->pid, s->stderr_limit);
    l->sent = l->answered = 0;
    l->output.written = 0;
    l->rss_next_ns = l->kill_at_ns = l->seen_ns = 0;
    l->why = NULL;
    l->recycled = false;
    l->shut[0] = l->cause[0] = '\0';
    coprocess_step(l, COPROCESS_STARTED);
    return 0;
}

int coprocess_ready(struct coprocess *l, struct outcome *out)
{
    int err = 0;

    while (!err && l->state != COPROCESS_RUNS) {
        if (coprocess_stops(l)) {
            err = -EINTR;
        } else if (l->state == COPROCESS_EMPTY) {
            err = child_begin(l, out);
        } else if (l->state == COPROCESS_ZOMBIE) {
            coprocess_reap(l);
        } else {
            if (l->state == COPROCESS_RETIRING)
                coprocess_leave(l);
            coprocess_poll_once(l, true);
            if (l->woken)
                err = -EINTR;
            l->woken = false;
        }
    }
    return err || !coprocess_stops(l) ? err : -EINTR;
}

/* ---- sending ---- */

unsigned coprocess_room(const struct coprocess *l)
{
    uint64_t room = l->stream->set->window - l->count;
    uint64_t life = l->stream->set->max_requests;

    if (l->state != COPROCESS_RUNS || coprocess_stops(l) ||
        (l->count && TAILQ_LAST(&l->open, open_list)->at == OPEN_NEVER))
        return 0;
    if (life && life - l->sent < room)
        room = life - l->sent;
    return (unsigned)room;
}

/* Append the message to the output; coprocess_next writes it. */
void coprocess_send(struct coprocess *l, struct delivery *d)
{
    const struct settings *set = l->stream->set;
    struct open_message *m = TAILQ_FIRST(&l->spare);
    struct coprocess_output *o = &l->output;
    struct message *sent = d->message;

    m->d = d;
    m->late = m->cancelled = m->heard = false;
    m->deadline_ns = UINT64_MAX;
    m->limit_ns = delivery_limit_ns(d, set->timeout_ns);
    m->at = o->written + (o->end - o->begin);
    /* Name the child before a byte of the message can reach it. */
    FAULT_POINT("stream_before_name");
    sent->ops->handler(sent, l->child.mark, l->child.start, l->child.pid);
    if (output_reserve(o, STREAM_HEAD + d->body_size + 1) < 0) {
        m->at = OPEN_NEVER; /* coprocess_next returns it as unsent */
    } else {
        o->end += stream_head(o->bytes + o->end, d);
        memcpy(o->bytes + o->end, d->body, d->body_size);
        o->end += d->body_size;
        o->bytes[o->end++] = '\n';
    }
    if (m->limit_ns != UINT64_MAX) {
        m->deadline_ns = ns_add(clock_mono_ns(), m->limit_ns);
        l->limited++;
    }
    if (l->count++ == 0)
        stderr_tail_forget(&l->tail); /* it belongs to earlier messages */
    TAILQ_REMOVE(&l->spare, m, link);
    TAILQ_INSERT_TAIL(&l->open, m, link);
    if (++l->sent == set->max_requests)
        coprocess_step(l, COPROCESS_IS_FULL);
}

/* ---- answers ---- */

/* Replace a child that has grown too large. Reading its memory costs a system
 * call. If a child is too large right after its first answer, a new one would
 * be as large, so it is not replaced. */
static void rss_check(struct coprocess *l)
{
    uint64_t most = l->stream->set->max_rss, now = clock_mono_ns(), rss;

    if (now < l->rss_next_ns || l->state != COPROCESS_RUNS)
        return;
    rss = child_rss(&l->child);
    if (rss <= most) {
        l->rss_next_ns = now + RSS_PAUSE;
    } else if (l->rss_next_ns) {
        log_info("stream_child_grown", F_INT("pid", l->child.pid),
                 F_UINT("rss", rss), F_UINT("max_rss", most));
        l->why = "max-rss";
        coprocess_step(l, COPROCESS_IS_FULL);
    } else if (!atomic_exchange(&l->stream->unmeasured, true)) {
        log_warn("stream_rss_off", F_INT("pid", l->child.pid),
                 F_UINT("rss", rss), F_UINT("max_rss", most),
                 F_STR("next", "a new child exceeds --max-rss right after its "
                               "first answer, so children are not replaced for "
                               "their size. Use a larger --max-rss"));
    }
}

/* Read one answer. Returns the delivery that it settles; NULL: it settles none,
 * because it comes too late or breaks the protocol. */
static struct delivery *answer_accept(struct coprocess *l,
                                      const struct header_text *line,
                                      struct outcome *out)
{
    struct stream_answer a;
    struct open_message *m;

    if (stream_answer_parse(line->at, line->size, &a) < 0) {
        coprocess_fault(l, "wrote garbage", line);
        return NULL;
    }
    TAILQ_FOREACH (m, &l->open, link) /* usually the first */
        if (a.id.size == ULID_TEXT - 1 &&
            memcmp(delivery_id(m->d), a.id.at, ULID_TEXT - 1) == 0 &&
            !m->heard && m->at < l->output.written)
            break;
    if (!m) {
        coprocess_fault(l, "answered an unknown id", line);
        return NULL;
    }
    if (m->late || m->cancelled) {
        m->heard = true;
        if (!m->cancelled)
            log_info("handler_late", F_STR("msg", delivery_id(m->d)),
                     F_INT("pid", l->child.pid),
                     F_BYTES("answer", line->at, line->size),
                     F_DURATION("limit", m->limit_ns));
        return NULL;
    }
    if (l->answered++ == 0)
        l->failures = 0;
    out->kind = OUTCOME_VERDICT;
    out->verdict = a.verdict;
    out->ran = true;
    out->delayed = a.delayed;
    out->delay_ns = a.delay_ns;
    out->tail_size = 0;
    stream_answer_error(&a, out->error);
    out->said = a.reason.size > 0;
    if (verdict_rules[a.verdict].explains) {
        /* What the child wrote to stderr before its answer is in the pipe. */
        if (l->child.err >= 0)
            stderr_tail_drain(coprocess_tail(l), l->child.err);
        stderr_tail_copy(&l->tail, out);
        /* A failure does not count while the worker stops its handlers. */
        if (a.verdict == MQW_RETRY && coprocess_stops(l))
            out->kind = OUTCOME_STOPPED;
    }
    if (l->stream->set->max_rss &&
        !atomic_load_explicit(&l->stream->unmeasured, memory_order_relaxed))
        rss_check(l);
    return coprocess_take_out(l, m);
}

/* Return the next delivery that was answered; NULL: no complete line is left in
 * the input. */
static struct delivery *coprocess_answered(struct coprocess *l,
                                           struct outcome *out)
{
    struct coprocess_input *in = &l->input;
    struct delivery *d = NULL;

    while (!d && in->begin < in->end) {
        const char *at = in->bytes + in->begin;
        const char *end = memchr(at, '\n', in->end - in->begin);
        struct header_text line = {at, end ? (size_t)(end - at)
                                           : in->end - in->begin};

        if (line.size >= STREAM_ANSWER) {
            coprocess_fault(l, "wrote an over-long line", &line);
            return NULL;
        }
        if (!end)
            return NULL;
        in->begin += line.size + 1;
        d = answer_accept(l, &line, out);
    }
    return d;
}

struct delivery *coprocess_next(struct coprocess *l, struct outcome *out)
{
    struct delivery *d;

    for (;;) {
        d = coprocess_answered(l, out);
        if (!d)
            d = coprocess_lost(l, out);
        if (d)
            return d;
        if (l->state == COPROCESS_ZOMBIE) {
            if (!coprocess_read(l))
                coprocess_reap(l);
        } else if (l->woken) {
            l->woken = false;
            return NULL;
        } else {
            coprocess_poll_once(l, true);
        }
    }
}

/* ---- from outside ---- */

void coprocess_wake(struct coprocess *l)
{
    (void)eventfd_write(l->waker, 1);
}

/* A child that the worker terminated is not reaped here, because its messages
 * and leftovers come first. It is reaped at the next use or the close. */
bool coprocess_look(struct coprocess *l)
{
    struct outcome none;

    coprocess_poll_once(l, false);
    (void)coprocess_answered(l, &none);
    if (l->state == COPROCESS_ZOMBIE && !l->why && !coprocess_stops(l))
        coprocess_reap(l);
    return coprocess_lives(l);
}

void coprocess_leave(struct coprocess *l)
{
    if (!coprocess_lives(l))
        return;
    if (!l->why)
        l->why = l->state == COPROCESS_RETIRING ? "max-requests" : "closing";
    l->recycled = true;
    coprocess_step(l, COPROCESS_LEAVE);
}

void coprocess_close(struct coprocess **coprocess)
{
    struct coprocess *l = *coprocess;

    if (!l)
        return;
    *coprocess = NULL;
    while (coprocess_lives(l))
        coprocess_poll_once(l, true);
    if (l->state == COPROCESS_ZOMBIE)
        coprocess_reap(l);
    fd_close(&l->epoll);
    fd_close(&l->waker);
    free(l->output.bytes);
    free(l->messages);
    free(l);
}

/* coprocess.c - a long-lived child and the messages that it has open (see
 * coprocess.h)
 *
 * One epoll set has all that a coprocess waits for. Room in the child's input
 * is waited for only while there is something that the pipe had no room for;
 * reading goes on meanwhile, so that a child which answers before it has read
 * everything is no deadlock. That nobody can read its input any more is told at
 * all times, without being asked for. With one message at a time, that is a
 * write, a wait and a read.
 *
 * A message that was sent comes back from coprocess_next once: answered, or
 * lost with its child. One that was lost comes back only when nothing is left
 * of the child and of what it started, so that nothing of it can be in the way
 * of the next attempt. One of which no byte reached the child comes back at
 * once, as if it had never been sent.
 *
 * A crash of the worker at any point of this: the slot of a message that was
 * sent reads RUNNING and names the child, by its mark since before its first
 * byte went into the pipe. So the next worker ends that child before the
 * message runs again.
 *
 * A message that is cancelled and its child end together, as at a time limit.
 * Orders are looked at when all answers that were read have been dealt with: a
 * message that was answered in time is not cancelled any more. Crash before the
 * verdict is durable: the message runs again, and nobody was told that it was
 * cancelled.
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
#include "common/base/log.h"
#include "worker/config/settings.h"
#include "worker/process/leftovers.h"
#include "worker/rules/verdict.h"

#define RSS_PAUSE     (100 * NS_PER_MS) /* between two looks at its memory */
#define BACKOFF_FIRST (100 * NS_PER_MS)
#define BACKOFF_MOST  (10 * NS_PER_S)
#define QUOTED        256 /* of a line, for the log */
#define EVENTS        8

/* What an event of the epoll set is of. */
enum {
    COPROCESS_OF_OUT,
    COPROCESS_OF_ERR,
    COPROCESS_OF_IN,
    COPROCESS_OF_END,
    COPROCESS_OF_WAKER
};

/* ---- its descriptors, and what goes into it ---- */

/* Epoll_ctl, for events of one descriptor */
static int epoll_change(struct coprocess *l, int op, int fd, uint32_t of,
                        uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.u32 = of};

    return epoll_ctl(l->epoll, op, fd, &ev) < 0 ? -errno : 0;
}

/* One more descriptor; its end is always told */
static int epoll_add(struct coprocess *l, int fd, uint32_t of, uint32_t events)
{
    return epoll_change(l, EPOLL_CTL_ADD, fd, of, events);
}

static int coprocess_watch_waker(struct coprocess *l)
{
    return epoll_add(l, l->waker, COPROCESS_OF_WAKER, EPOLLIN);
}

static int coprocess_watch(struct coprocess *l)
{
    int err = epoll_add(l, l->child.in, COPROCESS_OF_IN, 0);

    if (!err)
        err = epoll_add(l, l->child.out, COPROCESS_OF_OUT, EPOLLIN);
    if (!err)
        err = epoll_add(l, l->child.err, COPROCESS_OF_ERR, EPOLLIN);
    return err ? err : epoll_add(l, l->child.end, COPROCESS_OF_END, EPOLLIN);
}

/* Before a descriptor is closed
 * To close it is not enough: a process that is being started on another thread
 * has copies of all descriptors until its exec, and while it has one, the epoll
 * set keeps the entry and tells of it, as if it were the next child's.
 */
void coprocess_unwatch(struct coprocess *l, int fd)
{
    if (fd >= 0)
        (void)epoll_ctl(l->epoll, EPOLL_CTL_DEL, fd, NULL);
}

static void coprocess_unwatch_all(struct coprocess *l)
{
    coprocess_unwatch(l, l->child.in);
    coprocess_unwatch(l, l->child.out);
    coprocess_unwatch(l, l->child.err);
    coprocess_unwatch(l, l->child.end);
}

/* As long as the pipe has no room
 * Trouble is not to be expected, as the descriptor is in the set already; then
 * what is pending goes with the next event.
 */
static void coprocess_watch_input(struct coprocess *l, bool on)
{
    if (l->output.watched == on)
        return;
    l->output.watched = on;
    if (l->child.in >= 0)
        (void)epoll_change(l, EPOLL_CTL_MOD, l->child.in, COPROCESS_OF_IN,
                           on ? EPOLLOUT : 0);
}

/* For as many bytes at the end of the output */
static int make_room(struct coprocess_output *o, size_t bytes)
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

/* Append head, body and newline of a message to the output. */
static int coprocess_append(struct coprocess *l, struct delivery *d)
{
    struct coprocess_output *o = &l->output;

    if (make_room(o, STREAM_HEAD + d->body_size + 1) < 0)
        return -ENOMEM;
    o->end += stream_head(o->bytes + o->end, d);
    memcpy(o->bytes + o->end, d->body, d->body_size);
    o->end += d->body_size;
    o->bytes[o->end++] = '\n';
    return 0;
}

/* Return the buffer of its stderr; a line names the message if only one can be
 * meant. */
static struct stderr_tail *coprocess_tail(struct coprocess *l)
{
    l->tail.id = l->count == 1 ? delivery_id(TAILQ_FIRST(&l->open)->d) : NULL;
    return &l->tail;
}

int coprocess_open(struct coprocess **out, struct stream *stream)
{
    struct coprocess *l = calloc(1, sizeof *l);
    size_t window = stream->set->window;
    int err;

    *out = NULL;
    if (!l)
        return -ENOMEM;
    l->stream = stream;
    l->state = COPROCESS_EMPTY;
    l->until_ns = UINT64_MAX;
    child_init(&l->child);
    TAILQ_INIT(&l->open);
    TAILQ_INIT(&l->spare);
    l->messages = calloc(window, sizeof *l->messages);
    for (size_t i = 0; l->messages && i < window; i++)
        TAILQ_INSERT_TAIL(&l->spare, &l->messages[i], link);
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    l->waker = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    err = !l->messages ? -ENOMEM : l->epoll < 0 || l->waker < 0 ? -errno : 0;
    if (!err)
        err = coprocess_watch_waker(l);
    if (err) {
        coprocess_close(&l);
        return err;
    }
    *out = l;
    return 0;
}

void coprocess_close(struct coprocess **coprocess)
{
    struct coprocess *l = *coprocess;

    if (!l)
        return;
    *coprocess = NULL;
    child_close(&l->epoll);
    child_close(&l->waker);
    child_fini(&l->child);
    free(l->output.bytes);
    free(l->messages);
    free(l);
}

/* End a child that broke the rules: log what it wrote, and read no more of
 * it. */
static void coprocess_fault(struct coprocess *l, const char *what,
                            const struct header_text *line)
{
    size_t size = line && line->size < QUOTED ? line->size : QUOTED;

    if (line)
        log_warn("stream_protocol", F_INT("pid", l->child.pid),
                 F_STR("what", what), F_BYTES("line", line->at, size),
                 F_UINT("open", l->count),
                 F_STR("next", "the child is ended, and what it has open "
                               "counts as failed"));
    else
        log_warn("stream_protocol", F_INT("pid", l->child.pid),
                 F_STR("what", what), F_UINT("open", l->count),
                 F_STR("next", "the child is ended, and what it has open "
                               "counts as failed"));
    if (!l->cause[0])
        strlcpy(l->cause, what, sizeof l->cause);
    l->why = what;
    coprocess_unwatch(l, l->child.out);
    child_close(&l->child.out);
    l->input.begin = l->input.end = 0;
    coprocess_step(l, COPROCESS_END);
}

/* Close a message, and return it. */
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

/* Nothing of it is left
 * Where we ended it, or it left messages behind: those may run again soon. What
 * a child that ended well by itself leaves in the background goes on.
 */
static void child_sweep(struct coprocess *l)
{
    struct child *c = &l->child;

    if (!l->kill_at_ns)
        coprocess_term(l);

    struct leftovers_of of = {.group = c->pid,
                              .end = -1,
                              .seq = c->mark,
                              .kill_at_ns = l->kill_at_ns,
                              .stderr_fd = c->err,
                              .tail = &l->tail,
                              .known = l->stream->ended,
                              .known_count = l->stream->ended_count};

    leftovers_end(l->stream->leftovers, &of);
}

/* As an error of a message */
static void how_it_ended(const siginfo_t *how, bool known,
                         char text[OUTCOME_ERROR])
{
    if (!known)
        strlcpy(text, "exit unknown", OUTCOME_ERROR);
    else
        snprintf(text, OUTCOME_ERROR, "%s %d",
                 how->si_code == CLD_EXITED ? "exit" : "signal",
                 how->si_status);
}

/* What becomes of what it had open */
static void coprocess_judge(struct coprocess *l, const siginfo_t *how,
                            bool known)
{
    struct outcome none = {0};
    char why[COMMAND_WHY];

    l->kind = coprocess_stops(l) ? OUTCOME_STOPPED : OUTCOME_VERDICT;
    if (!l->cause[0])
        how_it_ended(how, known, l->cause);
    if (l->kind == OUTCOME_STOPPED || l->why || l->answered || !known ||
        how->si_code != CLD_EXITED ||
        !verdict_no_command(&none, how->si_status))
        return;
    l->kind = OUTCOME_NOT_STARTED;
    strlcpy(l->cause, none.error, sizeof l->cause);
    if (command_fault(&l->stream->command, why))
        snprintf(l->cause, sizeof l->cause, "exit %d: %s", how->si_status, why);
}

/* How long until the next one may be started */
static uint64_t backoff_next(struct coprocess *l, bool well)
{
    uint64_t wait = BACKOFF_FIRST;

    if (l->recycled || (well && l->answered && l->count == 0 && !l->why))
        return 0;
    for (unsigned i = 0; i < l->failures && wait < BACKOFF_MOST; i++)
        wait *= 2;
    l->failures++;
    return wait < BACKOFF_MOST ? wait : BACKOFF_MOST;
}

/* The level of the log line: a planned replacement is debug, however
 * often it happens */
static enum log_level level_of(const struct coprocess *l, bool well,
                               uint64_t wait)
{
    if (l->recycled && well)
        return LOG_DEBUG;
    return coprocess_stops(l) || (wait == 0 && l->count == 0) ? LOG_INFO
                                                              : LOG_WARN;
}

/* The end of a child, in one line */
static void end_log(const struct coprocess *l, pid_t pid, const char *how,
                    enum log_level level, uint64_t wait)
{
    size_t unread = l->input.end - l->input.begin;
    const char *rest = l->input.bytes + l->input.begin;

    LOG_AT(level, "stream_child_ended", F_INT("pid", pid), F_STR("how", how),
           F_STR("why", l->why), F_UINT("answered", l->answered),
           F_UINT("open", l->count),
           F_BYTES("unfinished", unread ? rest : NULL,
                   unread < QUOTED ? unread : QUOTED),
           F_DURATION("again_in", wait));
}

/* Take the status of a child whose last words were read: leave nothing of it,
 * and decide about what it had open. */
static void coprocess_reap(struct coprocess *l)
{
    struct child *c = &l->child;
    pid_t pid = c->pid;
    char text[OUTCOME_ERROR];
    bool known, well;
    uint64_t wait;
    siginfo_t how;

    if (c->err >= 0)
        stderr_tail_drain(coprocess_tail(l), c->err);
    if (l->why || l->count || coprocess_stops(l))
        child_sweep(l);
    stderr_tail_finish(&l->tail);
    coprocess_unwatch_all(l);
    known = child_reap(c, &how);
    well = known && how.si_code == CLD_EXITED && how.si_status == 0;
    how_it_ended(&how, known, text);
    coprocess_judge(l, &how, known);
    wait = backoff_next(l, well);
    end_log(l, pid, text, level_of(l, well, wait), wait);
    l->input.begin = l->input.end = 0;
    coprocess_step(l, COPROCESS_REAPED);
    l->until_ns = ns_add(clock_mono_ns(), wait);
}

/* ---- what it had open ---- */

/* Nothing of it reached the child; the newest first, as each goes back
 * to the front */
static struct delivery *coprocess_unsent(struct coprocess *l,
                                         struct outcome *out)
{
    struct open_message *m = TAILQ_LAST(&l->open, open_list);

    if (m->at != OPEN_NEVER &&
        (coprocess_feeds(l) || m->at < l->output.written))
        return NULL;
    out->kind = OUTCOME_UNSENT;
    out->ran = m->cancelled;
    out->said = false;
    out->error[0] = '\0';
    out->tail_size = 0;
    if (m->cancelled)
        verdict_cancelled(out);
    return coprocess_take_out(l, m);
}

/* The oldest of those that it had when it ended; the newest, if they
 * go back to the front */
static struct delivery *coprocess_failed(struct coprocess *l,
                                         struct outcome *out)
{
    struct open_message *m = l->kind == OUTCOME_NOT_STARTED
                                 ? TAILQ_LAST(&l->open, open_list)
                                 : TAILQ_FIRST(&l->open);

    out->kind = l->kind;
    out->verdict = MQW_RETRY;
    out->ran = true;
    out->delayed = false;
    strlcpy(out->error, l->cause, sizeof out->error);
    stderr_tail_copy(&l->tail, out);
    if (m->late)
        verdict_timeout(out, m->limit_ns);
    if (m->cancelled)
        verdict_cancelled(out);
    return coprocess_take_out(l, m);
}

/* Return the next message that ended without an answer; NULL: there is
 * none. */
static struct delivery *coprocess_lost(struct coprocess *l, struct outcome *out)
{
    struct delivery *d;

    if (l->count == 0)
        return NULL;
    d = coprocess_unsent(l, out);
    if (!d && (l->state == COPROCESS_BACKOFF || l->state == COPROCESS_EMPTY))
        d = coprocess_failed(l, out);
    return d;
}

/* ---- orders to cancel ---- */

/* One order; true: its message is open here */
static bool order_apply(struct coprocess *l, const char *id)
{
    struct open_message *m;

    TAILQ_FOREACH (m, &l->open, link)
        if (!m->cancelled && !m->heard && strcmp(delivery_id(m->d), id) == 0)
            break;
    if (!m)
        return false;
    m->cancelled = true;
    log_info("handler_cancelled", F_STR("msg", id), F_INT("pid", l->child.pid),
             F_UINT("open", l->count),
             F_DURATION("kill_after", l->stream->set->kill_after_ns));
    return true;
}

void coprocess_cancels_forget(struct coprocess *l)
{
    struct stream_cancels *c = &l->stream->cancels;

    pthread_mutex_lock(&c->mtx);
    l->cancel_seen = c->count;
    pthread_mutex_unlock(&c->mtx);
}

/* Look at the orders since the last look: what is open here and cancelled by
 * them ends with its child. */
static void coprocess_cancels(struct coprocess *l)
{
    struct stream_cancels *c = &l->stream->cancels;
    char ids[STREAM_CANCELS][ULID_TEXT];
    bool found = false;
    size_t n = 0;

    l->ordered = false;
    pthread_mutex_lock(&c->mtx);
    if (c->count - l->cancel_seen > STREAM_CANCELS)
        l->cancel_seen = c->count - STREAM_CANCELS;
    for (; l->cancel_seen < c->count; l->cancel_seen++)
        memcpy(ids[n++], c->ids[l->cancel_seen % STREAM_CANCELS], ULID_TEXT);
    pthread_mutex_unlock(&c->mtx);
    for (size_t i = 0; i < n; i++)
        found |= order_apply(l, ids[i]);
    if (!found || !coprocess_works(l))
        return;
    l->why = "cancelled";
    strlcpy(l->cause, "ended for another message that was cancelled",
            sizeof l->cause);
    coprocess_step(l, COPROCESS_END);
}

/* ---- output ---- */

/* It closed one of its ends */
static void pipe_closed(struct coprocess *l, const char *what)
{
    if (!l->shut[0])
        strlcpy(l->shut, what, sizeof l->shut);
    coprocess_step(l, COPROCESS_SHUTS);
}

/* Nobody can read it; it would be told again and again */
static void input_shut(struct coprocess *l)
{
    coprocess_unwatch(l, l->child.in);
    child_close(&l->child.in);
    pipe_closed(l, "closed its input");
}

/* What there is, as far as the pipe has room */
static void output_flush(struct coprocess *l)
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

/* Read more of what the child wrote; false: there is none now. */
static bool coprocess_read(struct coprocess *l)
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
    pipe_closed(l, "closed its output");
    return false;
}

/* Find the next line, without its newline; false: none is complete. */
static bool coprocess_line(struct coprocess *l, struct header_text *line)
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

/* Whether a time limit ends the child now; one that is ended for
 * another reason, or by the worker's stop, is not late any more */
static bool limits_count(const struct coprocess *l)
{
    return l->limited > 0 && coprocess_works(l) && !coprocess_stops(l);
}

/* When to look again without an event */
static uint64_t wait_until(const struct coprocess *l)
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

/* Those whose limit had passed when all that was there had been
 * read */
static void limits_expire(struct coprocess *l)
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

/* The time of the state is over */
static void state_due(struct coprocess *l)
{
    if (l->state == COPROCESS_CLOSED)
        coprocess_fault(l, l->shut, NULL);
    else
        coprocess_step(l, COPROCESS_DUE);
}

/* By what it is of */
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

/* Wait for one event at most, until the state's time or a deadline is over, and
 * deal with it. All answers that are in `input` must have been read. An answer
 * that was there before the look at the clock has been read when its message's
 * limit is looked at the next time: what is in the pipe in time is in time. */
static void coprocess_poll_once(struct coprocess *l, bool wait)
{
    struct epoll_event events[EVENTS];
    uint64_t next, now = 0;
    int n;

    if (l->ordered)
        coprocess_cancels(l);
    limits_expire(l);
    output_flush(l);
    next = wait_until(l);
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
        state_due(l);
}

/* ---- starting ---- */

/* A child that has had nothing yet */
static void child_started(struct coprocess *l)
{
    LOG_AT(l->recycled ? LOG_DEBUG : LOG_INFO, "stream_child_started",
           F_INT("pid", l->child.pid));
    stderr_tail_init_child(&l->tail, l->child.pid, l->stream->stderr_limit);
    l->sent = l->answered = 0;
    l->output.written = 0;
    l->rss_next_ns = l->kill_at_ns = l->seen_ns = 0;
    l->why = NULL;
    l->recycled = false;
    l->shut[0] = l->cause[0] = '\0';
    coprocess_step(l, COPROCESS_STARTED);
}

/* A child, or -errno and why not */
static int child_begin(struct coprocess *l, struct outcome *out)
{
    struct stream *s = l->stream;
    struct child_spec spec = {.command = &s->command,
                              .base = &s->base,
                              .mark = atomic_fetch_add(&s->marks, 1),
                              .signal = &s->signal,
                              .measured = s->set->max_rss != 0};
    int err = child_start(&l->child, &spec);
    char why[COMMAND_WHY];
    siginfo_t how;

    if (!err)
        err = coprocess_watch(l);
    if (!err) {
        child_started(l);
        return 0;
    }
    if (l->child.pid) {
        child_signal(&l->child, SIGKILL);
        coprocess_unwatch_all(l);
        (void)child_reap(&l->child, &how);
    }
    verdict_not_started(out, "cannot start %s: %s", s->set->command[0],
                        command_why(&s->command, err, why));
    out->ran = false;
    out->tail_size = 0;
    return err;
}

/* The usual case is a child that runs */
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

/* Whose the message is, before a byte of it can reach the child
 * As in handler_exec: the start time before the group, which is not killed by
 * recovery without it; the mark is enough to find the child all the same.
 */
static void name_child(const struct coprocess *l, struct message *m)
{
    FAULT_POINT("stream_before_name");
    m->ops->handler(m, l->child.mark, l->child.start);
    m->ops->handler_group(m, l->child.pid);
}

/* To the output; coprocess_next writes it */
void coprocess_send(struct coprocess *l, struct delivery *d)
{
    const struct settings *set = l->stream->set;
    struct open_message *m = TAILQ_FIRST(&l->spare);

    m->d = d;
    m->late = m->cancelled = m->heard = false;
    m->deadline_ns = UINT64_MAX;
    m->limit_ns = delivery_limit_ns(d, set->timeout_ns);
    m->at = l->output.written + (l->output.end - l->output.begin);
    name_child(l, d->message);
    if (coprocess_append(l, d) < 0)
        m->at = OPEN_NEVER; /* no memory: it comes back unsent */
    if (m->limit_ns != UINT64_MAX) {
        m->deadline_ns = ns_add(clock_mono_ns(), m->limit_ns);
        l->limited++;
    }
    if (l->count++ == 0)
        stderr_tail_forget(&l->tail); /* what was there was of others */
    TAILQ_REMOVE(&l->spare, m, link);
    TAILQ_INSERT_TAIL(&l->open, m, link);
    if (++l->sent == set->max_requests)
        coprocess_step(l, COPROCESS_IS_FULL);
}

/* ---- answers ---- */

/* The oldest with this id; in the usual case the first of all */
static struct open_message *open_find(const struct coprocess *l,
                                      const struct header_text *id)
{
    struct open_message *m;

    if (id->size != ULID_TEXT - 1)
        return NULL;
    TAILQ_FOREACH (m, &l->open, link)
        if (memcmp(delivery_id(m->d), id->at, ULID_TEXT - 1) == 0 &&
            !m->heard && m->at < l->output.written)
            return m;
    return NULL;
}

/* An answer as an outcome; when the worker stops, a failure is none */
static void answer_decide(struct coprocess *l, const struct stream_answer *a,
                          struct outcome *out)
{
    out->kind = OUTCOME_VERDICT;
    out->verdict = a->verdict;
    out->ran = true;
    out->delayed = a->delayed;
    out->delay_ns = a->delay_ns;
    out->tail_size = 0;
    stream_answer_error(a, out->error);
    out->said = a->reason.size > 0;
    if (!verdict_rules[a->verdict].explains)
        return;
    /* What it wrote before the answer is in the pipe. */
    if (l->child.err >= 0)
        stderr_tail_drain(coprocess_tail(l), l->child.err);
    stderr_tail_copy(&l->tail, out);
    if (a->verdict == MQW_RETRY && coprocess_stops(l))
        out->kind = OUTCOME_STOPPED;
}

/* Whether it has grown too large; a look costs a system call
 * One that is too large right after its first answer is so by nature: to
 * replace it would only make the same again.
 */
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
                 F_STR("next", "a new child is over --max-rss after its first "
                               "answer already, so no child is replaced for "
                               "that; give a larger --max-rss"));
    }
}

/* The message that was answered, or NULL */
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
    m = open_find(l, &a.id);
    if (!m) {
        coprocess_fault(l, "answered an unknown id", line);
        return NULL;
    }
    if (m->late || m->cancelled) {
        m->heard = true;
        if (m->cancelled)
            return NULL;
        log_info("handler_late", F_STR("msg", delivery_id(m->d)),
                 F_INT("pid", l->child.pid),
                 F_BYTES("answer", line->at, line->size),
                 F_DURATION("limit", m->limit_ns));
        return NULL;
    }
    if (l->answered++ == 0)
        l->failures = 0;
    answer_decide(l, &a, out);
    if (l->stream->set->max_rss &&
        !atomic_load_explicit(&l->stream->unmeasured, memory_order_relaxed))
        rss_check(l);
    return coprocess_take_out(l, m);
}

/* The next that was, of what has been read */
static struct delivery *coprocess_answered(struct coprocess *l,
                                           struct outcome *out)
{
    struct delivery *d = NULL;
    struct header_text line;

    while (!d && coprocess_line(l, &line))
        d = answer_accept(l, &line, out);
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
    uint64_t one = 1;

    (void)!write(l->waker, &one, sizeof one);
}

void coprocess_signal(struct coprocess *l, int sig)
{
    child_signal(&l->child, sig);
}

int coprocess_fd(const struct coprocess *l)
{
    return l->epoll;
}

/* One that we ended needs more than a look: that waits until
 * the coprocess is used again, or closed */
bool coprocess_look(struct coprocess *l)
{
    struct outcome none;

    coprocess_poll_once(l, false);
    (void)coprocess_answered(l, &none);
    if (l->state == COPROCESS_ZOMBIE && !l->why && !coprocess_stops(l))
        coprocess_reap(l);
    return coprocess_lives(l);
}

/* Usually an answer is the last thing that a child said */
bool coprocess_rest(struct coprocess *l)
{
    return l->input.begin == l->input.end ? coprocess_lives(l)
                                          : coprocess_look(l);
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

pid_t coprocess_await(struct coprocess *l)
{
    while (coprocess_lives(l))
        coprocess_poll_once(l, true);
    return l->child.pid;
}

void coprocess_finish(struct coprocess *l)
{
    if (l->state == COPROCESS_ZOMBIE)
        coprocess_reap(l);
}

/* coprocess.c - a long-lived child and the messages that it has open (see
 * coprocess.h) */
#include "worker/config/in_hand_limit.h"
#include "worker/handlers/coprocess_inner.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/log.h"
#include "worker/rules/verdict.h"

#define RSS_PAUSE (100 * NS_PER_MS) /* between two looks at its memory */

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

/* ---- starting ---- */

/* begin - a child that has had nothing yet */
static void begin(struct coprocess *l)
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

/* start - a child, or -errno and why not */
static int start(struct coprocess *l, struct outcome *out)
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
        begin(l);
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

/* coprocess_ready - the usual case is a child that runs */
int coprocess_ready(struct coprocess *l, struct outcome *out)
{
    int err = 0;

    while (!err && l->state != COPROCESS_RUNS) {
        if (coprocess_stops(l)) {
            err = -EINTR;
        } else if (l->state == COPROCESS_EMPTY) {
            err = start(l, out);
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

/* name_child - whose the message is, before a byte of it can reach the child
 * As in handler_exec: the start time before the group, which is not killed by
 * recovery without it; the mark is enough to find the child all the same.
 */
static void name_child(const struct coprocess *l, struct message *m)
{
    FAULT_POINT("stream_before_name");
    m->ops->handler(m, l->child.mark, l->child.start);
    m->ops->handler_group(m, l->child.pid);
}

/* coprocess_send - to the output; coprocess_next writes it */
void coprocess_send(struct coprocess *l, struct delivery *d)
{
    const struct settings *set = l->stream->set;
    struct open_message *m = TAILQ_FIRST(&l->spare);

    m->d = d;
    m->late = m->cancelled = m->heard = false;
    m->deadline_ns = UINT64_MAX;
    m->limit_ns =
        delivery_limit_ns(d, set->timeout_ns, in_hand_limit_timeout(set));
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

/* find - the oldest with this id; in the usual case the first of all */
static struct open_message *find(const struct coprocess *l,
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

/* decide - an answer as an outcome; when the worker stops, a failure is none */
static void decide(struct coprocess *l, const struct stream_answer *a,
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

/* measure - whether it has grown too large; a look costs a system call
 * One that is too large right after its first answer is so by nature: to
 * replace it would only make the same again.
 */
static void measure(struct coprocess *l)
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

/* accept - the message that was answered, or NULL */
static struct delivery *
accept(struct coprocess *l, const struct header_text *line, struct outcome *out)
{
    struct stream_answer a;
    struct open_message *m;

    if (stream_answer_parse(line->at, line->size, &a) < 0) {
        coprocess_fault(l, "wrote garbage", line);
        return NULL;
    }
    m = find(l, &a.id);
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
    decide(l, &a, out);
    if (l->stream->set->max_rss &&
        !atomic_load_explicit(&l->stream->unmeasured, memory_order_relaxed))
        measure(l);
    return coprocess_take_out(l, m);
}

/* answered - the next that was, of what has been read */
static struct delivery *answered(struct coprocess *l, struct outcome *out)
{
    struct delivery *d = NULL;
    struct header_text line;

    while (!d && coprocess_line(l, &line))
        d = accept(l, &line, out);
    return d;
}

struct delivery *coprocess_next(struct coprocess *l, struct outcome *out)
{
    struct delivery *d;

    for (;;) {
        d = answered(l, out);
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

/* coprocess_look - one that we ended needs more than a look: that waits until
 * the coprocess is used again, or closed */
bool coprocess_look(struct coprocess *l)
{
    struct outcome none;

    coprocess_poll_once(l, false);
    (void)answered(l, &none);
    if (l->state == COPROCESS_ZOMBIE && !l->why && !coprocess_stops(l))
        coprocess_reap(l);
    return coprocess_lives(l);
}

/* coprocess_rest - usually an answer is the last thing that a child said */
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

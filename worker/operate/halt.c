/* halt.c - pauses and stops (see halt.h) */
#include "worker/operate/halt.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/libc.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/state/counters.h"
#include "worker/flow/flow.h"

#define SAVE_FIRST_NS NS_PER_S
#define SAVE_MOST_NS  (60 * NS_PER_S)

/* ---- the note ---- */

/* Write `note` to the file, or remove the file; on a pool thread. If the
 * process is killed before that, the order was not answered yet, and the next
 * worker starts as if the order had not been given. A note that is already in
 * the file is not written again: each write is an event in the folder, after
 * which the worker checks its files and calls pause_put_back, which would lead
 * to the next write. */
static int note_save(struct chore *chore)
{
    struct pause *p = CONTAINER_OF(chore, struct pause, chore);
    struct pause_note note, there;
    unsigned asked;
    int err;

    pthread_mutex_lock(&p->mtx);
    note = p->note;
    asked = p->asked;
    pthread_mutex_unlock(&p->mtx);
    if (atomic_load(&p->tried) == asked && atomic_load(&p->err) == 0 &&
        pause_note_read(&there, p->flow->folder) == 0 &&
        there.since_ns == note.since_ns && there.until_ns == note.until_ns &&
        strcmp(there.by, note.by) == 0)
        return 0;
    err = note.since_ns ? pause_note_write(&note, p->flow->folder)
                        : pause_note_remove(p->flow->folder);
    atomic_store(&p->err, err);
    atomic_store(&p->tried, asked);
    if (p->saved)
        p->saved(p->arg);
    return err;
}

/* Log that the note cannot be written, or that a later try succeeded. */
static void note_save_log(struct chore *chore, int err)
{
    const struct pause *p = CONTAINER_OF(chore, struct pause, chore);

    if (err)
        log_warn("pause_not_saved", F_STR("queue", p->flow->set->queue),
                 F_STR("folder", p->flow->folder),
                 F_STR("error", errno_text(-err)),
                 F_STR("next",
                       "the last pause or resume would be lost at a restart; "
                       "it is saved as soon as the folder can be written"));
    else
        log_info("pause_saved", F_STR("queue", p->flow->set->queue));
}

/* Set the note to be saved. NULL: remove the note. */
static void note_change(struct pause *p, const struct pause_note *note)
{
    static const struct pause_note none;

    pthread_mutex_lock(&p->mtx);
    p->note = note ? *note : none;
    p->asked++;
    pthread_mutex_unlock(&p->mtx);
    chore_soon(&p->chore);
}

bool pause_is_saved(struct pause *p, int *err)
{
    bool is;

    pthread_mutex_lock(&p->mtx);
    is = atomic_load(&p->tried) == p->asked;
    pthread_mutex_unlock(&p->mtx);
    *err = atomic_load(&p->err);
    return is;
}

/* The chore retries a failed save at its own interval, because each try on a
 * full disk is also an event in the folder. */
void pause_put_back(struct pause *p)
{
    int err;

    if (pause_is_saved(p, &err) && err == 0)
        chore_soon(&p->chore);
}

/* ---- begin and end ---- */

/* Log a pause that begins, that gets another end, or (`next`) that continues
 * after a restart. */
static void begin_log(const struct pause *p, const struct pause_note *n,
                      uint64_t limit_ns, const char *next)
{
    char since[TIME_TEXT], until[TIME_TEXT];
    const struct log_field queue = F_STR("queue", p->flow->set->queue);
    const struct log_field by = F_STR("by", n->by);
    const struct log_field end =
        F_STR("until", n->until_ns ? time_print(n->until_ns, until) : NULL);

    if (limit_ns)
        log_info("paused", queue, F_DURATION("for", limit_ns), end, by);
    else
        log_info(
            "paused", queue,
            F_STR("since", n->since_ns ? time_print(n->since_ns, since) : NULL),
            end, by, F_STR("next", next));
}

/* Put a pause of any kind into force. */
static void pause_hold(struct pause *p, enum pauser by)
{
    bool was = p->by;

    p->by |= by;
    if (!was)
        gate_hold(&p->flow->gate, HOLD_PAUSE);
}

/* Start the timer of an order's pause; 0 stops the timer. Timers stand still
 * while the machine is suspended, but the pause continues (pause_clock_set). */
static void end_set(struct pause *p, uint64_t left_ns)
{
    timers_cancel(p->flow->timers, &p->timer);
    p->end_ns = left_ns ? ns_add(clock_boot_ns(), left_ns) : 0;
    if (left_ns)
        timers_start_after(p->flow->timers, &p->timer, left_ns);
}

void pause_begin(struct pause *p, enum pauser by, uint64_t limit_ns, uid_t uid)
{
    bool changed = !(p->by & by) || limit_ns != 0 ||
                   (by == PAUSER_ORDER && p->end_ns != 0);
    uint64_t now = clock_wall_ns();
    struct pause_note note = {.since_ns = now,
                              .until_ns = limit_ns ? ns_add(now, limit_ns) : 0};

    if (!changed)
        return;
    strlcpy(note.by,
            by == PAUSER_SIGNAL    ? "signal"
            : by == PAUSER_PROGRAM ? "program"
            : uid == geteuid()     ? p->owner
                                   : "root",
            sizeof note.by);
    p->since_ns = now;
    if (by == PAUSER_ORDER) {
        end_set(p, limit_ns);
        note_change(p, &note);
    }
    /* The hold comes first, so that nothing is taken once the log says
     * "paused", except by a thread that is in mq_receive at this moment. */
    pause_hold(p, by);
    begin_log(p, &note, limit_ns, NULL);
}

bool pause_end(struct pause *p, unsigned by)
{
    bool was = p->by;

    if (p->by & by & PAUSER_ORDER) {
        end_set(p, 0);
        note_change(p, NULL);
    }
    p->by &= ~by;
    if (was && !p->by) {
        log_info("resumed", F_STR("queue", p->flow->set->queue));
        gate_unhold(&p->flow->gate, HOLD_PAUSE);
    }
    return was;
}

void pause_clock_set(struct pause *p)
{
    uint64_t now = clock_boot_ns(), left, length;
    struct pause_note note;

    if (!p->end_ns)
        return;
    left = p->end_ns > now ? p->end_ns - now : 1;
    end_set(p, left);
    pthread_mutex_lock(&p->mtx);
    note = p->note;
    pthread_mutex_unlock(&p->mtx);
    length = note.until_ns - note.since_ns;
    note.until_ns = ns_add(clock_wall_ns(), left);
    note.since_ns = note.until_ns > length ? note.until_ns - length : 1;
    note_change(p, &note);
}

static void pause_due(struct timer *timer)
{
    pause_end(CONTAINER_OF(timer, struct pause, timer), PAUSER_ORDER);
}

void pause_recall(struct pause *p)
{
    struct pause_note note;
    int err = pause_note_read(&note, p->flow->folder);
    uint64_t left;

    /* An unreadable note also counts as a pause without an end. */
    if (err == -ENOENT || err == -ENAMETOOLONG)
        return;
    left = pause_note_left(&note, clock_wall_ns());
    if (left == 0) {
        note_change(p, NULL); /* the pause ended while no worker was running */
        return;
    }
    begin_log(p, &note, 0,
              "the pause began before this start. End it with mqctl resume; "
              "until then, even a bounded run waits");
    if (!note.since_ns)
        note.since_ns = clock_wall_ns();
    pthread_mutex_lock(&p->mtx);
    p->note = note;
    pthread_mutex_unlock(&p->mtx);
    end_set(p, left == UINT64_MAX ? 0 : left);
    pause_hold(p, PAUSER_ORDER);
}

void pause_now(struct pause *p, struct pause_note *out)
{
    *out = (struct pause_note){0};
    if (p->by & PAUSER_ORDER) {
        pthread_mutex_lock(&p->mtx);
        *out = p->note;
        pthread_mutex_unlock(&p->mtx);
    } else if (p->by) {
        out->since_ns = p->since_ns;
        strlcpy(out->by, p->by & PAUSER_SIGNAL ? "signal" : "program",
                sizeof out->by);
    }
}

void pause_init(struct pause *p, struct flow *f)
{
    *p = (struct pause){.flow = f,
                        .mtx = PTHREAD_MUTEX_INITIALIZER,
                        .chore = {.run = note_save,
                                  .tell = note_save_log,
                                  .first_ns = SAVE_FIRST_NS,
                                  .most_ns = SAVE_MOST_NS,
                                  .pool = &f->pool}};
    folder_user(geteuid(), p->owner);
    timer_init(&p->timer, pause_due);
    chore_init(&p->chore);
}

/* ---- stop ---- */

/* Terminate the handlers: with SIGTERM when the grace is over, and with SIGKILL
 * after --kill-after. */
static void handlers_terminate(struct timer *timer)
{
    struct stop *s = CONTAINER_OF(timer, struct stop, timer);
    struct flow *f = s->flow;
    int signal = s->ending ? SIGKILL : SIGTERM;

    if (!s->ending)
        log_warn("grace_over", F_STR("queue", f->set->queue),
                 F_UINT("running", gate_running(&f->gate)),
                 F_STR("next", "terminating their handlers. The messages are "
                               "kept, and no attempt is counted"));
    s->ending = true;
    if (signal == SIGKILL) /* for a plugin, `last` exits below */
        counters_gauge(f->counters, COUNTERS_ENDED_NS, clock_wall_ns());
    if (f->ops->stop)
        f->ops->stop(f->handler, signal);
    if (signal == SIGKILL && f->ops->seize)
        s->last(s->arg);
    if (signal != SIGKILL)
        timers_start_after(f->timers, timer, f->set->kill_after_ns);
}

/* Handle a signal to stop. The first TERM or INT lets handlers finish within
 * the grace. A second one skips the rest of the grace; QUIT kills now. */
void stop_worker(struct stop *s, int signal)
{
    struct flow *f = s->flow;
    uint64_t now = clock_mono_ns();

    s->signals++;
    log_info("stopping", F_STR("queue", f->set->queue),
             F_STR("signal", sigabbrev_np(signal)),
             F_UINT("running", gate_running(&f->gate)));
    gate_finish(&f->gate, "signal", 0);
    if (signal == SIGQUIT) {
        s->ending = true;
        /* Handlers in this process are stopped by the timer, in the next round
         * of the loop: that may exit the process, and the client of the order
         * must get its answer first. */
        if (!f->ops->within)
            f->ops->stop(f->handler, SIGKILL);
    }
    if (s->signals == 1 && !s->ending)
        now = ns_add(now, f->set->grace_ns);
    timers_start(f->timers, &s->timer, now);
}

/* Stop as after SIGTERM, because a file was removed. Does nothing if a stop has
 * already begun. */
static void stop_for_restart(struct timer *timer)
{
    struct stop *s = CONTAINER_OF(timer, struct stop, again);
    struct flow *f = s->flow;

    if (gate_held(&f->gate, HOLD_STOP))
        return;
    log_info("stopping", F_STR("queue", f->set->queue),
             F_STR("why", "file_gone"),
             F_UINT("running", gate_running(&f->gate)));
    gate_finish(&f->gate, "file_gone", -ESTALE);
    timers_start(f->timers, &s->timer,
                 ns_add(clock_mono_ns(), f->set->grace_ns));
}

void stop_init(struct stop *s, struct flow *f, void (*last)(void *arg),
               void *arg)
{
    s->flow = f;
    s->last = last;
    s->arg = arg;
    timer_init(&s->timer, handlers_terminate);
    timer_init(&s->again, stop_for_restart);
}

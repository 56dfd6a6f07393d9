/* torture_scenes.c - bring a worker to each named step (see torture.h)
 *
 * Ordinary messages pass most steps. Each other step has a scene: what to do
 * before the worker to be killed starts, its arguments, and what to ask of it
 * once it delivers.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "common/base/clock.h"
#include "tests/crash/torture/torture.h"
#include "tests/crash/torture/torture_feed.h"

#define AWAIT_NS (2 * NS_PER_S) /* limit for passing a step */
#define TICK_NS  (500 * NS_PER_US)
#define TAKEN_NS (5 * NS_PER_MS) /* time for a worker to take slow messages */
#define PASSES   6               /* most passes before the kill, at random */

struct scene {
    const char *prefix;
    const char *before; /* step that kills the worker before; NULL: any */
    void (*prepare)(struct torture *t);
    const char *const *more;        /* arguments of the worker to be killed */
    void (*ask)(struct torture *t); /* called repeatedly; NULL: nothing */
    /* plays the whole scene; NULL: scene_play does */
    bool (*play)(struct torture *t, const char *point);
    bool once; /* kill at the first pass: there may be no second */
};

/* ---- the arguments of a worker ---- */

/* Failed heads wait for long, with little room behind them (one, few), or with
 * much room in slots (lines). */
static const char *const one[] = {"--lookahead", "1", "--backoff", "300ms",
                                  NULL};
static const char *const few[] = {"--lookahead", "4", "--backoff", "300ms",
                                  NULL};
static const char *const lines[] = {"--lookahead", "64", "--backoff", "300ms",
                                    NULL};
static const char *const spool[] = {"--spool", "--spool-sync", "always", NULL};
/* The audit waits until the spool is empty, so its bound is small. */
static const char *const little[] = {"--spool=100", "--spool-sync", "always",
                                     NULL};
static const char *const hook[] = {"--on-dead", "true", NULL};
static const char *const moves[] = {"--dead-letter-queue", NULL, NULL};

/* ---- before the start ---- */

/* Note that a message's key is free once the message has died, because its slot
 * may be torn. */
static int key_note(const struct custody_seen *seen, void *arg)
{
    struct torture_plan plan;
    _Atomic uint64_t *record =
        letters_record_of(arg, seen->data, seen->data_size, &plan);

    if (record && plan.unique)
        atomic_fetch_or(record, (uint64_t)TORTURE_KEY_FREE << 32);
    return 0;
}

/* Leave what a power cut leaves; slots may be torn. */
static void power_cut(struct torture *t)
{
    (void)place_custody(t, key_note, t);
    place_power_cut(t);
}

/* Run a worker and stop it cleanly. */
static void stop_clean(struct torture *t)
{
    worker_start(t, NULL, NULL);
    if (worker_delivers(t))
        worker_stop(t);
}

/* Change the runtime directory, which is allowed because the last worker left
 * nothing in flight. */
static void move_memory(struct torture *t)
{
    stop_clean(t);
    place_move(t);
}

/* Replay a letter; it is sent as soon as the worker makes room in the queue. */
static void replay_one(struct torture *t)
{
    letters_send(t);
}

/* Leave a letter that was marked but not sent when the machine went down. */
static void strand_one(struct torture *t)
{
    if (letters_strand(t))
        letters_reboot(t);
}

/* Make the store believe that the clock was a second behind when the last
 * worker looked, so that the next worker sees a clock that was set forward. */
static void set_clock(struct torture *t)
{
    (void)place_store(t, "UPDATE clock SET ahead_ns = ahead_ns - 1000000000");
}

/* Kill a worker that has taken nothing, and remove its runtime folder as a
 * power cut does. The queue is kept: the audit could not distinguish its loss
 * from a fault. */
static void lose_memory(struct torture *t)
{
    stop_clean(t);
    worker_start(t, "runtimedir_settle_before_remove", NULL);
    if (scene_await(t, NULL) && place_slots(t) == 0)
        place_lose(t);
}

/* Make custody name another store, as if another worker had used the file. The
 * file holds no message: with one, the worker would refuse to start, because
 * its store has messages. */
static void change_store(struct torture *t)
{
    stop_clean(t);
    worker_start(t, "runtimedir_settle_before_remove", NULL);
    if (scene_await(t, NULL) && place_slots(t) == 0)
        place_other_store(t);
}

/* Replace the queue by one for larger messages while some are in flight. A
 * queue that is already large is first replaced by a small one. */
static void grow_queue(struct torture *t)
{
    uint32_t small = t->world->terms.most;

    if (t->queue_size != small) {
        if (!leg_end(t))
            return;
        feed_pause(t->world);
        while (!feed_paused(t->world))
            torture_nap(TICK_NS);
        place_resize(t, small);
        feed_resume(t->world);
        stop_clean(t);
    }
    worker_start(t, "slot_run_after_word:3", NULL);
    (void)scene_await(t, NULL);
    feed_pause(t->world);
    while (!feed_paused(t->world))
        torture_nap(TICK_NS);
    place_resize(t, 2 * small);
    feed_resume(t->world);
}

/* ---- while it runs ---- */

static void ask_more(struct torture *t)
{
    kill(t->worker.pid, SIGTTIN);
}

/* Stop the worker once. A plugin that still works at a second signal ends with
 * the process, which then does not pass the last steps. */
static void ask_stop(struct torture *t)
{
    if (t->worker.asked)
        return;
    t->worker.asked = true;
    kill(t->worker.pid, SIGTERM);
}

/* Remove the file of ends; the worker checks it every second. */
static void ask_ends(struct torture *t)
{
    place_remove_ends(t);
}

/* Remove the note of the runtime folder. */
static void ask_note(struct torture *t)
{
    place_remove_note(t);
}

/* Stop the worker while each handler has a message that takes longer than a
 * busy machine needs to act on the signal. */
static void ask_quit(struct torture *t)
{
    /* A spool that has rows first takes in the whole queue before the worker
     * keeps what is in flight, which takes seconds if senders go on. */
    feed_pause(t->world);
    if (atomic_exchange(&t->world->dawdle_ms, DAWDLE_LONG_MS))
        kill(t->worker.pid, SIGQUIT);
    torture_nap(TAKEN_NS);
}

/* Make retries run at once. */
static void ask_now(struct torture *t)
{
    char state[PATH_MAX];
    const char *now[] = {"mqctl", "run-now", "-q",    "--state-dir",
                         state,   t->queue,  "--all", NULL};

    snprintf(state, sizeof state, "%s", place_path(t, "state"));
    (void)program_run(t, NULL, now);
}

/* Let the queue run empty. */
static void ask_nothing(struct torture *t)
{
    feed_pause(t->world);
}

/* Kill mqctl while it releases a group. */
static bool let_go_play(struct torture *t, const char *point)
{
    char state[PATH_MAX];
    const char *go[] = {"mqctl",          "group",   "-q",
                        "--state-dir",    state,     t->queue,
                        torture_group(0), "release", NULL};
    int status;

    worker_start(t, NULL, NULL);
    if (!worker_delivers(t))
        return false;
    snprintf(state, sizeof state, "%s", place_path(t, "state"));
    status = program_run(t, point, go);
    worker_kill(t);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

/* ---- cancels ---- */

static void ask_cancel(struct torture *t)
{
    if (steer_row(t))
        (void)steer_cancel(t, NULL);
}

/* Cancel the same message until a handler has begun it. Meanwhile the message
 * may become settled, and mqctl may notice the kill of the worker before this
 * program does. */
static void ask_lent(struct torture *t)
{
    if (!t->worker.asked || steer_begun(t))
        t->worker.asked = steer_held(t);
    if (t->worker.asked)
        (void)steer_cancel(t, NULL);
}

/* Kill the worker that is asked to cancel. For a row, mqctl notices that and
 * cancels the message itself. */
static bool cancel_there(struct torture *t, const char *point,
                         const char *const *more,
                         void (*ask)(struct torture *t))
{
    bool hit;

    atomic_store(&t->world->dawdle_ms, DAWDLE_MS);
    worker_start(t, point, more);
    hit = scene_await(t, ask);
    atomic_store(&t->world->dawdle_ms, 0);
    t->sum.kills += hit;
    return hit;
}

/* Kill a worker that has a message for `choose`. */
static bool leave_one(struct torture *t, const char *const *more,
                      bool (*choose)(struct torture *t))
{
    uint64_t end = clock_mono_ns() + AWAIT_NS;

    atomic_store(&t->world->dawdle_ms, DAWDLE_MS);
    worker_start(t, NULL, more);
    while (worker_delivers(t) && !choose(t) && clock_mono_ns() < end)
        torture_nap(TICK_NS);
    atomic_store(&t->world->dawdle_ms, 0);
    if (t->failed)
        return false;
    worker_kill(t);
    t->sum.kills++;
    return choose(t);
}

/* Kill mqctl while no worker is running. After the commit the message must be
 * marked. */
static bool cancel_here(struct torture *t, const char *point,
                        const char *const *more,
                        bool (*choose)(struct torture *t))
{
    int status;

    if (!leave_one(t, more, choose))
        return false;
    status = steer_cancel(t, point);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL &&
           steer_marked(t) == (strstr(point, "_after") != NULL);
}

/* Kill at a step of rows: run-now and cancel by a worker, cancel without
 * one. */
static bool rows_play(struct torture *t, const char *point)
{
    const char *const *more = torture_random(2) ? little : few;
    bool now, there, here;

    worker_start(t, point, few);
    now = scene_await(t, ask_now);
    t->sum.kills += now;
    there = !t->failed && cancel_there(t, point, more, ask_cancel);
    here = !t->failed && cancel_here(t, point, more, steer_row);
    return now && there && here;
}

/* Kill the worker while it cancels a message that waits in a slot. Afterwards
 * the slot is free and mqctl got no answer. If the kill came late, the message
 * may have been cancelled. */
static bool lent_play(struct torture *t, const char *point)
{
    bool hit = cancel_there(t, point, lines, ask_lent);

    if (strstr(point, "_after") && hit)
        steer_hold(t);
    else if (strstr(point, "_after") && t->worker.asked)
        steer_unanswered();
    return hit;
}

/* ---- scenes ---- */

static const struct scene scenes[] = {
    {"custody_rebuild_", .prepare = grow_queue, .once = true},
    {"custody_tie_", .prepare = change_store, .once = true},
    {"custody_bind_", .prepare = change_store, .once = true},
    {"custody_in_use_", .prepare = stop_clean, .once = true},
    {"custody_claim_", .prepare = stop_clean, .once = true},
    {"runtimedir_", .prepare = move_memory, .once = true},
    {"file_replace_", .prepare = move_memory, .once = true},
    {"custody_close_", .ask = ask_stop, .once = true},
    {"custody_grow_", .ask = ask_more},
    {"custody_fix_", .before = "slot_run_after_word:3", .prepare = power_cut,
     .once = true},
    {"recover_before_dead", .before = "slot_run_after_word:3",
     .prepare = power_cut, .once = true},
    {"recover_settled_", .before = "commit_after:2", .once = true},
    {"recover_row_", .before = "slot_hold_after_word:2", .once = true},
    {"recover_", .before = "slot_run_after_word:3", .once = true},
    {"custody_recover_", .before = "receive_after:3", .once = true},
    {"slot_resolve_", .before = "receive_after:3", .once = true},
    {"slot_crashed_", .before = "slot_run_after_word:3", .once = true},
    {"slot_unrun_", .ask = ask_quit, .once = true},
    {"keep_", .ask = ask_quit, .once = true},
    {"restart_note_", .ask = ask_note, .once = true},
    {"restart_", .more = little, .ask = ask_ends, .once = true},
    {"slot_disarm_", .ask = ask_nothing, .once = true},
    {"spool_", .more = spool},
    {"store_spool_", .more = spool},
    {"park_due_", .more = one, .once = true},
    {"park_", .more = few, .once = true},
    {"store_put_all_", .more = few},
    {"commit_", .more = few},
    {"store_make_", .once = true},
    {"store_recall_", .prepare = strand_one, .once = true},
    {"store_clock_", .prepare = set_clock, .once = true},
    {"store_doubt_", .prepare = lose_memory, .once = true},
    {"slot_link_", .prepare = replay_one, .once = true},
    {"dead_queue_", .more = moves, .ask = letters_receive},
    {"on_dead_", .more = hook},
    {"letters_hook_", .more = hook},
    {"waiting_steer_", .play = rows_play},
    {"cancel_lent_", .play = lent_play},
    {"letters_let_go_", .play = let_go_play},
    {"letters_", .play = letters_play},
    {"replay_", .play = letters_play},
    {"", .prepare = NULL},
};

static const struct scene *scene_of(const char *point)
{
    const struct scene *s = scenes;

    while (strncmp(point, s->prefix, strlen(s->prefix)) != 0)
        s++;
    return s;
}

/* Return true unless a kill at the step may lose messages. If somebody removes
 * a file under a worker, only the worker has its contents until the file is
 * written again, so a kill loses them (docs/reliability.md). --max-dead removes
 * letters. The audit could not distinguish either from a fault. Brokers and
 * forgotten queues have tests of their own (tests/e2e/amqp,
 * tests/e2e/mqctl). */
bool scene_possible(const struct torture *t, const char *point)
{
    static const char *const never[] = {"letters_drop_", "amqp_", "forward_",
                                        "letter_refreshed", "state_forget_"};

    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (strncmp(point, never[i], strlen(never[i])) == 0)
            return false;
    if (strncmp(point, "exec_", 5) == 0)
        return t->kind == TORTURE_EXEC;
    if (strncmp(point, "stream_", 7) == 0)
        return t->kind == TORTURE_STREAM;
    if (strncmp(point, "handler_", 8) == 0) /* the process of either kind */
        return t->kind == TORTURE_EXEC || t->kind == TORTURE_STREAM;
    return true;
}

bool scene_first(const char *point)
{
    return strncmp(point, "store_make_", 11) == 0;
}

bool scene_await(struct torture *t, void (*ask)(struct torture *t))
{
    /* The worker looks for missing files once a second. */
    bool slow = ask == ask_ends || ask == ask_note;
    uint64_t end = clock_mono_ns() + (slow ? 3 : 1) * AWAIT_NS;
    int status;

    while (!worker_ended(t, &status)) {
        if (clock_mono_ns() > end) {
            worker_kill(t);
            return false;
        }
        if (ask && worker_first_ns(t))
            ask(t);
        torture_nap(TICK_NS);
    }
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        return true;
    if (ask && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return false; /* it was asked to exit and did not pass the step */
    fprintf(stderr, "torture: the worker ended by itself, status %x\n",
            (unsigned)status);
    t->failed = true;
    return false;
}

/* Kill a worker at a step, for the next worker to recover from. */
static void kill_before(struct torture *t, const char *point)
{
    worker_start(t, point, NULL);
    if (scene_await(t, NULL))
        t->sum.kills++;
}

bool scene_play(struct torture *t, const char *point)
{
    const struct scene *s = scene_of(point);
    const char *more[] = {"--dead-letter-queue", letters_queue(t), NULL};
    char at[128];
    bool hit;

    if (s->play)
        return s->play(t, point);
    if (s->before)
        kill_before(t, s->before);
    if (s->prepare && !t->failed)
        s->prepare(t);
    if (t->failed)
        return false;
    snprintf(at, sizeof at, "%s:%u", point,
             s->once ? 1 : 1 + (unsigned)torture_random(PASSES));
    worker_start(t, at, s->more == moves ? more : s->more);
    hit = scene_await(t, s->ask);
    worker_note(t, clock_mono_ns());
    if (s->more == moves)
        letters_receive(t);
    letters_sent(t);
    atomic_store(&t->world->dawdle_ms, 0);
    feed_resume(t->world);
    t->sum.kills += hit;
    return hit;
}

/* scene.c - run flow with real threads and a few messages (see scene.h)
 *
 * The source is in memory and time is virtual, as in the unit tests of flow.
 * The threads, the pool and the loop are real; one thread runs at a time
 * (turn.h).
 */
#include "tests/schedules/scene.h"

#include "tests/fixtures/flow_fixture.h"

#include <stdlib.h>
#include <sys/epoll.h>

#include "tests/schedules/turn.h"
#include "tests/schedules/window.h"

/* Only the linker refers to these functions (--wrap). */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum { MESSAGES = 6, GROUPS = 3, CAP_MOST = 3, INSIDE = 4 };

/* A scene: messages and how flow handles them. */
struct scene {
    const char *name;
    unsigned messages, cap, groups; /* groups 0: no groups */
    unsigned lookahead;
    unsigned retries;            /* each such message fails once; 0: none */
    bool late;                   /* the source settles late */
    bool full;                   /* the source refuses twice: no space */
    bool quick;                  /* handlers take no time */
    bool at_once;                /* a failed message is retried at once */
    bool window;                 /* handlers are coprocesses (window.h) */
    void *(*steered_by)(void *); /* an additional thread; NULL: none */
};

static const struct scene *scene;
static struct fake_message *sent[MESSAGES];
static unsigned inside, inside_most, next_of[GROUPS];
static bool inside_group[GROUPS], all_sent, operated;
static uint64_t passed_ns;
static uint64_t together; /* runs in which two handlers ran at a time */
static bool was_together;
static bool time_passes;

/* ---- a handler ---- */

static unsigned number_of(const struct delivery *d)
{
    unsigned n = 0;

    while (n < scene->messages && (!sent[n] || &sent[n]->m != d->message))
        n++;
    if (n == scene->messages)
        turn_fault("an unknown message runs");
    return n;
}

static bool time_is(void *arg)
{
    return clock_mono_ns() >= *(const uint64_t *)arg;
}

/* Check that the group is free and that the message is its next one. */
static void group_enters(unsigned n)
{
    unsigned g = n % scene->groups;

    if (inside_group[g])
        turn_fault("two messages of group %u run at once", g);
    if (n != next_of[g])
        turn_fault("message %u runs before message %u", n, next_of[g]);
    inside_group[g] = true;
}

static bool fails_now(const struct delivery *d, unsigned n)
{
    return scene->retries && n % scene->retries == 0 &&
           d->message->failures == 0;
}

/* Start a message and return when its handler finishes. */
static uint64_t begins(struct delivery *d)
{
    unsigned n = number_of(d);

    was_together |= inside > 0;
    if (++inside > inside_most)
        turn_fault("%u handlers run, and the cap is %u", inside, inside_most);
    if (scene->groups)
        group_enters(n);
    return clock_mono_ns() + (1 + n % 2) * 10 * NS_PER_MS;
}

static void ends(struct delivery *d, struct outcome *out)
{
    unsigned n = number_of(d);
    bool fails = fails_now(d, n);

    if (scene->groups) {
        inside_group[n % scene->groups] = false;
        if (!fails)
            next_of[n % scene->groups] += scene->groups;
    }
    inside--;
    out->kind = OUTCOME_VERDICT;
    out->verdict = fails ? MQW_RETRY : MQW_DONE;
    out->ran = true;
    out->delayed = fails && scene->at_once;
    out->delay_ns = 0;
    out->tail_size = 0;
    snprintf(out->error, sizeof out->error, "%s", fails ? "exit 1" : "");
}

static void run_one(struct handler *h, struct delivery *d, struct outcome *out)
{
    uint64_t until = begins(d);

    (void)h;
    for (unsigned i = 0; i < INSIDE; i++)
        turn_point();
    if (!scene->quick) /* if quick, one work item takes all messages */
        turn_until(time_is, &until);
    for (unsigned i = 0; i < INSIDE; i++)
        turn_point();
    ends(d, out);
}

static const struct window_scene in_window = {begins, ends};

/* ---- the other threads ---- */

static void *sender(void *arg)
{
    (void)arg;
    for (unsigned n = 0; n < scene->messages; n++) {
        char text[64];

        if (scene->groups)
            snprintf(text, sizeof text, "MQW/1\ngroup: g%u\n\n%u",
                     n % scene->groups, n);
        else
            snprintf(text, sizeof text, "%u", n);
        sent[n] = fake_add(text, FAKE_NOWHERE);
        turn_point();
        fake_fresh_now(sent[n]);
        turn_point();
    }
    all_sent = true;
    loop_wake(flow.loop);
    return NULL;
}

/* Change the cap several times, then pause and resume. */
static void *operator_cap(void *arg)
{
    static const unsigned caps[] = {1, 3, 2};

    (void)arg;
    for (unsigned i = 0; i < sizeof caps / sizeof *caps; i++) {
        pool_resize(flow.pool, caps[i] + 1);
        gate_set_cap(&flow.gate, caps[i]);
        gate_changed(&flow.gate);
        turn_point();
    }
    gate_hold(&flow.gate, HOLD_PAUSE);
    turn_point();
    gate_unhold(&flow.gate, HOLD_PAUSE);
    operated = true;
    loop_wake(flow.loop);
    return NULL;
}

static bool is_late(void *arg)
{
    (void)arg;
    return fake_in(FAKE_LATE) > 0 || operated;
}

/* Answer the settle calls that the source left open. */
static void *operator_answers(void *arg)
{
    unsigned answers = scene->messages;

    (void)arg;
    while (answers > 0) {
        turn_until(is_late, NULL);
        for (unsigned n = 0; n < fake.count; n++)
            if (fake.all[n].at == FAKE_LATE) {
                fake_answer(&fake.all[n], 0);
                answers--;
                turn_point();
            }
    }
    operated = true;
    loop_wake(flow.loop);
    return NULL;
}

static const struct scene scenes[] = {
    {.name = "plain", .messages = 3, .cap = 2},
    {.name = "quick", .messages = 4, .cap = 2, .quick = true},
    {.name = "many", .messages = 6, .cap = 3},
    {.name = "one", .messages = 3, .cap = 1},
    {.name = "cap", .messages = 5, .cap = 2, .steered_by = operator_cap},
    {.name = "wide", .messages = 5, .cap = 3},
    {.name = "retry", .messages = 4, .cap = 2, .retries = 2},
    {.name = "groups", .messages = 6, .cap = 3, .groups = 2, .lookahead = 4},
    {.name = "heads",
     .messages = 6,
     .cap = 3,
     .groups = 2,
     .lookahead = 4,
     .retries = 3},
    {.name = "again",
     .messages = 6,
     .cap = 3,
     .groups = 2,
     .lookahead = 4,
     .retries = 2,
     .at_once = true},
    {.name = "parks",
     .messages = 6,
     .cap = 2,
     .groups = 3,
     .lookahead = 1,
     .retries = 4},
    {.name = "late",
     .messages = 4,
     .cap = 2,
     .late = true,
     .steered_by = operator_answers},
    {.name = "full", .messages = 6, .cap = 2, .full = true},
    {.name = "capped_groups",
     .messages = 6,
     .cap = 3,
     .groups = 3,
     .lookahead = 4,
     .steered_by = operator_cap},
    {.name = "window", .messages = 6, .cap = 2, .window = true},
    {.name = "window_one", .messages = 4, .cap = 1, .window = true},
    {.name = "window_retry",
     .messages = 6,
     .cap = 2,
     .retries = 2,
     .window = true},
    {.name = "window_groups",
     .messages = 6,
     .cap = 2,
     .groups = 2,
     .lookahead = 4,
     .retries = 3,
     .window = true},
    {.name = "window_late",
     .messages = 4,
     .cap = 2,
     .late = true,
     .window = true,
     .steered_by = operator_answers},
    {.name = "window_cap",
     .messages = 6,
     .cap = 2,
     .window = true,
     .steered_by = operator_cap},
};

/* ---- the loop ---- */

static bool all_over(void)
{
    timers_run(flow.timers);
    fake_tick();
    return all_sent && (operated || !scene->steered_by) &&
           fake_in(FAKE_GONE) == (long)scene->messages;
}

/* Do what the engine does at an event of the gate. */
static void gate_told(void *arg, enum gate_event event)
{
    (void)arg;
    if (event == GATE_CHANGED)
        schedule_wake(&flow);
    else if (event == GATE_WIDER)
        peeker_look_soon(flow.peeker);
}

int __real_epoll_wait(int epoll, struct epoll_event *events, int most, int ms);

struct epoll_ask {
    int epoll, most, came;
    struct epoll_event *events;
};

static bool epoll_able(void *arg)
{
    struct epoll_ask *ask = arg;

    if (time_passes)
        return true;
    ask->came = __real_epoll_wait(ask->epoll, ask->events, ask->most, 0);
    return ask->came != 0;
}

int __wrap_epoll_wait(int epoll, struct epoll_event *events, int most, int ms)
{
    struct epoll_ask ask = {.epoll = epoll, .most = most, .events = events};

    (void)ms;
    turn_point();
    if (!epoll_able(&ask))
        turn_until(epoll_able, &ask);
    if (time_passes) {
        time_passes = false;
        return 0;
    }
    return ask.came;
}

/* Called when no thread can run: check that no message was overlooked, and let
 * time pass. */
static void nothing_runs(void)
{
    const struct fake_message *due = fake_first();
    bool slow = passed_ns < NS_PER_S || (scene->full && inside > 0);
    uint64_t step = slow ? 10 * NS_PER_MS : NS_PER_S;

    if (inside == 0 && schedule_why(&flow) == WHY_NOT_SO) {
        if (fake_in(FAKE_FRESH) > 0)
            turn_fault("a message is overlooked");
        if (dispatch_ready(&flow))
            turn_fault("a group is overlooked");
        if (ready_waiting(&flow.ready) > 0)
            turn_fault("a lent message is overlooked");
        if (due && due->due_ns <= clock_boot_ns())
            turn_fault("a due message is overlooked");
    }
    if (scene->window && window_has_room() && fake_in(FAKE_FRESH) > 0 &&
        !gate_why(&flow.gate) &&
        gate_running(&flow.gate) <= gate_room(&flow.gate))
        turn_fault("a message is overlooked, and a window has room");
    if (passed_ns > 600 * NS_PER_S)
        turn_fault("nothing happens: %ld done, %ld fresh, %ld lent, "
                   "%ld wait, %ld parked",
                   fake_in(FAKE_GONE), fake_in(FAKE_FRESH),
                   fake_in(FAKE_IS_LENT), fake_in(FAKE_WAITS),
                   fake_in(FAKE_PARKED));
    atomic_fetch_add(&virtual_ns, step);
    passed_ns += step;
    time_passes = true;
}

/* ---- a run ---- */

static void scene_open(void)
{
    unsigned cap = scene->steered_by == operator_cap ? CAP_MOST : scene->cap;

    inside = 0;
    inside_most = cap * (scene->window ? WINDOW : 1);
    for (unsigned g = 0; g < GROUPS; g++) {
        next_of[g] = g;
        inside_group[g] = false;
    }
    memset(sent, 0, sizeof sent);
    all_sent = operated = time_passes = false;
    passed_ns = 0;
    was_together = false;
    atomic_store(&virtual_ns, VIRTUAL_START);
    atomic_store(&virtual_tick, 5000); /* code that spins reads the clock */
    flow_settings();
    set.concurrency = scene->cap;
    if (scene->lookahead)
        set.lookahead = scene->lookahead;
    set.window = scene->window ? WINDOW : 1;
    flow_handler.run = scene->window ? NULL : run_one;
    flow_handler.coprocesses =
        scene->window ? window_open(&in_window, cap) : NULL;
    flow_handler.within = true;
    flow_open();
    flow.gate.event = gate_told;
    if (scene->late)
        late_source();
    fake.late = scene->late;
    if (scene->full) {
        fake.refusals = 2;
        fake.refused = -ENOSPC;
    }
}

uint64_t scene_run(const struct turn_plan *plan)
{
    pthread_t thread;
    uint64_t points;

    scene_open();
    turn_begin(plan, nothing_runs);
    pthread_create(&thread, NULL, sender, NULL);
    pthread_detach(thread);
    if (scene->steered_by) {
        pthread_create(&thread, NULL, scene->steered_by, NULL);
        pthread_detach(thread);
    }
    schedule_wake(&flow);
    while (!all_over())
        if (!loop_wait(flow.loop, schedule_wait_ms(&flow)))
            schedule_quiet(&flow);
    for (unsigned n = 0; n < scene->messages; n++)
        if (sent[n]->runs != 1u + (scene->retries && n % scene->retries == 0))
            turn_fault("message %u ran %u times", n, sent[n]->runs);
    gate_hold(&flow.gate, HOLD_STOP);
    peeker_release(flow.peeker);
    pool_close(&flow.pool);
    points = turn_end();
    flow_close();
    together += was_together;
    return points;
}

const char *scene_choose(unsigned i)
{
    together = 0;
    scene = i < sizeof scenes / sizeof *scenes ? &scenes[i] : NULL;
    return scene ? scene->name : NULL;
}

uint64_t scene_together(void)
{
    return together;
}

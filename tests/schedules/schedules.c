/* schedules.c - flow under every order of its threads, as far as that goes
 *
 * Usage: schedules [--scene NAME] [--singles N] [--pairs N] [--runs N]
 *        schedules --scene NAME --seed S --runs 1      once more
 * Gate, schedule, work items, settle and groups, over the source in memory and
 * in virtual time, as the unit tests have them; but with their real threads,
 * pool and loop, of which one runs at a time (turn.h). First each run with no
 * switch but where a thread must wait; then with one switch more, at each point
 * to each other thread; then with two; N of these, evenly, or with 0 all; then
 * N random ones. Each run is to end with every message settled:
 *   no message is slept over: while nobody runs, and nothing says why none is
 *   taken (schedule_why), none is ready; no lock waits for itself
 *   no message runs twice at once, nor more often than it was told to
 *   no more handlers run than the cap allows
 *   a group's messages run one by one, in their order
 * What is wrong is printed with what to give to see it again: status 1.
 * Only orders of steps are tried; those of memory are the thread sanitizer's.
 */
#include "tests/unit/flow/flow_fixture.h"

#include <stdlib.h>
#include <sys/epoll.h>

#include "tests/schedules/turn.h"

/* The linker gives it its callers (--wrap). */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum { MESSAGES = 6, GROUPS = 3, CAP_MOST = 3, INSIDE = 4, OTHERS = 3 };

/* What is tried, and how. */
struct scene {
    const char *name;
    unsigned messages, cap, groups; /* groups 0: none */
    unsigned lookahead;
    unsigned retries;            /* each such message fails at first; 0: none */
    bool late;                   /* the source settles late */
    bool full;                   /* it refuses twice: no space */
    bool quick;                  /* handlers take no time */
    bool at_once;                /* a retry waits for nothing */
    void *(*steered_by)(void *); /* one more thread; NULL: none */
};

static const struct scene *scene;
static struct fake_message *sent[MESSAGES];
static unsigned inside, inside_most, next_of[GROUPS];
static bool inside_group[GROUPS], all_sent, operated;
static uint64_t passed_ns;
static uint64_t together; /* runs in which handlers ran beside each other */
static bool was_together;
static bool time_passes;

/* ---- a handler ---- */

static unsigned number_of(const struct delivery *d)
{
    unsigned n = 0;

    while (n < scene->messages && (!sent[n] || &sent[n]->m != d->message))
        n++;
    if (n == scene->messages)
        turn_fault("a message runs that nobody sent");
    return n;
}

static bool time_is(void *arg)
{
    return clock_mono_ns() >= *(const uint64_t *)arg;
}

/* group_enters - alone, and in order */
static void group_enters(unsigned n)
{
    unsigned g = n % scene->groups;

    if (inside_group[g])
        turn_fault("two messages of group %u run at once", g);
    if (n != next_of[g])
        turn_fault("message %u runs, and %u is before it", n, next_of[g]);
    inside_group[g] = true;
}

static void run_one(struct handler *h, struct delivery *d, struct outcome *out)
{
    unsigned n = number_of(d);
    uint64_t until = clock_mono_ns() + (1 + n % 2) * 10 * NS_PER_MS;
    bool fails =
        scene->retries && n % scene->retries == 0 && d->message->failures == 0;

    (void)h;
    was_together |= inside > 0;
    if (++inside > inside_most)
        turn_fault("%u handlers run, and the cap is %u", inside, inside_most);
    if (scene->groups)
        group_enters(n);
    for (unsigned i = 0; i < INSIDE; i++)
        turn_point();
    if (!scene->quick) /* one work item takes all there are, if it is */
        turn_until(time_is, &until);
    for (unsigned i = 0; i < INSIDE; i++)
        turn_point();
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

/* operator_cap - other caps, and a pause */
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

/* operator_answers - what is settled late is settled now */
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
     .groups = 2,
     .lookahead = 1,
     .retries = 4},
    {.name = "late",
     .messages = 4,
     .cap = 2,
     .late = true,
     .steered_by = operator_answers},
    {.name = "full", .messages = 4, .cap = 2, .full = true},
    {.name = "capped_groups",
     .messages = 6,
     .cap = 3,
     .groups = 3,
     .lookahead = 4,
     .steered_by = operator_cap},
};

/* ---- the loop ---- */

static bool all_over(void *arg)
{
    (void)arg;
    timers_run(flow.timers);
    fake_tick();
    return all_sent && (operated || !scene->steered_by) &&
           fake_in(FAKE_GONE) == (long)scene->messages;
}

static int wait_ms(void *arg)
{
    (void)arg;
    return schedule_wait_ms(&flow);
}

static void quiet(void *arg)
{
    (void)arg;
    schedule_quiet(&flow);
}

static void round_over(void *arg)
{
    (void)arg;
}

static const struct loop_hooks rounds = {.finished = all_over,
                                         .wait_ms = wait_ms,
                                         .quiet = quiet,
                                         .round = round_over};

/* gate_told - as the engine */
static void gate_told(void *arg, enum gate_event event)
{
    (void)arg;
    if (event == GATE_CHANGED)
        schedule_poke(&flow);
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

/* nobody_runs - something is to happen by itself, or time is what is missing */
static void nobody_runs(void)
{
    const struct fake_message *due = fake_first();

    if (inside == 0 && schedule_why(&flow) == WHY_NOT_SO) {
        if (fake_in(FAKE_FRESH) > 0)
            turn_fault("a message is slept over");
        if (dispatch_ready(&flow))
            turn_fault("a group is slept over");
        if (ready_waiting(&flow.ready) > 0)
            turn_fault("a message that is lent is slept over");
        if (due && due->due_ns <= clock_steady_ns())
            turn_fault("a message that is due is slept over");
    }
    if (passed_ns > 600 * NS_PER_S)
        turn_fault("nothing happens any more: %ld done, %ld fresh, %ld lent, "
                   "%ld wait, %ld parked",
                   fake_in(FAKE_GONE), fake_in(FAKE_FRESH),
                   fake_in(FAKE_IS_LENT), fake_in(FAKE_WAITS),
                   fake_in(FAKE_PARKED));
    atomic_fetch_add(&virtual_ns,
                     passed_ns < NS_PER_S ? 10 * NS_PER_MS : NS_PER_S);
    passed_ns += passed_ns < NS_PER_S ? 10 * NS_PER_MS : NS_PER_S;
    time_passes = true;
}

/* ---- a run ---- */

static void scene_open(void)
{
    inside = 0;
    inside_most = scene->steered_by == operator_cap ? CAP_MOST : scene->cap;
    for (unsigned g = 0; g < GROUPS; g++) {
        next_of[g] = g;
        inside_group[g] = false;
    }
    memset(sent, 0, sizeof sent);
    all_sent = operated = time_passes = false;
    passed_ns = 0;
    was_together = false;
    atomic_store(&virtual_ns, VIRTUAL_START);
    atomic_store(&virtual_tick, 5000); /* who spins looks at the clock */
    flow_settings();
    set.concurrency = scene->cap;
    if (scene->lookahead)
        set.lookahead = scene->lookahead;
    flow_handler.run = run_one;
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

/* run - once, as planned; the points that there were */
static uint64_t run(const struct turn_plan *plan)
{
    pthread_t thread;
    uint64_t points;

    scene_open();
    turn_begin(plan, nobody_runs);
    pthread_create(&thread, NULL, sender, NULL);
    pthread_detach(thread);
    if (scene->steered_by) {
        pthread_create(&thread, NULL, scene->steered_by, NULL);
        pthread_detach(thread);
    }
    schedule_poke(&flow);
    loop_run(flow.loop, &rounds, NULL);
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

static uint64_t runs;

/* planned - the same, with its name */
static uint64_t planned(const struct turn_plan *plan)
{
    runs++;
    if (plan->rate)
        turn_name("--scene %s --runs 1 --seed %llu", scene->name,
                  (unsigned long long)plan->seed);
    else
        turn_name("scene %s, %u switches: at %llu to %u, at %llu to %u",
                  scene->name, plan->count,
                  (unsigned long long)plan->at[0].step, plan->at[0].which,
                  (unsigned long long)plan->at[1].step, plan->at[1].which);
    return run(plan);
}

/* every - steps of this length take so many of all there are; 0: all */
static uint64_t every(uint64_t all, uint64_t most)
{
    return most && all > most ? all / most : 1;
}

/* each_switch - none; then one, at each point to each other thread; then pairs;
 * so many of them, evenly */
static void each_switch(uint64_t singles, uint64_t pairs)
{
    struct turn_plan plan = {0};
    uint64_t points = planned(&plan);
    uint64_t of_one = points * OTHERS, of_two = of_one * of_one / 2;

    plan.count = 1;
    for (uint64_t i = 0; i < of_one; i += every(of_one, singles)) {
        plan.at[0].step = 1 + i / OTHERS;
        plan.at[0].which = (unsigned)(i % OTHERS);
        planned(&plan);
    }
    plan.count = 2;
    for (uint64_t i = 0; i < of_two; i += every(of_two, pairs)) {
        uint64_t both = i / (OTHERS * OTHERS);

        plan.at[0].step = 1 + both % points;
        plan.at[1].step = plan.at[0].step + 1 + both / points;
        plan.at[0].which = (unsigned)(i % OTHERS);
        plan.at[1].which = (unsigned)(i / OTHERS % OTHERS);
        planned(&plan);
    }
}

/* random_runs - seeds from `seed` on, each with a rate of its own */
static void random_runs(uint64_t seed, uint64_t n)
{
    static const unsigned rates[] = {2, 4, 8, 16, 32, 64, 128, 512};

    for (uint64_t i = 0; i < n; i++) {
        struct turn_plan plan = {.seed = seed + i,
                                 .rate = rates[(seed + i) % 8]};

        planned(&plan);
    }
}

static uint64_t number(const char *text)
{
    char *end;
    uint64_t n = strtoull(text, &end, 10);

    if (*end || end == text) {
        fprintf(stderr, "schedules: \"%s\" is not a number\n", text);
        exit(64);
    }
    return n;
}

int main(int argc, char **argv)
{
    uint64_t n = 200, seed = 0, singles = 200, pairs = 200;
    const char *only = NULL;

    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--runs") == 0)
            n = number(argv[i + 1]);
        else if (strcmp(argv[i], "--seed") == 0)
            seed = number(argv[i + 1]);
        else if (strcmp(argv[i], "--singles") == 0)
            singles = number(argv[i + 1]);
        else if (strcmp(argv[i], "--pairs") == 0)
            pairs = number(argv[i + 1]);
        else if (strcmp(argv[i], "--scene") == 0)
            only = argv[i + 1];
    }
    turn_one_processor();
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
        uint64_t before = runs;

        together = 0;
        scene = &scenes[i];
        if (only && strcmp(only, scene->name) != 0)
            continue;
        if (!seed)
            each_switch(singles, pairs);
        random_runs(seed ? seed : 1, n);
        printf("%s: %llu schedules, in %llu handlers ran side by side\n",
               scene->name, (unsigned long long)(runs - before),
               (unsigned long long)together);
        fflush(stdout);
    }
    printf("%llu schedules: no fault\n", (unsigned long long)runs);
    return 0;
}

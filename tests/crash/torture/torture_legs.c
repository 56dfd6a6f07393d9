/* torture_legs.c - kill at random moments (see torture.h) */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/cli/complain.h"
#include "common/cli/term.h"
#include "tests/crash/torture/torture.h"
#include "tests/crash/torture/torture_feed.h"

#define LEG       50                /* kills between two audits */
#define LIFE_NS   (60 * NS_PER_MS)  /* most from first delivery to kill */
#define EARLY_NS  (30 * NS_PER_MS)  /* most from start to early kill */
#define FIRST_NS  (60 * NS_PER_S)   /* limit for a first delivery */
#define SETTLE_NS (120 * NS_PER_S)  /* limit for settling all messages */
#define TICK_NS   (200 * NS_PER_US) /* interval of looking at the world */
#define LOOK_NS   (4 * NS_PER_MS)   /* ... and at the worker's files */

/* Return a random number below a bound. */
uint64_t torture_random(uint64_t below)
{
    return below ? (uint64_t)random() % below : 0;
}

void torture_nap(uint64_t ns)
{
    struct timespec ts = {.tv_sec = (time_t)(ns / NS_PER_S),
                          .tv_nsec = (long)(ns % NS_PER_S)};

    nanosleep(&ts, NULL);
}

bool torture_over(const struct torture *t)
{
    return t->failed || cli_interrupt_seen() || clock_mono_ns() >= t->end_ns;
}

/* Return the factor for time limits, which are for a quiet machine. */
static uint64_t slow_factor(void)
{
    const char *text = getenv("MQW_TEST_SLOW");
    unsigned long times = text ? strtoul(text, NULL, 10) : 1;

    return times ? times : 1;
}

/* Report a worker that exited although nothing killed or stopped it. */
static bool worker_exited(struct torture *t)
{
    int status;

    if (!worker_ended(t, &status))
        return false;
    fprintf(stderr, "torture: the worker ended by itself, status %x\n",
            (unsigned)status);
    place_print_log(t);
    t->failed = true;
    return true;
}

bool worker_delivers(struct torture *t)
{
    uint64_t end = clock_mono_ns() + FIRST_NS * slow_factor();

    while (!worker_first_ns(t)) {
        if (worker_exited(t))
            return false;
        if (clock_mono_ns() > end) {
            fprintf(stderr, "torture: the worker delivers nothing\n");
            t->failed = true;
            return false;
        }
        torture_nap(TICK_NS);
    }
    return true;
}

/* ---- steering ---- */

/* The mqctl processes beside the worker, and what they cancel. */
static struct {
    pid_t cancel, now;        /* pids; 0: none */
    _Atomic uint64_t *record; /* record of the message to cancel */
    unsigned starts;          /* its deliveries before the cancel */
    bool unique;              /* a second copy of it may run after the cancel */
    char text[32];            /* name of the message for mqctl */
    char row[64];             /* SQL: table and condition of its row */
} steer;

/* Start mqctl; `more` is a row, an id or a flag. */
static pid_t mqctl_start(struct torture *t, const char *kill_at,
                         const char *verb, const char *more)
{
    char state[PATH_MAX];
    const char *arguments[] = {"mqctl", verb,     "-q", "--state-dir",
                               state,   t->queue, more, NULL};

    snprintf(state, sizeof state, "%s", place_path(t, "state"));
    return program_start(t, kill_at, arguments);
}

/* Choose a row of the spool or of the waiting messages. Return its record;
 * NULL: not a message of this run. */
static _Atomic uint64_t *steer_set(struct torture *t, bool spool, long long row,
                                   struct torture_plan *plan)
{
    snprintf(steer.text, sizeof steer.text, spool ? "spool-%lld" : "%lld", row);
    snprintf(steer.row, sizeof steer.row, "%s = %lld",
             spool ? "spool WHERE key" : "messages WHERE row", row);
    return row > 0 ? letters_record(t, spool ? -row : row, plan) : NULL;
}

/* Choose a delayed message, or with --spool one of the last rows of the spool.
 * Return its record; NULL: there is none. */
static _Atomic uint64_t *steer_choose(struct torture *t,
                                      struct torture_plan *plan)
{
    bool spool = t->options->spool && torture_random(4) != 0;
    const char *sql = spool ? "SELECT key FROM spool WHERE letter IS NULL"
                              " AND NOT flags & 8 ORDER BY key DESC LIMIT 1"
                            : "SELECT row FROM messages WHERE state = 1"
                              " ORDER BY due_ns DESC LIMIT 1";
    _Atomic uint64_t *record = steer_set(t, spool, place_store(t, sql), plan);

    return record && (spool || plan->fate == TORTURE_LATER) ? record : NULL;
}

/* Remember the chosen message. Return false if it is already cancelled. */
static bool steer_take(_Atomic uint64_t *record,
                       const struct torture_plan *plan)
{
    struct torture_record r = torture_record(record ? atomic_load(record) : 0);

    if (!record || r.flags & TORTURE_CANCELLED)
        return false;
    steer.record = record;
    steer.starts = r.starts;
    steer.unique = plan->unique;
    if (plan->unique)
        atomic_fetch_or(record, (uint64_t)TORTURE_KEY_FREE << 32);
    return true;
}

/* Return 1 if the message waits and is cancelled, 0 if it waits, -1 if it has
 * no row. */
static long long steer_state(const struct torture *t)
{
    char sql[128];

    snprintf(sql, sizeof sql, "SELECT (flags & 8) <> 0 FROM %s", steer.row);
    return place_store(t, sql);
}

/* Cancel one message and, at random, run all waiting messages now. */
static void steer_begin(struct torture *t)
{
    struct torture_plan plan = {.fate = TORTURE_DONE};

    if (steer_take(steer_choose(t, &plan), &plan)) {
        steer.cancel = mqctl_start(t, NULL, "cancel", steer.text);
        t->sum.cancels++;
    }
    if (torture_random(4) == 0) {
        steer.now = mqctl_start(t, NULL, "run-now", "--all");
        t->sum.run_nows++;
    }
}

/* Check that the cancelled message was not started meanwhile. It may have been
 * if that attempt failed, so that it waits for the next one, or if it is
 * unique: its second copy may start once the key is free. */
void steer_hold(struct torture *t)
{
    struct torture_record r = torture_record(
        atomic_fetch_or(steer.record, (uint64_t)TORTURE_CANCELLED << 32));

    if (r.starts == steer.starts || r.flags & TORTURE_FAILED || steer.unique)
        return;
    fprintf(stderr, "torture: a message ran though mqctl had cancelled it\n");
    t->failed = true;
}

/* Reap the mqctl processes after the worker was killed. */
static void steer_end(struct torture *t)
{
    int status;

    if (steer.now && waitpid(steer.now, NULL, 0) > 0)
        steer.now = 0;
    if (!steer.cancel || waitpid(steer.cancel, &status, 0) < 0)
        return;
    steer.cancel = 0;
    if (status != 0) {
        /* mqctl may have been killed between its commit and its answer. */
        if (steer_state(t) != 0)
            atomic_fetch_or(steer.record, (uint64_t)TORTURE_UNANSWERED << 32);
        return;
    }
    steer_hold(t);
}

/* ---- steering, at a named step ---- */

bool steer_row(struct torture *t)
{
    struct torture_plan plan = {.fate = TORTURE_DONE};
    long long key = place_store(t, "SELECT key FROM spool WHERE letter IS NULL"
                                   " AND NOT flags & 8"
                                   " ORDER BY key DESC LIMIT 1");
    long long row = place_store(t, "SELECT row FROM messages WHERE state < 3"
                                   " AND NOT flags & 8"
                                   " ORDER BY random() LIMIT 1");

    return steer_take(steer_set(t, key > 0, key > 0 ? key : row, &plan), &plan);
}

/* Return true if the message owns its unique key, so that later copies are
 * dropped. */
static bool has_key(const struct torture *t, uint64_t seq)
{
    char sql[96];

    snprintf(sql, sizeof sql, "SELECT 1 FROM keys WHERE seq = %" PRIu64, seq);
    return place_store(t, sql) == 1;
}

struct held {
    struct torture *t;
    uint64_t seq; /* of the newest message chosen so far; 0: none */
};

/* Visit a slot: choose a message of a group that waits in its slot and that
 * mqctl can name. It must own a unique key, because other messages get their
 * ids later. */
static int held_take(const struct custody_seen *seen, void *arg)
{
    static const struct ulid none;
    struct held *h = arg;
    struct torture_plan plan;

    if (seen->w.state != SLOT_HELD || seen->row || !seen->group[0] ||
        seen->seq < h->seq || memcmp(&seen->id, &none, sizeof none) == 0 ||
        !has_key(h->t, seen->seq) ||
        !steer_take(letters_record_of(h->t, seen->data, seen->data_size, &plan),
                    &plan))
        return 0;
    h->seq = seen->seq;
    ulid_print(seen->id, steer.text);
    snprintf(steer.row, sizeof steer.row,
             "messages WHERE receive_seq = %" PRIu64, seen->seq);
    return 0;
}

bool steer_held(struct torture *t)
{
    struct held h = {.t = t};

    (void)place_custody(t, held_take, &h);
    return h.seq != 0;
}

void steer_unanswered(void)
{
    atomic_fetch_or(steer.record, (uint64_t)TORTURE_UNANSWERED << 32);
}

bool steer_begun(const struct torture *t)
{
    return torture_record(atomic_load(steer.record)).generation ==
           t->worker.generation;
}

bool steer_marked(const struct torture *t)
{
    return steer_state(t) == 1;
}

int steer_cancel(struct torture *t, const char *kill_at)
{
    pid_t pid = mqctl_start(t, kill_at, "cancel", steer.text);
    int status;

    if (waitpid(pid, &status, 0) < 0)
        torture_die("waitpid of mqctl failed");
    t->sum.cancels++;
    if (status == 0 || steer_marked(t))
        steer_hold(t);
    return status;
}

/* ---- kills ---- */

/* Start a worker and kill it at a random moment. */
static void kill_once(struct torture *t)
{
    bool early = torture_random(4) == 0;

    worker_start(t, NULL, NULL);
    if (t->options->steer)
        steer_begin(t);
    if (early)
        torture_nap(torture_random(EARLY_NS));
    else if (worker_delivers(t))
        torture_nap(torture_random(LIFE_NS));
    if (t->worker.pid == 0 || worker_exited(t))
        return;
    worker_note(t, clock_mono_ns());
    worker_kill(t);
    t->sum.kills++;
    steer_end(t);
}

/* Wait until all messages are settled. Return false if that fails. */
static bool wait_settled(struct torture *t)
{
    uint64_t end = clock_mono_ns() + SETTLE_NS * slow_factor();

    while (!feed_paused(t->world) || !place_settled(t)) {
        if (worker_exited(t) || !feed_ok(t->world)) {
            t->failed = true;
            return false;
        }
        if (clock_mono_ns() > end) {
            t->failed = true;
            audit_stuck(t);
            return false;
        }
        torture_nap(LOOK_NS);
        if (t->options->points && feed_paused(t->world))
            letters_unstrand(t);
    }
    return true;
}

bool leg_end(struct torture *t)
{
    feed_pause(t->world);
    worker_start(t, NULL, NULL);
    if (wait_settled(t))
        worker_stop(t);
    else if (t->worker.pid)
        worker_kill(t);
    if (!t->failed)
        audit(t);
    t->sum.legs++;
    feed_resume(t->world);
    return !t->failed;
}

/* Start or pause the syncer for this leg. */
static void sync_choose(struct torture *t)
{
    uint64_t when = t->options->syncer;

    if (when == SYNCER_ALWAYS || (when == SYNCER_LEGS && t->sum.legs % 2))
        syncer_start(t);
    else
        syncer_stop();
}

/* Kill up to LEG workers. */
static void leg_run(struct torture *t, uint64_t kills)
{
    sync_choose(t);
    for (unsigned i = 0; i < LEG && t->sum.kills < kills; i++) {
        if (torture_over(t) || feed_spent(t->world))
            return;
        kill_once(t);
    }
}

void legs_run(struct torture *t, uint64_t kills)
{
    struct term_progress bar;

    term_progress_start(&bar, "killing", kills);
    feed_start(t->world, t->queue);
    while (t->sum.kills < kills && !torture_over(t)) {
        leg_run(t, kills);
        if (!t->failed)
            leg_end(t);
        term_progress_step(&bar, t->sum.kills);
    }
    syncer_end();
    term_progress_end(&bar);
}

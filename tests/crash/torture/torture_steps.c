/* torture_steps.c - kill at every step of a message or of a program (see
 * torture.h)
 *
 * A step is one user instruction of the receiving thread, between the return of
 * mq_timedreceive with a message and its next call. With --every-change only
 * the instructions count that are system calls or change what outlives the
 * worker (torture_changes.h). With --every-call a step is the moment before or
 * after a system call of that thread, until the worker exits; for a program, of
 * its first thread, from its start to its exit.
 *
 * Each try sends some messages, starts a worker, kills it k steps after it has
 * received message NTH, and lets the next worker settle all messages. No other
 * messages are sent and all are alike, so the steps are the same in each try,
 * except for decisions that depend on the clock. k grows by --stride until
 * --ends tries in a row reached the end of the steps.
 *
 * Several jobs share the tries. Each is a process with its own queue, folders
 * in memory and processor.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <mqueue.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/crash/torture/torture.h"
#include "tests/crash/torture/torture_changes.h"
#include "tests/crash/torture/torture_feed.h"
#include "tests/crash/torture/torture_tracer.h"

#define LEG 10 /* tries between two audits */
/* Delay of delayed messages; a worker has started by then. */
#define LATER_NS (200 * NS_PER_MS)

/* Messages of a try, and which of them is traced. With fewer before it, its
 * slot would be a new one; with more, the worker would take the tracer's time
 * for the handler's. The messages behind it must run beside the killed one. */
enum { MESSAGES = 5, NTH = 3 };
/* --every-call has many more steps, so one message before and one behind it
 * do. */
enum { MESSAGES_CALLS = 3, NTH_CALLS = 2 };

/* Results of a job. */
struct result {
    struct torture_sum sum;
    bool failed, refused;
};

/* a = atomic   j = written by the job, read after its end */
struct steps {
    _Atomic uint64_t tries;              /* a tries of all jobs that have
                                          * begun */
    _Atomic uint64_t last;               /* a most steps of a try without
                                          * end */
    _Atomic uint64_t shortest, longest;  /* a fewest and most steps to the
                                          * end */
    atomic_uint ends;                    /* a  tries in a row that reached the
                                          * end */
    struct result results[TORTURE_JOBS]; /* j */
};

/* A job, in its process. */
struct job {
    struct torture *t;
    struct steps *shared;
    uint64_t leg[LEG]; /* k of each try since the last audit */
    unsigned tries;    /* tries since the last audit */
    uint64_t first;    /* index of the first message since the last audit */
};

/* ---- a try ---- */

static unsigned message_count(const struct torture *t)
{
    return t->options->calls ? MESSAGES_CALLS : MESSAGES;
}

/* Send the messages of a try; each try continues the numbers. */
static void messages_send(const struct torture *t)
{
    _Atomic uint64_t *sent = &t->world->producers[0].sent;
    mqd_t mq = mq_open(t->queue, O_WRONLY | O_NONBLOCK);
    unsigned char message[TORTURE_MOST];
    struct torture_plan plan;

    for (unsigned i = 0; i < message_count(t); i++) {
        size_t size;

        torture_plan(torture_number(0, atomic_load(sent)), &plan);
        size = torture_make(&plan, clock_wall_ns() + LATER_NS, message);
        if (mq < 0 ||
            mq_send(mq, (const char *)message, size, plan.priority) < 0)
            torture_die("%s: %s", t->queue, strerror(errno));
        atomic_fetch_add(sent, 1);
    }
    mq_close(mq);
}

/* Start a worker that exits when nothing is left to do. Delayed messages are
 * due before its idle time is over. */
static void worker_start_idle(struct torture *t, bool traced)
{
    static const char *const idle[PATHS] = {
        [PATH_RETRY] = "--exit-when-idle=60ms",
        [PATH_LATER] = "--exit-when-idle=400ms",
        [PATH_AT] = "--exit-when-idle=400ms",
    };
    const char *until = idle[t->options->path];
    const char *const more[] = {"-c", "1", until ? until : "--exit-when-idle",
                                NULL};

    t->traced = traced;
    worker_start(t, NULL, more);
}

/* Raise *most to `value` unless it is already larger. */
static void most_note(_Atomic uint64_t *most, uint64_t value)
{
    uint64_t known = atomic_load(most);

    while (value > known && !atomic_compare_exchange_weak(most, &known, value))
        continue;
}

static void way_note(struct steps *s, uint64_t steps, bool end)
{
    uint64_t least = atomic_load(&s->shortest);

    if (!end) {
        atomic_store(&s->ends, 0);
        most_note(&s->last, steps);
        return;
    }
    atomic_fetch_add(&s->ends, 1);
    most_note(&s->longest, steps);
    while ((least == 0 || steps < least) &&
           !atomic_compare_exchange_weak(&s->shortest, &least, steps))
        continue;
}

/* Kill a worker over its first messages and start the next one. */
static void recovered_start(struct torture *t, uint64_t messages_begun)
{
    static const char *const until[] = {"-c", "1", "--exit-when-idle", NULL};
    static const char *const two[] = {"-c", "2", NULL};
    uint64_t begun = atomic_load(&t->world->event_count) + messages_begun;

    t->traced = false;
    atomic_store(&t->world->dawdle_ms, DAWDLE_LONG_MS);
    worker_start(t, NULL, messages_begun > 1 ? two : until);
    while (atomic_load(&t->world->event_count) < begun && !torture_over(t))
        torture_nap(NS_PER_MS);
    worker_kill(t);
    t->sum.kills++;
    atomic_store(&t->world->dawdle_ms, 0);
    t->traced = true;
    worker_start(t, NULL, until);
}

/* Stop the thread where its steps begin. */
static enum tracer_caught caught_at(const struct torture *t, struct tracer *tr)
{
    if (t->options->path == PATH_RESUMED)
        return tracer_catch_call(tr, TORTURE_FIRST_CALL);
    return tracer_catch(tr, t->options->calls ? NTH_CALLS : NTH);
}

/* Let the thread run at most k steps. Return how many it made; *end: it reached
 * the end. */
static uint64_t steps_go(const struct torture *t, struct tracer *tr, uint64_t k,
                         bool *end)
{
    uint64_t sent = atomic_load(&t->world->producers[0].sent), steps;
    struct changes changes;

    if (t->options->calls)
        return tracer_calls(tr, k, end);
    if (!t->options->changes)
        return tracer_step(tr, k, NULL, NULL, end);
    changes_open(&changes, t, torture_number(0, sent - message_count(t)),
                 message_count(t));
    steps = tracer_changes(tr, k, changes_seen, &changes, end);
    changes_close(&changes);
    return steps;
}

/* Run a worker and kill it k steps after the message. Return false if that
 * failed. */
static bool kill_after(struct job *j, uint64_t k)
{
    struct torture *t = j->t;
    enum tracer_caught caught;
    struct tracer tr;
    uint64_t steps;
    bool end;

    if (t->options->path == PATH_RESUMED)
        recovered_start(t, 2);
    else
        worker_start_idle(t, true);
    caught = tracer_start(&tr, t->worker.pid);
    if (caught == TRACER_CAUGHT)
        caught = caught_at(t, &tr);
    t->worker.pid = 0;
    if (caught != TRACER_CAUGHT) {
        t->refused = caught == TRACER_REFUSED;
        t->failed = !t->refused;
        if (t->failed)
            fprintf(stderr, "torture: the worker ended while it was traced\n");
        return false;
    }
    tracer_pass(&tr, "libsqlite3");
    steps = steps_go(t, &tr, k, &end);
    if (!t->options->calls || !end)
        tracer_kill(&tr);
    if (tr.reaped && tr.status != 0) {
        fprintf(stderr,
                "torture: the worker ended after %" PRIu64 ", status "
                "%x\n",
                steps, (unsigned)tr.status);
        place_print_log(t);
        t->failed = true;
        return false;
    }
    t->sum.kills += !tr.reaped;
    way_note(j->shared, steps, end);
    return true;
}

/* ---- a program, from its start to its end ---- */

/* Start a program with something to work on; it stops before its first
 * instruction. */
static pid_t whole_start(struct torture *t)
{
    pid_t pid;

    t->traced = true;
    if (t->options->path == PATH_RECOVERED) {
        recovered_start(t, 1);
        pid = t->worker.pid;
        t->worker.pid = 0;
        return pid;
    }
    if (t->options->path >= PATH_SEND)
        return feed_program(t);
    return letters_start(t, (enum torture_path)t->options->path);
}

/* Finish what the killed program began. Return false after printing what is
 * wrong. */
static bool whole_finish(struct torture *t, bool ended)
{
    t->traced = false;
    if (t->options->path >= PATH_SEND)
        return feed_program_over(t, ended);
    return t->options->path == PATH_RECOVERED ||
           letters_again(t, (enum torture_path)t->options->path, ended);
}

/* Kill a program after k stops before and after its system calls. For a worker
 * that recovers a slot, stores to the slot are stops as well. */
static bool kill_whole(struct job *j, uint64_t k)
{
    struct torture *t = j->t;
    pid_t pid = whole_start(t);
    struct tracer tr;
    uint64_t steps;
    bool end;

    t->refused = tracer_start(&tr, pid) != TRACER_CAUGHT;
    if (t->refused)
        return false;
    tr.tid = pid;
    if (t->options->path == PATH_RECOVERED)
        tracer_watch(&tr, place_slot(t));
    steps = tracer_calls(&tr, k, &end);
    if (!end && t->options->path != PATH_RECOVERED && tracer_shares(&tr)) {
        fprintf(
            stderr,
            "torture: the program shares memory, so calls are not enough\n");
        t->failed = true;
    }
    if (!end)
        tracer_kill(&tr);
    t->sum.kills += !end;
    way_note(j->shared, steps, end);
    t->failed |= !whole_finish(t, end);
    return !t->failed;
}

/* Run workers until all messages are settled. */
static bool workers_recover(struct torture *t)
{
    uint64_t end = clock_mono_ns() + tracer_limit_s() * NS_PER_S;
    int status;

    do {
        worker_start_idle(t, false);
        tracer_wait(t->worker.pid, &status);
        t->worker.pid = 0;
        if (status != 0) {
            fprintf(stderr, "torture: the next worker ended, status %x\n",
                    (unsigned)status);
            place_print_log(t);
            t->failed = true;
        } else if (clock_mono_ns() > end) {
            audit_stuck(t);
            t->failed = true;
        }
    } while (!t->failed && !place_settled(t));
    return !t->failed;
}

/* Audit; if something is wrong, print which messages belong to which kill. */
static void leg_audit(struct job *j)
{
    struct torture *t = j->t;

    if (!t->failed)
        audit(t);
    for (unsigned i = 0; t->failed && i < j->tries; i++)
        fprintf(stderr,
                "torture: %u messages from %" PRIu64
                " on: killed after %" PRIu64 "\n",
                message_count(t),
                torture_number(0, j->first + i * message_count(t)), j->leg[i]);
    t->sum.legs++;
    j->tries = 0;
    j->first = atomic_load(&t->world->producers[0].sent);
}

static bool works_on_letters(uint64_t path)
{
    return path == PATH_REPLAY || path == PATH_RAW || path == PATH_REMOVE ||
           path == PATH_IMPORT || path == PATH_REPLAYED;
}

/* Make one try. Faults that handlers found are printed at once. */
static bool try_one(struct job *j, uint64_t k)
{
    struct torture *t = j->t;

    j->leg[j->tries++] = k;
    if (t->options->path < PATH_SEND)
        messages_send(t);
    if (works_on_letters(t->options->path) && !workers_recover(t))
        return false;
    if (t->options->path == PATH_REPLAYED)
        letters_replay(t);
    if (!(t->options->path < PATH_WHOLE ? kill_after : kill_whole)(j, k))
        return false;
    workers_recover(t);
    if (t->failed || j->tries == LEG || atomic_load(&t->world->fault_count))
        leg_audit(j);
    return !t->failed;
}

/* ---- jobs ---- */

void processor_take(unsigned nth)
{
    cpu_set_t all, one;
    size_t cpu = 0;

    if (sched_getaffinity(0, sizeof all, &all) < 0)
        return; /* more processors than the set has room for */
    nth %= (unsigned)CPU_COUNT(&all);
    while (!CPU_ISSET(cpu, &all) || nth-- > 0)
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
}

/* Make tries until none are left. */
static _Noreturn void job_run(struct torture *t, struct steps *s,
                              unsigned number)
{
    const struct torture_options *o = t->options;
    struct result *result = &s->results[number];
    struct job j = {.t = t, .shared = s};
    uint64_t i;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 1); /* no commit waits for a disk */
    processor_take(number);
    result->failed = true; /* in case the job dies */
    place_open(t);
    while (atomic_load(&s->ends) < o->ends && !torture_over(t) &&
           (i = atomic_fetch_add(&s->tries, 1)) < o->kills &&
           try_one(&j, o->from + i * o->stride))
        continue;
    if (!t->failed && !t->refused && j.tries)
        leg_audit(&j);
    audit_leftovers(t);
    result->sum = t->sum;
    result->refused = t->refused;
    result->failed = t->failed;
    place_close(t);
    exit(0);
}

/* Add what traced runs count. */
static void sum_add(struct torture_sum *to, const struct torture_sum *from)
{
    to->kills += from->kills;
    to->legs += from->legs;
    to->messages += from->messages;
    to->deliveries += from->deliveries;
    to->repeats += from->repeats;
    to->unseen += from->unseen;
    to->retries += from->retries;
    to->dead += from->dead;
    to->discarded += from->discarded;
    to->inferred += from->inferred;
    to->cut += from->cut;
    to->replays += from->replays;
}

static void steps_print(const struct torture *t, const struct steps *s)
{
    const struct torture_options *o = t->options;
    static const char *const paths[PATHS] = {
        "done",     "retry",   "dead",      "discard", "later", "group",
        "replayed", "resumed", "recovered", "replay",  "raw",   "remove",
        "import",   "send",    "unique",    "at"};
    const char *what = o->calls     ? "stop"
                       : o->changes ? "change"
                                    : "instruction";

    printf("path %s: %" PRIu64 " kills, one each %" PRIu64 " %s%s from %" PRIu64
           " to %" PRIu64 " after %s",
           paths[o->path], t->sum.kills, o->stride, what,
           o->stride == 1 ? "" : "s", o->from, atomic_load(&s->last),
           o->path < PATH_WHOLE ? "a receive" : "its start");
    if (atomic_load(&s->longest))
        printf("; the way ended after %" PRIu64 " to %" PRIu64,
               atomic_load(&s->shortest), atomic_load(&s->longest));
    putchar('\n');
}

void steps_run(struct torture *t)
{
    struct steps *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (s == MAP_FAILED)
        torture_die("out of memory");
    for (unsigned i = 0; i < t->options->jobs; i++) {
        pid_t pid = fork();

        if (pid < 0)
            torture_die("fork: %s", strerror(errno));
        if (pid == 0)
            job_run(t, s, i);
    }
    while (wait(NULL) > 0 || errno == EINTR)
        continue;
    for (unsigned i = 0; i < t->options->jobs; i++) {
        t->failed |= s->results[i].failed;
        t->refused |= s->results[i].refused;
        sum_add(&t->sum, &s->results[i].sum);
    }
    t->failed |= t->sum.kills == 0 && !t->refused;
    steps_print(t, s);
    munmap(s, sizeof *s);
}

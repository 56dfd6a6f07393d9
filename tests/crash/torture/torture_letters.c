/* torture_letters.c - replay, discard and move letters while everything else
 * goes on (see torture.h) */
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "common/base/clock.h"
#include "tests/crash/torture/torture.h"
#include "tests/crash/torture/torture_feed.h"

#define TICK_NS    (2 * NS_PER_MS)
#define SETTLED_NS (NS_PER_S / 2) /* a replayed letter is settled by then */
#define STRANDED   "SELECT count(*) FROM messages WHERE state = 4"

static pid_t sender; /* pid of letters_send; 0: none */

_Atomic uint64_t *letters_record_of(struct torture *t,
                                    const unsigned char *data, size_t size,
                                    struct torture_plan *plan)
{
    const unsigned char *body = audit_body(data, &size);

    if (size < TORTURE_TINY || torture_check(body, size, plan) == TORTURE_WRONG)
        return NULL;
    return torture_record_of(t->world, plan->number);
}

_Atomic uint64_t *letters_record(struct torture *t, long long row,
                                 struct torture_plan *plan)
{
    unsigned char data[TORTURE_MOST];
    size_t size = row > 0 || row < -1 ? place_row(t, row, data) : 0;

    return letters_record_of(t, data, size, plan);
}

static void record_flag(_Atomic uint64_t *record, unsigned flags)
{
    if (record)
        atomic_fetch_or(record, (uint64_t)flags << 32);
}

/* Flag the record of a letter before something happens to the letter. */
static void letter_flag(struct torture *t, long long row, unsigned flags)
{
    struct torture_plan p;
    _Atomic uint64_t *record = letters_record(t, row, &p);

    /* A message without an end died of a simulated power cut. Its group went on
     * without it, so it has no place in the order any more. */
    if (record && torture_record(atomic_load(record)).ends == 0)
        flags |= TORTURE_TORN;
    record_flag(record, flags);
}

/* Start mqdlq for one letter. */
static pid_t letter_start(struct torture *t, const char *verb, long long row,
                          const char *kill_at, const char *more)
{
    char state[PATH_MAX], number[32];
    const char *arguments[] = {"mqdlq",  verb,   "--state-dir", state,
                               t->queue, number, more,          NULL};

    snprintf(state, sizeof state, "%s", place_path(t, "state"));
    snprintf(number, sizeof number, "%lld", row);
    return program_start(t, kill_at, arguments);
}

/* Run mqdlq for one letter and return its wait status. */
static int letter_verb(struct torture *t, const char *verb, long long row,
                       const char *kill_at, const char *more)
{
    pid_t pid = letter_start(t, verb, row, kill_at, more);
    int status;

    if (waitpid(pid, &status, 0) < 0)
        torture_die("waitpid: %s", strerror(errno));
    return status;
}

static long long letter_any(const struct torture *t)
{
    return place_store(t, "SELECT row FROM messages WHERE state = 3 "
                          "ORDER BY random() LIMIT 1");
}

static bool was_killed(int status)
{
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

/* Replay a letter that may already be in the queue, so it may arrive twice. */
static void letter_resend(struct torture *t, long long row)
{
    letter_flag(t, row, TORTURE_REPLAYED | TORTURE_MAY_REPEAT);
    (void)letter_verb(t, "replay", row, NULL, "--again");
}

/* The letter of letters_start, and how many letters there were before. */
static long long begun, before;

#define LETTERS "SELECT count(*) FROM messages WHERE state = 3"

void letters_replay(struct torture *t)
{
    char state[PATH_MAX], sql[96];
    const char *arguments[] = {"mqdlq",  "replay", "--state-dir", state,
                               t->queue, "--all",  NULL};
    long long row = 0;

    snprintf(state, sizeof state, "%s", place_path(t, "state"));
    for (;;) {
        snprintf(sql, sizeof sql,
                 "SELECT row FROM messages WHERE state = 3 AND row > %lld "
                 "ORDER BY row",
                 row);
        row = place_store(t, sql);
        if (row < 0)
            break;
        letter_flag(t, row, TORTURE_REPLAYED);
        t->sum.replays++;
    }
    if (program_run(t, NULL, arguments) != 0)
        torture_die("mqdlq replay --all failed");
}

/* Start an import of a letter, which is exported and discarded first. */
static pid_t import_start(struct torture *t)
{
    char state[PATH_MAX], file[PATH_MAX], command[3 * PATH_MAX];
    const char *arguments[] = {"mqdlq",  "import", "--state-dir", state,
                               t->queue, file,     NULL};

    snprintf(state, sizeof state, "%s", place_path(t, "state"));
    snprintf(file, sizeof file, "%s", place_path(t, "letter"));
    if (begun > 0) {
        bool traced = t->traced;

        snprintf(command, sizeof command,
                 "%s/mqdlq export --state-dir %s %s %lld >%s", t->bins, state,
                 t->queue, begun, file);
        t->traced = false;
        if (system(command) != 0 ||
            letter_verb(t, "discard", begun, NULL, NULL) != 0)
            torture_die("letter %lld: no export", begun);
        t->traced = traced;
        begun = 0;
    }
    return program_start(t, NULL, arguments);
}

pid_t letters_start(struct torture *t, enum torture_path path)
{
    before = place_store(t, LETTERS);
    begun = letter_any(t);
    if (begun < 0)
        torture_die("there is no letter");
    if (path == PATH_IMPORT)
        return import_start(t);
    letter_flag(t, begun,
                path == PATH_REMOVE ? TORTURE_REMOVED
                                    : TORTURE_REPLAYED | TORTURE_MAY_REPEAT);
    t->sum.replays += path != PATH_REMOVE;
    return letter_start(t, path == PATH_REMOVE ? "discard" : "replay", begun,
                        NULL, path == PATH_RAW ? "--raw" : NULL);
}

bool letters_again(struct torture *t, enum torture_path path, bool ended)
{
    long long now = place_store(t, LETTERS);
    bool done = path == PATH_IMPORT ? now == before : now == before - 1;

    if (ended && !done) {
        fprintf(stderr, "torture: mqdlq ended; letters: %lld, and %lld now\n",
                before, now);
        return false;
    }
    if (path == PATH_IMPORT && !done)
        waitpid(import_start(t), NULL, 0);
    else if (path == PATH_REMOVE && !done)
        (void)letter_verb(t, "discard", begun, NULL, NULL);
    else if (path == PATH_RAW && !done)
        (void)letter_verb(t, "replay", begun, NULL, "--raw");
    else if (path == PATH_REPLAY && place_store(t, STRANDED) > 0)
        letter_resend(t, begun);
    return true;
}

void letters_unstrand(struct torture *t)
{
    uint64_t end = clock_mono_ns() + SETTLED_NS;
    long long row;

    while (place_store(t, STRANDED) > 0) {
        torture_nap(TICK_NS);
        if (clock_mono_ns() < end)
            continue;
        row = place_store(t, "SELECT min(row) FROM messages WHERE state = 4");
        if (row > 0)
            letter_resend(t, row);
        end = clock_mono_ns() + SETTLED_NS;
    }
}

bool letters_strand(struct torture *t)
{
    long long row = letter_any(t);

    if (row < 0)
        return false;
    letter_flag(t, row, TORTURE_REPLAYED | TORTURE_MAY_REPEAT);
    /* A letter without room for a header is sent unmarked, and mqdlq would wait
     * for room in the queue because no worker is running. */
    (void)letter_verb(t, "replay", row, "replay_before_send", "--wait=10ms");
    return place_store(t, STRANDED) > 0;
}

void letters_reboot(struct torture *t)
{
    (void)place_store(t,
                      "UPDATE messages SET boot = 'another' WHERE state = 4");
}

void letters_send(struct torture *t)
{
    long long row = letter_any(t);

    if (row < 0)
        return;
    letter_flag(t, row, TORTURE_REPLAYED);
    sender = letter_start(t, "replay", row, NULL, NULL);
    t->sum.replays++;
}

void letters_sent(struct torture *t)
{
    if (sender == 0)
        return;
    if (waitpid(sender, NULL, WNOHANG) == 0) {
        worker_start(t, NULL, NULL);
        waitpid(sender, NULL, 0);
        worker_kill(t);
    }
    sender = 0;
}

/* Kill mqdlq at a step. A running worker makes room for what mqdlq sends. */
bool letters_play(struct torture *t, const char *point)
{
    bool discard = strncmp(point, "letters_discard_", 16) == 0;
    bool raw = strncmp(point, "replay_moved_", 13) == 0;
    long long row;
    int status;

    worker_start(t, NULL, NULL);
    if (!worker_delivers(t))
        return false;
    row = letter_any(t);
    if (row < 0) {
        torture_nap(TICK_NS * 10); /* some messages die meanwhile */
        worker_kill(t);
        return false;
    }
    letter_flag(t, row,
                discard ? TORTURE_REMOVED
                        : TORTURE_REPLAYED | TORTURE_MAY_REPEAT);
    status = letter_verb(t, discard ? "discard" : "replay", row, point,
                         raw ? "--raw" : NULL);
    if (discard || raw) {
        if (raw) /* the letter may still be there, and arrive again */
            letter_flag(t, row, TORTURE_REPLAYED);
        (void)letter_verb(t, discard ? "discard" : "replay", row, NULL,
                          raw ? "--raw" : NULL);
    }
    /* The letter waits behind its group while a message of the group is
     * retried. Pause the producers, which fill the group faster than it can
     * run. */
    feed_pause(t->world);
    letters_unstrand(t);
    feed_resume(t->world);
    worker_kill(t);
    t->sum.replays += !discard;
    return was_killed(status);
}

/* ---- the dead-letter queue ---- */

const char *letters_queue(const struct torture *t)
{
    static char name[sizeof t->queue + 8];

    snprintf(name, sizeof name, "%s-dead", t->queue);
    return name;
}

void letters_receive(struct torture *t)
{
    static unsigned char data[TORTURE_MOST];
    mqd_t mq = mq_open(letters_queue(t), O_RDONLY | O_NONBLOCK);
    ssize_t n;

    if (mq < 0)
        return; /* the worker has not created it yet */
    while ((n = mq_receive(mq, (char *)data, sizeof data, NULL)) >= 0) {
        struct torture_plan p;
        _Atomic uint64_t *record = letters_record_of(t, data, (size_t)n, &p);

        if (!record) {
            fprintf(stderr, "torture: a moved letter is none of ours\n");
            t->failed = true;
        }
        record_flag(record, TORTURE_REMOVED);
        t->sum.moved++;
    }
    mq_close(mq);
}

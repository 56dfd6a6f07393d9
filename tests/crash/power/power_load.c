/* power_load.c - a run that uses every kind of write (see power.h)
 *
 * Three workers, the second of which is killed: done messages, retries, dead
 * letters that are replayed and discarded, delayed messages that are run now
 * and cancelled, held groups, unique keys, a spool of both kinds, --max-dead.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/crash/power/power.h"

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})
#define RECORD    "plugins/power_record.so"
#define LIMIT_MS  30000

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

static int run(const struct power_place *at, const char *const *argv)
{
    return power_end(power_start(at, argv, RECORD, "tools"), argv[0]);
}

/* Repeat a tool until it succeeds: it may have come too early. */
static void run_until_done(const struct power_place *at,
                           const char *const *argv)
{
    for (int i = 0; run(at, argv) != 0; i++, nap())
        if (i == LIMIT_MS / 20)
            power_fail("%s %s does not succeed", argv[0], argv[1]);
}

/* Return how many handlers have finished. */
static unsigned handlers_finished(const struct power_place *at)
{
    FILE *in = fopen(at->witness, "re");
    unsigned count = 0;
    char line[96];

    while (in && fgets(line, sizeof line, in))
        count += line[0] == 'E';
    if (in)
        fclose(in);
    return count;
}

static void wait_finished(const struct power_place *at, unsigned count)
{
    for (int i = 0; handlers_finished(at) < count; i++, nap())
        if (i == LIMIT_MS / 2)
            power_fail("%u of %u handlers ended", handlers_finished(at), count);
}

static const char *id_of(unsigned number)
{
    static char id[4][32];
    static unsigned at;

    at = (at + 1) % 4;
    snprintf(id[at], sizeof id[at], "01JD0000000000000000%06u", number);
    return id[at];
}

static struct power_trace trace_join(const struct power_place *at)
{
    struct power_trace trace;

    power_trace_open(&trace, at->trace, false);
    power_trace_lock(&trace);
    return trace;
}

static void trace_leave(struct power_trace *trace)
{
    power_trace_unlock(trace);
    munmap(trace->head, POWER_PAGE);
    close(trace->fd);
}

/* Record what a tool has reported. */
static void trace_note(const struct power_place *at, char what, unsigned number)
{
    struct power_trace trace = trace_join(at);
    char line[32];
    int n = snprintf(line, sizeof line, "%c %u\n", what, number);

    power_trace_add(&trace, (struct power_record){.kind = POWER_WORLD}, "", "",
                    line, (size_t)n);
    trace_leave(&trace);
}

static void message_send(const struct power_place *at, unsigned number,
                         const char *word, const char *flag, const char *value)
{
    char body[48];

    snprintf(body, sizeof body, "#%u %s", number, word);
    if (run(at, LIST("mqsend", "-q", "--id", id_of(number), flag, value,
                     at->queue, body)) != 0)
        power_fail("mqsend fails");
}

/* Send messages without ids, with this priority. */
static void messages_send(const struct power_place *at, unsigned from,
                          unsigned until, const char *priority)
{
    static const char *const words[] = {"done",  "done", "done",
                                        "retry", "done", "dead"};
    char path[160];
    FILE *out;

    snprintf(path, sizeof path, "%s/lines", at->base);
    out = fopen(path, "we");
    for (unsigned i = from; out && i < until; i++)
        fprintf(out, "#%u %s\n", i, words[i % 6]);
    if (!out || fclose(out) != 0 ||
        run(at, LIST("mqsend", "-q", "-p", priority, "--lines", "--file", path,
                     at->queue)) != 0)
        power_fail("mqsend fails");
}

#define WORKER(...)                                                            \
    power_start(at,                                                            \
                LIST("mqworker", "-q", "-c", "2", "--queue-depth", "10",       \
                     "--message-size", "400", "--backoff", "10ms", "--jitter", \
                     "0", "--plugin", plugin, "--on-group-dead", "hold",       \
                     "--state-dir", at->root, "--runtime-dir", at->memory,     \
                     __VA_ARGS__, at->queue),                                  \
                RECORD, "worker")

static void worker_stop(pid_t pid)
{
    int status;

    kill(pid, SIGTERM);
    status = power_end(pid, "mqworker");
    if (status != 0)
        power_fail("the recorded worker exited with status %d", status);
}

/* Kill a worker outside of recorded calls. Otherwise a call could have changed
 * the disk without a whole record of it, and the next worker would find what
 * the record does not have. */
static void worker_kill(const struct power_place *at, pid_t pid)
{
    struct power_trace trace = trace_join(at);
    int status;

    kill(pid, SIGKILL);
    status = power_end(pid, "mqworker");
    trace_leave(&trace);
    if (status != 128 + SIGKILL)
        power_fail("the worker exited before its kill: %d", status);
}

/* Replay a letter, which restarts its attempts. That is recorded before the
 * replay, while the message cannot run. */
static void letter_replay(const struct power_place *at, unsigned number)
{
    run_until_done(at, LIST("mqdlq", "show", "--state-dir", at->root, at->queue,
                            id_of(number)));
    trace_note(at, 'R', number);
    run_until_done(at, LIST("mqdlq", "replay", "-q", "--state-dir", at->root,
                            at->queue, id_of(number)));
}

/* Run tools on letters and on waiting messages. */
static void tools_run(const struct power_place *at)
{
    run_until_done(at, LIST("mqctl", "run-now", "-q", "--state-dir", at->root,
                            at->queue, id_of(40)));
    for (unsigned i = 41; i < 44; i++) {
        run_until_done(at, LIST("mqctl", "cancel", "-q", "--state-dir",
                                at->root, at->queue, id_of(i)));
        trace_note(at, 'C', i);
    }
    for (unsigned i = 2; i < 15; i += 12) {
        run_until_done(at, LIST("mqdlq", "discard", "-q", "--state-dir",
                                at->root, at->queue, id_of(i)));
        trace_note(at, 'D', i);
    }
    letter_replay(at, 6);
}

void power_load(const struct power_place *at)
{
    static const char *const words[] = {"done", "retry", "dead", "done"};
    const char *dir = getenv("MQW_HANDLERS");
    char plugin[PATH_MAX];
    pid_t pid;

    snprintf(plugin, sizeof plugin, "%s/plugins/power.so", dir ? dir : ".");
    run_until_done(at, LIST("mqctl", "create", "--queue-depth", "10",
                            "--message-size", "400", at->queue));
    pid = WORKER("--max-attempts", "3");
    for (unsigned i = 0; i < 24; i++)
        message_send(at, i, words[i % 4], i % 5 ? "--priority" : "--group",
                     i % 5 ? "1" : "g");
    for (unsigned i = 40; i < 48; i++)
        message_send(at, i, "done", "--delay", "1h");
    for (unsigned i = 50; i < 54; i++)
        message_send(at, i, "done", "--unique", "key");
    tools_run(at);
    wait_finished(at, 24);
    worker_stop(pid);

    /* The message of this letter goes through the spool while the letter
     * exists. */
    letter_replay(at, 18);
    pid = WORKER("--spool");
    messages_send(at, 100, 260, "3");
    messages_send(at, 300, 360, "7");
    wait_finished(at, 90);
    worker_kill(at, pid);

    pid = WORKER("--spool", "--spool-sync", "always", "--max-dead", "12");
    messages_send(at, 400, 460, "5");
    wait_finished(at, 300);
    worker_stop(pid);
}

/* jobs.c - see jobs.h */
#include "scripts/mqctl/serve/jobs.h"

#include <bsd/string.h>
#include <bsd/sys/queue.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/cli/complain.h"
#include "common/cli/json_line.h"
#include "scripts/mqctl/serve/events.h"
#include "scripts/mqctl/serve/look.h"

#define BATCH_REPLAY  100
#define BATCH_DISCARD 1000
#define WAIT          "30s" /* for room in the queue, each letter */
#define CANARY_WAIT   "1h"  /* for the end of the first letter */
#define ROWS_KEPT     10000 /* of a finished replay, for its outcome */
#define ID_MOST       (INT64_MAX / 10)

enum job_state { JOB_RUNS, JOB_ENDED, JOB_STOPPED, JOB_FAILED };
static const char *const states[] = {"running", "ended", "stopped", "failed"};

struct job {
    LIST_ENTRY(job) link;
    int64_t id;
    bool discard, again, reset_expiry, stop;
    bool canary; /* send one letter first */
    bool proved; /* that letter is done */
    char queue[QUEUE_NAME_MAX];
    char message[ULID_TEXT]; /* id of the only letter; "": its row names it */
    const char *state_dir;   /* NULL: where the worker finds it */
    int64_t *rows;
    size_t count, next;        /* rows in all; rows of finished batches */
    size_t batch;              /* rows of the running batch */
    uint64_t changed, refused; /* letters that were sent or removed; others */
    json_int_t rate;           /* letters per second; 0: no limit */
    pid_t pid;                 /* process of the batch; 0: none */
    uint64_t due_ns;           /* time of the next batch, monotonic */
    uint64_t started_ns, ended_ns; /* wall clock */
    enum job_state state;
    char line[LOOK_LINE]; /* the first error */
};
static LIST_HEAD(, job) jobs = LIST_HEAD_INITIALIZER(jobs);
static int64_t last_id;
static int id_fd = -1; /* file with the last number; -1: none */

/* Return true while the job waits for its first letter to finish before sending
 * the others. If that letter is gone, the next one takes its place. */
static bool is_canary(const struct job *j)
{
    return j->canary && !j->proved;
}

static struct job *job_find(int64_t id)
{
    struct job *j;

    LIST_FOREACH (j, &jobs, link)
        if (j->id == id)
            return j;
    return NULL;
}

static json_t *job_describe(const struct job *j)
{
    return json_pack(
        "{s:o, s:s, s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:b, s:s?, s:o, s:o, "
        "s:o}",
        "id", json_sprintf("%" PRId64, j->id), "what",
        j->discard ? "discard" : "replay", "queue", json_printable(j->queue),
        "state", states[j->state], "count", (json_int_t)j->count, "taken",
        (json_int_t)j->next, "changed", (json_int_t)j->changed, "refused",
        (json_int_t)j->refused, "rate", j->rate, "canary", j->canary, "verdict",
        !j->canary || j->state == JOB_STOPPED ? NULL
        : j->proved                           ? "done"
        : j->state == JOB_RUNS                ? "waiting"
                                              : "failed",
        "started_at", json_time(j->started_ns), "ended_at",
        json_time(j->ended_ns), "error",
        j->line[0] ? json_string(j->line) : json_null());
}

bool job_rows(int64_t id, struct ask_job *out)
{
    const struct job *j = job_find(id);

    if (!j || j->discard || !j->rows)
        return false;
    *out = (struct ask_job){.queue = j->queue,
                            .rows = j->rows,
                            .count = j->next < j->count ? j->next : j->count,
                            .started_ns = j->started_ns,
                            .sent = j->changed,
                            .ended = j->state != JOB_RUNS};
    return true;
}

json_t *jobs_json(int64_t id)
{
    json_t *list;
    struct job *j = id ? job_find(id) : NULL;

    if (id)
        return j ? job_describe(j) : NULL;
    list = json_array();
    LIST_FOREACH (j, &jobs, link)
        json_array_append_new(list, job_describe(j));
    return json_pack("{s:o}", "jobs", list);
}

/* ---- one batch ---- */

/* Become mqdlq; runs in the child. */
static int batch_run(void *arg)
{
    const struct job *j = arg;
    const char *argv[16] = {"mqdlq", j->discard ? "discard" : "replay",
                            "--json"};
    bool canary = is_canary(j);
    char rate[32];
    size_t n = 3;

    if (!j->discard) {
        argv[n++] = "--wait";
        argv[n++] = canary ? CANARY_WAIT : WAIT;
    }
    if (canary)
        argv[n++] = "--canary";
    if (j->again)
        argv[n++] = "--again";
    if (j->reset_expiry)
        argv[n++] = "--reset-expiry";
    if (j->rate) {
        snprintf(rate, sizeof rate, "%" JSON_INTEGER_FORMAT, j->rate);
        argv[n++] = "--rate";
        argv[n++] = rate;
    }
    if (j->state_dir) {
        argv[n++] = "--state-dir";
        argv[n++] = j->state_dir;
    }
    argv[n++] = j->queue;
    argv[n++] = "-";
    return mqdlq_become(argv);
}

/* Log, for an audit, the subject and the progress of a job. */
static void job_log(const struct job *j)
{
    log_info("web_job", F_INT("job", j->id),
             F_STR("what", j->discard ? "discard" : "replay"),
             F_STR("queue", j->queue), F_STR("state", states[j->state]),
             F_UINT("chosen", j->count), F_UINT("changed", j->changed),
             F_UINT("refused", j->refused), F_STR("error", j->line));
}

static void job_end(struct job *j, enum job_state state)
{
    j->state = state;
    j->ended_ns = clock_wall_ns();
    if (j->discard || j->count > ROWS_KEPT) {
        free(j->rows);
        j->rows = NULL;
    }
    event_send("job", NULL, job_describe(j));
    job_log(j);
}

/* Free the oldest of more than JOBS_KEPT jobs that have ended. Called when a
 * job begins, not when one ends, which happens while the list is walked. */
static void jobs_prune(void)
{
    size_t kept = 0;
    struct job *j, *after;

    LIST_FOREACH_SAFE (j, &jobs, link, after) {
        if (j->state == JOB_RUNS || ++kept <= JOBS_KEPT)
            continue;
        LIST_REMOVE(j, link);
        free(j->rows);
        free(j);
    }
}

/* Take the result of a batch, and end the job if it was the last one. */
static void batch_finish(const struct look_end *end, void *owner)
{
    struct job *j = owner;
    bool stops = end->status == EX_TEMPFAIL || end->status == EX_OSERR ||
                 end->status < 0 || end->status == EX_CANTCREAT ||
                 end->status == EX_IOERR || end->status == EX_USAGE ||
                 end->status == EX_NOPERM;
    char *text = look_output(end);
    /* The last line that mqdlq printed is a summary. */
    json_t *o = json_loads(text ? complaint_of(text) : "", 0, NULL);

    j->changed += (uint64_t)json_integer_value(
        json_object_get(o, j->discard ? "removed" : "sent"));
    j->refused += (uint64_t)json_integer_value(json_object_get(o, "refused"));
    json_decref(o);
    free(text);
    j->pid = 0;
    j->next += j->batch;
    j->proved |= end->status == 0;
    if (end->status && !j->line[0])
        strlcpy(j->line, end->line, sizeof j->line);
    /* A letter that was refused or is gone does not stop the job. */
    if (j->stop)
        job_end(j, JOB_STOPPED);
    else if (stops)
        job_end(j, JOB_FAILED);
    else if (j->next == j->count)
        job_end(j, JOB_ENDED);
    else
        event_send("job", NULL, job_describe(j));
}

/* Start the next batch. If the job has a rate, a batch has at most the letters
 * of one second. The canary is a batch of its own. */
static void batch_start(struct job *j, uint64_t now_ns)
{
    size_t most = j->discard ? BATCH_DISCARD : BATCH_REPLAY;
    int fd = memfd_create("mqctl-rows", MFD_CLOEXEC);
    pid_t pid = fd < 0 ? -errno : 0;

    if (j->rate && (size_t)j->rate < most)
        most = (size_t)j->rate;
    if (is_canary(j))
        most = 1;
    j->batch = j->count - j->next < most ? j->count - j->next : most;
    for (size_t i = j->next; i < j->next + j->batch && !pid; i++)
        if ((j->message[0] ? dprintf(fd, "%s\n", j->message)
                           : dprintf(fd, "%" PRId64 "\n", j->rows[i])) < 0)
            pid = -EIO;
    if (!pid) {
        (void)lseek(fd, 0, SEEK_SET);
        pid = look_start(&(struct look_job){.run = batch_run,
                                            .arg = j,
                                            .input = fd,
                                            .ended = batch_finish,
                                            .owner = j});
    }
    if (fd >= 0)
        close(fd);
    if (pid > 0) {
        j->pid = pid;
        j->due_ns =
            j->rate ? now_ns + (uint64_t)j->batch * NS_PER_S / (uint64_t)j->rate
                    : 0;
        return;
    }
    j->due_ns = now_ns + NS_PER_S / 10;
    if (pid == -EAGAIN)
        return; /* all children are busy: try again then */
    snprintf(j->line, sizeof j->line, "cannot start mqdlq: %s",
             errno_text((int)-pid));
    job_end(j, JOB_FAILED);
}

uint64_t jobs_step(uint64_t now_ns)
{
    uint64_t next = UINT64_MAX;
    struct job *j;

    LIST_FOREACH (j, &jobs, link) {
        if (j->state == JOB_RUNS && !j->pid && j->due_ns <= now_ns)
            batch_start(j, now_ns);
        if (j->state == JOB_RUNS && !j->pid && j->due_ns < next)
            next = j->due_ns;
    }
    return next;
}

void job_stop(int64_t id)
{
    struct job *j = job_find(id);

    if (!j || j->state != JOB_RUNS)
        return;
    j->stop = true;
    if (j->pid)
        kill(j->pid, SIGINT);
    else
        job_end(j, JOB_STOPPED);
}

void jobs_end(void)
{
    struct job *j;

    LIST_FOREACH (j, &jobs, link) {
        if (j->state != JOB_RUNS)
            continue;
        if (!j->line[0])
            strlcpy(j->line, "the server was stopped", sizeof j->line);
        job_stop(j->id);
    }
}

/* ---- numbers ---- */

#define ID_TEXT 21 /* digits of a number, and a newline */

void jobs_open(const char *path)
{
    char text[ID_TEXT + 1] = "";

    id_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                 0600);
    if (id_fd < 0 || pread(id_fd, text, ID_TEXT, 0) < 0) {
        log_warn("web_jobs", F_STR("path", path),
                 F_STR("error", errno_text(errno)),
                 F_STR("next", "jobs are numbered from 1 again"));
        return;
    }
    last_id = strtoll(text, NULL, 10);
    if (last_id < 0 || last_id > ID_MOST)
        last_id = 0;
}

/* ---- a new job ---- */

int64_t jobs_start(const struct serve_ask *a, const struct look_end *look,
                   struct problem *p)
{
    struct job *j = calloc(1, sizeof *j), *other;
    char *rows = look_output(look);
    char text[ID_TEXT + 1];
    unsigned running = 0;
    const char *message;
    json_t *body;

    if (j) { /* a child has checked the members */
        j->rows = (int64_t *)(void *)rows;
        j->count = look->size / sizeof *j->rows;
        body = json_loadb(a->body, a->body_size, 0, NULL);
        j->discard = a->path.route->what == SERVE_DISCARD;
        j->rate = json_integer_value(json_object_get(body, "rate"));
        j->canary = json_is_true(json_object_get(body, "canary"));
        j->reset_expiry = json_is_true(json_object_get(body, "reset_expiry"));
        j->again = json_is_true(json_object_get(body, "again"));
        message = json_string_value(json_object_get(body, "message_id"));
        strlcpy(j->message, message ? message : "", sizeof j->message);
        json_decref(body);
    }
    /* Jobs that wait for their first letter, up to an hour, have a limit of
     * their own. */
    LIST_FOREACH (other, &jobs, link)
        running +=
            j && other->state == JOB_RUNS && is_canary(other) == j->canary;
    if (!j || !rows)
        problem_memory(p);
    else if (running >= (j->canary ? JOBS_CANARY : JOBS_RUNNING))
        problem_fill(
            p, EX_TEMPFAIL,
            j->canary
                ? "%d jobs are waiting for their first letter to finish; wait "
                  "for one of them, or stop one"
                : "%d jobs are running; wait for one of them, or stop one",
            j->canary ? JOBS_CANARY : JOBS_RUNNING);
    else
        p->status = 0;
    if (!j || p->status) {
        free(rows);
        free(j);
        return -1;
    }
    j->id = ++last_id;
    /* Write the number to the file before the job begins, so that a kill in
     * between skips a number and no number is used twice. */
    snprintf(text, sizeof text, "%0*" PRId64 "\n", ID_TEXT - 1, j->id);
    if (id_fd >= 0)
        (void)!pwrite(id_fd, text, ID_TEXT, 0);
    j->state_dir = ask_state_dir(a, a->path.queue);
    strlcpy(j->queue, a->path.queue, sizeof j->queue);
    j->started_ns = clock_wall_ns();
    jobs_prune();
    LIST_INSERT_HEAD(&jobs, j, link);
    event_send("job", NULL, job_describe(j));
    job_log(j);
    return j->id;
}

/* bench_amqp.c - a queue on a broker, beside other consumers of the same queue
 *
 * The queue is a quorum queue as the worker makes it, on a node by itself. It
 * is filled first, with a confirm for each message, and the clock runs while it
 * is emptied: from message number `warm` to the last. All have the same
 * prefetch, and acknowledge each message.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/amqp/broker.h"
#include "tests/bench/amqp/meter.h"
#include "tests/bench/feed.h"
#include "tests/bench/program.h"

#define SIZE      64
#define WARM_PART 20                 /* one in so many, before the clock runs */
#define PREFETCH  "82"               /* what a fast worker with -c 1 has */
#define OPEN_8    "89"               /* and one with --window 8 */
#define PYTHON    "/usr/bin/python3" /* where packages of a system are */
#define SCRIPTS   "tests/bench/amqp/" /* from the top of the tree */
#define GAP_NS    2000000             /* and up to as much again */
#define LATE_WARM 20

static struct meter meter;
static struct broker broker;

/* ---- the bare loop ---- */

/* Take and acknowledge the messages one after the other. */
static void take_all(void)
{
    amqp_connection_state_t c = broker_connect(&broker);
    amqp_bytes_t queue = amqp_cstring_bytes(BENCH_QUEUE);
    amqp_envelope_t e;
    bool last;

    amqp_basic_qos(c, 1, 0, (uint16_t)atoi(PREFETCH), 0);
    amqp_basic_consume(c, 1, queue, amqp_empty_bytes, 0, 0, 0,
                       amqp_empty_table);
    do {
        amqp_maybe_release_buffers(c);
        if (amqp_consume_message(c, &e, NULL, 0).reply_type !=
            AMQP_RESPONSE_NORMAL)
            fail(0, "the bare loop got no message");
        last = meter_count(&meter, e.message.body.bytes, e.message.body.len);
        if (amqp_basic_ack(c, 1, e.delivery_tag, 0) != AMQP_STATUS_OK)
            fail(0, "the bare loop cannot acknowledge");
        amqp_destroy_envelope(&e);
    } while (!last);
    /* This waits until the broker has read the acknowledgements. */
    amqp_connection_close(c, AMQP_REPLY_SUCCESS);
    amqp_destroy_connection(c);
}

/* ---- ours, with a function ---- */

/* Start a worker with the plugin, which ends after the last message. */
static int plugin_start(char file[PATH_MAX + 16])
{
    char plugin[PATH_MAX + 32], arg[PATH_MAX + 64], most[24];
    int folder = (int)(strstr(place->self, "/bench/bench") - place->self);

    snprintf(file, PATH_MAX + 16, "%s/meter", place->dir);
    snprintf(plugin, sizeof plugin, "%.*s/plugins/meter.so", folder,
             place->self);
    snprintf(arg, sizeof arg, "%lu %lu %s", meter.warm, meter.n, file);
    snprintf(most, sizeof most, "%lu", meter.n);
    return program_start_on(broker.operand,
                            (const char *[]){"-c", "1", "--plugin", plugin,
                                             "--plugin-arg", arg,
                                             "--max-deliveries", most, NULL});
}

/* Wait for its end, and read into `meter` what the plugin counted. */
static void plugin_done(int pid, const char *file)
{
    int fd;

    child_done(pid, "mqworker");
    fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, &meter, sizeof meter) != sizeof meter)
        fail(errno, "%s", file);
    close(fd);
}

/* ---- rate ---- */

/* Start a node, and fill its queue with all messages. */
static enum measured filled(const struct task *task)
{
    meter = (struct meter){.warm = task->n / WARM_PART, .n = task->n};
    if (broker_start(&broker) != MEASURED)
        return NOT_BUILT;
    broker_fill(&broker, task->n, task->size);
    return MEASURED;
}

static enum measured rate(double value[ROWS_MOST])
{
    value[0] = (double)(meter.n - meter.warm) * 1e9 / (double)meter.ns;
    broker_over(&broker);
    return MEASURED;
}

static enum measured bare_rate(const struct task *task, double value[ROWS_MOST])
{
    if (filled(task) != MEASURED)
        return NOT_BUILT;
    take_all();
    return rate(value);
}

static enum measured plugin_rate(const struct task *task,
                                 double value[ROWS_MOST])
{
    char file[PATH_MAX + 16];

    if (filled(task) != MEASURED)
        return NOT_BUILT;
    plugin_done(plugin_start(file), file);
    return rate(value);
}

/* ---- from the send to the handler ---- */

/* Start a process that sends a message now and then, with the time in it. */
static int trickle_start(const struct task *task)
{
    char body[SIZE] = "";
    uint64_t seed = task->run, now;
    amqp_connection_state_t c;
    int pid = fork_bound();

    if (pid > 0)
        return pid;
    c = broker_connect(&broker);
    for (unsigned long i = 0; i < meter.n; i++) {
        uint64_t gap = GAP_NS + random_next(&seed) % GAP_NS;

        nanosleep(&(struct timespec){.tv_nsec = (long)gap}, NULL);
        now = meter_now();
        memcpy(body, &now, sizeof now);
        broker_publish(c, body, sizeof body);
    }
    amqp_connection_close(c, AMQP_REPLY_SUCCESS);
    _exit(0);
}

/* Measure the time from send to arrival, in take_all or (`ours`) the plugin. */
static enum measured late(const struct task *task, bool ours,
                          double value[ROWS_MOST])
{
    char file[PATH_MAX + 16];
    int pid = 0, sender;

    meter = (struct meter){.warm = LATE_WARM, .n = LATE_WARM + task->n};
    if (broker_start(&broker) != MEASURED)
        return NOT_BUILT;
    if (ours)
        pid = plugin_start(file);
    sender = trickle_start(task);
    if (ours)
        plugin_done(pid, file);
    else
        take_all();
    child_done(sender, "the sender");
    value[0] = at_part(meter.late_ns, meter.late_count, 0.5);
    value[1] = at_part(meter.late_ns, meter.late_count, 0.9);
    broker_over(&broker);
    return MEASURED;
}

static enum measured bare_late(const struct task *task, double value[ROWS_MOST])
{
    return late(task, false, value);
}

static enum measured plugin_late(const struct task *task,
                                 double value[ROWS_MOST])
{
    return late(task, true, value);
}

/* ---- a process for each message ---- */

/* Make the handlers' script, and the fifo to which they write their bodies. */
static int bodies_open(char script[PATH_MAX + 16])
{
    char fifo[PATH_MAX + 16];
    int fd;

    snprintf(script, PATH_MAX + 16, "%s/handle", place->dir);
    snprintf(fifo, sizeof fifo, "%s/bodies", place->dir);
    fd = open(script, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
    if (fd < 0 || dprintf(fd, "#!/bin/sh\nexec cat >%s\n", fifo) < 0)
        fail(errno, "%s", script);
    close(fd);
    if (mkfifo(fifo, 0600) < 0)
        fail(errno, "%s", fifo);
    fd = open(fifo, O_RDWR | O_CLOEXEC); /* O_RDWR: no end of file between
                                          * two */
    if (fd < 0)
        fail(errno, "%s", fifo);
    return fd;
}

/* Count until all bodies have come. Writes this small are not torn. */
static void bodies_count(int fd)
{
    char body[SIZE];
    ssize_t n;

    do {
        n = read(fd, body, sizeof body);
        if (n != SIZE)
            fail(n < 0 ? errno : 0, "a handler got %zd bytes", n);
    } while (!meter_count(&meter, body, 0));
}

static enum measured exec_rate(const struct task *task, bool ours,
                               double value[ROWS_MOST])
{
    char script[PATH_MAX + 16], threads[16];
    int pid, fd;

    if (filled(task) != MEASURED)
        return NOT_BUILT;
    fd = bodies_open(script);
    snprintf(threads, sizeof threads, "%u", task->threads);
    pid = ours ? program_start_on(
                     broker.operand,
                     (const char *[]){"-c", threads, "--", script, NULL})
               : fork_bound();
    if (pid == 0) {
        execlp("amqp-consume", "amqp-consume", "-u", broker.url, "-q",
               BENCH_QUEUE, "-p", PREFETCH, script, (char *)NULL);
        fail(errno, "amqp-consume");
    }
    bodies_count(fd);
    kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    return rate(value);
}

static enum measured worker_exec(const struct task *task,
                                 double value[ROWS_MOST])
{
    return exec_rate(task, true, value);
}

static enum measured tools_exec(const struct task *task,
                                double value[ROWS_MOST])
{
    return exec_rate(task, false, value);
}

/* ---- in Python ---- */

/* Read the rate that the script wrote to `file`. */
static enum measured python_result(const char *file, double value[ROWS_MOST])
{
    FILE *f = fopen(file, "re");

    if (!f || fscanf(f, "%lf", &value[0]) != 1)
        fail(errno, "%s", file);
    fclose(f);
    broker_over(&broker);
    return MEASURED;
}

/* Check that Python has pika, and fill the queue. */
static enum measured python_ready(const struct task *task, char warm[24],
                                  char n[24], char file[PATH_MAX + 16])
{
    if (system(PYTHON " -c 'import pika' 2>/dev/null") != 0 ||
        filled(task) != MEASURED)
        return NOT_BUILT;
    snprintf(warm, 24, "%lu", meter.warm);
    snprintf(n, 24, "%lu", meter.n);
    snprintf(file, PATH_MAX + 16, "%s/rate", place->dir);
    return MEASURED;
}

static enum measured pika_rate(const struct task *task, double value[ROWS_MOST])
{
    char warm[24], n[24], file[PATH_MAX + 16], port[8];
    int pid;

    if (python_ready(task, warm, n, file) != MEASURED)
        return NOT_BUILT;
    snprintf(port, sizeof port, "%u", broker.port);
    pid = fork_bound();
    if (pid == 0) {
        execl(PYTHON, PYTHON, SCRIPTS "by_pika.py", port, BENCH_QUEUE, OPEN_8,
              warm, n, file, (char *)NULL);
        fail(errno, PYTHON);
    }
    child_done(pid, "by_pika.py");
    return python_result(file, value);
}

static enum measured stream_rate(const struct task *task,
                                 double value[ROWS_MOST])
{
    char warm[24], n[24], file[PATH_MAX + 16];
    int pid;

    if (python_ready(task, warm, n, file) != MEASURED)
        return NOT_BUILT;
    pid = program_start_on(broker.operand,
                           (const char *[]){"-c", "1", "--stream", "--window",
                                            "8", "--max-deliveries", n, "--",
                                            PYTHON, SCRIPTS "by_stream.py",
                                            warm, n, file, NULL});
    child_done(pid, "mqworker --stream");
    return python_result(file, value);
}

/* ---- the rows ---- */

static const struct duel duels[] = {
    {.rows = {{"amqp-call",
               "a plugin, -c 1 / a bare loop of librabbitmq, the same prefetch",
               "/s", MORE, 1.0, 1.0}},
     .ours = {.go = plugin_rate},
     .rival = {.go = bare_rate},
     .task = {.n = 30000, .size = SIZE}},
    {.rows = {{"amqp-exec",
               "a script, -c 2 / amqp-consume, which runs one at a time", "/s",
               MORE, 1.2, 1.2}},
     .ours = {.go = worker_exec},
     .rival = {.go = tools_exec},
     .task = {.n = 1000, .size = SIZE, .threads = 2}},
    {.rows = {{"amqp-exec-1", "the same, -c 1 / amqp-consume", "/s", MORE, 0,
               0}},
     .ours = {.go = worker_exec},
     .rival = {.go = tools_exec},
     .task = {.n = 1000, .size = SIZE, .threads = 1}},
    {.rows = {{"amqp-python",
               "--stream, -c 1, window 8, in Python / pika, a callback", "/s",
               MORE, 0, 0}},
     .ours = {.go = stream_rate},
     .rival = {.go = pika_rate},
     .task = {.n = 20000, .size = SIZE}},
    {.rows = {{"amqp-latency-median",
               "from the send to a plugin, -c 1 / to the bare loop; median",
               "ns", LESS, 1.3, 1.3},
              {"amqp-latency-p90", "the same; 9 of 10 are quicker", "ns", LESS,
               0, 0}},
     .ours = {.go = plugin_late},
     .rival = {.go = bare_late},
     .task = {.n = 500, .size = SIZE},
     .whole = true},
};

const struct section section_amqp = {
    .name = "amqp",
    .what = "a queue on a broker, beside other consumers of it",
    DUELS(duels),
};

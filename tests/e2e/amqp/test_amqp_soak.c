/* test_amqp_soak.c - a node dies again and again: nothing grows, and each
 * message that was confirmed has one end
 *
 * One worker, one node. In each round senders bring messages, retries, delays
 * and letters, and the node is killed and comes back meanwhile. At the end of a
 * round all is at rest: what the worker holds then is compared with the rounds
 * before. After a span of rounds come some in which the worker is killed as
 * well, and the next span is that of another process. MQW_SOAK_SECONDS makes it
 * longer (make soak SOAK_SECONDS=3600).
 */
#define AMQP_BROKER 1
#include "tests/crash/soak_samples.h"
#include "tests/e2e/amqp/amqp_fixture.h"
#include "tests/e2e/tools/mqctl_fixture.h"

TestSuite(amqp_soak, .init = amqp_init, .fini = amqp_fini, .timeout = 8000);

#define SPAN      6 /* rounds of one worker, unless told how long */
#define SPAN_LONG 24
#define KILLS     3 /* rounds between two spans, in which it dies */
#define BATCH     50U
#define DELAYED   10U
#define RATE      "50" /* a second: a kill comes while they are sent */
#define NUMBERS   400000
#define ATTEMPTS  4
#define REST_MS   120000
/* As in test_soak.c; a new connection has new buffers. */
#define MEMORY_KIB 256

/* What is known of a number, whose body it is (plugins/ledger.c). */
struct entry {
    uint8_t ends, letters;
    uint8_t runs[ATTEMPTS], marks[ATTEMPTS]; /* by attempt */
    char id[32];
};

/* Numbers that one mqsend brings. */
struct sending {
    const char *delay; /* NULL: none */
    char lines[BATCH * 8];
    size_t size;
    struct harness_process *mqsend;
};

static struct soak {
    const char *operand;
    struct harness_process *worker;
    struct entry *entries;
    unsigned long sent; /* numbers up to it, all of them confirmed */
    unsigned long runs, repeats, letters, twice;
    uint64_t end_ms; /* 0: one span */
    unsigned rounds, node_kills, worker_kills;
    long began_at, ended_at; /* read so far, of the ledger */
    struct series memory, descriptors, threads;
} soak;

/* ---- the ledger ---- */

static struct entry *entry(unsigned long n)
{
    cr_assert(n > 0 && n < NUMBERS, "number %lu", n);
    return &soak.entries[n];
}

/* Return true for a number that dies each time it runs. */
static bool is_letter(unsigned long n)
{
    return n % 100 == 0;
}

/* Check that, of all runs of a message with the same attempt, at most one is
 * unmarked. */
static void began_read(const char *line)
{
    unsigned long n, attempt, redelivered;
    char id[32];
    struct entry *e;

    cr_assert_eq(
        sscanf(line, "%lu %lu %lu %31s", &n, &attempt, &redelivered, id), 4,
        "%s", line);
    cr_assert(attempt > 0 && attempt < ATTEMPTS, "%s", line);
    e = entry(n);
    if (!e->id[0])
        snprintf(e->id, sizeof e->id, "%s", id);
    cr_assert_str_eq(e->id, id, "%lu has two ids", n);
    soak.runs++;
    soak.repeats += e->runs[attempt]++ > 0;
    e->marks[attempt] = (uint8_t)(e->marks[attempt] + redelivered);
    cr_assert_leq(e->runs[attempt] - e->marks[attempt], 1,
                  "a repeat without a mark: %s", line);
}

static void ledger_read(void)
{
    unsigned long n;
    char line[128];

    while (harness_next_line("began", &soak.began_at, line, sizeof line))
        began_read(line);
    while (harness_next_line("ended", &soak.ended_at, line, sizeof line)) {
        cr_assert_eq(sscanf(line, "%lu", &n), 1);
        entry(n)->ends++;
    }
}

/* Return true if each number that was sent has had its last run. */
static bool ended(void)
{
    bool all = true;

    ledger_read();
    for (unsigned long n = 1; all && n <= soak.sent; n++)
        all = is_letter(n) ? entry(n)->runs[1] > 0 : entry(n)->ends > 0;
    return all;
}

/* ---- a round ---- */

/* Start mqsend, which waits until the broker has confirmed each message. */
static void sending_start(struct sending *s)
{
    s->mqsend = harness_start(&(struct harness_spec){
        .argv = s->delay
                    ? HARNESS_LIST("mqsend", "--lines", "--quiet", "--create",
                                   "--delay", s->delay, soak.operand)
                    : HARNESS_LIST("mqsend", "--lines", "--quiet", "--create",
                                   "--rate", RATE, soak.operand),
        .input = s->lines,
        .input_size = s->size});
}

/* Prepare to send the next `count` numbers. */
static struct sending sending_open(unsigned count, const char *delay)
{
    struct sending s = {.delay = delay};

    for (unsigned i = 0; i < count; i++)
        s.size += (size_t)snprintf(s.lines + s.size, sizeof s.lines - s.size,
                                   "%lu\n", ++soak.sent);
    sending_start(&s);
    return s;
}

/* Wait until all is confirmed. If the broker died while mqsend logged in,
 * nothing was sent: send again. */
static void sending_end(struct sending *s)
{
    const char *err;

    while (harness_wait(s->mqsend, REST_MS) != 0) {
        err = harness_stderr(s->mqsend, NULL);
        cr_assert(!strstr(err, "confirmed,") ||
                      strstr(err, ": 0 confirmed, 0 not known"),
                  "%s", err);
        sending_start(s);
    }
}

/* Start the worker, again and again while the broker lets nobody in, as a
 * service manager does. */
static void worker_start(void)
{
    uint64_t end = harness_deadline(REST_MS);
    struct harness_process *w = NULL;

    while (!w || harness_log_count(w, "event=started") == 0) {
        if (!w || !harness_running(w))
            w = harness_worker(soak.operand, "-c", "4", "--backoff", "1s",
                               "--plugin", harness_plugin("ledger"));
        harness_nap(end, "a worker starts");
    }
    soak.worker = w;
}

static void worker_kill(void)
{
    harness_kill(soak.worker);
    soak.worker_kills++;
}

/* Let a random time pass, during which there is no fact to wait for. */
static void some_time(unsigned most_ms)
{
    usleep((unsigned)random() % most_ms * 1000);
}

/* Kill the node and start it again. With `kills` the worker dies before it, or
 * while the node is away. */
static void node_dies(bool kills)
{
    bool first = random() % 2;

    if (kills && first)
        worker_kill();
    some_time(200);
    amqp_node("kill", 1);
    soak.node_kills++;
    some_time(1000);
    if (kills && !first)
        worker_kill();
    amqp_node("up", 1);
    if (kills)
        worker_start();
}

/* Wait until all messages have run and none is on its way. */
static void rest(void)
{
    const char *dead = amqp_of("dead");

    harness_until(ended(), REST_MS);
    amqp_connect();
    harness_until(amqp_ready(amqp_queue) == 0, REST_MS);
    harness_until(amqp_ready(dead) >= (long)(soak.sent / 100), REST_MS);
    amqp_disconnect();
    harness_until(ctl_number(soak.operand, "in_flight") == 0, REST_MS);
}

/* Send, and kill the node or the worker if asked to, while the delayed messages
 * are in their queue or on the way to it. */
static void round_run(bool node_too, bool worker_too)
{
    struct sending delayed = sending_open(DELAYED, "3s");
    struct sending batch = sending_open(BATCH, NULL);

    some_time(1500);
    if (node_too)
        node_dies(worker_too);
    sending_end(&delayed);
    sending_end(&batch);
    rest();
    soak.rounds++;
}

/* ---- a span ---- */

static void samples_take(void)
{
    pid_t w = harness_pid(soak.worker);

    series_add(&soak.memory, soak_memory(w));
    series_add(&soak.descriptors, soak_descriptors(w));
    series_add(&soak.threads, soak_threads(w));
}

static bool over(void)
{
    return soak.end_ms && harness_now_ms() >= soak.end_ms;
}

/* Run some rounds in which the worker lives, and check that it holds as much at
 * the end of each as before. A sanitizer keeps freed memory. */
static void span(unsigned rounds)
{
    soak.memory = (struct series){.name = "memory of the worker, KiB",
                                  .grain = MEMORY_KIB};
    soak.descriptors = (struct series){.name = "descriptors of the worker"};
    soak.threads = (struct series){.name = "threads of the worker", .grain = 1};
    for (; rounds > 0 && !over(); rounds--) {
        round_run(true, false);
        samples_take();
    }
    if (!getenv("MQW_SANITIZED"))
        series_flat(&soak.memory);
    series_flat(&soak.descriptors);
    series_flat(&soak.threads);
}

/* ---- from start to end ---- */

/* Read the letters that mqdlq has. A letter is there twice, with one id, if its
 * original was not acknowledged when the node or the worker died. */
static void letters_read(void)
{
    struct harness_result r =
        harness_run("mqdlq", "list", "--json", soak.operand);
    struct entry *e;
    json_t *o;

    cr_assert_eq(r.status, 0, "%s", r.err);
    for (const char *at = r.out; *at; at = strchr(at, '\n') + 1) {
        o = ctl_json(at);
        e = entry(
            strtoul(json_string_value(json_object_get(o, "body")), NULL, 10));
        cr_expect_str_eq(json_string_value(json_object_get(o, "message_id")),
                         e->id, "%s", at);
        soak.letters += e->letters == 0;
        soak.twice += e->letters++ > 0;
        json_decref(o);
    }
}

/* Check that what died is a letter and was never done, and the reverse.
 * began_read has checked that a second run is marked. */
static void audit(void)
{
    letters_read();
    for (unsigned long n = 1; n <= soak.sent; n++) {
        const struct entry *e = entry(n);

        cr_expect_eq(e->letters > 0, is_letter(n), "number %lu has %u letters",
                     n, e->letters);
        cr_expect_eq(e->ends == 0, is_letter(n), "number %lu has %u ends", n,
                     e->ends);
    }
    printf("soak: %u rounds, %u nodes and %u workers killed; %lu messages "
           "confirmed, each with one end; %lu deliveries, %lu repeats, all "
           "marked; %lu letters, %lu of them twice\n",
           soak.rounds, soak.node_kills, soak.worker_kills, soak.sent,
           soak.runs, soak.repeats, soak.letters, soak.twice);
}

Test(amqp_soak, nothing_grows_while_nodes_die)
{
    const char *text = getenv("MQW_SOAK_SECONDS");
    uint64_t now = harness_now_ms();

    soak = (struct soak){.operand = strdup(amqp_operand(amqp_queue, 1)),
                         .entries = calloc(NUMBERS, sizeof *soak.entries),
                         .end_ms =
                             text ? now + strtoull(text, NULL, 10) * 1000 : 0};
    cr_assert(soak.operand && soak.entries);
    srandom((unsigned)now);
    amqp_disconnect();
    worker_start();
    /* A node by itself that is killed within half a second of making a queue
     * has forgotten what was in it (docs/distributed.md). */
    round_run(false, false);
    do {
        span(soak.end_ms ? SPAN_LONG : SPAN);
        for (unsigned i = 0; i < KILLS; i++)
            round_run(true, true);
    } while (soak.end_ms && !over());
    audit();
    cr_assert_eq(harness_stop(soak.worker, REST_MS), 0);
    free(soak.entries);
    free((void *)(uintptr_t)soak.operand);
}

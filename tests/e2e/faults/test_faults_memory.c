/* test_faults_memory.c - mqworker, mqsend, mqdlq: the Nth allocation fails
 *
 * N is spread over the run. The programs go on, or report it and stop, and
 * nothing is lost. $MQW_FAULT_POSITIONS is the number of positions for the
 * worker (300), a third of them with --stream and a third with --plugin.
 */
#include "tests/e2e/faults/faults_fixture.h"
#include "tests/harness/letters.h"

#include <time.h>

TestSuite(faults_memory, .init = faults_init, .fini = harness_fini,
          .timeout = 900);

#define LANES 9

/* Seed the random numbers and print the seed, which repeats the run. */
static void seed_set(void)
{
    const char *given = getenv("MQW_FAULT_SEED");
    unsigned seed =
        given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
    printf("MQW_FAULT_SEED=%u\n", seed);
    fflush(stdout);
    srandom(seed);
}

/* ---- mqworker ---- */

/* Workers run in parallel, because some wait for a second. Each lane has a
 * queue and runs one worker after another on it. */
enum kind { EXEC, STREAM, PLUGIN, KINDS };

struct lane {
    const char *queue, *tally;
    struct harness_process *worker; /* NULL: none */
    enum kind kind;
    uint64_t position, last; /* allocation that fails; number of allocations */
    unsigned sent; /* rounds of messages sent; the round is in their bodies */
};

/* Return a position from 1 to `last`: first the lowest ones, one for each kind
 * of handler, then a random one from each of `count` pieces. */
static uint64_t position_of(unsigned i, unsigned count, uint64_t last)
{
    if (i < LANES)
        return i / KINDS + 1;
    uint64_t from = last * i / count, to = last * (i + 1) / count;
    return 1 + from + (to > from ? (uint64_t)random() % (to - from) : 0);
}

/* Send one message of each kind if the queue has room for all. */
static void messages_send(struct lane *l)
{
    static const char *const kinds[] = {"ok", "dead", "retry"};
    if (harness_queue_length(l->queue) > 7)
        return; /* some workers could not start */
    l->sent++;
    for (size_t i = 0; i < 3; i++) {
        char body[64];
        snprintf(body, sizeof body, "%s-%u%s.", kinds[i], l->sent, l->queue);
        harness_send_text(l->queue, body);
    }
}

/* Append the flags for this kind of handler to argv. */
static void handler_put(const struct lane *l, const char **argv)
{
    if (l->kind == STREAM)
        *argv++ = "--stream";
    if (l->kind == PLUGIN)
        *argv++ = "--plugin";
    else
        *argv++ = "--";
    *argv++ = l->kind == PLUGIN   ? harness_plugin("done")
              : l->kind == STREAM ? harness_path("stream")
                                  : harness_path("handler");
    *argv = NULL;
}

static void worker_start(struct lane *l, uint64_t position)
{
    const char *argv[16] = {"mqworker",
                            "--state-dir",
                            harness_state_dir(),
                            "--verbose",
                            "-c",
                            "2",
                            "--backoff",
                            "1ms",
                            "--breaker-pause",
                            "10ms",
                            "--exit-when-idle=10ms",
                            l->queue};
    handler_put(l, argv + 12);
    char fault[64];
    snprintf(fault, sizeof fault, "malloc:%llu:%d",
             (unsigned long long)position, ENOMEM);
    messages_send(l);
    l->position = position;
    l->worker = fault_start(fault, l->tally, argv);
}

/* Check that the worker exited with 0, or could not start and printed why. The
 * dynamic loader reports a file for which it has no memory as missing.
 */
static void worker_check(struct lane *l)
{
    int status = harness_wait(l->worker, 0);
    bool loader = l->kind == PLUGIN && status == 64 &&
                  fault_said(l->worker, "mqworker", "cannot be loaded");
    cr_assert(status == 0 || status == 71 || status == 73 || loader,
              "allocation %llu: status %d: %s", (unsigned long long)l->position,
              status, harness_stderr(l->worker, NULL));
    cr_assert(status == 0 || loader ||
                  fault_said(l->worker, "mqworker", "memory"),
              "allocation %llu: status %d: %s", (unsigned long long)l->position,
              status, harness_stderr(l->worker, NULL));
    l->worker = NULL;
}

/* Return how many allocations a run makes: the larger of two runs, because
 * existing files change it. */
static uint64_t calibrate(struct lane *l)
{
    uint64_t most = 0, seen, failed;
    for (int i = 0; i < 2; i++) {
        worker_start(l, UINT64_C(1) << 40);
        cr_assert_eq(harness_wait(l->worker, 30000), 0, "%s",
                     harness_stderr(l->worker, NULL));
        l->worker = NULL;
        fault_tally(l->tally, &seen, &failed);
        cr_assert_eq(failed, 0);
        most = seen > most ? seen : most;
    }
    cr_assert_gt(most, 100, "no allocations counted");
    return most;
}

/* Try all positions, each on the next free lane. */
static void sweep(struct lane lanes[LANES], unsigned count)
{
    uint64_t end = harness_deadline(240000);
    for (unsigned next = 0, running = 1; next < count || running > 0;) {
        running = 0;
        for (struct lane *l = lanes; l < lanes + LANES; l++) {
            if (l->worker && !harness_running(l->worker))
                worker_check(l);
            if (!l->worker && next < count)
                worker_start(l, position_of(next++, count, l->last));
            running += l->worker != NULL;
        }
        harness_nap(end, "all workers have ended");
    }
}

/* Check that each message was done once, or is dead. */
static void audit(struct lane *l)
{
    size_t done = 2 * (size_t)l->sent, dead;
    const char *argv[4] = {NULL};
    handler_put(l, argv);
    l->worker = harness_worker(l->queue, "--verbose", "--backoff", "1ms",
                               argv[0], argv[1], argv[2]);
    harness_wait_log(l->worker, "event=started", 10000);
    const struct harness_letter *letters =
        harness_wait_letters(l->queue, l->sent, 10000);
    const char *end = harness_path("%s.", l->queue);
    harness_until(harness_lines_with("done", end) >= done, 10000);
    cr_assert_eq(harness_stop(l->worker, 10000), 0);
    cr_assert_eq(harness_lines_with("done", end), done, "one ran twice");
    letters = harness_letters(l->queue, &dead);
    cr_assert_eq(dead, l->sent);
    for (size_t i = 0; i < dead; i++)
        cr_assert_str_eq(letters[i].error, "exit 65");
    for (unsigned i = 1; i <= l->sent; i++) {
        char body[64];
        snprintf(body, sizeof body, "ok-%u%s.", i, l->queue);
        cr_assert_eq(harness_lines_with("done", body), 1);
    }
}

Test(faults_memory, the_worker_loses_nothing_when_an_allocation_fails)
{
    struct lane lanes[LANES] = {{0}};
    const char *given = getenv("MQW_FAULT_POSITIONS");
    unsigned count = given ? (unsigned)strtoul(given, NULL, 10)
                           : sweep_share("allocations of workers", 300);
    for (size_t i = 0; i < LANES; i++) {
        lanes[i].queue = harness_queue(0, 0);
        lanes[i].tally = harness_path("tally.%zu", i);
        lanes[i].kind = i % KINDS;
    }
    seed_set();
    for (size_t i = 0; i < KINDS; i++)
        lanes[i].last = calibrate(&lanes[i]);
    for (size_t i = KINDS; i < LANES; i++)
        lanes[i].last = lanes[i - KINDS].last;
    printf("%llu, %llu and %llu allocations\n",
           (unsigned long long)lanes[EXEC].last,
           (unsigned long long)lanes[STREAM].last,
           (unsigned long long)lanes[PLUGIN].last);
    sweep(lanes, count);
    for (size_t i = 0; i < LANES; i++)
        audit(&lanes[i]);
}

/* ---- the tools ---- */

static const char *tool_input; /* stdin of the tools */

/* Run the tool with the Nth allocation failing. Return false if it makes
 * fewer. */
static bool tool_run(uint64_t position, const char *const *argv,
                     struct harness_process **p)
{
    char fault[64];
    uint64_t seen, failed;
    snprintf(fault, sizeof fault, "malloc:%llu:%d",
             (unsigned long long)position, ENOMEM);
    *p = fault_start_fed(fault, "tally", argv, tool_input);
    int status = harness_wait(*p, 30000);
    fault_tally("tally", &seen, &failed);
    cr_assert(status == 0 || status == 71, "%s %s: allocation %llu: %d: %s",
              argv[0], argv[1], (unsigned long long)position, status,
              harness_stderr(*p, NULL));
    cr_assert(status == 0 || fault_said(*p, argv[0], "memory"),
              "%s %s: allocation %llu: %s", argv[0], argv[1],
              (unsigned long long)position, harness_stderr(*p, NULL));
    return failed > 0;
}

Test(faults_memory, mqsend_sends_all_or_says_so)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *p;
    harness_write("lines", "a\nb\nc\n", 6);
    const char *const argv[] = {
        "mqsend",  "--lines", "--file",   harness_path("lines"),
        "--group", "g",       "--header", "x-a=b",
        q,         NULL};
    uint64_t n = 1;
    for (; tool_run(n, argv, &p); n++) {
        char body[256];
        long sent = harness_queue_length(q);
        cr_assert(sent == (harness_wait(p, 0) == 0 ? 3 : 0), "%ld: %s", sent,
                  harness_stderr(p, NULL));
        while (harness_receive(q, body, sizeof body, NULL) >= 0)
            ;
    }
    cr_assert_gt(n, 3, "too few allocations");
    cr_assert_eq(harness_queue_length(q), 3);
}

/* Make three letters in a new state directory. */
static void letters_make(const char *q)
{
    static const char three[] =
        "{\"reason\":\"rejected\",\"error\":\"exit 65\",\"body\":\"a\","
        "\"group\":\"g\",\"history\":[{\"started_at_ns\":5,\"duration_ns\":7,"
        "\"error\":\"exit 1\",\"stderr\":\"x\"}]}\n"
        "{\"reason\":\"rejected\",\"error\":\"exit 65\",\"body\":\"b\"}\n"
        "{\"reason\":\"rejected\",\"error\":\"exit 65\",\"body\":\"c\"}\n";
    harness_write("three", three, sizeof three - 1);
    struct harness_result r =
        harness_run("mqdlq", "import", "--state-dir", harness_state_dir(), q,
                    harness_path("three"));
    cr_assert_eq(r.status, 0, "%s", r.err);
}

/* Try `count` positions of a verb that changes nothing: it prints everything,
 * or fails. */
static void verb_sweep(const char *const *argv, unsigned count)
{
    struct harness_process *p;
    uint64_t last, failed;
    cr_assert(!tool_run(UINT64_C(1) << 40, argv, &p));
    const char *whole = harness_stdout(p, NULL);
    fault_tally("tally", &last, &failed);
    for (unsigned i = 0; i < count; i++) {
        tool_run(position_of(i, count, last), argv, &p);
        if (harness_wait(p, 0) == 0)
            cr_assert_str_eq(harness_stdout(p, NULL), whole);
    }
}

Test(faults_memory, mqdlq_tells_all_or_says_so)
{
    const char *q = harness_queue(0, 0), *dir = harness_state_dir();
    seed_set();
    letters_make(q);
    verb_sweep(HARNESS_LIST("mqdlq", "list", "--state-dir", dir, q), 25);
    verb_sweep(HARNESS_LIST("mqdlq", "list", "--json", "--state-dir", dir, q),
               25);
    verb_sweep(
        HARNESS_LIST("mqdlq", "list", "--by", "group", "--state-dir", dir, q),
        25);
    verb_sweep(HARNESS_LIST("mqdlq", "show", "--state-dir", dir, q, "1"), 25);
    verb_sweep(HARNESS_LIST("mqdlq", "export", "--state-dir", dir, q), 25);
}

/* If mqdlq had no memory for the next line of ids and took that for the end, it
 * would leave out letters and still exit with 0. */
Test(faults_memory, mqdlq_reads_all_ids_or_says_so)
{
    const char *q = harness_queue(0, 0);
    const char *const argv[] = {
        "mqdlq", "export", "--state-dir", harness_state_dir(), q, "-", NULL};
    char ids[1024];
    struct harness_process *p;
    const char *whole;
    uint64_t n = 1;

    letters_make(q);
    /* The second line is longer than the first buffer of getline(3). */
    snprintf(ids, sizeof ids, "1\n%500s\n3\n", "2");
    tool_input = ids;
    cr_assert(!tool_run(UINT64_C(1) << 40, argv, &p));
    whole = harness_stdout(p, NULL);
    cr_assert_not_null(strstr(whole, "\"c\""), "%s", whole);
    for (;; n++) {
        if (!sweep_takes())
            continue;
        if (!tool_run(n, argv, &p))
            break;
        if (harness_wait(p, 0) == 0)
            cr_assert_str_eq(harness_stdout(p, NULL), whole);
    }
    cr_assert_gt(n, SWEEP_DAYS, "too few allocations");
    sweep_end("allocations of an export");
}

Test(faults_memory, mqdlq_takes_a_letter_whole_or_not_at_all)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *p;
    char body[300], line[sizeof body + 64];
    size_t letters;
    uint64_t n = 1, taken = 0;
    for (size_t i = 0; i < sizeof body - 1; i++)
        body[i] = (char)('a' + i % 26);
    body[sizeof body - 1] = '\0';
    snprintf(line, sizeof line, "{\"reason\":\"rejected\",\"body\":\"%s\"}\n",
             body);
    harness_write("line", line, strlen(line));
    letters_make(q);
    const char *const argv[] = {"mqdlq",
                                "import",
                                "--state-dir",
                                harness_state_dir(),
                                q,
                                harness_path("line"),
                                NULL};
    for (;; n++) {
        if (!sweep_takes())
            continue;
        if (!tool_run(n, argv, &p))
            break;
        taken += harness_wait(p, 0) == 0;
    }
    cr_assert_gt(n, SWEEP_DAYS, "too few allocations");
    sweep_end("allocations of an import");
    const struct harness_letter *l = harness_letters(q, &letters);
    cr_assert_geq(letters, 3 + taken + 1);
    for (size_t i = 0; i < letters - 3; i++)
        cr_assert_str_eq(l[i].body, body);
    printf("%zu letters of %llu imports\n", letters - 3, (unsigned long long)n);
}

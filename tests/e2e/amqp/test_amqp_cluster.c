/* test_amqp_cluster.c - two workers on a queue of three nodes, which die
 *
 * A sender, a worker that runs processes and one that has a plugin, while nodes
 * and workers are killed, frozen and cut off, never two nodes at once. A ledger
 * of all that was confirmed, run and buried says what became of it.
 * MQW_CLUSTER_SECONDS makes it longer (make cluster CLUSTER_SECONDS=1800): then
 * a node is frozen for 22 s, or cut off for 90 s.
 */
#define AMQP_BROKER 3
#include "tests/e2e/amqp/amqp_fixture.h"

#include <signal.h>

TestSuite(amqp_cluster, .init = amqp_init, .fini = amqp_fini, .timeout = 4000);

#define SHORT   15 /* seconds of trouble, unless told */
#define BATCH   40U
#define RATE    "100"
#define DRAIN   60000
#define NUMBERS 400000

/* As plugins/ledger.c. */
#define HANDLER                                                        \
    "n=$(cat)\n"                                                       \
    "echo \"$n $MQW_ATTEMPT $MQW_REDELIVERED $MQW_ID exec\" >>began\n" \
    "sleep 0.03\n"                                                     \
    "[ $((n % 100)) -ne 0 ] || exit 65\n"                              \
    "[ $((n % 7)) -ne 0 ] || [ \"$MQW_ATTEMPT\" -gt 1 ] || exit 1\n"   \
    "echo \"$n $(date +%s%N)\" >>ended\n"

/* A batch is in "sent", with the time, when all of it is confirmed. */
#define SENDER                                                      \
    "n=1\n"                                                         \
    "while [ ! -e stop ]; do\n"                                     \
    "    seq $n $((n + $3 - 1)) |\n"                                \
    "        \"$1\" --lines --quiet --create --rate $4 \"$2\" &&\n" \
    "        echo \"$n $(date +%s%N)\" >>sent\n"                    \
    "    n=$((n + $3))\n"                                           \
    "done\n"

/* What is known of a number. */
struct entry {
    bool confirmed, ended;
    uint64_t confirmed_ns;
    uint32_t attempts[2]; /* bits of those that each worker ran */
    uint32_t unmarked;    /* of these, those that ran without a mark */
    unsigned letters;
    char id[32];
};

static struct ledger {
    struct entry entries[NUMBERS];
    long began_at, ended_at, sent_at; /* read so far, of the files */
    unsigned messages, runs, repeats, marked, letters, again;
    uint64_t ended_last, sent_last, ended_pause, sent_pause; /* ns */
    uint64_t longest; /* ns  of all: from the confirm to the end */
    unsigned node_kills, worker_kills, freezes, cuts;
} * ledger;

static struct entry *entry(unsigned long n)
{
    cr_assert(n > 0 && n < NUMBERS, "number %lu", n);
    return &ledger->entries[n];
}

static void pause_note(uint64_t *last, uint64_t *longest, uint64_t now)
{
    if (*last && now > *last && now - *last > *longest)
        *longest = now - *last;
    if (now > *last)
        *last = now;
}

/* Read a run. A number that runs again with the same attempt has the same id,
 * and one of the two runs is marked: the second, unless the first is that of a
 * killed worker, whose handler may write its line later. A run is marked in any
 * case if the same worker ran the number before. */
static void began_read(const char *line)
{
    unsigned long n, attempt, redelivered;
    char id[32], by[8];
    struct entry *e;
    uint32_t *here, other, bit;

    cr_assert_eq(sscanf(line, "%lu %lu %lu %31s %7s", &n, &attempt,
                        &redelivered, id, by),
                 5, "%s", line);
    cr_assert(attempt > 0 && attempt < 32, "%s", line);
    e = entry(n);
    if (!e->id[0])
        snprintf(e->id, sizeof e->id, "%s", id);
    cr_assert_str_eq(e->id, id, "%lu has two ids", n);
    ledger->runs++;
    here = &e->attempts[by[0] == 'p'];
    other = e->attempts[by[0] != 'p'];
    bit = 1U << attempt;
    if ((*here | other) & bit) {
        ledger->repeats++;
        if (redelivered == 1 || !(e->unmarked & bit))
            ledger->marked++;
        else
            printf("cluster: another worker ran this, too, unmarked: %s", line);
        cr_assert(redelivered == 1 || !(*here & bit), "%s", line);
    }
    *here |= bit;
    e->unmarked |= redelivered == 1 ? 0 : bit;
}

/* Read what was added to the files since the last call. */
static void ledger_read(void)
{
    char line[128];
    unsigned long n;
    uint64_t at;

    while (harness_next_line("sent", &ledger->sent_at, line, sizeof line)) {
        cr_assert_eq(sscanf(line, "%lu %" SCNu64, &n, &at), 2);
        pause_note(&ledger->sent_last, &ledger->sent_pause, at);
        for (unsigned i = 0; i < BATCH; i++) {
            entry(n + i)->confirmed = true;
            entry(n + i)->confirmed_ns = at;
        }
        ledger->messages += BATCH;
    }
    while (harness_next_line("began", &ledger->began_at, line, sizeof line))
        began_read(line);
    while (harness_next_line("ended", &ledger->ended_at, line, sizeof line)) {
        cr_assert_eq(sscanf(line, "%lu %" SCNu64, &n, &at), 2);
        if (!harness_exists("stop"))
            pause_note(&ledger->ended_last, &ledger->ended_pause, at);
        if (entry(n)->confirmed && !entry(n)->ended &&
            at > entry(n)->confirmed_ns + ledger->longest)
            ledger->longest = at - entry(n)->confirmed_ns;
        entry(n)->ended = true;
    }
}

/* Count the confirmed numbers that did not end or, if they become letters, did
 * not begin. */
static unsigned missing(unsigned *first)
{
    unsigned n = 0;

    ledger_read();
    for (unsigned i = 1; i < NUMBERS; i++) {
        const struct entry *e = &ledger->entries[i];

        if (e->confirmed &&
            !(i % 100 ? e->ended : e->attempts[0] | e->attempts[1])) {
            *first = n++ ? *first : i;
        }
    }
    return n;
}

/* ---- letters ---- */

/* Read a frame of a letter: its header has the id, its body the number. */
static void letter(const amqp_frame_t *f, char id[32], unsigned *seen)
{
    char text[32] = "";
    struct entry *e;

    if (f->frame_type == AMQP_FRAME_HEADER) {
        const amqp_basic_properties_t *p = f->payload.properties.decoded;

        snprintf(id, 32, "%.*s", (int)p->message_id.len,
                 (char *)p->message_id.bytes);
    }
    if (f->frame_type != AMQP_FRAME_BODY)
        return;
    snprintf(text, sizeof text, "%.*s", (int)f->payload.body_fragment.len,
             (char *)f->payload.body_fragment.bytes);
    e = entry(strtoul(text, NULL, 10));
    cr_assert_str_eq(e->id, id, "letter %s has another id", text);
    if (e->letters++)
        ledger->again++;
    else
        ledger->letters++;
    ++*seen;
}

/* Read all letters with a consumer that acknowledges none. */
static void letters_read(void)
{
    unsigned seen = 0, count;
    char id[32] = "";
    amqp_frame_t f;

    amqp_disconnect();
    amqp_connect();
    count = (unsigned)amqp_ready(amqp_of("dead"));
    amqp_basic_consume(amqp_client, 1, amqp_word(amqp_of("dead")),
                       amqp_word("look"), 0, 0, 0, (amqp_table_t){0, NULL});
    amqp_ok(amqp_get_rpc_reply(amqp_client));
    while (seen < count) {
        cr_assert_eq(amqp_simple_wait_frame_noblock(
                         amqp_client, &f, &(struct timeval){.tv_sec = 30}),
                     AMQP_STATUS_OK);
        letter(&f, id, &seen);
        amqp_maybe_release_buffers(amqp_client);
    }
    amqp_disconnect();
    amqp_connect();
}

/* ---- workers and nodes ---- */

/* Start a worker: 0 with processes, 1 with a plugin. While the brokers let
 * nobody in, start it again, as a service manager does. */
static struct harness_process *worker(unsigned which, const char *handler)
{
    const char *operand = amqp_operand(amqp_queue, 3);
    uint64_t end = harness_deadline(120000);
    struct harness_process *w = NULL;

    while (!w || harness_log_count(w, "event=started") == 0) {
        if (!w || !harness_running(w))
            w = harness_start(&(struct harness_spec){
                .argv = HARNESS_LIST(
                    "mqworker", "--state-dir",
                    harness_path("%s", which ? "plugin" : "exec"), operand,
                    "-c", "4", "--backoff", "1s", which ? "--plugin" : "--",
                    which ? harness_plugin("ledger") : handler)});
        harness_nap(end, "a worker starts");
    }
    return w;
}

static unsigned any(unsigned n)
{
    return (unsigned)random() % n;
}

/* Let trouble last for a random time, during which there is no fact to wait
 * for. */
static void wait_s(unsigned from, unsigned to)
{
    uint64_t end = harness_now_ms() + from * 1000 + any((to - from) * 1000 + 1);

    while (harness_now_ms() < end) {
        usleep(100000);
        ledger_read();
    }
}

/* Make trouble of one kind. At its end the node is well again. */
static void trouble(unsigned kind, bool longer)
{
    unsigned node = 1 + any(3);

    if (kind < 6) {
        amqp_node("kill", node);
        ledger->node_kills++;
        wait_s(0, 2);
        amqp_node("up", node);
    } else if (kind < 8) {
        amqp_node("freeze", node);
        ledger->freezes++;
        wait_s(longer ? 22 : 2, longer ? 22 : 3);
        amqp_node("thaw", node);
    } else {
        amqp_node("cut", node);
        ledger->cuts++;
        wait_s(longer ? 90 : 2, longer ? 90 : 3);
        amqp_node("join", node);
    }
}

Test(amqp_cluster, nothing_confirmed_is_lost_while_nodes_and_workers_die)
{
    const char *seconds = getenv("MQW_CLUSTER_SECONDS");
    bool longer = seconds && seconds[0];
    const char *handler = harness_script("h", HANDLER);
    struct harness_process *w[2], *sender;
    static const unsigned kinds[] = {0, 6, 8}; /* of the short form */
    unsigned first = 0, which, round = 0, due = 0;
    struct harness_result r;
    uint64_t end, seed = harness_now_ms();

    ledger = calloc(1, sizeof *ledger);
    cr_assert_not_null(ledger);
    srandom((unsigned)seed);
    amqp_disconnect();
    for (unsigned i = 0; i < 2; i++)
        w[i] = worker(i, handler);
    sender = harness_program("sh", "-c", SENDER, "sh", harness_bin("mqsend"),
                             amqp_operand(amqp_queue, 3), "40", RATE);
    end =
        harness_now_ms() + 1000 * (longer ? strtoul(seconds, NULL, 10) : SHORT);
    do {
        wait_s(longer ? 5 : 1, longer ? 15 : 2);
        which = any(2);
        harness_kill(w[which]);
        ledger->worker_kills++;
        trouble(longer ? any(9) : kinds[round++ % 3], longer);
        w[which] = worker(which, handler);
    } while (harness_now_ms() < end || (!longer && round < 3));
    harness_write("stop", "", 0);
    cr_assert_eq(harness_wait(sender, DRAIN), 0);
    end = harness_deadline(DRAIN);
    while (missing(&first) > 0) {
        cr_assert_lt(harness_now_ms(), end, "%u of %u are missing, first %u",
                     missing(&first), ledger->messages, first);
        usleep(200000);
    }
    amqp_connect();
    harness_until(amqp_ready(amqp_queue) == 0, DRAIN);
    for (unsigned i = 0; i < 2; i++)
        cr_assert_eq(harness_stop(w[i], DRAIN), 0);
    letters_read();
    for (unsigned i = 100; i < NUMBERS; i += 100)
        due += ledger->entries[i].confirmed && !ledger->entries[i].letters;
    printf("cluster: %u messages confirmed, 0 lost, %u runs, %u repeats (%u "
           "marked, %u by their id)\n"
           "cluster: %u letters, %u of them twice; %u nodes and %u workers "
           "killed, %u nodes frozen, %u cut off\n"
           "cluster: longest pause %.1f s to the next end, %.1f s to the next "
           "%u confirms; longest way to the end %.1f s\n",
           ledger->messages, ledger->runs, ledger->repeats, ledger->marked,
           ledger->repeats - ledger->marked, ledger->letters, ledger->again,
           ledger->node_kills, ledger->worker_kills, ledger->freezes,
           ledger->cuts, (double)ledger->ended_pause / 1e9,
           (double)ledger->sent_pause / 1e9, BATCH,
           (double)ledger->longest / 1e9);
    cr_assert_eq(due, 0, "%u letters are missing", due);
    r = harness_run("mqdlq", "list", amqp_operand(amqp_queue, 3), "--count");
    cr_assert_eq(strtoul(r.out, NULL, 10), ledger->letters, "%s%s", r.out,
                 r.err);
    free(ledger);
}

/* ---- a hop out of a wait queue that is refused ---- */

#define HOPS     40U /* more than the 32 that the broker forwards at once */
#define HOPS_TO  "3" /* the node that leads the queue which they go to */
#define HOP_WAIT "wait.4000"

/* Have the node with that number lead a queue, by the command of
 * docs/distributed.md. */
static void leads(const char *queue, const char *node)
{
    char text[400];
    struct harness_result r;

    snprintf(text, sizeof text,
             "{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<\"/\">>, queue, "
             "<<\"%s\">>)), rabbit_quorum_queue:transfer_leadership(Q, "
             "'mqw%s-%u@localhost').",
             queue, node, amqp_port(1) - 1);
    r = amqp_ctl("eval", text);
    cr_assert_eq(r.status, 0, "%s%s", r.out, r.err);
}

/* Return true if node 1 has a connection to that node. */
static bool node_known(const char *node)
{
    char text[100];

    snprintf(text, sizeof text, "lists:member('mqw%s-%u@localhost', nodes()).",
             node, amqp_port(1) - 1);
    return !strstr(amqp_ctl("eval", text).out, "false");
}

/* Have messages wait at node 1, and freeze the node that leads the queue to
 * which they return. Up to 3.12.4 the broker then refuses what it forwards
 * itself. */
static void hops_refused(void)
{
    char lines[HOPS * 2 + 1];
    struct harness_result r;

    for (unsigned i = 0; i < HOPS; i++)
        memcpy(lines + (size_t)i * 2, "a\n", 3);
    cr_assert_eq(harness_run("mqsend", "--quiet", "--create",
                             amqp_operand(amqp_queue, 1), "first")
                     .status,
                 0);
    leads(amqp_queue, HOPS_TO);
    r = harness_run_spec(&(struct harness_spec){
        .argv = HARNESS_LIST("mqsend", "--quiet", "--lines", "--delay", "4s",
                             amqp_operand(amqp_queue, 1)),
        .input = lines,
        .input_size = sizeof lines - 1});
    cr_assert_eq(r.status, 0, "%s", r.err);
    amqp_node("freeze", 3);
    harness_until(!node_known(HOPS_TO), DRAIN);
}

/* Fails where the nodes wait for three minutes before they try again. */
Test(amqp_cluster, hops_refused_come_back_with_the_node)
{
    hops_refused();
    amqp_node("thaw", 3);
    harness_until(amqp_ready(amqp_queue) == (long)HOPS + 1, DRAIN);
}

/* Fails without the command: the wait queue goes on asking the dead node. */
Test(amqp_cluster, another_leader_frees_the_hops_that_a_dead_node_refused)
{
    hops_refused();
    amqp_node("kill", 3);
    leads(amqp_of(HOP_WAIT), "2");
    harness_until(amqp_ready(amqp_queue) == (long)HOPS + 1, DRAIN);
    amqp_node("up", 3);
}

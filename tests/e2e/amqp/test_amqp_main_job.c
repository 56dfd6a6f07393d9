/* test_amqp_main_job.c - one node and all that a queue has to do, with foreign
 * programs on both ends of it
 *
 * The number of each message is in its first line: "NUMBER KIND CRC SIZE", then
 * SIZE letters. `mqsend`, librabbitmq, pika and amqp-publish send them; a
 * worker, pika and amqp-consume take them. At the end each number has ended
 * once, with the bytes that were sent. MQW_MAIN_MESSAGES: how many, instead of
 * MESSAGES.
 */
#define AMQP_BROKER 1
#define AMQP_SHARED
#include "tests/e2e/amqp/amqp_fixture.h"

TestSuite(amqp_main_job, .init = amqp_init, .fini = amqp_fini, .timeout = 1200);

enum { MESSAGES = 400, SIZES = 8, BY_TOOL = 40 /* one of so many */ };

#define PYTHON "/usr/bin/python3" /* where packages of a system are */
#define OP     amqp_operand(amqp_queue, 1)

static const size_t sizes[SIZES] = {0,    1,     700,    1500,
                                    4096, 65536, 200000, 1048576 - 100};
static char crcs[SIZES][16];

enum sender { MQSEND, MQSEND_LATER, LIBRARY, PIKA, TOOL, SENDERS };

/* ---- messages ---- */

/* Compute the checksums of `count` bodies, as cksum prints them. */
static void crcs_make(void)
{
    char command[80];

    for (size_t i = 0; i < SIZES; i++) {
        snprintf(command, sizeof command,
                 "head -c %zu /dev/zero | tr '\\0' x | cksum", sizes[i]);
        cr_assert_eq(
            sscanf(harness_run("sh", "-c", command).out, "%15s", crcs[i]), 1);
    }
}

static unsigned mixed(unsigned n)
{
    return n * 2654435761U >> 12;
}

/* Return the size of body `n`; few of them are large. */
static unsigned size_of(unsigned n)
{
    unsigned some = mixed(n) % 1000;

    return some < 2 ? 7 : some < 6 ? 6 : some < 30 ? 5 : some % 5;
}

static const char *kind_of(unsigned n)
{
    unsigned some = mixed(n + 77777) % 100;

    return some < 5 ? "bad" : some < 9 ? "dead" : "good";
}

static enum sender sender_of(unsigned n)
{
    static const enum sender all[] = {PIKA,    PIKA,    PIKA,   LIBRARY,
                                      LIBRARY, LIBRARY, MQSEND, MQSEND_LATER};

    if (n % BY_TOOL == 0)
        return TOOL;
    return all[mixed(n + 33333) % (sizeof all / sizeof all[0])];
}

static int line_print(char line[64], unsigned n)
{
    unsigned i = size_of(n);

    return snprintf(line, 64, "%u %s %s %zu\n", n, kind_of(n), crcs[i],
                    sizes[i]);
}

/* Write a file with all bodies of one sender, each followed by `end`; without
 * `whole` only their first lines. */
static void records(const char *name, enum sender sender, unsigned count,
                    bool whole)
{
    FILE *f = fopen(harness_path("%s", name), "we");
    char line[64];

    cr_assert_not_null(f);
    for (unsigned n = 0; n < count; n++) {
        if (sender_of(n) != sender)
            continue;
        line_print(line, n);
        fputs(line, f);
        for (size_t i = 0; whole && i < sizes[size_of(n)]; i++)
            fputc('x', f);
        if (whole)
            fputc('\0', f);
    }
    cr_assert_eq(fclose(f), 0);
}

static void send_by_library(unsigned count)
{
    char *body = malloc(64 + sizes[SIZES - 1]);
    int head;

    cr_assert_not_null(body);
    for (unsigned n = 0; n < count; n++) {
        if (sender_of(n) != LIBRARY)
            continue;
        head = line_print(body, n);
        memset(body + head, 'x', sizes[size_of(n)]);
        amqp_publish(amqp_queue, body, (size_t)head + sizes[size_of(n)],
                     (amqp_table_t){0, NULL});
        if (n % 50 == 0)
            amqp_confirmed();
    }
    amqp_confirmed();
    free(body);
}

/* Send with one process for each message, which waits for no confirm. */
static void send_by_tool(unsigned count)
{
    char url[80], command[400], line[64];
    struct harness_result r;

    snprintf(url, sizeof url, "amqp://guest:guest@127.0.0.1:%u/%%2f",
             amqp_port(1));
    for (unsigned n = 0; n < count; n++) {
        if (sender_of(n) != TOOL)
            continue;
        line_print(line, n);
        snprintf(
            command, sizeof command,
            "{ printf '%%s\\n' '%s'; head -c %zu /dev/zero | tr '\\0' x; } "
            "| amqp-publish -u %s -r %s -p",
            strtok(line, "\n"), sizes[size_of(n)], url, amqp_queue);
        r = harness_run("sh", "-c", command);
        cr_assert_eq(r.status, 0, "%s", r.err);
    }
}

/* ---- who takes ---- */

/* Note what ended in `ends`, and a body with wrong bytes in `broken`. */
#define HANDLER                                                      \
    "read -r n kind crc size\n"                                      \
    "[ \"$(cksum)\" = \"$crc $size\" ] || echo \"$n\" >>broken\n"    \
    "case $kind in\n"                                                \
    "bad) [ \"$MQW_ATTEMPT\" -gt 2 ] || { echo \"$n $MQW_ATTEMPT\" " \
    ">>tries; exit 1; } ;;\n"                                        \
    "dead) [ -e repaired ] || { echo \"$n\" >>died; exit 65; } ;;\n" \
    "esac\n"                                                         \
    "echo \"$n $kind $MQW_ATTEMPT\" >>ends\n"

#define TOOLS_HANDLER                                             \
    "read -r n kind crc size\n"                                   \
    "[ \"$(cksum)\" = \"$crc $size\" ] || echo \"$n\" >>broken\n" \
    "echo \"$n $kind by-tool\" >>ends\n"

static struct harness_process *python(const char *verb, const char *what,
                                      const char *file)
{
    char port[8], script[PATH_MAX + 32];
    const char *tool = getenv(AMQP_TOOL);

    snprintf(port, sizeof port, "%u", amqp_port(1));
    snprintf(script, sizeof script, "%.*s/../e2e/amqp/by_pika.py",
             (int)(strrchr(tool, '/') - tool), tool);
    return harness_program(PYTHON, script, verb, port, amqp_queue, what, file);
}

static struct harness_process *tool_take(const char *count)
{
    char url[80];

    snprintf(url, sizeof url, "amqp://guest:guest@127.0.0.1:%u/%%2f",
             amqp_port(1));
    return harness_program("amqp-consume", "-u", url, "-q", amqp_queue, "-p",
                           "4", "-c", count,
                           harness_script("t", TOOLS_HANDLER));
}

/* ---- the audit ---- */

/* Check that each number ended once, by one of the programs. */
static void ended(unsigned count)
{
    unsigned char *times = calloc(count, 1);
    const char *at = harness_read("ends", NULL);
    char *end;

    cr_assert_not_null(times);
    while (*at) {
        unsigned long n = strtoul(at, &end, 10);

        cr_assert(end != at && n < count, "a line: %.40s", at);
        times[n]++;
        at = strchr(end, '\n') + 1;
    }
    for (unsigned n = 0; n < count; n++)
        cr_assert_eq(times[n], 1, "message %u (%s, %zu bytes) ended %u times",
                     n, kind_of(n), sizes[size_of(n)], times[n]);
    free(times);
}

/* Return how many programs have subscribed to the queue. */
static unsigned consumers(void)
{
    const amqp_queue_declare_ok_t *ok =
        amqp_queue_declare(amqp_client, 1, amqp_word(amqp_queue), 1, 1, 0, 0,
                           (amqp_table_t){0, NULL});

    cr_assert_not_null(ok);
    return ok->consumer_count;
}

static unsigned messages(void)
{
    const char *text = getenv("MQW_MAIN_MESSAGES");

    return text ? (unsigned)strtoul(text, NULL, 10) : MESSAGES;
}

/* Send all messages with four programs, two of them at the same time. */
static void sent(unsigned count)
{
    struct harness_process *pika = python("send", "lines", NULL);
    struct harness_process *now, *later;

    now = harness_program("mqsend", "-q", "-0", "--file", harness_path("now"),
                          OP);
    later = harness_program("mqsend", "-q", "-0", "--delay", "3s", "--file",
                            harness_path("later"), OP);
    send_by_library(count);
    send_by_tool(count);
    cr_assert_eq(harness_wait(pika, 300000), 0, "%s", harness_stderr(pika, 0));
    cr_assert_eq(harness_wait(now, 300000), 0, "%s", harness_stderr(now, 0));
    cr_assert_eq(harness_wait(later, 300000), 0, "%s",
                 harness_stderr(later, 0));
}

static void replayed(long letters)
{
    struct harness_result r =
        harness_run("mqdlq", "list", "--json", "--limit", "100000", OP);
    long lines = 0;

    for (const char *at = r.out; (at = strchr(at, '\n')) != NULL; at++)
        lines++;
    cr_assert_eq(lines, letters, "%s", r.err);
    cr_assert_eq(amqp_ready(amqp_of("dead")), letters, "a look takes none");
    harness_write("repaired", "", 0);
    r = harness_run("mqdlq", "replay", "--all", OP);
    cr_assert_eq(r.status, 0, "%s", r.err);
}

Test(amqp_main_job, each_message_of_any_producer_ends_once)
{
    const unsigned count = messages(), limit = 60000 + 60 * count;
    struct harness_process *w, *pika, *tool;
    char some[16];
    long letters;

    if (harness_run(PYTHON, "-c", "import pika").status != 0)
        cr_skip_test("no python3-pika here: scripts/deps --broker");
    if (!harness_has("amqp-consume"))
        cr_skip_test("no amqp-tools here: scripts/deps --broker");
    crcs_make();
    records("now", MQSEND, count, true);
    records("later", MQSEND_LATER, count, true);
    records("lines", PIKA, count, false);
    harness_write("ends", "", 0);
    w = amqp_worker("-c", "4", "--backoff", "1s,2s", "--jitter", "0",
                    "--timeout", "60s", "--", harness_script("h", HANDLER));
    snprintf(some, sizeof some, "%u", count / 20);
    pika = python("take", some, harness_path("by_pika"));
    tool = tool_take(some);
    /* The broker gives to each in turn, so each has some. They may have fewer
     * than they want, if the worker is faster. */
    harness_until(consumers() == 3, 60000);
    sent(count);
    harness_until((long)(harness_lines("ends") + harness_lines("by_pika")) +
                          amqp_ready(amqp_of("dead")) ==
                      (long)count,
                  limit);
    cr_assert_gt(harness_lines("by_pika"), 0, "%s", harness_stderr(pika, 0));
    cr_assert_gt(harness_lines_with("ends", " by-tool"), 0, "%s",
                 harness_stderr(tool, 0));
    letters = amqp_ready(amqp_of("dead"));
    cr_assert_eq((long)harness_lines("died"), letters);
    replayed(letters);
    harness_until(harness_lines("ends") + harness_lines("by_pika") == count,
                  limit);
    harness_run("sh", "-c", "cat by_pika >>ends");
    harness_until(amqp_ready(amqp_queue) == 0, 10000);
    cr_assert_eq(harness_stop(w, 20000), 0);
    ended(count);
    cr_assert_eq(harness_lines("broken"), 0, "bytes of a body are wrong");
    cr_assert_eq(amqp_ready(amqp_of("dead")), 0);
    cr_assert_eq(amqp_ready(amqp_of("dead.kept")), 0);
    cr_assert_eq(harness_log_count(w, "event=link_lost"), 0);
    fprintf(stderr,
            "main job: %u messages, %zu ended by pika, %zu by amqp-consume, "
            "%zu failed attempts, %ld letters replayed\n",
            count, harness_lines("by_pika"),
            harness_lines_with("ends", " by-tool"), harness_lines("tries"),
            letters);
}

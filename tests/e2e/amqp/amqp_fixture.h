/* amqp_fixture.h - a RabbitMQ of the test program's own, and a client of it
 *
 * WHAT   Starts AMQP_BROKER nodes before the first test and ends them after the
 *        last, or when the program is gone. With AMQP_SHARED, programs of one
 *        run of scripts/run-tests share a node, which the first of them starts
 *        and which ends with the run. Also wraps calls of librabbitmq, so that
 *        tests can publish and read queues.
 * WHO    Tests of tests/e2e/amqp. amqp_init is the .init of their suites: it
 *        skips a test where there is no rabbitmq-server.
 *        A program that kills a node, sets an alarm or closes connections that
 *        it has not made must not share. The queues of a test have its pid in
 *        their names.
 * OWNS   The nodes, unless they are shared, and one connection a test.
 * FAILS  By ending the test.
 */
#ifndef TESTS_AMQP_FIXTURE_H
#define TESTS_AMQP_FIXTURE_H

#include <criterion/criterion.h>
#include <criterion/hooks.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/amqp/link.h"
#include "tests/harness/harness.h"

#define AMQP_DIR   "MQW_TEST_BROKER"
#define AMQP_TOOL  "MQW_TEST_RABBIT" /* path of the script */
#define AMQP_NODES 3

static pid_t amqp_pid;
static int amqp_stdin = -1;

static inline void amqp_end(void)
{
    char command[100];
    const char *dir = getenv(AMQP_DIR);

    if (amqp_pid <= 0)
        return;
    close(amqp_stdin);
    waitpid(amqp_pid, NULL, 0);
    amqp_pid = 0;
    if (!dir || !dir[0] || getenv("MQW_TEST_KEEP"))
        return;
    snprintf(command, sizeof command, "rm -rf %s", dir);
    (void)!system(command);
}

/* Start nodes in that folder. They stop when their stdin, `in`, reaches its end
 * of file. Returns true once they are ready. */
static inline bool amqp_start(const char *dir, unsigned nodes, int in)
{
    const char *tool = getenv(AMQP_TOOL);
    char count[8], word[16] = "";
    int out[2];
    bool ready;

    if (pipe2(out, O_CLOEXEC) < 0)
        return false;
    snprintf(count, sizeof count, "%u", nodes);
    amqp_pid = fork();
    if (amqp_pid == 0) {
#ifdef AMQP_TLS
        setenv("RABBIT_TLS", "1", 1);
#endif
        setsid(); /* run-tests ends the processes of its own session */
        dup2(in, 0);
        dup2(out[1], 1);
        execl(tool, "rabbit", "run", dir, count, (char *)NULL);
        _exit(127);
    }
    close(in);
    close(out[1]);
    ready =
        read(out[0], word, sizeof word) > 0 && strncmp(word, "ready", 5) == 0;
    if (!ready)
        fprintf(stderr, "tests of a broker are skipped\n");
    close(out[0]);
    return ready;
}

#ifdef AMQP_SHARED
/* Use the node of this run, and start it if it is missing. Its stdin is a pipe
 * that run-tests holds open. */
static inline void amqp_share(const char *run)
{
    static char dir[PATH_MAX];
    char path[PATH_MAX], ready[PATH_MAX];
    int lock, in;

    snprintf(dir, sizeof dir, "%s/broker", run);
    snprintf(ready, sizeof ready, "%s/broker/ready", run);
    snprintf(path, sizeof path, "%s/broker.lock", run);
    lock = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (lock < 0 || flock(lock, LOCK_EX) < 0)
        return;
    if (access(ready, F_OK) < 0) {
        snprintf(path, sizeof path, "%s/alive", run);
        /* Without a writer, run-tests is gone: do not wait for another. */
        in = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        (void)fcntl(in, F_SETFL, 0);
        if (in >= 0 && mkdir(dir, 0700) == 0 && amqp_start(dir, 1, in))
            close(open(ready, O_CREAT | O_CLOEXEC, 0600));
        else if (amqp_pid > 0)
            /* Criterion would wait for this child, again and again. */
            waitpid(amqp_pid, NULL, 0);
        amqp_pid = 0;
    }
    if (access(ready, F_OK) == 0)
        setenv(AMQP_DIR, dir, 1);
    close(lock);
}
#endif

/* Start the nodes of a test program, or skip its tests if there is no broker
 * here. */
static inline void amqp_begin(unsigned nodes)
{
    static char dir[] = "/tmp/mqw-rabbit-XXXXXX";
    char tool[PATH_MAX];
    int in[2];

    setenv(AMQP_DIR, "", 1);
    if (!realpath("tests/harness/rabbit", tool))
        return;
    setenv(AMQP_TOOL, tool, 1);
#ifdef AMQP_SHARED
    if (getenv("MQW_TEST_RUN")) {
        amqp_share(getenv("MQW_TEST_RUN"));
        return;
    }
#endif
    if (!mkdtemp(dir) || pipe2(in, O_CLOEXEC) < 0)
        return;
    amqp_stdin = in[1];
    if (amqp_start(dir, nodes, in[0]))
        setenv(AMQP_DIR, dir, 1);
    else
        amqp_end(); /* reaps the child, as in amqp_share */
}

/* Start AMQP_BROKER nodes: a test defines it before it includes this file. */
ReportHook(PRE_ALL)(struct criterion_test_set *set)
{
    (void)set;
    amqp_begin(AMQP_BROKER);
}

ReportHook(POST_ALL)(struct criterion_global_stats *stats)
{
    (void)stats;
    amqp_end();
}

/* ---- nodes ---- */

/* Run the script's verb for a node, 1 and up. */
static inline void amqp_node(const char *verb, unsigned node)
{
    char number[8];
    struct harness_result r;

    snprintf(number, sizeof number, "%u", node);
    r = harness_run(getenv(AMQP_TOOL), verb, getenv(AMQP_DIR), number);
    cr_assert_eq(r.status, 0, "%s %u: %s", verb, node, r.err);
}

#define amqp_ctl(...) \
    harness_run(getenv(AMQP_TOOL), "ctl", getenv(AMQP_DIR), "1", __VA_ARGS__)

static inline unsigned amqp_port(unsigned node)
{
    char path[200];
    FILE *f;
    unsigned port = 0;

    snprintf(path, sizeof path, "%s/ports", getenv(AMQP_DIR));
    f = fopen(path, "re");
    cr_assert_not_null(f);
    while (node-- > 0)
        cr_assert_eq(fscanf(f, "%u", &port), 1);
    fclose(f);
    return port;
}

/* Return the operand of a queue, with the hosts of that many nodes. */
static inline const char *amqp_operand(const char *queue, unsigned nodes)
{
    static char text[400];
    int n = snprintf(text, sizeof text, "amqp://guest@");

    for (unsigned i = 1; i <= nodes; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s127.0.0.1:%u",
                      i > 1 ? "," : "", amqp_port(i));
    snprintf(text + n, sizeof text - (size_t)n, "/%%2F/%s", queue);
    return text;
}

/* ---- a client ---- */

static amqp_connection_state_t amqp_client;
static uint64_t amqp_published, amqp_sure; /* on this connection */
static char amqp_queue[64];

static inline void amqp_ok(amqp_rpc_reply_t r)
{
    const amqp_channel_close_t *c = r.reply.decoded;

    if (r.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION &&
        r.reply.id == AMQP_CHANNEL_CLOSE_METHOD)
        cr_assert(false, "%.*s", (int)c->reply_text.len,
                  (char *)c->reply_text.bytes);
    cr_assert_eq(r.reply_type, AMQP_RESPONSE_NORMAL);
}

/* Connect to the first node that answers, and have it confirm what is
 * published. */
static inline void amqp_connect(void)
{
    amqp_socket_t *s;
    struct problem p;
    unsigned node = 0;
    int status;

    cr_assert_eq(rabbit_load(&p), 0, "%s", p.text);
    do {
        amqp_client = amqp_new_connection();
        s = amqp_tcp_socket_new(amqp_client);
        status =
            amqp_socket_open_noblock(s, "127.0.0.1", (int)amqp_port(++node),
                                     &(struct timeval){.tv_sec = 5});
    } while (status != AMQP_STATUS_OK && node < AMQP_NODES);
    cr_assert_eq(status, AMQP_STATUS_OK);
    amqp_ok(amqp_login_with_properties(
        amqp_client, "/", 0, 131072, 0, &(amqp_table_t){0, NULL},
        AMQP_SASL_METHOD_PLAIN, "guest", "guest"));
    amqp_channel_open(amqp_client, 1);
    amqp_ok(amqp_get_rpc_reply(amqp_client));
    amqp_confirm_select(amqp_client, 1);
    amqp_ok(amqp_get_rpc_reply(amqp_client));
    amqp_published = amqp_sure = 0;
}

/* Return a text that the server sent when amqp_connect logged in. */
static inline const char *amqp_property(const char *name)
{
    static char text[100];
    const amqp_table_t *all = amqp_get_server_properties(amqp_client);

    for (int i = 0; i < all->num_entries; i++) {
        const amqp_table_entry_t *e = &all->entries[i];

        if (e->key.len == strlen(name) &&
            memcmp(e->key.bytes, name, e->key.len) == 0)
            snprintf(text, sizeof text, "%.*s", (int)e->value.value.bytes.len,
                     (char *)e->value.value.bytes.bytes);
    }
    return text;
}

/* Return true if the server is RabbitMQ 4.0 or later. */
static inline bool amqp_is_4(void)
{
    return strtoul(amqp_property("version"), NULL, 10) >= 4;
}

static inline void amqp_disconnect(void)
{
    if (amqp_client)
        (void)amqp_destroy_connection(amqp_client);
    amqp_client = NULL;
}

static inline void amqp_init(void)
{
    const char *dir = getenv(AMQP_DIR);

    if (!dir || !dir[0])
        cr_skip_test("no rabbitmq-server here: scripts/deps --broker");
    harness_init();
    snprintf(amqp_queue, sizeof amqp_queue, "q%d", (int)getpid());
    amqp_connect();
}

static inline void amqp_fini(void)
{
    amqp_disconnect();
    if (getenv(AMQP_DIR) && getenv(AMQP_DIR)[0])
        harness_fini();
}

static inline amqp_bytes_t amqp_word(const char *text)
{
    return (amqp_bytes_t){strlen(text), (void *)(uintptr_t)text};
}

/* Count the messages of a queue that no consumer has; -1: there is no such
 * queue. */
static inline long amqp_ready(const char *queue)
{
    const amqp_queue_declare_ok_t *ok = amqp_queue_declare(
        amqp_client, 1, amqp_word(queue), 1, 1, 0, 0, (amqp_table_t){0, NULL});

    if (ok)
        return (long)ok->message_count;
    amqp_disconnect();
    amqp_connect();
    return -1;
}

/* Return the name of another queue of this test, such as "dead". */
static inline const char *amqp_of(const char *what)
{
    static char name[100];

    snprintf(name, sizeof name, "%s.%s", amqp_queue, what);
    return name;
}

/* Wait until the broker has confirmed all that was published. The confirms of
 * several queues come in any order. */
static inline void amqp_confirmed(void)
{
    bool *has = calloc(amqp_published + 1, sizeof *has);
    uint64_t left = amqp_published - amqp_sure;
    amqp_frame_t f;

    cr_assert_not_null(has);
    while (left > 0) {
        const struct timeval limit = {
            .tv_sec =
                (long)(harness_deadline(30000) - harness_now_ms()) / 1000};
        const amqp_basic_ack_t *ack;

        cr_assert_eq(amqp_simple_wait_frame_noblock(amqp_client, &f, &limit),
                     AMQP_STATUS_OK);
        if (f.frame_type != AMQP_FRAME_METHOD)
            continue;
        cr_assert_eq(f.payload.method.id, AMQP_BASIC_ACK_METHOD);
        ack = f.payload.method.decoded;
        cr_assert(ack->delivery_tag <= amqp_published);
        for (uint64_t i = ack->multiple ? amqp_sure + 1 : ack->delivery_tag;
             i <= ack->delivery_tag; i++) {
            left -= !has[i];
            has[i] = true;
        }
        amqp_maybe_release_buffers(amqp_client);
    }
    amqp_sure = amqp_published;
    free(has);
}

static inline void amqp_publish(const char *queue, const void *body,
                                size_t size, amqp_table_t headers)
{
    amqp_basic_properties_t p = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG |
                                           AMQP_BASIC_HEADERS_FLAG,
                                 .delivery_mode = 2,
                                 .headers = headers};

    cr_assert_eq(amqp_basic_publish(
                     amqp_client, 1, (amqp_bytes_t){0, NULL}, amqp_word(queue),
                     1, 0, &p, (amqp_bytes_t){size, (void *)(uintptr_t)body}),
                 AMQP_STATUS_OK);
    amqp_published++;
}

static inline void amqp_send(const char *text)
{
    amqp_publish(amqp_queue, text, strlen(text), (amqp_table_t){0, NULL});
}

/* Publish until the broker refuses a message, which it does a moment after
 * rabbitmqctl has set the limit. Returns how many messages it took. */
static inline long amqp_fill(const char *queue)
{
    const struct timeval limit = {.tv_sec = 30};
    long taken = 0;
    amqp_frame_t f;

    for (;; taken++) {
        amqp_publish(queue, "pre", 3, (amqp_table_t){0, NULL});
        do {
            cr_assert_eq(
                amqp_simple_wait_frame_noblock(amqp_client, &f, &limit),
                AMQP_STATUS_OK);
        } while (f.frame_type != AMQP_FRAME_METHOD);
        amqp_maybe_release_buffers(amqp_client);
        amqp_sure = amqp_published;
        if (f.payload.method.id == AMQP_BASIC_NACK_METHOD)
            return taken;
        cr_assert_eq(f.payload.method.id, AMQP_BASIC_ACK_METHOD);
    }
}

/* Start a worker and wait until its queue exists. */
#define amqp_worker(...) \
    amqp_started(harness_worker(amqp_operand(amqp_queue, 1), __VA_ARGS__))

static inline struct harness_process *amqp_started(struct harness_process *w)
{
    harness_wait_log(w, "event=started", 20000);
    return w;
}

#endif

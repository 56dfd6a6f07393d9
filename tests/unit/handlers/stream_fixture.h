/* stream_fixture.h - coprocesses without an engine around them
 *
 * WHAT   A handler whose command is a shell script, messages for it, and what
 *        it logs. The script runs each body as a command, with $id set.
 * WHO    Unit tests of coprocesses; TestSuite(name, .init = stream_setup,
 *        .fini = stream_teardown).
 * OWNS   The handler; stream_teardown closes it.
 * FAILS  By ending the test.
 */
#ifndef TESTS_STREAM_FIXTURE_H
#define TESTS_STREAM_FIXTURE_H

#include "tests/fixtures/logged.h"
#include "tests/fixtures/passing_clock.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "worker/handlers/coprocess.h"
#include "worker/handlers/handler.h"
#include "worker/loop/loop.h"
#include "worker/source/mq/lent.h"

#define STREAM_BODY 65536
#define STREAM_MANY 64

/* A child that runs each body as a command. */
#define STREAM_EACH \
    "while read -r msg id size rest; do read -r body; eval \"$body\"; done"

struct stream_message {
    struct delivery d;
    struct slot *slot;
    struct lent lent;
};

static struct settings set;
static struct timers *timers;
static struct loop *loop;
static struct handler *handler;
static struct coprocess *coprocess;
static struct outcome out;
static struct stream_message messages[STREAM_MANY];
static char stream_queue[64];

#define OPS         (&handler_stream)
#define COPROCESSES (handler_stream.coprocesses)

/* States of `coprocess`, as bits, in which its waits are skipped. */
static unsigned stream_passes = 1u << COPROCESS_BACKOFF;

static inline bool stream_left_out(void)
{
    return coprocess && stream_passes & 1u << coprocess->state;
}

static inline void stream_setup(void)
{
    logged_begin();
    signal(SIGPIPE, SIG_IGN);
    settings_init(&set);
    set.kill_after_ns = 30 * NS_PER_S;
    clock_passes = stream_left_out;
    snprintf(stream_queue, sizeof stream_queue, "/mqw-coprocess-%d",
             (int)getpid());
    for (unsigned i = 0; i < STREAM_MANY; i++) {
        messages[i].slot = calloc(1, SLOT_HEADER + STREAM_BODY);
        cr_assert(messages[i].slot);
    }
}

/* Open a handler with this command, and get a coprocess of it. */
static inline void stream_open_with(char **argv)
{
    struct problem p;

    set.command = argv;
    snprintf(set.queue, sizeof set.queue, "%s", stream_queue);
    cr_assert_eq(timers_open(&timers), 0);
    cr_assert_eq(loop_open(&loop, timers), 0);
    cr_assert_eq(OPS->open(&handler,
                           &(struct handler_setup){.settings = &set,
                                                   .nonce = clock_wall_ns(),
                                                   .timers = timers,
                                                   .loop = loop},
                           &p),
                 0);
    coprocess = COPROCESSES->get(handler);
    cr_assert(coprocess);
}

/* Do the same for a script of sh -c. */
static inline void stream_open_script(const char *script)
{
    static char sh[] = "/bin/sh", c[] = "-c";
    static char *argv[] = {sh, c, NULL, NULL};

    argv[2] = strdup(script);
    stream_open_with(argv);
}

/* Close the handler as the engine does. */
static inline void stream_shut(void)
{
    coprocess = NULL;
    if (handler)
        OPS->close(&handler);
}

static inline void stream_teardown(void)
{
    stream_shut();
    loop_close(&loop);
    timers_close(&timers);
    cr_assert_eq(waitid(P_ALL, 0, &(siginfo_t){0}, WEXITED | WNOHANG), -1,
                 "a child is left");
    logged_end();
}

/* Return the id of message i. */
static inline const char *stream_id(unsigned i)
{
    return delivery_id(&messages[i].d);
}

/* Make message i, about to run. */
static inline struct delivery *stream_make(unsigned i, const char *text,
                                           size_t size)
{
    struct stream_message *m = &messages[i];
    struct slot_meta meta = {.length = (uint32_t)size, .seq = i + 1};

    cr_assert_leq(size, STREAM_BODY);
    memcpy(m->slot->body, text, size);
    slot_hold(m->slot, &meta);
    lent_init(&m->lent, m->slot, false);
    lent_fill(&m->lent);
    delivery_read(&m->d, &m->lent.m, 0);
    slot_run(m->slot, 1);
    return &m->d;
}

/* Make the coprocess ready for messages. */
static inline void ready(void)
{
    cr_assert_eq(COPROCESSES->ready(coprocess, &out), 0, "%s", out.error);
    cr_assert_gt(COPROCESSES->room(coprocess), 0);
}

/* Send message i with this body. */
static inline void give(unsigned i, const char *body)
{
    COPROCESSES->send(coprocess, stream_make(i, body, strlen(body)));
}

/* Check that message i comes out, with this verdict and error. */
static inline void next_is(unsigned i, enum mqw_verdict verdict,
                           const char *error)
{
    struct delivery *d = COPROCESSES->next(coprocess, &out);

    cr_assert_eq(d, &messages[i].d, "message %td instead of %u: %s",
                 d ? (struct stream_message *)(void *)d - messages : -1, i,
                 logged_text);
    cr_assert_eq(out.kind, OUTCOME_VERDICT, "%s", logged_text);
    cr_assert_eq(out.verdict, verdict, "%s", logged_text);
    cr_assert_str_eq(out.error, error);
}

/* Check that message i comes out, with this kind of outcome. */
static inline void next_kind(unsigned i, enum outcome_kind kind)
{
    cr_assert_eq(COPROCESSES->next(coprocess, &out), &messages[i].d);
    cr_assert_eq(out.kind, kind, "kind %d: %s", (int)out.kind, logged_text);
}

/* Wait until the child has done something. */
static inline void something(void)
{
    struct pollfd p = {.fd = coprocess->epoll, .events = POLLIN};

    cr_assert_eq(poll(&p, 1, -1), 1);
}

/* Wait until the child has ended, while nothing is open. */
static inline void idle_end(void)
{
    do
        something();
    while (coprocess_look(coprocess));
}

/* Wait, while something is open, until the child wrote this line to stderr. */
static inline void heard(const char *line)
{
    for (;;) {
        COPROCESSES->wake(coprocess);
        cr_assert_null(COPROCESSES->next(coprocess, &out));
        if (logged(line))
            break;
        something();
    }
}

/* Return what comes out next, also if the coprocess is woken before. */
static inline struct delivery *next_woken(void)
{
    struct delivery *d;

    do
        d = COPROCESSES->next(coprocess, &out);
    while (!d);
    return d;
}

/* Send one message, and check its verdict. */
static inline void one(const char *body, enum mqw_verdict verdict,
                       const char *error)
{
    ready();
    give(0, body);
    next_is(0, verdict, error);
}

#endif

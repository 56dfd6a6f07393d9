/* harness.h - what an end-to-end test needs around the real programs
 *
 * WHAT   Queues, a scratch directory, processes and waiting, for one Criterion
 *        test at a time: TestSuite(name, .init = harness_init,
 *        .fini = harness_fini). It uses nothing of common/, so that a test does
 *        not check the code by means of the same code.
 * WHO    The test's main thread.
 * OWNS   All it hands out: strings, processes, queues, files. harness_fini ends
 *        and removes them; if the test dies or is killed, a janitor process
 *        does (MQW_TEST_KEEP=1 keeps the files).
 * FAILS  By ending the test, with the file and line of the caller. Limits are
 *        in ms of an idle machine; the harness waits six times as long, times
 *        $MQW_TEST_SLOW (sanitizers). scripts/run-tests limits a whole test.
 */
#ifndef TESTS_HARNESS_H
#define TESTS_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- fixture ---- */

void harness_init(void);
/* Also ends the test if a program of it left a sanitizer's report. */
void harness_fini(void);

/* ---- places ---- */

/* The scratch directory; handlers know it as $TEST_DIR and start in it. */
const char *harness_dir(void);
/* What the programs get as --state-dir; not created here. */
const char *harness_state_dir(void);
/* What the programs get as $RUNTIME_DIRECTORY, in memory; not created here. */
const char *harness_runtime_dir(void);
/* The folder of a queue there, by the rule of docs/formats/custody.md; that of
 * another directory or state directory; and the custody file. */
const char *harness_runtime_folder(const char *queue);
const char *harness_folder_in(const char *runtime, const char *state,
                              const char *queue);
const char *harness_custody(const char *queue);
/* Absolute path of a file in the scratch directory. */
const char *harness_path(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));
/* Program of ours: $MQW_BIN/NAME, or build/bin/NAME. */
const char *harness_bin(const char *name);
/* C handler of tests/harness/handlers/NAME.c, plugin of plugins/NAME.c. */
const char *harness_handler(const char *name);
const char *harness_plugin(const char *name);

/* ---- queues (own mq_ calls) ---- */

/* A fresh name that no queue has; whatever gets it is unlinked at the end. */
const char *harness_queue_name(void);
/* A new queue; 0 = 10 messages, 256 bytes. */
const char *harness_queue(long depth, long message_size);
void harness_send(const char *queue, const void *data, size_t size,
                  unsigned priority);
/* A string without its NUL, priority 0. Waits up to 10 s for room. */
void harness_send_text(const char *queue, const char *text);
/* False when the queue is full. */
bool harness_try_send(const char *queue, const void *data, size_t size,
                      unsigned priority);
/* Bytes received, -1 when empty. `priority` may be NULL. */
ssize_t harness_receive(const char *queue, void *buf, size_t room,
                        unsigned *priority);
/* Messages in the queue; -1 if there is no such queue. */
long harness_queue_length(const char *queue);

/* ---- processes ---- */

struct harness_process; /* opaque */

/* NULL-terminated lists; argv[0] without a slash is looked up in harness_bin's
 * directory first, then in PATH. */
#define HARNESS_LIST(...) ((const char *const[]){__VA_ARGS__, NULL})
struct harness_spec {
    const char *const *argv;
    const char *const *env; /* NULL, or "NAME=value", or "NAME" to unset it */
    const void *input;      /* stdin; NULL: /dev/null */
    size_t input_size;
};
struct harness_process *harness_start(const struct harness_spec *spec);
/* mqworker --state-dir ... QUEUE, then what you give, "--" COMMAND included:
 * harness_worker(q, "--max-attempts", "2", "--", script). It may not be ready
 * on return; a queue that exists can be sent to at once. */
#define harness_worker(queue, ...)                                           \
    harness_start(&(struct harness_spec){                                    \
        .argv = HARNESS_LIST("mqworker", "--state-dir", harness_state_dir(), \
                             (queue), __VA_ARGS__)})
/* Any program of ours with arguments: harness_program("mqsend", q, "hello"). */
#define harness_program(...) \
    harness_start(&(struct harness_spec){.argv = HARNESS_LIST(__VA_ARGS__)})

pid_t harness_pid(const struct harness_process *p);
void harness_signal(const struct harness_process *p, int signal);
/* Exit status, or -signal that ended it. Again: the same answer. */
int harness_wait(struct harness_process *p, unsigned limit_ms);
/* Whether it still runs; reaps it if not. */
bool harness_running(struct harness_process *p);
/* What all processes of this test do, and said last: for a report. */
const char *harness_said(void);
/* How often its threads gave up the processor, all together: a thread that is
 * woken does so once more. */
long harness_switches(const struct harness_process *p);
/* Return the processor time that it has used, in ticks of times(2). */
long harness_ticks(const struct harness_process *p);
/* Wait until its threads have slept for longer than a worker takes to publish
 * what it did last. Return harness_switches; -1: a sanitizer's own thread never
 * sleeps. */
long harness_settled(const struct harness_process *p, unsigned limit_ms);
/* SIGTERM, then harness_wait. */
int harness_stop(struct harness_process *p, unsigned limit_ms);
/* SIGKILL and reap. */
void harness_kill(struct harness_process *p);
/* What it wrote so far; NUL-terminated besides. `size` may be NULL. */
const char *harness_stdout(const struct harness_process *p, size_t *size);
const char *harness_stderr(const struct harness_process *p, size_t *size);
/* First line of its stderr that contains `text`, without newline; waits for a
 * whole line. */
const char *harness_wait_log(struct harness_process *p, const char *text,
                             unsigned limit_ms);
/* How many lines of its stderr contain `text`. */
size_t harness_log_count(const struct harness_process *p, const char *text);

/* Return true if PATH has the program. A test that starts a program of another
 * package asks first and skips itself: harness_start ends the test. */
bool harness_has(const char *program);

/* A program run to its end (limit 60 s). */
struct harness_result {
    int status; /* as harness_wait */
    const char *out, *err;
    size_t out_size, err_size;
};
struct harness_result harness_run_spec(const struct harness_spec *spec);
#define harness_run(...) \
    harness_run_spec(&(struct harness_spec){.argv = HARNESS_LIST(__VA_ARGS__)})

/* Whether any process has this pid and is not a zombie. */
bool harness_alive(pid_t pid);

/* ---- files; relative paths are in the scratch directory ---- */

/* An executable "#!/bin/sh" script; `body` follows. Returns its path. */
const char *harness_script(const char *name, const char *body);
void harness_write(const char *path, const void *data, size_t size);
/* Whole file, NUL-terminated besides; "" if there is none. */
const char *harness_read(const char *path, size_t *size);
bool harness_exists(const char *path);
/* Complete lines; 0 if there is no such file. */
size_t harness_lines(const char *path);
/* Lines that contain `text`. */
size_t harness_lines_with(const char *path, const char *text);
/* The next whole line of a file that grows, from byte *at on; *at is behind it
 * then. False while there is none. */
bool harness_next_line(const char *path, long *at, char *line, size_t room);

/* ---- the state of a worker ---- */

/* Run SQL on the queue's store. A SELECT returns the first value of the last
 * row, or -1 if there is no row, no such table or no store. Any other statement
 * must change a row; it returns -1. */
long long harness_sql(const char *queue, const char *sql);
/* Count the used slots in the custody file (docs/formats/custody.md). */
unsigned harness_busy_slots(const char *queue);

/* ---- waiting for an event, never for time to pass ---- */

#define harness_until(condition, limit_ms)                  \
    do {                                                    \
        uint64_t harness_end_ = harness_patience(limit_ms); \
        while (!(condition))                                \
            harness_nap(harness_end_, #condition);          \
    } while (0)
/* Wait until the file has at least `lines` complete lines. */
#define harness_until_lines(path, lines, limit_ms) \
    harness_until(harness_lines(path) >= (size_t)(lines), limit_ms)

uint64_t harness_deadline(unsigned limit_ms);
/* Return a deadline at least 30 s away, or the present for 0. A test that waits
 * for an event measures no speed: on a busy machine all may take ten times as
 * long. */
uint64_t harness_patience(unsigned limit_ms);
/* 2 ms of sleep, or the end of the test once `deadline` has passed. */
void harness_nap(uint64_t deadline, const char *what);
uint64_t harness_now_ms(void); /* monotonic */

/* ---- the caller's file and line in messages ---- */

void harness_here(const char *file, int line);
#ifndef HARNESS_INTERNAL
#define HARNESS_HERE_(call)    (harness_here(__FILE__, __LINE__), call)
#define harness_queue(...)     HARNESS_HERE_(harness_queue(__VA_ARGS__))
#define harness_send(...)      HARNESS_HERE_(harness_send(__VA_ARGS__))
#define harness_send_text(...) HARNESS_HERE_(harness_send_text(__VA_ARGS__))
#define harness_try_send(...)  HARNESS_HERE_(harness_try_send(__VA_ARGS__))
#define harness_receive(...)   HARNESS_HERE_(harness_receive(__VA_ARGS__))
#define harness_start(...)     HARNESS_HERE_(harness_start(__VA_ARGS__))
#define harness_run_spec(...)  HARNESS_HERE_(harness_run_spec(__VA_ARGS__))
#define harness_signal(...)    HARNESS_HERE_(harness_signal(__VA_ARGS__))
#define harness_wait(...)      HARNESS_HERE_(harness_wait(__VA_ARGS__))
#define harness_stop(...)      HARNESS_HERE_(harness_stop(__VA_ARGS__))
#define harness_sql(...)       HARNESS_HERE_(harness_sql(__VA_ARGS__))
#define harness_busy_slots(q)  HARNESS_HERE_(harness_busy_slots(q))
#define harness_wait_log(...)  HARNESS_HERE_(harness_wait_log(__VA_ARGS__))
#define harness_deadline(...)  HARNESS_HERE_(harness_deadline(__VA_ARGS__))
#endif

#endif

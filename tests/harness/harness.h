/* harness.h - fixture for end-to-end tests of the real programs
 *
 * WHAT   Queues, a scratch directory, processes and waiting, for one Criterion
 *        test at a time: TestSuite(name, .init = harness_init, .fini =
 *        harness_fini). Nothing of common/ is used, so that no code is checked
 *        by itself.
 * WHO    The test's main thread.
 * OWNS   All strings, processes, queues and files that it hands out, until
 *        harness_fini. If the test dies or is killed, a janitor process cleans
 *        up (MQW_TEST_KEEP=1 keeps the files).
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
/* Clean up. Also ends the test with a failure if a program left a sanitizer's
 * report. */
void harness_fini(void);

/* ---- paths ---- */

/* The scratch directory. Handlers start in it and have its path in
 * $TEST_DIR. */
const char *harness_dir(void);
/* The --state-dir of the programs; not created here. */
const char *harness_state_dir(void);
/* Put the state directory on a tmpfs, where fsync(2) does not wait. Call after
 * harness_init. */
void harness_state_on_tmpfs(void);
/* The $RUNTIME_DIRECTORY of the programs, in memory; not created here. */
const char *harness_runtime_dir(void);
/* Return the runtime folder of a queue (docs/formats/custody.md has the rule),
 * the folder that it has with other directories, and its custody file. */
const char *harness_runtime_folder(const char *queue);
const char *harness_folder_in(const char *runtime, const char *state,
                              const char *queue);
const char *harness_custody(const char *queue);
/* Return the absolute path of a file in the scratch directory. */
const char *harness_path(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));
/* Return the path of a program: $MQW_BIN/NAME, or build/bin/NAME. */
const char *harness_bin(const char *name);
/* Return the path of a handler (tests/harness/handlers) or plugin (plugins). */
const char *harness_handler(const char *name);
const char *harness_plugin(const char *name);

/* ---- queues (by own mq_ calls) ---- */

/* Return a name that no queue has. The queue of that name is unlinked at the
 * end. */
const char *harness_queue_name(void);
/* Create a queue; a depth of 0 stands for 10 messages, a size of 0 for 256
 * bytes. */
const char *harness_queue(long depth, long message_size);
void harness_send(const char *queue, const void *data, size_t size,
                  unsigned priority);
/* Send a string without its NUL, with priority 0. Waits up to 10 s for room. */
void harness_send_text(const char *queue, const char *text);
/* Send without waiting; return false if the queue is full. */
bool harness_try_send(const char *queue, const void *data, size_t size,
                      unsigned priority);
/* Receive a message and return its size; -1: the queue is empty. `priority` may
 * be NULL. */
ssize_t harness_receive(const char *queue, void *buf, size_t room,
                        unsigned *priority);
/* Return the number of messages in the queue; -1: there is no such queue. */
long harness_queue_length(const char *queue);

/* ---- processes ---- */

struct harness_process; /* A program that was started. */

/* Lists end with NULL. A name without a slash in argv[0] is looked up in the
 * directory of harness_bin first, then in PATH. */
#define HARNESS_LIST(...) ((const char *const[]){__VA_ARGS__, NULL})
struct harness_spec {
    const char *const *argv;
    const char *const *env; /* NULL, or a list of "NAME=value", or "NAME" to
                             * unset it */
    const void *input;      /* stdin; NULL: /dev/null */
    size_t input_size;
};
struct harness_process *harness_start(const struct harness_spec *spec);
/* Start mqworker for a queue: harness_worker(q, "--max-attempts", "2", "--",
 * script) adds --state-dir and the queue. The worker may not be ready on
 * return, but an existing queue accepts messages. */
#define harness_worker(queue, ...)                                           \
    harness_start(&(struct harness_spec){                                    \
        .argv = HARNESS_LIST("mqworker", "--state-dir", harness_state_dir(), \
                             (queue), __VA_ARGS__)})
/* Start one of our programs: harness_program("mqsend", q, "hello"). */
#define harness_program(...) \
    harness_start(&(struct harness_spec){.argv = HARNESS_LIST(__VA_ARGS__)})

pid_t harness_pid(const struct harness_process *p);
void harness_signal(const struct harness_process *p, int signal);
/* Wait for the end; return the exit status, or -signal. May be called again. */
int harness_wait(struct harness_process *p, unsigned limit_ms);
/* Return true if the program is still running; reap it if not. */
bool harness_running(struct harness_process *p);
/* Describe all processes of this test, with the end of their stderr, for a
 * report. */
const char *harness_said(void);
/* Return how often its threads together gave up the processor. A thread that
 * wakes up and sleeps again adds one. */
long harness_switches(const struct harness_process *p);
/* Return the processor time that it has used, in ticks of times(2). */
long harness_ticks(const struct harness_process *p);
/* Wait until its threads have slept for longer than a worker takes to publish
 * what it did last. Return harness_switches; -1 with the thread sanitizer,
 * whose own thread never sleeps. */
long harness_settled(const struct harness_process *p, unsigned limit_ms);
/* Send SIGTERM, then call harness_wait. */
int harness_stop(struct harness_process *p, unsigned limit_ms);
/* Send SIGKILL and reap. */
void harness_kill(struct harness_process *p);
/* Return its output so far, with a NUL behind it. `size` may be NULL. */
const char *harness_stdout(const struct harness_process *p, size_t *size);
const char *harness_stderr(const struct harness_process *p, size_t *size);
/* Return the first line of its stderr that contains `text`, without the
 * newline; waits for a complete line. */
const char *harness_wait_log(struct harness_process *p, const char *text,
                             unsigned limit_ms);
/* Count the lines of its stderr that contain `text`. */
size_t harness_log_count(const struct harness_process *p, const char *text);

/* Return true if PATH has the program. Tests that need a program of another
 * package call this first and skip themselves, because harness_start would
 * fail. */
bool harness_has(const char *program);

/* Result of a program that was run to its end (limit 60 s). */
struct harness_result {
    int status; /* as harness_wait */
    const char *out, *err;
    size_t out_size, err_size;
};
struct harness_result harness_run_spec(const struct harness_spec *spec);
#define harness_run(...) \
    harness_run_spec(&(struct harness_spec){.argv = HARNESS_LIST(__VA_ARGS__)})

/* Return true if a process has this pid and is not a zombie. */
bool harness_alive(pid_t pid);

/* ---- files; relative paths begin in the scratch directory ---- */

/* Write an executable script of "#!/bin/sh" and `body`; return its path. */
const char *harness_script(const char *name, const char *body);
void harness_write(const char *path, const void *data, size_t size);
/* Return the contents of a file, with a NUL behind them; "": no such file. */
const char *harness_read(const char *path, size_t *size);
bool harness_exists(const char *path);
/* Count complete lines; 0 if there is no such file. */
size_t harness_lines(const char *path);
/* Count the lines that contain `text`. */
size_t harness_lines_with(const char *path, const char *text);
/* Read the next complete line of a growing file from offset *at, and advance
 * *at. Return false if there is none. */
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
/* Return a deadline at least 30 s away; for a limit of 0, the present time. A
 * test that waits for an event measures no speed, and a busy machine may take
 * ten times as long. */
uint64_t harness_patience(unsigned limit_ms);
/* Sleep 2 ms, or fail the test once `deadline` has passed. */
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

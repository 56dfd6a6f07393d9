/* test_worker_handler.c - mqworker: the environment and descriptors of
 * handlers */
#include "tests/harness/harness.h"
#include "tests/harness/letters.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

TestSuite(worker_handler, .init = harness_init, .fini = harness_fini);

#define ID "01JD3Z6Q9V0X8N5T2K7B4M1C3F"

/* A shell handler that finally writes a line to the file "done". */
#define SHELL(script) "--", "sh", "-c", script "; echo >>done"

/* Let a worker with these arguments run one message, and stop it. */
#define run_once(queue, ...)                                             \
    do {                                                                 \
        struct harness_process *w_ = harness_worker(queue, __VA_ARGS__); \
        harness_until_lines("done", 1, 5000);                            \
        cr_assert_eq(harness_stop(w_, 5000), 0);                         \
    } while (0)

/* Return the value of MQW_* in the file "env"; NULL if it is missing. */
static const char *variable(const char *name)
{
    static char out[512];
    size_t size, length = strlen(name);
    const char *env = harness_read("env", &size);
    for (const char *at = env; at < env + size; at += strlen(at) + 1) {
        if (strncmp(at, name, length) == 0 && at[length] == '=') {
            snprintf(out, sizeof out, "%s", at + length + 1);
            return out;
        }
    }
    return NULL;
}

static uint64_t wall_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

Test(worker_handler, the_environment_of_a_message_with_a_header_is_whole)
{
    const char *q = harness_queue(0, 0);
    static const char message[] =
        "MQW/1\nid: " ID "\nsent: 1732126091123456789\ngroup: account 7\n"
        "x-trace: a=b c\nx-two-words: z\nunknown: u\n\nbody";
    harness_send(q, message, sizeof message - 1, 7);
    uint64_t before = wall_ns();
    run_once(q, "--max-attempts", "9", SHELL("cat /proc/$$/environ >env"));
    cr_assert_str_eq(variable("MQW_QUEUE"), q);
    cr_assert_str_eq(variable("MQW_ID"), ID);
    cr_assert_str_eq(variable("MQW_PRIORITY"), "7");
    cr_assert_str_eq(variable("MQW_ATTEMPT"), "1");
    cr_assert_str_eq(variable("MQW_MAX_ATTEMPTS"), "9");
    cr_assert_str_eq(variable("MQW_REDELIVERED"), "0");
    cr_assert_str_eq(variable("MQW_SENT_AT"), "1732126091123456789");
    cr_assert_str_eq(variable("MQW_GROUP"), "account 7");
    cr_assert_str_eq(variable("MQW_X_TRACE"), "a=b c");
    cr_assert_str_eq(variable("MQW_X_TWO_WORDS"), "z");
    cr_assert_null(variable("MQW_UNKNOWN"));
    cr_assert_null(variable("MQW_LENGTH_INFERRED"));
    uint64_t at = strtoull(variable("MQW_RECEIVED_AT"), NULL, 10);
    cr_assert(before <= at && at <= wall_ns());
}

Test(worker_handler, a_raw_message_gets_an_id_and_no_group)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    run_once(q, SHELL("cat /proc/$$/environ >env"));
    const char *id = variable("MQW_ID");
    cr_assert_not_null(id);
    cr_assert_eq(strspn(id, "0123456789ABCDEFGHJKMNPQRSTVWXYZ"), 26, "%s", id);
    cr_assert_eq(strlen(id), 26);
    cr_assert_str_eq(variable("MQW_PRIORITY"), "0");
    cr_assert_str_eq(variable("MQW_ATTEMPT"), "1");
    const char *group = variable("MQW_GROUP"), *sent = variable("MQW_SENT_AT");
    cr_assert(!group || !group[0]);
    cr_assert(!sent || !sent[0]);
}

Test(worker_handler, the_workers_own_environment_is_passed_on)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w = harness_start(&(struct harness_spec){
        .argv = HARNESS_LIST("mqworker", "--state-dir", harness_state_dir(), q,
                             SHELL("cat /proc/$$/environ >env")),
        .env = HARNESS_LIST("MINE=my value", "MQW_GROUP=of another worker",
                            "MQW_X_OLD=1")});
    harness_until_lines("done", 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_str_eq(variable("MINE"), "my value");
    cr_assert_str_eq(variable("TEST_DIR"), harness_dir());
    const char *group = variable("MQW_GROUP");
    cr_assert(!group || !group[0], "inherited from a worker above: %s", group);
    cr_assert_null(variable("MQW_X_OLD"));
}

/* sh is the handler: our programs may have descriptors of a sanitizer. */
Test(worker_handler, no_descriptor_but_0_1_and_2_is_open)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    /* Descriptor 7 is open in the worker by mistake. */
    struct harness_process *w =
        harness_program("sh", "-c", "exec 7</dev/null; exec \"$@\"", "sh",
                        harness_bin("mqworker"), "--state-dir",
                        harness_state_dir(), q, SHELL("ls /proc/$$/fd"));
    harness_until_lines("done", 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_str_eq(harness_stdout(w, NULL), "0\n1\n2\n");
}

Test(worker_handler, stdin_is_a_file_read_from_its_start)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "body");
    run_once(q, SHELL("test -f /dev/stdin && cat >one && cat >two; "
                      "cat /dev/stdin >three"));
    cr_assert_str_eq(harness_read("one", NULL), "body");
    cr_assert_str_eq(harness_read("two", NULL), "", "stdin not at its end");
    cr_assert(harness_exists("two"));
}

Test(worker_handler, the_body_is_neither_argument_nor_variable_nor_shell_text)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "$(touch hacked); `touch hacked`; secret-body");
    run_once(q, SHELL("cat /proc/$$/cmdline /proc/$$/environ >seen"), "a $b");
    cr_assert_not(harness_exists("hacked"));
    size_t size;
    const char *seen = harness_read("seen", &size);
    cr_assert_null(memmem(seen, size, "secret-body", 11));
    cr_assert_not_null(memmem(seen, size, "\0a $b\0", 6), "argument lost");
}

/* The worker runs in the foreground of a terminal, which no handler may get. */
Test(worker_handler, it_has_no_terminal_to_wait_for)
{
    const char *q = harness_queue(0, 0);
    char line[1024];

    if (access("/usr/bin/script", X_OK) != 0)
        cr_skip_test("no script(1) here (Debian: bsdutils)");
    harness_send_text(q, "x");
    snprintf(line, sizeof line,
             "exec %s --state-dir %s --exit-when-idle=0s --timeout 20s %s -- "
             "sh -c 'if read x </dev/tty; then exit 1; fi; echo >>ran'",
             harness_bin("mqworker"), harness_state_dir(), q);
    struct harness_result r = harness_run("script", "-qec", line, "/dev/null");
    cr_assert_eq(r.status, 0, "%s%s", r.out, r.err);
    cr_assert_eq(harness_lines("ran"), 1, "%s%s", r.out, r.err);
}

Test(worker_handler, one_that_is_stopped_is_reported_once)
{
    const char *q = harness_queue(0, 0), *line;

    harness_send_text(q, "x");
    struct harness_process *w = harness_worker(
        q, "--", "sh", "-c", "kill -STOP $$; kill -STOP $$; echo >>ran");
    line = harness_wait_log(w, "event=handler_stopped", 5000);
    cr_assert(strstr(line, " signal=STOP next="), "%s", line);
    pid_t pid = (pid_t)atol(strstr(line, "pid=") + 4);
    cr_assert_eq(kill(pid, SIGCONT), 0);
    harness_until(harness_log_count(w, "event=handler_stopped") == 2, 5000);
    cr_assert_eq(kill(pid, SIGCONT), 0);
    harness_until_lines("ran", 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_log_count(w, "event=handler_stopped"), 2);
}

Test(worker_handler, it_leads_a_session_and_a_process_group_of_its_own)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    run_once(q, SHELL("set -- $(cat /proc/$$/stat); echo $1 $5 $6 >group"));
    int pid, group, session;
    cr_assert_eq(
        sscanf(harness_read("group", NULL), "%d %d %d", &pid, &group, &session),
        3);
    cr_assert_eq(pid, group);
    cr_assert_eq(pid, session);
}

Test(worker_handler, signals_are_as_a_program_expects_them)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    run_once(q, SHELL("grep -E '^Sig(Blk|Ign)' /proc/self/status >sig"));
    unsigned long long blocked, ignored;
    cr_assert_eq(sscanf(harness_read("sig", NULL), "SigBlk: %llx SigIgn: %llx",
                        &blocked, &ignored),
                 2);
    cr_assert_eq(blocked, 0);
    /* 32 and 33 are glibc's own signals; its posix_spawn ignores them. */
    cr_assert_eq(ignored & ~(3ULL << 31), 0, "%llx", ignored);
}

Test(worker_handler, its_stdout_is_the_workers_stdout)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, SHELL("printf 'plain\\0 bytes'"));
    harness_until_lines("done", 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    size_t size;
    const char *out = harness_stdout(w, &size);
    cr_assert_eq(size, 12);
    cr_assert_arr_eq(out, "plain\0 bytes", 12);
}

Test(worker_handler, its_stderr_is_logged_line_by_line_with_the_id)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "MQW/1\nid: " ID "\n\n");
    struct harness_process *w = harness_worker(
        q, SHELL("printf 'one\\ntwo words\\n\\033[31mred\\nno end' >&2"));
    harness_until_lines("done", 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    const char *line = harness_wait_log(w, "=one", 0);
    cr_assert(strstr(line, "msg=" ID), "%s", line);
    cr_assert(strstr(harness_wait_log(w, "\"two words\"", 0), "msg=" ID));
    cr_assert(strstr(harness_wait_log(w, "no end", 0), "msg=" ID));
    cr_assert(strstr(harness_wait_log(w, "31mred", 0), "msg=" ID));
    cr_assert_null(strchr(harness_stderr(w, NULL), '\033'));
}

Test(worker_handler, the_last_4_KiB_of_stderr_are_kept_with_a_failure)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w = harness_worker(
        q, "--max-attempts", "1", "--stderr-rate", "0", "--", "sh", "-c",
        "seq 100000 199999 >&2; printf 'the end' >&2; exit 1");
    const struct harness_letter *l = harness_wait_letters(q, 1, 20000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(l->said_size, 4096);
    cr_assert_str_eq(l->said + 4096 - 14, "199999\nthe end");
    size_t lines = harness_log_count(w, "event=handler_stderr");
    cr_assert_eq(lines, 100001, "%zu lines in the log", lines);
}

/* Return how many lines the log says were left out. */
static size_t dropped(const struct harness_process *w)
{
    const char *at = harness_stderr(w, NULL);
    size_t sum = 0;

    while ((at = strstr(at, "event=handler_stderr_dropped ")) != NULL) {
        at = strstr(at, " lines=") + strlen(" lines=");
        sum += strtoul(at, NULL, 10);
    }
    return sum;
}

/* Check that some of many lines are logged and the others are counted. */
static void flood_check(const struct harness_process *w, size_t all,
                        uint64_t since_ms)
{
    size_t lines = harness_log_count(w, "event=handler_stderr ");
    size_t most = 2000 + (harness_now_ms() - since_ms) / 5 + 1;

    cr_assert_geq(lines, 2000);
    cr_assert_leq(lines, most, "%zu lines in the log", lines);
    cr_assert_eq(lines + dropped(w), all, "%zu and %zu", lines, dropped(w));
}

Test(worker_handler, stderr_is_logged_at_a_bounded_rate_and_the_rest_counted)
{
    const char *q = harness_queue(0, 0);
    uint64_t since = harness_now_ms();
    for (int i = 0; i < 2; i++)
        harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, "--max-attempts", "1", "--", "sh", "-c",
                       "seq 100000 199999 >&2; printf 'the end' >&2; exit 1");
    const struct harness_letter *l = harness_wait_letters(q, 2, 20000);
    cr_assert_eq(l->said_size, 4096);
    cr_assert_str_eq(l->said + 4096 - 14, "199999\nthe end");
    harness_wait_log(w, "event=handler_stderr_dropped", 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    flood_check(w, 200002, since);
    const char *stopped = strstr(harness_stderr(w, NULL), "event=stopped");
    cr_assert_null(strstr(stopped, "event=handler_stderr"));
}

Test(worker_handler, stderr_of_children_that_last_is_bounded_too)
{
    const char *q = harness_queue(0, 0);
    uint64_t since = harness_now_ms();
    harness_send_text(q, "x");
    struct harness_process *w = harness_worker(
        q, "--stream", "--max-deliveries", "1", "--", "sh", "-c",
        "read -r msg id rest || exit 0; read -r body; seq 100000 129999 >&2;"
        "echo OK $id; read -r end");
    cr_assert_eq(harness_wait(w, 20000), 0);
    flood_check(w, 30000, since);
}

Test(worker_handler, a_grandchild_with_stderr_open_does_not_hold_the_thread)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "-c", "1", "--", "sh", "-c",
                       "(trap '' TERM; echo $$ >pid; sleep 1000) & "
                       "echo before >&2; echo >>runs");
    for (int i = 0; i < 3; i++)
        harness_send_text(q, "x");
    harness_until_lines("runs", 3, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_log_count(w, "line=before"), 3);
}

Test(worker_handler, a_flood_on_stderr_neither_blocks_nor_starves_others)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "flood");
    harness_send_text(q, "x");
    struct harness_process *w = harness_worker(
        q, "-q", "-c", "2", "--", "sh", "-c",
        "read b; if [ \"$b\" = flood ]; then"
        "  while [ ! -e go ]; do echo line >&2; done; fi; echo >>runs");
    harness_until_lines("runs", 1, 5000);
    harness_write("go", "", 0);
    harness_until_lines("runs", 2, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(worker_handler, it_is_found_in_PATH_and_keeps_its_arguments)
{
    const char *q = harness_queue(0, 0);
    char path[8192];
    snprintf(path, sizeof path, "PATH=/nowhere:%s:%s", harness_dir(),
             getenv("PATH"));
    harness_script("my-handler",
                   "printf '%s|' \"$0\" \"$@\" >args; echo >done");
    harness_send_text(q, "x");
    struct harness_process *w = harness_start(&(struct harness_spec){
        .argv = HARNESS_LIST("mqworker", "--state-dir", harness_state_dir(), q,
                             "--", "my-handler", "-c", "", "--", "*"),
        .env = HARNESS_LIST(path)});
    harness_until_lines("done", 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    const char *args = strchr(harness_read("args", NULL), '|');
    cr_assert_str_eq(args, "|-c||--|*|");
}

Test(worker_handler, no_zombie_is_left_behind)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "-c", "2", "--", harness_handler("record"));
    for (int i = 0; i < 10; i++)
        harness_send_text(q, "x");
    harness_until_lines("runs", 10, 5000);
    char command[128];
    snprintf(command, sizeof command, "cat /proc/%d/task/*/children",
             (int)harness_pid(w));
    harness_until(harness_run("sh", "-c", command).out_size == 0, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

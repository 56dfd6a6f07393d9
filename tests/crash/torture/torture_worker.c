/* torture_worker.c - start and stop the worker under torture (see torture.h) */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <bsd/stdlib.h>

#include "common/base/clock.h"
#include "common/base/libc.h"
#include "tests/crash/torture/torture.h"
#include "tests/crash/torture/torture_tracer.h"

#define ARGUMENTS 40
#define STOP_NS   (30 * NS_PER_S)
#define TICK_NS   200000

/* Append a list of arguments. */
static size_t arguments_add(const char **argv, size_t n,
                            const char *const *list)
{
    for (size_t i = 0; list && list[i] && n + 1 < ARGUMENTS; i++)
        argv[n++] = list[i];
    return n;
}

/* Append the arguments for this kind of handler; `path` holds its path. */
static size_t handler_arguments(const struct torture *t, const char **argv,
                                size_t n, char path[PATH_MAX])
{
    static const char *const files[] = {"handlers/torture_exec",
                                        "handlers/torture_stream",
                                        "plugins/torture.so"};
    const char *exec[] = {"--on-exit", "3=discard", "--", path, NULL};
    /* With one message at a time, each is sent, answered and done before the
     * next. */
    const char *window = t->world->terms.plain ? "1" : "16";
    const char *stream[] = {"--stream", "--window", window, "--", path, NULL};
    const char *plugin[] = {"--plugin", path, NULL};
    const char *dir = getenv("MQW_HANDLERS");
    enum torture_kind kind = t->kind;

    snprintf(path, PATH_MAX, "%.4000s/%s", dir ? dir : "build/tests",
             t->plugin ? t->plugin : files[kind]);
    return arguments_add(argv, n,
                         kind == TORTURE_EXEC     ? exec
                         : kind == TORTURE_STREAM ? stream
                                                  : plugin);
}

/* Send the output of a child to the log. */
static void log_to(const struct torture *t)
{
    int log = open(place_path(t, "log"), O_WRONLY | O_CREAT | O_APPEND, 0600);
    int null = open("/dev/null", O_RDONLY);

    dup2(null, 0);
    dup2(log, 1);
    dup2(log, 2);
    closefrom(3);
}

/* Turn the child into the program. */
static _Noreturn void program_exec(struct torture *t, const char **argv,
                                   const char *kill_at)
{
    char number[16];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* A shell ignores these two signals in background processes. */
    signal(SIGINT, SIG_DFL);
    signal(SIGQUIT, SIG_DFL);
    snprintf(number, sizeof number, "%u", t->worker.generation);
    setenv(TORTURE_WORLD, t->file, 1);
    setenv(TORTURE_GENERATION, number, 1);
    /* A program that is killed during its leak check would complain. */
    setenv("ASAN_OPTIONS", "detect_leaks=0", 0);
    if (kill_at)
        setenv("MQW_KILL_AT", kill_at, 1);
    log_to(t);
    if (t->traced)
        tracer_child();
    execv(argv[0], (char *const *)argv);
    fprintf(stderr, "torture: %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

/* The last workers, and where each was to be killed. */
#define LIVES 12
static char lives[LIVES][96];

static void life_note(unsigned generation, const char *kill_at,
                      const char *const *more)
{
    snprintf(lives[generation % LIVES], sizeof lives[0], "%u %s%s%s",
             generation, kill_at ? kill_at : "-", more ? " " : "",
             more ? *more : "");
}

void worker_print_lives(const struct torture *t)
{
    fprintf(stderr, "torture: the last workers, and where each was to be "
                    "killed:\n");
    for (unsigned i = t->worker.generation + 1;
         i <= t->worker.generation + LIVES; i++)
        if (lives[i % LIVES][0])
            fprintf(stderr, "    %s\n", lives[i % LIVES]);
}

/* Append the worker's flags for --spool. If each message starts a process, the
 * worker is slower than the senders. A small spool then keeps the backlog
 * short, and workers are also killed while their spool is full. */
static size_t spool_arguments(const struct torture *t, const char **argv,
                              size_t n)
{
    static const char *const bound[] = {"--spool=1000", NULL};
    static const char *const most[] = {"--spool", NULL};
    static const char *const always[] = {"--spool-sync", "always", NULL};

    if (t->options->spool == SPOOL_OFF)
        return n;
    n = arguments_add(argv, n, t->kind == TORTURE_EXEC ? bound : most);
    return t->options->spool == SPOOL_ALWAYS ? arguments_add(argv, n, always)
                                             : n;
}

void worker_start(struct torture *t, const char *kill_at,
                  const char *const *more)
{
    char program[PATH_MAX], state[PATH_MAX], handler[PATH_MAX];
    const char *argv[ARGUMENTS] = {program,
                                   "-q",
                                   "--state-dir",
                                   state,
                                   "-c",
                                   "4",
                                   "--backoff",
                                   "5ms,20ms",
                                   "--jitter",
                                   "100",
                                   "--kill-after",
                                   "100ms",
                                   "--max-crashes",
                                   "10000",
                                   "--max-attempts",
                                   "100"};
    size_t n = 16;

    snprintf(program, sizeof program, "%.4000s/mqworker", t->bins);
    snprintf(state, sizeof state, "%s", place_path(t, "state"));
    n = arguments_add(argv, n, more);
    n = spool_arguments(t, argv, n);
    argv[n++] = t->queue;
    handler_arguments(t, argv, n, handler);
    life_note(++t->worker.generation, kill_at, more);
    t->worker.asked = false;
    t->worker.begun_ns = clock_mono_ns();
    t->worker.pid = fork();
    if (t->worker.pid < 0)
        torture_die("fork: %s", strerror(errno));
    if (t->worker.pid == 0)
        program_exec(t, argv, kill_at);
    syncer_follow(t);
}

uint64_t worker_first_ns(const struct torture *t)
{
    uint64_t ns;

    if (atomic_load(&t->world->first_generation) != t->worker.generation)
        return 0;
    /* The witness writes the number before the time. */
    ns = atomic_load(&t->world->first_ns);
    return ns > t->worker.begun_ns ? ns : 0;
}

bool worker_ended(struct torture *t, int *status)
{
    if (waitpid(t->worker.pid, status, WNOHANG) != t->worker.pid)
        return false;
    t->worker.pid = 0;
    return true;
}

void worker_kill(struct torture *t)
{
    int status;

    kill(t->worker.pid, SIGKILL);
    if (waitpid(t->worker.pid, &status, 0) < 0)
        torture_die("waitpid: %s", strerror(errno));
    t->worker.pid = 0;
    if (WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : status == 0)
        return;
    fprintf(stderr, "torture: the worker ended before its kill, status %x\n",
            (unsigned)status);
    place_print_log(t);
    t->failed = true;
}

bool worker_stop(struct torture *t)
{
    uint64_t end = clock_mono_ns() + STOP_NS;
    int status;

    kill(t->worker.pid, SIGTERM);
    while (!worker_ended(t, &status)) {
        torture_nap(TICK_NS);
        if (clock_mono_ns() < end)
            continue;
        worker_kill(t);
        t->failed = true;
        fprintf(stderr, "torture: the worker did not stop at SIGTERM\n");
        return false;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM &&
        !worker_first_ns(t))
        return true; /* it had not set up its signals, so there was nothing to
                      * do */
    t->failed = true;
    fprintf(stderr, "torture: the worker ended with status %x at SIGTERM\n",
            (unsigned)status);
    return false;
}

void worker_note(struct torture *t, uint64_t until_ns)
{
    struct torture_sum *s = &t->sum;
    uint64_t first = worker_first_ns(t);

    if (!first)
        return;
    if (s->recoveries == s->recovery_room) {
        s->recovery_room = s->recovery_room ? s->recovery_room * 2 : 1024;
        s->recovery_ns = reallocarray(s->recovery_ns, s->recovery_room,
                                      sizeof *s->recovery_ns);
        if (!s->recovery_ns)
            torture_die("out of memory");
    }
    s->recovery_ns[s->recoveries++] = first - t->worker.begun_ns;
    if (until_ns > first)
        s->life_ns += until_ns - first;
}

pid_t program_start(struct torture *t, const char *kill_at,
                    const char *const *arguments)
{
    char program[PATH_MAX];
    const char *argv[ARGUMENTS] = {program};
    pid_t pid;

    snprintf(program, sizeof program, "%.4000s/%s", t->bins, arguments[0]);
    arguments_add(argv, 1, arguments + 1);
    pid = fork();
    if (pid == 0)
        program_exec(t, argv, kill_at);
    if (pid < 0)
        torture_die("fork: %s", strerror(errno));
    return pid;
}

int program_run(struct torture *t, const char *kill_at,
                const char *const *arguments)
{
    pid_t pid = program_start(t, kill_at, arguments);
    int status;

    if (waitpid(pid, &status, 0) < 0)
        torture_die("waitpid: %s", strerror(errno));
    return status;
}

/* processes.c - programs under test: start, signal, wait, read their output */
#include "tests/harness/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RUN_LIMIT_MS = 60000, TAIL = 2000 };

struct harness_process {
    struct harness_process *next;
    const char *name;
    const char *in, *out, *err; /* paths */
    pid_t pid;
    bool reaped;
    int status; /* exit status or -signal, once reaped */
};

static struct harness_process *processes; /* newest first */

/* ---- in the child ---- */

/* Make a sanitizer write its reports to the scratch directory. */
static void sanitizer_set(const char *variable, const char *more)
{
    char value[1024];
    const char *old = getenv(variable);
    snprintf(value, sizeof value, "%s%slog_path=%s/sanitizer%s", old ? old : "",
             old ? ":" : "", harness_dir(), more);
    setenv(variable, value, 1);
}

/* Set the environment that every program gets, then that of the test. */
static void environment_set(const char *const *env)
{
    char elsewhere[1024];
    setenv("TEST_DIR", harness_dir(), 1);
    /* A program without --state-dir must not find the user's state
     * directory. */
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", harness_dir());
    setenv("STATE_DIRECTORY", elsewhere, 1);
    sanitizer_set("ASAN_OPTIONS", ":exitcode=99");
    sanitizer_set("UBSAN_OPTIONS", ":print_stacktrace=1");
    /* Its preset 66 would pass for EX_NOINPUT. */
    sanitizer_set("TSAN_OPTIONS", ":exitcode=99");
    for (; env && *env; env++) {
        if (strchr(*env, '='))
            putenv((char *)*env);
        else
            unsetenv(*env);
    }
}

static void descriptor_set(int to, const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0600);
    if (fd < 0 || dup2(fd, to) < 0)
        _exit(127);
}

bool harness_has(const char *program)
{
    const char *path = getenv("PATH");
    char *all = strdup(path ? path : ""), *rest = all;
    bool found = false;

    for (char *dir; !found && (dir = strsep(&rest, ":"));)
        found = access(harness_path("%s/%s", dir, program), X_OK) == 0;
    free(all);
    return found;
}

/* Execute the program; if that fails, send errno to `report`. */
static _Noreturn void child_exec(const struct harness_spec *spec,
                                 const struct harness_process *p,
                                 const char *program, int report)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int s = 1; s < NSIG; s++)
        signal(s, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);
    descriptor_set(0, p->in, O_RDONLY);
    descriptor_set(1, p->out, O_WRONLY | O_CREAT | O_APPEND);
    descriptor_set(2, p->err, O_WRONLY | O_CREAT | O_APPEND);
    environment_set(spec->env);
    int err = chdir(harness_dir()) < 0 ? errno : 0;
    if (!err) {
        execvp(program, (char *const *)spec->argv);
        err = errno;
    }
    ssize_t ignored = write(report, &err, sizeof err);
    (void)ignored;
    _exit(127);
}

/* ---- start ---- */

/* Make the record of a program that is about to start. */
static struct harness_process *process_new(const struct harness_spec *spec)
{
    static unsigned number;
    struct harness_process *p = harness_keep(calloc(1, sizeof *p));
    const char *slash = strrchr(spec->argv[0], '/');
    p->name = harness_keep(strdup(slash ? slash + 1 : spec->argv[0]));
    number++;
    p->out = harness_path("%s.%u.out", p->name, number);
    p->err = harness_path("%s.%u.err", p->name, number);
    p->in = "/dev/null";
    if (spec->input) {
        p->in = harness_path("%s.%u.in", p->name, number);
        harness_write(p->in, spec->input, spec->input_size);
    }
    return p;
}

struct harness_process *harness_start(const struct harness_spec *spec)
{
    int report[2], err = 0;
    struct harness_process *p = process_new(spec);
    const char *program = spec->argv[0];
    if (!strchr(program, '/') && access(harness_bin(program), X_OK) == 0)
        program = harness_bin(program);
    if (pipe2(report, O_CLOEXEC) < 0)
        harness_fail("pipe: %s", strerror(errno));
    p->pid = fork();
    if (p->pid < 0)
        harness_fail("fork: %s", strerror(errno));
    if (p->pid == 0)
        child_exec(spec, p, program, report[1]);
    close(report[1]);
    p->next = processes;
    processes = p;
    ssize_t got = read(report[0], &err, sizeof err);
    close(report[0]);
    if (got > 0)
        harness_fail("cannot start %s: %s", program, strerror(err));
    return p;
}

/* ---- end ---- */

/* Reap the program, with `flags` for waitpid. Return true if it has ended. */
static bool process_reap(struct harness_process *p, int flags)
{
    int status;
    if (p->reaped)
        return true;
    pid_t got;
    while ((got = waitpid(p->pid, &status, flags)) < 0 && errno == EINTR)
        ;
    if (got == 0)
        return false;
    if (got < 0)
        harness_fail("%s: waitpid: %s", p->name, strerror(errno));
    p->reaped = true;
    p->status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    return true;
}

/* Fail the test; the message ends with the end of the program's stderr. */
static _Noreturn void process_complain(const struct harness_process *p,
                                       const char *what)
{
    size_t size;
    const char *said = harness_stderr(p, &size);
    if (size > TAIL)
        said += size - TAIL;
    harness_fail("%s (pid %d): %s; its stderr ends:\n%s", p->name, (int)p->pid,
                 what, said);
}

bool harness_running(struct harness_process *p)
{
    return !process_reap(p, WNOHANG);
}

int harness_wait(struct harness_process *p, unsigned limit_ms)
{
    uint64_t deadline = harness_deadline(limit_ms);
    while (!process_reap(p, WNOHANG)) {
        if (harness_now_ms() >= deadline)
            process_complain(p, "did not end within the limit");
        harness_nap(UINT64_MAX, "");
    }
    return p->status;
}

pid_t harness_pid(const struct harness_process *p)
{
    return p->pid;
}

void harness_signal(const struct harness_process *p, int signal)
{
    if (p->reaped)
        process_complain(p, "has ended already, cannot be signalled");
    if (kill(p->pid, signal) < 0)
        harness_fail("%s: kill: %s", p->name, strerror(errno));
}

int harness_stop(struct harness_process *p, unsigned limit_ms)
{
    harness_signal(p, SIGTERM);
    return harness_wait(p, limit_ms);
}

void harness_kill(struct harness_process *p)
{
    if (!p->reaped)
        kill(p->pid, SIGKILL);
    process_reap(p, 0);
}

void processes_end(void)
{
    for (struct harness_process *p = processes; p; p = p->next)
        harness_kill(p);
    processes = NULL;
}

bool harness_alive(pid_t pid)
{
    char path[64], state = 'Z';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    /* The name may contain blanks and brackets; the state follows the last
     * ')'. */
    char line[512];
    const char *end = fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
    if (end && end[1] == ' ')
        state = end[2];
    fclose(f);
    return state != 'Z' && state != 'X';
}

/* ---- output ---- */

const char *harness_stdout(const struct harness_process *p, size_t *size)
{
    return harness_read(p->out, size);
}

const char *harness_stderr(const struct harness_process *p, size_t *size)
{
    return harness_read(p->err, size);
}

/* Describe a process: its title (a worker's shows its state), where its threads
 * wait, and the end of its stderr. */
static size_t process_said(const struct harness_process *p, bool runs,
                           char *out, size_t room)
{
    enum { EACH = 800 };
    char path[64], title[256] = "";
    size_t used, size;
    const char *said = harness_stderr(p, &size);

    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)p->pid);
    (void)said_text(path, title, sizeof title);
    used =
        (size_t)snprintf(out, room, "\n%s %d %s %d, %s", p->name, (int)p->pid,
                         runs ? "runs" : "ended with", p->status, title);
    if (runs && used < room)
        used += said_threads(p->pid, out + used, room - used);
    if (used < room)
        used +=
            (size_t)snprintf(out + used, room - used, "; its stderr ends: %.*s",
                             EACH, size > EACH ? said + size - EACH : said);
    return used < room ? used : room - 1;
}

void processes_said(char *out, size_t room)
{
    size_t used = 0;

    out[0] = '\0';
    for (struct harness_process *p = processes; p; p = p->next) {
        bool runs = harness_running(p);

        if (runs || (p->status != 0 && p->status != -SIGKILL))
            used += process_said(p, runs, out + used, room - used);
    }
    said_others(out + used, room - used);
}

bool processes_know(pid_t pid)
{
    for (const struct harness_process *p = processes; p; p = p->next)
        if (p->pid == pid)
            return true;
    return false;
}

/* Return the first complete line that contains `text`, or NULL. */
static const char *log_line(const struct harness_process *p, const char *text)
{
    FILE *f = fopen(p->err, "re");
    char *line = NULL;
    size_t room = 0;
    ssize_t size;
    bool found = false;
    while (f && !found && (size = getline(&line, &room, f)) > 0) {
        found = line[size - 1] == '\n' && strstr(line, text);
        line[size - 1] = '\0';
    }
    if (f)
        fclose(f);
    if (found)
        return harness_keep(line);
    free(line);
    return NULL;
}

const char *harness_wait_log(struct harness_process *p, const char *text,
                             unsigned limit_ms)
{
    uint64_t deadline = harness_patience(limit_ms);
    for (;;) {
        bool running = harness_running(p); /* read before the log, so that the
                                            * last line is not missed */
        const char *line = log_line(p, text);
        if (line)
            return line;
        if (!running || harness_now_ms() >= deadline) {
            char what[256];
            snprintf(what, sizeof what, "%s without \"%.200s\"",
                     running ? "limit reached" : "ended", text);
            process_complain(p, what);
        }
        harness_nap(UINT64_MAX, "");
    }
}

size_t harness_log_count(const struct harness_process *p, const char *text)
{
    return harness_lines_with(p->err, text);
}

struct harness_result harness_run_spec(const struct harness_spec *spec)
{
    struct harness_result r;
    struct harness_process *p = harness_start(spec);
    r.status = harness_wait(p, RUN_LIMIT_MS);
    r.out = harness_stdout(p, &r.out_size);
    r.err = harness_stderr(p, &r.err_size);
    return r;
}

long harness_switches(const struct harness_process *p)
{
    char command[160];

    snprintf(command, sizeof command,
             "cat /proc/%d/task/*/status | "
             "awk '/^voluntary_ctxt/ { n += $2 } END { print n }'",
             (int)p->pid);
    return atol(harness_run("sh", "-c", command).out);
}

long harness_ticks(const struct harness_process *p)
{
    const char *text =
        harness_read(harness_path("/proc/%d/stat", (int)p->pid), NULL);
    unsigned long user, system;

    /* The name may contain blanks and brackets. */
    if (sscanf(strrchr(text, ')') + 1,
               " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
               &system) != 2)
        process_complain(p, "/proc/PID/stat shows no processor time");
    return (long)(user + system);
}

/* Return true if a thread runs or waits for a processor. On a busy machine it
 * may wait so long that harness_switches does not change, as if it slept. */
static bool runnable(const struct harness_process *p)
{
    char command[96];

    snprintf(command, sizeof command,
             "cat /proc/%d/task/*/status | grep -q '^State:.R'", (int)p->pid);
    return harness_run("sh", "-c", command).status == 0;
}

long harness_settled(const struct harness_process *p, unsigned limit_ms)
{
    uint64_t deadline = harness_deadline(limit_ms);
    uint64_t began_ms, slept_ms;
    long before, now = harness_switches(p);

    if (harness_lines_with(harness_path("/proc/%d/maps", p->pid), "libtsan"))
        return -1;
    do {
        began_ms = harness_now_ms();
        before = now;
        harness_run("sleep", "1.3");
        slept_ms = harness_now_ms() - began_ms;
        now = harness_switches(p);
        harness_nap(deadline, "a process that sleeps");
        /* If the sleep took much longer, `p` may have been held up as well. */
    } while (slept_ms > 2600 || now != before || runnable(p));
    return now;
}

const char *processes_report(void)
{
    static const char *const marks[] = {"Sanitizer: ", "runtime error: "};
    DIR *dir = opendir(harness_dir());
    const char *found = NULL;
    for (struct dirent *e; dir && !found && (e = readdir(dir));) {
        const char *dot = strrchr(e->d_name, '.');
        bool report = strncmp(e->d_name, "sanitizer.", 10) == 0;
        if (!report && (!dot || strcmp(dot, ".err") != 0))
            continue;
        const char *text = harness_read(e->d_name, NULL);
        for (size_t i = 0; i < sizeof marks / sizeof marks[0] && !found; i++)
            found = strstr(text, marks[i]);
        /* A process that is killed during its leak check prints this. */
        bool killed = strstr(text, "Unable to get registers from thread");
        if (report && !found && !killed)
            found = text[0] ? text : NULL;
    }
    if (dir)
        closedir(dir);
    return found;
}

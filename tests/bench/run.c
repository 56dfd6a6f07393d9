/* run.c - see run.h */
#include "tests/bench/run.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cli/complain.h"
#include "tests/bench/place.h"

#define LIMIT_MS   120000 /* of one measurement; one takes about a second */
#define QUICK_PART 5      /* of the work is left */

enum { OURS, RIVAL, SIDES };

struct values {
    double of[SIDES][ROWS_MOST][RUNS_MOST];
    double ratio[ROWS_MOST][RUNS_MOST];
    unsigned runs;
};

/* Measure, in a process for that. This does not return. */
static _Noreturn void measure_child(const struct side *side,
                                    const struct task *task, int out)
{
    static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGALRM};
    double value[ROWS_MOST] = {0};
    enum measured how;

    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++)
        signal(caught[i], SIG_DFL);
    how = side->go(task, value);
    fflush(NULL);
    if (how == MEASURED && write(out, value, sizeof value) != sizeof value)
        _exit(1);
    _exit(how == MEASURED ? 0 : 2);
}

/* Wait until nothing of a measurement runs: senders and workers die with it,
 * and their children become ours, because this process is a subreaper. */
static void all_ended(void)
{
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
        ;
}

/* Kill a measurement that has not finished. */
static int end(pid_t pid, int code)
{
    kill(pid, SIGKILL);
    return code;
}

/* Wait until the process has written its values and ended; return its exit
 * status, or -errno if it did not end. */
static int status_wait(pid_t pid, int in)
{
    struct pollfd p = {.fd = in, .events = POLLIN};
    int status = -1, n = poll(&p, 1, LIMIT_MS);

    if (n < 0 || cli_interrupt_seen())
        return end(pid, -EINTR);
    if (n == 0) {
        fprintf(stderr, "bench: no result after %d s\n", LIMIT_MS / 1000);
        return end(pid, -ETIMEDOUT);
    }
    if (waitpid(pid, &status, 0) < 0)
        return end(pid, -EINTR);
    if (WIFSIGNALED(status))
        fprintf(stderr, "bench: ended by signal %d\n", WTERMSIG(status));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* Measure one side once. Return 0, 1 (failed), 2 (not built) or -EINTR. */
static int measure_once(const struct side *side, const struct task *task,
                        double value[ROWS_MOST])
{
    struct problem p;
    int fds[2], status;
    pid_t pid;

    if (place_ready(task, &p) < 0) {
        fprintf(stderr, "bench: %s\n", p.text);
        return 1;
    }
    if (pipe2(fds, O_CLOEXEC) < 0)
        return 1;
    fflush(NULL);
    pid = fork_bound();
    if (pid == 0)
        measure_child(side, task, fds[1]);
    close(fds[1]);
    status = status_wait(pid, fds[0]);
    if (status == 0 && read(fds[0], value, ROWS_MOST * sizeof *value) !=
                           (ssize_t)(ROWS_MOST * sizeof *value))
        status = 1;
    close(fds[0]);
    all_ended();
    return status == -EINTR || status == 0 || status == 2 ? status : 1;
}

/* Measure one side of pair number `run`. */
static int side_run(const struct duel *d, const struct plan *plan,
                    struct values *v, unsigned run, int which)
{
    const struct side *side = which == OURS ? &d->ours : &d->rival;
    struct task task = d->task;
    double value[ROWS_MOST];
    int status;

    if (!side->go)
        return 0;
    if (side->threads)
        task.threads = side->threads;
    task.how |= side->how;
    task.run = run;
    if (plan->quick && !d->whole)
        task.n /= QUICK_PART;
    status = measure_once(side, &task, value);
    for (int r = 0; status == 0 && r < ROWS_MOST; r++)
        v->of[which][r][run] = value[r];
    return status;
}

/* Measure all pairs. The side that is first changes from pair to pair. */
static int pairs_run(const struct duel *d, const struct plan *plan,
                     struct values *v)
{
    unsigned pairs = plan->runs;

    if (plan->usual && d->times)
        pairs *= d->times;
    for (unsigned i = 0; i < pairs; i++) {
        int status = side_run(d, plan, v, i, i % 2 ? RIVAL : OURS);

        if (!status)
            status = side_run(d, plan, v, i, i % 2 ? OURS : RIVAL);
        if (status)
            return status;
        for (int r = 0; r < ROWS_MOST && d->rows[r].name; r++) {
            double ours = v->of[OURS][r][i];

            v->ratio[r][i] = d->rival.go ? ours / v->of[RIVAL][r][i] : ours;
        }
        v->runs = i + 1;
    }
    return 0;
}

/* Return whether a demand is met, with the precision that is printed. */
static bool reached(const struct row *row, double ratio, double want)
{
    if (want <= 0)
        return false;
    return row->better == MORE ? ratio >= want - 0.0005
                               : ratio <= want + 0.0005;
}

static enum met judge(const struct row *row, double ratio)
{
    if (row->must <= 0)
        return MET_NOTHING;
    if (reached(row, ratio, row->aim))
        return MET_AIM;
    return reached(row, ratio, row->must) ? MET_MUST : MET_NOT;
}

/* Return the median distance from the median. */
static double deviation(const double *of, unsigned n, double median)
{
    double far[RUNS_MOST];

    for (unsigned i = 0; i < n; i++)
        far[i] = fabs(of[i] - median);
    return at_part(far, n, 0.5);
}

/* Make the result of all that was measured for a row. */
static void row_result(const struct duel *d, struct values *v, int r,
                       struct result *out)
{
    double *ratio = v->ratio[r];

    out->state = ROW_MEASURED;
    out->compared = d->rival.go != NULL;
    out->runs = v->runs;
    out->ratio = at_part(ratio, v->runs, 0.5);
    out->least = ratio[0];
    out->most = ratio[v->runs - 1];
    out->mad = deviation(ratio, v->runs, out->ratio);
    out->ours = at_part(v->of[OURS][r], v->runs, 0.5);
    if (out->compared)
        out->rival = at_part(v->of[RIVAL][r], v->runs, 0.5);
    out->met = judge(out->row, out->ratio);
}

int duel_run(const struct duel *d, const struct plan *plan,
             struct result result[ROWS_MOST])
{
    static struct values v;
    int status;

    v.runs = 0;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    status = pairs_run(d, plan, &v);
    if (status == -EINTR)
        return status;
    for (int r = 0; r < ROWS_MOST && d->rows[r].name; r++) {
        result[r] = (struct result){.row = &d->rows[r], .state = ROW_FAILED};
        if (status == 0)
            row_result(d, &v, r, &result[r]);
        else if (status == 2)
            result[r].state = ROW_NOT_BUILT;
    }
    return 0;
}

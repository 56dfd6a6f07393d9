/* torture.c - kill the worker again and again, and audit what became of each
 * message
 *
 * tests/crash/README.md says what this proves. The messages are described in
 * torture_message.h, the notes of the handlers in torture_witness.h.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/stdlib.h>

#include "common/base/clock.h"
#include "common/cli/complain.h"
#include "common/cli/options.h"
#include "common/cli/term.h"
#include "tests/crash/torture/torture.h"
#include "tests/crash/torture/torture_feed.h"

#define EXIT_REFUSED 77

#define AT(member)   .offset = offsetof(struct torture_options, member)
#define SEEN(member) .seen = offsetof(struct torture_options, member) + 1

#define PATH_WORDS                                                           \
    "done|retry|dead|discard|later|group|replayed|resumed|recovered|replay|" \
    "raw|remove|import|send|unique|at"

static const struct option_row option_rows[] = {
    {"handler", 0, OPT_CHOICE, .value = "exec|stream|plugin|all",
     .words = "exec|stream|plugin|all", .preset = "all", AT(kind),
     .help = "which kind of handler"},
    {"kills", 0, OPT_NUMBER, .value = "N", .min = 1, .max = 1000000,
     .preset = "300", AT(kills), SEEN(has_kills),
     .help = "kills at random moments, each kind; with --every-... at most"},
    {"size", 0, OPT_STRING, .value = "64|4096|random", AT(size_text),
     .help = "bytes of a message, 64 to 8192; random: 0 to 256, the default "
             "but with --every-..."},
    {"failures", 0, OPT_STRING, .value = "PERCENT", .preset = "1",
     AT(failures_text),
     .help = "messages that are retried, dead, discarded or delayed; with "
             "--points 5; not with --every-..."},
    {"points", 0, OPT_FLAG, AT(points),
     .help = "kill at each named step instead, --hits times"},
    {"point", 0, OPT_STRING, .value = "TEXT", AT(point),
     .help = "with --points: only at steps whose name has TEXT in it"},
    {"hits", 0, OPT_NUMBER, .value = "N", .min = 1, .max = 1000, .preset = "5",
     AT(hits), .help = "with --points: kills at each step"},
    {"every-instruction", 0, OPT_FLAG, AT(every),
     .help = "kill after each user instruction from one receive to the next "
             "instead; stream and plugin, unless --handler exec is given"},
    {"every-change", 0, OPT_FLAG, AT(changes),
     .help = "the same at each instruction that is a system call or changes "
             "what outlives the worker: a kill between two of them leaves what "
             "one at the first leaves. On x86-64; else at each instruction"},
    {"every-call", 0, OPT_FLAG, AT(calls),
     .help = "kill before and after each system call of the thread that "
             "received, to the end of all"},
    {"path", 0, OPT_CHOICE, .value = PATH_WORDS, .words = PATH_WORDS,
     .preset = "done", AT(path),
     .help = "with --every-...: what becomes of each message. From recovered "
             "on, with --every-call, of a program: a worker after a kill; "
             "mqdlq replay, replay --raw, discard, import; mqsend --raw, "
             "--unique, --at"},
    {"stride", 0, OPT_NUMBER, .value = "N", .min = 1, .max = 100000,
     .preset = "1", AT(stride), .help = "with --every-...: after each Nth"},
    {"from", 0, OPT_NUMBER, .value = "N", .min = 0, .max = 10000000,
     .preset = "0", AT(from), .help = "with --every-...: begin after so many"},
    {"ends", 0, OPT_NUMBER, .value = "N", .min = 1, .max = 1000, .preset = "8",
     AT(ends),
     .help = "with --every-...: end after N tries in a row that came to the "
             "end of the way"},
    {"jobs", 0, OPT_NUMBER, .value = "N", .min = 1, .max = TORTURE_JOBS,
     AT(jobs), .help = "with --every-...: at a time; one for each processor"},
    {"instructions", 0, OPT_FLAG, AT(count),
     .help = "kill nothing: count the user instructions of a message that a "
             "plugin does nothing with, and name their functions"},
    {"spool", 0, OPT_CHOICE, .value = "off|waiting|always",
     .words = "off|waiting|always", .preset = "off", AT(spool),
     .help = "messages wait on the disk: mqworker's --spool, and its "
             "--spool-sync"},
    {"steer", 0, OPT_FLAG, AT(steer),
     .help = "mqctl cancels delayed messages and has those that wait run now, "
             "beside all else; not with --points, --every-..."},
    {"syncer", 0, OPT_CHOICE, .value = "always|legs|never",
     .words = "always|legs|never", .preset = "legs", AT(syncer),
     .help = "a process beside the worker writes its custody file to the disk "
             "in a loop; legs: every other 50 kills"},
    {"seconds", 0, OPT_NUMBER, .value = "N", .min = 1, .max = 1000000,
     AT(seconds), .help = "end after that long, each kind, with an audit"},
    {"seed", 0, OPT_NUMBER, .value = "N", AT(seed), SEEN(has_seed),
     .help = "the same messages, and moments as far as that goes"},
    {"keep", 0, OPT_FLAG, AT(keep), .help = "keep the files of the run"},
    {"help", 'h', OPT_FLAG, AT(help), .help = "print this and exit"},
};

static const struct option_table table = {
    .program = "torture",
    .usage = "[options]",
    .about = "Kill mqworker again and again; lose, invent and change nothing.",
    .notes =
        "Exit status: 0, 1 the audit failed, 2 it could not run, 77 nobody "
        "may trace a\nprocess here (--every-..., --instructions).\n"
        "make torture TORTURE_FLAGS=\"...\" builds what it needs.\n",
    .rows = option_rows,
    .count = sizeof option_rows / sizeof *option_rows,
};

static const char *const kinds[] = {"exec", "stream", "plugin"};

/* ---- options ---- */

/* Read --size; "random" leaves the size at 0. */
static int size_read(struct torture_options *o, struct problem *p)
{
    const char *error = NULL;

    if (strcmp(o->size_text, "random") == 0)
        return 0;
    o->size = (uint64_t)strtonum(o->size_text, 64, TORTURE_MOST, &error);
    return error ? problem_set(p, EX_USAGE, EINVAL,
                               "--size: \"%s\" is %s; 64 to %d, or random",
                               o->size_text, error, TORTURE_MOST)
                 : 0;
}

/* Read --failures: a percentage, which may have decimals. */
static int failures_read(struct torture_options *o, struct problem *p)
{
    char *end;
    double percent = strtod(o->failures_text, &end);

    if (*end || end == o->failures_text || !(percent >= 0 && percent <= 100))
        return problem_set(p, EX_USAGE, EINVAL,
                           "--failures: \"%s\" is not 0 to 100",
                           o->failures_text);
    o->failing = (uint32_t)(percent * (double)TORTURE_MILLION / 100);
    return 0;
}

static uint64_t processors(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);

    return n < 1 ? 1 : n > TORTURE_JOBS ? TORTURE_JOBS : (uint64_t)n;
}

static int options_read(struct torture_options *o, int argc, char **argv,
                        struct problem *p)
{
    int operands, rest, err;

    *o = (struct torture_options){.kind = TORTURE_ALL,
                                  .kills = 300,
                                  .hits = 5,
                                  .stride = 1,
                                  .ends = 8,
                                  .syncer = SYNCER_LEGS,
                                  .jobs = processors(),
                                  .size_text = "",
                                  .failures_text = ""};
    err = options_parse(&table, argc, argv, o, &operands, &rest, p);
    if (err)
        return err;
    o->stepped = o->every || o->changes || o->calls || o->count;
    if (o->points + o->every + o->changes + o->calls + o->count > 1)
        return problem_set(p, EX_USAGE, EINVAL,
                           "--points, --every-instruction, --every-change, "
                           "--every-call and --instructions: one of them");
    if (o->stepped && o->failures_text[0])
        return problem_set(p, EX_USAGE, EINVAL,
                           "--failures %s: --every-... and --instructions "
                           "have --path",
                           o->failures_text);
    if (o->path >= PATH_WHOLE && !o->calls)
        return problem_set(p, EX_USAGE, EINVAL,
                           "--path from recovered on is for --every-call");
    if (!o->failures_text[0])
        o->failures_text = o->points ? "5" : o->stepped ? "0" : "1";
    if (!o->size_text[0])
        o->size_text = o->stepped ? "64" : "random";
    if (o->stepped && !o->has_kills)
        o->kills = UINT64_MAX;
    if (o->steer && (o->points || o->stepped))
        return problem_set(p, EX_USAGE, EINVAL,
                           "--steer is for kills at random moments");
    if (operands > 0)
        return problem_set(p, EX_USAGE, EINVAL, "\"%s\": there are no operands",
                           argv[0]);
    if (!o->has_seed)
        o->seed = arc4random();
    err = size_read(o, p);
    return err ? err : failures_read(o, p);
}

/* ---- a run ---- */

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static double in_ms(uint64_t ns)
{
    return (double)ns / NS_PER_MS;
}

/* Print how long workers took from exec to their first delivery. */
static void recovery_print(struct torture_sum *s)
{
    size_t n = s->recoveries;

    if (n == 0)
        return;
    qsort(s->recovery_ns, n, sizeof *s->recovery_ns, by_value);
    printf("  recovery     median %.1f ms, p99 %.1f ms, worst %.1f ms\n",
           in_ms(s->recovery_ns[n / 2]), in_ms(s->recovery_ns[n * 99 / 100]),
           in_ms(s->recovery_ns[n - 1]));
}

static double per_second(uint64_t n, uint64_t ns)
{
    return ns ? (double)n * (double)NS_PER_S / (double)ns : 0;
}

static void summary(struct torture *t)
{
    struct torture_sum *s = &t->sum;

    printf("%s, %s bytes: %s\n", kinds[t->kind], t->options->size_text,
           t->failed ? "FAILED"
                     : "nothing lost, invented, changed, or "
                       "repeated without saying so");
    printf("  kills        %" PRIu64 ", audits %" PRIu64 "\n", s->kills,
           s->legs);
    printf("  messages     %" PRIu64 " (%" PRIu64 " too small for a number), "
           "deliveries %" PRIu64 "\n",
           s->messages, s->tiny, s->deliveries);
    printf("  repeats      %" PRIu64 ", all marked; marked at first sight "
           "%" PRIu64 "\n",
           s->repeats, s->unseen);
    printf("  verdicts     retries %" PRIu64 ", dead %" PRIu64
           ", discarded %" PRIu64 ", replayed %" PRIu64 ", crashed %" PRIu64
           "\n",
           s->retries, s->dead, s->discarded, s->replays, s->crashed);
    if (t->options->steer)
        printf("  steered      cancelled %" PRIu64 " (unanswered %" PRIu64
               ") of %" PRIu64 " tried, run-now %" PRIu64 " times\n",
               s->cancelled, s->unanswered, s->cancels, s->run_nows);
    printf("  length       inferred %" PRIu64 ", cut %" PRIu64 "\n",
           s->inferred, s->cut);
    recovery_print(s);
    if (syncer_count())
        printf("  syncer       wrote custody %" PRIu64 " times\n",
               syncer_count());
    printf("  rate         %.0f messages/s of the worker's life, %.0f/s of "
           "the run (%.1f s)\n",
           per_second(s->messages, s->life_ns),
           per_second(s->messages, s->wall_ns), (double)s->wall_ns / NS_PER_S);
    fflush(stdout);
}

/* Kill at random moments or at named steps, in a scratch directory of the
 * driver. */
static void kills_at(struct torture *t)
{
    place_open(t);
    if (t->options->points)
        points_run(t);
    else
        legs_run(t, t->options->kills);
    feed_stop(t->world);
    audit_leftovers(t);
}

static _Noreturn void refused(void)
{
    printf("torture: nobody may trace a process here (ptrace(2)): skipped\n");
    exit(EXIT_REFUSED);
}

/* Torture one kind of handler, from creating the queue to printing the
 * summary. */
static bool torture_kind(const struct torture_options *o,
                         enum torture_kind kind)
{
    struct torture t = {.options = o, .kind = kind, .end_ns = UINT64_MAX};
    uint64_t began = clock_mono_ns();

    if (o->seconds)
        t.end_ns = began + o->seconds * NS_PER_S;
    srandom((unsigned)o->seed);
    if (o->stepped)
        steps_run(&t);
    else
        kills_at(&t);
    if (t.refused)
        refused();
    t.sum.wall_ns = clock_mono_ns() - began;
    summary(&t);
    if (!o->stepped)
        place_close(&t);
    free(t.sum.recovery_ns);
    return !t.failed;
}

/* Return true if the options ask for this kind of handler. */
static bool kind_is_wanted(const struct torture_options *o, unsigned kind)
{
    if (o->kind == TORTURE_ALL)
        return !(o->stepped && kind == TORTURE_EXEC);
    return o->kind == kind;
}

int main(int argc, char **argv)
{
    struct torture_options o;
    struct problem p;
    bool ok = true;

    complain_as("torture");
    if (options_read(&o, argc, argv, &p) < 0)
        return complain_of(&p);
    if (o.help) {
        options_help(&table, stdout, term_width(stdout));
        return 0;
    }
    cli_interrupt_catch();
    printf("torture: --seed %" PRIu64 "\n", o.seed);
    fflush(stdout);
    if (o.count && !count_run(&o))
        refused();
    for (unsigned k = TORTURE_EXEC;
         k < TORTURE_ALL && !o.count && !cli_interrupt_seen(); k++)
        if (kind_is_wanted(&o, k))
            ok &= torture_kind(&o, (enum torture_kind)k);
    cli_interrupt_die();
    return ok ? 0 : 1;
}

/* bench.c - measure all numbers of docs/performance.md
 *
 * Measures ours and a rival in turn, for each row of the chosen sections.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "common/cli/complain.h"
#include "common/cli/options.h"
#include "common/cli/term.h"
#include "tests/bench/answer.h"
#include "tests/bench/place.h"
#include "tests/bench/report.h"

#define RUNS_PRESET "7"
#define RUNS_QUICK  3

static const struct section *const sections[] = {
    &section_queue,   &section_handler, &section_latency, &section_stream,
    &section_exec,    &section_memory,  &section_wheel,   &section_groups,
    &section_restart, &section_threads, &section_spool,   &section_peers,
#ifdef MQW_AMQP
    &section_amqp,
#endif
};
#define SECTIONS (sizeof sections / sizeof *sections)

enum { BOTH, OURS, RIVAL }; /* --side */

struct options {
    const char *only;
    uint64_t runs, side;
    bool has_runs, quick, pin, json, all, strict, list, help;
};

#define AT(member)   .offset = offsetof(struct options, member)
#define SEEN(member) .seen = offsetof(struct options, member) + 1

static const struct option_row option_rows[] = {
    {"only", 0, OPT_STRING, .value = "NAME[,NAME]", AT(only),
     .help = "measure these rows or sections"},
    {"all", 0, OPT_FLAG, AT(all), .help = "measure all sections"},
    {"list", 0, OPT_FLAG, AT(list),
     .help = "print the sections and their rows and exit"},
    {"runs", 0, OPT_NUMBER, .value = "N", .min = 1, .max = RUNS_MOST,
     .preset = RUNS_PRESET, AT(runs), SEEN(has_runs),
     .help = "pairs of measurements for each row; if not given, up to 21 "
             "where it matters on which processors processes run"},
    {"quick", 0, OPT_FLAG, AT(quick),
     .help = "3 pairs, and a fifth of the work in each"},
    {"side", 0, OPT_CHOICE, .value = "both|ours|rival",
     .words = "both|ours|rival", .preset = "both", AT(side),
     .help = "measure one side alone, for a profiler; it is shown as ours"},
    {"pin", 0, OPT_FLAG, AT(pin),
     .help = "where handlers do nothing, keep the sender on one processor and "
             "the consumer on the others"},
    {"json", 0, OPT_FLAG, AT(json), .help = "print one JSON object a row"},
    {"strict", 0, OPT_FLAG, AT(strict),
     .help = "exit with 1 if a row does not reach what it must"},
    {"help", 'h', OPT_FLAG, AT(help), .help = "print this and exit"},
};

static const struct option_table table = {
    .program = "bench",
    .usage = "[options]",
    .about = "Measure the worker beside what it is compared with.",
    .notes = "docs/performance.md says how to read what it prints.\n",
    .rows = option_rows,
    .count = sizeof option_rows / sizeof *option_rows,
};

/* Return whether `name` is in a list with commas. */
static bool named(const char *list, const char *name)
{
    size_t size = strlen(name);

    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, size) == 0 && (!at[size] || at[size] == ','))
            return true;
    }
    return false;
}

/* Return whether a row is to be measured. */
static bool wanted(const struct options *o, const struct section *s,
                   const struct row *row)
{
    if (o->only)
        return named(o->only, s->name) || named(o->only, row->name);
    return o->all || s->usual;
}

/* Return whether a section or row has the name. */
static bool known(const char *name)
{
    for (size_t s = 0; s < SECTIONS; s++) {
        if (strcmp(sections[s]->name, name) == 0)
            return true;
        for (size_t d = 0; d < sections[s]->count; d++)
            for (int r = 0; r < ROWS_MOST; r++) {
                const char *row = sections[s]->duels[d].rows[r].name;

                if (row && strcmp(row, name) == 0)
                    return true;
            }
    }
    return false;
}

/* Check that all names of --only exist. */
static int only_check(const char *only, struct problem *p)
{
    char list[1024], *rest = list, *name;

    if (!only)
        return 0;
    if (strlen(only) >= sizeof list)
        return problem_set(p, EX_USAGE, EINVAL,
                           "--only: the list is too long; "
                           "name sections");
    strcpy(list, only);
    while ((name = strsep(&rest, ",")) != NULL)
        if (!known(name))
            return problem_set(p, EX_USAGE, EINVAL,
                               "--only: \"%s\" is neither a row nor a section; "
                               "--list prints them",
                               name);
    return 0;
}

static int options_read(struct options *o, int argc, char **argv,
                        struct problem *p)
{
    int operands, rest, err;

    *o = (struct options){.runs = strtoul(RUNS_PRESET, NULL, 10)};
    err = options_parse(&table, argc, argv, o, &operands, &rest, p);
    if (err)
        return err;
    if (operands > 0)
        return problem_set(p, EX_USAGE, EINVAL,
                           "\"%s\": no operands; --only names rows", argv[0]);
    if (o->quick && !o->has_runs)
        o->runs = RUNS_QUICK;
    return only_check(o->only, p);
}

/* Whether a row failed, or missed a demand. */
struct sum {
    bool failed, missed;
};

/* Return the duel as --side leaves it; one side alone has no demands. */
static struct duel duel_side(const struct options *o, const struct duel *d)
{
    struct duel left = *d;

    if (o->side == BOTH)
        return left;
    if (o->side == RIVAL && d->rival.go)
        left.ours = d->rival;
    left.rival.go = NULL;
    for (int r = 0; r < ROWS_MOST; r++)
        left.rows[r].must = left.rows[r].aim = 0;
    return left;
}

/* Measure a duel and print its chosen rows. */
static int duel_show(const struct options *o, const struct report *report,
                     const struct section *s, const struct duel *duel,
                     struct sum *sum)
{
    struct plan plan = {.runs = (unsigned)o->runs,
                        .usual = !o->has_runs && !o->quick,
                        .quick = o->quick};
    struct duel d = duel_side(o, duel);
    struct result result[ROWS_MOST];
    int err = duel_run(&d, &plan, result);

    for (int r = 0; !err && r < ROWS_MOST && d.rows[r].name; r++) {
        if (!wanted(o, s, &d.rows[r]))
            continue;
        report_row(report, s, &result[r]);
        sum->failed |= result[r].state == ROW_FAILED;
        sum->missed |=
            result[r].met == MET_NOT ||
            (result[r].state == ROW_NOT_BUILT && result[r].row->must > 0);
    }
    return err;
}

/* Return whether any of its rows is to be measured. */
static bool duel_wanted(const struct options *o, const struct section *s,
                        const struct duel *d)
{
    for (int r = 0; r < ROWS_MOST && d->rows[r].name; r++)
        if (wanted(o, s, &d->rows[r]))
            return true;
    return false;
}

/* Measure and print the duels of a section, one after the other. */
static int section_show(const struct options *o, const struct report *report,
                        const struct section *s, struct sum *sum)
{
    bool begun = false;
    int err = 0;

    for (size_t d = 0; !err && d < s->count; d++) {
        if (!duel_wanted(o, s, &s->duels[d]))
            continue;
        if (!begun)
            report_section(report, s);
        begun = true;
        err = duel_show(o, report, s, &s->duels[d], sum);
    }
    return err;
}

/* Measure all that was asked for; return the exit status. */
static int bench(const struct options *o)
{
    struct report report = {.json = o->json};
    struct plan plan = {.runs = (unsigned)o->runs,
                        .usual = !o->has_runs && !o->quick,
                        .quick = o->quick};
    struct sum sum = {0};
    int err = 0;

    report_begin(&report, &plan);
    for (size_t s = 0; !err && s < SECTIONS; s++)
        err = section_show(o, &report, sections[s], &sum);
    return err || sum.failed || (o->strict && sum.missed);
}

int main(int argc, char **argv)
{
    struct options options;
    struct problem p;
    int status;

    if (argc > 1 && strcmp(argv[1], ANSWER) == 0)
        return answer(argc - 2, argv + 2);
    complain_as("bench");
    if (options_read(&options, argc, argv, &p) < 0)
        return complain_of(&p);
    if (options.help) {
        options_help(&table, stdout, term_width(stdout));
        return 0;
    }
    if (options.list) {
        report_list(sections, SECTIONS);
        return 0;
    }
    /* Catch signals first, so that an interrupt removes everything made. */
    cli_interrupt_catch();
    if (place_open(options.pin, &p) < 0)
        return complain_of(&p);
    status = bench(&options);
    place_close();
    cli_interrupt_die();
    return status;
}

/* report.c - see report.h */
#include "tests/bench/report.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#define BUSY 0.5 /* load for each processor */

#define VALUE_TEXT  24
#define NAME_TEXT   80
#define DEMAND_TEXT (VALUE_TEXT + 1)

/* Print a value with about three digits: "1.26 M/s" "664 k/s" "8 MiB". */
static const char *value_print(double value, const char *unit,
                               char buf[VALUE_TEXT])
{
    static const struct {
        const char *of, *shown;
        double from;
    } units[] = {
        {"/s", "M/s", 1e6},    {"/s", "k/s", 1e3}, {"ns", "s", 1e9},
        {"ns", "ms", 1e6},     {"ns", "us", 1e3},  {"B", "MiB", 1 << 20},
        {"B", "KiB", 1 << 10},
    };
    int digits;

    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(units[i].of, unit) == 0 && value >= units[i].from) {
            value /= units[i].from;
            unit = units[i].shown;
            break;
        }
    }
    digits = value >= 100 || value == floor(value) ? 0 : value >= 10 ? 1 : 2;
    snprintf(buf, VALUE_TEXT, "%.*f %s", digits, value, unit);
    return buf;
}

/* Return the processor's name from /proc/cpuinfo; "": it has none. */
static const char *processor_name(char name[NAME_TEXT])
{
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[256];

    name[0] = '\0';
    while (f && !name[0] && fgets(line, sizeof line, f))
        (void)sscanf(line, "model name : %79[^\n]", name);
    if (f)
        fclose(f);
    return name;
}

void report_begin(struct report *report, const struct plan *plan)
{
    struct utsname u;
    char name[NAME_TEXT];

    report->processors = sysconf(_SC_NPROCESSORS_ONLN);
    if (getloadavg(&report->load, 1) != 1)
        report->load = 0;
    if (report->load > BUSY * (double)report->processors)
        fprintf(stderr,
                "bench: the machine is busy (load %.2f on %ld processors): "
                "numbers will be low, and ratios less sure\n",
                report->load, report->processors);
    if (report->json)
        return;
    uname(&u);
    printf("%s %s, %ld processors (%s), load %.2f; %u pairs%s; ratio: median "
           "of the pairs'\n",
           u.sysname, u.release, report->processors, processor_name(name),
           report->load, plan->runs,
           plan->usual   ? " or more"
           : plan->quick ? ", quick"
                         : "");
}

void report_section(const struct report *report, const struct section *section)
{
    if (report->json)
        return;
    printf("\n%s: %s\n%-18s %10s %10s %7s %-11s %6s %6s  met\n", section->name,
           section->what, "", "ours", "rival", "ratio", "spread", "must",
           "aim");
    fflush(stdout);
}

static const char *const met_words[] = {
    [MET_NOTHING] = "-",
    [MET_AIM] = "aim",
    [MET_MUST] = "must",
    [MET_NOT] = "NO",
};

/* Print a must or an aim: a ratio, or without a rival a value. "<" stands
 * before what must not be exceeded. */
static const char *demand_print(const struct result *r, double want,
                                char buf[DEMAND_TEXT])
{
    char value[VALUE_TEXT];

    if (want <= 0)
        return "";
    if (r->compared)
        snprintf(value, sizeof value, "%.2f", want);
    else
        value_print(want, r->row->unit, value);
    snprintf(buf, DEMAND_TEXT, "%s%s", r->row->better == MORE ? "" : "<",
             value);
    return buf;
}

/* Print a line of the table. */
static void row_print(const struct result *r)
{
    char ours[VALUE_TEXT], rival[VALUE_TEXT] = "", ratio[VALUE_TEXT] = "",
                           spread[2 * VALUE_TEXT], must[DEMAND_TEXT],
                           aim[DEMAND_TEXT];

    printf("%-18s ", r->row->name);
    if (r->state != ROW_MEASURED) {
        printf("%s\n", r->state == ROW_NOT_BUILT ? "not built"
                                                 : "could not be measured");
        return;
    }
    snprintf(spread, sizeof spread, "%.2f-%.2f", r->least, r->most);
    if (r->compared) {
        value_print(r->rival, r->row->unit, rival);
        snprintf(ratio, sizeof ratio, "%.3f", r->ratio);
    } else {
        double shown = r->ours > 0 ? r->ours : 1;

        snprintf(spread, sizeof spread, "%.2f-%.2f", r->least / shown,
                 r->most / shown);
    }
    printf("%10s %10s %7s %-11s %6s %6s  %s\n",
           value_print(r->ours, r->row->unit, ours), rival, ratio, spread,
           demand_print(r, r->row->must, must),
           demand_print(r, r->row->aim, aim), met_words[r->met]);
}

/* Return a JSON number, or null if it is not there. */
static json_t *number(double value, bool there)
{
    return there && isfinite(value) ? json_real(value) : json_null();
}

/* Print the row as a JSON object on one line. */
static void row_json(const struct report *report, const struct section *section,
                     const struct result *r)
{
    static const char *const states[] = {
        [ROW_MEASURED] = "measured",
        [ROW_NOT_BUILT] = "not built",
        [ROW_FAILED] = "failed",
    };
    bool there = r->state == ROW_MEASURED, ratio = there && r->compared;
    json_t *o = json_pack(
        "{ss ss ss ss ss ss so so so so so so so so so si sf si}", "row",
        r->row->name, "section", section->name, "what", r->row->what, "unit",
        r->row->unit, "better", r->row->better == MORE ? "more" : "less",
        "state", states[r->state], "ours", number(r->ours, there), "rival",
        number(r->rival, ratio), "ratio", number(r->ratio, ratio), "least",
        number(r->least, there), "most", number(r->most, there), "mad",
        number(r->mad, there), "must", number(r->row->must, r->row->must > 0),
        "aim", number(r->row->aim, r->row->aim > 0), "met",
        r->met == MET_NOTHING
            ? json_null()
            : json_string(r->met == MET_NOT ? "no" : met_words[r->met]),
        "pairs", (int)r->runs, "load", report->load, "processors",
        (int)report->processors);

    if (!o)
        return;
    json_dumpf(o, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(o);
}

void report_row(const struct report *report, const struct section *section,
                const struct result *r)
{
    if (report->json)
        row_json(report, section, r);
    else
        row_print(r);
    fflush(stdout);
}

void report_list(const struct section *const *sections, size_t count)
{
    for (size_t s = 0; s < count; s++) {
        const struct section *of = sections[s];

        printf("%s%s: %s\n", of->name, of->usual ? "" : " (--only)", of->what);
        for (size_t d = 0; d < of->count; d++)
            for (int r = 0; r < ROWS_MOST && of->duels[d].rows[r].name; r++)
                printf("  %-18s %s\n", of->duels[d].rows[r].name,
                       of->duels[d].rows[r].what);
    }
}

/* top.c - see top.h */
#include "scripts/mqctl/top/top.h"
#include "scripts/mqctl/top/screen.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/safe_text.h"
#include "common/text/complain.h"
#include "common/text/json_line.h"
#include "common/text/term.h"

#define HEAD_EVERY 20 /* lines between two titles */
#define NAME_LEAST 20 /* columns */
#define NAME_TEXT  1024
#define DEPTH_TEXT ((size_t)2 * TOP_COUNT)

/* name_text - of a queue, as it can be printed; how many columns it takes */
static int name_text(const struct top_row *r, char out[NAME_TEXT])
{
    safe_text_copy(out, NAME_TEXT, r->queue, strlen(r->queue));
    return term_columns(out);
}

/* name_width - columns for all of them; whole, as scripts read these lines */
static int name_width(const struct top *t)
{
    char name[NAME_TEXT];
    int most = NAME_LEAST, n;

    for (size_t i = 0; i < t->count; i++)
        if ((n = name_text(t->rows[i], name)) > most)
            most = n;
    return most;
}

/* depth_text - of how many it holds */
static void depth_text(const struct snapshot *v, char out[DEPTH_TEXT])
{
    if (v->depth < 0)
        strlcpy(out, "-", DEPTH_TEXT);
    else
        snprintf(out, DEPTH_TEXT, "%ld/%ld", v->depth, v->depth_max);
}

/* line_text - one queue, as plain text */
static void line_text(const struct top_row *r, int width)
{
    const struct snapshot *v = &r->v;
    char p50[TOP_SHORT], p99[TOP_SHORT], wait[TOP_SHORT], name[NAME_TEXT];
    char depth[DEPTH_TEXT], waiting[TOP_COUNT], dead[TOP_COUNT];
    char when[TIME_TEXT], rate[TOP_SHORT] = "-";
    int columns = name_text(r, name);

    term_time(clock_wall_ns(), when);
    printf("%.8s  %s%*s  ", when + 11, name, width - columns, "");
    if (!r->looked) {
        safe_text(stdout, r->problem.text, strlen(r->problem.text), true);
        putchar('\n');
        return;
    }
    depth_text(v, depth);
    if (r->measured)
        snprintf(rate, sizeof rate, "%.1f", r->rate);
    printf("%-12s %9s %9s %4" PRIu64 "/%-4u %8s %6s %7s %7s %7s\n",
           snapshot_state_text(v), depth, rate, v->sum.running,
           v->worker == SNAPSHOT_RUNS ? snapshot_capacity(v) : 0,
           top_count(snapshot_waits(v), waiting), top_count(v->dead, dead),
           top_duration(r->p50, p50), top_duration(r->p99, p99),
           top_duration(r->wait99, wait));
}

/* line_json - the fields of status, and those of the last interval */
static int line_json(const struct top_row *r)
{
    char when[TIME_TEXT];
    json_t *o = r->looked
                    ? snapshot_json(&r->v)
                    : json_pack("{s:o, s:o}", "queue", json_printable(r->queue),
                                "error", json_printable(r->problem.text));
    json_t *last = json_pack("{s:s, s:f, s:I, s:I, s:I}", "time",
                             time_print(clock_wall_ns(), when), "rate", r->rate,
                             "interval_handler_p50_ns", (json_int_t)r->p50,
                             "interval_handler_p99_ns", (json_int_t)r->p99,
                             "interval_latency_p99_ns", (json_int_t)r->wait99);
    int err = json_object_update(o, last);

    json_decref(last);
    if (!err)
        return json_print_line(o, stdout);
    json_decref(o);
    return -ENOMEM;
}

/* round_print - all queues, as they were looked at just now */
static int round_print(const struct top *t, uint64_t *printed)
{
    int width = name_width(t);

    for (size_t i = 0; i < t->count; i++) {
        if (t->o->json) {
            if (line_json(t->rows[i]) < 0)
                return -ENOMEM;
            continue;
        }
        if ((*printed)++ % HEAD_EVERY == 0)
            printf("%-8s  %-*s  %-12s %9s %9s %9s %8s %6s %7s %7s %7s\n",
                   "TIME", width, "QUEUE", "STATE", "DEPTH", "RATE/S", "FLIGHT",
                   "WAITING", "DEAD", "P50", "P99", "WAIT99");
        line_text(t->rows[i], width);
    }
    return 0;
}

/* nap - until the next look; false: it is to end */
static bool nap(uint64_t ns)
{
    return poll(NULL, 0, (int)(ns / NS_PER_MS)) >= 0 && !cli_interrupt_seen();
}

/* lines - look after look, for pipes and files */
static int lines(struct top *t)
{
    uint64_t printed = 0;

    cli_interrupt_catch();
    for (uint64_t round = 0; !cli_interrupt_seen(); round++) {
        if (top_look(t) < 0)
            return complain_memory();
        if (t->count == 0)
            return complain(t->trouble[0] ? EX_CANTCREAT : EX_UNAVAILABLE, "%s",
                            t->trouble[0] ? t->trouble
                                          : "no worker has run with this state "
                                            "directory; see --state-dir");
        if (round_print(t, &printed) < 0)
            return complain_memory();
        if (fflush(stdout) != 0 ||
            (t->o->rounds && round + 1 == t->o->rounds) ||
            !nap(t->o->interval_ns))
            break;
    }
    return 0;
}

/* top_run - on a terminal that can do more than print, a screen; not for
 * JSON */
int top_run(const struct options *o)
{
    struct top t = {.o = o};
    const char *term = getenv("TERM");
    bool screen = !o->json && term_is_terminal(stdout) &&
                  isatty(STDIN_FILENO) && term && *term &&
                  strcmp(term, "dumb") != 0;
    int status = screen ? top_screen(&t) : lines(&t);

    top_free(&t);
    cli_interrupt_die();
    return status;
}

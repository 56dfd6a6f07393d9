/* top.c - mqctl top: looks at all queues, and prints them as lines (see top.h)
 *
 * main calls top_run; a child of mqctl serve calls top_look.
 */
#include "scripts/mqctl/top/top.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/stdlib.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/safe_text.h"
#include "common/cli/complain.h"
#include "common/cli/json_line.h"
#include "common/cli/term.h"
#include "scripts/mqctl/queue_list.h"

/* Return the row of a queue. If there is none, add it in the order of names.
 * NULL: no memory. */
static struct top_row *row_get(struct top *t, const char *queue)
{
    struct top_row **more, *r;
    size_t at = 0;
    int way = 1;

    while (at < t->count && (way = strcmp(t->rows[at]->queue, queue)) < 0)
        at++;
    if (way == 0)
        return t->rows[at];
    more = reallocarray(t->rows, t->count + 1, sizeof *more);
    if (!more)
        return NULL;
    t->rows = more;
    r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    strlcpy(r->queue, queue, sizeof r->queue);
    memmove(t->rows + at + 1, t->rows + at,
            (t->count - at) * sizeof(struct top_row *));
    t->rows[at] = r;
    t->count++;
    return r;
}

/* Add rows for the named queues, or for all queues that have a state folder
 * now. */
static int rows_find(struct top *t)
{
    struct queue_list n = {0};
    char label[QUEUE_NAME_MAX];
    struct problem p;
    int err = 0;

    for (int i = 0; i < t->o->line.operand_count && !err; i++) {
        if (snapshot_name(t->o->line.operands[i], label, &p) < 0)
            strlcpy(label, t->o->line.operands[i], sizeof label);
        err = row_get(t, label) ? 0 : -ENOMEM;
    }
    for (size_t i = 0;
         i < t->dirs.count && t->o->line.operand_count == 0 && !err; i++)
        err = queue_list_of_all_workers(&n, t->dirs.at[i]);
    strlcpy(t->trouble, n.folder_trouble, sizeof t->trouble);
    for (size_t i = 0; i < n.count && !err; i++)
        err = row_get(t, n.at[i]) ? 0 : -ENOMEM;
    queue_list_free(&n);
    return err;
}

int top_look(struct top *t, bool interval)
{
    static struct histogram_sum handler, latency, part;
    int err = rows_find(t);

    for (size_t i = 0; i < t->count && !err; i++) {
        struct top_row *r = t->rows[i];
        uint64_t now = clock_mono_ns();
        double seconds = (double)(now - r->at_ns) / (double)NS_PER_S;
        bool same; /* no new worker has started, whose counts begin at 0 */
        size_t at;

        if (r->looked)
            snapshot_close(&r->v);
        r->looked =
            snapshot_again(&r->v, &r->last,
                           snapshot_dir(t->dirs.at, t->dirs.count, r->queue),
                           r->queue, !t->files_only, &r->problem) == 0;
        if (!interval)
            continue;
        at = r->past.looks++ % TOP_HISTORY;
        r->measured = false;
        r->rate = 0;
        r->p50 = r->p99 = r->wait99 = 0;
        if (r->looked && r->v.counters) {
            counters_histograms(r->v.counters, false, &handler, &latency);
            same = r->head.started_ns == r->v.head.started_ns &&
                   r->v.sum.ended >= r->sum.ended;
            /* The first look has no interval: its counts are from the whole
             * run of the worker. */
            r->measured = r->counted;
            if (r->counted && same && seconds > 0)
                r->rate = (double)(r->v.sum.ended - r->sum.ended) / seconds;
            if (r->counted && !same) {
                memset(&r->handler, 0, sizeof r->handler);
                memset(&r->latency, 0, sizeof r->latency);
            }
            if (r->counted) {
                histogram_since(&part, &handler, &r->handler);
                r->p50 = histogram_quantile(&part, 0.5);
                r->p99 = histogram_quantile(&part, 0.99);
                histogram_since(&part, &latency, &r->latency);
                r->wait99 = histogram_quantile(&part, 0.99);
            }
            r->counted = true;
            r->handler = handler;
            r->latency = latency;
            r->sum = r->v.sum;
            r->head = r->v.head;
        }
        r->at_ns = now;
        r->past.depth[at] =
            r->looked && r->v.depth > 0 ? (uint64_t)r->v.depth : 0;
        r->past.waits[at] = r->wait99;
        r->past.rates[at] = (uint64_t)(r->rate + 0.5);
    }
    return err;
}

/* ---- lines ---- */

#define HEAD_EVERY 20 /* lines between two titles */
#define NAME_LEAST 20 /* columns */
#define NAME_TEXT  1024
#define DEPTH_TEXT ((size_t)2 * TOP_COUNT)

/* Print one queue as plain text. */
static void round_text(const struct top_row *r, int width)
{
    const struct snapshot *v = &r->v;
    char p50[TOP_SHORT], p99[TOP_SHORT], wait[TOP_SHORT], name[NAME_TEXT];
    char depth[DEPTH_TEXT] = "-", waiting[TOP_COUNT], dead[TOP_COUNT];
    char when[TIME_TEXT], rate[TOP_SHORT] = "-";

    safe_text_copy(name, sizeof name, r->queue, strlen(r->queue));
    term_time(clock_wall_ns(), when);
    printf("%.8s  %s%*s  ", when + 11, name, width - term_columns(name), "");
    if (!r->looked) {
        safe_text(stdout, r->problem.text, strlen(r->problem.text), true);
        putchar('\n');
        return;
    }
    if (v->depth >= 0)
        snprintf(depth, sizeof depth, "%ld/%ld", v->depth, v->depth_max);
    if (r->measured)
        snprintf(rate, sizeof rate, "%.1f", r->rate);
    printf("%-12s %9s %9s %4" PRIu64 "/%-4u %8s %6s %7s %7s %7s\n",
           snapshot_state_text(v), depth, rate, v->sum.running,
           v->worker == SNAPSHOT_RUNS ? snapshot_capacity(v) : 0,
           top_count(snapshot_waits(v), waiting), top_count(v->rows.dead, dead),
           top_duration(r->p50, p50), top_duration(r->p99, p99),
           top_duration(r->wait99, wait));
}

/* Print all queues in each round, for pipes and files. Names are not shortened,
 * because scripts read these lines. */
static int rounds_print(struct top *t)
{
    uint64_t printed = 0;
    char name[NAME_TEXT], when[TIME_TEXT];

    cli_interrupt_catch();
    for (uint64_t round = 0; !cli_interrupt_seen(); round++) {
        int width = NAME_LEAST;

        if (top_look(t, true) < 0)
            return complain_memory();
        if (t->count == 0)
            return complain(t->trouble[0] ? EX_CANTCREAT : EX_UNAVAILABLE, "%s",
                            t->trouble[0] ? t->trouble
                                          : "no worker has run with this state "
                                            "directory; see --state-dir");
        for (size_t i = 0; i < t->count; i++) {
            const char *queue = t->rows[i]->queue;

            safe_text_copy(name, sizeof name, queue, strlen(queue));
            if (term_columns(name) > width)
                width = term_columns(name);
        }
        for (size_t i = 0; i < t->count; i++) {
            const struct top_row *r = t->rows[i];
            json_t *o;

            if (!t->o->json && printed++ % HEAD_EVERY == 0)
                printf("%-8s  %-*s  %-12s %9s %9s %9s %8s %6s %7s %7s %7s\n",
                       "TIME", width, "QUEUE", "STATE", "DEPTH", "RATE/S",
                       "FLIGHT", "WAITING", "DEAD", "P50", "P99", "WAIT99");
            if (!t->o->json) {
                round_text(r, width);
                continue;
            }
            /* Print the fields of mqctl status and those of the interval. */
            o = r->looked
                    ? snapshot_json(&r->v)
                    : json_pack("{s:o, s:o}", "queue", json_printable(r->queue),
                                "error", json_printable(r->problem.text));
            if (json_object_update_new(
                    o, json_pack("{s:s, s:f, s:I, s:I, s:I}", "time",
                                 time_print(clock_wall_ns(), when), "rate",
                                 r->rate, "interval_handler_p50_ns",
                                 (json_int_t)r->p50, "interval_handler_p99_ns",
                                 (json_int_t)r->p99, "interval_latency_p99_ns",
                                 (json_int_t)r->wait99)) < 0) {
                json_decref(o);
                return complain_memory();
            }
            if (json_print_line(o, stdout) < 0)
                return complain_memory();
        }
        if (fflush(stdout) != 0 ||
            (t->o->rounds && round + 1 == t->o->rounds) ||
            poll(NULL, 0, (int)(t->o->interval_ns / NS_PER_MS)) < 0)
            break;
    }
    return 0;
}

/* Show a screen if the terminal has one. Otherwise, and for --json, print
 * lines. */
int top_run(const struct options *o)
{
    struct top t = {.o = o, .dirs = {.at = {o->state_dir}, .count = 1}};
    const char *term = getenv("TERM");
    bool screen = !o->json && term_is_terminal(stdout) &&
                  isatty(STDIN_FILENO) && term && *term &&
                  strcmp(term, "dumb") != 0;
    static struct statedir dir;
    char name[QUEUE_NAME_MAX];
    struct problem p = {0};
    int status;

    /* Refuse the name of a missing queue: it may be mistyped. */
    for (int i = 0; i < o->line.operand_count; i++)
        if (snapshot_name(o->line.operands[i], name, &p) < 0 ||
            (snapshot_named_folder(&dir, o->state_dir, name, &p) < 0 &&
             p.status == EX_NOINPUT))
            return complain_of(&p);
    status = screen ? top_screen(&t) : rounds_print(&t);
    for (size_t i = 0; i < t.count; i++) {
        if (t.rows[i]->looked)
            snapshot_close(&t.rows[i]->v);
        free(t.rows[i]);
    }
    free(t.rows);
    cli_interrupt_die();
    return status;
}

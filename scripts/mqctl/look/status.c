/* status.c - see mqctl.h */
#include "scripts/mqctl/mqctl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/base/folder.h"
#include "common/base/safe_text.h"
#include "common/cli/complain.h"
#include "common/cli/json_line.h"
#include "common/cli/term.h"
#include "common/cli/term_table.h"
#include "common/state/statedir.h"
#include "scripts/mqctl/ask.h"
#include "scripts/mqctl/look/snapshot.h"
#include "scripts/mqctl/proc.h"
#include "scripts/mqctl/queue_list.h"

/* ---- a table of several ---- */

#define COLUMN_STATE 1
#define COLUMN_DEAD  7
static const struct term_column columns[] = {
    {"QUEUE", TERM_LEFT, TERM_MIDDLE},   {"STATE", TERM_LEFT, TERM_WHOLE},
    {"PID", TERM_RIGHT, TERM_WHOLE},     {"DEPTH", TERM_RIGHT, TERM_WHOLE},
    {"FLIGHT", TERM_RIGHT, TERM_WHOLE},  {"CAP", TERM_RIGHT, TERM_WHOLE},
    {"WAITING", TERM_RIGHT, TERM_WHOLE}, {"DEAD", TERM_RIGHT, TERM_WHOLE},
    {"DONE", TERM_RIGHT, TERM_WHOLE},
};

static void row(struct term_table *t, const struct snapshot *v)
{
    bool runs = v->worker == SNAPSHOT_RUNS;

    term_cellf(t, "%s", v->queue);
    term_cellf(t, "%s", snapshot_state_text(v));
    term_cell_known(t, runs ? v->pid : -1);
    if (v->depth >= 0)
        term_cellf(t, "%ld/%ld", v->depth, v->depth_max);
    else
        term_cell_known(t, -1);
    term_cell_known(t, runs ? (int64_t)v->sum.running : -1);
    term_cell_known(t, runs ? (int64_t)snapshot_capacity(v) : -1);
    term_cell_known(t, snapshot_waits(v));
    term_cell_known(t, v->dead);
    term_cell_known(t, v->counters ? (int64_t)v->sum.done : -1);
}

/* ---- one in detail ---- */

#define INDENT 17 /* columns of a name and the blank behind it */

static void name_put(const char *name)
{
    printf("%s%-16s%s ", term_colour(stdout, TERM_BOLD), name,
           term_colour(stdout, TERM_PLAIN));
}

/* line - a text that is never broken, so that it can be copied */
static void line(const char *name, const char *text)
{
    name_put(name);
    safe_text(stdout, text, strlen(text), true);
    putchar('\n');
}

/* linef - words that are put together, on lines of the terminal */
__attribute__((format(printf, 2, 3))) static void linef(const char *name,
                                                        const char *fmt, ...)
{
    char text[1024];

    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    name_put(name);
    term_words(stdout, text, INDENT, INDENT, term_width(stdout));
    putchar('\n');
}

/* times - three quantiles of a histogram, as durations; none is over `most` */
static void times(const char *name, const struct histogram_sum *h,
                  uint64_t most)
{
    static const double parts[] = {0.5, 0.9, 0.99};
    char text[3][DURATION_TEXT];

    if (h->total == 0)
        return;
    for (size_t i = 0; i < 3; i++) {
        uint64_t ns = histogram_quantile(h, parts[i]);

        duration_rough(ns < most ? ns : most, text[i]);
    }
    linef(name, "half within %s, 90%% within %s, 99%% within %s", text[0],
          text[1], text[2]);
}

/* totals - since the worker started */
static void totals(const struct snapshot *v)
{
    static struct histogram_sum handler, latency;
    const struct counters_sum *s = &v->sum;
    char when[TIME_TEXT];

    linef(v->worker == SNAPSHOT_RUNS ? "since" : "last run since", "%s",
          term_time_both(v->head.started_ns, when));
    linef("ended",
          "%" PRIu64 " done, %" PRIu64 " discarded, %" PRIu64 " dead (%" PRIu64
          " expired), %" PRIu64 " failed and tried again",
          s->done, s->discarded, s->dead, s->expired, s->retried);
    if (v->totals.deliveries != s->deliveries)
        linef("in all",
              "%" PRIu64 " done, %" PRIu64 " discarded, %" PRIu64
              " dead, %" PRIu64 " failed and tried again, over all runs",
              v->totals.done, v->totals.discarded, v->totals.dead,
              v->totals.retried);
    if (s->crashes)
        linef("crashes", "%" PRIu64 ": a worker died under so many handlers",
              s->crashes);
    if (s->duplicates)
        linef("duplicates", "%" PRIu64 " of the discarded, by their unique key",
              s->duplicates);
    if (s->removed)
        linef("removed",
              "%" PRIu64 " dead letters, as keep-dead and max-dead say",
              s->removed);
    if (v->head.gauges[COUNTERS_UNTOLD])
        linef("on-dead",
              "failed for %" PRIu64 " dead letter%s, and runs again for %s",
              v->head.gauges[COUNTERS_UNTOLD],
              term_plural(v->head.gauges[COUNTERS_UNTOLD]),
              v->head.gauges[COUNTERS_UNTOLD] == 1 ? "it" : "each");
    counters_histograms(v->counters, &handler, &latency);
    times("handler time", &handler, s->longest_ns);
    times("latency", &latency, UINT64_MAX);
    if (v->head.texts[COUNTERS_LAST_ERROR][0])
        linef("last error", "%s, at %s", v->head.texts[COUNTERS_LAST_ERROR],
              term_time_both(v->head.text_ns[COUNTERS_LAST_ERROR], when));
}

/* what_runs - command or plugin, whose, where, since when, told what */
static void what_runs(const struct snapshot *v)
{
    json_t *runs = json_object_get(v->live, "runs"), *flags, *value;
    const char *name, *path = json_string_value(json_object_get(runs, "path"));
    const json_t *uid = json_object_get(runs, "uid");
    const json_t *command = json_object_get(runs, "command");
    size_t used = 0;
    char words[1024] = "", user[FOLDER_USER], when[TIME_TEXT];

    if (!runs)
        return;
    for (size_t i = 0; i < json_array_size(command) && used < sizeof words; i++)
        used += (size_t)snprintf(words + used, sizeof words - used, "%s%s",
                                 i ? " " : "",
                                 json_string_value(json_array_get(command, i)));
    if (words[0])
        line("command", words);
    if (path)
        line(words[0] ? "found at" : "plugin", path);
    linef("runs", "as %s since %s, mqworker %s, %s",
          folder_user((uid_t)json_integer_value(uid), user),
          v->counters ? term_time(v->head.started_ns, when) : "-",
          json_string_value(json_object_get(runs, "version")), v->dir.folder);
    flags = json_object_get(runs, "flags");
    words[0] = '\0';
    json_object_foreach(flags, name, value)
    {
        const char *text = json_string_value(value);

        used = strlen(words);
        snprintf(words + used, sizeof words - used, "%s--%s%s%s",
                 used ? " " : "", name, text && *text ? "=" : "",
                 text ? text : "");
    }
    line("flags", words[0] ? words : "all at their defaults");
}

#define SETTING_WAS (JSON_TEXT + TIME_TEXT + 32)

/* Return " (set TIME; started with VALUE)" for a setting changed since the
 * start, else "". */
static const char *setting_was(const struct snapshot *v, const char *name,
                               char out[SETTING_WAS])
{
    const json_t *one =
        json_object_get(json_object_get(v->live, "settings_changed"), name);
    const char *at = json_string_value(json_object_get(one, "set_at"));
    char text[JSON_TEXT], when[TIME_TEXT];
    uint64_t ns = 0;

    out[0] = '\0';
    if (!one)
        return out;
    (void)time_parse(at ? at : "", 0, &ns);
    snprintf(out, SETTING_WAS, " (set %s; started with %s)",
             term_time(ns, when),
             json_as_text(json_object_get(one, "started"), text));
    return out;
}

/* settings - as they could be set; one a line for scripts, while on a terminal
 * they leave room for the lines above */
static void settings(const struct snapshot *v)
{
    json_t *all = json_object_get(v->live, "settings"), *value;
    char text[JSON_TEXT], was[SETTING_WAS], words[4096] = "";
    const char *name, *title = "settings";
    int width = term_width(stdout);

    json_object_foreach(all, name, value)
    {
        size_t used = strlen(words);

        if (!width)
            linef(title, "%s=%s%s", name, json_as_text(value, text),
                  setting_was(v, name, was));
        else
            snprintf(words + used, sizeof words - used, "%s%s=%s%s",
                     used ? " " : "", name, json_as_text(value, text),
                     setting_was(v, name, was));
        title = "";
    }
    if (!words[0])
        return;
    name_put("settings");
    term_words(stdout, words, INDENT, INDENT, width);
    putchar('\n');
}

/* Print the start and the end of the pause, and the user who paused the
 * worker. */
static void pause_line(const struct snapshot *v)
{
    char since[TIME_TEXT], until[TIME_TEXT] = "", end[TIME_TEXT + 8] = "";
    struct pause_note n;

    if (!snapshot_pause(v, &n))
        return;
    if (n.until_ns)
        snprintf(end, sizeof end, " until %s", term_time(n.until_ns, until));
    linef("paused", "since %s%s, by %s%s",
          n.since_ns ? term_time_both(n.since_ns, since) : "an unknown time",
          end, n.by,
          v->worker == SNAPSHOT_RUNS
              ? ""
              : "; the next worker starts paused unless you run mqctl resume");
}

/* state_line - and why it is so */
static void state_line(const struct snapshot *v)
{
    bool closed = strcmp(snapshot_breaker(v), "closed") == 0;
    const char *why = v->head.texts[COUNTERS_WHY_BREAKER];
    const json_t *left = json_object_get(v->live, "paused_for_ns");
    char more[DURATION_TEXT + 16] = "", text[DURATION_TEXT];

    if (left && json_integer_value(left) > 0)
        snprintf(
            more, sizeof more, " for %s more",
            duration_print(((uint64_t)json_integer_value(left) + NS_PER_S - 1) /
                               NS_PER_S * NS_PER_S,
                           text));
    if (v->worker == SNAPSHOT_RUNS)
        linef("state", "%s%s, pid %d%s%s", snapshot_state_text(v), more,
              (int)v->pid, closed ? "" : ": ", closed ? "" : why);
    else
        line("state", snapshot_state_text(v));
}

/* in_flight - of how many there could be */
static void in_flight(const struct snapshot *v)
{
    char how[96] = "";

    if (snapshot_window(v) > 1)
        snprintf(how, sizeof how,
                 ": %u handler%s at most, each with up to %u (--window)",
                 snapshot_cap(v), term_plural(snapshot_cap(v)),
                 snapshot_window(v));
    linef("in flight", "%" PRIu64 " of %u%s", v->sum.running,
          snapshot_capacity(v), how);
}

/* in_queue - as far as it is known */
static void in_queue(const struct snapshot *v)
{
    char bytes[32] = "", length[24] = "unknown";

    if (v->depth >= 0)
        snprintf(length, sizeof length, "%ld", v->depth);
    if (v->bytes >= 0)
        snprintf(bytes, sizeof bytes, ", %ld byte%s", v->bytes,
                 term_plural((uint64_t)v->bytes));
    linef("in the queue", "%s of %ld message%s%s; at most %ld byte%s each",
          length, v->depth_max, term_plural((uint64_t)v->depth_max), bytes,
          v->message_size, term_plural((uint64_t)v->message_size));
}

/* in_store - the rows; or why they could not be counted */
static void in_store(const struct snapshot *v)
{
    const char *check =
        json_string_value(json_object_get(v->live, "store_check"));

    if (check && strcmp(check, "ok") != 0)
        linef("store check", "%s", check);
    if (snapshot_unread(v->store_err))
        linef("in the store", "%s", v->no_store.text);
    else if (v->waiting >= 0)
        linef("in the store",
              "%" PRId64
              " wait (delayed, for a retry, or kept by a stop), %" PRId64
              " wait for their turn in their group, %" PRId64 " dead, %" PRId64
              " sent again",
              v->waiting, v->parked, v->dead, v->replayed);
}

/* in_custody - messages that were received and are not finished */
static void in_custody(const struct snapshot *v)
{
    char groups[96] = "";

    if (v->grouped > 0)
        snprintf(groups, sizeof groups,
                 ", %" PRId64 " of them in line in their groups", v->grouped);
    if (v->no_custody.status)
        linef("in custody", "%s", v->no_custody.text);
    if (v->custody < 0)
        return;
    if (v->worker == SNAPSHOT_RUNS)
        linef("in custody",
              "%" PRId64 " in flight, %" PRId64 " received and waiting%s",
              v->custody - v->held, v->held, groups);
    else
        linef("in custody", "%" PRId64 " received and not finished%s%s",
              v->held, groups,
              v->held ? "; they run when a worker is started" : "");
}

/* groups - worth a line where there are any */
static void groups(const struct snapshot *v)
{
    if (v->worker != SNAPSHOT_RUNS || snapshot_groups(v) == 0)
        return;
    linef("groups", "%" PRIu64 " known, %" PRIu64 " held by a dead letter%s%s",
          snapshot_groups(v), snapshot_groups_held(v),
          snapshot_groups_held(v) ? ": mqdlq list --by group " : "",
          snapshot_groups_held(v) ? v->queue : "");
}

/* partitions - which this worker is known to have, and what it has of them */
static void partitions(const struct snapshot *v)
{
    const json_t *all = json_object_get(v->live, "partitions"), *part;
    json_int_t in_hand = 0, blocked = 0;
    char here[4 * 64 + 8] = "";
    size_t i, used = 0;

    if (json_array_size(all) == 0)
        return;
    json_array_foreach(all, i, part)
    {
        in_hand += json_integer_value(json_object_get(part, "in_hand"));
        blocked += json_integer_value(json_object_get(part, "blocked_groups"));
        if (used < sizeof here - 8 &&
            json_is_true(json_object_get(part, "here")))
            used +=
                (size_t)snprintf(here + used, sizeof here - used, " %zu", i);
    }
    linef("partitions", "%zu; messages have come from%s", json_array_size(all),
          used ? here
               : " none of them: another worker has them, or they are "
                 "empty");
    linef("in hand",
          "%" PRId64 " message%s of them; %" PRId64
          " group%s for the retry of the first",
          (int64_t)in_hand, term_plural((uint64_t)in_hand), (int64_t)blocked,
          blocked == 1 ? " waits" : "s wait");
}

/* spooled - worth a line where there are any */
static void spooled(const struct snapshot *v)
{
    const json_t *most =
        json_object_get(json_object_get(v->live, "settings"), "spool");
    char text[JSON_TEXT], room[JSON_TEXT + 64] = "";

    if (v->spooled <= 0)
        return;
    if (v->worker != SNAPSHOT_RUNS)
        snprintf(room, sizeof room, "; they run when a worker is started");
    else if (most && json_integer_value(most) <= v->spooled)
        snprintf(room, sizeof room,
                 ", as many as --spool allows; more stay in "
                 "the queue, and senders wait");
    else if (most)
        snprintf(room, sizeof room, ", of %s at most (--spool)",
                 json_as_text(most, text));
    linef("spooled", "%" PRId64 " wait on the disk for their turn%s",
          v->spooled, room);
}

/* Print the age of the oldest message in each state, and the time of the last
 * receipt. */
static void ages_print(const struct snapshot *v)
{
    const struct {
        uint64_t ns;
        const char *state;
    } all[] = {{v->ages.waiting, "waiting"},
               {v->ages.parked, "parked"},
               {v->ages.spooled, "spooled"},
               {v->held_since_ns, "held"}};
    char text[256] = "", time[DURATION_TEXT], when[TIME_TEXT];
    uint64_t now = clock_wall_ns();
    size_t used = 0;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].ns)
            used += (size_t)snprintf(
                text + used, sizeof text - used, "%s%s received %s ago",
                used ? ", " : "", all[i].state,
                duration_rough(now > all[i].ns ? now - all[i].ns : 0, time));
    if (used)
        linef("oldest", "%s", text);
    if (v->totals.received_ns)
        linef("last received", "%s",
              term_time_both(v->totals.received_ns, when));
}

static void details(const struct snapshot *v)
{
    line("queue", v->queue);
    state_line(v);
    pause_line(v);
    if (v->has_queue)
        in_queue(v);
    else
        linef("in the queue", "%s", v->no_queue.text);
    if (snapshot_why(v))
        linef("takes no more", "%s", snapshot_why(v));
    if (v->worker == SNAPSHOT_RUNS)
        in_flight(v);
    in_custody(v);
    in_store(v);
    spooled(v);
    ages_print(v);
    groups(v);
    partitions(v);
    if (v->counters)
        totals(v);
    else if (snapshot_unread(v->counters_err) && !snapshot_changing(v))
        linef("counters", "%s", v->no_counters.text);
    what_runs(v);
    settings(v);
}

/* ---- the verb ---- */

#define KEPT 160

/* kept - messages that the last worker left; "" if there are none */
static const char *kept(const struct snapshot *v, char buf[KEPT])
{
    buf[0] = '\0';
    if (v->worker == SNAPSHOT_KILLED && v->custody < 0 && !v->no_custody.status)
        snprintf(buf, KEPT,
                 "; what it had received and not finished is not found: its "
                 "runtime directory is gone, or the machine was started again");
    if (v->custody > 0)
        snprintf(buf, KEPT,
                 "; %" PRId64 " message%s in custody, and run%s when a worker "
                 "is started",
                 v->custody, v->custody == 1 ? " is" : "s are",
                 v->custody == 1 ? "s" : "");
    return buf;
}

/* absent - a queue that was named has no worker: tell of the last one */
static int absent(const struct snapshot *v)
{
    char when[TIME_TEXT], began[TIME_TEXT + 16] = "", buf[KEPT];
    char start[START_TEXT];

    worker_start_text(v->queue, start);
    if (v->worker == SNAPSHOT_KILLED && v->counters)
        snprintf(began, sizeof began, " started at %s,",
                 term_time(v->head.started_ns, when));
    if (v->worker == SNAPSHOT_KILLED)
        return complain(
            EX_UNAVAILABLE,
            "no worker is running on %s; its last one, pid %d,%s was "
            "killed%s; start one "
            "with %s",
            v->queue, (int)v->pid, began, kept(v, buf), start);
    if (v->worker == SNAPSHOT_ENDED)
        return complain(EX_UNAVAILABLE,
                        "no worker is running on %s; the last one ended "
                        "at %s%s; start one with %s",
                        v->queue,
                        term_time_both(v->head.gauges[COUNTERS_ENDED_NS], when),
                        kept(v, buf), start);
    if (v->worker == SNAPSHOT_UNSEEN && !v->shut)
        return complain(EX_UNAVAILABLE,
                        "whether a worker runs on %s is not seen from here: "
                        "the lock %s/%s cannot be checked",
                        v->queue, v->dir.folder, STATEDIR_PIDFILE);
    if (v->has_folder && snapshot_unread(v->counters_err))
        return complain_of(&v->no_counters);
    if (!v->shut && !v->has_queue && v->no_queue.status == EX_NOINPUT &&
        !v->has_folder) {
        struct problem p = {0};

        queue_absent(v->dir.root, v->queue, &p);
        return complain_of(&p);
    }
    return complain_of(&v->no_live);
}

/* show - one queue, in the form that was asked for */
static int show(const struct options *o, const char *name,
                struct term_table *table)
{
    struct holder h;
    struct problem p;
    struct snapshot v;
    int status = 0;

    if (snapshot_open(&v, o->state_dir, name, true, &p) < 0)
        return complain_of(&p);
    if (o->json) {
        if (json_print_line(snapshot_json(&v), stdout) < 0)
            status = complain_memory();
    } else if (table) {
        row(table, &v);
    } else {
        details(&v);
    }
    if (!status && v.worker != SNAPSHOT_RUNS &&
        (o->line.operand_count || v.shut))
        status = v.worker != SNAPSHOT_UNSEEN && holder_find(&h, v.queue) &&
                         !holder_is_of(&h, v.dir.folder)
                     ? complain(EX_UNAVAILABLE,
                                "no worker of this state directory is seen on "
                                "%s, but an mqworker (pid %d) has it open; see "
                                "mqctl doctor %s",
                                v.queue, (int)h.pid, SHELL_QUEUE(v.queue))
                     : absent(&v);
    else if (!status && v.worker == SNAPSHOT_RUNS && !v.live &&
             !snapshot_changing(&v))
        status = complain_of(&v.no_live);
    snapshot_close(&v);
    return status;
}

/* show_all - one after the other; the first trouble is the status */
static int show_all(const struct options *o, char *const *names, size_t count,
                    bool tabular)
{
    struct term_table *table =
        tabular ? term_table_open(columns, sizeof columns / sizeof *columns)
                : NULL;
    int status = 0;

    term_table_paint(table, COLUMN_STATE, snapshot_state_colour);
    term_table_paint(table, COLUMN_DEAD, snapshot_dead_colour);
    for (size_t i = 0; i < count; i++) {
        int one = show(o, names[i], table);

        status = status ? status : one;
    }
    if (tabular && term_table_print(table, stdout) < 0)
        status = complain_memory();
    term_table_close(&table);
    return status;
}

/* status_run - those that were named, else all that have a folder */
int status_run(const struct options *o)
{
    struct queue_list n = {0};
    int status;

    if (o->line.operand_count)
        return show_all(o, o->line.operands, (size_t)o->line.operand_count,
                        !o->json && o->line.operand_count > 1);
    if (queue_list_of_all_workers(&n, o->state_dir) < 0)
        return complain_memory();
    if (n.folder_trouble[0])
        status = complain(EX_CANTCREAT, "%s", n.folder_trouble);
    else if (n.count == 0)
        status =
            complain(EX_UNAVAILABLE, "no worker has run with this state "
                                     "directory; start one with mqworker QUEUE "
                                     "-- COMMAND, or see --state-dir");
    else
        status = show_all(o, n.at, n.count, !o->json);
    queue_list_free(&n);
    return status;
}

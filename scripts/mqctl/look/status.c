/* status.c - mqctl status
 *
 * main calls status_run, on the only thread: one queue is printed in detail,
 * several as a table, and with --json each as an object.
 */
#include "scripts/mqctl/mqctl.h"

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

/* ---- several queues, as a table ---- */

#define COLUMN_STATE 1
#define COLUMN_DEAD  7
static const struct term_column columns[] = {
    {"QUEUE", TERM_LEFT, TERM_MIDDLE},   {"STATE", TERM_LEFT, TERM_WHOLE},
    {"PID", TERM_RIGHT, TERM_WHOLE},     {"DEPTH", TERM_RIGHT, TERM_WHOLE},
    {"FLIGHT", TERM_RIGHT, TERM_WHOLE},  {"CAP", TERM_RIGHT, TERM_WHOLE},
    {"WAITING", TERM_RIGHT, TERM_WHOLE}, {"DEAD", TERM_RIGHT, TERM_WHOLE},
    {"DONE", TERM_RIGHT, TERM_WHOLE},
};

static enum term_colour dead_colour(const char *dead)
{
    return strcmp(dead, "0") == 0 || strcmp(dead, "-") == 0 ? TERM_PLAIN
                                                            : TERM_YELLOW;
}

/* ---- one queue in detail ---- */

#define INDENT 17 /* columns of a name and the blank behind it */

static void heading_print(const char *name)
{
    printf("%s%-16s%s ", term_colour(stdout, TERM_BOLD), name,
           term_colour(stdout, TERM_PLAIN));
}

/* Print a text on one line, so that it can be copied. */
static void text_print(const char *name, const char *text)
{
    heading_print(name);
    safe_text(stdout, text, strlen(text), true);
    putchar('\n');
}

/* Print words on as many lines as the terminal needs. */
__attribute__((format(printf, 2, 3))) static void
words_print(const char *name, const char *fmt, ...)
{
    char text[4096];

    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    heading_print(name);
    term_words(stdout, text, INDENT, INDENT, term_width(stdout));
    putchar('\n');
}

/* Print three quantiles of a histogram, as durations of at most `most` ns. */
static void quantiles_print(const char *name, const struct histogram_sum *h,
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
    words_print(name, "p50 %s, p90 %s, p99 %s", text[0], text[1], text[2]);
}

/* Print the counts and times of this run of the worker, or of its last run. */
static void counters_print(const struct snapshot *v)
{
    static struct histogram_sum handler, latency;
    const struct counters_sum *n = &v->sum, *all = &v->totals;
    uint64_t failed = v->head.gauges[COUNTERS_ON_DEAD];
    char when[TIME_TEXT];

    words_print(v->worker == SNAPSHOT_RUNS ? "since" : "last run since", "%s",
                term_time_both(v->head.started_ns, when));
    words_print("ended",
                "%" PRIu64 " done, %" PRIu64 " discarded, %" PRIu64
                " dead (%" PRIu64 " expired), %" PRIu64 " failed and retried",
                n->done, n->discarded, n->dead, n->expired, n->retried);
    if (all->deliveries != n->deliveries)
        words_print("in all",
                    "%" PRIu64 " done, %" PRIu64 " discarded, %" PRIu64
                    " dead, %" PRIu64 " failed and retried, over all runs",
                    all->done, all->discarded, all->dead, all->retried);
    if (n->crashes)
        words_print("crashes",
                    "%" PRIu64 " handler%s running when a worker was killed",
                    n->crashes, n->crashes == 1 ? " was" : "s were");
    if (n->duplicates)
        words_print("duplicates",
                    "%" PRIu64 " of the discarded, by their unique key",
                    n->duplicates);
    if (n->removed)
        words_print("removed",
                    "%" PRIu64 " dead letters, by keep-dead and max-dead",
                    n->removed);
    if (failed)
        words_print("on-dead",
                    "failed for %" PRIu64 " dead letter%s; will run again for "
                    "%s",
                    failed, term_plural(failed), failed == 1 ? "it" : "each");
    counters_histograms(v->counters, false, &handler, &latency);
    quantiles_print("handler time", &handler, n->longest_ns);
    quantiles_print("latency", &latency, UINT64_MAX);
    if (v->head.texts[COUNTERS_LAST_ERROR][0])
        words_print("last error", "%s, at %s",
                    v->head.texts[COUNTERS_LAST_ERROR],
                    term_time_both(v->head.text_ns[COUNTERS_LAST_ERROR], when));
}

/* Print the command or plugin, its user, version, folder, flags and settings.
 * Without a terminal each setting is on a line of its own, for scripts. */
static void program_print(const struct snapshot *v)
{
    json_t *runs = json_object_get(v->live, "runs"), *value, *was;
    json_t *changed = json_object_get(v->live, "settings_changed");
    const char *name, *path = json_text_of(runs, "path");
    const json_t *uid = json_object_get(runs, "uid");
    const json_t *command = json_object_get(runs, "command");
    char words[4096] = "", text[JSON_TEXT], user[FOLDER_USER], when[TIME_TEXT];
    const char *at, *title = "settings";
    bool scripts = term_width(stdout) == 0;
    uint64_t ns = 0;

    if (!runs)
        return;
    for (size_t i = 0; i < json_array_size(command); i++)
        text_append(words, sizeof words, "%s%s", i ? " " : "",
                    json_string_value(json_array_get(command, i)));
    if (words[0])
        text_print("command", words);
    if (path)
        text_print(words[0] ? "executable" : "plugin", path);
    words_print("runs", "as %s since %s, mqworker %s, %s",
                folder_user((uid_t)json_integer_value(uid), user),
                v->counters ? term_time(v->head.started_ns, when) : "-",
                json_text_of(runs, "version"), v->dir.folder);
    words[0] = '\0';
    json_object_foreach(json_object_get(runs, "flags"), name, value)
    {
        at = json_string_value(value);
        text_append(words, sizeof words, "%s--%s%s%s", words[0] ? " " : "",
                    name, at && *at ? "=" : "", at ? at : "");
    }
    text_print("flags", words[0] ? words : "all at their defaults");
    words[0] = '\0';
    json_object_foreach(json_object_get(v->live, "settings"), name, value)
    {
        if (scripts)
            words[0] = '\0';
        text_append(words, sizeof words, "%s%s=%s", words[0] ? " " : "", name,
                    json_as_text(value, text));
        was = json_object_get(changed, name);
        at = json_text_of(was, "set_at");
        (void)time_parse(at ? at : "", 0, &ns);
        if (was)
            text_append(words, sizeof words, " (set %s; started with %s)",
                        term_time(ns, when),
                        json_as_text(json_object_get(was, "started"), text));
        if (scripts)
            words_print(title, "%s", words);
        title = scripts ? "" : title;
    }
    if (words[0] && !scripts)
        words_print(title, "%s", words);
}

/* Print the state and its reason; then the start and the end of a pause, and
 * the user who paused the worker. */
static void state_print(const struct snapshot *v)
{
    bool closed = strcmp(snapshot_breaker(v), "closed") == 0;
    const char *why = v->head.texts[COUNTERS_WHY_BREAKER];
    const json_t *left = json_object_get(v->live, "paused_for_ns");
    char more[DURATION_TEXT + 16] = "", text[DURATION_TEXT];
    char since[TIME_TEXT], until[TIME_TEXT] = "", end[TIME_TEXT + 8] = "";
    struct pause_note n;

    if (left && json_integer_value(left) > 0)
        snprintf(
            more, sizeof more, " for %s more",
            duration_print(((uint64_t)json_integer_value(left) + NS_PER_S - 1) /
                               NS_PER_S * NS_PER_S,
                           text));
    if (v->worker == SNAPSHOT_RUNS)
        words_print("state", "%s%s, pid %d%s%s", snapshot_state_text(v), more,
                    (int)v->pid, closed ? "" : ": ", closed ? "" : why);
    else
        text_print("state", snapshot_state_text(v));
    if (!snapshot_pause(v, &n))
        return;
    if (n.until_ns)
        snprintf(end, sizeof end, " until %s", term_time(n.until_ns, until));
    words_print("paused", "since %s%s, by %s%s",
                n.since_ns ? term_time_both(n.since_ns, since)
                           : "an unknown time",
                end, n.by,
                v->worker == SNAPSHOT_RUNS ? ""
                                           : "; the next worker starts paused "
                                             "unless you run mqctl resume");
}

/* Print where messages are: in the queue, in flight, in custody, in the store,
 * in the spool. */
static void places_print(const struct snapshot *v)
{
    const char *check = snapshot_text(v, "store_check");
    const json_t *most = snapshot_setting(v, "spool");
    char text[JSON_TEXT], room[JSON_TEXT + 64] = "";
    char bytes[32] = "", depth[24] = "unknown", each[96] = "", groups[96] = "";

    if (v->depth >= 0)
        snprintf(depth, sizeof depth, "%ld", v->depth);
    if (v->bytes >= 0)
        snprintf(bytes, sizeof bytes, ", %ld byte%s", v->bytes,
                 term_plural((uint64_t)v->bytes));
    if (v->has_queue)
        words_print("in the queue",
                    "%s of %ld message%s%s; at most %ld byte%s each", depth,
                    v->depth_max, term_plural((uint64_t)v->depth_max), bytes,
                    v->message_size, term_plural((uint64_t)v->message_size));
    else
        words_print("in the queue", "%s", v->no_queue.text);
    if (snapshot_why(v))
        words_print("takes no more", "%s", snapshot_why(v));
    if (snapshot_window(v) > 1)
        snprintf(each, sizeof each,
                 ": %u handler%s at most, each with up to %u (--window)",
                 snapshot_cap(v), term_plural(snapshot_cap(v)),
                 snapshot_window(v));
    if (v->worker == SNAPSHOT_RUNS)
        words_print("in flight", "%" PRIu64 " of %u%s", v->sum.running,
                    snapshot_capacity(v), each);
    if (v->grouped > 0)
        snprintf(groups, sizeof groups,
                 ", %" PRId64 " of them in ordered groups", v->grouped);
    if (v->no_custody.status)
        words_print("in custody", "%s", v->no_custody.text);
    if (v->custody >= 0 && v->worker == SNAPSHOT_RUNS)
        words_print("in custody",
                    "%" PRId64 " with a handler, %" PRId64
                    " received and waiting%s",
                    v->custody - v->held, v->held, groups);
    else if (v->custody >= 0)
        words_print("in custody", "%" PRId64 " unfinished%s%s", v->held, groups,
                    v->held ? "; they run when you start a worker" : "");
    if (check && strcmp(check, "ok") != 0)
        words_print("store check", "%s", check);
    if (snapshot_unread(v->store_err))
        words_print("in the store", "%s", v->no_store.text);
    else if (v->rows.waiting >= 0)
        words_print(
            "in the store",
            "%" PRId64 " waiting (delayed, retrying or interrupted), %" PRId64
            " blocked by their group, %" PRId64 " dead, %" PRId64
            " being replayed",
            v->rows.waiting, v->rows.parked, v->rows.dead, v->rows.replayed);
    if (v->rows.spooled <= 0)
        return;
    if (v->worker != SNAPSHOT_RUNS)
        snprintf(room, sizeof room, "; they run when you start a worker");
    else if (most && json_integer_value(most) <= v->rows.spooled)
        snprintf(room, sizeof room,
                 ", as many as --spool allows; more stay in "
                 "the queue, and senders wait");
    else if (most)
        snprintf(room, sizeof room, ", of at most %s (--spool)",
                 json_as_text(most, text));
    words_print("spooled", "%" PRId64 " waiting on disk%s", v->rows.spooled,
                room);
}

/* Print everything about one queue: state, places and ages of messages, groups,
 * partitions, counters, program and settings. */
static void details_print(const struct snapshot *v)
{
    const json_t *all = json_object_get(v->live, "partitions"), *part;
    uint64_t held = snapshot_groups_held(v), now = clock_wall_ns();
    const struct {
        uint64_t ns; /* 0: there is none */
        const char *before, *behind;
    } ages[] = {{v->rows.ages.waiting, "waiting received", " ago"},
                {v->rows.ages.due <= now ? v->rows.ages.due : 0, "due", " ago"},
                {v->rows.ages.parked, "parked received", " ago"},
                {v->rows.ages.spooled, "spooled received", " ago"},
                {v->held_since_ns, "received and waiting for", ""},
                {v->queue_wait_ns ? now - v->queue_wait_ns : 0,
                 "in the queue for about", ""}};
    char text[512] = "", time[DURATION_TEXT], when[TIME_TEXT];
    json_int_t in_hand = 0, blocked = 0;
    size_t i;

    text_print("queue", v->queue);
    state_print(v);
    places_print(v);
    for (i = 0; i < sizeof ages / sizeof *ages; i++)
        if (ages[i].ns)
            text_append(text, sizeof text, "%s%s %s%s", text[0] ? ", " : "",
                        ages[i].before, term_since(ages[i].ns, time),
                        ages[i].behind);
    if (text[0])
        words_print("oldest", "%s", text);
    if (v->totals.received_ns)
        words_print("last received", "%s",
                    term_time_both(v->totals.received_ns, when));
    if (v->worker == SNAPSHOT_RUNS && snapshot_groups(v))
        words_print("groups",
                    "%" PRIu64 " known, %" PRIu64 " held by a dead letter%s%s",
                    snapshot_groups(v), held,
                    held ? ": mqdlq list --by group " : "",
                    held ? STATEDIR_OPERAND(v->dir.root, v->queue) : "");
    text[0] = '\0';
    json_array_foreach(all, i, part)
    {
        in_hand += json_integer_value(json_object_get(part, "in_hand"));
        blocked += json_integer_value(json_object_get(part, "blocked_groups"));
        if (strlen(text) < sizeof text - 8 &&
            json_is_true(json_object_get(part, "here")))
            text_append(text, sizeof text, " %zu", i);
    }
    if (json_array_size(all)) {
        words_print("partitions", "%zu; messages have come from%s",
                    json_array_size(all),
                    text[0] ? text
                            : " none of them: another worker has them, or they "
                              "are empty");
        words_print("in hand",
                    "%" PRId64 " message%s of all partitions; %" PRId64
                    " group%s waiting for a retry",
                    (int64_t)in_hand, term_plural((uint64_t)in_hand),
                    (int64_t)blocked, blocked == 1 ? " is" : "s are");
    }
    if (v->counters)
        counters_print(v);
    else if (snapshot_unread(v->counters_err) && !snapshot_changing(v))
        words_print("counters", "%s", v->no_counters.text);
    program_print(v);
}

/* ---- the verb ---- */

#define KEPT 160 /* bytes of the clause about messages in custody */

/* Return true if neither the queue nor its state folder exists. */
static bool is_absent(const struct snapshot *v)
{
    return !v->shut && !v->has_queue && v->no_queue.status == EX_NOINPUT &&
           !v->has_folder;
}

/* Explain that a named queue has no worker, and how the last one ended.
 * Returns an exit status. */
static int absent_complain(const struct snapshot *v)
{
    char when[TIME_TEXT], began[TIME_TEXT + 16] = "", kept[KEPT] = "";
    char start[START_TEXT];
    struct problem p = {0};

    worker_start_text(v->queue, start);
    if (v->worker == SNAPSHOT_KILLED && v->custody < 0 && !v->no_custody.status)
        snprintf(kept, sizeof kept,
                 "; its unfinished messages were not found: its runtime "
                 "directory is gone, or the machine was restarted");
    if (v->custody > 0)
        snprintf(kept, sizeof kept,
                 "; %" PRId64 " message%s in custody, and run%s when a worker "
                 "is started",
                 v->custody, v->custody == 1 ? " is" : "s are",
                 v->custody == 1 ? "s" : "");
    if (v->worker == SNAPSHOT_KILLED && v->counters)
        snprintf(began, sizeof began, " started at %s,",
                 term_time(v->head.started_ns, when));
    if (v->worker == SNAPSHOT_KILLED)
        return complain(
            EX_UNAVAILABLE,
            "no worker is running on %s; its last one, pid %d,%s was "
            "killed%s; start one "
            "with %s",
            v->queue, (int)v->pid, began, kept, start);
    if (v->worker == SNAPSHOT_ENDED)
        return complain(EX_UNAVAILABLE,
                        "no worker is running on %s; the last one ended "
                        "at %s%s; start one with %s",
                        v->queue,
                        term_time_both(v->head.gauges[COUNTERS_ENDED_NS], when),
                        kept, start);
    if (v->worker == SNAPSHOT_UNSEEN && !v->shut)
        return complain(EX_UNAVAILABLE,
                        "cannot tell whether a worker is running on %s: the "
                        "lock %s/%s cannot be checked from here",
                        v->queue, v->dir.folder, STATEDIR_PIDFILE);
    if (v->has_folder && snapshot_unread(v->counters_err))
        return complain_of(&v->no_counters);
    if (is_absent(v)) {
        queue_absent(v->dir.root, v->queue, &p);
        return complain_of(&p);
    }
    return complain_of(&v->no_live);
}

/* Print one queue in the form that was asked for. Returns an exit status. */
static int queue_print(const struct options *o, const char *name,
                       struct term_table *table)
{
    struct holder h;
    struct problem p;
    struct snapshot v;
    int status = 0;
    bool runs;

    if (snapshot_open(&v, o->state_dir, name, true, &p) < 0)
        return complain_of(&p);
    runs = v.worker == SNAPSHOT_RUNS;
    if (o->json) {
        if (json_print_line(snapshot_json(&v), stdout) < 0)
            status = complain_memory();
    } else if (table) {
        term_cellf(table, "%s", v.queue);
        term_cellf(table, "%s", snapshot_state_text(&v));
        term_cell_known(table, runs ? v.pid : -1);
        if (v.depth >= 0)
            term_cellf(table, "%ld/%ld", v.depth, v.depth_max);
        else
            term_cell_known(table, -1);
        term_cell_known(table, runs ? (int64_t)v.sum.running : -1);
        term_cell_known(table, runs ? (int64_t)snapshot_capacity(&v) : -1);
        term_cell_known(table, snapshot_waits(&v));
        term_cell_known(table, v.rows.dead);
        term_cell_known(table, v.counters ? (int64_t)v.sum.done : -1);
    } else if (!is_absent(&v)) { /* absent: the error below is enough */
        details_print(&v);
    }
    if (!status && !runs && (o->line.operand_count || v.shut))
        status = v.worker != SNAPSHOT_UNSEEN &&
                         holder_find(&h, v.queue, NULL) &&
                         !holder_is_of(&h, v.dir.folder)
                     ? complain(EX_UNAVAILABLE,
                                "no worker of this state directory is running "
                                "on %s, but an mqworker (pid %d) has it open; "
                                "see mqctl doctor %s",
                                v.queue, (int)h.pid,
                                STATEDIR_OPERAND(v.dir.root, v.queue))
                     : absent_complain(&v);
    else if (!status && runs && !v.live && !snapshot_changing(&v))
        status = complain_of(&v.no_live);
    snapshot_close(&v);
    return status;
}

/* Print the queues one after the other. Returns the first exit status that is
 * not 0. */
static int statuses_print(const struct options *o, char *const *names,
                          size_t count, bool tabular)
{
    struct term_table *table =
        tabular ? term_table_open(columns, sizeof columns / sizeof *columns)
                : NULL;
    int status = 0;

    term_table_paint(table, COLUMN_STATE, snapshot_state_colour);
    term_table_paint(table, COLUMN_DEAD, dead_colour);
    for (size_t i = 0; i < count; i++) {
        int one = queue_print(o, names[i], table);

        status = status ? status : one;
    }
    if (tabular && term_table_print(table, stdout) < 0)
        status = complain_memory();
    term_table_close(&table);
    return status;
}

int status_run(const struct options *o)
{
    struct queue_list n = {0};
    int status;

    if (o->line.operand_count)
        return statuses_print(o, o->line.operands,
                              (size_t)o->line.operand_count,
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
        status = statuses_print(o, n.at, n.count, !o->json);
    queue_list_free(&n);
    return status;
}

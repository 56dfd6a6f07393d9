/* control_verbs.c - what can be said over the control socket (see
 * control_verbs.h) */
#include "worker/operate/control_verbs.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/options/option_value.h"
#include "common/state/counters.h"
#include "common/state/statedir.h"
#include "common/state/worker_lock.h"
#include "worker/config/settings.h"
#include "worker/files/file_watch.h"
#include "worker/files/store_look.h"
#include "worker/flow/flow.h"
#include "worker/flow/group_dispatch.h"
#include "worker/flow/schedule.h"
#include "worker/operate/control_groups.h"
#include "worker/operate/control_running.h"
#include "worker/operate/control_steer.h"
#include "worker/operate/live_settings.h"
#include "worker/operate/orders.h"
#include "worker/operate/pause.h"
#include "worker/operate/stop.h"

#define WORDS_MAX STEER_MOST

struct request {
    struct orders *orders;
    char *words[WORDS_MAX]; /* without the verb */
    size_t count;
    struct control_call *call;
    bool later; /* not now: there is no answer yet */
};

static json_t *yes(void)
{
    return json_pack("{s:b}", "ok", 1);
}

/* ---- status ---- */

/* setting_json - a plain number as one; what has a unit, or is a word, as
 * text */
static json_t *setting_json(const char *text)
{
    const char *trouble = "not a number";
    long long value = 0;

    if (text[strspn(text, "0123456789")] == '\0')
        value = strtonum(text, 0, INT64_MAX, &trouble);
    return trouble ? json_string(text) : json_integer(value);
}

/* Add to `all` each setting that can be changed, as it is now, and to `changed`
 * those that were changed, with the value at the start and the time; write to
 * `keep` the flags that would start a worker with the changed ones. Each of the
 * three may be NULL. */
static void settings_put(struct orders *o, json_t *all, json_t *changed,
                         char keep[STATEDIR_REQUEST])
{
    char now[SETTING_TEXT], start[SETTING_TEXT], when[TIME_TEXT];
    uint64_t set_ns;

    for (size_t i = 0; i < settings_table.count; i++) {
        const struct option_row *row = &settings_table.rows[i];
        size_t used = keep ? strlen(keep) : 0;

        if (!row->live)
            continue;
        option_print(row, o->live, now, sizeof now);
        json_object_set_new(all, row->name, setting_json(now));
        if (!live_settings_started(o, row, start, &set_ns))
            continue;
        json_object_set_new(changed, row->name,
                            json_pack("{s:o, s:s}", "started",
                                      setting_json(start), "set_at",
                                      time_print(set_ns, when)));
        if (keep)
            snprintf(keep + used, STATEDIR_REQUEST - used, "%s--%s=%s",
                     used ? " " : "", row->name, now);
    }
}

/* differs_json - in what the queue differs from the settings; null: in
 * nothing */
static json_t *differs_json(const struct flow *f)
{
    const struct source *s = f->source;
    char text[256];

    return s->local && s->local->differs(s, text, sizeof text)
               ? json_string(text)
               : json_null();
}

/* files_put - which file keeps messages from being taken; a path that is no
 * UTF-8 is left out */
static void files_put(json_t *out, struct file_watch *w)
{
    struct file_trouble t;

    file_watch_trouble(w, &t);
    json_object_set_new(out, "file_gone", json_string(t.text));
    json_object_set_new(out, "file", json_string(t.path));
    json_object_set_new(out, "file_next", json_string(t.next));
}

/* flag_put - visit: a flag that is not at its default */
static void flag_put(const char *flag, const char *value, void *arg)
{
    (void)json_object_set_new(arg, flag, json_string(value));
}

#define ARGS_MOST 64 /* of a command that are told */

/* command_json - the words of the command; null: a C function is called */
static json_t *command_json(const struct settings *set)
{
    json_t *all = set->command ? json_array() : json_null();
    char text[256];

    for (int i = 0; set->command && set->command[i] && i < ARGS_MOST; i++) {
        safe_text_copy(text, sizeof text, set->command[i],
                       strlen(set->command[i]));
        (void)json_array_append_new(all, json_string(text));
    }
    return all;
}

/* Return the program, its command and the flags at its start, which stay the
 * same while the worker is running. */
static json_t *runs_json(struct request *r)
{
    const struct flow *f = r->orders->flow;
    const char *path = r->orders->path;
    char plugin[PATH_MAX], folder[PATH_MAX];
    json_t *flags = json_object();

    settings_told(r->orders->started, flag_put, flags);
    safe_text_copy(plugin, sizeof plugin, path ? path : "",
                   path ? strlen(path) : 0);
    safe_text_copy(folder, sizeof folder, f->folder, strlen(f->folder));
    return json_pack("{s:s, s:s, s:I, s:o, s:s?, s:s, s:o}", "version",
                     MQW_VERSION, "handler", f->ops->name, "uid",
                     (json_int_t)geteuid(), "command", command_json(f->set),
                     "path", plugin[0] ? plugin : NULL, "state_dir", folder,
                     "flags", flags);
}

static void part_put(void *arg, const struct source_part *p)
{
    json_array_append_new(arg, json_pack("{s:i, s:b, s:i, s:i}", "partition",
                                         (int)p->number, "here", p->here,
                                         "in_hand", (int)p->in_hand,
                                         "blocked_groups", (int)p->blocked));
}

/* parts_json - null: the queue is one whole */
static json_t *parts_json(struct source *s)
{
    json_t *all = json_array();

    if (s->ops->parts)
        s->ops->parts(s, part_put, all);
    if (json_array_size(all) > 0)
        return all;
    json_decref(all);
    return json_null();
}

/* Add the start and the end of the pause, and the user who paused the
 * worker. */
static void pause_put(json_t *out, struct pause *p)
{
    uint64_t now = clock_mono_ns();
    struct pause_note n;

    pause_now(p, &n);
    if (!n.since_ns)
        return;
    json_object_set_new(out, "paused_at_ns",
                        json_integer((json_int_t)n.since_ns));
    json_object_set_new(out, "paused_by", json_string(n.by));
    if (p->end_ns == 0 || n.until_ns == 0)
        return;
    json_object_set_new(out, "paused_until_ns",
                        json_integer((json_int_t)n.until_ns));
    json_object_set_new(
        out, "paused_for_ns",
        json_integer((json_int_t)(p->end_ns > now ? p->end_ns - now : 0)));
}

static json_t *status(struct request *r)
{
    struct flow *f = r->orders->flow;
    unsigned holds = atomic_load(&f->gate.holds);
    enum gate_why takes = schedule_why(f);
    json_t *settings = json_object(), *changed = json_object(), *out;
    struct counters_sum s;
    size_t unlocked;
    char why[160], queue[4 * QUEUE_NAME_MAX]; /* each byte as an escape */

    safe_text_copy(queue, sizeof queue, f->set->queue, strlen(f->set->queue));
    settings_put(r->orders, settings, changed, NULL);
    counters_sum(f->counters, &s);
    breaker_reason(&f->gate.breaker, why, sizeof why);
    out = json_pack(
        "{s:b, s:i, s:s, s:i, s:I, s:i, s:s, s:b, s:s, s:s, s:o, s:o}", "ok", 1,
        "pid", (int)getpid(), "queue", queue, "max_concurrency",
        (int)gate_cap(&f->gate), "in_flight", (json_int_t)s.running, "busy",
        (int)atomic_load(&f->gate.running), "state",
        worker_state_text(worker_state_of_holds(holds)), "paused",
        (holds & HOLD_PAUSE) != 0, "breaker",
        breaker_state_text(breaker_state(&f->gate.breaker)), "breaker_reason",
        why, "queue_differs", differs_json(f), "settings", settings);
    if (out)
        json_object_update_new(
            out,
            json_pack("{s:I, s:I, s:I}", "window", (json_int_t)f->set->window,
                      "groups", (json_int_t)dispatch_groups(f), "groups_held",
                      (json_int_t)dispatch_held(f)));
    if (out)
        json_object_set_new(out, "runs", runs_json(r));
    json_object_set_new(out, "settings_changed", changed);
    if (out)
        json_object_set_new(out, "partitions", parts_json(f->source));
    if (out)
        pause_put(out, r->orders->pause);
    if (out && store_look_text(r->orders->store_look))
        json_object_set_new(
            out, "store_check",
            json_string(store_look_text(r->orders->store_look)));
    if (out && log_lost())
        json_object_set_new(out, "log_lost",
                            json_integer((json_int_t)log_lost()));
    if (out && takes != WHY_NOT_SO)
        json_object_set_new(out, "why", json_string(gate_why_text(takes)));
    /* A job that makes room is just about to lock it. */
    unlocked = f->source->local ? f->source->local->unlocked(f->source) : 0;
    if (out && !atomic_load(&f->growing) && unlocked > 0)
        json_object_set_new(out, "unlocked_kib",
                            json_integer((json_int_t)(unlocked + 1023) / 1024));
    if (out && holds & HOLD_FILES)
        files_put(out, r->orders->file_watch);
    return out;
}

/* ---- orders ---- */

/* Answer when the change is on disk; return NULL before that. A change that
 * cannot be saved is in force nevertheless, and `not_saved` gives the
 * reason. */
static json_t *pause_answer(struct request *r, json_t *out)
{
    int err;

    r->later = !pause_is_saved(r->orders->pause, &err);
    if (r->later) {
        json_decref(out);
        return NULL;
    }
    if (out && err)
        json_object_set_new(out, "not_saved", json_string(errno_text(-err)));
    return out;
}

static json_t *pause_it(struct request *r)
{
    uint64_t limit = 0;

    if (r->count > 1)
        return control_refusal(EX_USAGE, "pause takes one duration at most, "
                                         "like pause 5m");
    if (r->count == 1 &&
        (duration_parse(r->words[0], &limit) < 0 || limit == 0))
        return control_refusal(EX_USAGE, "pause: not a duration; give a number "
                                         "with ms, s, m, h or d, like 5m");
    if (!r->call->again)
        pause_begin(r->orders->pause, PAUSER_ORDER, limit, r->call->uid);
    return pause_answer(r, yes());
}

static json_t *resume(struct request *r)
{
    bool paused = r->call->again || pause_end(r->orders->pause, PAUSER_ANY);

    return pause_answer(r,
                        json_pack("{s:b, s:b}", "ok", 1, "was_paused", paused));
}

/* drain - take no more; handlers that run may take as long as they need */
static json_t *drain(struct request *r)
{
    gate_finish(&r->orders->flow->gate, "drain", 0);
    return yes();
}

/* stop - with "once", a client that waits for the end may ask again: a worker
 * that stops already does so as before */
static json_t *stop(struct request *r)
{
    if (r->count == 1 && strcmp(r->words[0], "once") == 0 &&
        r->orders->stop->signals > 0)
        return yes();
    gate_finish(&r->orders->flow->gate, "stop",
                0); /* the first reason counts */
    stop_worker(r->orders->stop, SIGTERM);
    return yes();
}

static json_t *quit(struct request *r)
{
    gate_finish(&r->orders->flow->gate, "quit", 0);
    stop_worker(r->orders->stop, SIGQUIT);
    return yes();
}

/* assignment - "name=value" cut in two; NULL: it is none */
static char *assignment(char *word)
{
    char *value = strchr(word, '=');

    if (value)
        *value++ = '\0';
    return value;
}

/* set_check - all of them before any of them is done; a refusal, or NULL */
static json_t *set_check(struct request *r, char *values[WORDS_MAX])
{
    struct problem p = {.status = EX_USAGE,
                        .text = "set: give NAME=VALUE, like "
                                "max-concurrency=8"};
    int err;

    for (size_t i = 0; i < r->count; i++) {
        values[i] = assignment(r->words[i]);
        err = values[i]
                  ? live_settings_ready(r->orders, r->words[i], values[i], &p)
                  : problem_set(&p, EX_USAGE, EINVAL,
                                "%.64s: no value is given; give %.64s=VALUE",
                                r->words[i], r->words[i]);
        if (err == -EINPROGRESS)
            r->later = true;
        else if (err)
            return control_refusal(p.status, p.text);
    }
    return r->count ? NULL : control_refusal(p.status, p.text);
}

/* set - old and new of each */
static json_t *set(struct request *r)
{
    char old[SETTING_TEXT], now[SETTING_TEXT], *values[WORDS_MAX] = {0};
    json_t *out = set_check(r, values), *all;
    char keep[STATEDIR_REQUEST] = "";
    const char *config = getenv("MQW_CONFIG"); /* of the unit */
    struct problem p;

    if (out || r->later)
        return out;
    all = json_array();
    for (size_t i = 0; i < r->count; i++) {
        if (live_settings_text(r->orders, r->words[i], values[i], old, now,
                               &p) < 0) {
            out = control_refusal(p.status, p.text);
            break;
        }
        json_array_append_new(
            all, json_pack("{s:s, s:o, s:o}", "name", r->words[i], "old",
                           setting_json(old), "new", setting_json(now)));
    }
    if (!out)
        out = yes();
    json_object_set_new(out, "settings", all);
    settings_put(r->orders, NULL, NULL, keep);
    if (keep[0]) {
        json_object_set_new(out, "keep", json_string(keep));
        json_object_set_new(out, "config",
                            config ? json_string(config) : json_null());
    }
    return out;
}

static json_t *run_now(struct request *r)
{
    return control_steer(r->orders->flow, STEER_RUN_NOW, r->words, r->count,
                         r->call, &r->later);
}

static json_t *cancel(struct request *r)
{
    return control_steer(r->orders->flow, STEER_CANCEL, r->words, r->count,
                         r->call, &r->later);
}

static json_t *cancel_lent(struct request *r)
{
    return control_cancel_lent(r->orders->flow, r->words, r->count, r->call,
                               &r->later);
}

/* of_flow - closing, group, cancel-running */
static json_t *of_flow(struct request *r,
                       json_t *(*answer)(struct flow *f, char *const *words,
                                         size_t count, const char **wrong))
{
    const char *wrong = NULL;
    json_t *out = answer(r->orders->flow, r->words, r->count, &wrong);

    return wrong ? control_refusal(EX_USAGE, wrong) : out;
}

static json_t *closing(struct request *r)
{
    return of_flow(r, control_closing);
}

static json_t *group(struct request *r)
{
    return of_flow(r, control_group);
}

/* cancel_running - what it ends has a line of its own in the log */
static json_t *cancel_running(struct request *r)
{
    if (!r->orders->flow->ops->cancel)
        return control_refusal(EX_UNAVAILABLE,
                               "a C function runs in the worker itself and "
                               "cannot be ended from outside; it has its time "
                               "limit, and sees mqw_cancelled after it");
    return of_flow(r, control_cancel_running);
}

static const struct {
    const char *name;
    json_t *(*answer)(struct request *r);
    bool order; /* it changes something, and nothing else logs that */
} verbs[] = {
    {"status", status, false},
    {"pause", pause_it, false},
    {"resume", resume, false},
    {"set", set, false},
    {"drain", drain, true},
    {"stop", stop, true},
    {"quit", quit, true},
    {"run-now", run_now, true},
    {"cancel", cancel, true},
    {"closing", closing, false},
    {"group", group, true},
    {"cancel-running", cancel_running, false},
    {"cancel-lent", cancel_lent, true},
};

#define VERBS (sizeof verbs / sizeof verbs[0])

/* request_read - the words of a line; the verb, or NULL */
static const char *request_read(struct request *r, char *line)
{
    const char *verb = NULL;
    char *word;

    while ((word = strsep(&line, " \t\r")) != NULL) {
        if (*word == '\0')
            continue;
        if (!verb)
            verb = word;
        else if (r->count < WORDS_MAX)
            r->words[r->count++] = word;
        else
            return NULL;
    }
    return verb;
}

/* verb_of - its place in the table; VERBS: there is none */
static size_t verb_of(const char *name)
{
    size_t i = 0;

    while (i < VERBS && (!name || strcmp(verbs[i].name, name) != 0))
        i++;
    return i;
}

/* Skip the deadline in front of a request. Returns true if the deadline has
 * passed: the client has given up on the order. */
static bool is_late(char **line)
{
    const size_t size = strlen(STATEDIR_BEFORE);
    uint64_t ns;

    if (strncmp(*line, STATEDIR_BEFORE, size) != 0)
        return false;
    ns = strtoull(*line + size, line, 10);
    return clock_wall_ns() > ns;
}

/* control_answer - one line */
json_t *control_answer(struct orders *orders, char *line,
                       struct control_call *call)
{
    struct request r = {.orders = orders, .call = call};
    bool late = is_late(&line);
    size_t i = verb_of(request_read(&r, line));
    json_t *out;

    call->later = false;
    /* An order that was begun in time is done or in progress. */
    if (late && (!call->again || (i < VERBS && verbs[i].answer == set)))
        return control_refusal(
            EX_TEMPFAIL,
            "the order arrived too late and was not carried out; try again");
    if (i == VERBS)
        return control_refusal(EX_USAGE,
                               "not a request; give status, pause [DUR], "
                               "resume, set NAME=VALUE..., drain, stop, "
                               "quit, run-now ROW..., cancel ROW..., "
                               "cancel-running ID..., closing [KEY] or "
                               "group close|open KEY");
    if (verbs[i].order && !call->again)
        log_info("control", F_STR("queue", orders->flow->set->queue),
                 F_STR("order", verbs[i].name));
    out = verbs[i].answer(&r);
    call->later = r.later && !out;
    /* cppcheck-suppress returnDanglingLifetime ; it points into no request */
    return out;
}

/* orders.c - see orders.h */
#include "worker/operate/orders.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/stdlib.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/base/ulid.h"
#include "common/state/counters.h"
#include "common/state/statedir.h"
#include "common/state/worker_lock.h"
#include "worker/files/file_watch.h"
#include "worker/files/store_look.h"
#include "worker/flow/flow.h"
#include "worker/flow/dispatch.h"
#include "worker/flow/items.h"
#include "worker/flow/settle.h"
#include "worker/operate/halt.h"
#include "worker/operate/live_settings.h"

#define WORDS_MAX STEER_MOST
#define ARGS_MOST 64 /* words of the command that are shown */
#define PAGE      64 /* keys of groups in an answer */
/* How long an answer waits for a slow disk: less than a client waits for an
 * answer (scripts/mqctl/ask.c). */
#define SAVE_WAIT_NS NS_PER_S

struct request;
struct verb {
    const char *name;
    json_t *(*answer)(struct request *r);
    bool order;      /* to be logged here, because no other line reports it */
    enum steer what; /* for rows_steer */
    int signal;      /* for answer_stop; 0: drain */
};

struct request {
    struct orders *orders;
    const struct verb *verb;
    char *words[WORDS_MAX]; /* without the verb */
    size_t count;
    struct order_call *call;
};

json_t *orders_refusal(int status, const char *text)
{
    return json_pack("{s:b, s:i, s:s}", "ok", 0, "status", status, "error",
                     text);
}

static json_t *answer_ok(void)
{
    return json_pack("{s:b}", "ok", 1);
}

/* ---- status ---- */

/* Return a value as JSON: a plain number as a number, anything else as text. */
static json_t *setting_json(const char *text)
{
    const char *trouble = "not a number";
    long long value = 0;

    if (text[strspn(text, "0123456789")] == '\0')
        value = strtonum(text, 0, INT64_MAX, &trouble);
    return trouble ? json_string(text) : json_integer(value);
}

/* Report the settings that can be changed: add each with its present value to
 * `all`, and each changed one with its value at the start and the time of the
 * change to `changed`. Write the changed settings, as flags for the next start,
 * to `keep`. Each of the three may be NULL. */
static void settings_put(struct orders *o, json_t *all, json_t *changed,
                         char keep[STATEDIR_REQUEST])
{
    char now[SETTING_TEXT], start[SETTING_TEXT], when[TIME_TEXT];

    for (size_t i = 0; i < settings_table.count; i++) {
        const struct option_row *row = &settings_table.rows[i];
        size_t used = keep ? strlen(keep) : 0;

        if (!row->live)
            continue;
        option_print(row, o->live, now, sizeof now);
        option_print(row, o->started, start, sizeof start);
        json_object_set_new(all, row->name, setting_json(now));
        if (strcmp(start, now) == 0)
            continue;
        json_object_set_new(changed, row->name,
                            json_pack("{s:o, s:s}", "started",
                                      setting_json(start), "set_at",
                                      time_print(o->set_ns[i], when)));
        if (keep)
            snprintf(keep + used, STATEDIR_REQUEST - used, "%s--%s=%s",
                     used ? " " : "", row->name, now);
    }
}

/* Return the program, its command (null: a C function is called) and the flags
 * at its start, which stay the same while the worker is running. */
static json_t *runs_json(struct request *r)
{
    const struct flow *f = r->orders->flow;
    const char *path = r->orders->path;
    char plugin[PATH_MAX], folder[PATH_MAX];
    json_t *flags = json_object();
    json_t *command = f->set->command ? json_array() : json_null();
    char word[256], text[SETTING_TEXT];
    struct settings preset;

    for (int i = 0; i < ARGS_MOST && f->set->command && f->set->command[i];
         i++) {
        safe_text_copy(word, sizeof word, f->set->command[i],
                       strlen(f->set->command[i]));
        (void)json_array_append_new(command, json_string(word));
    }
    settings_init(&preset);
    for (size_t i = 0; i < settings_table.count; i++) {
        const struct option_row *row = &settings_table.rows[i];

        if (settings_changed(r->orders->started, &preset, row, text))
            json_object_set_new(flags, row->name, json_string(text));
    }
    safe_text_copy(plugin, sizeof plugin, path ? path : "",
                   path ? strlen(path) : 0);
    safe_text_copy(folder, sizeof folder, f->folder, strlen(f->folder));
    return json_pack("{s:s, s:s, s:I, s:o, s:s?, s:s, s:o}", "version",
                     MQW_VERSION, "handler", f->ops->name, "uid",
                     (json_int_t)geteuid(), "command", command, "path",
                     plugin[0] ? plugin : NULL, "state_dir", folder, "flags",
                     flags);
}

static void part_put(void *arg, const struct source_part *p)
{
    json_array_append_new(arg, json_pack("{s:i, s:b, s:i, s:i}", "partition",
                                         (int)p->number, "here", p->here,
                                         "in_hand", (int)p->in_hand,
                                         "blocked_groups", (int)p->blocked));
}

/* Return a number as JSON, or NULL if there is none to show. */
static json_t *number_if(bool shown, uint64_t n)
{
    return shown ? json_integer((json_int_t)n) : NULL;
}

static json_t *answer_status(struct request *r)
{
    struct flow *f = r->orders->flow;
    unsigned holds = atomic_load(&f->gate.holds);
    enum gate_why takes = schedule_why(f);
    struct source *source = f->source;
    json_t *settings = json_object(), *changed = json_object(), *out;
    json_t *parts = json_array();
    struct counters_sum s;
    struct file_trouble file;
    struct pause *p = r->orders->pause;
    struct pause_note note;
    uint64_t now = clock_boot_ns();
    int64_t unlocked;
    bool ends; /* true: the pause has a limit */
    char why[160], text[256];
    const char *differs = NULL;
    char queue[4 * QUEUE_NAME_MAX]; /* each byte as an escape */

    safe_text_copy(queue, sizeof queue, f->set->queue, strlen(f->set->queue));
    settings_put(r->orders, settings, changed, NULL);
    counters_sum(f->counters, false, &s);
    breaker_reason(&f->gate.breaker, why, sizeof why);
    if (source->local && source->local->differs(source, text, sizeof text))
        differs = text;
    if (source->ops->parts)
        source->ops->parts(source, part_put, parts);
    if (json_array_size(parts) == 0) {
        json_decref(parts);
        parts = NULL;
    }
    out = json_pack("{s:b, s:i, s:s, s:i, s:I, s:i, s:s, s:b, s:s, s:s, s:s?, "
                    "s:o, s:I, s:I, s:I, s:o, s:o, s:o?}",
                    "ok", 1, "pid", (int)getpid(), "queue", queue,
                    "max_concurrency", (int)gate_cap(&f->gate), "in_flight",
                    (json_int_t)s.running, "busy",
                    (int)atomic_load(&f->gate.running), "state",
                    worker_state_text(worker_state_of_holds(holds)), "paused",
                    (holds & HOLD_PAUSE) != 0, "breaker",
                    breaker_state_texts[breaker_state(&f->gate.breaker)],
                    "breaker_reason", why, "queue_differs", differs, "settings",
                    settings, "window", (json_int_t)f->set->window, "groups",
                    (json_int_t)groups_count(f->groups), "groups_held",
                    (json_int_t)groups_held(f->groups), "runs", runs_json(r),
                    "settings_changed", changed, "partitions", parts);
    pause_now(p, &note);
    ends = note.since_ns && p->end_ns && note.until_ns;
    unlocked = source->ops->count(source, COUNT_UNLOCKED);
    if (atomic_load(&f->growing))
        unlocked = 0; /* the job that adds slots will lock them soon */
    /* Each of these keys is left out while it has no value. */
    json_object_update_new(
        out,
        json_pack(
            "{s:o*, s:o*, s:o*, s:o*, s:s*, s:o*, s:s*, s:o*}", "paused_at_ns",
            number_if(note.since_ns > 0, note.since_ns), "paused_by",
            note.since_ns ? json_string(note.by) : NULL, "paused_until_ns",
            number_if(ends, note.until_ns), "paused_for_ns",
            number_if(ends, p->end_ns > now ? p->end_ns - now : 0),
            "store_check", store_look_text(r->orders->store_look), "log_lost",
            number_if(log_lost() > 0, log_lost()), "why",
            takes == WHY_NOT_SO ? NULL : gate_why_text(takes), "unlocked_kib",
            number_if(unlocked > 0, ((uint64_t)unlocked + 1023) / 1024)));
    /* The file that keeps messages from being taken. A path that is no UTF-8 is
     * left out. */
    if (holds & HOLD_FILES) {
        file_watch_trouble(r->orders->file_watch, &file);
        json_object_set_new(out, "file_gone", json_string(file.text));
        json_object_set_new(out, "file", json_string(file.path));
        json_object_set_new(out, "file_next", json_string(file.next));
    }
    return out;
}

/* ---- orders ---- */

/* Answer when the change is on disk, or when SAVE_WAIT_NS are over; return NULL
 * before that. A change that is not on disk is in force nevertheless, and
 * `not_saved` gives the reason. */
static json_t *pause_answer(struct request *r, json_t *out)
{
    uint64_t end_ns = ns_add(r->call->begun_ns, SAVE_WAIT_NS);
    int err;
    bool saved = pause_is_saved(r->orders->pause, &err);

    r->call->later = !saved && clock_mono_ns() < end_ns;
    r->call->ask_ns = end_ns;
    if (r->call->later) {
        json_decref(out);
        return NULL;
    }
    if (out && (!saved || err))
        json_object_set_new(
            out, "not_saved",
            json_string(saved ? errno_text(-err)
                              : "the disk has not finished writing after 1s"));
    return out;
}

static json_t *answer_pause(struct request *r)
{
    char word[64], text[192];
    uint64_t limit = 0;

    if (r->count > 1)
        return orders_refusal(EX_USAGE, "pause takes one duration at most, "
                                        "like pause 5m");
    if (r->count == 1 &&
        (duration_parse(r->words[0], &limit) < 0 || limit == 0)) {
        safe_text_copy(word, sizeof word, r->words[0], strlen(r->words[0]));
        snprintf(text, sizeof text,
                 "pause: \"%s\" is not a duration above 0; give a number with "
                 "ms, s, m, h or d, like 5m",
                 word);
        return orders_refusal(EX_USAGE, text);
    }
    if (!r->call->again)
        pause_begin(r->orders->pause, PAUSER_ORDER, limit, r->call->uid);
    return pause_answer(r, answer_ok());
}

static json_t *answer_resume(struct request *r)
{
    bool paused = r->call->again || pause_end(r->orders->pause, PAUSER_ANY);

    return pause_answer(r,
                        json_pack("{s:b, s:b}", "ok", 1, "was_paused", paused));
}

/* Begin to stop: drain lets running handlers take as long as they need, stop is
 * SIGTERM, quit is SIGQUIT. "stop once" may be repeated by a client that waits
 * for the end: unlike a second "stop", it does not shorten the grace. */
static json_t *answer_stop(struct request *r)
{
    struct stop *stop = r->orders->stop;

    if (r->verb->signal == SIGTERM && r->count == 1 &&
        strcmp(r->words[0], "once") == 0 && stop->signals > 0)
        return answer_ok();
    gate_finish(&r->orders->flow->gate, r->verb->name,
                0); /* keeps the first reason */
    if (r->verb->signal)
        stop_worker(stop, r->verb->signal);
    else
        stop->drained = true;
    return answer_ok();
}

/* Change settings, and answer with the old and new value of each. */
static json_t *answer_settings(struct request *r)
{
    char old[SETTING_TEXT], now[SETTING_TEXT], *values[WORDS_MAX] = {0};
    struct problem p;
    char keep[STATEDIR_REQUEST] = "";
    const char *config = getenv("MQW_CONFIG"); /* set by the systemd unit */
    json_t *out = NULL, *all;
    int err;

    if (r->count == 0)
        return orders_refusal(EX_USAGE,
                              "set: give NAME=VALUE, like max-concurrency=8");
    /* Check all changes before any of them is made. */
    for (size_t i = 0; i < r->count; i++) {
        values[i] = strchr(r->words[i], '=');
        if (values[i])
            *values[i]++ = '\0';
        err = values[i]
                  ? live_settings_ready(r->orders, r->words[i], values[i], &p)
                  : problem_set(&p, EX_USAGE, EINVAL,
                                "%.64s: no value is given; give %.64s=VALUE",
                                r->words[i], r->words[i]);
        if (err == -EINPROGRESS)
            r->call->later = true;
        else if (err)
            return orders_refusal(p.status, p.text);
    }
    if (r->call->later)
        return NULL;
    all = json_array();
    for (size_t i = 0; i < r->count; i++) {
        if (live_settings_text(r->orders, r->words[i], values[i], old, now,
                               &p) < 0) {
            out = orders_refusal(p.status, p.text);
            break;
        }
        json_array_append_new(
            all, json_pack("{s:s, s:o, s:o}", "name", r->words[i], "old",
                           setting_json(old), "new", setting_json(now)));
    }
    if (!out)
        out = answer_ok();
    json_object_set_new(out, "settings", all);
    settings_put(r->orders, NULL, NULL, keep);
    if (keep[0]) {
        json_object_set_new(out, "keep", json_string(keep));
        json_object_set_new(out, "config",
                            config ? json_string(config) : json_null());
    }
    return out;
}

/* ---- orders about single messages ----
 *
 * A pool job asks the source, which may wait for a disk. When the job is over,
 * control.c calls orders_answer again, which returns the answer. */

/* c = constant after begin   j = the job's until it is over   a = atomic */
struct steering {
    struct pool_job job;
    struct flow *flow;                /* c */
    void (*over)(void *arg);          /* c  called by the job at its end */
    void *arg;                        /* c */
    enum steer what;                  /* c */
    int64_t numbers[STEER_MOST];      /* c */
    size_t count;                     /* c */
    bool lent;                        /* c  numbers[0] is a receive sequence */
    char key[HEADER_VALUE_MAX];       /* c  of its group */
    size_t key_size;                  /* c  0: it has none */
    enum steered results[STEER_MOST]; /* j */
    int err;                          /* j  -errno: nothing has happened */
    atomic_bool is_over; /* a  released when results and err are there */
    atomic_uint users;   /* a  the loop, the job; the last one frees it */
};

void steering_drop(struct steering **steering)
{
    struct steering *s = *steering;

    *steering = NULL;
    if (s && atomic_fetch_sub(&s->users, 1) == 1)
        free(s);
}

/* Carry out the order on a pool thread, then have the loop answer. The control
 * socket, which `over` needs, is closed after the pool. */
static void steer_job(struct pool_job *job)
{
    struct steering *s = CONTAINER_OF(job, struct steering, job);
    struct source *source = s->flow->source;
    struct header_text key = {.at = s->key_size ? s->key : NULL,
                              .size = s->key_size};

    if (s->lent) {
        s->err = settle_cancel(s->flow, key, (uint64_t)s->numbers[0]);
        s->results[0] = s->err ? STEERED_IN_FLIGHT : STEERED;
        if (s->err == -EAGAIN)
            s->err = 0;
    } else {
        s->err = source->local->steer(source, s->what, s->numbers, s->count,
                                      s->results);
    }
    atomic_store(&s->is_over, true);
    s->over(s->arg);
    steering_drop(&s);
}

/* Start the job, and return NULL until it is over. Then return an answer with a
 * word for each number, or with the reason why nothing was changed. `wrong`:
 * the error of the words of the request, or NULL. */
static json_t *steering_run(struct request *r, const struct steering *what,
                            const char *wrong)
{
    struct steering *s = *r->call->steering;
    json_t *all;
    char text[512];
    int err = -ENOMEM;

    if (!s) {
        if (!r->orders->flow->source->local)
            return orders_refusal(EX_UNAVAILABLE,
                                  "messages of this source cannot be steered");
        if (wrong)
            return orders_refusal(EX_USAGE, wrong);
        s = malloc(sizeof *s);
        if (s) {
            *s = *what;
            s->flow = r->orders->flow;
            s->over = r->call->over;
            s->arg = r->call->arg;
            s->job.run = steer_job;
            atomic_init(&s->is_over, false);
            atomic_init(&s->users, 2);
            err = pool_submit(s->flow->pool, &s->job);
        }
        if (err) {
            free(s);
            return orders_refusal(EX_OSERR, errno_text(-err));
        }
        *r->call->steering = s;
    }
    r->call->later = !atomic_load(&s->is_over);
    if (r->call->later)
        return NULL;
    err = s->err;
    all = json_array();
    for (size_t i = 0; i < s->count && !err; i++)
        json_array_append_new(all, json_string(steered_texts[s->results[i]]));
    steering_drop(r->call->steering);
    if (!err)
        return json_pack("{s:b, s:o}", "ok", 1, "results", all);
    json_decref(all);
    snprintf(text, sizeof text,
             "the store cannot be written: %s. Nothing was changed; %s, and "
             "try again",
             errno_text(-err), disk_advice(err));
    return orders_refusal(disk_is_full(err) ? EX_CANTCREAT : EX_TEMPFAIL, text);
}

/* Read numbers: positive ones of rows, negative ones of spooled messages. */
static bool numbers_read(const struct request *r, size_t count,
                         int64_t out[STEER_MOST])
{
    const char *trouble = NULL;

    for (size_t i = 0; i < count && !trouble; i++) {
        out[i] = strtonum(r->words[i], -INT64_MAX, INT64_MAX, &trouble);
        if (out[i] == 0)
            return false;
    }
    return count > 0 && !trouble;
}

static json_t *rows_steer(struct request *r)
{
    struct steering s = {.what = r->verb->what, .count = r->count};

    return steering_run(r, &s,
                        numbers_read(r, r->count, s.numbers)
                            ? NULL
                            : "give numbers of rows, as the store has them");
}

/* Cancel a message that is in a slot and is not running. */
static json_t *answer_cancel_lent(struct request *r)
{
    struct steering s = {.lent = true, .count = 1};
    int size = r->count == 2 ? hex_parse(r->words[1], s.key, sizeof s.key) : 0;
    bool right = r->count <= 2 && size >= 0 &&
                 numbers_read(r, r->count > 0, s.numbers) && s.numbers[0] > 0;

    s.key_size = (size_t)size;
    return steering_run(
        r, &s,
        right ? NULL
              : "cancel-lent: give the receive sequence of a message, "
                "and the key of its group in hexadecimal if it has one");
}

/* Terminate the handlers of messages. The answer has "ordered" or "not running"
 * for each. The verdicts are logged when they are durable. */
static json_t *answer_cancel_running(struct request *r)
{
    const struct flow *f = r->orders->flow;
    struct ulid id;
    json_t *all;

    if (!f->ops->cancel)
        return orders_refusal(
            EX_UNAVAILABLE,
            "a C function runs in the worker itself and cannot be "
            "killed; after its time limit, mqw_cancelled returns 1 to it");
    if (r->count == 0)
        return orders_refusal(EX_USAGE, "cancel-running: give ids of messages");
    for (size_t i = 0; i < r->count; i++)
        if (ulid_parse(r->words[i], strlen(r->words[i]), &id) < 0)
            return orders_refusal(EX_USAGE,
                                  "cancel-running: an id of a message has "
                                  "26 characters");
    all = json_array();
    for (size_t i = 0; i < r->count; i++) {
        char text[ULID_TEXT];

        (void)ulid_parse(r->words[i], strlen(r->words[i]), &id);
        json_array_append_new(
            all, json_string(f->ops->cancel(f->handler, ulid_print(id, text))
                                 ? "ordered"
                                 : "not running"));
    }
    return json_pack("{s:b, s:o}", "ok", 1, "results", all);
}

/* Return the last line that the handler of each message has written to stderr;
 * null for none. */
static json_t *answer_stderr(struct request *r)
{
    const struct flow *f = r->orders->flow;
    json_t *all = json_array();

    for (size_t i = 0; i < r->count; i++) {
        char line[ERROR_TEXT];
        bool has = f->ops->last_stderr &&
                   f->ops->last_stderr(f->handler, r->words[i], line);

        json_array_append_new(all, has ? json_string(line) : json_null());
    }
    return json_pack("{s:b, s:o}", "ok", 1, "lines", all);
}

/* ---- groups: their keys are written in hexadecimal ---- */

static int closing_key_order(const void *a, const void *b)
{
    const struct closing_key *x = a, *y = b;
    size_t size = x->size < y->size ? x->size : y->size;
    int way = memcmp(x->at, y->at, size);

    return way ? way : (x->size > y->size) - (x->size < y->size);
}

/* List the groups that are closing: up to PAGE keys that follow the given key,
 * and whether there are more. */
static json_t *answer_closing(struct request *r)
{
    char text[2 * GROUP_KEY_MAX + 1];
    struct closing_key after, *keys;
    int size =
        r->count == 1 ? hex_parse(r->words[0], after.at, sizeof after.at) : 0;
    size_t n, i = 0;
    json_t *all;

    if (r->count > 1 || size < 0)
        return orders_refusal(EX_USAGE, "closing: give the key of a group in "
                                        "hexadecimal, or nothing");
    after.size = (size_t)size;
    keys = dispatch_closing(r->orders->flow, &n);
    if (!keys && n > 0)
        return orders_refusal(EX_OSERR, "closing: out of memory; try again");
    if (keys)
        qsort(keys, n, sizeof *keys, closing_key_order);
    while (i < n && closing_key_order(&keys[i], &after) <= 0)
        i++;
    all = json_array();
    for (; i < n && json_array_size(all) < PAGE; i++)
        json_array_append_new(
            all, json_string(hex_print(keys[i].at, keys[i].size, text)));
    free(keys);
    return json_pack("{s:b, s:o, s:b}", "ok", 1, "groups", all, "more", i < n);
}

static json_t *answer_group(struct request *r)
{
    struct flow *f = r->orders->flow;
    bool shut =
        (r->count == 2 || r->count == 3) && strcmp(r->words[0], "close") == 0;
    bool open = r->count == 2 && strcmp(r->words[0], "open") == 0;
    const char *trouble = NULL;
    char key[GROUP_KEY_MAX];
    int size = shut || open ? hex_parse(r->words[1], key, sizeof key) : 0;
    int err = -EINVAL;
    /* The last message of the group in the spool; 0: there is none. */
    int64_t last =
        r->count == 3 ? strtonum(r->words[2], -INT64_MAX, -1, &trouble) : 0;

    if (size > 0 && !trouble)
        err = shut ? dispatch_shut(f, key, (size_t)size, last)
                   : dispatch_reopen(f, key, (size_t)size);
    if (err == -ENOMEM)
        return orders_refusal(EX_USAGE,
                              "group: out of memory, nothing has changed; "
                              "try again");
    if (err == -EINVAL)
        return orders_refusal(
            EX_USAGE, "group: give close or open, then the key of a group in "
                      "hexadecimal; for close, if messages of the group are "
                      "spooled, also a minus and the key of the last of them");
    return json_pack("{s:b, s:b}", "ok", 1, "known", err == 0);
}

/* ---- requests and signals ---- */

static const struct verb verbs[] = {
    {.name = "status", .answer = answer_status},
    {.name = "pause", .answer = answer_pause},
    {.name = "resume", .answer = answer_resume},
    {.name = "set", .answer = answer_settings},
    {.name = "drain", .answer = answer_stop, .order = true},
    {.name = "stop", .answer = answer_stop, .order = true, .signal = SIGTERM},
    {.name = "quit", .answer = answer_stop, .order = true, .signal = SIGQUIT},
    {"run-now", rows_steer, true, STEER_RUN_NOW, 0},
    {"cancel", rows_steer, true, STEER_CANCEL, 0},
    {.name = "closing", .answer = answer_closing},
    {.name = "stderr", .answer = answer_stderr},
    {.name = "group", .answer = answer_group, .order = true},
    {.name = "cancel-running", .answer = answer_cancel_running},
    {.name = "cancel-lent", .answer = answer_cancel_lent, .order = true},
};

#define VERBS (sizeof verbs / sizeof verbs[0])

json_t *orders_answer(struct orders *orders, char *line,
                      struct order_call *call)
{
    const size_t before = strlen(STATEDIR_BEFORE);
    struct request r = {.orders = orders, .call = call};
    bool late = false, too_many = false;
    const char *verb = NULL;
    char *word;
    json_t *out;

    /* A line may begin with the deadline at which its client gives up. */
    if (strncmp(line, STATEDIR_BEFORE, before) == 0)
        late = clock_wall_ns() > strtoull(line + before, &line, 10);
    while ((word = strsep(&line, " \t\r")) != NULL) {
        if (*word == '\0')
            continue;
        if (!verb)
            verb = word;
        else if (r.count < WORDS_MAX)
            r.words[r.count++] = word;
        else
            too_many = true;
    }
    for (size_t i = 0; i < VERBS && verb && !too_many; i++)
        if (strcmp(verbs[i].name, verb) == 0)
            r.verb = &verbs[i];
    call->later = false;
    call->ask_ns = 0;
    /* An order that was begun in time is done or in progress, but settings are
     * changed only at the end. */
    if (late && (!call->again || (r.verb && r.verb->answer == answer_settings)))
        return orders_refusal(
            EX_TEMPFAIL,
            "the order arrived too late and was not carried out; try again");
    if (!r.verb)
        return orders_refusal(EX_USAGE,
                              "not a request; give status, pause [DUR], "
                              "resume, set NAME=VALUE..., drain, stop, "
                              "quit, run-now ROW..., cancel ROW..., "
                              "cancel-running ID..., stderr ID..., "
                              "closing [KEY] or "
                              "group close|open KEY");
    if (r.verb->order && !call->again)
        log_info("control", F_STR("queue", orders->flow->set->queue),
                 F_STR("order", r.verb->name));
    out = r.verb->answer(&r);
    call->later = call->later && !out;
    /* cppcheck-suppress returnDanglingLifetime ; it points into no request */
    return out;
}

void orders_signal(void *arg, int signal)
{
    struct orders *o = arg;

    switch (signal) {
    case SIGUSR2:
        pause_begin(o->pause, PAUSER_SIGNAL, 0, 0);
        break;
    case SIGCONT:
        (void)pause_end(o->pause, PAUSER_SIGNAL);
        break;
    case SIGTTIN:
        cap_change(o->cap, +1);
        live_settings_stamp(o, "max-concurrency");
        break;
    case SIGTTOU:
        cap_change(o->cap, -1);
        live_settings_stamp(o, "max-concurrency");
        break;
    default:
        stop_worker(o->stop, signal);
    }
}

/* snapshot.c - takes a snapshot of one queue (see snapshot.h) */
#include "scripts/mqctl/look/snapshot.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/broker/broker_operand.h"
#include "common/cli/json_line.h"
#include "common/custody/custody.h"
#include "common/mq/queue.h"
#include "common/state/runtimedir.h"
#include "common/state/statedir.h"
#include "common/state/worker_lock.h"
#include "common/store/spool.h"
#include "common/store/waiting.h"
#include "scripts/mqctl/ask.h"

int snapshot_store(struct snapshot *v, struct store **out)
{
    char path[PATH_MAX];
    int err = v->has_folder
                  ? statedir_path(&v->dir, STATEDIR_STORE, path, &v->no_store)
              : v->shut ? -EACCES
                        : -ENOENT;

    *out = NULL;
    return err ? err : store_open(out, path, false, &v->no_store);
}

/* Counts of the messages in custody: received and not finished. */
struct custody_count {
    struct store *store; /* NULL: there is none */
    bool spool;          /* the store has rows of the spool */
    bool idle; /* no worker is running: cancelled messages do not count */
    int64_t total;
    int64_t running;    /* messages that a handler has or had */
    int64_t grouped;    /* messages of a group that are not running */
    uint64_t oldest_ns; /* receipt of the oldest message that is not running */
    uint64_t newest_ns; /* receipt of the newest message */
    uint64_t newest_sent_ns; /* `sent` of that message; 0: no such header */
    /* Rows of the store whose messages are in slots, by state. */
    int64_t waiting, parked, spooled;
    /* The waiting and parked rows, and the keys of the spool; some are missing
     * if memory is short. */
    int64_t *rows, *keys;
    size_t row_count, room, key_count, key_room;
    uint64_t due_ns; /* of the first row that is due and has no slot */
};

/* Append a number to an array, if there is memory. */
static void number_keep(int64_t **all, size_t *count, size_t *room, int64_t n)
{
    int64_t *grown = array_grow(*all, *count, room, sizeof *grown);

    if (!grown)
        return;
    *all = grown;
    grown[(*count)++] = n;
}

/* Visit a slot: count its message. */
static int slot_count(const struct custody_seen *seen, void *arg)
{
    struct custody_count *c = arg;
    bool cancelled = false;
    int64_t key = store_spool_key(seen->priority, seen->seq);
    struct store_row m;

    c->total++;
    if (c->newest_ns < seen->received_ns) {
        c->newest_ns = seen->received_ns;
        c->newest_sent_ns =
            seen->header.fields & HEADER_SENT ? seen->header.sent_ns : 0;
    }
    if (seen->w.state != SLOT_RUNNING &&
        (!c->oldest_ns || seen->received_ns < c->oldest_ns))
        c->oldest_ns = seen->received_ns;
    if (seen->w.state == SLOT_RUNNING)
        c->running++;
    else if (seen->group[0])
        c->grouped++;
    /* A message that came from the store still has its row there. */
    if (seen->row && c->store &&
        store_get(c->store, seen->row, &m, NULL, 0, NULL) == 0 &&
        !(c->idle && m.flags & STORE_CANCELLED)) {
        c->waiting += m.state == STORE_WAITING;
        c->parked += m.state == STORE_PARKED;
        if (m.state == STORE_WAITING || m.state == STORE_PARKED)
            number_keep(&c->rows, &c->row_count, &c->room, seen->row);
    }
    if (c->spool && store_spool_find(c->store, key, &cancelled) == 0) {
        c->spooled += !(c->idle && cancelled);
        number_keep(&c->keys, &c->key_count, &c->key_room, key);
    }
    return 0;
}

/* Visit a due row: keep the due time of the first row without a slot. */
static int due_keep(const struct waiting_row *w, void *arg)
{
    struct custody_count *c = arg;

    for (size_t i = 0; i < c->row_count; i++)
        if (c->rows[i] == w->m.row)
            return NO;
    c->due_ns = w->m.due_ns;
    return YES;
}

/* Return true if no worker is running: cancelled messages then stay until the
 * next worker discards them. */
static bool is_idle(const struct snapshot *v)
{
    return v->worker != SNAPSHOT_RUNS && v->worker != SNAPSHOT_UNSEEN;
}

/* Subtract `some`, if it is known (not below 0). The result is not below 0,
 * unless `n` is -errno, which is returned as it is. */
static int64_t count_minus(int64_t n, int64_t some)
{
    return n < 0 || some <= 0 ? n : n > some ? n - some : 0;
}

int snapshot_name(const char *text, char out[QUEUE_NAME_MAX], struct problem *p)
{
    struct broker_operand o;
    int err;

    if (!broker_operand_is(text))
        return queue_name(text, out, p);
    err = broker_operand_parse(&o, text, p);
    if (!err)
        memcpy(out, o.shown, sizeof o.shown);
    return err;
}

int snapshot_folder(struct statedir *out, const char *state_dir,
                    const char *queue, struct problem *p)
{
    struct broker_operand o;
    struct stat st;
    int err;

    if (!broker_operand_is(queue)) {
        err = statedir_open(out, state_dir, queue, false, p);
    } else {
        err = broker_operand_parse(&o, queue, p);
        if (!err)
            err = statedir_open_label(out, state_dir, o.folder, false, p);
    }

    if (err == -ENOENT)
        p->status = EX_UNAVAILABLE;
    else if (err == -EACCES ||
             (err && geteuid() != 0 && lstat(out->folder, &st) == 0 &&
              st.st_uid != geteuid()))
        p->status = EX_NOPERM;
    return err;
}

const char *snapshot_dir(const char *const *dirs, size_t count,
                         const char *queue)
{
    static struct statedir dir;
    struct problem p;

    for (size_t i = 0; i < count && count > 1; i++)
        if (snapshot_folder(&dir, dirs[i], queue, &p) == 0)
            return dirs[i];
    return dirs[0];
}

int snapshot_named_folder(struct statedir *out, const char *state_dir,
                          const char *queue, struct problem *p)
{
    int err = snapshot_folder(out, state_dir, queue, p);
    struct problem none = {0};
    struct queue *q = NULL;

    if (err != -ENOENT || broker_operand_is(queue))
        return err;
    if (queue_open(&q, queue, 0, NULL, NULL, &none) < 0 &&
        none.status == EX_NOINPUT)
        (void)queue_absent(state_dir, queue, p);
    queue_close(&q);
    return err;
}

/* Read everything except the counted values, once. Ask the worker first: when
 * it answers, its counters exist. */
static void parts_read(struct snapshot *v, const char *state_dir,
                       bool ask_worker)
{
    enum worker_lock lock = WORKER_UNSEEN;
    char path[PATH_MAX];
    struct queue *q = NULL;
    pid_t pid = 0;
    int err;

    v->depth = v->depth_max = v->message_size = v->bytes = -1;
    v->broker = broker_operand_is(v->queue);
    v->engine = v->broker ? "amqp" : "mq";
    if (v->broker) {
        (void)problem_set(&v->no_queue, EX_UNAVAILABLE, ENOTSUP,
                          "it is on a broker; see rabbitmqctl list_queues name "
                          "messages consumers, and mqdlq list %s",
                          SHELL_QUEUE(v->queue));
    } else if (queue_open(&q, v->queue, 0, NULL, NULL, &v->no_queue) == 0) {
        v->has_queue = true;
        v->depth = queue_length(q);
        v->depth_max = (long)queue_depth(q);
        v->message_size = (long)queue_message_size(q);
        v->bytes = queue_bytes(q);
        queue_close(&q);
    }
    err = snapshot_folder(&v->dir, state_dir, v->queue, &v->no_live);
    v->has_folder = !err;
    v->shut = err && err != -ENOENT;
    if (v->shut)
        v->worker = SNAPSHOT_UNSEEN;
    if (err) {
        v->no_counters = v->no_store = v->no_live;
        return;
    }
    if (ask_worker)
        v->stopped = ask(&v->dir, v->queue, "status", &v->live, &v->no_live) ==
                     -EHOSTDOWN;
    err = runtimedir_file(&v->dir, RUNTIMEDIR_COUNTERS, path, &v->no_counters);
    if (!err)
        err = counters_attach(&v->counters, path, &v->no_counters);
    v->counters_err = err;
    if (!err) {
        counters_header(v->counters, &v->head);
        counters_sum(v->counters, false, &v->sum);
        counters_sum(v->counters, true, &v->totals);
    }
    /* The lock tells whether a worker is running; the counters tell how the
     * last one ended. */
    if (statedir_path(&v->dir, STATEDIR_PIDFILE, path, NULL) == 0)
        lock = worker_lock_look(path, &pid);
    v->pid = pid ? pid : v->head.pid;
    if (lock == WORKER_RUNS || (v->live && lock == WORKER_UNSEEN))
        v->worker = SNAPSHOT_RUNS;
    else if (lock == WORKER_UNSEEN)
        v->worker = SNAPSHOT_UNSEEN;
    else if (v->head.gauges[COUNTERS_ENDED_NS] && v->pid == v->head.pid)
        v->worker = SNAPSHOT_ENDED;
    else
        v->worker = v->counters || lock == WORKER_GONE ? SNAPSHOT_KILLED
                                                       : SNAPSHOT_NEVER;
    if (v->worker == SNAPSHOT_RUNS && !v->live)
        v->phase = worker_phase(&v->dir);
}

int snapshot_begin(struct snapshot *v, const char *state_dir, const char *queue,
                   bool ask_worker, struct problem *p)
{
    char name[QUEUE_NAME_MAX];
    struct worker_wait wait = {0};
    int err;

    memset(v, 0, sizeof *v);
    err = snapshot_name(queue, name, p);
    if (err)
        return err;
    do {
        snapshot_close(v);
        memset(v, 0, sizeof *v);
        v->rows.waiting = v->rows.parked = v->rows.spooled = v->rows.dead =
            v->rows.replayed = -1;
        v->custody = v->held = v->grouped = -1;
        memcpy(v->queue, name, sizeof name);
        parts_read(v, state_dir, ask_worker);
        /* A worker that has the lock but does not answer is starting, stopping
         * or dying: give it some time to answer or to exit. */
    } while (ask_worker &&
             (v->stopped || v->live) != (v->worker == SNAPSHOT_RUNS) &&
             worker_phase_wait(&v->dir, &wait));
    return 0;
}

/* Visit a slot: stop, because custody is not empty. */
static int slot_stop(const struct custody_seen *seen, void *arg)
{
    (void)seen;
    (void)arg;
    return YES;
}

/* Return true if the numbers of the last snapshot are still right: custody is
 * empty (`*err` 0) or missing (-ENOENT), and nothing was committed since.
 * Otherwise store_unchanged has marked the store, before it is opened, so that
 * the next snapshot notices each commit after that. */
static bool last_holds(const struct snapshot *v, struct snapshot_last *last,
                       const char *custody, int *err)
{
    int found = *err ? *err : custody_look(custody, slot_stop, NULL, NULL);
    char path[PATH_MAX];
    bool same = v->has_folder &&
                statedir_path(&v->dir, STATEDIR_STORE, path, NULL) == 0 &&
                store_unchanged(path, &last->mark) && last->known &&
                last->idle == is_idle(v) && (found == 0 || found == -ENOENT);

    if (same)
        *err = found;
    return same;
}

/* Read the numbers of the store, without the messages that are in custody as
 * well. */
static void store_look(struct snapshot *v, struct store *s,
                       struct custody_count *c)
{
    struct snapshot_rows *r = &v->rows;
    const struct store_lent lent = {.rows = c->rows,
                                    .keys = c->keys,
                                    .row_count = c->row_count,
                                    .key_count = c->key_count};
    int64_t *const all[] = {&r->waiting, &r->parked, &r->spooled, &r->dead,
                            &r->replayed};
    struct waiting_filter due = {.states = WAITING_BIT(WAITING_READY),
                                 .now_ns = clock_wall_ns()};

    r->waiting = count_minus(store_count(s, STORE_WAITING), c->waiting);
    r->parked = count_minus(store_count(s, STORE_PARKED), c->parked);
    r->spooled = count_minus(store_spool_count(s), c->spooled);
    if (is_idle(v)) { /* a cancelled message waits for nothing */
        r->waiting =
            count_minus(r->waiting, store_count_cancelled(s, STORE_WAITING));
        r->parked =
            count_minus(r->parked, store_count_cancelled(s, STORE_PARKED));
        r->spooled = count_minus(r->spooled, store_count_cancelled(s, 0));
    }
    r->dead = store_count(s, STORE_DEAD);
    r->replayed = store_count(s, STORE_REPLAYED);
    store_ages(s, &lent, &r->ages);
    /* A running retry is still in the store, and due: skip rows in slots. */
    if (c->row_count && r->ages.due && r->ages.due <= due.now_ns) {
        (void)waiting_each(s, &due, &(struct waiting_place){0}, due_keep, c);
        r->ages.due = c->due_ns;
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (*all[i] < 0) {
            v->store_err = (int)*all[i];
            *all[i] = -1;
        }
    if (v->store_err)
        problem_set(&v->no_store, EX_IOERR, -v->store_err,
                    "%s/%s cannot be read: %s; %s", v->dir.folder,
                    STATEDIR_STORE, errno_text(-v->store_err),
                    disk_advice(v->store_err));
}

/* Count the messages in custody and in the store now, instead of showing what
 * the worker counted last. Custody goes first: a message that leaves it
 * meanwhile is in the store by then, and is counted. */
int snapshot_again(struct snapshot *v, struct snapshot_last *last,
                   const char *state_dir, const char *queue, bool ask_worker,
                   struct problem *p)
{
    struct custody_count c = {.store = NULL};
    char path[PATH_MAX];
    struct store *s = NULL;
    int err = snapshot_begin(v, state_dir, queue, ask_worker, p);
    bool same;

    if (err)
        return err;
    if (last && last->locked)
        v->worker = SNAPSHOT_ENDED;
    c.idle = is_idle(v);
    err = v->has_folder ? runtimedir_file(&v->dir, RUNTIMEDIR_CUSTODY, path,
                                          &v->no_custody)
                        : -ENOENT;
    same = last && last_holds(v, last, path, &err);
    if (!same) {
        v->store_err = snapshot_store(v, &s);
        c.store = s;
        c.spool = s && store_spool_count(s) > 0;
        if (!err)
            err = custody_look(path, slot_count, &c, &v->no_custody);
    }
    if (err == -ENOENT)
        v->no_custody.status = 0;
    if (!err) {
        v->custody = c.total;
        v->held = v->worker == SNAPSHOT_RUNS ? c.total - c.running : c.total;
        v->grouped = c.grouped;
        v->held_since_ns = c.oldest_ns;
    }
    /* The messages in the kernel queue cannot be read, so the last received
     * one stands for them; with a spool it left the queue long ago. */
    if (v->depth > 0 && !c.spool && c.newest_sent_ns &&
        c.newest_ns > c.newest_sent_ns)
        v->queue_wait_ns = c.newest_ns - c.newest_sent_ns;
    if (s)
        store_look(v, s, &c);
    if (same) {
        v->rows = last->rows;
    } else if (last) {
        last->known = s && !v->store_err && c.total == 0;
        last->idle = c.idle;
        last->rows = v->rows;
    }
    if (v->totals.received_ns < c.newest_ns)
        v->totals.received_ns = c.newest_ns;
    if (v->totals.received_ns < v->rows.ages.newest)
        v->totals.received_ns = v->rows.ages.newest;
    free(c.rows);
    free(c.keys);
    store_close(&s);
    return 0;
}

int snapshot_open(struct snapshot *v, const char *state_dir, const char *queue,
                  bool ask_worker, struct problem *p)
{
    return snapshot_again(v, NULL, state_dir, queue, ask_worker, p);
}

void snapshot_close(struct snapshot *v)
{
    counters_close(&v->counters);
    json_decref(v->live);
    v->live = NULL;
}

const char *snapshot_text(const struct snapshot *v, const char *name)
{
    return json_text_of(v->live, name);
}

json_t *snapshot_setting(const struct snapshot *v, const char *name)
{
    return json_object_get(json_object_get(v->live, "settings"), name);
}

json_int_t snapshot_number(const struct snapshot *v, const char *name,
                           uint64_t otherwise)
{
    json_t *value = json_object_get(v->live, name);

    return json_is_integer(value) ? json_integer_value(value)
                                  : (json_int_t)otherwise;
}

unsigned snapshot_cap(const struct snapshot *v)
{
    return (unsigned)snapshot_number(v, "max_concurrency",
                                     v->head.gauges[COUNTERS_CAP]);
}

unsigned snapshot_window(const struct snapshot *v)
{
    json_int_t n =
        snapshot_number(v, "window", v->head.gauges[COUNTERS_WINDOW]);

    return n > 1 ? (unsigned)n : 1;
}

unsigned snapshot_capacity(const struct snapshot *v)
{
    return snapshot_cap(v) * snapshot_window(v);
}

uint64_t snapshot_groups(const struct snapshot *v)
{
    return (uint64_t)snapshot_number(v, "groups",
                                     v->head.gauges[COUNTERS_GROUPS]);
}

uint64_t snapshot_groups_held(const struct snapshot *v)
{
    return v->worker == SNAPSHOT_RUNS
               ? (uint64_t)snapshot_number(v, "groups_held",
                                           v->head.gauges[COUNTERS_GROUPS_HELD])
               : 0;
}

int64_t snapshot_waits(const struct snapshot *v)
{
    if (v->rows.waiting < 0 || v->rows.parked < 0 || v->no_custody.status ||
        snapshot_unread(v->store_err))
        return -1;
    return v->rows.waiting + v->rows.parked +
           (v->rows.spooled > 0 ? v->rows.spooled : 0) +
           (v->held > 0 ? v->held : 0);
}

bool snapshot_paused(const struct snapshot *v)
{
    json_t *paused = json_object_get(v->live, "paused");

    return v->worker == SNAPSHOT_RUNS &&
           (paused ? json_is_true(paused)
                   : (v->head.gauges[COUNTERS_HOLDS] & COUNTERS_PAUSED) != 0);
}

bool snapshot_pause(const struct snapshot *v, struct pause_note *out)
{
    const char *by = snapshot_text(v, "paused_by");

    if (!v->live)
        return v->has_folder && pause_note_read(out, v->dir.folder) == 0 &&
               pause_note_left(out, clock_wall_ns()) > 0;
    *out = (struct pause_note){
        .since_ns = (uint64_t)snapshot_number(v, "paused_at_ns", 0),
        .until_ns = (uint64_t)snapshot_number(v, "paused_until_ns", 0)};
    snprintf(out->by, sizeof out->by, "%s", by ? by : "");
    return out->since_ns != 0;
}

bool snapshot_rate_reached(const struct snapshot *v)
{
    return v->worker == SNAPSHOT_RUNS &&
           (v->head.gauges[COUNTERS_HOLDS] & COUNTERS_RATE_HELD) != 0;
}

const char *snapshot_breaker(const struct snapshot *v)
{
    static const char *const texts[] = {"closed", "open", "probing"};
    const char *live = snapshot_text(v, "breaker");
    uint64_t state = v->head.gauges[COUNTERS_BREAKER];

    return live ? live : texts[state < 3 ? state : 0];
}

bool snapshot_changing(const struct snapshot *v)
{
    return v->worker == SNAPSHOT_RUNS && !v->stopped &&
           (v->phase == WORKER_PHASE_STARTING ||
            v->phase == WORKER_PHASE_STOPPING);
}

enum worker_state snapshot_state(const struct snapshot *v)
{
    const char *live = snapshot_text(v, "state");
    enum worker_state state = live ? worker_state_parse(live) : WORKER_STATES;

    if (v->worker == SNAPSHOT_UNSEEN)
        return WORKER_STATE_UNSEEN;
    if (v->worker == SNAPSHOT_KILLED)
        return WORKER_STATE_KILLED;
    if (v->worker != SNAPSHOT_RUNS)
        return WORKER_STATE_NOT_RUNNING;
    if (v->stopped)
        return WORKER_STATE_STOPPED;
    if (v->phase == WORKER_PHASE_STARTING)
        return WORKER_STATE_STARTING;
    if (v->phase == WORKER_PHASE_STOPPING)
        return WORKER_STATE_STOPPING;
    /* A worker of another version may answer with an unknown sentence. */
    if (state == WORKER_STATES)
        state = worker_state_of_holds(v->head.gauges[COUNTERS_HOLDS]);
    if (state == WORKER_STATE_RUNNING &&
        strcmp(snapshot_breaker(v), "closed") != 0)
        return strcmp(snapshot_breaker(v), "open") == 0
                   ? WORKER_STATE_BREAKER_OPEN
                   : WORKER_STATE_BREAKER_PROBING;
    return state;
}

const char *snapshot_state_text(const struct snapshot *v)
{
    return worker_state_text(snapshot_state(v));
}

enum worker_severity snapshot_severity(const struct snapshot *v)
{
    return worker_state_severity(snapshot_state(v),
                                 v->depth > 0 || snapshot_waits(v) > 0);
}

enum term_colour snapshot_state_colour(const char *text)
{
    enum worker_state state = worker_state_parse(text);
    enum worker_severity severity = state == WORKER_STATES
                                        ? WORKER_IDLE
                                        : worker_state_severity(state, false);

    return severity == WORKER_BAD    ? TERM_RED
           : severity == WORKER_WARN ? TERM_YELLOW
                                     : TERM_PLAIN;
}

const char *snapshot_why(const struct snapshot *v)
{
    const char *why = snapshot_text(v, "why");

    if (v->worker != SNAPSHOT_RUNS)
        return NULL;
    if (!why && snapshot_state(v) != WORKER_STATE_RUNNING)
        why = snapshot_state_text(v);
    return why;
}

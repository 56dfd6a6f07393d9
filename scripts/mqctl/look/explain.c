/* explain.c - mqctl explain: where one message is, and why
 *
 * main and the children of mqctl serve call explain_run on their only thread.
 * It searches custody, the store, the journal and the spool, in that order. A
 * message may move between two searches, and custody goes first, because a
 * message is in the store or in the journal before it leaves custody.
 */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/cli/complain.h"
#include "common/cli/json_line.h"
#include "common/cli/term.h"
#include "common/custody/custody.h"
#include "common/message/error_text.h"
#include "common/message/header.h"
#include "common/state/runtimedir.h"
#include "common/store/letters.h"
#include "common/store/spool.h"
#include "scripts/mqctl/ask.h"
#include "scripts/mqctl/look/doctor.h"
#include "scripts/mqctl/look/snapshot.h"
#include "scripts/mqctl/mqctl.h"
#include "scripts/mqctl/queue_list.h"

struct search {
    struct snapshot v;
    struct store *store; /* NULL: none */
    struct ulid id;
    bool named;  /* `id` is known; else only the row is */
    int64_t row; /* the row that the user named; 0: the user named an id */
    char text_id[ULID_TEXT];
    struct custody_seen slot; /* of the message, if in_slot */
    bool in_slot;
    struct problem unseen; /* why a place could not be searched; status 0: all
                            * were */
    const char *where;     /* in_flight, held, waiting, ..., unknown, unseen */
    char text[2048];       /* the answer, as a sentence */
    json_t *more;          /* fields of the answer, for --json */
};

/* "2026-... (in 3s)", or "now". */
#define SEARCH_UNTIL 96

/* Append to the sentence of the answer. */
#define PHRASE_ADD(s, ...) \
    text_append((s)->text, sizeof((s)->text), __VA_ARGS__)
/* Set the place and the sentence of the answer. */
#define PHRASE_SET(s, place, ...) \
    ((s)->where = (place), (s)->text[0] = '\0', PHRASE_ADD(s, __VA_ARGS__))

/* Record that the store cannot be read. */
static void store_unseen(struct search *s, int err)
{
    problem_set(&s->unseen, EX_IOERR, -err,
                "%s/%s cannot be read: %s; see mqctl doctor %s",
                s->v.dir.folder, STATEDIR_STORE, errno_text(-err),
                STATEDIR_OPERAND(s->v.dir.root, s->v.queue));
}

/* Add a field to the answer of --json. */
static void item_put(struct search *s, const char *name, json_t *value)
{
    (void)json_object_set_new(s->more, name, value);
}

/* Append how often a worker died while running the message, and if no worker is
 * running, how to start one. */
static void absence_add(struct search *s, uint32_t crashes)
{
    char start[START_TEXT];

    if (crashes)
        PHRASE_ADD(s, "; a worker died while running it, %" PRIu32 " time%s",
                   crashes, term_plural(crashes));
    if (s->v.worker != SNAPSHOT_RUNS)
        PHRASE_ADD(s, "; no worker is running; start one: %s",
                   worker_start_text(s->v.queue, start));
}

/* Print a time as "2026-... (in 3s)", or "now". */
static const char *time_until(uint64_t wall_ns, char buf[SEARCH_UNTIL])
{
    uint64_t now = clock_wall_ns();
    char time[TIME_TEXT], left[DURATION_TEXT];

    if (wall_ns <= now)
        strlcpy(buf, "now", SEARCH_UNTIL);
    else
        snprintf(buf, SEARCH_UNTIL, "%s (in %s)", term_time(wall_ns, time),
                 duration_rough(wall_ns - now, left));
    return buf;
}

/* A search for the head of a group in custody. */
struct head {
    const char *group;
    const struct custody_seen *self; /* slot of the message, or NULL */
    struct custody_seen first;       /* slot of the head, if `seen` */
    bool seen;
};

/* Visit a slot: keep the running message of the group, or the first message by
 * order of receipt if none is running. */
static int head_slot(const struct custody_seen *seen, void *arg)
{
    struct head *h = arg;
    bool before;

    if (strcmp(seen->group, h->group) != 0 ||
        (h->self && seen->seq == h->self->seq))
        return 0;
    before = seen->w.state == SLOT_RUNNING ||
             (h->first.w.state != SLOT_RUNNING && seen->seq < h->first.seq);
    if (!h->seen || before)
        h->first = *seen;
    h->seen = true;
    return 0;
}

/* Append which message is the head of the group, and what it waits for. */
static void head_add(struct search *s, const char *group)
{
    struct head h = {.group = group, .self = s->in_slot ? &s->slot : NULL};
    char path[PATH_MAX], id[ULID_TEXT], when[SEARCH_UNTIL];
    char word[SHELL_WORD_ROOM(HEADER_VALUE_MAX)];
    struct store_group g = {0};
    struct store_row m;
    struct problem p;

    if (runtimedir_file(&s->v.dir, RUNTIMEDIR_CUSTODY, path, &p) == 0)
        (void)custody_look(path, head_slot, &h, &p);
    if (s->store) /* an unknown group has no head there */
        (void)store_get_group(s->store, group, strlen(group), &g);
    item_put(s, "group_parked", json_integer((json_int_t)g.parked));
    if (h.seen && h.first.w.state == SLOT_RUNNING) {
        item_put(s, "head", json_string(ulid_print(h.first.id, id)));
        PHRASE_ADD(s, "; its head %s is in flight", ulid_print(h.first.id, id));
    } else if (g.head && store_get(s->store, g.head, &m, NULL, 0, NULL) == 0) {
        item_put(s, "head", json_string(ulid_print(m.id, id)));
        PHRASE_ADD(
            s, "; its head %s failed %" PRIu32 " time%s; next attempt: %s", id,
            m.attempts, m.attempts == 1 ? "" : "s", time_until(m.due_ns, when));
    } else if (g.letters) {
        PHRASE_ADD(s,
                   "; the group has a dead letter, and with --on-group-dead "
                   "hold waits until you replay or discard that with mqdlq; to "
                   "go on without it: mqctl group %s %s release",
                   STATEDIR_OPERAND(s->v.dir.root, s->v.queue),
                   shell_word(group, word, sizeof word));
    }
}

/* ---- the spool ---- */

/* A search of the spool for one message, and what was found. */
struct spooled {
    const struct ulid *id;
    uint64_t before; /* rows that come before it */
    uint64_t received_ns;
    uint32_t crashes;
    bool cancelled;
};

/* Visit a row of the spool: YES, which ends the search, if it is the message. A
 * row gets an id when it first runs; before that, only its header may have
 * one. */
static int spooled_match(const struct store_spooled *row, void *arg)
{
    struct spooled *x = arg;
    char why[HEADER_WHY];
    struct header h;

    if (memcmp(&row->id, x->id, sizeof *x->id) != 0 &&
        (header_parse(row->data, row->size, &h, why) < 0 ||
         !(h.fields & HEADER_ID) || memcmp(&h.id, x->id, sizeof h.id) != 0)) {
        x->before++;
        return NO;
    }
    x->received_ns = row->received_ns;
    x->crashes = row->crashes;
    x->cancelled = row->flags & STORE_CANCELLED;
    return YES;
}

/* Search the spool. This comes after the journal, because a row may stay in the
 * spool for some 200 ms after its message has finished. Returns true if the
 * message is there. */
static bool spool_search(struct search *s)
{
    struct spooled x = {.id = &s->id};
    char time[DURATION_TEXT];
    int err = s->store && s->named
                  ? store_spool_each(s->store, 0, spooled_match, &x)
                  : NO;

    if (err < 0)
        store_unseen(s, err);
    if (err != YES)
        return false;
    item_put(s, "before", json_integer((json_int_t)x.before));
    item_put(s, "crashes", json_integer(x.crashes));
    if (x.cancelled) {
        PHRASE_SET(s, "cancelled",
                   "cancelled: it will not run, and is discarded when its turn "
                   "in the spool comes");
        return true;
    }
    PHRASE_SET(s, "spooled",
               "received %s ago and waiting in the spool for its turn; "
               "%" PRIu64 " message%s of the spool come%s before it",
               term_since(x.received_ns, time), x.before, term_plural(x.before),
               x.before == 1 ? "s" : "");
    absence_add(s, x.crashes);
    if (snapshot_why(&s->v))
        PHRASE_ADD(s, "; the worker is starting no messages now: %s",
                   snapshot_why(&s->v));
    return true;
}

/* ---- custody ---- */

/* Visit a slot: YES, which ends the search, if it has the message. */
static int slot_match(const struct custody_seen *seen, void *arg)
{
    struct search *s = arg;

    if (s->named ? memcmp(&seen->id, &s->id, sizeof s->id) != 0
                 : seen->row != s->row)
        return NO;
    s->slot = *seen;
    s->in_slot = true;
    return YES;
}

/* Explain a message in a slot that no handler is running. */
static void held_explain(struct search *s)
{
    const struct custody_seen *m = &s->slot;
    bool again = m->w.flags & SLOT_REDELIVERED;
    char start[START_TEXT], time[DURATION_TEXT];

    item_put(s, "redelivered", json_boolean(again));
    if (again) {
        /* A handler was started and ended without a verdict that counts. The
         * slot has the time of that run only if the run was in this slot; a
         * row that was read back from the store says only that there was a
         * run. */
        PHRASE_SET(s, "held", "it was started");
        if (m->w.attempt)
            PHRASE_ADD(s, " %s ago, as attempt %" PRIu32,
                       term_since(m->started_ns, time), m->w.attempt);
        if (m->w.crashes)
            PHRASE_ADD(s,
                       ", and the worker died while running it, %u time%s so "
                       "far; it runs again",
                       m->w.crashes, term_plural(m->w.crashes));
        else
            PHRASE_ADD(s, ", and interrupted before it was done: the worker "
                          "was stopped, or terminated its handler; it runs "
                          "again");
        PHRASE_ADD(s, ", marked redelivered");
    } else if (m->w.attempt) {
        PHRASE_SET(s, "held",
                   "received %s ago; the worker could not start or reach its "
                   "handler, and tries again; no attempt was counted",
                   term_since(m->received_ns, time));
    } else if (m->failures) {
        PHRASE_SET(s, "held",
                   "failed %" PRIu32 " time%s; its next attempt is due, but "
                   "not started yet",
                   m->failures, term_plural(m->failures));
    } else {
        PHRASE_SET(s, "held", "received %s ago and not started yet",
                   term_since(m->received_ns, time));
    }
    if (s->v.worker != SNAPSHOT_RUNS)
        PHRASE_ADD(s,
                   "; no worker is running. The message runs when you start "
                   "one: %s",
                   worker_start_text(s->v.queue, start));
    else if (snapshot_why(&s->v) && snapshot_state(&s->v) != WORKER_STATE_FULL)
        PHRASE_ADD(s, "; the worker is starting no messages now: %s",
                   snapshot_why(&s->v));
    if (m->group[0]) {
        PHRASE_ADD(s, "; it waits in group %s", m->group);
        item_put(s, "group", json_string(m->group));
        head_add(s, m->group);
    }
}

/* Add the last line that a running message has written to stderr. */
static void last_stderr_add(struct search *s)
{
    char line[ULID_TEXT + 8], id[ULID_TEXT];
    json_t *answer = NULL;
    struct problem p;
    const char *text;

    snprintf(line, sizeof line, "stderr %s", ulid_print(s->id, id));
    if (s->v.live) /* it has answered before */
        (void)ask(&s->v.dir, s->v.queue, line, &answer, &p);
    text =
        json_string_value(json_array_get(json_object_get(answer, "lines"), 0));
    item_put(s, "last_stderr", text ? json_string(text) : json_null());
    if (text)
        PHRASE_ADD(s, "; its last line of stderr: %s", text);
    json_decref(answer);
}

/* Search custody. This comes before the store, because a row of the store has a
 * slot as well while it runs. */
static bool custody_search(struct search *s)
{
    const struct custody_seen *m = &s->slot;
    char path[PATH_MAX], time[DURATION_TEXT], start[START_TEXT];
    struct problem p;
    int err = runtimedir_file(&s->v.dir, RUNTIMEDIR_CUSTODY, path, &p);

    if (!err)
        err = custody_look(path, slot_match, s, &p);
    if (err != YES && snapshot_unread(err))
        s->unseen = p;
    if (err != YES)
        return false;
    s->id = m->id;
    s->named = true;
    item_put(s, "failures", json_integer(m->failures));
    item_put(s, "crashes", json_integer(m->w.crashes));
    if (m->w.state != SLOT_RUNNING) {
        held_explain(s);
        return true;
    }
    item_put(s, "attempt", json_integer(m->w.attempt));
    item_put(s, "pid", m->pgid ? json_integer(m->pgid) : json_null());
    if (s->v.worker != SNAPSHOT_RUNS) {
        PHRASE_SET(s, "held",
                   "in custody of a dead worker, which died during attempt "
                   "%" PRIu32 ", started %s ago. The message runs again, "
                   "marked redelivered, when you start a worker: %s",
                   m->w.attempt, term_since(m->started_ns, time),
                   worker_start_text(s->v.queue, start));
        return true;
    }
    PHRASE_SET(s, "in_flight", "in flight for %s, attempt %" PRIu32,
               term_since(m->started_ns, time), m->w.attempt);
    if (m->pgid)
        PHRASE_ADD(s, ", under pid %" PRId32, m->pgid);
    PHRASE_ADD(s, " of worker %d", (int)s->v.pid);
    if (m->w.flags & SLOT_REDELIVERED)
        PHRASE_ADD(s, "; redelivered after %u crash%s", m->w.crashes,
                   m->w.crashes == 1 ? "" : "es");
    last_stderr_add(s);
    return true;
}

/* ---- the store ---- */

/* The last attempt: its error, the text beside it, and what it used. */
struct last {
    char error[ERROR_TEXT], text[ERROR_TEXT];
    struct usage usage;
};

/* Visit an attempt: keep the last one. */
static int attempt_last(unsigned n, const struct store_attempt *a, void *arg)
{
    struct last *last = arg;

    (void)n;
    strlcpy(last->error, a->error ? a->error : "", sizeof last->error);
    error_text(last->text, a->error, a->said,
               a->stderr_tail ? a->stderr_tail : "", a->stderr_size);
    last->usage = a->usage;
    return 0;
}

/* Visit: copy how a letter was replayed. */
static int replay_copy(const struct letter *l, void *arg)
{
    *(struct letter_replay *)arg = l->replay;
    return 0;
}

/* Explain a row of the store by its state. */
static void row_explain(struct search *s, const struct store_row *m,
                        const char *group)
{
    bool again = m->flags & STORE_REDELIVERED;
    const char *queue = STATEDIR_OPERAND(s->v.dir.root, s->v.queue);
    struct last last = {.error = ""};
    struct letter_replay replay = {.sent = true};
    char error[ERROR_JOINED], when[SEARCH_UNTIL], used[USAGE_TEXT];

    (void)letters_history(s->store, m->row, attempt_last, &last);
    error_text_join(error, sizeof error, last.error, last.text);
    usage_print(&last.usage, used);
    item_put(s, "row", json_integer(m->row));
    item_put(s, "failures", json_integer(m->attempts));
    item_put(s, "crashes", json_integer(m->crashes));
    item_put(s, "error", *last.error ? json_string(last.error) : json_null());
    item_put(s, "error_text",
             *last.text ? json_string(last.text) : json_null());
    (void)json_put_usage(s->more, &last.usage);
    if (m->group)
        item_put(s, "group", json_stringn(group, m->group_size));
    if (m->state == STORE_WAITING)
        item_put(s, "due_at_ns", json_integer((json_int_t)m->due_ns));
    if (m->flags & STORE_CANCELLED &&
        (m->state == STORE_WAITING || m->state == STORE_PARKED)) {
        PHRASE_SET(s, "cancelled",
                   "cancelled: it will not run, and is discarded ");
        PHRASE_ADD(s, m->state == STORE_WAITING
                          ? "as soon as a worker takes it"
                          : "when its turn in its group comes");
        return;
    }
    if (m->state == STORE_PARKED) {
        PHRASE_SET(s, "parked", "waiting in the store for its turn in group %s",
                   group);
        head_add(s, group);
        return;
    }
    if (m->state == STORE_WAITING) {
        time_until(m->due_ns, when);
        if (m->attempts == 0 && m->due_ns <= clock_wall_ns())
            PHRASE_SET(s, "waiting",
                       "in the store and due: it runs as soon as a worker "
                       "takes it");
        else if (m->attempts == 0)
            PHRASE_SET(s, "waiting", "waiting until %s%s", when,
                       again ? "" : ", the time of its not-before");
        else
            PHRASE_SET(s, "waiting",
                       "failed %" PRIu32 " time%s (last error: %s); next "
                       "attempt: %s",
                       m->attempts, term_plural(m->attempts),
                       *error ? error : "none", when);
        if (m->attempts > 0 && *used)
            PHRASE_ADD(s, "; the last attempt used %s", used);
        if (again)
            PHRASE_ADD(s, "; it was started and did not finish, and runs "
                          "again, marked redelivered");
        absence_add(s, m->crashes);
        return;
    }
    item_put(s, "reason", json_string(dead_reason_text(m->reason)));
    item_put(s, "died_at", json_string(time_print(m->died_ns, when)));
    term_time(m->died_ns, when);
    if (m->state == STORE_REPLAYED)
        (void)letters_get(s->store, m->row, replay_copy, &replay);
    if (m->state == STORE_REPLAYED && !replay.sent)
        PHRASE_SET(s, "replayed",
                   "died at %s and was marked replayed, but maybe not sent: "
                   "mqdlq is sending it now, or was killed; if it was killed, "
                   "mqdlq replay --again %s %" PRId64 " sends it; the queue "
                   "has %ld message%s",
                   when, queue, m->row, s->v.depth,
                   term_plural((uint64_t)s->v.depth));
    else if (m->state == STORE_REPLAYED)
        PHRASE_SET(s, "replayed",
                   "died at %s and was replayed: it is in the queue, which has "
                   "%ld message%s; details: mqdlq show %s %" PRId64,
                   when, s->v.depth, term_plural((uint64_t)s->v.depth), queue,
                   m->row);
    else
        PHRASE_SET(s, "dead",
                   "died at %s after %" PRIu32
                   " failed attempt%s (%s%s%s)%s%s; details: mqdlq show %s "
                   "%" PRId64 "; to send it again: mqdlq replay %s %" PRId64,
                   when, m->attempts, term_plural(m->attempts),
                   dead_reason_text(m->reason), *error ? "; last error: " : "",
                   error, *used ? "; the last attempt used " : "", used, queue,
                   m->row, queue, m->row);
}

/* Search the store by id or row. Returns true if the message is there. */
static bool store_search(struct search *s)
{
    char group[HEADER_VALUE_MAX + 1] = "";
    struct store_row m;
    int64_t row = s->row;
    int err = s->store ? 0 : -ENOENT;

    if (!err && s->named && !row)
        err = store_find_id(s->store, &s->id, &row);
    if (!err)
        err = store_get(s->store, row, &m, NULL, 0, group);
    /* A replayed letter is a message again, with the same id: it may have left
     * the queue and be in custody, or in another row. */
    if (!err && !s->named && m.state == STORE_REPLAYED) {
        s->id = m.id;
        s->named = true;
        if (custody_search(s))
            return true;
        err = store_find_id(s->store, &s->id, &row);
        if (!err)
            err = store_get(s->store, row, &m, NULL, 0, group);
    }
    if (snapshot_unread(err))
        store_unseen(s, err);
    if (err)
        return false;
    s->id = m.id;
    s->named = true;
    if (m.group)
        group[m.group_size] = '\0';
    row_explain(s, &m, group);
    return true;
}

/* ---- the journal ---- */

/* Search the journal of the last finished messages. Returns true if the message
 * is there. */
static bool journal_search(struct search *s)
{
    static const char *const ends[] = {
        [COUNTERS_NO_END] = "gone",         [COUNTERS_DONE] = "done",
        [COUNTERS_DISCARDED] = "discarded", [COUNTERS_DUPLICATE] = "discarded",
        [COUNTERS_CANCELLED] = "discarded",
    };
    char when[TIME_TEXT], time[DURATION_TEXT];
    enum counters_end end;
    bool cancelled;
    uint64_t at;

    if (s->named && snapshot_unread(s->v.counters_err) && !s->unseen.status)
        s->unseen = s->v.no_counters;
    if (!s->v.counters || !s->named ||
        !counters_find(s->v.counters, &s->id, &end, &at))
        return false;
    item_put(s, "ended_at", json_string(time_print(at, when)));
    term_time(at, when);
    if (end == COUNTERS_DEAD)
        PHRASE_SET(s, "removed",
                   "died at %s, and its letter has been removed since", when);
    else
        PHRASE_SET(s, ends[end], "%s at %s, %s ago", ends[end], when,
                   term_since(at, time));
    if (end <= COUNTERS_DEAD)
        return true;
    /* A handler's reason is in the log alone. */
    cancelled = end == COUNTERS_CANCELLED;
    item_put(s, "reason", json_string(cancelled ? "cancelled" : "duplicate"));
    PHRASE_ADD(s, cancelled
                      ? ": an operator cancelled it"
                      : ": a duplicate: another message had its unique key; "
                        "the worker's log has the id of that message");
    return true;
}

/* ---- the verb ---- */

static bool is_found(const struct search *s)
{
    return s->where && strcmp(s->where, "unknown") != 0 &&
           strcmp(s->where, "unseen") != 0;
}

/* Print the answer in the requested form; returns an exit status. */
static int explanation_print(struct search *s, const struct options *o)
{
    bool alone = o->line.operand_count == 1; /* the user named no queue */
    const char *id = o->line.operands[alone ? 0 : 1];
    json_t *out;

    if (s->named)
        id = ulid_print(s->id, s->text_id);
    if (o->json) {
        out = json_pack("{s:o, s:s, s:s, s:o}", "queue",
                        json_printable(s->v.queue), "id", id, "where", s->where,
                        "text", json_printable(s->text));
        json_object_update(out, s->more);
        if (json_print_line(out, stdout) < 0)
            return complain_memory();
    } else if (is_found(s)) {
        printf("%s%s%s: ", id, alone ? " of " : "", alone ? s->v.queue : "");
        safe_text(stdout, s->text, strlen(s->text), true);
        putchar('\n');
    } else {
        complain(0, "%s: %s", id, s->text);
    }
    return is_found(s) ? 0 : s->unseen.status ? s->unseen.status : EX_NOINPUT;
}

/* Search the places one by one; `store_err` is 0, or why the store is not
 * open. */
static bool places_search(struct search *s, int store_err)
{
    s->unseen = (struct problem){0};
    if (snapshot_unread(store_err))
        s->unseen = s->v.no_store;
    return custody_search(s) || store_search(s) || journal_search(s) ||
           spool_search(s);
}

/* Search a queue for the message. The caller closes the search. */
static int search_open(struct search *s, const struct options *o,
                       const char *queue, struct problem *p)
{
    int err = snapshot_begin(&s->v, o->state_dir, queue, true, p);
    const char *why;

    if (err)
        return err;
    s->more = json_object();
    err = snapshot_store(&s->v, &s->store);
    /* Search twice: the first pass may miss a message that moves between two
     * places. */
    if (!s->v.has_folder || places_search(s, err) || places_search(s, err))
        return 0;
    if (s->unseen.status) {
        PHRASE_SET(s, "unseen", "not found, but %s", s->unseen.text);
        return 0;
    }
    if (!s->named) {
        PHRASE_SET(s, "unknown",
                   "no dead letter has that number: there was none, or it was "
                   "discarded, or replayed and done. To see what became of a "
                   "message, give its id of 26 characters: mqctl explain %s ID",
                   STATEDIR_OPERAND(s->v.dir.root, s->v.queue));
        return 0;
    }
    if (s->v.depth > 0) {
        PHRASE_SET(s, "unknown",
                   "probably not received yet: %s holds %ld message%s, which "
                   "cannot be inspected; try again. Otherwise ",
                   s->v.queue, s->v.depth, term_plural((uint64_t)s->v.depth));
        why = snapshot_why(&s->v);
        if (why)
            PHRASE_ADD(s, "(the worker is taking no messages now: %s) ", why);
    } else {
        PHRASE_SET(s, "unknown", "no trace of it: ");
    }
    PHRASE_ADD(
        s,
        "it was never sent, or sent under another id, or finished before "
        "the last %d messages that the worker remembers",
        COUNTERS_JOURNAL);
    return 0;
}

static void search_close(struct search *s)
{
    store_close(&s->store);
    json_decref(s->more);
    snapshot_close(&s->v);
}

#define ID_REFUSAL 64
/* Say why a text that ulid_parse refused is no id. */
static const char *id_refuse(const char *text, char buf[ID_REFUSAL])
{
    static const char digits[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
                                 "abcdefghjkmnpqrstvwxyz";
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    size_t size = strlen(text), good = strspn(text, digits);

    if (text[0] == 'E' && size > 1 && !text[strspn(text, letters)])
        return "no error that is known here";
    if (size == 0)
        return "not an id";
    if (size != ULID_TEXT - 1)
        snprintf(buf, ID_REFUSAL, "not an id: it has %zu character%s", size,
                 term_plural(size));
    else if (good < size && isgraph((unsigned char)text[good]))
        snprintf(buf, ID_REFUSAL, "not an id: %c is not in an id", text[good]);
    else
        snprintf(buf, ID_REFUSAL, "not an id: %s",
                 good < size ? "it has more than digits and letters"
                             : "an id begins with 0 to 7");
    return buf;
}

int explain_run(const struct options *o)
{
    bool alone = o->line.operand_count == 1; /* search all queues */
    const char *text = o->line.operands[alone ? 0 : 1];
    struct problem p, unseen = {0};
    struct queue_list n = {0};
    static struct search s;
    struct search what = {.store = NULL};
    int status = -1;
    char *end, names[ERROR_NAMES], why[ID_REFUSAL];

    status = error_explain(o);
    if (status >= 0)
        return status;
    if (alone && text[0] == '/')
        return complain(EX_USAGE,
                        "explain: give an id of a message as well: mqctl "
                        "explain %s ID",
                        SHELL_QUEUE(text));
    what.named = ulid_parse(text, strlen(text), &what.id) == 0;
    if (!what.named) {
        errno = 0;
        what.row = strtoll(text, &end, 10);
        if (!*text || *end || errno || what.row <= 0 || alone)
            return complain(EX_USAGE,
                            "explain: \"%.64s\" is %s; give the 26 characters "
                            "of a message's id, %s number that mqdlq list "
                            "shows, or an error: %s",
                            text, id_refuse(text, why),
                            alone ? "a queue and the" : "the",
                            error_names(names));
    }
    s = what;
    if (!alone) {
        if (search_open(&s, o, o->line.operands[0], &p) < 0)
            return complain_of(&p);
        status = s.v.has_folder
                     ? explanation_print(&s, o)
                     : complain(s.v.shut ? s.v.no_store.status : EX_NOINPUT,
                                "%s: %s", s.v.queue, s.v.no_store.text);
        search_close(&s);
        return status;
    }
    if (queue_list_of_workers(&n, o->state_dir) < 0)
        return complain_memory();
    for (size_t i = 0; i < n.count && status < 0; i++) {
        s = what;
        if (search_open(&s, o, n.at[i], &p) < 0)
            continue;
        if (is_found(&s))
            status = explanation_print(&s, o);
        else if (s.unseen.status || s.v.shut)
            unseen = s.v.shut ? s.v.no_store : s.unseen;
        search_close(&s);
    }
    if (n.folder_trouble[0])
        status = complain(EX_CANTCREAT, "%s", n.folder_trouble);
    else if (status < 0 && unseen.status)
        status =
            complain(unseen.status, "%s: not found, but %s", text, unseen.text);
    else if (status < 0)
        status =
            complain(EX_NOINPUT,
                     "%s: not found in %zu queue%s of the state directory. A "
                     "message that no worker has received yet cannot be found",
                     text, n.count, term_plural(n.count));
    queue_list_free(&n);
    return status;
}

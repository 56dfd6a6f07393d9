/* explain.c - see mqctl.h
 *
 * The order of the looks matters, as a message may move meanwhile: custody goes
 * first, as a message that leaves it is in the store or in the journal by then.
 */
#include "scripts/mqctl/mqctl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/safe_text.h"
#include "common/message/error_text.h"
#include "common/state/runtimedir.h"
#include "common/store/letters.h"
#include "common/text/complain.h"
#include "common/text/json_line.h"
#include "common/text/term.h"
#include "scripts/mqctl/ask.h"
#include "scripts/mqctl/look/search.h"
#include "scripts/mqctl/queue_list.h"

/* ---- custody ---- */

/* slot_match - visit: whether it is this one; YES ends the look */
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

/* in_flight - a handler has it, or its worker died with it */
static void in_flight(struct search *s)
{
    const struct custody_seen *m = &s->slot;
    char time[DURATION_TEXT], start[START_TEXT];

    put(s, "attempt", json_integer(m->w.attempt));
    put(s, "pid", m->pgid ? json_integer(m->pgid) : json_null());
    if (s->v.worker != SNAPSHOT_RUNS) {
        found(s, "held",
              "in custody of a dead worker, which died during attempt %" PRIu32
              ", started %s ago. The message runs again, marked redelivered, "
              "when you start a worker: %s",
              m->w.attempt, ago(m->started_ns, time),
              worker_start_text(s->v.queue, start));
        return;
    }
    found(s, "in_flight", "in flight for %s, attempt %" PRIu32,
          ago(m->started_ns, time), m->w.attempt);
    if (m->pgid)
        add(s, ", under pid %" PRId32, m->pgid);
    add(s, " of worker %d", (int)s->v.pid);
    if (m->w.flags & SLOT_REDELIVERED)
        add(s, "; redelivered, %u crashes before", m->w.crashes);
}

/* ran_before - a handler had it and ended without a verdict that counts. The
 * time of that run is known only of the last one in this slot: of a row that
 * was read back from the store it is known only that there was one. */
static void ran_before(struct search *s)
{
    const struct custody_seen *m = &s->slot;
    char time[DURATION_TEXT];

    found(s, "held", "it was started");
    if (m->w.attempt)
        add(s, " %s ago, as attempt %" PRIu32, ago(m->started_ns, time),
            m->w.attempt);
    if (m->w.crashes)
        add(s,
            ", and the worker died under it, %u time%s so far; it runs again",
            m->w.crashes, term_plural(m->w.crashes));
    else
        add(s, ", and interrupted before it was done: the worker was stopped, "
               "or ended its handler; it runs again");
    add(s, ", marked redelivered");
}

/* not_begun - no handler has had it this time */
static void not_begun(struct search *s)
{
    const struct custody_seen *m = &s->slot;
    char time[DURATION_TEXT];

    if (m->w.attempt)
        found(s, "held",
              "received %s ago; its handler could not be started, or ended "
              "before it took it; it is tried again",
              ago(m->received_ns, time));
    else if (m->failures)
        found(s, "held",
              "failed %" PRIu32 " time%s; its next attempt is due, and not "
              "started yet",
              m->failures, term_plural(m->failures));
    else
        found(s, "held", "received %s ago and not started yet",
              ago(m->received_ns, time));
}

/* held - received, and no handler has it now */
static void held(struct search *s)
{
    const struct custody_seen *m = &s->slot;
    bool again = m->w.flags & SLOT_REDELIVERED;
    char start[START_TEXT];

    put(s, "redelivered", json_boolean(again));
    if (again)
        ran_before(s);
    else
        not_begun(s);
    if (s->v.worker != SNAPSHOT_RUNS)
        add(s,
            "; no worker is running. The message runs when you start one: %s",
            worker_start_text(s->v.queue, start));
    else if (snapshot_why(&s->v) && !snapshot_full(&s->v))
        add(s, "; nothing more is started now: %s", snapshot_why(&s->v));
    if (m->group[0]) {
        add(s, "; it waits in group %s", m->group);
        put(s, "group", json_string(m->group));
        behind(s, m->group);
    }
}

/* custody_search - slots go first: a slot may be a run of a row */
static bool custody_search(struct search *s)
{
    char path[PATH_MAX];
    struct problem p;
    int err = runtimedir_file(&s->v.dir, RUNTIMEDIR_CUSTODY, path, &p);

    if (!err)
        err = custody_look(path, slot_match, s, &p);
    if (err != YES && snapshot_unread(err))
        s->unseen = p;
    if (err != YES)
        return false;
    s->id = s->slot.id;
    s->named = true;
    put(s, "failures", json_integer(s->slot.failures));
    put(s, "crashes", json_integer(s->slot.w.crashes));
    if (s->slot.w.state == SLOT_RUNNING)
        in_flight(s);
    else
        held(s);
    return true;
}

/* ---- the store ---- */

/* How the last attempt ended. */
struct last {
    char error[ERROR_TEXT], text[ERROR_TEXT];
};

/* attempt_last - visit: the last one stays */
static int attempt_last(unsigned n, const struct store_attempt *a, void *arg)
{
    struct last *last = arg;

    (void)n;
    strlcpy(last->error, a->error ? a->error : "", sizeof last->error);
    error_text(last->text, a->error, a->said,
               a->stderr_tail ? a->stderr_tail : "", a->stderr_size);
    return 0;
}

/* waiting - for its time */
static void waiting(struct search *s, const struct store_row *m,
                    const char *error)
{
    char when[SEARCH_UNTIL], start[START_TEXT];

    until(m->due_ns, when);
    put(s, "due_at_ns", json_integer((json_int_t)m->due_ns));
    if (m->flags & STORE_CANCELLED) {
        found(s, "cancelled",
              "cancelled: it does not run, and ends as discarded as soon as a "
              "worker takes it");
        return;
    }
    if (m->attempts == 0 && m->due_ns <= clock_wall_ns())
        found(s, "waiting",
              "in the store and due: it runs as soon as a worker takes it");
    else if (m->attempts == 0 && m->flags & STORE_REDELIVERED)
        found(s, "waiting", "waits until %s", when);
    else if (m->attempts == 0)
        found(s, "waiting", "waits until %s, as its not-before says", when);
    else
        found(s, "waiting",
              "failed %" PRIu32 " time%s, the last with %s, and waits until "
              "%s for its next attempt",
              m->attempts, term_plural(m->attempts),
              *error ? error : "no error", when);
    if (m->crashes)
        add(s, "; a worker died under it, %" PRIu32 " time%s", m->crashes,
            term_plural(m->crashes));
    if (m->flags & STORE_REDELIVERED)
        add(s, "; it had been started without an end, and runs again, marked "
               "redelivered");
    if (s->v.worker != SNAPSHOT_RUNS)
        add(s, "; no worker is running, start one: %s",
            worker_start_text(s->v.queue, start));
}

/* letter - dead, or on its way again */
static void letter(struct search *s, const struct store_row *m,
                   const char *error)
{
    char when[TIME_TEXT];

    time_print(m->died_ns, when);
    put(s, "reason", json_string(dead_reason_text(m->reason)));
    put(s, "died_at", json_string(when));
    term_time(m->died_ns, when);
    if (m->state == STORE_REPLAYED)
        found(s, "replayed",
              "died at %s and was replayed: it is in the queue, which has %ld "
              "message%s; details: mqdlq show %s %" PRId64,
              when, s->v.depth, term_plural((uint64_t)s->v.depth),
              SHELL_QUEUE(s->v.queue), m->row);
    else
        found(s, "dead",
              "dead since %s, because %s%s%s, after %" PRIu32 " failed "
              "attempt%s; mqdlq show %s %" PRId64 " tells all, mqdlq replay %s "
              "%" PRId64 " sends it again",
              when, dead_reason_text(m->reason), *error ? ": " : "", error,
              m->attempts, term_plural(m->attempts), SHELL_QUEUE(s->v.queue),
              m->row, SHELL_QUEUE(s->v.queue), m->row);
}

/* row_tell - a row, by its state */
static void row_tell(struct search *s, const struct store_row *m,
                     const char *group)
{
    struct last last = {"", ""};
    char error[ERROR_JOINED];

    (void)letters_history(s->store, m->row, attempt_last, &last);
    error_text_join(error, sizeof error, last.error, last.text);
    put(s, "row", json_integer(m->row));
    put(s, "failures", json_integer(m->attempts));
    put(s, "crashes", json_integer(m->crashes));
    put(s, "error", *last.error ? json_string(last.error) : json_null());
    put(s, "error_text", *last.text ? json_string(last.text) : json_null());
    if (m->group)
        put(s, "group", json_stringn(group, m->group_size));
    if (m->state == STORE_WAITING) {
        waiting(s, m, error);
    } else if (m->state != STORE_PARKED) {
        letter(s, m, error);
    } else if (m->flags & STORE_CANCELLED) {
        found(s, "cancelled",
              "cancelled: it does not run, and ends as discarded when the turn "
              "of its group comes to it");
    } else {
        found(s, "parked", "waits in the store for its turn in its group %s",
              group);
        behind(s, group);
    }
}

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
    if (snapshot_unread(err))
        store_unseen(s, err);
    if (err)
        return false;
    s->id = m.id;
    s->named = true;
    if (m.group)
        group[m.group_size] = '\0';
    row_tell(s, &m, group);
    return true;
}

/* ---- gone ---- */

/* discarded_why - by whom; a handler's reason is in the log alone */
static void discarded_why(struct search *s, enum counters_end end)
{
    bool cancelled = end == COUNTERS_CANCELLED;

    put(s, "reason", json_string(cancelled ? "cancelled" : "duplicate"));
    add(s, cancelled ? ": an operator cancelled it"
                     : ": a duplicate, as another message had its unique key; "
                       "the log of the worker names that one");
}

static bool journal_search(struct search *s)
{
    static const char *const ends[] = {
        [COUNTERS_NO_END] = "gone",         [COUNTERS_DONE] = "done",
        [COUNTERS_DISCARDED] = "discarded", [COUNTERS_DUPLICATE] = "discarded",
        [COUNTERS_CANCELLED] = "discarded",
    };
    char when[TIME_TEXT], time[DURATION_TEXT];
    enum counters_end end;
    uint64_t at;

    if (s->named && snapshot_unread(s->v.counters_err) && !s->unseen.status)
        s->unseen = s->v.no_counters;
    if (!s->v.counters || !s->named ||
        !counters_find(s->v.counters, &s->id, &end, &at))
        return false;
    put(s, "ended_at", json_string(time_print(at, when)));
    term_time(at, when);
    if (end == COUNTERS_DEAD)
        found(s, "removed", "died at %s, and its letter has been removed since",
              when);
    else
        found(s, ends[end], "%s at %s, %s ago", ends[end], when, ago(at, time));
    if (end > COUNTERS_DEAD)
        discarded_why(s, end);
    return true;
}

/* unknown - name the cases that are left. A number tells nothing of a message
 * once its letter is gone. */
static void unknown(struct search *s)
{
    if (s->unseen.status) {
        found(s, "unseen", "not found, but %s", s->unseen.text);
        return;
    }
    if (!s->named) {
        found(s, "unknown",
              "there is no letter of that number, or no longer: a letter that "
              "was discarded, or sent again and done, is gone; ask by the "
              "message's id of 26 characters what became of it: mqctl explain "
              "%s ID",
              SHELL_QUEUE(s->v.queue));
        return;
    }
    found(s, "unknown",
          "nothing is known of it: it was never sent, or sent under another "
          "id, or ended before the last %d that the worker remembers",
          COUNTERS_JOURNAL);
    if (s->v.depth > 0)
        add(s,
            "; or it is in the queue, which has %ld message%s and cannot be "
            "looked into",
            s->v.depth, term_plural((uint64_t)s->v.depth));
    if (s->v.depth > 0 && snapshot_why(&s->v))
        add(s, "; the worker takes none of these now: %s", snapshot_why(&s->v));
}

/* ---- the verb ---- */

/* Parse a message id, or a row number as shown by mqdlq. */
static int id_read(struct search *s, const char *text, bool alone,
                   struct problem *p)
{
    char *end;

    if (ulid_parse(text, strlen(text), &s->id) == 0) {
        s->named = true;
        return 0;
    }
    errno = 0;
    s->row = strtoll(text, &end, 10);
    if (*text && !*end && !errno && s->row > 0 && !alone)
        return 0;
    return problem_set(
        p, EX_USAGE, EINVAL,
        alone ? "explain: \"%.64s\" is not an id; give the 26 characters of a "
                "message's id, or a queue and the number that mqdlq list shows"
              : "explain: \"%.64s\" is not an id; give the 26 characters of a "
                "message's id, or the number that mqdlq list shows",
        text);
}

static bool is_known(const struct search *s)
{
    return s->where && strcmp(s->where, "unknown") != 0 &&
           strcmp(s->where, "unseen") != 0;
}

/* Print the answer in the requested form; returns an exit status. */
static int tell(struct search *s, const struct options *o)
{
    bool alone = o->line.operand_count == 1; /* then the user does not know the
                                                queue yet */
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
    } else if (is_known(s)) {
        printf("%s%s%s: ", id, alone ? " of " : "", alone ? s->v.queue : "");
        safe_text(stdout, s->text, strlen(s->text), true);
        putchar('\n');
    } else {
        complain(0, "%s: %s", id, s->text);
    }
    return is_known(s) ? 0 : s->unseen.status ? s->unseen.status : EX_NOINPUT;
}

/* Search the places one by one; `store_err` is the reason if there is no
 * store. */
static bool look(struct search *s, int store_err)
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
    int err = snapshot_open_uncounted(&s->v, o->state_dir, queue, p);

    if (err)
        return err;
    s->more = json_object();
    err = snapshot_store(&s->v, &s->store);
    /* One pass may miss a message that is moving between two places. */
    if (s->v.has_folder && !look(s, err) && !look(s, err))
        unknown(s);
    return 0;
}

static void search_close(struct search *s)
{
    store_close(&s->store);
    json_decref(s->more);
    snapshot_close(&s->v);
}

/* Search all queues with a folder until the message is found. */
static int explain_anywhere(const struct options *o, const struct search *what)
{
    struct queue_list n = {0};
    static struct search s;
    struct problem p, unseen = {0};
    int status = -1;
    size_t i = 0;

    if (queue_list_of_workers(&n, o->state_dir) < 0)
        return complain_memory();
    for (; i < n.count && status < 0; i++) {
        s = *what;
        if (search_open(&s, o, n.at[i], &p) < 0)
            continue;
        if (is_known(&s))
            status = tell(&s, o);
        else if (s.unseen.status || s.v.shut)
            unseen = s.v.shut ? s.v.no_store : s.unseen;
        search_close(&s);
    }
    if (n.folder_trouble[0])
        status = complain(EX_CANTCREAT, "%s", n.folder_trouble);
    else if (status < 0 && unseen.status)
        status = complain(unseen.status, "%s: not found, but %s",
                          o->line.operands[0], unseen.text);
    else if (status < 0)
        status =
            complain(EX_NOINPUT,
                     "%s: not found in %zu queue%s of the state directory. A "
                     "message that no worker has received yet cannot be found",
                     o->line.operands[0], n.count, term_plural(n.count));
    queue_list_free(&n);
    return status;
}

/* explain_run - custody, store, journal, spool */
int explain_run(const struct options *o)
{
    bool alone = o->line.operand_count == 1;
    static struct search s;
    struct problem p;
    int status;

    s = (struct search){0};
    if (id_read(&s, o->line.operands[alone ? 0 : 1], alone, &p) < 0)
        return complain_of(&p);
    if (alone)
        return explain_anywhere(o, &s);
    if (search_open(&s, o, o->line.operands[0], &p) < 0)
        return complain_of(&p);
    status = s.v.has_folder
                 ? tell(&s, o)
                 : complain(s.v.shut ? s.v.no_store.status : EX_NOINPUT,
                            "%s: %s", s.v.queue, s.v.no_store.text);
    search_close(&s);
    return status;
}

/* messages.c - run-now, cancel (see mqctl.h)
 *
 * A worker that runs carries out the order: it knows what it has in flight.
 * Without a worker the store is written here, and no worker can come between:
 * whether one runs is asked inside the transaction, and a worker that starts
 * takes its lock first and then waits for the store (store_claim). A row of the
 * spool is named by its key, with a minus. All rows of the spool are due, so
 * run-now has nothing to do with them. Those that a killed worker had ended are
 * left alone, and counted; all of them are if that is not known. A message in a
 * slot is cancelled by its worker. In the slot of a killed worker it is left
 * alone: the next start decides about it, and ends the handler that may still
 * be at work. A message that runs is left alone, or, with --running, ended with
 * its handler after all that wait have been dealt with: below.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>
#include <bsd/stdlib.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/cli/complain.h"
#include "common/cli/json_line.h"
#include "common/cli/term.h"
#include "common/message/steered.h"
#include "common/state/counters.h"
#include "common/state/runtimedir.h"
#include "common/state/statedir.h"
#include "common/store/spool.h"
#include "scripts/mqctl/ask.h"
#include "scripts/mqctl/look/messages.h"

#define BATCH 64 /* rows of one commit, and of one request */

#define SPOOLED "spool-" /* before a key of the spool, as in a cursor */

struct steered_sums {
    uint64_t chosen, result[STEERED_RESULTS];
    uint64_t spooled; /* left alone: nobody knows whether they have run */
    uint64_t slots;   /* left alone: in a slot of a killed worker */
    uint64_t runs;    /* left alone: a handler has them */
    uint64_t letters; /* left alone: letters that were sent again */
    /* To run now: those for which there was nothing to do, by their state. */
    uint64_t waits[WAITING_STATES];
    uint64_t unended;   /* --running: messages that have not ended */
    uint64_t told_gone; /* gone messages already reported by name */
    bool blind;         /* nobody knows which rows are in a slot */
};

struct run {
    struct ulid id;
    uint64_t started_ns; /* wall; of the run that was chosen */
    bool runs;           /* at the last look */
    unsigned looks;      /* since it has left its slot */
};

struct runs {
    struct run *at; /* those of which it is not known yet how they ended */
    size_t count, room;
    uint64_t cancelled, ended; /* how many; the latter by themselves */
};

struct order {
    const struct options *o;
    struct messages m;
    bool cancel;
    int64_t rows[BATCH];
    bool skip[BATCH], ran[BATCH]; /* of no worker: begun; ended */
    size_t count;
    struct waiting_steer write; /* the batch, as it is written */
    struct steered_sums sums;
    struct runs running; /* to be cancelled with their handlers */
    struct ulid *absent; /* named, and neither in a slot nor a row */
    size_t absent_count;
    int status; /* the first trouble */
};

/* ---- orders to the worker that runs ---- */

/* Read the result of each message; false if this is no such answer. */
static bool results_read(const json_t *answer, size_t count, enum steered *out)
{
    const json_t *all = json_object_get(answer, "results");

    if (json_array_size(all) != count)
        return false;
    for (size_t i = 0; i < count; i++) {
        out[i] = steered_parse(json_string_value(json_array_get(all, i)));
        if (out[i] == STEERED_RESULTS)
            return false;
    }
    return true;
}

/* Send one request. -EAGAIN: no worker runs any more. -EIO: the reason is out
 * on stderr, and *status is the exit status. */
static int order_send(const struct messages *m, const char *line, size_t count,
                      enum steered *out, int *status)
{
    struct problem p = {0};
    json_t *answer;
    const char *why;
    int err = 0;

    if (ask(&m->dir, m->queue, line, &answer, &p) < 0) {
        if (ask_runs(&m->dir) == 0)
            return -EAGAIN;
        *status = complain_of(&p);
        return -EIO;
    }
    if (!json_is_true(json_object_get(answer, "ok")) ||
        !results_read(answer, count, out)) {
        why = json_string_value(json_object_get(answer, "error"));
        *status = complain(EX_TEMPFAIL, "%s", why ? why : "no answer");
        err = -EIO;
    }
    json_decref(answer);
    return err;
}

/* ---- messages that run, cancelled with their handlers ---- */

/* The order is given again at each look, to whatever runs still: a process that
 * was just about to be started was not there to be ended. So no answer of the
 * worker says what became of a message; custody does, and the journal: a
 * message counts as cancelled when the journal says that it was discarded,
 * which the worker writes once that is durable. */

#define PAUSE    (20 * NS_PER_MS) /* between two looks */
#define PATIENCE (60 * NS_PER_S)  /* for --kill-after, and the disk */
#define LOOKS    10               /* for the journal, once a slot is free */

/* ---- one look ---- */

/* run_seen - visit: a slot; one of those that are waited for runs still */
static int run_seen(const struct custody_seen *c, void *arg)
{
    struct runs *r = arg;

    for (size_t i = 0; i < r->count && c->w.state == SLOT_RUNNING; i++)
        if (memcmp(&r->at[i].id, &c->id, sizeof c->id) == 0)
            r->at[i].runs = true;
    return 0;
}

/* journal_look - how the others ended, and count them; those of which nothing
 * is written yet stay, for some more looks */
static void journal_look(struct runs *r, const struct messages *m)
{
    struct counters *c = NULL;
    char path[PATH_MAX];
    struct problem p;
    size_t n = 0;

    if (runtimedir_file(&m->dir, RUNTIMEDIR_COUNTERS, path, &p) == 0)
        (void)counters_attach(&c, path, &p);
    for (size_t i = 0; i < r->count; i++) {
        struct run *run = &r->at[i];
        enum counters_end end;
        uint64_t wall_ns;

        if (!run->runs && c && counters_find(c, &run->id, &end, &wall_ns) &&
            wall_ns >= run->started_ns) {
            r->cancelled += end == COUNTERS_CANCELLED;
            r->ended += end != COUNTERS_CANCELLED;
            continue;
        }
        run->looks += !run->runs;
        r->at[n++] = *run;
    }
    r->count = n;
    counters_close(&c);
}

/* waits - whether another look may tell more */
static bool waits(const struct runs *r)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->at[i].runs || r->at[i].looks < LOOKS)
            return true;
    return false;
}

/* ---- the order ---- */

/* Ask the worker to end up to BATCH messages from `from` on. Returns 0 or the
 * exit status. The journal has more about a worker that ends meanwhile. */
static int running_order(const struct runs *r, size_t from,
                         const struct messages *m)
{
    char line[STATEDIR_REQUEST], text[ULID_TEXT];
    struct problem p;
    const char *why;
    json_t *answer;
    int status = 0, err;
    int n = snprintf(line, sizeof line, "cancel-running");

    for (size_t i = from; i < r->count && i < from + BATCH; i++)
        n += snprintf(line + n, sizeof line - (size_t)n, " %s",
                      ulid_print(r->at[i].id, text));
    err = ask(&m->dir, m->queue, line, &answer, &p);
    if (err == -ENOENT || err == -ECONNREFUSED || ask_runs(&m->dir) == 0) {
        json_decref(answer);
        return 0;
    }
    if (err)
        return complain_of(&p);
    if (!json_is_true(json_object_get(answer, "ok"))) {
        why = json_string_value(json_object_get(answer, "error"));
        status = (int)json_integer_value(json_object_get(answer, "status"));
        status = complain(status ? status : EX_TEMPFAIL, "%s",
                          why ? why : "no answer");
    }
    json_decref(answer);
    return status;
}

/* The rest that is in `at` after it runs still, or failed by itself. */
static int running_cancel(struct runs *r, const struct messages *m)
{
    uint64_t until = ns_add(clock_mono_ns(), PATIENCE);
    const struct timespec pause = {.tv_nsec = PAUSE};
    char path[PATH_MAX];
    struct problem p;
    bool runs = true;
    int status = 0;

    while (!status && runs && waits(r) && clock_mono_ns() < until) {
        for (size_t i = 0; i < r->count && !status; i += BATCH)
            status = running_order(r, i, m);
        runs = ask_runs(&m->dir) != 0; /* what it wrote is seen after this */
        for (size_t i = 0; i < r->count; i++)
            r->at[i].runs = false; /* without custody none of them does */
        if (runtimedir_file(&m->dir, RUNTIMEDIR_CUSTODY, path, &p) == 0)
            (void)custody_look(path, run_seen, r, &p);
        journal_look(r, m);
        if (!status && runs && waits(r))
            nanosleep(&pause, NULL);
    }
    if (!status && !runs && r->count)
        status = complain(EX_TEMPFAIL,
                          "the worker of %s ended meanwhile; %zu of the "
                          "messages %s kept for the next one; give the same "
                          "order again",
                          m->queue, r->count, r->count == 1 ? "is" : "are");
    return status;
}

/* ---- a batch ---- */

/* Return true if no worker runs; then none can take or end anything before the
 * commit. Called in the transaction. Marks the rows that are to be left alone:
 * a slot of the killed worker has them, or they are in the spool and have come
 * to their end. */
static bool no_worker(void *arg)
{
    struct order *x = arg;
    int err;

    if (ask_runs(&x->m.dir) != 0)
        return false;
    if (!x->cancel)
        return true;
    err = messages_in_slots(&x->m, x->rows, x->count, x->skip);
    x->sums.blind = err == -ENOENT;
    if (messages_spooled_ran(&x->m, x->rows, x->count, x->ran))
        x->write.most = INT64_MAX;
    for (size_t i = 0; i < x->count; i++)
        x->skip[i] = x->skip[i] || x->ran[i] || (err && err != -ENOENT);
    return true;
}

/* Print that there is no such message. */
static void gone_tell(struct order *x, const char *name)
{
    x->sums.told_gone++;
    if (!x->o->json)
        complain(0, "%s: no such waiting or running message", name);
}

/* Count the result of a row, and print a line if a named message is gone. */
static void row_result(struct order *x, int64_t row, enum steered is)
{
    char name[32];

    x->sums.result[is]++;
    if (is != STEERED_GONE || x->o->line.operand_count == 1)
        return;
    snprintf(name, sizeof name, "%s%" PRId64, row < 0 ? SPOOLED : "",
             row < 0 ? -row : row);
    gone_tell(x, name);
}

/* write_here - without a worker; -EAGAIN: one runs now */
static int write_here(struct order *x)
{
    enum steered out[BATCH];
    int err;

    memset(x->skip, 0, sizeof x->skip);
    memset(x->ran, 0, sizeof x->ran);
    x->write = (struct waiting_steer){.cancel = x->cancel,
                                      .rows = x->rows,
                                      .count = x->count,
                                      .skip = x->skip,
                                      .now_ns = clock_wall_ns(),
                                      .may = no_worker,
                                      .arg = x};
    err = waiting_steer(x->m.store, &x->write, out);
    if (err == -EAGAIN)
        return err;
    if (err) {
        x->status =
            complain(disk_is_full(err) ? EX_CANTCREAT : EX_IOERR,
                     "the store cannot be written: %s", errno_text(-err));
        return err;
    }
    for (size_t i = 0; i < x->count; i++) {
        bool alone = out[i] == STEERED_IN_FLIGHT, spool = x->rows[i] < 0;

        if (alone && spool && x->ran[i])
            row_result(x, x->rows[i], STEERED_GONE);
        else if (alone && spool && !x->skip[i])
            x->sums.spooled++;
        else
            row_result(x, x->rows[i], out[i]);
        x->sums.slots += alone && x->skip[i] && !x->ran[i];
    }
    return 0;
}

/* ask_worker - the one that runs; -EAGAIN: none does any more */
static int ask_worker(struct order *x)
{
    enum steered out[BATCH] = {0}; /* order_send fills it */
    char line[STATEDIR_REQUEST];
    int n = snprintf(line, sizeof line, x->cancel ? "cancel" : "run-now"), err;

    for (size_t i = 0; i < x->count; i++)
        n += snprintf(line + n, sizeof line - (size_t)n, " %" PRId64,
                      x->rows[i]);
    err = order_send(&x->m, line, x->count, out, &x->status);
    for (size_t i = 0; i < x->count && !err; i++)
        row_result(x, x->rows[i], out[i]);
    return err;
}

/* turns - it starts and ends while we look */
static int turns(struct order *x)
{
    x->status = complain(EX_TEMPFAIL,
                         "a worker of %s starts or ends just now; give the "
                         "order again",
                         x->m.queue);
    return -EIO;
}

/* batch_end - all that were collected; 0, or x->status is set */
static int batch_end(struct order *x)
{
    int err = 0;

    if (x->count && !x->o->dry_run) {
        err = x->m.runs ? ask_worker(x) : write_here(x);
        if (err == -EAGAIN) /* it has ended, or one has begun */
            err = x->m.runs ? write_here(x) : ask_worker(x);
        if (err == -EAGAIN)
            err = turns(x);
    }
    x->count = 0;
    return err;
}

/* row_take - one more, of which it is known that no slot has it */
static int row_take(struct order *x, int64_t row)
{
    x->rows[x->count++] = row;
    return x->count == BATCH ? batch_end(x) : 0;
}

/* state_take - run-now has nothing to do with one in that state */
static int state_take(struct order *x, enum waiting_state state)
{
    x->sums.result[state == WAITING_RUNNING ? STEERED_IN_FLIGHT
                                            : STEERED_BEFORE]++;
    x->sums.waits[state]++;
    return 0;
}

/* state_keep - visit: of a row */
static int state_keep(const struct waiting_row *w, void *arg)
{
    *(enum waiting_state *)arg = w->state;
    return 0;
}

/* named_take - a row, or a key of the spool with a minus, that was named
 * Whether a row is due is for the worker to say, which counts delays by a clock
 * that nobody sets: after a step of the wall clock ours says something else. */
static int named_take(struct order *x, int64_t row)
{
    enum waiting_state state = WAITING_DELAYED;
    bool spooled = row < 0 && store_spool_find(x->m.store, -row, NULL) == 0;
    int err = 0;

    if (row > 0)
        err = waiting_get(x->m.store, row, &x->m.filter, state_keep, &state);
    if (err && err != -ENOENT)
        return err;
    if (x->o->dry_run && (err || (row < 0 && !spooled))) {
        row_result(x, row, STEERED_GONE);
        return 0;
    }
    if (x->cancel || err)
        return row_take(x, row);
    if (spooled)
        return state_take(x, WAITING_SPOOLED);
    if (state != WAITING_DELAYED && state != WAITING_RETRY &&
        state != WAITING_READY)
        return state_take(x, state);
    return row_take(x, row);
}

/* run_take - a handler has it: it is left alone, unless it is to be ended, and
 * can be named to the worker */
static int run_take(struct order *x, const struct custody_seen *c)
{
    static const struct ulid none;
    struct runs *r = &x->running;
    struct run *at;

    if (x->cancel && x->o->running && memcmp(&c->id, &none, sizeof none) != 0) {
        at = array_grow(r->at, r->count, &r->room, sizeof *at);
        if (!at)
            return -ENOMEM;
        r->at = at;
        at[r->count++] = (struct run){.id = c->id, .started_ns = c->started_ns};
        return 0;
    }
    x->sums.result[STEERED_IN_FLIGHT]++;
    x->sums.runs++;
    return 0;
}

/* Return true if the message is a letter of this store that was sent again, or
 * a copy of one: mqdlq ends it. */
static bool slot_is_letter(const struct messages *m,
                           const struct custody_seen *c)
{
    const unsigned needed = HEADER_ID | HEADER_LETTER | HEADER_LETTER_TOKEN;
    const struct header *h = &c->header;
    enum store_replay is = REPLAY_NONE;

    if ((h->fields & needed) != needed || !m->store)
        return false;
    return store_replay_find(m->store, (int64_t)h->letter, &h->id,
                             &h->letter_token, &is) < 0 ||
           is != REPLAY_NONE;
}

/* Deal with a message that was in a slot. */
static int slot_take(struct order *x, const struct slot_seen *s)
{
    char line[STATEDIR_REQUEST], hex[2 * HEADER_VALUE_MAX + 1];
    enum steered is = STEERED_IN_FLIGHT;
    int err;

    if (!x->cancel)
        return state_take(x, s->state);
    if (s->state == WAITING_RUNNING)
        return run_take(x, &s->c);
    if (!x->m.runs) {
        x->sums.result[STEERED_IN_FLIGHT]++;
        x->sums.slots++;
        return 0;
    }
    if (x->o->dry_run)
        return 0;
    snprintf(line, sizeof line, "cancel-lent %" PRIu64 " %s", s->c.seq,
             hex_print(s->c.group, strlen(s->c.group), hex));
    err = order_send(&x->m, line, 1, &is, &x->status);
    if (err)
        return err == -EAGAIN ? turns(x) : err;
    if (is == STEERED_IN_FLIGHT && slot_is_letter(&x->m, &s->c))
        x->sums.letters++;
    else if (is == STEERED_IN_FLIGHT && x->o->running)
        return run_take(x, &s->c); /* it was about to run */
    x->sums.result[is]++;
    return 0;
}

/* message_take - visit: a message of the filter */
static int message_take(const struct message_seen *seen, void *arg)
{
    struct order *x = arg;

    if (x->o->limit && x->sums.chosen == x->o->limit)
        return VISIT_ENOUGH;
    x->sums.chosen++;
    if (seen->in_slot)
        return slot_take(x, seen->slot);
    if (seen->state == WAITING_SPOOLED)
        return row_take(x, -messages_spooled_key(seen));
    return row_take(x, seen->row);
}

/* ---- ids ---- */

/* slot_find - the slot of a message, by its id or its row; NULL: none has it */
static const struct slot_seen *slot_find(const struct order *x,
                                         const struct ulid *id, int64_t row)
{
    for (size_t i = 0; i < x->m.count; i++) {
        const struct custody_seen *c = &x->m.slots[i].c;

        if (id ? memcmp(&c->id, id, sizeof *id) == 0 : c->row == row)
            return &x->m.slots[i];
    }
    return NULL;
}

/* id_find - the row of an id that was given, or the slot that has it; -ENOENT
 */
static int id_find(struct order *x, const char *text, int64_t *row,
                   const struct slot_seen **slot)
{
    const char *trouble = NULL;
    struct ulid id;
    bool named = ulid_parse(text, strlen(text), &id) == 0;

    *row = 0;
    *slot = NULL;
    /* Whether a slot has it is for the worker, or the store, to say. */
    if (strncmp(text, SPOOLED, strlen(SPOOLED)) == 0) {
        *row = -strtonum(text + strlen(SPOOLED), 1, INT64_MAX, &trouble);
        return trouble ? -EINVAL : x->m.store ? 0 : -ENOENT;
    }
    if (named)
        *slot = slot_find(x, &id, 0);
    if (*slot)
        return 0;
    if (!named) {
        *row = strtonum(text, 1, INT64_MAX, &trouble);
    } else if (!x->m.store || store_find_id(x->m.store, &id, row) != 0) {
        x->absent[x->absent_count++] = id;
        return -ENOENT;
    }
    if (trouble)
        return -EINVAL;
    *slot = slot_find(x, NULL, *row);
    return x->m.store ? 0 : -ENOENT;
}

/* absent_find - visit: a message of the spool that was named is not gone */
static int absent_find(const struct message_seen *seen, void *arg)
{
    struct order *x = arg;

    for (size_t i = 0; i < x->absent_count; i++) {
        if (memcmp(&x->absent[i], &seen->id, sizeof seen->id) != 0)
            continue;
        x->absent[i] = x->absent[--x->absent_count];
        x->sums.result[STEERED_GONE]--;
        if (named_take(x, -messages_spooled_key(seen)) < 0)
            return -EIO;
        break;
    }
    return x->absent_count == 0;
}

/* ids_take - the messages that the operands name */
static int ids_take(struct order *x)
{
    const struct options *o = x->o;
    const struct slot_seen *slot;
    char id[ULID_TEXT];
    int64_t row;
    int err = 0;

    x->absent = calloc((size_t)o->line.operand_count, sizeof *x->absent);
    if (!x->absent)
        return -ENOMEM;
    for (int i = 1; i < o->line.operand_count && !err; i++) {
        const char *text = o->line.operands[i];
        size_t before = x->absent_count;

        err = id_find(x, text, &row, &slot);
        if (err == -EINVAL) {
            x->status =
                complain(EX_USAGE,
                         "\"%.64s\" is not an id; give the 26 characters of a "
                         "message's id, the number of its row, or the "
                         "spool-KEY that list --json has of it",
                         text);
            break;
        }
        x->sums.chosen++;
        if (err == -ENOENT) {
            x->sums.result[STEERED_GONE]++;
            if (x->absent_count == before)
                gone_tell(x, text);
            err = 0;
        } else {
            err = slot ? slot_take(x, slot) : named_take(x, row);
        }
    }
    if (!err && x->absent_count) {
        x->m.filter.states = WAITING_BIT(WAITING_SPOOLED);
        err = messages_spooled_each(&x->m, 0, absent_find, x);
    }
    for (size_t i = 0; err >= 0 && i < x->absent_count; i++)
        gone_tell(x, ulid_print(x->absent[i], id));
    return err;
}

/* ---- what is printed ---- */

/* of - "2 are", "1 is" */
#define IS(n) (n), (n) == 1 ? "is" : "are"
#define S(n)  (n), (n) == 1 ? "s" : ""

/* waits_tell - of run-now: those that cannot be due sooner; `due`: rows that
 * were, by the clock that counts */
static void waits_tell(const struct steered_sums *n, const struct messages *m,
                       uint64_t due)
{
    const uint64_t *at = n->waits;
    uint64_t ready = at[WAITING_READY] + due;

    if (at[WAITING_RUNNING])
        complain(0, "%" PRIu64 " run%s already, in flight",
                 S(at[WAITING_RUNNING]));
    if (ready)
        complain(0, "%" PRIu64 " %s due already; %s", IS(ready),
                 m->runs ? "mqctl status says why nothing is taken, if it "
                           "does not run soon"
                         : "start a worker");
    if (at[WAITING_SPOOLED])
        complain(0,
                 "%" PRIu64 " in the spool: each runs when those before it "
                 "have; a delayed one of a group waits for its time after "
                 "that: run-now once list has it as delayed",
                 at[WAITING_SPOOLED]);
    if (at[WAITING_PARKED])
        complain(0,
                 "%" PRIu64 " wait%s behind the head of a group; mqctl groups "
                 "%s names it: run-now or cancel that",
                 S(at[WAITING_PARKED]), SHELL_QUEUE(m->queue));
    if (at[WAITING_HELD])
        complain(0,
                 "%" PRIu64 " wait%s for a dead letter of a group; mqctl group "
                 "%s KEY release lets the group go on without it",
                 S(at[WAITING_HELD]), SHELL_QUEUE(m->queue));
}

/* Print why messages in flight were not cancelled, and what to do. */
static void flight_tell(const struct steered_sums *n, const struct messages *m,
                        const struct options *o)
{
    uint64_t moving =
        n->result[STEERED_IN_FLIGHT] - n->runs - n->slots - n->letters;
    char start[START_TEXT];

    if (n->runs && o->running)
        complain(0, "%" PRIu64 " in flight, left alone; give the order again",
                 n->runs);
    else if (n->runs)
        complain(0,
                 "%" PRIu64 " in flight, left alone, as a handler has %s; end "
                 "it with --running",
                 n->runs, n->runs == 1 ? "it" : "them");
    if (n->slots)
        complain(0,
                 "%" PRIu64 " in flight when the worker was killed, left "
                 "alone; start the worker first: %s; then cancel again",
                 n->slots, worker_start_text(m->queue, start));
    if (n->letters)
        complain(0,
                 "%" PRIu64 " in flight %s a letter that was sent again; mqdlq "
                 "list --replayed %s has its number, mqdlq discard ends it",
                 IS(n->letters), SHELL_QUEUE(m->queue));
    if (moving)
        complain(0,
                 "%" PRIu64 " in flight to a handler or to the store just now, "
                 "left alone; give the order again",
                 moving);
}

/* others_tell - those that were not steered, and what to do */
static void others_tell(const struct steered_sums *n, const struct messages *m,
                        const struct options *o)
{
    bool cancel = o->line.verb == VERB_CANCEL;
    uint64_t before = n->result[STEERED_BEFORE];

    for (int i = 0; !cancel && i < WAITING_STATES; i++)
        before -= i == WAITING_RUNNING ? 0 : n->waits[i];
    if (!cancel)
        waits_tell(n, m, before);
    else if (before)
        complain(0, "%" PRIu64 " cancelled already", before);
    if (n->result[STEERED_GONE] > n->told_gone)
        complain(0, "%" PRIu64 " finished in the meantime",
                 n->result[STEERED_GONE] - n->told_gone);
    if (cancel)
        flight_tell(n, m, o);
    if (n->unended && !o->dry_run)
        complain(0,
                 "%" PRIu64 " run%s still, or failed meanwhile; see mqctl "
                 "list, and cancel again",
                 S(n->unended));
    if (n->spooled)
        complain(0,
                 "%" PRIu64 " in the spool, left alone: the killed worker has "
                 "run them, or may have; start the next one, and cancel again "
                 "what is listed then",
                 n->spooled);
    if (n->blind && n->result[STEERED])
        complain(0, "the file of the messages in flight is gone: unless the "
                    "machine was restarted since, a handler of the last worker "
                    "may be at work on a message that was cancelled");
}

/* Print the numbers, and for those that were left alone why, and what to do. */
static void steered_tell(const struct steered_sums *n, const struct messages *m,
                         const struct options *o)
{
    bool cancel = o->line.verb == VERB_CANCEL;
    uint64_t done = n->result[STEERED];

    if (o->dry_run)
        done = n->chosen - n->result[STEERED_IN_FLIGHT] -
               n->result[STEERED_BEFORE] - n->result[STEERED_GONE];
    if (o->json) {
        if (json_print_line(
                json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "queue",
                          json_printable(m->queue), "chosen",
                          (json_int_t)n->chosen, "done",
                          (json_int_t)n->result[STEERED], "already",
                          (json_int_t)n->result[STEERED_BEFORE], "gone",
                          (json_int_t)n->result[STEERED_GONE], "in_flight",
                          (json_int_t)n->result[STEERED_IN_FLIGHT], "spooled",
                          (json_int_t)n->spooled, "dry_run", o->dry_run),
                stdout) < 0)
            complain_memory();
        return;
    }
    if (!o->quiet)
        printf("%s: %" PRIu64 " of %" PRIu64 " message%s %s%s\n", m->queue,
               done, n->chosen, term_plural(n->chosen),
               o->dry_run ? "would be " : "", cancel ? "cancelled" : "due now");
    others_tell(n, m, o);
}

/* ---- the verbs ---- */

/* numbers_status - an id that was named and not steered is a failure */
static int numbers_status(const struct order *x)
{
    const struct steered_sums *n = &x->sums;

    if (x->status || x->o->line.operand_count == 1)
        return x->status;
    if (n->result[STEERED_GONE])
        return EX_NOINPUT;
    return n->result[STEERED_IN_FLIGHT] || n->spooled ||
                   n->waits[WAITING_PARKED] || n->waits[WAITING_HELD] ||
                   (n->unended && !x->o->dry_run)
               ? EX_TEMPFAIL
               : 0;
}

/* states_of - what a filter chooses from; run-now has nothing to do with those
 * that are due */
static unsigned states_of(const struct options *o, bool cancel)
{
    unsigned states = o->filter.states;

    if (!o->running)
        states &= ~WAITING_BIT(WAITING_RUNNING);
    return cancel ? states
                  : states & (WAITING_BIT(WAITING_DELAYED) |
                              WAITING_BIT(WAITING_RETRY));
}

int steer_messages_run(const struct options *o)
{
    struct options all = *o;
    struct order x = {.o = o, .cancel = o->line.verb == VERB_CANCEL};
    bool by_id = o->line.operand_count > 1;
    int err, status;

    if (by_id)
        all.filter = (struct waiting_filter){.states = WAITING_ALL};
    x.status = messages_open(&x.m, &all);
    if (x.status)
        return x.status;
    x.m.filter.states = states_of(o, x.cancel);
    err = by_id ? ids_take(&x) : messages_each(&x.m, "", message_take, &x);
    if (err >= 0)
        err = batch_end(&x);
    if (err >= 0 && x.running.count && !o->dry_run) {
        status = running_cancel(&x.running, &x.m);
        if (!x.status)
            x.status = status;
        x.sums.result[STEERED] += x.running.cancelled;
        x.sums.result[STEERED_GONE] += x.running.ended; /* by itself */
    }
    if (err < 0 && !x.status)
        x.status = complain(EX_IOERR, "cannot read the messages: %s",
                            errno_text(-err));
    x.sums.unended = x.running.count;
    steered_tell(&x.sums, &x.m, o);
    messages_close(&x.m);
    free(x.running.at);
    free(x.absent);
    return numbers_status(&x);
}

/* messages.c - mqctl run-now and cancel
 *
 * main and the children of mqctl serve call steer_messages_run on their only
 * thread. A running worker carries out the order, because it knows which
 * messages it has in flight. Without a worker, mqctl writes the store itself.
 * No worker can interfere with that: the transaction checks that none is
 * running, and a starting worker takes its lock first and then waits for the
 * store (store_claim).
 *
 * The spool: its rows are named by their keys, with a minus. All of them are
 * due, so run-now leaves them alone. Without a worker, cancel counts the rows
 * that the killed worker had finished as gone; if it is unknown which rows
 * those are, cancel skips the whole spool.
 * Slots: the running worker cancels a message in a slot. A message in the slot
 * of a killed worker is skipped: the next worker decides about it, and
 * terminates its handler if that is still running. A running message is
 * skipped; --running terminates its handler, after the waiting messages.
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
    uint64_t spooled; /* skipped: it is unknown whether they have run */
    uint64_t slots;   /* skipped: in a slot of a killed worker */
    uint64_t runs;    /* skipped: a handler has them */
    uint64_t letters; /* skipped: letters that were replayed */
    /* run-now: messages that it leaves alone, by their state */
    uint64_t waits[WAITING_STATES];
    uint64_t unended;    /* --running: messages that have not ended */
    uint64_t named_gone; /* gone messages already reported by name */
    bool blind;          /* it is unknown which rows are in a slot */
};

struct run {
    struct ulid id;
    uint64_t started_ns; /* wall; of the run that was chosen */
    bool runs;           /* it was running at the last look */
    unsigned looks;      /* number of looks since it left its slot */
};

struct runs {
    struct run *at; /* runs whose end is not known yet */
    size_t count, room;
    uint64_t cancelled; /* number of runs that were cancelled */
    uint64_t ended;     /* number of runs that ended by themselves */
};

struct order {
    const struct options *o;
    struct messages m;
    bool cancel;
    int64_t rows[BATCH];
    bool skip[BATCH]; /* without a worker: rows that may not be changed */
    bool ran[BATCH];  /* the skipped rows whose message is finished */
    size_t count;
    struct waiting_steer write; /* the batch, as it is written */
    struct steered_sums sums;
    struct runs running; /* to be cancelled with their handlers */
    struct ulid *absent; /* named ids that are neither in a slot nor a row */
    size_t absent_count;
    int status; /* exit status of the first failure; 0: none */
};

/* ---- orders to the running worker ---- */

/* Send one request, and read the result of each message. Returns -EAGAIN if no
 * worker is running any more, or -EIO after an error on stderr, with the exit
 * status in *status. */
static int order_send(const struct messages *m, const char *line, size_t count,
                      enum steered *out, int *status)
{
    struct problem p = {0};
    const json_t *all;
    json_t *answer;
    const char *why;
    bool read;

    if (ask(&m->dir, m->queue, line, &answer, &p) < 0) {
        if (ask_runs(&m->dir) == 0)
            return -EAGAIN;
        *status = complain_of(&p);
        return -EIO;
    }
    all = json_object_get(answer, "results");
    read = ask_status(answer, &why) == 0 && json_array_size(all) == count;
    for (size_t i = 0; read && i < count; i++) {
        const char *text = json_string_value(json_array_get(all, i));

        out[i] = 0;
        while (text && out[i] < STEERED_RESULTS &&
               strcmp(text, steered_texts[out[i]]) != 0)
            out[i]++;
        read = text && out[i] < STEERED_RESULTS;
    }
    if (!read)
        *status = complain(EX_TEMPFAIL, "%s", why);
    json_decref(answer);
    return read ? 0 : -EIO;
}

/* ---- cancelling running messages ---- */

/* Each look repeats the order for all messages that are still running, because
 * a handler that was only about to start had to be left alone. The answers of
 * the worker therefore do not tell how a message ended; custody and the journal
 * do. A message counts as cancelled when the journal says so: the worker writes
 * that entry after the end of the message is durable. */

#define PAUSE    (20 * NS_PER_MS) /* between two looks */
#define PATIENCE (60 * NS_PER_S)  /* for --kill-after, and the disk */
#define LOOKS    10               /* at the journal, once a slot is free */

/* Visit a slot: mark the awaited message that is still running in it. */
static int run_seen(const struct custody_seen *c, void *arg)
{
    struct runs *r = arg;

    for (size_t i = 0; i < r->count && c->w.state == SLOT_RUNNING; i++)
        if (memcmp(&r->at[i].id, &c->id, sizeof c->id) == 0)
            r->at[i].runs = true;
    return 0;
}

/* Return true if a message is still running, or if its entry in the journal may
 * still appear. */
static bool runs_left(const struct runs *r)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->at[i].runs || r->at[i].looks < LOOKS)
            return true;
    return false;
}

/* Ask the worker to terminate the handlers of up to BATCH messages from `from`
 * on. Returns 0 or an exit status. An exited worker is no failure here: its
 * journal tells how the messages ended. */
static int running_order(const struct runs *r, size_t from,
                         const struct messages *m)
{
    char line[STATEDIR_REQUEST], text[ULID_TEXT];
    struct problem p;
    const char *why;
    json_t *answer;
    int status, err;

    snprintf(line, sizeof line, "cancel-running");
    for (size_t i = from; i < r->count && i < from + BATCH; i++)
        text_append(line, sizeof line, " %s", ulid_print(r->at[i].id, text));
    err = ask(&m->dir, m->queue, line, &answer, &p);
    if (err == -ENOENT || err == -ECONNREFUSED || ask_runs(&m->dir) == 0) {
        json_decref(answer);
        return 0;
    }
    if (err)
        return complain_of(&p);
    status = ask_status(answer, &why);
    if (status)
        complain(status, "%s", why);
    json_decref(answer);
    return status;
}

/* Terminate the handlers of the messages. Afterwards `at` has the messages that
 * are still running, or failed by themselves. */
static int running_cancel(struct runs *r, const struct messages *m)
{
    uint64_t until = ns_add(clock_mono_ns(), PATIENCE);
    const struct timespec pause = {.tv_nsec = PAUSE};
    struct counters *c;
    char path[PATH_MAX];
    struct problem p;
    bool runs = true;
    int status = 0;
    size_t left;

    while (!status && runs && runs_left(r) && clock_mono_ns() < until) {
        for (size_t i = 0; i < r->count && !status; i += BATCH)
            status = running_order(r, i, m);
        runs = ask_runs(&m->dir) != 0; /* before its files are read */
        for (size_t i = 0; i < r->count; i++)
            r->at[i].runs = false; /* run_seen sets it if a slot is running */
        if (runtimedir_file(&m->dir, RUNTIMEDIR_CUSTODY, path, &p) == 0)
            (void)custody_look(path, run_seen, r, &p);
        /* Count how the other messages ended. A message without an entry in
         * the journal gets some more looks. */
        c = NULL;
        left = 0;
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
            r->at[left++] = *run;
        }
        r->count = left;
        counters_close(&c);
        if (!status && runs && runs_left(r))
            nanosleep(&pause, NULL);
    }
    if (!status && !runs && r->count)
        status = complain(EX_TEMPFAIL,
                          "the worker of %s exited; %zu of the messages %s "
                          "kept for the next worker; give the same order "
                          "again",
                          m->queue, r->count, r->count == 1 ? "is" : "are");
    return status;
}

/* ---- a batch ---- */

/* Return true if no worker is running. waiting_steer calls this inside its
 * transaction, so no worker can take or end a message before the commit. Mark
 * the rows to be skipped: rows in a slot of the killed worker, and rows of the
 * spool that have finished. */
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
        x->write.most = SIZE_MAX;
    for (size_t i = 0; i < x->count; i++)
        x->skip[i] = x->skip[i] || x->ran[i] || (err && err != -ENOENT);
    return true;
}

/* Print that there is no such message. */
static void gone_print(struct order *x, const char *name)
{
    x->sums.named_gone++;
    if (!x->o->json)
        complain(0, "%s: no such waiting or running message", name);
}

/* Print that a row is a dead letter, and what to do with it. Returns false if
 * it is none. */
static bool dead_print(struct order *x, int64_t row)
{
    struct store_row m;

    if (row <= 0 || !x->m.store ||
        store_get(x->m.store, row, &m, NULL, 0, NULL) < 0 ||
        m.state != STORE_DEAD)
        return false;
    x->sums.named_gone++;
    if (!x->o->json)
        complain(0, "%" PRId64 ": a dead letter; use mqdlq %s %s %" PRId64, row,
                 x->cancel ? "discard" : "replay",
                 STATEDIR_OPERAND(x->m.dir.root, x->m.queue), row);
    return true;
}

/* Count the result of a row, and print a line if a named message is gone. */
static void row_result(struct order *x, int64_t row, enum steered is)
{
    char name[32];

    x->sums.result[is]++;
    if (is != STEERED_GONE || x->o->line.operand_count == 1 ||
        dead_print(x, row))
        return;
    snprintf(name, sizeof name, "%s%" PRId64, row < 0 ? SPOOLED : "",
             row < 0 ? -row : row);
    gone_print(x, name);
}

/* Write the batch without a worker. -EAGAIN: a worker is running now. */
static int batch_write(struct order *x)
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

/* Send the batch to the worker. -EAGAIN: none is running any more. */
static int batch_send(struct order *x)
{
    enum steered out[BATCH] = {0}; /* order_send fills it */
    char line[STATEDIR_REQUEST];
    int err;

    snprintf(line, sizeof line, x->cancel ? "cancel" : "run-now");
    for (size_t i = 0; i < x->count; i++)
        text_append(line, sizeof line, " %" PRId64, x->rows[i]);
    err = order_send(&x->m, line, x->count, out, &x->status);
    for (size_t i = 0; i < x->count && !err; i++)
        row_result(x, x->rows[i], out[i]);
    return err;
}

/* Complain that a worker is starting or stopping during the order. */
static int restart_complain(struct order *x)
{
    x->status = complain(EX_TEMPFAIL,
                         "a worker of %s is starting or stopping; give the "
                         "order again",
                         x->m.queue);
    return -EIO;
}

/* Carry out the collected batch. Returns 0, or x->status is set. */
static int batch_end(struct order *x)
{
    int err = 0;

    if (x->count && !x->o->dry_run) {
        err = x->m.runs ? batch_send(x) : batch_write(x);
        if (err == -EAGAIN) /* the worker has exited, or one has started */
            err = x->m.runs ? batch_write(x) : batch_send(x);
        if (err == -EAGAIN)
            err = restart_complain(x);
    }
    x->count = 0;
    return err;
}

/* Add a row that is in no slot to the batch. */
static int batch_add(struct order *x, int64_t row)
{
    x->rows[x->count++] = row;
    return x->count == BATCH ? batch_end(x) : 0;
}

/* Count a message in whose state run-now does nothing. */
static int state_count(struct order *x, enum waiting_state state)
{
    x->sums.result[state == WAITING_RUNNING ? STEERED_IN_FLIGHT
                                            : STEERED_BEFORE]++;
    x->sums.waits[state]++;
    return 0;
}

/* Visit a row: keep its state. */
static int state_keep(const struct waiting_row *w, void *arg)
{
    *(enum waiting_state *)arg = w->state;
    return 0;
}

/* Take a named row, or a key of the spool with a minus. Only the worker decides
 * whether a row is due: it measures delays on CLOCK_BOOTTIME, while the due
 * times seen here are wrong after a change of the wall clock. */
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
        return batch_add(x, row);
    if (spooled)
        return state_count(x, WAITING_SPOOLED);
    if (state != WAITING_DELAYED && state != WAITING_RETRY &&
        state != WAITING_READY)
        return state_count(x, state);
    return batch_add(x, row);
}

/* Take a running message: note it for running_cancel if --running is given and
 * the worker can find the message by an id; else skip it. */
static int run_take(struct order *x, const struct custody_seen *c)
{
    struct runs *r = &x->running;
    struct run *at;

    if (x->cancel && x->o->running && !ulid_is_none(&c->id)) {
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

/* Cancel a message that was in a slot, or count why it is left alone. */
static int slot_take(struct order *x, const struct slot_seen *s)
{
    char line[STATEDIR_REQUEST], hex[2 * HEADER_VALUE_MAX + 1];
    const unsigned needed = HEADER_ID | HEADER_LETTER | HEADER_LETTER_TOKEN;
    const struct header *h = &s->c.header;
    enum store_replay replay = REPLAY_NONE;
    enum steered is = STEERED_IN_FLIGHT;
    int err;

    if (!x->cancel)
        return state_count(x, s->state);
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
        return err == -EAGAIN ? restart_complain(x) : err;
    /* The worker does not cancel a replayed letter of this store, or a copy of
     * one: mqdlq does. */
    if (is == STEERED_IN_FLIGHT && (h->fields & needed) == needed &&
        x->m.store &&
        (store_replay_find(x->m.store, (int64_t)h->letter, &h->id,
                           &h->letter_token, &replay) < 0 ||
         replay != REPLAY_NONE))
        x->sums.letters++;
    else if (is == STEERED_IN_FLIGHT && x->o->running)
        return run_take(x, &s->c); /* a handler was about to start */
    x->sums.result[is]++;
    return 0;
}

/* Visit a message that the filter chooses: take it. */
static int message_take(const struct message_seen *seen, void *arg)
{
    struct order *x = arg;

    if (x->o->limit && x->sums.chosen == x->o->limit)
        return VISIT_ENOUGH;
    x->sums.chosen++;
    if (seen->in_slot)
        return slot_take(x, seen->slot);
    if (seen->state == WAITING_SPOOLED)
        return batch_add(x, -messages_spooled_key(seen));
    return batch_add(x, seen->row);
}

/* ---- ids ---- */

/* Find the slot of a message by its id or its row; NULL: no slot has it. */
static const struct slot_seen *
named_slot_find(const struct order *x, const struct ulid *id, int64_t row)
{
    for (size_t i = 0; i < x->m.count; i++) {
        const struct custody_seen *c = &x->m.slots[i].c;

        if (id ? memcmp(&c->id, id, sizeof *id) == 0 : c->row == row)
            return &x->m.slots[i];
    }
    return NULL;
}

/* Find the row of a given id, or the slot that has it. Returns 0, -ENOENT, or
 * -EINVAL if the text is no id. */
static int id_find(struct order *x, const char *text, int64_t *row,
                   const struct slot_seen **slot)
{
    const char *trouble = NULL;
    struct ulid id;
    bool named = ulid_parse(text, strlen(text), &id) == 0;

    *row = 0;
    *slot = NULL;
    /* The worker or waiting_steer finds out whether that row is in a slot. */
    if (strncmp(text, SPOOLED, strlen(SPOOLED)) == 0) {
        *row = -strtonum(text + strlen(SPOOLED), 1, INT64_MAX, &trouble);
        return trouble ? -EINVAL : x->m.store ? 0 : -ENOENT;
    }
    if (named)
        *slot = named_slot_find(x, &id, 0);
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
    *slot = named_slot_find(x, NULL, *row);
    return x->m.store ? 0 : -ENOENT;
}

/* Visit a message of the spool: take it if its id was named. */
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

/* Take the messages that the operands name. */
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
                         "message's id, the number of its row, or "
                         "a spooled message's cursor from list --json",
                         text);
            break;
        }
        x->sums.chosen++;
        if (err == -ENOENT) {
            x->sums.result[STEERED_GONE]++;
            if (x->absent_count == before)
                gone_print(x, text);
            err = 0;
        } else {
            err = slot ? slot_take(x, slot) : named_take(x, row);
        }
    }
    if (!err && x->absent_count) {
        x->m.filter.states = WAITING_BIT(WAITING_SPOOLED);
        err = messages_spooled_each(&x->m, 0, true, absent_find, x);
    }
    for (size_t i = 0; err >= 0 && i < x->absent_count; i++)
        gone_print(x, ulid_print(x->absent[i], id));
    return err;
}

/* ---- what is printed ---- */

#define IS(n) (n), (n) == 1 ? "is" : "are"

/* Print why run-now did nothing with some messages; `due`: rows that were due
 * by the worker's clock. */
static void waits_print(const struct steered_sums *n, const struct messages *m,
                        uint64_t due)
{
    const uint64_t *at = n->waits;
    uint64_t ready = at[WAITING_READY] + due;

    if (at[WAITING_RUNNING])
        complain(0, "%" PRIu64 " %s already running", IS(at[WAITING_RUNNING]));
    if (ready)
        complain(0, "%" PRIu64 " %s due already; %s", IS(ready),
                 m->runs ? "if it does not run soon, mqctl status says why no "
                           "messages are taken"
                         : "start a worker");
    if (at[WAITING_SPOOLED])
        complain(0,
                 "%" PRIu64 " in the spool: each runs in its turn. A delayed "
                 "message of a group then waits for its time: use run-now once "
                 "mqctl list shows the message as delayed",
                 at[WAITING_SPOOLED]);
    if (at[WAITING_PARKED])
        complain(0,
                 "%" PRIu64 " %s waiting behind the head of a group; mqctl "
                 "groups %s shows the head: use run-now or cancel on that",
                 IS(at[WAITING_PARKED]),
                 STATEDIR_OPERAND(m->dir.root, m->queue));
    if (at[WAITING_HELD])
        complain(0,
                 "%" PRIu64 " %s held by a dead letter of a group; mqctl group "
                 "%s KEY release lets the group go on without it",
                 IS(at[WAITING_HELD]), STATEDIR_OPERAND(m->dir.root, m->queue));
}

/* Print why messages in flight were not cancelled, and what to do. */
static void flight_print(const struct steered_sums *n, const struct messages *m,
                         const struct options *o)
{
    uint64_t moving =
        n->result[STEERED_IN_FLIGHT] - n->runs - n->slots - n->letters;
    uint64_t running = 0; /* not chosen, because --running is not given */
    char start[START_TEXT];

    for (size_t i = 0; o->all && !o->running && i < m->count; i++)
        running += m->slots[i].state == WAITING_RUNNING;
    if (running)
        complain(0,
                 "%" PRIu64 " running, left alone; --running terminates the "
                 "handler%s",
                 running, term_plural(running));

    if (n->runs && o->running)
        complain(0,
                 "%" PRIu64 " in flight, left alone, because %s no id yet; "
                 "give the order again",
                 n->runs, n->runs == 1 ? "it has" : "they have");
    else if (n->runs)
        complain(0,
                 "%" PRIu64 " in flight, left alone, because a handler has %s; "
                 "to terminate the handler, give --running",
                 n->runs, n->runs == 1 ? "it" : "them");
    if (n->slots)
        complain(0,
                 "%" PRIu64 " in flight when the worker was killed, left "
                 "alone; start the worker first: %s; then cancel again",
                 n->slots, worker_start_text(m->queue, start));
    if (n->letters)
        complain(0,
                 "%" PRIu64 " in flight, left alone: sent by mqdlq replay; see "
                 "mqdlq list --replayed %s, and cancel with mqdlq discard",
                 n->letters, STATEDIR_OPERAND(m->dir.root, m->queue));
    if (moving)
        complain(0,
                 "%" PRIu64 " on the way to a handler or to the store, left "
                 "alone; give the order again",
                 moving);
}

/* Print the numbers, and why messages were skipped, and what to do. */
static void steered_print(const struct steered_sums *n,
                          const struct messages *m, const struct options *o)
{
    bool cancel = o->line.verb == VERB_CANCEL;
    uint64_t done = n->result[STEERED], before = n->result[STEERED_BEFORE];

    if (o->dry_run)
        done = n->chosen - n->result[STEERED_IN_FLIGHT] - before -
               n->result[STEERED_GONE];
    if (o->json) {
        if (json_print_line(
                json_pack(
                    "{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "queue",
                    json_printable(m->queue), "chosen", (json_int_t)n->chosen,
                    "done", (json_int_t)n->result[STEERED], "already",
                    (json_int_t)before, "gone",
                    (json_int_t)n->result[STEERED_GONE], "in_flight",
                    (json_int_t)n->result[STEERED_IN_FLIGHT] +
                        (json_int_t)(o->dry_run ? 0 : n->unended),
                    "spooled", (json_int_t)n->spooled, "dry_run", o->dry_run),
                stdout) < 0)
            complain_memory();
        return;
    }
    if (!o->quiet)
        printf("%s: %" PRIu64 " of %" PRIu64 " message%s %s%s\n", m->queue,
               done, n->chosen, term_plural(n->chosen),
               o->dry_run ? "would be " : "", cancel ? "cancelled" : "due now");
    for (int i = 0; !cancel && i < WAITING_STATES; i++)
        before -= i == WAITING_RUNNING ? 0 : n->waits[i];
    if (!cancel)
        waits_print(n, m, before);
    else if (before)
        complain(0, "%" PRIu64 " cancelled already", before);
    if (n->result[STEERED_GONE] > n->named_gone)
        complain(0, "%" PRIu64 " finished in the meantime",
                 n->result[STEERED_GONE] - n->named_gone);
    if (cancel)
        flight_print(n, m, o);
    if (n->unended && !o->dry_run)
        complain(0,
                 "%" PRIu64 " %s still running, or failed meanwhile; see mqctl "
                 "list, and cancel again",
                 IS(n->unended));
    if (n->spooled)
        complain(0,
                 "%" PRIu64 " in the spool, left alone: the killed worker may "
                 "have run them; start a worker, then cancel what is still "
                 "listed",
                 n->spooled);
    if (n->blind && n->result[STEERED])
        complain(0, "the custody file is gone, so a cancelled message may "
                    "still be running in a handler of the last worker, unless "
                    "the machine was restarted since then");
}

/* ---- the verbs ---- */

int steer_messages_run(const struct options *o)
{
    struct options all = *o;
    struct order x = {.o = o, .cancel = o->line.verb == VERB_CANCEL};
    bool by_id = o->line.operand_count > 1;
    struct steered_sums *n = &x.sums;
    int err, status;

    if (by_id)
        all.filter = (struct waiting_filter){.states = WAITING_ALL};
    x.status = messages_open(&x.m, &all);
    if (x.status)
        return x.status;
    x.m.filter.states = o->filter.states;
    if (!o->running)
        x.m.filter.states &= ~WAITING_BIT(WAITING_RUNNING);
    if (!x.cancel) /* other messages are due already */
        x.m.filter.states &=
            WAITING_BIT(WAITING_DELAYED) | WAITING_BIT(WAITING_RETRY);
    err = by_id ? ids_take(&x) : messages_each(&x.m, "", message_take, &x);
    if (err >= 0)
        err = batch_end(&x);
    if (err >= 0 && x.running.count && !o->dry_run) {
        status = running_cancel(&x.running, &x.m);
        if (!x.status)
            x.status = status;
        n->result[STEERED] += x.running.cancelled;
        n->result[STEERED_GONE] += x.running.ended;
    }
    if (err < 0 && !x.status)
        x.status = complain(EX_IOERR, "cannot read the messages: %s",
                            errno_text(-err));
    n->unended = x.running.count;
    steered_print(n, &x.m, o);
    messages_close(&x.m);
    free(x.running.at);
    free(x.absent);
    if (x.status || !by_id)
        return x.status;
    /* A named message that was not dealt with is a failure. */
    if (n->result[STEERED_GONE])
        return EX_NOINPUT;
    return n->result[STEERED_IN_FLIGHT] || n->spooled ||
                   n->waits[WAITING_PARKED] || n->waits[WAITING_HELD] ||
                   (n->unended && !o->dry_run)
               ? EX_TEMPFAIL
               : 0;
}

/* mqctl_steer_messages.c - run-now, cancel (see mqctl.h)
 *
 * A worker that runs does it: it knows what it has in flight. Without one the
 * store is written here, and no worker can come between: whether one runs is
 * asked inside the transaction, and a worker that starts takes its lock first
 * and waits for the store then (store_claim).
 * A row of the spool is named by its key, with a minus. Those that a killed
 * worker had in hand, or was done with, are left alone, and counted; all of
 * them are, where that is not known. All of the spool are due, so run-now has
 * nothing to do with them.
 * What runs is left alone, or, with --running, ended with its handler, when
 * all that waits is dealt with: mqctl_running.h.
 */
#include "scripts/mqctl/messages/mqctl_messages.h"
#include "scripts/mqctl/messages/mqctl_running.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <bsd/stdlib.h>

#include "common/base/clock.h"
#include "common/base/errno_text.h"
#include "common/state/worker_lock.h"
#include "common/text/complain.h"
#include "common/text/json_line.h"
#include "common/text/term.h"
#include "scripts/mqctl/mqctl_ask.h"

#define BATCH 64 /* rows of one commit; as many as a request may have */
#define LINE  2048

#define SPOOLED "spool-" /* before a key of the spool, as in a cursor */

struct order {
    const struct options *o;
    struct messages m;
    bool cancel;
    int64_t rows[BATCH];
    bool skip[BATCH]; /* those that have run, or may have */
    size_t count;
    struct waiting_steer write; /* the batch, as it is written */
    uint64_t chosen, result[WAITING_IN_FLIGHT + 1];
    uint64_t spooled;    /* left alone */
    struct runs running; /* to be cancelled with their handlers */
    struct ulid *absent; /* named, and neither in a slot nor a row */
    size_t absent_count;
    int status; /* the first trouble */
};

/* ---- a batch ---- */

/* had_look - what a killed worker had is left alone; all, if nobody knows */
static void had_look(struct order *x)
{
    int err = messages_lent(&x->m, x->rows, x->count, x->skip);

    if (!err && messages_spooled_ran(&x->m, x->rows, x->count, x->skip))
        x->write.most = INT64_MAX;
    for (size_t i = 0; i < x->count; i++)
        x->skip[i] = x->skip[i] || (err && err != -ENOENT);
}

/* no_worker - asked in the transaction; if none runs, none can take or end
 * anything before the commit */
static bool no_worker(void *arg)
{
    struct order *x = arg;
    char path[PATH_MAX];

    if (statedir_path(&x->m.dir, STATEDIR_PIDFILE, path, NULL) < 0 ||
        worker_lock_look(path, NULL) == WORKER_RUNS)
        return false;
    if (x->cancel)
        had_look(x);
    return true;
}

/* write_here - without a worker; -EAGAIN: one runs now */
static int write_here(struct order *x)
{
    enum waiting_steered out[BATCH];
    int err;

    memset(x->skip, 0, sizeof x->skip);
    x->write = (struct waiting_steer){.cancel = x->cancel,
                                      .rows = x->rows,
                                      .count = x->count,
                                      .skip = x->skip,
                                      .now_ns = clock_steady_ns(),
                                      .may = no_worker,
                                      .arg = x};
    err = waiting_steer(x->m.store, &x->write, out);
    if (err == -EAGAIN)
        return err;
    if (err) {
        x->status =
            complain(err == -ENOSPC ? EX_CANTCREAT : EX_IOERR,
                     "the store cannot be written: %s", errno_text(-err));
        return err;
    }
    for (size_t i = 0; i < x->count; i++) {
        if (x->rows[i] < 0 && out[i] == WAITING_IN_FLIGHT)
            x->spooled++;
        else
            x->result[out[i]]++;
    }
    return 0;
}

/* results_add - what the worker did; false: it is no answer to this */
static bool results_add(struct order *x, const json_t *answer)
{
    static const char *const words[] = {"done", "already", "gone", "in flight"};
    const json_t *all = json_object_get(answer, "results");

    if (json_array_size(all) != x->count)
        return false;
    for (size_t i = 0; i < x->count; i++) {
        const char *word = json_string_value(json_array_get(all, i));
        size_t k = 0;

        while (k < 4 && (!word || strcmp(word, words[k]) != 0))
            k++;
        if (k == 4)
            return false;
        x->result[k]++;
    }
    return true;
}

/* ask_worker - the one that runs */
static int ask_worker(struct order *x)
{
    char line[LINE];
    struct problem p;
    json_t *answer;
    const char *why;
    int n = snprintf(line, sizeof line, "%s", x->cancel ? "cancel" : "run-now");

    for (size_t i = 0; i < x->count; i++)
        n += snprintf(line + n, sizeof line - (size_t)n, " %" PRId64,
                      x->rows[i]);
    if (ask(&x->m.dir, x->m.queue, line, &answer, &p) < 0) {
        x->status = complain_of(&p);
        return -EIO;
    }
    if (!json_is_true(json_object_get(answer, "ok")) ||
        !results_add(x, answer)) {
        why = json_string_value(json_object_get(answer, "error"));
        x->status = complain(EX_TEMPFAIL, "%s", why ? why : "no answer");
    }
    json_decref(answer);
    return x->status ? -EIO : 0;
}

/* batch_end - all that were collected; 0, or x->status is set */
static int batch_end(struct order *x)
{
    int err = 0;

    if (x->count && !x->o->dry_run) {
        err = x->m.runs ? -EAGAIN : write_here(x);
        if (err == -EAGAIN)
            err = ask_worker(x);
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

/* slot_take - one that a slot has: it is left alone, unless it runs, can be
 * named to the worker, and its handler may be ended */
static int slot_take(struct order *x, bool runs, const struct ulid *id,
                     uint64_t started_ns)
{
    static const struct ulid none;

    if (runs && x->o->running && memcmp(id, &none, sizeof none) != 0)
        return running_add(&x->running, id, started_ns);
    x->result[WAITING_IN_FLIGHT]++;
    return 0;
}

/* message_take - visit: a message of the filter */
static int message_take(const struct message_seen *seen, void *arg)
{
    struct order *x = arg;

    if (x->o->limit && x->chosen == x->o->limit)
        return 1;
    x->chosen++;
    if (!seen->in_slot && seen->state == WAITING_SPOOLED)
        return row_take(x, -messages_spooled_key(seen));
    if (!seen->in_slot)
        return row_take(x, seen->row);
    return slot_take(x, seen->state == WAITING_RUNNING, &seen->id,
                     seen->started_ns);
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

/* spooled_find - a key of the spool, as list prints it; whether a slot has it
 * is for the worker, or the store, to say */
static int spooled_find(const struct order *x, const char *key, int64_t *row)
{
    const char *trouble = NULL;

    *row = -strtonum(key, 1, INT64_MAX, &trouble);
    if (trouble)
        return -EINVAL;
    return x->m.store ? 0 : -ENOENT;
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
    if (strncmp(text, SPOOLED, strlen(SPOOLED)) == 0)
        return spooled_find(x, text + strlen(SPOOLED), row);
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
        x->result[WAITING_GONE]--;
        if (row_take(x, -messages_spooled_key(seen)) < 0)
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
    int64_t row;
    int err = 0;

    x->absent = calloc((size_t)o->line.operand_count, sizeof *x->absent);
    if (!x->absent)
        return -ENOMEM;
    for (int i = 1; i < o->line.operand_count && !err; i++) {
        const char *text = o->line.operands[i];

        err = id_find(x, text, &row, &slot);
        if (err == -EINVAL) {
            x->status = complain(EX_USAGE,
                                 "\"%.64s\" is no id; give the 26 characters "
                                 "of a message's id, the number of its row, or "
                                 "the spool-KEY that list --json has of it",
                                 text);
            break;
        }
        x->chosen++;
        if (err == -ENOENT) {
            x->result[WAITING_GONE]++;
            err = 0;
        } else if (slot) {
            err = slot_take(x, slot->state == WAITING_RUNNING, &slot->c.id,
                            slot->c.started_ns);
        } else {
            err = row_take(x, row);
        }
    }
    if (!err && x->absent_count) {
        x->m.filter.states = WAITING_BIT(WAITING_SPOOLED);
        err = messages_spooled_each(&x->m, 0, absent_find, x);
    }
    return err;
}

/* ---- the verbs ---- */

/* numbers_tell - how many of how many, and of the others why not */
static void numbers_tell(const struct order *x)
{
    const struct options *o = x->o;
    uint64_t done = o->dry_run ? x->chosen - x->result[WAITING_IN_FLIGHT]
                               : x->result[WAITING_STEERED];

    if (o->json) {
        if (json_print_line(
                json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "queue",
                          x->m.queue, "chosen", (json_int_t)x->chosen, "done",
                          (json_int_t)x->result[WAITING_STEERED], "already",
                          (json_int_t)x->result[WAITING_NOT_SO], "gone",
                          (json_int_t)x->result[WAITING_GONE], "in_flight",
                          (json_int_t)x->result[WAITING_IN_FLIGHT], "spooled",
                          (json_int_t)x->spooled, "dry_run", o->dry_run),
                stdout) < 0)
            complain_memory();
        return;
    }
    if (!o->quiet)
        printf("%s: %" PRIu64 " of %" PRIu64 " message%s %s%s\n", x->m.queue,
               done, x->chosen, term_plural(x->chosen),
               o->dry_run ? "would be " : "",
               x->cancel ? "cancelled" : "due now");
    if (x->result[WAITING_NOT_SO])
        complain(0,
                 "%" PRIu64 " %s already, or wait%s behind their group's "
                 "head%s",
                 x->result[WAITING_NOT_SO], x->cancel ? "cancelled" : "due",
                 x->result[WAITING_NOT_SO] == 1 ? "s" : "",
                 x->cancel ? ""
                           : "; what is in the spool is due, and runs "
                             "when those before it have");
    if (x->result[WAITING_GONE])
        complain(0, "%" PRIu64 " do%s not wait, or %s not there",
                 x->result[WAITING_GONE],
                 x->result[WAITING_GONE] == 1 ? "es" : "",
                 x->result[WAITING_GONE] == 1 ? "is" : "are");
    if (x->result[WAITING_IN_FLIGHT])
        complain(0,
                 "%" PRIu64 " in flight, left alone; try again when it "
                 "waits for its next attempt%s",
                 x->result[WAITING_IN_FLIGHT],
                 x->cancel && !o->running
                     ? ", or end its handler with --running"
                     : "");
    if (x->running.count && !o->dry_run)
        complain(0,
                 "%zu run%s still, or failed meanwhile; see mqctl list, and "
                 "cancel again",
                 x->running.count, x->running.count == 1 ? "s" : "");
    if (x->spooled)
        complain(0,
                 "%" PRIu64 " in the spool, left alone: the killed worker has "
                 "run them, or may have; start the next one, and cancel again "
                 "what is listed then",
                 x->spooled);
}

/* numbers_status - an id that was named and not steered is a failure */
static int numbers_status(const struct order *x)
{
    if (x->status || x->o->line.operand_count == 1)
        return x->status;
    if (x->result[WAITING_GONE])
        return EX_NOINPUT;
    return x->result[WAITING_IN_FLIGHT] || x->spooled ||
                   (x->running.count && !x->o->dry_run)
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

/* running_end - those that run, with their handlers; what has ended by itself
 * is gone */
static void running_end(struct order *x)
{
    int status;

    if (!x->running.count || x->o->dry_run)
        return;
    status = running_cancel(&x->running, &x->m);
    if (status && !x->status)
        x->status = status;
    x->result[WAITING_STEERED] += x->running.cancelled;
    x->result[WAITING_GONE] += x->running.ended;
}

int steer_messages_run(const struct options *o)
{
    struct options all = *o;
    struct order x = {.o = o, .cancel = o->line.verb == VERB_CANCEL};
    bool by_id = o->line.operand_count > 1;
    int err;

    if (by_id)
        all.filter = (struct waiting_filter){.states = WAITING_ALL};
    x.status = messages_open(&x.m, &all);
    if (x.status)
        return x.status;
    x.m.filter.states = states_of(o, x.cancel);
    err = by_id ? ids_take(&x) : messages_each(&x.m, "", message_take, &x);
    if (err >= 0)
        err = batch_end(&x);
    if (err >= 0)
        running_end(&x);
    if (err < 0 && !x.status)
        x.status = complain(EX_IOERR, "cannot read the messages: %s",
                            errno_text(-err));
    numbers_tell(&x);
    messages_close(&x.m);
    running_free(&x.running);
    free(x.absent);
    return numbers_status(&x);
}

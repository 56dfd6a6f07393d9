/* steer_messages.c - run-now, cancel (see mqctl.h)
 *
 * A worker that runs does it: it knows what it has in flight. Without one the
 * store is written here, and no worker can come between: whether one runs is
 * asked inside the transaction, and a worker that starts takes its lock first
 * and waits for the store then (store_claim).
 * A row of the spool is named by its key, with a minus. Those that a killed
 * worker was done with are left alone, and counted; all of them are, where that
 * is not known. All of the spool are due, so run-now has nothing to do with
 * them.
 * A message in a slot that does not run is cancelled there: slots.h. One
 * that runs is left alone, or, with --running, ended with its handler, once all
 * that wait are dealt with: running.h. A handler of a killed worker may
 * be at work still; --running cancels its message, which the next start notices
 * when it has ended what is left of that handler.
 */
#include "scripts/mqctl/look/messages.h"
#include "scripts/mqctl/steer/order.h"
#include "scripts/mqctl/steer/running.h"
#include "scripts/mqctl/steer/slots.h"
#include "scripts/mqctl/steer/steer_tell.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <bsd/stdlib.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/problem.h"
#include "common/store/spool.h"
#include "common/text/complain.h"
#include "scripts/mqctl/ask.h"

#define BATCH ORDER_MOST /* rows of one commit */

#define SPOOLED "spool-" /* before a key of the spool, as in a cursor */

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

/* ---- a batch ---- */

/* had_look - what a handler of a killed worker was at is left alone, unless its
 * end was asked for, and so is what has come to its end; all of the spool, if
 * nobody knows what has */
static void had_look(struct order *x)
{
    int err =
        x->o->running ? 0 : messages_begun(&x->m, x->rows, x->count, x->skip);

    x->sums.blind = err == -ENOENT;
    if (messages_spooled_ran(&x->m, x->rows, x->count, x->ran))
        x->write.most = INT64_MAX;
    for (size_t i = 0; i < x->count; i++)
        x->skip[i] = x->skip[i] || x->ran[i] || (err && err != -ENOENT);
}

/* no_worker - asked in the transaction; if none runs, none can take or end
 * anything before the commit */
static bool no_worker(void *arg)
{
    struct order *x = arg;

    if (ask_runs(&x->m.dir) != 0)
        return false;
    if (x->cancel)
        had_look(x);
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
static void row_result(struct order *x, int64_t row, enum waiting_steered is)
{
    char name[32];

    x->sums.result[is]++;
    if (is != WAITING_GONE || x->o->line.operand_count == 1)
        return;
    snprintf(name, sizeof name, "%s%" PRId64, row < 0 ? SPOOLED : "",
             row < 0 ? -row : row);
    gone_tell(x, name);
}

/* result_add - what became of a row without a worker */
static void result_add(struct order *x, size_t i, enum waiting_steered is)
{
    bool spool = x->rows[i] < 0 && is == WAITING_IN_FLIGHT;

    if (spool && x->ran[i])
        row_result(x, x->rows[i], WAITING_GONE);
    else if (spool && !x->skip[i])
        x->sums.spooled++;
    else
        row_result(x, x->rows[i], is);
    x->sums.runs += is == WAITING_IN_FLIGHT && x->skip[i] && !x->ran[i];
}

/* write_here - without a worker; -EAGAIN: one runs now */
static int write_here(struct order *x)
{
    enum waiting_steered out[BATCH];
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
    for (size_t i = 0; i < x->count; i++)
        result_add(x, i, out[i]);
    return 0;
}

/* ask_worker - the one that runs; -EAGAIN: none does any more */
static int ask_worker(struct order *x)
{
    enum waiting_steered out[BATCH];
    int err = order_rows(&x->m, x->cancel ? "cancel" : "run-now", x->rows,
                         x->count, out, &x->status);

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
    x->sums.result[state == WAITING_RUNNING ? WAITING_IN_FLIGHT
                                            : WAITING_NOT_SO]++;
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
        row_result(x, row, WAITING_GONE);
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

    if (x->cancel && x->o->running && memcmp(&c->id, &none, sizeof none) != 0)
        return running_add(&x->running, &c->id, c->started_ns);
    x->sums.result[WAITING_IN_FLIGHT]++;
    x->sums.runs++;
    return 0;
}

/* slot_ask - of the worker that runs */
static int slot_ask(struct order *x, const struct custody_seen *c)
{
    enum waiting_steered is;
    bool runs;
    int err = slot_cancel(&x->m, c, &is, &runs, &x->status);

    if (err)
        return err;
    if (runs)
        return run_take(x, c);
    x->sums.result[is]++;
    x->sums.letters += is == WAITING_IN_FLIGHT && slot_letter(&x->m, c);
    return 0;
}

/* slot_write - of a worker that was killed */
static int slot_write(struct order *x, const struct custody_seen *c)
{
    enum waiting_steered is;
    int64_t row;
    int err = slot_row(&x->m, c, &row);

    if (!err && row)
        return row_take(x, row);
    if (!err)
        err = slot_cancel_left(&x->m, c, x->o->running, &is, &x->status);
    if (err)
        return err;
    x->sums.result[is]++;
    if (is == WAITING_IN_FLIGHT && slot_letter(&x->m, c))
        x->sums.letters++;
    else
        x->sums.runs += is == WAITING_IN_FLIGHT;
    return 0;
}

/* slot_take - one that was in a slot */
static int slot_take(struct order *x, const struct slot_seen *s)
{
    int err;

    if (!x->cancel)
        return state_take(x, s->state);
    if (s->state == WAITING_RUNNING)
        return run_take(x, &s->c);
    if (x->o->dry_run)
        return 0;
    err = x->m.runs ? slot_ask(x, &s->c) : slot_write(x, &s->c);
    if (err == -EAGAIN)
        err = x->m.runs ? slot_write(x, &s->c) : slot_ask(x, &s->c);
    return err == -EAGAIN ? turns(x) : err;
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
        x->sums.result[WAITING_GONE]--;
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
            x->sums.result[WAITING_GONE]++;
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

/* ---- the verbs ---- */

/* numbers_status - an id that was named and not steered is a failure */
static int numbers_status(const struct order *x)
{
    const struct steered_sums *n = &x->sums;

    if (x->status || x->o->line.operand_count == 1)
        return x->status;
    if (n->result[WAITING_GONE])
        return EX_NOINPUT;
    return n->result[WAITING_IN_FLIGHT] || n->spooled ||
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

/* running_end - those that run, with their handlers; one that has ended by
 * itself is gone */
static void running_end(struct order *x)
{
    int status;

    if (!x->running.count || x->o->dry_run)
        return;
    status = running_cancel(&x->running, &x->m);
    if (status && !x->status)
        x->status = status;
    x->sums.result[WAITING_STEERED] += x->running.cancelled;
    x->sums.result[WAITING_GONE] += x->running.ended;
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
    x.sums.unended = x.running.count;
    steered_tell(&x.sums, &x.m, o);
    messages_close(&x.m);
    running_free(&x.running);
    free(x.absent);
    return numbers_status(&x);
}

/* slots.c - see slots.h
 *
 * A slot is known by its receive sequence, which no other message ever has.
 */
#include "scripts/mqctl/steer/slots.h"

#include <errno.h>
#include <sysexits.h>
#include <time.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/problem.h"
#include "common/state/runtimedir.h"
#include "common/store/spool.h"
#include "common/text/complain.h"
#include "scripts/mqctl/ask.h"
#include "scripts/mqctl/steer/order.h"

#define PAUSE    (20 * NS_PER_MS) /* between two looks */
#define PATIENCE (3 * NS_PER_S)   /* for a commit that has it on its way */

/* ---- where it is ---- */

struct look {
    uint64_t seq;
    struct custody_seen *c; /* what there is of it now */
    bool found;
};

/* look_at - visit: the slot of that sequence */
static int look_at(const struct custody_seen *c, void *arg)
{
    struct look *l = arg;

    if (c->seq != l->seq)
        return 0;
    *l->c = *c;
    l->found = true;
    return VISIT_ENOUGH;
}

/* slot_look - YES: it is in a slot, as in *c now (but for its bytes); NO, or
 * -errno */
static int slot_look(const struct messages *m, struct custody_seen *c)
{
    struct look l = {.seq = c->seq, .c = c};
    char path[PATH_MAX];
    struct problem p;
    int err = runtimedir_file(&m->dir, RUNTIMEDIR_CUSTODY, path, &p);

    if (!err)
        err = custody_look(path, look_at, &l, &p);
    return err < 0 && err != -ENOENT ? err : l.found ? YES : NO;
}

/* stored_row - the same of one that has left its slot, or is about to */
static int stored_row(const struct messages *m, const struct custody_seen *c,
                      int64_t *row)
{
    int64_t key =
        c->seq < STORE_SPOOL_SEQ_MAX ? store_spool_key(c->priority, c->seq) : 0;
    int err = m->store ? store_find_seq(m->store, c->seq, row) : -ENOENT;

    if (err == -ENOENT && m->store && key) {
        err = store_spool_find(m->store, key, NULL);
        *row = -key;
    }
    if (err)
        *row = 0;
    return err == -ENOENT ? 0 : err;
}

int slot_row(const struct messages *m, const struct custody_seen *c,
             int64_t *row)
{
    *row = c->row;
    return c->row ? 0 : stored_row(m, c, row);
}

bool slot_letter(const struct messages *m, const struct custody_seen *c)
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

/* ---- with a worker ---- */

/* once - in its slot, or where it is if it has left that */
static int once(const struct messages *m, const struct custody_seen *c,
                enum waiting_steered *out, bool *runs, int *status)
{
    struct custody_seen now = *c; /* its group may be in front of its body */
    int err = order_slot(m, c, out, status), in_slot;
    int64_t row;

    *runs = false;
    if (err || *out != WAITING_IN_FLIGHT)
        return err;
    in_slot = slot_look(m, &now);
    *runs = in_slot == YES && now.w.state == SLOT_RUNNING;
    if (in_slot != NO)
        return in_slot < 0 ? in_slot : 0;
    err = stored_row(m, c, &row);
    if (err < 0)
        return err;
    if (!row) {
        *out = WAITING_GONE;
        return 0;
    }
    return order_rows(m, "cancel", &row, 1, out, status);
}

/* settled_soon - what no line had is on its way; but a letter that holds its
 * group stays where it is until it has run */
static bool settled_soon(const struct messages *m, const struct custody_seen *c)
{
    return !c->group[0] || !slot_letter(m, c);
}

int slot_cancel(const struct messages *m, const struct custody_seen *c,
                enum waiting_steered *out, bool *runs, int *status)
{
    const struct timespec pause = {.tv_nsec = PAUSE};
    uint64_t until = ns_add(clock_mono_ns(), PATIENCE);
    int err = once(m, c, out, runs, status);

    while (!err && *out == WAITING_IN_FLIGHT && !*runs && settled_soon(m, c) &&
           clock_mono_ns() < until) {
        nanosleep(&pause, NULL);
        err = once(m, c, out, runs, status);
    }
    return err;
}

/* ---- without one ---- */

struct leaving {
    struct messages *m;
    struct custody_seen c;
    struct store_row row;
    bool running; /* also if a handler had it */
    bool letter;  /* or may be a copy of one */
    int is;       /* YES: it is as it was; NO: it is not there; or -EBUSY */
};

/* is_left - asked in the transaction: no worker runs, so the slot stays as it
 * is until the commit */
static bool is_left(void *arg)
{
    struct leaving *l = arg;
    bool ran;

    if (ask_runs(&l->m->dir) != 0)
        return false;
    l->is = slot_look(l->m, &l->c);
    if (l->is != YES)
        return false;
    ran = l->c.w.state == SLOT_RUNNING;
    if (l->c.row || (ran && !l->running) || l->letter) {
        l->is = -EBUSY;
        return false;
    }
    l->row = (struct store_row){
        .receive_seq = l->c.seq,
        .id = l->c.id,
        .priority = l->c.priority,
        .crashes = l->c.w.crashes + ran,
        .flags = ran ? STORE_REDELIVERED : 0,
        .due_ns = clock_wall_ns(),
        .delay_ns = 1,
        .first_received_ns = l->c.received_ns,
        .data = "",
    };
    return true;
}

int slot_cancel_left(struct messages *m, const struct custody_seen *c,
                     bool running, enum waiting_steered *out, int *status)
{
    struct leaving l = {.m = m,
                        .c = *c,
                        .running = running,
                        .letter = slot_letter(m, c),
                        .is = YES};
    int err = waiting_cancel_left(m->store, &l.row, is_left, &l);

    *out = !err                           ? WAITING_STEERED
           : l.is == NO || err == -EEXIST ? WAITING_GONE
                                          : WAITING_IN_FLIGHT;
    if (!err || err == -EEXIST || (err == -EAGAIN && l.is != YES))
        return 0;
    if (err == -EAGAIN)
        return err;
    *status = complain(disk_is_full(err) ? EX_CANTCREAT : EX_IOERR,
                       "the store cannot be written: %s", errno_text(-err));
    return -EIO;
}

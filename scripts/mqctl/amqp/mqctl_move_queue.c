/* mqctl_move_queue.c - what is in the kernel's queue (see mqctl_move.h)
 *
 * The kernel gives a message up when it is received. So it is received into
 * custody, as a worker does, and leaves that when the broker has confirmed it:
 * whatever kills a move, the message is in the queue, in custody or on the
 * broker. A worker that is started then runs what is in custody; a move that is
 * started sends it.
 */
#include <errno.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/base/errno_text.h"
#include "common/base/fault_point.h"
#include "common/custody/custody.h"
#include "common/custody/custody_look.h"
#include "common/letter/letters.h"
#include "common/mq/queue.h"
#include "common/state/runtimedir.h"
#include "common/text/cli_interrupt.h"
#include "common/text/complain.h"
#include "scripts/mqctl/amqp/mqctl_move.h"

#define ROOM (UINT64_C(16) << 20) /* of all slots, unless one needs more */

struct taking {
    struct move *m;
    struct queue *queue;
    struct custody *custody;
    struct runtimedir runtime;
    bool on_disk, empty;
    unsigned most; /* of a batch */
    struct slot *slots[MOVE_BATCH];
    int64_t letters[MOVE_BATCH]; /* that are settled with it; 0: none */
    size_t count;
    struct slot **left; /* in custody at the start */
    size_t left_count;
    bool foreign; /* a worker had some of these */
};

/* ---- what was left in custody ---- */

/* tell_damaged - what cannot be sent, as its record cannot be read */
static void tell_damaged(const struct taking *t)
{
    const char *copy;
    unsigned damaged = custody_damaged(t->custody, &copy);

    if (damaged || copy[0])
        complain(0,
                 "custody of %s: %u slots, or numbers of the file, could not "
                 "be read; the file as it was is kept in %s",
                 t->m->v.queue, damaged, copy);
}

static void left_visit(struct slot *slot, void *arg)
{
    struct taking *t = arg;

    t->foreign = t->foreign || slot_word(slot).state != SLOT_HELD || slot->row;
    t->left[t->left_count++] = slot;
}

static int left_find(struct taking *t, struct problem *p)
{
    const char *queue = t->m->v.queue;
    int err;

    t->left = calloc(custody_slots(t->custody), sizeof(struct slot *));
    if (!t->left)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    err = custody_recover(t->custody, left_visit, t, p);
    tell_damaged(t);
    if (err)
        return err;
    if (t->foreign)
        return problem_set(p, EX_UNAVAILABLE, EBUSY,
                           "a worker of %s ended with messages in its hands: "
                           "start it once, and drain it: mqctl drain --wait %s",
                           queue, queue);
    return 0;
}

/* ---- opening ---- */

static int custody_ready(struct taking *t, struct problem *p)
{
    const struct runtimedir_wish wish = {.holds = custody_holds};
    struct custody_spec spec = {
        .body_bytes = queue_message_size(t->queue),
        .aside = t->m->dir.folder,
    };
    uint64_t fit = ROOM / (spec.body_bytes + SLOT_HEADER), seq = 0;
    char path[PATH_MAX];
    bool doubtful;
    int err = runtimedir_open(&t->runtime, &wish, &t->m->dir, p);

    if (err)
        return err;
    if (t->runtime.from[0] || t->runtime.old[0])
        return problem_set(p, EX_UNAVAILABLE, EBUSY,
                           "messages in flight of %s are in %s: start its "
                           "worker once, and drain it",
                           t->m->v.queue,
                           t->runtime.from[0] ? t->runtime.from
                                              : t->runtime.old);
    t->most = (unsigned)(fit < 1 ? 1 : fit < MOVE_BATCH ? fit : MOVE_BATCH);
    spec.slots = spec.slots_max = t->most;
    err = runtimedir_path(&t->runtime, RUNTIMEDIR_CUSTODY, path, p);
    if (!err)
        err = custody_open(&t->custody, path, &spec, p);
    if (!err)
        err = runtimedir_settle(&t->runtime, &t->m->dir, p);
    if (err)
        return err;
    if (t->most > custody_slots(t->custody))
        t->most = custody_slots(t->custody);
    t->on_disk = custody_disk(t->custody, &doubtful) != NULL;
    if (t->m->store && store_max_seq(t->m->store, &seq) == 0)
        custody_seq_raise(t->custody, seq + 1);
    return left_find(t, p);
}

static void taking_close(struct taking *t)
{
    bool empty = t->custody && custody_empty(t->custody);

    custody_close(&t->custody);
    runtimedir_close(&t->runtime, &t->m->dir, empty);
    queue_close(&t->queue);
    free(t->left);
}

/* ---- one batch ---- */

/* replay_of - a letter that was sent again: it is settled with this message.
 * True: it is settled already, and this is not to be sent */
static bool replay_of(const struct taking *t, const struct slot *slot,
                      int64_t *letter)
{
    const unsigned both = HEADER_LETTER | HEADER_LETTER_TOKEN | HEADER_ID;
    enum store_replay is = REPLAY_NONE;
    char why[HEADER_WHY];
    struct header h;

    *letter = 0;
    if (!t->m->store || header_parse(slot->body, slot->length, &h, why) < 0 ||
        (h.fields & both) != both ||
        store_replay_find(t->m->store, (int64_t)h.letter, &h.id,
                          &h.letter_token, &is) < 0)
        return false;
    if (is == REPLAY_OPEN)
        *letter = (int64_t)h.letter;
    return is == REPLAY_OVER;
}

/* slot_named - the id that the message has from now on, so that a second
 * sending has it, too
 * Crash before it: nothing was sent. */
static void slot_named(struct slot *slot)
{
    static const struct ulid none;
    char why[HEADER_WHY];
    struct header h;

    if (memcmp(&slot->id, &none, sizeof none) != 0)
        return;
    if (header_parse(slot->body, slot->length, &h, why) == 0 &&
        h.fields & HEADER_ID)
        slot->id = h.id;
    else
        slot->id =
            ulid_make(slot->received_ns ? slot->received_ns : clock_wall_ns());
}

static void slot_gone(struct taking *t, struct slot *slot)
{
    slot_retire(slot);
    custody_release(t->custody, slot);
}

/* slot_put - a message of custody, to the broker */
static int slot_put(struct taking *t, struct slot *slot, bool doubt,
                    struct problem *p)
{
    int64_t letter;
    int err;

    if (replay_of(t, slot, &letter)) {
        slot_gone(t, slot);
        t->m->over++;
        return 0;
    }
    slot_named(slot);
    t->letters[t->count] = letter;
    t->slots[t->count] = slot;
    err = move_put(t->m,
                   &(struct move_message){.id = slot->id,
                                          .priority = slot->priority,
                                          .data = slot->body,
                                          .size = slot->length,
                                          .first_ns = 0,
                                          .doubt = doubt},
                   p);
    t->count += !err;
    return err;
}

/* batch_end - it is on the broker, and here no more
 * Crash before the confirms: all are in custody. After them: those that are
 * not FREE are sent again, marked, with the same id. A letter goes before the
 * slot of its replay: after a crash between them that replay is over.
 */
static int batch_end(struct taking *t, enum move_from from, struct problem *p)
{
    int err = move_flush(t->m, from, p);
    int64_t n;

    FAULT_POINT("amqp_move_confirmed");
    for (size_t i = 0; i < t->count && !err; i++) {
        n = t->letters[i] ? letters_discard(t->m->store, &t->letters[i], 1) : 0;
        if (n < 0)
            err = problem_set(p, EX_CANTCREAT, (int)-n,
                              "a letter that was sent again cannot be removed: "
                              "%s; run it once more",
                              errno_text((int)-n));
        else
            slot_gone(t, t->slots[i]);
    }
    t->count = 0;
    return err;
}

/* batch_close - the same, after `err`: what came before one that cannot be sent
 * is on its way, and is not to be sent by each move that comes to that one */
static int batch_close(struct taking *t, enum move_from from, int err,
                       struct problem *p)
{
    struct problem later = {0};
    int end;

    if (err && err != -ENOTSUP)
        return err;
    end = batch_end(t, from, &later);
    if (!end || err)
        return err;
    *p = later;
    return end;
}

/* take - the next message of the queue, into custody: 0, -EAGAIN */
static int take(struct taking *t, struct slot **out)
{
    struct slot *slot = custody_acquire(t->custody);
    size_t dirty;
    ssize_t n;

    if (!slot)
        return -EAGAIN;
    dirty = slot->dirty;
    slot_arm(slot, custody_fill(t->custody), custody_seq_next(t->custody));
    if (t->on_disk)
        slot_warm(slot, custody_fill(t->custody), dirty,
                  queue_message_size(t->queue));
    n = queue_receive(t->queue, slot->body, &slot->priority);
    FAULT_POINT("amqp_move_received");
    if (n < 0) {
        if (slot->priority == SLOT_UNSET) {
            slot_disarm(slot);
            custody_release(t->custody, slot);
        }
        return (int)n;
    }
    slot_taken(slot, (uint32_t)n, clock_wall_ns());
    custody_seq_used(t->custody);
    *out = slot;
    return 0;
}

/* ---- all ---- */

static int left_move(struct taking *t, struct problem *p)
{
    int err = 0;

    for (size_t i = 0; i < t->left_count && !err; i++) {
        err = slot_put(t, t->left[i], true, p);
        if (!err && t->count == MOVE_BATCH)
            err = batch_end(t, MOVE_CUSTODY, p);
    }
    return batch_close(t, MOVE_CUSTODY, err, p);
}

static int batch_fill(struct taking *t, struct problem *p)
{
    struct slot *slot = NULL;
    int err = 0;

    while (t->count < t->most && !err) {
        err = take(t, &slot);
        if (err == -EAGAIN) {
            t->empty = true;
            return 0;
        }
        if (err)
            return problem_set(p, EX_OSERR, -err,
                               "cannot receive from %s: %s; what came is in "
                               "custody",
                               t->m->v.queue, errno_text(-err));
        err = slot_put(t, slot, false, p);
    }
    return err;
}

int move_queue(struct move *m, struct problem *p)
{
    struct taking t = {.m = m, .runtime = {.lock = -1}};
    int err = queue_open(&t.queue, m->v.queue, QUEUE_RECEIVE, NULL, NULL, p);

    if (!err)
        err = custody_ready(&t, p);
    if (!err)
        err = left_move(&t, p);
    while (!err && !t.empty) {
        if (cli_interrupt_seen())
            err = problem_set(p, EX_TEMPFAIL, EINTR, "interrupted");
        if (!err)
            err = batch_fill(&t, p);
        err = batch_close(&t, MOVE_QUEUE, err, p);
    }
    taking_close(&t);
    return err;
}

/* move_intake.c - from the kernel's queue to the spool (see move.h)
 *
 * The kernel gives a message up when it is received. So it is received into
 * custody, and one commit for a batch brings it to the spool, as of a worker
 * (docs/design/spool.md): whatever kills a move, the message is in the queue,
 * in a slot that is HELD, or a row. A worker that is started then, or the next
 * move, takes it from there.
 *
 * Custody is what the last worker had, wherever that was. It is taken only if
 * nothing in it had begun: messages that a worker was killed or stopped with
 * are those of its next start, which knows how to end handlers and count
 * crashes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/folder.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/cli/complain.h"
#include "common/custody/custody.h"
#include "common/custody/custody_look.h"
#include "common/mq/queue.h"
#include "common/state/runtimedir.h"
#include "common/store/spool.h"
#include "scripts/mqctl/amqp/move.h"

#define ROOM  (UINT64_C(16) << 20) /* of all slots, unless one needs more */
#define SMALL 8192                 /* of a slot, where there is no queue */

struct intake {
    struct move *m;
    struct queue *queue; /* NULL: there is none */
    struct custody *custody;
    struct runtimedir runtime;
    bool on_disk;
    unsigned most; /* of a batch */
    /* One batch. */
    struct slot *slots[MOVE_BATCH];
    struct store_spooled rows[MOVE_BATCH];
    struct store_key keys[MOVE_BATCH];
    size_t count;
    struct slot **left; /* in custody at the start */
    size_t left_count;
};

/* start_it - only a worker can go on from here */
static int start_it(const struct move *m, const char *why, struct problem *p)
{
    const char *queue = m->v.queue;

    return problem_set(p, EX_UNAVAILABLE, EBUSY,
                       "%s: %s: start its worker once, as it was started last, "
                       "and drain it: mqctl drain --wait %s",
                       queue, why, SHELL_QUEUE(queue));
}

static int unread(const struct move *m, int err, struct problem *p)
{
    return problem_set(p, EX_CANTCREAT, -err,
                       "the store of %s: %s; nothing "
                       "was lost, make room on its disk and run it once more",
                       m->v.queue, errno_text(-err));
}

/* ---- a batch ---- */

static int64_t key_of(const struct slot *slot)
{
    return store_spool_key(slot->priority, slot->seq);
}

/* name - the id that the message has from now on
 * Crash before it: it gets another one, and nobody has seen the first. */
static void name(struct slot *slot, const struct header *h)
{
    static const struct ulid none;

    if (memcmp(&slot->id, &none, sizeof none) == 0)
        slot->id = h->fields & HEADER_ID ? h->id : ulid_make(slot->received_ns);
}

/* key_ask - that of a unique message; one that is sent again had its key */
static const struct store_key *
key_ask(struct store_key *key, const struct slot *slot, const struct header *h)
{
    uint64_t ms = HEADER_UNIQUE_MS, most = UINT64_MAX / NS_PER_MS;

    if (!(h->fields & HEADER_UNIQUE) || h->fields & HEADER_LETTER)
        return NULL;
    if (h->fields & HEADER_UNIQUE_FOR)
        ms = h->unique_for_ms < most ? h->unique_for_ms : most;
    *key = (struct store_key){.text = h->unique.at,
                              .size = h->unique.size,
                              .seq = slot->seq,
                              .id = slot->id,
                              .received_ns = slot->received_ns,
                              .until_ns =
                                  ns_add(slot->received_ns, ms * NS_PER_MS)};
    return key;
}

/* add - a slot that is HELD, to the batch */
static void add(struct intake *in, struct slot *slot)
{
    struct store_spooled *row = &in->rows[in->count];
    struct slot_word w = slot_word(slot);
    size_t size = atomic_load(&slot->length);
    char why[HEADER_WHY];
    struct header h;

    if (header_parse(slot->body, size, &h, why) < 0)
        h = (struct header){0};
    name(slot, &h);
    *row = (struct store_spooled){.key = key_of(slot),
                                  .received_ns = slot->received_ns,
                                  .id = slot->id,
                                  .crashes = w.crashes,
                                  .data = slot->body,
                                  .size = size,
                                  .unique =
                                      key_ask(&in->keys[in->count], slot, &h)};
    if (h.fields & HEADER_LETTER && h.letter <= INT64_MAX)
        row->letter = (int64_t)h.letter;
    if (w.flags & SLOT_REDELIVERED)
        row->flags |= STORE_REDELIVERED;
    if (w.flags & SLOT_LENGTH_INFERRED)
        row->flags |= STORE_LENGTH_INFERRED;
    in->slots[in->count++] = slot;
}

/* written - the batch is on the disk, and those that repeat a key are at their
 * end
 * Crash before a slot is FREE: the next start finds its row by the key, or asks
 * for the key of the message again and is told the same. */
static void written(void *arg)
{
    struct intake *in = arg;

    FAULT_POINT("amqp_move_spooled");
    for (size_t i = 0; i < in->count; i++)
        slot_retire(in->slots[i]);
}

/* batch_end - to the disk, in the order of receipt, in which keys are given */
static int batch_end(struct intake *in, struct problem *p)
{
    int err = in->count == 0 ? 0
                             : store_spool_change(in->m->store,
                                                  &(struct store_spool_change){
                                                      .in = in->rows,
                                                      .in_count = in->count,
                                                      .durable = written,
                                                      .arg = in});

    for (size_t i = 0; i < in->count && !err; i++) {
        in->m->repeats += in->rows[i].taken;
        custody_release(in->custody, in->slots[i]);
    }
    in->count = 0;
    return err ? unread(in->m, err, p) : 0;
}

/* ---- what was left in custody ---- */

enum left {
    LEFT_FRESH,  /* nobody had it: it gets in line */
    LEFT_STORED, /* the store has it, and it was not begun since */
    LEFT_BEGUN,
};

/* left_of - enum left, or -errno */
static int left_of(const struct intake *in, const struct slot *slot)
{
    struct slot_word w = slot_word(slot);
    int64_t row;
    int err;

    if (w.state != SLOT_HELD || slot->row || slot->seq >= STORE_SPOOL_SEQ_MAX)
        return LEFT_BEGUN;
    err = store_find_seq(in->m->store, slot->seq, &row);
    if (err == -ENOENT)
        err = store_spool_find(in->m->store, key_of(slot), NULL);
    if (err == -ENOENT)
        return LEFT_FRESH;
    if (err)
        return err;
    return w.crashes || w.flags & SLOT_REDELIVERED ? LEFT_BEGUN : LEFT_STORED;
}

static void left_add(struct slot *slot, void *arg)
{
    struct intake *in = arg;

    in->left[in->left_count++] = slot;
}

/* left_find - all that is there, in the order of receipt; a refusal changes
 * nothing of it */
static int left_find(struct intake *in, struct problem *p)
{
    const char *copy;
    unsigned damaged;
    int err;

    if (custody_torn(in->custody))
        return start_it(in->m, "the machine went down under a worker", p);
    in->left = calloc(custody_slots(in->custody), sizeof(struct slot *));
    if (!in->left)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    err = custody_recover(in->custody, left_add, in, p);
    damaged = custody_damaged(in->custody, &copy);
    if (damaged || copy[0])
        complain(0,
                 "custody of %s: %u slots, or numbers of the file, could not "
                 "be read; the file as it was is kept in %s",
                 in->m->v.queue, damaged, copy);
    for (size_t i = 0; i < in->left_count && !err; i++) {
        int is = left_of(in, in->left[i]);

        if (is < 0)
            err = unread(in->m, is, p);
        else if (is == LEFT_BEGUN)
            err =
                start_it(in->m, "a worker ended with messages in its hands", p);
    }
    return err;
}

static int left_take(struct intake *in, struct problem *p)
{
    int err = left_find(in, p);

    for (size_t i = 0; i < in->left_count && !err; i++) {
        struct slot *slot = in->left[i];
        int is = left_of(in, slot);

        if (is < 0) {
            err = unread(in->m, is, p);
        } else if (is == LEFT_STORED) {
            slot_retire(slot);
            custody_release(in->custody, slot);
        } else {
            if (slot->received_ns == 0)
                slot->received_ns = clock_wall_ns();
            add(in, slot);
            if (in->count == MOVE_BATCH)
                err = batch_end(in, p);
        }
    }
    return err ? err : batch_end(in, p);
}

/* ---- opening ---- */

/* past_check - custody of the last worker is known; before anything there is
 * changed */
static int past_check(const struct intake *in, struct problem *p)
{
    const struct runtimedir *r = &in->runtime;

    if (r->past == RUNTIMEDIR_REBOOT)
        return start_it(in->m, "the machine went down under it", p);
    if (r->past == RUNTIMEDIR_GONE)
        return start_it(in->m, "what it had in flight is gone", p);
    return 0;
}

static int custody_ready(struct intake *in, struct problem *p)
{
    struct custody_spec spec = {
        .body_bytes = in->queue ? queue_message_size(in->queue) : SMALL,
        .aside = in->m->dir.folder,
    };
    uint64_t fit = ROOM / (spec.body_bytes + SLOT_HEADER);
    char path[PATH_MAX];
    bool doubtful;
    int err = runtimedir_path(&in->runtime, RUNTIMEDIR_CUSTODY, path, p);

    spec.slots = (unsigned)(fit < 1 ? 1 : fit < MOVE_BATCH ? fit : MOVE_BATCH);
    spec.slots_max = spec.slots;
    if (!err)
        err = custody_open(&in->custody, path, &spec, p);
    if (!err)
        err = runtimedir_settle(&in->runtime, &in->m->dir, p);
    if (err)
        return err;
    in->most = custody_slots(in->custody);
    in->most = in->most < MOVE_BATCH ? in->most : MOVE_BATCH;
    in->on_disk = custody_disk(in->custody, &doubtful) != NULL;
    return 0;
}

/* store_ready - nothing of it is in doubt */
static int store_ready(struct intake *in, struct problem *p)
{
    struct move *m = in->m;
    struct store_spool_left left;
    char path[PATH_MAX];
    uint64_t seq = 0;
    int err = statedir_path(&m->dir, STATEDIR_STORE, path, p);

    if (!err)
        err = store_open(&m->store, path, true, p);
    if (!err && store_commits(m->store) < m->commits)
        return start_it(m, "its store lacks what the last worker wrote", p);
    if (!err)
        err = store_claim(m->store, NULL, p);
    if (err)
        return err;
    (void)store_clock_follow(m->store); /* else the times are as they were */
    err = store_spool_left(m->store, &left);
    if (!err)
        err = store_max_seq(m->store, &seq);
    if (err)
        return unread(m, err, p);
    if (left.cut || left.run)
        return start_it(m, "the last worker of its spool was cut off", p);
    m->doubt = left.doubt;
    custody_seq_raise(in->custody, (seq > left.seq ? seq : left.seq) + 1);
    return 0;
}

static int queue_find(struct intake *in, struct problem *p)
{
    int err =
        queue_open(&in->queue, in->m->v.queue, QUEUE_RECEIVE, NULL, NULL, p);

    return err == -ENOENT ? 0 : err;
}

int intake_open(struct intake **out, struct move *m, struct problem *p)
{
    const struct runtimedir_wish wish = {.dir = m->o->runtime_dir,
                                         .allow_disk = m->o->allow_disk_custody,
                                         .holds = custody_holds};
    struct intake *in = calloc(1, sizeof *in);
    int err;

    *out = in;
    if (!in)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    in->m = m;
    in->runtime.lock = -1;
    err = runtimedir_open(&in->runtime, &wish, &m->dir, p);
    if (!err)
        err = past_check(in, p);
    if (!err)
        err = queue_find(in, p);
    if (!err)
        err = custody_ready(in, p);
    if (!err)
        err = store_ready(in, p);
    return err ? err : left_take(in, p);
}

void intake_close(struct intake **intake)
{
    struct intake *in = *intake;
    bool empty;

    if (!in)
        return;
    *intake = NULL;
    empty = in->custody && custody_empty(in->custody);
    custody_close(&in->custody);
    runtimedir_close(&in->runtime, &in->m->dir, empty);
    queue_close(&in->queue);
    free(in->left);
    free(in);
}

/* ---- the queue ---- */

/* take - the next message of the queue, into custody: 0, -EAGAIN
 * Crash anywhere in here: slot_arm and slot_taken say what is left. After a
 * call that failed when the message had left the queue, the slot stays as a
 * kill would leave it, and its number is used up. */
static int take(struct intake *in)
{
    struct slot *slot = custody_acquire(in->custody);
    const struct slot_fill *fill = custody_fill(in->custody);
    size_t dirty;
    ssize_t n;

    if (!slot)
        return -EAGAIN;
    dirty = slot->dirty;
    slot_arm(slot, fill, custody_seq_next(in->custody));
    if (in->on_disk)
        slot_warm(slot, fill, dirty, queue_message_size(in->queue));
    n = queue_receive(in->queue, slot->body, &slot->priority);
    FAULT_POINT("amqp_move_received");
    if (n < 0 && slot->priority == SLOT_UNSET) {
        slot_disarm(slot);
        custody_release(in->custody, slot);
        return (int)n;
    }
    custody_seq_used(in->custody);
    if (n < 0)
        return (int)n;
    slot_taken(slot, (uint32_t)n, clock_wall_ns());
    add(in, slot);
    return 0;
}

/* intake_some - what came before a failure is on the disk */
int intake_some(struct intake *in, struct problem *p)
{
    struct problem ignored;
    int n, err = in->queue ? 0 : -EAGAIN;

    if (!err &&
        custody_seq_next(in->custody) + MOVE_BATCH >= STORE_SPOOL_SEQ_MAX)
        return start_it(in->m, "its numbers are used up", p);
    while (in->count < in->most && !err)
        err = take(in);
    n = (int)in->count;
    if (err && err != -EAGAIN) {
        (void)batch_end(in, &ignored);
        return problem_set(p, EX_OSERR, -err,
                           "cannot receive from %s: %s; what came is kept",
                           in->m->v.queue, errno_text(-err));
    }
    err = batch_end(in, p);
    return err ? err : n;
}

/* dead_letters.c - dead letters of a POSIX queue, while its worker is running
 * (see source_mq.h)
 *
 * --dead-letter-queue moves letters from the store to another queue, in the
 * order in which they died; letters that are too large for it stay.
 * --keep-dead and --max-dead remove the oldest letters. Moving and removing are
 * two chores, which run on pool threads and are repeated if the store or the
 * queue refuses. A letter in flight is never moved or removed, because its row
 * is claimed (due_rows.h).
 *
 * A message that an operator replayed becomes a run of the letter's row. At the
 * start, replayed letters whose queue was lost in a reboot become dead again.
 *
 *   replayed letter          first copy of message    another copy
 *   marked, in no slot       linked to the row        -
 *   in a slot                -                        dropped
 *   waiting for its retry    -                        dropped
 *   dead again, or removed   -                        dropped
 *
 * Dropping a copy loses nothing: the letter is in its slot or in the store, or
 * it was settled. A message that names a letter without a token of this store
 * runs as an ordinary message and changes no letter. It is marked as
 * redelivered, because a letter with the same id may have run.
 */
#include "worker/source/mq/source_mq.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sysexits.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/log.h"
#include "common/state/counters.h"
#include "common/store/letters.h"
#include "worker/loop/chore.h"
#include "worker/loop/loop.h"

#define PAUSE_NS (100 * NS_PER_MS) /* letters that die together go together */

/* c = constant after open   m = of the chore `move` */
struct dead_letters {
    struct source_mq *q;        /* c */
    struct chore limit;         /* removes letters */
    struct chore recall;        /* runs at the start, until it has worked */
    struct chore move;          /* moves letters to `queue` */
    struct queue *queue;        /* c  --dead-letter-queue; NULL: none */
    struct mq_name_watch *name; /* c  watches its name */
    struct queue_attr attr;     /* c  used to create `queue` again */
    struct loop_source source;  /* m  waits for room in `queue` */
    unsigned char *data;        /* m  one letter */
    size_t room;                /* c  bytes of `data` */
    int64_t sent;        /* m  sent, but not deleted from the store; 0: none */
    struct ulid sent_id; /* m */
};

/* ---- --keep-dead and --max-dead ---- */

static bool has_limit(const struct settings *set)
{
    return set->keep_dead_ns != UINT64_MAX || set->max_dead != 0;
}

/* Chore: remove letters page by page, and run again when the next letter
 * becomes too old. */
static int limit_run(struct chore *chore)
{
    struct dead_letters *d = CONTAINER_OF(chore, struct dead_letters, limit);
    struct source_mq *q = d->q;
    struct store_cursor page[STORE_PAGE], old[STORE_PAGE], after = {0};
    uint64_t keep_ns = q->set->keep_dead_ns, most = q->set->max_dead;
    uint64_t now_ns = clock_wall_ns(), next_ns = UINT64_MAX, over = 0;
    bool more = has_limit(q->set);
    int64_t n = 0;

    if (most) /* counting reads the index of all letters */
        n = store_count(q->store, STORE_DEAD);
    if (n > 0 && (uint64_t)n > most)
        over = (uint64_t)n - most;
    while (more && n >= 0) {
        size_t count = 0, aged = 0;

        n = letters_deaths(q->store, &after, page);
        if (n <= 0)
            break;
        after = page[n - 1];
        /* Choose the oldest letters, up to the first one that stays. */
        for (int64_t i = 0; i < n && more; i++) {
            uint64_t end_ns = ns_add(page[i].ns, keep_ns);

            if (due_rows_is_claimed(page[i].row, q->due_rows))
                continue;
            if (end_ns > now_ns && over == 0) {
                next_ns = end_ns;
                more = false;
            } else {
                aged += end_ns <= now_ns;
                over -= over > 0;
                old[count++] = page[i];
            }
        }
        n = count ? letters_drop(q->store, old, count) : 0;
        if (n <= 0)
            continue;
        counters_add(&counters_rest(q->counters)->removed, (uint64_t)n);
        counters_rest_done(q->counters);
        /* The worker's own write does not close the file, so the watch of held
         * groups may get no event. */
        if (q->group_watch && q->events.held(q->events.groups) > 0)
            mq_watch(&q->source, true);
        dirty_count(q->dirty);
        log_info("letters_removed", F_STR("queue", q->set->queue),
                 F_INT("count", n), F_UINT("too_old", aged),
                 F_INT("first", old[0].row), F_INT("last", old[count - 1].row));
    }
    if (n >= 0 && next_ns != UINT64_MAX)
        chore_after(chore, next_ns - now_ns);
    if (n < 0 && n != chore->err)
        log_error("letters_not_removed", F_STR("queue", q->set->queue),
                  F_STR("error", errno_text((int)-n)),
                  F_STR("next", "the letters stay in the store, and the worker "
                                "tries again; check the disk of the store"));
    return n < 0 ? (int)n : 0;
}

/* ---- --dead-letter-queue ---- */

/* Open the queue, or open it again. Create it if it does not exist, by the same
 * rules as the worker's own queue. */
static int dead_queue_open(struct dead_letters *d, struct problem *p)
{
    const struct settings *set = d->q->set;
    int flags = QUEUE_SEND | (set->no_create ? 0 : QUEUE_CREATE);
    struct queue *fresh = NULL;
    int err = queue_open(d->queue ? &fresh : &d->queue, set->dead_letter_queue,
                         flags, &d->attr, NULL, p);

    return fresh ? queue_replace(d->queue, &fresh, p) : err;
}

/* Send a letter to the queue that has the name now. Returns 0, or -errno of
 * queue_send. If the name was removed, the queue is opened again, because no
 * reader would find a letter in the old one. The name may also be removed
 * during the call, so it is checked after it: the letter is then sent to the
 * new queue as well. -EAGAIN is returned only for a queue that still has its
 * name; if the name is removed later, that wakes the chore. */
static int letter_post(struct dead_letters *d, const struct store_row *m)
{
    struct problem p;
    int err;

    do {
        if (queue_gone(d->queue)) {
            if (dead_queue_open(d, &p) < 0) {
                if (d->move.err != -ESTALE)
                    log_error("dead_letter_queue_gone",
                              F_STR("to", queue_label(d->queue)),
                              F_STR("error", p.text));
                return -ESTALE;
            }
            mq_name_watch_again(d->name);
            log_warn("dead_letter_queue_opened_again",
                     F_STR("to", queue_label(d->queue)));
        }
        err = queue_send(d->queue, d->data, m->size, m->priority);
    } while ((!err || err == -EAGAIN) && queue_gone(d->queue));
    return err;
}

/* Delete a sent letter from the store. No other letter is sent before that has
 * succeeded, so that a letter is sent twice only after a kill. */
static int sent_forget(struct dead_letters *d)
{
    char id[ULID_TEXT];
    int err = store_delete(d->q->store, d->sent, &d->sent_id);

    if (err)
        return err;
    d->sent = 0;
    dirty_count(d->q->dirty);
    log_info("dead_letter_moved", F_STR("msg", ulid_print(d->sent_id, id)),
             F_STR("to", queue_label(d->queue)));
    return 0;
}

/* Move a letter: send it, then delete it from the store. A letter in flight is
 * skipped: it was replayed, recalled after a reboot, and then found in a slot,
 * where it is settled.
 * Crash before the send: the letter is in the store. Between send and delete:
 * it is in both, and the next worker sends it again. After the delete: it is in
 * the queue. If mqdlq edit has changed the letter after it was read here, the
 * edited message stays in the store. */
static int letter_move(struct dead_letters *d, int64_t row, uint64_t *died_ns)
{
    struct source_mq *q = d->q;
    bool ours = due_rows_claim(q->due_rows, row, CLAIM_MOVE) == 0;
    char id[ULID_TEXT];
    struct store_row m;
    int err = store_get(q->store, row, &m, d->data, d->room, NULL);
    bool there = !err || err == -EMSGSIZE;

    if (there)
        *died_ns = m.died_ns;
    if (there && (!ours || m.state != STORE_DEAD)) {
        err = 0;
    } else if (there) {
        FAULT_POINT("dead_queue_before_send");
        if (!err)
            err = letter_post(d, &m);
        FAULT_POINT("dead_queue_after_send");
        if (!err) {
            d->sent = row;
            d->sent_id = m.id;
            err = sent_forget(d);
        } else if (err == -EMSGSIZE) {
            log_warn("dead_letter_too_large",
                     F_STR("msg", ulid_print(m.id, id)), F_UINT("size", m.size),
                     F_UINT("allowed", queue_message_size(d->queue)),
                     F_STR("next", "it stays in the store: see mqdlq list"));
            err = 0;
        }
    }
    if (ours && !d->sent)
        due_rows_release(q->due_rows, row);
    return err == -ENOENT ? 0 : err;
}

/* Move letters in order of death until the queue is full or none is left. */
static int letters_move_run(struct chore *chore)
{
    struct dead_letters *d = CONTAINER_OF(chore, struct dead_letters, move);
    uint64_t died_ns = 0;
    int64_t row = 0, sent = d->sent;
    int err = sent ? sent_forget(d) : 0;

    if (sent && !err)
        due_rows_release(d->q->due_rows, sent);
    while (!err) {
        err = store_next_dead(d->q->store, died_ns, row, &row);
        if (!err)
            err = letter_move(d, row, &died_ns);
    }
    if (err == -EAGAIN)
        err = loop_watch(d->q->loop, &d->source, EPOLLOUT);
    if (err == -ENOENT) /* none is left */
        err = 0;
    if (err && err != chore->err)
        log_error("dead_letter_not_moved", F_STR("to", queue_label(d->queue)),
                  F_STR("error", errno_text(-err)),
                  F_STR("next", "the letter stays in the store; the worker "
                                "tries again"));
    return err;
}

/* Called by the loop when the queue's name was removed. */
static void dead_queue_gone(void *arg)
{
    struct dead_letters *d = arg;

    chore_soon(&d->move);
}

/* Called by the loop when a full queue has room again. */
static void dead_queue_has_room(struct loop_source *source)
{
    chore_soon(&CONTAINER_OF(source, struct dead_letters, source)->move);
}

/* ---- replayed letters ---- */

/* Look up in the store the state of the letter that a message names. */
static int replay_find(struct store *store, const struct header *h,
                       enum store_replay *is)
{
    const unsigned needed = HEADER_ID | HEADER_LETTER_TOKEN;

    *is = REPLAY_NONE;
    if ((h->fields & needed) != needed)
        return 0;
    return store_replay_find(store, (int64_t)h->letter, &h->id,
                             &h->letter_token, is);
}

/* Link a message to its letter, unless another copy of it is in a slot. The
 * claim on the row decides which copy is first. The store is read again after
 * the claim, because the first copy may have been stored as a retry and have
 * released its claim since. While the claim is held, no other thread takes or
 * moves the row. Crash before the slot names the row: the next start links the
 * message. */
static int replay_take(struct source_mq *q, struct lent *l,
                       const struct header *h, enum store_replay *is)
{
    int64_t row = (int64_t)h->letter;
    int err = due_rows_claim(q->due_rows, row, CLAIM_LEND);

    if (err == -EALREADY) { /* in a slot, or a retry that is due */
        *is = REPLAY_OVER;
        return 0;
    }
    if (err == -EXDEV) { /* it is being moved to the dead letter queue */
        *is = REPLAY_NONE;
        return 0;
    }
    if (err)
        return err;
    err = replay_find(q->store, h, is);
    if (!err && *is == REPLAY_OPEN) {
        slot_link(l->slot, row);
        l->m.flags |= MESSAGE_STORED;
    } else {
        due_rows_release(q->due_rows, row);
    }
    return err;
}

/* Link a message of the queue to the letter that its header names. A slot that
 * names a row was linked before; messages loaded from the store are not linked.
 */
int mq_link(struct source *s, struct message *m, const struct header *h)
{
    struct source_mq *q = source_mq_of(s);
    struct lent *l = lent_of(m);
    char id[ULID_TEXT];
    enum store_replay is;
    int err;

    if (!l->slot->row) {
        err = replay_find(q->store, h, &is);
        if (!err && is == REPLAY_OPEN)
            err = replay_take(q, l, h, &is);
        if (err)
            return err;
        if (is == REPLAY_OVER)
            return LINK_REPEAT;
        /* An expired message gets no mark: with the mark it would run. */
        if (is == REPLAY_NONE && !(m->flags & MESSAGE_REDELIVERED) &&
            !(h->fields & HEADER_EXPIRES && h->expires_ns <= clock_wall_ns())) {
            log_warn("letter_unknown",
                     F_STR("msg", ulid_print(*message_name(m), id)),
                     F_UINT("letter", h->letter),
                     F_STR("next",
                           "it was not sent by a replay of this store: it runs "
                           "as any message, marked as redelivered, and the "
                           "letter is kept"));
            slot_mark(l->slot, SLOT_REDELIVERED);
            m->flags |= MESSAGE_REDELIVERED;
        }
    }
    if (!l->slot->row)
        return LINK_NONE;
    m->flags |= MESSAGE_FRONT;
    return LINK_LETTER;
}

/* Chore: make replayed letters dead again whose queue was lost in a reboot. A
 * letter whose message is in a slot is skipped, because it is settled there. If
 * /proc has no boot id, no reboot can be detected, and the letters stay
 * replayed (-ENOENT). */
static int recall_run(struct chore *chore)
{
    struct source_mq *q = CONTAINER_OF(chore, struct dead_letters, recall)->q;
    int n = store_recall(q->store, due_rows_is_claimed, q->due_rows);

    if (n == -ENOENT || n == 0)
        return 0;
    if (n < 0 && n != chore->err)
        log_error("letters_not_recalled", F_STR("queue", q->set->queue),
                  F_STR("error", errno_text(-n)), F_STR("store", q->folder),
                  F_STR("next",
                        "letters that were on their way when the machine "
                        "went down stay marked replayed until the "
                        "store can be written; the worker tries again"));
    if (n < 0)
        return n;
    log_warn("letters_recalled", F_INT("letters", n),
             F_STR("next", "they were on their way when the machine went down; "
                           "replay them again"));
    dirty_count(q->dirty);
    source_mq_died(q);
    return 0;
}

/* ---- open and close ---- */

void dead_letters_start(struct source_mq *q)
{
    chore_run(&q->dead_letters->recall);
}

void dead_letters_wake(struct source_mq *q)
{
    struct dead_letters *d = q->dead_letters;

    if (!d || !atomic_load(&q->started))
        return;
    if (d->queue) /* if there is no pool any more, the next worker moves them */
        chore_soon(&d->move);
    if (has_limit(q->set))
        chore_after(&d->limit, PAUSE_NS);
}

int dead_letters_open(struct source_mq *q, struct problem *p)
{
    struct dead_letters *d = q->dead_letters = calloc(1, sizeof *d);
    int err;

    if (!d)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    d->q = q;
    source_mq_chore(q, &d->limit, limit_run, NS_PER_S, 30 * NS_PER_S);
    source_mq_chore(q, &d->move, letters_move_run, NS_PER_S, 30 * NS_PER_S);
    source_mq_chore(q, &d->recall, recall_run, NS_PER_S, 5 * NS_PER_S);
    if (!q->set->dead_letter_queue[0])
        return 0;
    d->room = custody_body_bytes(q->custody);
    d->data = malloc(d->room);
    if (!d->data)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    d->attr.message_size = queue_message_size(q->queue);
    d->attr.mode = (mode_t)q->set->mode;
    err = dead_queue_open(d, p);
    if (err)
        return err;
    d->attr.depth = queue_depth(d->queue);
    d->attr.message_size = queue_message_size(d->queue);
    d->source = (struct loop_source){.fd = queue_fd(d->queue),
                                     .ready = dead_queue_has_room};
    return mq_name_watch_open(&d->name, q->loop, q->timers, d->queue,
                              dead_queue_gone, d) < 0
               ? problem_set(p, EX_OSERR, ENOMEM, "out of memory")
               : 0;
}

void dead_letters_close(struct source_mq *q)
{
    struct dead_letters *d = q->dead_letters;

    if (!d)
        return;
    q->dead_letters = NULL;
    timers_cancel_sync(q->timers, &d->limit.timer);
    timers_cancel_sync(q->timers, &d->move.timer);
    timers_cancel_sync(q->timers, &d->recall.timer);
    mq_name_watch_close(&d->name);
    if (d->sent) /* one last try */
        (void)sent_forget(d);
    queue_close(&d->queue);
    free(d->data);
    free(d);
}

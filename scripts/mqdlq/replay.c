/* replay.c - see mqdlq.h */
#include "scripts/mqdlq/mqdlq.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/mq/patience.h"
#include "common/state/worker_lock.h"
#include "common/store/letters.h"
#include "common/text/complain.h"
#include "common/text/json_line.h"
#include "common/text/term.h"
#include "common/text/term_time.h"
#include "scripts/mqdlq/broker.h"
#include "scripts/mqdlq/encode.h"
#include "scripts/mqdlq/selection.h"

struct replay {
    struct context *context;
    struct selection selection;
    struct queue *queue;
    struct encoding encoding;
    struct rate_limit rate;
    struct term_progress bar;
    struct patience patience;
    struct letter_mark last; /* was sent, which is not noted yet */
    bool unnoted;            /* there is one */
    uint64_t sent, refused, on_way;
    int status;  /* of letters that were passed over */
    bool packed; /* the message is to be sent */
};

/* letter_refuse - name a letter that is not sent; the others go on */
static void letter_refuse(struct replay *r, int64_t row, int status,
                          const char *why)
{
    r->refused++;
    r->status = status_worse(r->status, status);
    complain(0, "letter %" PRId64 " is not sent: %s", row, why);
}

/* letter_pass - a letter that is on its way: only counted, unless it was named.
 * A command about all letters does not fail because of such letters; one that
 * asked for them does. */
static void letter_pass(struct replay *r, int64_t row, const char *why)
{
    if (r->selection.by_id)
        complain(0, "letter %" PRId64 " %s", row, why);
    r->on_way++;
    if (r->selection.by_id || r->context->o->filter.replayed)
        r->status = status_worse(r->status, EX_DATAERR);
}

/* on_way_tell - since when, and how to send it once more */
static void on_way_tell(struct replay *r, const struct letter *l)
{
    const struct letter_replay *how = &l->replay;
    char why[256], time[TIME_TEXT];

    if (how->sent)
        snprintf(why, sizeof why,
                 "is on its way since %s; --again sends it once more",
                 term_time_both(how->marked_ns, time));
    else
        snprintf(why, sizeof why,
                 "was marked %s and maybe not sent: another mqdlq is at it, or "
                 "was killed; --again sends it",
                 term_time_both(how->marked_ns, time));
    letter_pass(r, l->m.row, why);
}

/* refusal_status - for a letter that cannot be packed: it is the fault of the
 * letter, or of the machine, which has no random number for it */
static int refusal_status(int err)
{
    bool letters = err == -EKEYEXPIRED || err == -EMSGSIZE || err == -EBADMSG;

    return letters ? EX_DATAERR : EX_OSERR;
}

/* letter_pack - visit: make the message, or refuse the letter. A letter sent in
 * another boot, or to queues of another container, is on its way no more. */
static int letter_pack(const struct letter *l, void *arg)
{
    struct replay *r = arg;
    const struct options *o = r->context->o;
    char why[ENCODING_WHY] = "";
    bool on_way = l->m.state == STORE_REPLAYED && l->replay.here;
    int err;

    r->packed = false;
    if (on_way && !o->again) {
        on_way_tell(r, l);
        return 0;
    }
    err = encoding_pack(&r->encoding, l, clock_wall_ns(), why);
    if (err)
        letter_refuse(r, l->m.row, refusal_status(err), why);
    else if (on_way && r->encoding.kind != ENCODING_TRACKED)
        letter_refuse(r, l->m.row, EX_DATAERR,
                      "behind a header it would be too large for the queue, "
                      "and without one the worker cannot know it for a copy");
    else if (o->canary && r->sent == 0 && r->encoding.kind != ENCODING_TRACKED)
        letter_refuse(r, l->m.row, EX_DATAERR,
                      "behind a header it would be too large for the queue, "
                      "and without one it cannot be the canary");
    else
        r->packed = true;
    return 0;
}

/* message_foretell - --dry-run */
static void message_foretell(const struct replay *r)
{
    const struct encoding *p = &r->encoding;
    bool moves = p->kind != ENCODING_TRACKED;

    if (r->context->o->json) {
        (void)json_print_line(json_pack("{s:I, s:o, s:I, s:I, s:b}", "id",
                                        (json_int_t)p->mark.row, "to",
                                        json_printable(queue_label(r->queue)),
                                        "size", (json_int_t)p->size, "priority",
                                        (json_int_t)p->priority, "removed",
                                        moves),
                              stdout);
        return;
    }
    printf("would send %" PRId64 " to %s: %zu bytes, priority %" PRIu32
           "%s%s\n",
           p->mark.row, queue_label(r->queue), p->size, p->priority,
           p->kind == ENCODING_RAW ? ", as received" : "",
           moves ? ", and remove it" : "");
}

/* room_say - the queue has been full for a second: tell whether a worker runs,
 * and how to end the wait */
static void room_say(bool first, void *arg)
{
    struct replay *r = arg;
    const struct options *o = r->context->o;
    const char *name = queue_label(r->queue);
    char worker[WORKER_CLAUSE];

    if (o->quiet)
        return;
    if (first) {
        term_progress_clear(&r->bar);
        complain(0, "%s is full (%zu message%s), %s; waiting for room%s", name,
                 queue_depth(r->queue), term_plural(queue_depth(r->queue)),
                 worker_lock_clause(o->state_dir, name, worker),
                 o->has_wait ? "" : ", Ctrl-C ends it (or --wait DUR)");
    }
    term_progress_wait(&r->bar, "waiting for room");
}

/* Send the message: 0 or -errno. -EIDRM: the queue lost its name before the
 * message was sent. -ESTALE: the queue lost its name at the moment of sending,
 * so only a worker with the queue open can still receive the message. */
static int message_post(struct replay *r)
{
    const struct options *o = r->context->o;
    uint64_t deadline = UINT64_MAX;
    int err;

    if (o->has_wait)
        deadline = ns_add(clock_mono_ns(), o->wait_ns);
    if (cli_interrupt_seen())
        return -EINTR;
    if (queue_gone(r->queue))
        return -EIDRM;
    err = patience_send(&(struct patient_send){
        .patience = &r->patience,
        .queue = r->queue,
        .data = r->encoding.bytes,
        .size = r->encoding.size,
        .priority = r->encoding.priority,
        .deadline_ns = deadline,
        .say = room_say,
        .arg = r,
    });
    return !err && queue_gone(r->queue) ? -ESTALE : err;
}

/* post_failed - say why the sending stops; the exit status */
static int post_failed(const struct replay *r, int err)
{
    const char *name = queue_label(r->queue);

    if (err == -EINTR)
        return complain(EX_TEMPFAIL, "interrupted");
    if (err == -EAGAIN)
        return complain(EX_TEMPFAIL, "%s stayed full", name);
    if (err == -EIDRM)
        return complain(EX_NOINPUT,
                        "%s was removed; letter %" PRId64
                        " was not sent. To create the queue again: mqctl "
                        "create %s",
                        name, r->encoding.mark.row, SHELL_QUEUE(name));
    if (err == -ESTALE)
        return complain(
            EX_NOINPUT,
            "%s was removed just as letter %" PRId64
            " was sent: a worker that takes what is left in it may "
            "run it, nobody else can; it stays in the store%s",
            name, r->encoding.mark.row,
            r->encoding.kind == ENCODING_TRACKED ? ", marked replayed" : "");
    return complain(EX_OSERR, "cannot send to %s: %s", name, errno_text(-err));
}

/* sent_note - note that the last letter is in the queue. Usually the next mark
 * notes it, in one commit; this is for where none follows soon. A letter that
 * is not noted looks as if it might not have been sent, so an error here does
 * no harm. */
static void sent_note(struct replay *r)
{
    if (r->unnoted)
        (void)letters_mark_sent(r->context->store, &r->last);
    r->unnoted = false;
}

/* mark_failed - somebody else was quicker, or the store cannot be written */
static int mark_failed(struct replay *r, int err)
{
    int64_t row = r->encoding.mark.row;

    if (err == -EALREADY)
        letter_pass(r, row, "was just sent by somebody else");
    else if (err == -ENOENT)
        letter_refuse(r, row, 0, "it was settled or died again meanwhile");
    else
        return store_failed("mark a letter", err);
    return 0;
}

/* mark_undo - a letter that was not sent is dead again
 * Not one that was on its way already: that message may yet come. Nor one that
 * went into a queue which has just lost its name: so may that. */
static void mark_undo(struct replay *r, int failed)
{
    const struct letter_mark *mark = &r->encoding.mark;
    int err;

    if (mark->again || failed == -ESTALE)
        return;
    err = letters_unmark(r->context->store, mark);
    if (!err || err == -ENOENT)
        return;
    store_failed("take back the mark of a letter", err);
    complain(0,
             "letter %" PRId64 " was not sent but is marked replayed; "
             "`mqdlq replay --again %s %" PRId64 "` sends it",
             mark->row, SHELL_QUEUE(r->context->queue), mark->row);
}

/* send_tracked - mark the letter, send it, take the mark back if that failed
 *
 * The mark comes first: the worker may settle the message before mq_send has
 * returned here, and must find the token in the store.
 * Crash before the mark: nothing happened.
 * Crash between the mark and the send: the letter is in the store, marked, not
 * noted as sent, and in no queue. `list --replayed` shows it, and --again sends
 * it.
 * Crash after the send, before that is noted: the worker settles the letter. To
 * mqdlq it looks as before the send; the copy that --again sends then has the
 * same token, and the worker runs one of the two and drops the other.
 * So a crash here can lose nothing and repeat nothing.
 */
static int send_tracked(struct replay *r)
{
    const struct letter_mark *mark = &r->encoding.mark;
    int err = letters_mark_replayed(r->context->store, mark,
                                    r->unnoted ? &r->last : NULL);
    int failed;

    if (err)
        return mark_failed(r, err);
    r->unnoted = false;
    FAULT_POINT("replay_before_send");
    failed = message_post(r);
    FAULT_POINT("replay_after_send");
    if (failed) {
        mark_undo(r, failed);
        return post_failed(r, failed);
    }
    r->last = *mark;
    r->unnoted = true;
    r->sent++;
    return 0;
}

/* send_untracked - send the letter, then remove it, as nothing will tell of its
 * end: it has moved into the queue
 * Crash before the removal: it is in both, and can be sent a second time. So it
 * is when the queue has lost its name, as nobody may be there to take it.
 * So this can repeat a message and never lose one.
 */
static int send_untracked(struct replay *r)
{
    int failed = message_post(r);
    int64_t n;

    if (failed)
        return post_failed(r, failed);
    r->sent++;
    FAULT_POINT("replay_moved_before_remove");
    n = letters_discard(r->context->store, &r->encoding.mark.row, 1);
    if (n >= 0)
        return 0;
    complain(0, "letter %" PRId64 " was sent and is still in the store",
             r->encoding.mark.row);
    return store_failed("remove a letter", (int)n);
}

/* letter_replay - one letter; 0 to go on, or an exit status */
static int letter_replay(struct replay *r, const struct pick *pick)
{
    struct context *ctx = r->context;
    int err = letters_get(ctx->store, pick->row, letter_pack, r);
    uint64_t sent;
    int status;

    if (err == -ENOENT) {
        letter_refuse(r, pick->row, r->selection.by_id ? EX_NOINPUT : 0,
                      "it is gone");
        return 0;
    }
    if (err)
        return store_failed("read a letter", err);
    if (!r->packed)
        return 0;
    if (ctx->o->dry_run) {
        message_foretell(r);
        r->sent++;
        return 0;
    }
    if (rate_limit_wait(&r->rate) != 0)
        return post_failed(r, -EINTR);
    sent = r->sent;
    status = r->encoding.kind == ENCODING_TRACKED ? send_tracked(r)
                                                  : send_untracked(r);
    if (!status && ctx->o->canary && sent == 0 && r->sent == 1) {
        sent_note(r);
        status =
            canary_wait(ctx, r->encoding.mark.row, r->encoding.mark.died_ns,
                        ctx->o->has_wait ? ctx->o->wait_ns : UINT64_MAX);
    }
    return status;
}

/* Complain that the sent messages wait until a worker is started. */
static void worker_note(const struct replay *r)
{
    const struct options *o = r->context->o;
    const char *name = queue_label(r->queue);
    enum worker_lock lock;

    if (r->sent == 0 || o->dry_run || o->quiet)
        return;
    lock = worker_lock_find(o->state_dir, name, NULL, NULL);
    if (lock == WORKER_NONE || lock == WORKER_GONE)
        complain(0,
                 "no worker is running on %s with this state directory; the "
                 "sent messages wait in the queue until you start one",
                 name);
}

/* summary - how it went */
static void summary(const struct replay *r)
{
    const struct options *o = r->context->o;
    size_t total = r->selection.count;

    if (summary_told(r->context,
                     json_pack("{s:o, s:o, s:I, s:I, s:I, s:I, s:b}", "queue",
                               json_printable(r->context->queue), "to",
                               r->queue ? json_printable(queue_label(r->queue))
                                        : json_null(),
                               "chosen", (json_int_t)total, "sent",
                               (json_int_t)r->sent, "refused",
                               (json_int_t)r->refused, "on_way",
                               (json_int_t)r->on_way, "dry_run", o->dry_run)))
        return;
    if (total == 0)
        fputs("0 letters chosen", stdout);
    else
        printf("%" PRIu64 " of %zu letter%s %s to %s", r->sent, total,
               term_plural(total), o->dry_run ? "would be sent" : "sent",
               queue_label(r->queue));
    if (r->refused > 0)
        printf(", %" PRIu64 " not", r->refused);
    if (r->on_way > 0)
        printf("; " ON_WAY_CLAUSE, r->on_way, r->on_way == 1 ? "is" : "are",
               r->on_way == 1 ? "its" : "their",
               SHELL_QUEUE(r->context->queue));
    putchar('\n');
}

/* selection_replay - all of them, and say how it went; the exit status */
static int selection_replay(struct replay *r)
{
    const struct options *o = r->context->o;
    size_t total = r->selection.count;
    int status = 0;

    if (total > 1 && !o->dry_run && !o->quiet)
        term_progress_start(&r->bar, "replaying", total);
    rate_limit_start(&r->rate, o->rate, clock_mono_ns());
    for (size_t i = 0; i < total && !status; i++) {
        status = letter_replay(r, &r->selection.picks[i]);
        term_progress_step(&r->bar, r->sent);
    }
    sent_note(r);
    term_progress_end(&r->bar);
    summary(r);
    worker_note(r);
    status = status_worse(status, r->status);
    return status_worse(status, r->selection.missing ? EX_NOINPUT : 0);
}

/* target_open - the queue to send to, and a message as large as it takes */
static int target_open(struct replay *r)
{
    const struct options *o = r->context->o;
    struct problem p = {0};
    char name[QUEUE_NAME_MAX];

    if (queue_name(o->to ? o->to : r->context->queue, name, &p) ||
        queue_open(&r->queue, name, QUEUE_SEND, NULL, NULL, &p))
        return complain(p.status, "%s", p.text);
    r->encoding = (struct encoding){
        .raw = o->raw,
        .elsewhere = strcmp(name, r->context->queue) != 0,
        .reset_expiry = o->reset_expiry,
        .store = r->context->store,
        .room = queue_message_size(r->queue),
    };
    if (encoding_open(&r->encoding) != 0)
        return store_failed("replay", -ENOMEM);
    return 0;
}

/* replay_run - replay */
int replay_run(struct context *ctx)
{
    struct replay r = {.context = ctx};
    int status;

    if (ctx->broker)
        return broker_replay_run(ctx);
    status = selection_make(&r.selection, ctx);
    if (!status)
        status = selection_on_way(&r.selection, ctx, &r.on_way);
    if (!status && r.selection.count == 0) {
        status = r.selection.missing ? EX_NOINPUT : 0;
        summary(&r);
    } else if (!status) {
        status = target_open(&r);
        if (!status)
            status = selection_replay(&r);
    }
    encoding_close(&r.encoding);
    queue_close(&r.queue);
    selection_free(&r.selection);
    return status;
}

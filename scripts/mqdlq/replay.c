/* replay.c - send dead letters to a queue again: the verbs replay and edit
 *
 * Called by main, in one thread. A letter of a queue on this machine is marked
 * in the store, then sent; a letter of a broker is sent by scripts/mqdlq/amqp.
 * edit replaces the body in the commit that marks the letter.
 */
#include "scripts/mqdlq/mqdlq.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/cli/complain.h"
#include "common/cli/json_line.h"
#include "common/cli/term.h"
#include "common/message/header.h"
#include "common/mq/queue.h"
#include "common/state/worker_lock.h"
#include "scripts/mqdlq/broker.h"

#define LOOK_EVERY_NS (50 * NS_PER_MS) /* between two reads of the canary */
#define WHY           256
#define WHY_COMMAND   (WHY + STATEDIR_OPERAND_ROOM)

enum encoding_kind {
    ENCODING_TRACKED,   /* its header names the letter, which the worker then
                           settles with the message */
    ENCODING_UNTRACKED, /* its header does not name the letter */
    ENCODING_RAW,       /* the bytes as received; untracked */
};

/* A dead letter made ready for the queue: the same body and priority behind a
 * header that lets the worker match the message with its letter, or the bytes
 * as they were received. */
struct encoding {
    bool elsewhere; /* sent to another queue than the letter's own */
    size_t room;    /* largest message of the queue, and size of `bytes` */
    char *bytes;
    enum encoding_kind kind;
    size_t size;
    uint32_t priority;
    struct letter_mark mark; /* in the store and, if tracked, in the header */
};

struct replay {
    struct context *context;
    struct selection selection;
    struct queue *queue; /* NULL: letters of a broker, or none was chosen */
    const char *to;      /* name of the queue to send to; NULL: unknown */
    struct encoding encoding;
    struct rate_limit rate;
    struct term_progress bar;
    struct patience patience;
    struct letter_mark last; /* of the letter sent last */
    struct letter_edit edit; /* of the verb edit */
    struct ulid edited_from; /* the letter's id before it was edited */
    bool edited;             /* the edit is in the store */
    bool unnoted;            /* the store does not yet say `last` was sent */
    uint64_t sent, refused, on_way;
    int status; /* exit status because of skipped letters; 0: none */
    int end;    /* exit status that ended the sending; 0: not ended */
};

/* ---- the message for a letter ---- */

/* Read the header of a letter. The bytes of a broken header are part of the
 * body. */
static void header_read(const struct letter *l, struct header *out)
{
    char broken[HEADER_WHY];

    *out = (struct header){0};
    if (l->m.header_size > 0 &&
        header_parse(l->m.data, l->m.size, out, broken) != 0)
        *out = (struct header){0};
}

/* Write the header to send the letter with; returns its bytes or -errno.
 * `not-before` is left out, because that time has passed. With `named` the
 * header names the letter. */
static int header_make(char *at, size_t room, const struct replay *r,
                       const struct letter *l, const struct header *old,
                       bool named)
{
    const struct letter_mark *mark = &r->encoding.mark;
    struct header_x x[HEADER_X_FIT];
    struct header h = *old;
    size_t cursor = 0, n = 0;

    h.fields &= HEADER_EXPIRES | HEADER_TIMEOUT | HEADER_MAX_ATTEMPTS |
                HEADER_BACKOFF | HEADER_UNIQUE | HEADER_UNIQUE_FOR |
                HEADER_EDITED_FROM;
    h.fields |= HEADER_ID | HEADER_SENT | HEADER_SIZE;
    if (r->context->o->reset_expiry)
        h.fields &= ~(unsigned)HEADER_EXPIRES;
    if (!(old->fields & HEADER_SENT))
        h.sent_ns = clock_wall_ns();
    h.id = l->m.id;
    h.size = l->body_size;
    if (l->m.group) {
        h.fields |= HEADER_GROUP;
        h.group = (struct header_text){l->m.group, l->m.group_size};
    }
    if (named) {
        h.fields |= HEADER_LETTER | HEADER_LETTER_TOKEN;
        h.letter = (uint64_t)l->m.row;
        h.letter_token = mark->token;
    }
    while (old->bytes > 0 &&
           header_next_x(l->m.data, old, &cursor, &x[n].name, &x[n].value))
        n++;
    return header_write(at, room, &h, x, n);
}

/* Use the bytes as they were received. Returns 0, or an exit status and the
 * reason in `why`. */
static int raw_make(struct replay *r, const struct letter *l,
                    const struct header *old, char why[WHY])
{
    struct encoding *p = &r->encoding;

    if (old->fields & HEADER_LETTER_TOKEN)
        snprintf(why, WHY,
                 "its header has a letter-token, by which a worker could take "
                 "it for a repeat; send it without --raw, to a queue with room "
                 "for a new header");
    else if (old->fields & HEADER_UNIQUE && !p->elsewhere)
        snprintf(why, WHY,
                 "its header has a unique key, by which the worker could take "
                 "it for a duplicate of itself; send it without --raw, to a "
                 "queue with room for a new header");
    else if (l->m.size > p->room)
        snprintf(why, WHY, "%zu bytes, and the queue takes %zu", l->m.size,
                 p->room);
    else if (r->context->o->reset_expiry && (old->fields & HEADER_EXPIRES))
        snprintf(why, WHY,
                 "its expiry cannot be reset: behind a new header it would be "
                 "larger than the %zu bytes that the queue takes",
                 p->room);
    if (why[0])
        return EX_DATAERR;
    p->kind = ENCODING_RAW;
    p->size = l->m.size;
    if (p->size > 0)
        memcpy(p->bytes, l->m.data, p->size);
    return 0;
}

/* Refuse a letter that has expired, unless --reset-expiry was given. */
static int expiry_check(const struct replay *r, const struct header *old,
                        uint64_t now_ns, char why[WHY])
{
    char time[TIME_TEXT];

    if (!(old->fields & HEADER_EXPIRES) || old->expires_ns > now_ns ||
        r->context->o->reset_expiry)
        return 0;
    snprintf(why, WHY, "it expired %s; --reset-expiry sends it anyway",
             time_print(old->expires_ns, time));
    return EX_DATAERR;
}

/* Make the message for a letter. Returns 0, or an exit status and the reason in
 * `why`. A dead letter gets a new token; a letter that is on its way keeps its
 * token, by which the worker recognizes the second copy. */
static int message_make(struct replay *r, const struct letter *l, char why[WHY])
{
    struct encoding *p = &r->encoding;
    uint64_t now_ns = clock_wall_ns();
    int header = -EMSGSIZE, err = 0;
    struct header old;

    header_read(l, &old);
    p->mark = (struct letter_mark){
        .row = l->m.row,
        .died_ns = l->m.died_ns,
        .id = l->m.id,
        .marked_ns = now_ns,
        .token = l->replay.token,
        .again = l->m.state == STORE_REPLAYED,
    };
    if (!p->mark.again || !l->replay.known)
        err = store_token_make(r->context->store, &p->mark.token);
    if (err) {
        snprintf(why, WHY, "no random number for it: %s", errno_text(-err));
        return EX_OSERR;
    }
    err = expiry_check(r, &old, now_ns, why);
    if (err)
        return err;
    p->priority = l->m.priority;
    if (!r->context->o->raw)
        header = header_make(p->bytes, p->room, r, l, &old, !p->elsewhere);
    if (header < 0 || l->body_size > p->room - (size_t)header) {
        if (r->context->o->line.verb != VERB_EDIT)
            return raw_make(r, l, &old, why);
        snprintf(why, WHY,
                 "it is too large: %zu bytes, and a header of %d, but %s takes "
                 "at most %zu; it is unchanged",
                 l->body_size, header > 0 ? header : HEADER_MAX, r->to,
                 p->room);
        return EX_DATAERR;
    }
    p->kind = p->elsewhere ? ENCODING_UNTRACKED : ENCODING_TRACKED;
    p->size = (size_t)header + l->body_size;
    if (l->body_size > 0)
        memcpy(p->bytes + header, l->body, l->body_size);
    return 0;
}

/* ---- letters that are not sent ---- */

/* Name a letter that is not sent, and count it. */
static void letter_refuse(struct replay *r, int64_t row, const struct ulid *id,
                          int status, const char *why)
{
    char name[ULID_TEXT];

    if (r->context->broker)
        ulid_print(*id, name);
    else
        snprintf(name, sizeof name, "%" PRId64, row);
    r->refused++;
    r->status = status_worse(r->status, status);
    complain(0, "letter %s is not sent: %s", name, why);
}

/* Skip a letter that is on its way: count it, and name it if its id was given.
 * The exit status becomes 65 only if the user asked for such letters, by id or
 * with --replayed. */
static void letter_skip(struct replay *r, int64_t row, const char *why)
{
    if (r->selection.by_id)
        complain(0, "letter %" PRId64 " %s", row, why);
    r->on_way++;
    if (r->selection.by_id || r->context->o->filter.replayed)
        r->status = status_worse(r->status, EX_DATAERR);
}

/* ---- sending ---- */

/* Callback of patience_send, after the queue has been full for a second: say
 * whether a worker is running, and how to end the wait. */
static void full_queue_say(bool first, void *arg)
{
    struct replay *r = arg;
    const struct options *o = r->context->o;
    const char *name = r->to;
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
    uint64_t deadline =
        o->has_wait ? ns_add(clock_mono_ns(), o->wait_ns) : UINT64_MAX;
    int err;

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
        .say = full_queue_say,
        .arg = r,
    });
    return !err && queue_gone(r->queue) ? -ESTALE : err;
}

/* Complain why no more letters are sent; returns the exit status. */
static int post_failed(const struct replay *r, int err)
{
    const char *name = r->to;

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
            " was sent. Only a worker that still has the removed queue open "
            "can run it. The letter stays in the store%s",
            name, r->encoding.mark.row,
            r->encoding.kind == ENCODING_TRACKED ? ", marked replayed" : "");
    return complain(EX_OSERR, "cannot send to %s: %s", name, errno_text(-err));
}

/* Note in the store that the last letter was sent. Usually the next mark does
 * that in its own commit; call this if no mark follows soon. Without the note
 * the letter is shown as "maybe not sent", so an error here does no harm. */
static void sent_note(struct replay *r)
{
    if (r->unnoted)
        (void)letters_mark_sent(r->context->store, &r->last);
    r->unnoted = false;
}

/* Mark the letter, send it, take the mark back if that failed. For edit, the
 * commit that marks the letter also gives it the new id and body.
 *
 * The mark comes first: the worker may settle the message before mq_send has
 * returned here, and must find the token in the store.
 * Crash before the mark: nothing happened.
 * Crash between the mark and the send: the letter is in the store, marked, not
 * noted as sent, and in no queue. `list --replayed` shows it, and --again sends
 * it.
 * Crash after the send and before the note: the worker settles the letter.
 * Until then mqdlq shows the letter as maybe not sent. A copy sent by --again
 * has the same token, so the worker runs one of the two and drops the other.
 * So a crash here loses nothing and repeats nothing.
 */
static int send_tracked(struct replay *r)
{
    const struct letter_mark *mark = &r->encoding.mark;
    bool edits = r->context->o->line.verb == VERB_EDIT;
    int err = letters_mark_replayed(r->context->store, mark,
                                    r->unnoted ? &r->last : NULL);
    int failed, status;

    if (err == -EALREADY) {
        letter_skip(r, mark->row, "was just sent by somebody else");
        return 0;
    }
    if (err == -ENOENT) {
        letter_refuse(r, mark->row, &mark->id,
                      r->selection.by_id ? EX_DATAERR : 0,
                      "in the meantime it was done, discarded or edited, or "
                      "died again");
        return 0;
    }
    if (err)
        return store_failed("mark a letter", err);
    r->unnoted = false;
    r->edited = edits;
    FAULT_POINT("replay_before_send");
    failed = message_post(r);
    FAULT_POINT("replay_after_send");
    if (!failed) {
        r->last = *mark;
        r->unnoted = true;
        r->sent++;
        return 0;
    }
    /* Take back the mark: the letter is dead again. It keeps its mark if a
     * message may still arrive: the letter was already on its way, or was sent
     * as the queue lost its name. The last line that is printed says what
     * became of the letter, because mqctl serve shows only the last line. */
    if (!mark->again && failed != -ESTALE)
        err = letters_unmark(r->context->store, mark);
    status = post_failed(r, failed);
    if (err && err != -ENOENT) {
        store_failed("take back the mark of a letter", err);
        complain(0,
                 "letter %" PRId64 " was not sent but is marked replayed; "
                 "`mqdlq replay --again %s %" PRId64 "` sends it",
                 mark->row, CONTEXT_OPERAND(r->context), mark->row);
    } else if (edits && failed != -ESTALE) {
        complain(0,
                 "letter %" PRId64 " is dead, with the edited body; "
                 "`mqdlq replay %s %" PRId64 "` sends it",
                 mark->row, CONTEXT_OPERAND(r->context), mark->row);
    }
    return status;
}

/* Send the letter, then remove it, because the worker cannot settle it.
 * Crash before the removal: the letter is in the store and in the queue, and
 * can be sent a second time. If the queue loses its name, the letter stays in
 * the store as well, because perhaps no program can receive the message.
 * A letter that was edited while mqdlq waited for room stays, because only the
 * store has the new body. So this can repeat a message but never lose one.
 */
static int send_untracked(struct replay *r)
{
    const struct letter_mark *mark = &r->encoding.mark;
    int err, failed = message_post(r);
    struct store_row row;

    if (failed)
        return post_failed(r, failed);
    r->sent++;
    FAULT_POINT("replay_moved_before_remove");
    err = letters_remove_sent(r->context->store, mark);
    if (!err)
        return 0;
    if (err != -ENOENT) {
        complain(0, "letter %" PRId64 " was sent and is still in the store",
                 mark->row);
        return store_failed("remove a letter", err);
    }
    r->status = status_worse(r->status, EX_DATAERR);
    if (store_get(r->context->store, mark->row, &row, NULL, 0, NULL) == -ENOENT)
        complain(0,
                 "letter %" PRId64 " was sent, but in the meantime another "
                 "program had sent or discarded it",
                 mark->row);
    else
        complain(0,
                 "letter %" PRId64 " was sent as it had been before somebody "
                 "edited or replayed it, and stays in the store: mqdlq show "
                 "%s %" PRId64,
                 mark->row, CONTEXT_OPERAND(r->context), mark->row);
    return 0;
}

/* ---- the canary ---- */

/* Visit: complain that the canary died again, and why. */
static int death_say(const struct letter *l, void *arg)
{
    (void)arg;
    return complain(EX_TEMPFAIL,
                    "the canary, letter %" PRId64
                    ", died again: %s%s%s; nothing else was sent",
                    l->m.row, dead_reason_text(l->m.reason),
                    l->m.error ? ": " : "", l->m.error ? l->m.error : "");
}

/* Wait until the canary, the letter sent first, is settled. Returns 0 if it is
 * done or discarded; 75 if it died again, was not settled in time, or a signal
 * came. */
static int canary_wait(struct replay *r)
{
    const struct timespec nap = {.tv_nsec = (long)LOOK_EVERY_NS};
    const struct context *ctx = r->context;
    const struct options *o = ctx->o;
    const struct letter_mark *mark = &r->encoding.mark;
    uint64_t deadline =
        o->has_wait ? ns_add(clock_mono_ns(), o->wait_ns) : UINT64_MAX;
    struct patience patience = {0};
    char worker[WORKER_CLAUSE];
    struct store_row row;

    patience_start(&patience);
    for (;;) {
        int err = store_get(ctx->store, mark->row, &row, NULL, 0, NULL);

        if (!err && row.state == STORE_DEAD && row.died_ns == mark->died_ns)
            return complain(EX_TEMPFAIL,
                            "the canary, letter %" PRId64
                            ", was taken back; nothing else was sent",
                            mark->row);
        if (!err && row.state == STORE_DEAD)
            err = letters_get(ctx->store, mark->row, death_say, NULL);
        if (err == -ENOENT)
            return 0;
        if (err)
            return err < 0 ? store_failed("watch the canary", err) : err;
        /* Any other row is on its way: in the queue, in a handler, or waiting
         * for its next attempt. */
        if (cli_interrupt_seen() || clock_mono_ns() >= deadline)
            return complain(EX_TEMPFAIL,
                            "the canary, letter %" PRId64
                            ", is not settled%s; nothing else was sent",
                            mark->row, cli_interrupt_seen() ? "" : " in time");
        if (patience_over(&patience) && !o->quiet)
            complain(0,
                     "letter %" PRId64 " was sent, %s; waiting until a worker "
                     "has settled it%s",
                     mark->row,
                     worker_lock_clause(o->state_dir, ctx->queue, worker),
                     o->has_wait ? "" : ", Ctrl-C ends that (or --wait DUR)");
        nanosleep(&nap, NULL);
    }
}

/* ---- all letters ---- */

/* Return true if a letter is on its way. If it was sent before the last reboot,
 * or in another container, its message is not in this queue: return false. */
static bool is_on_way(const struct letter *l)
{
    return l->m.state == STORE_REPLAYED && l->replay.here;
}

/* Skip a letter that is on its way, and say since when. */
static int on_way_skip(struct replay *r, const struct letter *l)
{
    char why[WHY_COMMAND], time[TIME_TEXT];

    snprintf(
        why, sizeof why,
        l->replay.sent
            ? "has been on its way since %s; `mqdlq replay --again %s %" PRId64
              "` sends it once more"
            : "was marked %s and maybe not sent: another mqdlq is "
              "sending it, or was killed; `mqdlq replay --again %s "
              "%" PRId64 "` sends it",
        term_time_both(l->replay.marked_ns, time), CONTEXT_OPERAND(r->context),
        l->m.row);
    letter_skip(r, l->m.row, why);
    return 0;
}

/* Send a letter with another body and a new id. The header in the store, unlike
 * that of the message, does not name the letter. */
static int edited_send(struct replay *r, const struct letter *letter,
                       const struct header *header, struct body *body)
{
    struct letter l = *letter;
    struct header old = *header;
    char why[WHY_COMMAND] = "";
    char *data = malloc(HEADER_MAX + body->size);
    int size, status = 0;

    if (!data)
        return complain_memory();
    old.edited_from = l.m.id;
    old.fields |= HEADER_EDITED_FROM;
    l.m.id = ulid_make(clock_wall_ns());
    l.m.state = STORE_DEAD;
    l.body_size = body->size;
    size = header_make(data, HEADER_MAX, r, &l, &old, false);
    if (body->size == letter->body_size &&
        (body->size == 0 ||
         memcmp(body->bytes, letter->body, body->size) == 0)) {
        status = EX_DATAERR;
        body->unsaved = false;
        snprintf(why, sizeof why,
                 "its body is unchanged; to send it as it is: mqdlq replay %s "
                 "%" PRId64,
                 CONTEXT_OPERAND(r->context), l.m.row);
    } else if (body->size == 0) {
        status = EX_DATAERR;
        body->unsaved = false;
        snprintf(why, sizeof why,
                 "its new body is empty; to send an empty message: mqsend %s "
                 "''",
                 SHELL_QUEUE(r->to));
    } else if (size < 0) {
        status = EX_DATAERR;
        snprintf(why, sizeof why,
                 "its header and the line edited-from have more than %d bytes; "
                 "it is unchanged",
                 HEADER_MAX);
    } else {
        if (body->size > 0)
            memcpy(data + size, body->bytes, body->size);
        l.m.data = data;
        l.m.size = (size_t)size + body->size;
        l.m.header_size = (uint32_t)size;
        l.body = data + size;
        status = message_make(r, &l, why);
    }
    if (status) {
        letter_refuse(r, l.m.row, &l.m.id, status, why);
        status = 0;
    } else {
        r->edit = (struct letter_edit){.id = l.m.id,
                                       .data = data,
                                       .size = l.m.size,
                                       .header_size = l.m.header_size};
        r->encoding.mark.edit = &r->edit;
        r->encoding.mark.id = letter->m.id;
        r->edited_from = letter->m.id;
        status = send_tracked(r);
        body->unsaved = body->unsaved && !r->edited;
    }
    free(data);
    return status;
}

/* Visit: let the user edit the body of a letter, and send the letter. */
static int letter_edit(const struct letter *l, void *arg)
{
    struct replay *r = arg;
    struct body body = {0};
    struct header header;
    char why[WHY] = "";
    int status;

    if (is_on_way(l))
        return on_way_skip(r, l);
    header_read(l, &header);
    status = expiry_check(r, &header, clock_wall_ns(), why);
    if (status) {
        letter_refuse(r, l->m.row, &l->m.id, status, why);
        return 0;
    }
    status = body_edit(&body, l, r->context->o, r->encoding.room);
    if (!status)
        status = edited_send(r, l, &header, &body);
    body_free(&body);
    return status;
}

/* Visit: send a letter of this machine, or pass over it. Returns 0 to continue
 * with the next letter, or an exit status. */
static int letter_send(const struct letter *l, void *arg)
{
    struct replay *r = arg;
    const struct options *o = r->context->o;
    const struct encoding *p = &r->encoding;
    bool on_way = is_on_way(l);
    bool canary = o->canary && r->sent == 0, moves;
    char why[WHY] = "";
    int status;

    if (on_way && !o->again)
        return on_way_skip(r, l);
    status = message_make(r, l, why);
    moves = p->kind != ENCODING_TRACKED;
    if (!status && (on_way || canary) && moves) {
        status = EX_DATAERR;
        snprintf(why, sizeof why,
                 "with a header it would be too large for the queue, and "
                 "without a header %s",
                 on_way ? "the worker cannot recognize the copy"
                        : "it cannot be the canary");
    }
    if (status) {
        letter_refuse(r, l->m.row, &l->m.id, status, why);
        return 0;
    }
    if (o->dry_run && o->json)
        (void)json_print_line(
            json_pack("{s:I, s:o, s:I, s:I, s:b}", "id",
                      (json_int_t)p->mark.row, "to", json_printable(r->to),
                      "size", (json_int_t)p->size, "priority",
                      (json_int_t)p->priority, "removed", moves),
            stdout);
    else if (o->dry_run)
        printf("would send %" PRId64 " to %s: %zu bytes, priority %" PRIu32
               "%s%s\n",
               p->mark.row, r->to, p->size, p->priority,
               p->kind == ENCODING_RAW ? ", as received" : "",
               moves ? ", and remove it" : "");
    if (o->dry_run) {
        r->sent++;
        return 0;
    }
    if (rate_limit_wait(&r->rate) != 0)
        return post_failed(r, -EINTR);
    status = moves ? send_untracked(r) : send_tracked(r);
    if (!status && canary && r->sent == 1) {
        sent_note(r);
        status = canary_wait(r);
    }
    return status;
}

/* Visit: send a letter of a broker. Returns as letter_send does. */
static int letter_publish(const struct letter *l, void *arg)
{
    struct replay *r = arg;
    const struct options *o = r->context->o;
    bool canary = o->canary && r->sent == 0;
    struct broker_sent sent = {0};
    int status;

    if (!o->dry_run && rate_limit_wait(&r->rate) != 0)
        return complain(EX_TEMPFAIL, "interrupted");
    status = r->context->letters->replay(r->context, l, canary, &sent);
    if (sent.refused)
        letter_refuse(r, l->m.row, &l->m.id, sent.refused, sent.why);
    r->sent += sent.sent;
    if (status || !canary || o->dry_run || !sent.sent)
        return status;
    term_progress_clear(&r->bar);
    return r->context->letters->canary_wait(r->context);
}

/* Print how many letters were sent, refused or skipped, and the new id of one
 * that was edited. */
static void replay_summarize(const struct replay *r)
{
    const struct options *o = r->context->o;
    size_t total = r->selection.count;
    char new_id[ULID_TEXT], old_id[ULID_TEXT];
    json_t *sum =
        json_pack("{s:o, s:o, s:I, s:I, s:I, s:I, s:b}", "queue",
                  json_printable(r->context->queue), "to",
                  r->to ? json_printable(r->to) : json_null(), "chosen",
                  (json_int_t)total, "sent", (json_int_t)r->sent, "refused",
                  (json_int_t)r->refused, "on_way", (json_int_t)r->on_way,
                  "dry_run", o->dry_run);

    ulid_print(r->edit.id, new_id);
    if (r->edited)
        json_object_update_new(sum,
                               json_pack("{s:I, s:s, s:s}", "id",
                                         (json_int_t)r->encoding.mark.row,
                                         "message_id", new_id, "edited_from",
                                         ulid_print(r->edited_from, old_id)));
    if (summary_print(r->context, sum))
        return;
    if (total == 0)
        fputs("0 letters chosen", stdout);
    else
        printf("%" PRIu64 " of %zu letter%s %s to %s", r->sent, total,
               term_plural(total), o->dry_run ? "would be sent" : "sent",
               r->to);
    if (r->edited)
        printf(", with the id %s", new_id);
    if (r->refused > 0)
        printf(", %" PRIu64 " not", r->refused);
    if (r->on_way > 0)
        printf("; " ON_WAY_CLAUSE, ON_WAY_ARGS(r->on_way, r->context));
    putchar('\n');
}

/* Send the chosen letters and print a summary; returns the exit status. */
static int selection_replay(struct replay *r)
{
    const struct options *o = r->context->o;
    size_t total = r->selection.count;
    enum worker_lock lock;

    if (total > 1 && !o->dry_run && !o->quiet)
        term_progress_start(&r->bar, "replaying", total);
    rate_limit_start(&r->rate, o->rate, clock_mono_ns());
    for (size_t i = 0; i < total && !r->end; i++) {
        const struct letter_name *pick = &r->selection.picks[i].name;
        int err = letters_get(r->context->store, pick->row,
                              r->context->broker          ? letter_publish
                              : o->line.verb == VERB_EDIT ? letter_edit
                                                          : letter_send,
                              r);

        if (err == -ENOENT)
            letter_refuse(r, pick->row, &pick->id,
                          r->selection.by_id ? EX_NOINPUT : 0, "it is gone");
        else
            r->end = err < 0 ? store_failed("read a letter", err) : err;
        term_progress_step(&r->bar, r->sent);
    }
    sent_note(r);
    term_progress_end(&r->bar);
    replay_summarize(r);
    if (!r->context->broker && r->sent > 0 && !o->dry_run && !o->quiet) {
        lock = worker_lock_find(o->state_dir, r->to, NULL, NULL);
        if (lock == WORKER_NONE || lock == WORKER_GONE)
            complain(0,
                     "no worker is running on %s with this state directory; "
                     "the sent messages wait in the queue until you start one",
                     r->to);
    }
    return status_worse(r->end, r->status);
}

int replay_run(struct context *ctx)
{
    struct replay r = {.context = ctx};
    const char *to = ctx->o->to ? ctx->o->to : ctx->queue;
    struct problem p = {0};
    char name[QUEUE_NAME_MAX];
    int status = selection_make(&r.selection, ctx);

    if (!status)
        status = selection_on_way(&r.selection, ctx, &r.on_way);
    if (!status && ctx->broker) {
        status = ctx->letters->replay_begin(ctx, &r.to);
    } else if (!status && r.selection.count > 0) {
        /* Open the queue, and allocate its largest message. */
        if (queue_name(to, name, &p) ||
            queue_open(&r.queue, name, QUEUE_SEND, NULL, NULL, &p)) {
            status = complain(p.status, "%s", p.text);
        } else {
            r.to = queue_label(r.queue);
            r.encoding.elsewhere = strcmp(name, ctx->queue) != 0;
            r.encoding.room = queue_message_size(r.queue);
            r.encoding.bytes = malloc(r.encoding.room);
            if (!r.encoding.bytes)
                status = store_failed("replay", -ENOMEM);
        }
    }
    if (!status && r.selection.count > 0)
        status = selection_replay(&r);
    else if (!status)
        replay_summarize(&r);
    status = status_worse(status, r.selection.missing ? EX_NOINPUT : 0);
    free(r.encoding.bytes);
    queue_close(&r.queue);
    selection_free(&r.selection);
    return status;
}

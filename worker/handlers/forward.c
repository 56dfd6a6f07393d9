/* forward.c - send each message to another POSIX queue (see handler.h,
 * forward.h)
 *
 * A message is done when mq_send has returned, because the kernel has it then.
 * Crash before mq_send: the slot reads RUNNING, and the next start sends the
 * message, marked as resent. Crash between mq_send and the verdict: the next
 * start sends a second copy, with the same id and the mark. The mark is derived
 * from the slot, so nothing in this file has to survive the crash.
 *
 * A queue whose name was removed still accepts messages that nobody will
 * receive. So the name is checked again after each send: if it is there then,
 * it was there during the send.
 */
#include "worker/handlers/forward.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/log.h"
#include "common/base/safe_text.h"
#include "common/mq/queue.h"
#include "worker/handlers/handler.h"
#include "worker/rules/verdict.h"

/* How long a delivery waits for room in the destination before the message is
 * given back: so short that a stop can wait for it (.stop is NULL), long enough
 * for a busy consumer to make room. */
#define ROOM_NS NS_PER_S

/* m = under mtx   c = constant after open */
struct handler {
    const struct settings *set; /* c */
    pthread_mutex_t mtx;        /* held while one message is sent */
    struct queue *queue;        /* m  NULL: to be opened */
    char *bytes;                /* m  one message, of the queue's size */
};

/* ---- what the message says ---- */

void forward_refuse(struct outcome *out, const char *fmt, ...)
{
    va_list args;

    out->verdict = MQW_DEAD;
    out->said = true;
    va_start(args, fmt);
    vsnprintf(out->error, sizeof out->error, fmt, args);
    va_end(args);
}

int forward_count(const struct delivery *d, uint64_t *count,
                  struct outcome *out)
{
    *count = d->header.fields & HEADER_FORWARDED ? d->header.forwarded + 1 : 1;
    if (*count <= FORWARD_MOST)
        return 0;
    forward_refuse(out,
                   "not forwarded: it came through %d queues, so they form a "
                   "circle; start the worker of one of them without "
                   "--forward, then run mqdlq replay",
                   FORWARD_MOST);
    return -ELOOP;
}

void forward_unusable(const struct settings *set, const struct problem *p)
{
    log_warn("destination_unusable", F_STR("queue", set->queue),
             F_STR("error", p->text),
             F_STR("next", "messages wait in this queue and are not counted as "
                           "failed; the worker forwards them as soon as it can "
                           "use the destination"));
}

bool forward_resent(const struct delivery *d)
{
    return (d->message->flags & MESSAGE_REDELIVERED) != 0;
}

uint64_t forward_due(const struct delivery *d)
{
    uint64_t now = clock_wall_ns(), due = d->message->due_ns;

    if (due == 0 && d->header.fields & HEADER_NOT_BEFORE)
        due = d->header.not_before_ns;
    return due > now ? due : 0;
}

/* A header that is being written. If `used` passes HEADER_MAX, the header does
 * not fit. */
struct head {
    char *at;
    size_t used;
};

__attribute__((format(printf, 2, 3))) static void
head_print(struct head *h, const char *fmt, ...)
{
    size_t room = h->used < HEADER_MAX ? HEADER_MAX - h->used : 0;
    va_list args;

    va_start(args, fmt);
    h->used +=
        (size_t)vsnprintf(room ? h->at + h->used : NULL, room, fmt, args);
    va_end(args);
}

/* Return true if a header line is not copied, because forward_header writes the
 * line itself, or because the line refers to a dead letter in this queue's
 * store. With `waits`, forward_header writes the lines with times, too. */
static bool line_is_ours(struct header_text name, bool waits)
{
    static const char *const ours[] = {"id",           "group",     "letter",
                                       "letter-token", "forwarded", "resent",
                                       "not-before",   "delay"};

    for (size_t i = 0; i < sizeof ours / sizeof ours[0] - (waits ? 0 : 2); i++)
        if (name.size == strlen(ours[i]) &&
            memcmp(name.at, ours[i], name.size) == 0)
            return true;
    return false;
}

int forward_header(char head[HEADER_MAX], const struct delivery *d,
                   struct outcome *out)
{
    struct header_text name, value;
    struct head h = {head, 0};
    char id[ULID_TEXT];
    size_t cursor = 0;
    uint64_t count, due = forward_due(d);
    bool waits = due && !(d->header.fields & HEADER_NOT_BEFORE &&
                          due == d->header.not_before_ns);
    int err = forward_count(d, &count, out);

    if (err)
        return err;
    head_print(&h, HEADER_MAGIC "id: %s\n",
               ulid_print(*message_name(d->message), id));
    while (d->header.bytes &&
           header_next(d->message->data, &d->header, &cursor, &name, &value))
        if (!line_is_ours(name, waits))
            head_print(&h, "%.*s: %.*s\n", (int)name.size, name.at,
                       (int)value.size, value.at);
    if (d->group.at)
        head_print(&h, "group: %.*s\n", (int)d->group.size, d->group.at);
    if (waits)
        head_print(&h, "not-before: %" PRIu64 "\n", due);
    if (forward_resent(d))
        head_print(&h, "resent: 1\n");
    head_print(&h, "forwarded: %" PRIu64 "\n\n", count);
    if (h.used < HEADER_MAX) /* vsnprintf needs room for a NUL */
        return (int)h.used;
    forward_refuse(out,
                   "not forwarded: its header would have %zu bytes, but only "
                   "%d are allowed; send the message with fewer header lines",
                   h.used, HEADER_MAX - 1);
    return -EMSGSIZE;
}

/* ---- the queue ---- */

static void queue_forget(struct handler *h)
{
    queue_close(&h->queue);
    free(h->bytes);
    h->bytes = NULL;
}

/* Send a message whose header is written, waiting until `end_ns` (monotonic)
 * for room. After an error the message stays in this queue. */
static void forward_send(struct handler *h, const struct delivery *d,
                         const char *head, size_t head_size, uint64_t end_ns,
                         struct outcome *out)
{
    size_t room = queue_message_size(h->queue);
    size_t size = head_size + d->body_size, depth;
    int err;

    if (size > room) {
        forward_refuse(out,
                       "not forwarded: %zu bytes with its header, but the "
                       "destination allows %zu; recreate the destination with "
                       "--message-size %zu or more, then run mqdlq replay",
                       size, room, size);
        return;
    }
    memcpy(h->bytes, head, head_size);
    memcpy(h->bytes + head_size, d->body, d->body_size);
    FAULT_POINT("forward_before_send");
    err =
        queue_send_wait(h->queue, h->bytes, size, d->message->priority, end_ns);
    FAULT_POINT("forward_sent");
    if (err == -EAGAIN || err == -EINTR) {
        depth = queue_depth(h->queue);
        out->ran = false;
        verdict_not_started(out,
                            "the destination is full (%zu message%s): start "
                            "its worker, or see why it is slow: mqctl status "
                            "%s",
                            depth, depth == 1 ? "" : "s",
                            SHELL_QUEUE(h->set->forward_queue));
    } else if (err && err != -EIDRM) {
        out->ran = false;
        verdict_not_started(out, "cannot send to the destination: %s: %s",
                            errno_text(-err), h->set->forward_queue);
    } else if (err || queue_gone(h->queue)) {
        out->ran = !err; /* the message may be received by a process that still
                            has the queue open */
        verdict_not_started(out,
                            "the destination was removed; create it again: "
                            "mqctl create --message-size %zu %s",
                            room, SHELL_QUEUE(h->set->forward_queue));
    }
}

/* ---- the operations ---- */

/* The wait for room is limited from before the lock, so when several messages
 * wait for room one behind the other, all are given back together. */
static void forward_run(struct handler *h, struct delivery *d,
                        struct outcome *out)
{
    uint64_t end_ns = ns_add(clock_mono_ns(), ROOM_NS);
    char head[HEADER_MAX];
    struct problem p;
    int size, err = 0;

    outcome_begin(out);
    size = forward_header(head, d, out);
    if (size < 0)
        return;
    pthread_mutex_lock(&h->mtx);
    /* Open the destination unless it is open, and again after its name was
     * removed. */
    if (!h->queue || queue_gone(h->queue)) {
        queue_forget(h);
        err = queue_open(&h->queue, h->set->forward_queue, QUEUE_SEND, NULL,
                         NULL, &p);
        h->bytes = err ? NULL : malloc(queue_message_size(h->queue));
        if (!err && !h->bytes) {
            queue_forget(h);
            err = problem_set(&p, EX_OSERR, ENOMEM, "out of memory");
        }
    }
    if (err) {
        out->ran = false;
        verdict_not_started(out, "%s", p.text);
    } else {
        forward_send(h, d, head, (size_t)size, end_ns, out);
    }
    pthread_mutex_unlock(&h->mtx);
}

static void forward_close(struct handler **handler)
{
    struct handler *h = *handler;

    if (!h)
        return;
    *handler = NULL;
    queue_forget(h);
    pthread_mutex_destroy(&h->mtx);
    free(h);
}

static int forward_open(struct handler **out, const struct handler_setup *setup,
                        struct problem *p)
{
    struct handler *h = calloc(1, sizeof *h);

    *out = h;
    if (!h)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    h->set = setup->settings;
    pthread_mutex_init(&h->mtx, NULL);
    return 0;
}

/* Check the destination before anything is created. A missing destination is
 * logged and accepted, because its worker may create it later. */
static int forward_check(const struct settings *set, struct problem *p)
{
    struct queue *queue = NULL;
    int err = queue_open(&queue, set->forward_queue, QUEUE_SEND, NULL, NULL, p);

    queue_close(&queue);
    if (err != -ENOENT)
        return err;
    forward_unusable(set, p);
    return 0;
}

const struct handler_ops handler_forward = {
    .name = "forward",
    .within = true,
    .guess_ns = NS_PER_US,
    .check = forward_check,
    .open = forward_open,
    .run = forward_run,
    .close = forward_close,
};

/* post.c - see post.h */
#include "scripts/mqsend/post.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/cli/complain.h"
#include "common/cli/term.h"
#include "common/mq/queue.h"
#include "common/state/worker_lock.h"

#define SENTENCE 512

/* One run. */
struct run {
    const struct post *post;
    struct rate_limit rate;
    struct term_progress bar;
    struct patience patience;
    char *message; /* room: queue_message_size */
    size_t room;
    uint64_t sent, records; /* records: taken from the input so far */
    uint64_t left_of_record;
};

/* how_far - "3 sent, 4 left"; for an input whose end is not known, the record
 * where to continue */
static void how_far(const struct run *r, char *text, size_t room)
{
    const struct post *post = r->post;
    int n = snprintf(text, room, "%" PRIu64 " sent", r->sent);
    bool between = r->records == 0 || r->left_of_record == 0;

    if (!post->many) {
        snprintf(text + n, room - (size_t)n, ", %" PRIu64 " left",
                 r->left_of_record);
        return;
    }
    n += snprintf(text + n, room - (size_t)n, ", stopped at record %" PRIu64,
                  r->records + between);
    if (!between && post->repeat > 1)
        snprintf(text + n, room - (size_t)n,
                 ", of which %" PRIu64 " of %" PRIu64 " were sent",
                 post->repeat - r->left_of_record, post->repeat);
}

/* run_fail - say why it stops and how far it got; the status */
static int run_fail(struct run *r, int status, const char *why)
{
    char text[SENTENCE];

    how_far(r, text, sizeof text);
    term_progress_end(&r->bar);
    fflush(stdout);
    complain(0, "%s: %s", why, text);
    cli_interrupt_die();
    return status;
}

/* send_refused - a message that the queue did not take, by -errno */
static int send_refused(struct run *r, int err)
{
    char why[SENTENCE], wait[DURATION_TEXT];
    const char *name = queue_label(r->post->queue);

    if (err == -EINTR)
        return run_fail(r, EX_TEMPFAIL, "interrupted");
    if (err == -EIDRM) {
        snprintf(why, sizeof why,
                 "%s was removed while it was full; to create it again: mqctl "
                 "create %s",
                 name, SHELL_QUEUE(name));
        return run_fail(r, EX_NOINPUT, why);
    }
    if (err != -EAGAIN) {
        snprintf(why, sizeof why, "cannot send to %s: %s", name,
                 errno_text(-err));
        return run_fail(r, EX_OSERR, why);
    }
    if (r->post->wait_ns == 0)
        snprintf(why, sizeof why, "%s is full (%zu message%s)", name,
                 queue_depth(r->post->queue),
                 term_plural(queue_depth(r->post->queue)));
    else
        snprintf(why, sizeof why, "%s stayed full (%zu message%s) for %s", name,
                 queue_depth(r->post->queue),
                 term_plural(queue_depth(r->post->queue)),
                 duration_print(r->post->wait_ns, wait));
    return run_fail(r, EX_TEMPFAIL, why);
}

/* body_too_large - all numbers, and what to do; no flag enlarges a queue that
 * exists */
static int body_too_large(struct run *r, size_t body)
{
    char why[SENTENCE];
    size_t header = r->post->envelope->header_bytes, all = body + header;
    const char *name = queue_label(r->post->queue);
    const char *next =
        header > 0 && body <= r->room
            ? "--raw sends the body without a header"
            : "a queue keeps its size; to a larger one: \"Moving a queue\" in "
              "the runbook";

    if (header == 0)
        snprintf(why, sizeof why,
                 "body too large: %zu byte%s, %zu more than the %zu that %s "
                 "takes; %s",
                 body, term_plural(body), body - r->room, r->room, name, next);
    else
        snprintf(why, sizeof why,
                 "body too large: %zu byte%s and a header of %zu make %zu, %zu "
                 "more than the %zu that %s takes; %s",
                 body, term_plural(body), header, all, all - r->room, r->room,
                 name, next);
    return run_fail(r, EX_DATAERR, why);
}

/* room_say - the queue has been full for a second: tell whether a worker runs,
 * and how to end the wait */
static void room_say(bool first, void *arg)
{
    struct run *r = arg;
    const char *name = queue_label(r->post->queue);
    char worker[WORKER_CLAUSE], limit[DURATION_TEXT];
    bool endless = r->post->wait_ns == UINT64_MAX;

    if (r->post->quiet)
        return;
    if (first) {
        term_progress_clear(&r->bar);
        complain(0, "%s is full (%zu message%s), %s; waiting for room%s%s%s",
                 name, queue_depth(r->post->queue),
                 term_plural(queue_depth(r->post->queue)),
                 worker_lock_clause(NULL, name, worker),
                 endless ? "" : ", up to ",
                 endless ? "" : duration_print(r->post->wait_ns, limit),
                 endless ? ", Ctrl-C ends it (or --wait DUR, --no-wait)" : "");
    }
    term_progress_wait(&r->bar, "waiting for room");
}

/* message_send - one message; 0 or an exit status */
static int message_send(struct run *r, const char *body, size_t size)
{
    const struct post *post = r->post;
    int err = rate_limit_wait(&r->rate);
    ssize_t bytes;

    if (err || cli_interrupt_seen())
        return send_refused(r, -EINTR);
    bytes = envelope_fill(post->envelope, body, size, r->message, r->room);
    if (bytes < 0)
        return body_too_large(r, size);
    if (post->wait_ns == 0)
        err =
            queue_send(post->queue, r->message, (size_t)bytes, post->priority);
    else
        err = patience_send(&(struct patient_send){
            .patience = &r->patience,
            .queue = post->queue,
            .data = r->message,
            .size = (size_t)bytes,
            .priority = post->priority,
            .deadline_ns = post->wait_ns == UINT64_MAX
                               ? UINT64_MAX
                               : ns_add(clock_mono_ns(), post->wait_ns),
            .say = room_say,
            .arg = r,
        });
    if (err)
        return send_refused(r, err);
    r->sent++;
    r->left_of_record--;
    if (envelope_told(post->envelope, post->tell, queue_label(post->queue)) < 0)
        return run_fail(r, EX_OSERR, "out of memory");
    term_progress_step(&r->bar, r->sent);
    return 0;
}

/* record_send - one record as often as asked; 0 or an exit status */
static int record_send(struct run *r, const char *body, size_t size)
{
    int status = 0;

    r->records++;
    r->left_of_record = r->post->repeat;
    while (r->left_of_record > 0 && !status)
        status = message_send(r, body, size);
    return status;
}

/* run_records - all of them; 0 or an exit status */
static int run_records(struct run *r)
{
    const char *body;
    size_t size;

    for (;;) {
        int n = input_next(r->post->input, &body, &size);
        int status;

        if (n == INPUT_END)
            return 0;
        if (n == -EINTR && !cli_interrupt_seen())
            continue;
        if (n == -EINTR)
            return run_fail(r, EX_TEMPFAIL, "interrupted");
        if (n < 0) {
            char why[SENTENCE];

            snprintf(why, sizeof why, "cannot read the input: %s",
                     errno_text(-n));
            return run_fail(r, EX_IOERR, why);
        }
        status = record_send(r, body, size);
        if (status)
            return status;
    }
}

/* run_end - two failures show only at the end: the queue was removed meanwhile,
 * or the ids did not reach their file */
static int run_end(struct run *r)
{
    char why[SENTENCE];

    term_progress_end(&r->bar);
    if (queue_gone(r->post->queue)) {
        snprintf(why, sizeof why,
                 "%s was removed meanwhile: what was sent can only be read by "
                 "programs that still have it open",
                 queue_label(r->post->queue));
        return run_fail(r, EX_NOINPUT, why);
    }
    if (fflush(stdout) != 0 || ferror(stdout))
        return run_fail(r, EX_IOERR, "cannot write the ids");
    return 0;
}

/* post_run - send everything; the exit status */
int post_run(const struct post *post)
{
    struct run r = {.post = post, .room = queue_message_size(post->queue)};
    int status;

    r.message = malloc(r.room);
    r.left_of_record = post->repeat;
    if (!r.message) {
        return complain_memory();
    }
    if (!post->quiet && (post->many || post->repeat > 1))
        term_progress_start(&r.bar, "sending", post->many ? 0 : post->repeat);
    rate_limit_start(&r.rate, post->rate, clock_mono_ns());
    status = run_records(&r);
    if (!status)
        status = run_end(&r);
    free(r.message);
    return status;
}

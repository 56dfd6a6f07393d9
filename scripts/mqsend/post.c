/* post.c - send the messages of one run (see post.h) */
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

/* One run to a POSIX queue. */
struct run {
    struct posting posting;
    struct patience patience;
    char *message; /* room: queue_message_size */
    size_t room;
    uint64_t sent;
};

/* ---- for all queues ---- */

void posting_start(struct posting *g, const struct post *post, const char *what)
{
    *g = (struct posting){.post = post, .left = post->repeat};
    if (!post->quiet && (post->many || post->repeat > 1))
        term_progress_start(&g->bar, what, post->many ? 0 : post->repeat);
    rate_limit_start(&g->rate, post->rate, clock_mono_ns());
}

int posting_run(struct posting *g,
                int (*each)(void *arg, const char *body, size_t size,
                            struct problem *p),
                void *arg, struct problem *p)
{
    const char *body;
    size_t size;
    int n, err = 0;

    while ((n = input_next(g->post->input, &body, &size)) != INPUT_END) {
        if (n == -EINTR && !cli_interrupt_seen())
            continue;
        if (n < 0 && n != -EINTR)
            return problem_set(p, EX_IOERR, -n, "cannot read the input: %s",
                               errno_text(-n));
        g->records += n >= 0;
        for (g->left = g->post->repeat; n >= 0 && g->left > 0; g->left--) {
            if (rate_limit_wait(&g->rate) < 0 || cli_interrupt_seen())
                break;
            err = each(arg, body, size, p);
            if (err)
                return err;
        }
        if (n < 0 || g->left > 0)
            return problem_set(p, EX_TEMPFAIL, EINTR, "interrupted");
    }
    return 0;
}

int posting_fail(struct posting *g, const struct problem *p,
                 const char *how_far)
{
    term_progress_end(&g->bar);
    (void)complain_output(0); /* the ids of the messages that were sent */
    complain(0, "%s: %s", p->text, how_far);
    cli_interrupt_die();
    return p->status;
}

/* ---- a POSIX queue ---- */

/* Callback of patience_send, after the queue has been full for a second: say
 * whether a worker is running, and how to end the wait. */
static void full_say(bool first, void *arg)
{
    struct run *r = arg;
    const char *name = queue_label(r->posting.post->queue);
    char worker[WORKER_CLAUSE], limit[DURATION_TEXT];
    bool endless = r->posting.post->wait_ns == UINT64_MAX;

    if (r->posting.post->quiet)
        return;
    if (first) {
        term_progress_clear(&r->posting.bar);
        complain(0, "%s is full (%zu message%s), %s; waiting for room%s%s%s",
                 name, queue_depth(r->posting.post->queue),
                 term_plural(queue_depth(r->posting.post->queue)),
                 worker_lock_clause(NULL, name, worker),
                 endless ? "" : ", up to ",
                 endless ? "" : duration_print(r->posting.post->wait_ns, limit),
                 endless ? ", Ctrl-C ends it (or --wait DUR, --no-wait)" : "");
    }
    term_progress_wait(&r->posting.bar, "waiting for room");
}

/* Send one message: callback of posting_run. */
static int record_send(void *arg, const char *body, size_t size,
                       struct problem *p)
{
    struct run *r = arg;
    const struct post *post = r->posting.post;
    const char *name = queue_label(post->queue);
    size_t depth = queue_depth(post->queue), header;
    ssize_t bytes =
        envelope_fill(post->envelope, body, size, r->message, r->room);
    char parts[64] = "", wait[DURATION_TEXT];
    int err;

    header = post->envelope->header_bytes;
    if (bytes < 0 && header > 0)
        snprintf(parts, sizeof parts, " (%zu body + %zu header)", size, header);
    if (bytes < 0) /* No flag enlarges an existing queue. */
        return problem_set(
            p, EX_DATAERR, EMSGSIZE,
            "message too large: %zu bytes%s, but %s accepts at "
            "most %zu; %s",
            size + header, parts, name, r->room,
            header > 0 && size <= r->room
                ? "--raw sends the body without a header"
                : "to enlarge a queue, see \"Moving a queue\" in "
                  "the runbook");
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
            .say = full_say,
            .arg = r,
        });
    if (err == -EINTR)
        return problem_set(p, EX_TEMPFAIL, EINTR, "interrupted");
    if (err == -EIDRM)
        return problem_set(p, EX_NOINPUT, EIDRM,
                           "%s was removed while it was full; to create it "
                           "again: mqctl create %s",
                           name, SHELL_QUEUE(name));
    if (err == -EAGAIN && post->wait_ns == 0)
        return problem_set(p, EX_TEMPFAIL, EAGAIN, "%s is full (%zu message%s)",
                           name, depth, term_plural(depth));
    if (err == -EAGAIN)
        return problem_set(p, EX_TEMPFAIL, EAGAIN,
                           "%s stayed full (%zu message%s) for %s", name, depth,
                           term_plural(depth),
                           duration_print(post->wait_ns, wait));
    if (err)
        return problem_set(p, EX_OSERR, -err, "cannot send to %s: %s", name,
                           errno_text(-err));
    r->sent++;
    if (envelope_print_id(post->envelope, post->tell, name) < 0)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    term_progress_step(&r->posting.bar, r->sent);
    return 0;
}

int post_run(const struct post *post)
{
    struct run r = {.room = queue_message_size(post->queue)};
    struct problem p = {0};
    const struct posting *g = &r.posting;
    char text[SENTENCE];
    bool between;
    int err;

    r.message = malloc(r.room);
    if (!r.message)
        return complain_memory();
    posting_start(&r.posting, post, "sending");
    err = posting_run(&r.posting, record_send, &r, &p);
    if (!err)
        term_progress_end(&r.posting.bar);
    if (!err && queue_gone(post->queue))
        err = problem_set(&p, EX_NOINPUT, ENOENT,
                          "%s was removed in the meantime: only programs that "
                          "still have it open can read what was sent",
                          queue_label(post->queue));
    free(r.message);
    if (!err)
        return complain_output(0);
    /* "3 sent, 4 left"; for an input whose end is not known, the record with
     * which to continue. */
    between = g->records == 0 || g->left == 0;
    snprintf(text, sizeof text, "%" PRIu64 " sent, ", r.sent);
    if (!post->many)
        text_append(text, sizeof text, "%" PRIu64 " left", g->left);
    else if (between || post->repeat == 1)
        text_append(text, sizeof text, "stopped at record %" PRIu64,
                    g->records + between);
    else
        text_append(text, sizeof text,
                    "stopped at record %" PRIu64 ", of which %" PRIu64
                    " of %" PRIu64 " were sent",
                    g->records, post->repeat - g->left, post->repeat);
    if (err == -EAGAIN)
        text_append(text, sizeof text, "; mqctl doctor %s says why",
                    SHELL_QUEUE(queue_label(post->queue)));
    return posting_fail(&r.posting, &p, text);
}

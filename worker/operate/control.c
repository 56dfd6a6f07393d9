/* control.c - the socket that takes requests of mqctl (see control.h) */
#include "worker/operate/control.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/base/unix_socket.h"
#include "common/state/statedir.h"
#include "worker/flow/flow.h"
#include "worker/loop/loop.h"
#include "worker/operate/halt.h"
#include "worker/operate/live_settings.h"
#include "worker/operate/orders.h"

#define CLIENTS 16
#define FULL_NS (100 * NS_PER_MS) /* until accept(2) is tried again */

/* Used only in the loop. */
struct client {
    struct loop_source source; /* fd -1: free */
    struct control *control;
    uint64_t heard; /* `heard` of the control at its last event */
    size_t used;
    uid_t uid;         /* of its process */
    uint64_t begun_ns; /* when a line began to wait, monotonic; 0: none waits */
    struct steering *steering; /* NULL: none */
    char line[STATEDIR_BEFORE_SIZE + STATEDIR_REQUEST];
};

/* c = constant after open   the rest is the loop's */
struct control {
    struct orders *orders;   /* c */
    struct flow *flow;       /* c */
    struct loop_source door; /* the listening socket */
    struct timer door_timer; /* after an accept without a free descriptor */
    struct client clients[CLIENTS];
    struct timer again_timer; /* to answer the waiting requests */
    uint64_t heard;           /* events of clients so far */
    char path[PATH_MAX];      /* c */
    struct stat node;         /* c  the socket at `path` */
};

/* ---- clients ---- */

static void client_drop(struct client *c)
{
    if (c->source.fd >= 0)
        close(c->source.fd);
    c->source.fd = -1;
    c->used = 0;
    c->begun_ns = 0;
    steering_drop(&c->steering);
}

/* Send an answer in one piece. A client that does not read its answers is
 * dropped. */
static bool answer_send(struct client *c, json_t *answer)
{
    char *text = answer ? json_dumps(answer, JSON_COMPACT) : NULL;
    size_t size = text ? strlen(text) : 0;
    bool sent;

    if (text)
        text[size] = '\n'; /* in place of the NUL */
    sent = text && send(c->source.fd, text, size + 1,
                        MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)size + 1;
    free(text);
    json_decref(answer);
    if (!sent)
        client_drop(c);
    return sent;
}

/* Have the loop try to answer the waiting requests. Any thread. */
static void again_soon(void *arg)
{
    struct control *k = arg;

    timers_start(k->flow->timers, &k->again_timer, clock_mono_ns());
}

/* Answer each complete line, and keep the rest. Stop at a line whose answer has
 * to wait for a job. */
static void lines_answer(struct client *c)
{
    char *from = c->line, *end, words[sizeof c->line];
    struct control *k = c->control;
    bool on = true;

    while (on && (end = memchr(from, '\n', c->used)) != NULL) {
        bool again = c->begun_ns != 0;
        struct order_call call = {.again = again,
                                  .begun_ns =
                                      again ? c->begun_ns : clock_mono_ns(),
                                  .uid = c->uid,
                                  .steering = &c->steering,
                                  .over = again_soon,
                                  .arg = k};
        json_t *out;

        *end = '\0';
        strlcpy(words, from, sizeof words); /* orders_answer cuts the copy */
        out = orders_answer(k->orders, words, &call);
        c->begun_ns = call.later ? call.begun_ns : 0;
        on = !call.later && answer_send(c, out);
        if (call.later)
            *end = '\n'; /* the line is answered later */
        if (call.later && call.ask_ns)
            timers_start_earlier(k->flow->timers, &k->again_timer, call.ask_ns);
        if (on) {
            c->used -= (size_t)(end + 1 - from);
            from = end + 1;
        }
    }
    memmove(c->line, from, c->used);
    if (on && c->used == sizeof c->line &&
        answer_send(c, orders_refusal(EX_USAGE, "the line is too long")))
        client_drop(c);
}

/* Wait for the next line of a client, unless it waits for an answer. */
static void listen_on(struct client *c)
{
    if (c->source.fd >= 0 && !c->begun_ns &&
        loop_watch(c->control->flow->loop, &c->source, EPOLLIN) < 0)
        client_drop(c);
}

/* Try to answer the waiting requests: the job of a request has ended, or its
 * client has waited long enough. */
static void again_due(struct timer *timer)
{
    struct control *k = CONTAINER_OF(timer, struct control, again_timer);

    for (size_t i = 0; i < CLIENTS; i++)
        if (k->clients[i].begun_ns) {
            lines_answer(&k->clients[i]);
            listen_on(&k->clients[i]);
        }
}

/* Read what a client has sent; a client that closed its end is dropped. */
static void client_ready(struct loop_source *source)
{
    struct client *c = CONTAINER_OF(source, struct client, source);
    ssize_t n;

    if (source->fd < 0)
        return; /* dropped in the same round */
    n = recv(source->fd, c->line + c->used, sizeof c->line - c->used,
             MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        client_drop(c);
        return;
    }
    if (n > 0) {
        c->heard = ++c->control->heard;
        c->used += (size_t)n;
        lines_answer(c);
    }
    listen_on(c);
}

/* Wait for the next client. Called also when door_timer fires. */
static void door_open(struct timer *timer)
{
    struct control *k = CONTAINER_OF(timer, struct control, door_timer);

    (void)loop_watch(k->flow->loop, &k->door, EPOLLIN);
}

/* Accept one client. If all places are taken, drop the client that has been
 * quiet for longest. If no descriptor is free, wait for a timer, because the
 * listening socket stays readable. */
static void door_ready(struct loop_source *source)
{
    struct control *k = CONTAINER_OF(source, struct control, door);
    int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    bool full = fd < 0 && errno != EAGAIN && errno != ECONNABORTED;
    struct client *c = &k->clients[0];
    struct ucred who = {0};
    socklen_t size = sizeof who;
    bool known; /* the worker's user or root */

    if (fd >= 0) {
        for (size_t i = 0; i < CLIENTS && c->source.fd >= 0; i++)
            if (k->clients[i].source.fd < 0 || k->clients[i].heard < c->heard)
                c = &k->clients[i];
        client_drop(c);
        c->control = k;
        c->source.fd = fd;
        c->source.ready = client_ready;
        c->heard = ++k->heard;
        known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0;
        c->uid = who.uid;
        if (known && who.uid != 0 && who.uid != geteuid()) {
            known = false;
            log_warn("control_refused", F_UINT("uid", who.uid),
                     F_INT("pid", who.pid),
                     F_STR("next", "the worker's user and root may steer it"));
        }
        if (!known) {
            (void)answer_send(c, orders_refusal(EX_NOPERM,
                                                "only the worker's user "
                                                "and root may ask"));
            client_drop(c);
        } else if (loop_watch(k->flow->loop, &c->source, EPOLLIN) < 0) {
            client_drop(c);
        }
    }
    if (full)
        timers_start_after(k->flow->timers, &k->door_timer, FULL_NS);
    else
        door_open(&k->door_timer);
}

/* ---- open and close ---- */

static struct control *control_fail(struct control *k, const struct flow *f,
                                    int err)
{
    log_warn("control_off", F_STR("queue", f->set->queue),
             F_STR("folder", f->folder), F_STR("error", errno_text(err)),
             F_STR("next", "the worker runs; signals work, mqctl cannot steer "
                           "it"));
    control_close(&k);
    return NULL;
}

struct control *control_open(struct orders *orders)
{
    struct flow *f = orders->flow;
    struct control *k = calloc(1, sizeof *k);
    int err;

    if (!k)
        return control_fail(NULL, f, ENOMEM);
    k->orders = orders;
    k->flow = f;
    orders->cap->over = again_soon;
    orders->cap->arg = k;
    orders->pause->saved = again_soon;
    orders->pause->arg = k;
    k->door.fd = -1;
    k->door.ready = door_ready;
    timer_init(&k->door_timer, door_open);
    timer_init(&k->again_timer, again_due);
    for (size_t i = 0; i < CLIENTS; i++)
        k->clients[i].source.fd = -1;
    if (snprintf(k->path, sizeof k->path, "%s/%s", f->folder,
                 STATEDIR_CONTROL) >= (int)sizeof k->path)
        return control_fail(k, f, ENAMETOOLONG);
    k->door.fd = unix_socket_listen(k->path, CLIENTS);
    if (k->door.fd >= 0 && lstat(k->path, &k->node) < 0)
        k->node = (struct stat){0};
    err = k->door.fd < 0 ? k->door.fd : loop_watch(f->loop, &k->door, EPOLLIN);
    return err ? control_fail(k, f, -err) : k;
}

void control_close(struct control **control)
{
    struct control *k = *control;
    struct stat name;

    if (!k)
        return;
    *control = NULL;
    k->orders->cap->over = NULL;
    k->orders->pause->saved = NULL;
    timers_cancel(k->flow->timers, &k->door_timer);
    timers_cancel(k->flow->timers, &k->again_timer);
    for (size_t i = 0; i < CLIENTS; i++)
        client_drop(&k->clients[i]);
    if (k->door.fd >= 0) {
        close(k->door.fd);
        /* Another worker may have the name after the folder was replaced. */
        if (lstat(k->path, &name) == 0 && file_same(&name, &k->node))
            unlink(k->path);
    }
    free(k);
}

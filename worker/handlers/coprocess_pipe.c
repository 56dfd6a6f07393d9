/* coprocess_pipe.c - the descriptors of a coprocess's child, and what is to go
 * into it
 *
 * One epoll set has all that a coprocess waits for.
 */
#include "worker/handlers/coprocess_inner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

/* control - epoll_ctl, for events of one descriptor */
static int control(struct coprocess *l, int op, int fd, uint32_t of,
                   uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.u32 = of};

    return epoll_ctl(l->epoll, op, fd, &ev) < 0 ? -errno : 0;
}

/* watch - one more descriptor; its end is always told */
static int watch(struct coprocess *l, int fd, uint32_t of, uint32_t events)
{
    return control(l, EPOLL_CTL_ADD, fd, of, events);
}

int coprocess_watch_waker(struct coprocess *l)
{
    return watch(l, l->waker, COPROCESS_OF_WAKER, EPOLLIN);
}

int coprocess_watch(struct coprocess *l)
{
    int err = watch(l, l->child.in, COPROCESS_OF_IN, 0);

    if (!err)
        err = watch(l, l->child.out, COPROCESS_OF_OUT, EPOLLIN);
    if (!err)
        err = watch(l, l->child.err, COPROCESS_OF_ERR, EPOLLIN);
    return err ? err : watch(l, l->child.end, COPROCESS_OF_END, EPOLLIN);
}

/* coprocess_unwatch - before a descriptor is closed
 * To close it is not enough: a process that is being started on another thread
 * has copies of all descriptors until its exec, and while it has one, the epoll
 * set keeps the entry and tells of it, as if it were the next child's.
 */
void coprocess_unwatch(struct coprocess *l, int fd)
{
    if (fd >= 0)
        (void)epoll_ctl(l->epoll, EPOLL_CTL_DEL, fd, NULL);
}

void coprocess_unwatch_all(struct coprocess *l)
{
    coprocess_unwatch(l, l->child.in);
    coprocess_unwatch(l, l->child.out);
    coprocess_unwatch(l, l->child.err);
    coprocess_unwatch(l, l->child.end);
}

/* coprocess_watch_input - as long as the pipe has no room
 * Trouble is not to be expected, as the descriptor is in the set already; then
 * what is pending goes with the next event.
 */
void coprocess_watch_input(struct coprocess *l, bool on)
{
    if (l->output.watched == on)
        return;
    l->output.watched = on;
    if (l->child.in >= 0)
        (void)control(l, EPOLL_CTL_MOD, l->child.in, COPROCESS_OF_IN,
                      on ? EPOLLOUT : 0);
}

/* make_room - for as many bytes at the end of the output */
static int make_room(struct coprocess_output *o, size_t bytes)
{
    size_t used = o->end - o->begin, room = o->room ? o->room : 1024;
    char *grown;

    if (bytes <= o->room - o->end)
        return 0;
    if (o->begin) {
        memmove(o->bytes, o->bytes + o->begin, used);
        o->begin = 0;
        o->end = used;
    }
    while (room - used < bytes)
        room *= 2;
    if (room == o->room)
        return 0;
    grown = realloc(o->bytes, room);
    if (!grown)
        return -ENOMEM;
    o->bytes = grown;
    o->room = room;
    return 0;
}

void coprocess_unfeed(struct coprocess *l)
{
    coprocess_watch_input(l, false);
    l->output.begin = l->output.end = 0;
}

int coprocess_append(struct coprocess *l, struct delivery *d)
{
    struct coprocess_output *o = &l->output;

    if (make_room(o, STREAM_HEAD + d->body_size + 1) < 0)
        return -ENOMEM;
    o->end += stream_head(o->bytes + o->end, d);
    memcpy(o->bytes + o->end, d->body, d->body_size);
    o->end += d->body_size;
    o->bytes[o->end++] = '\n';
    return 0;
}

struct stderr_tail *coprocess_tail(struct coprocess *l)
{
    l->tail.id = l->count == 1 ? delivery_id(TAILQ_FIRST(&l->open)->d) : NULL;
    return &l->tail;
}

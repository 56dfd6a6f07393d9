/* control.h - a socket to steer the worker by
 *
 * WHAT   Listens at `control` in the queue's folder, mode 0600, for clients
 *        with our user id or root's. A request is a line, its answer a JSON
 *        object on one line: docs/formats/control.md.
 * WHO    The peeker; it never blocks for a client. One that does not read its
 *        answers, or says too much, is dropped; of too many, the one that was
 *        quiet for longest.
 * OWNS   The socket and its clients.
 * FAILS  Never: where the socket cannot be had, that is logged and the worker
 *        runs without.
 */
#ifndef WORKER_OPERATE_CONTROL_H
#define WORKER_OPERATE_CONTROL_H

struct control; /* opaque */
struct orders;

/* NULL if it cannot be had. */
struct control *control_open(struct orders *orders);
void control_close(struct control **control); /* NULL-safe; sets NULL */

#endif

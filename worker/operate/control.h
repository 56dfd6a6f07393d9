/* control.h - the socket that takes requests of mqctl
 *
 * WHAT   Listens at `control` in the queue's folder, mode 0600, for clients
 *        with our user id or root's. A request is a line, its answer a JSON
 *        object on one line: docs/formats/control.md.
 * WHO    The engine calls open and close. The peeker answers requests and never
 *        blocks for a client. It drops a client that does not read its answers
 *        or sends too long a line. When a client comes while all places are
 *        taken, it drops the client that has been quiet for longest.
 * OWNS   The socket and its clients.
 * FAILS  If the socket cannot be made, that is logged, and the worker runs
 *        without it.
 */
#ifndef WORKER_OPERATE_CONTROL_H
#define WORKER_OPERATE_CONTROL_H

struct control; /* opaque */
struct orders;

/* Open the socket. Returns NULL if it cannot be made. */
struct control *control_open(struct orders *orders);
void control_close(struct control **control); /* NULL-safe; sets NULL */

#endif

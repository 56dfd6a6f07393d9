/* reopen.h - the queue was deleted under us: drain it, open the name again
 *
 * WHAT   logind deletes an ordinary user's queues at logout, and administrators
 *        re-create queues, while the worker holds the old one.
 * WHO    open, close: the engine. gone: any thread. now: under receive_mtx.
 * OWNS   A lookout on the queue.
 * FAILS  open: a problem. now: -errno, the old queue stays.
 */
#ifndef WORKER_REOPEN_H
#define WORKER_REOPEN_H

#include <stdbool.h>

#include "common/problem.h"

struct engine;
struct reopen; /* opaque; body in reopen.c */

int reopen_open(struct reopen **out, struct engine *e, struct problem *p);
void reopen_close(struct reopen **r); /* NULL-safe; sets NULL */
/* Whether the queue's name is gone. */
bool reopen_gone(const struct reopen *r);
/* The old queue is empty: take the new one. */
int reopen_now(struct reopen *r);

#endif

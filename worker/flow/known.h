/* known.h - whether a message was here before
 *
 * WHAT   What its header says of that: it is a letter on its way again, or a
 *        second copy of one; or another message has its unique key.
 * WHO    receive, restart/: for each message that was just taken, or is left
 *        from the last worker, before it is delivered or stored.
 * OWNS   Nothing.
 * FAILS  -errno of the source: not known now, ask again.
 */
#ifndef WORKER_FLOW_KNOWN_H
#define WORKER_FLOW_KNOWN_H

#include "worker/flow/flow.h"
#include "worker/rules/delivery.h"

/* 0: d->repeat or d->duplicate, if it is to come to nothing (settle_repeat). */
int known_look(struct flow *f, struct delivery *d);

#endif

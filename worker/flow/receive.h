/* receive.h - what others may ask about taking messages
 *
 * WHAT   Whether a message is to wait in the source.
 * WHO    Any thread.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef WORKER_FLOW_RECEIVE_H
#define WORKER_FLOW_RECEIVE_H

#include <stdbool.h>

struct delivery;
struct flow;

/* It is not due yet, and has not waited in the source before. */
bool receive_delayed(const struct flow *f, const struct delivery *d);

#endif

/* topology_parts.h - a queue with partitions
 *
 * WHAT   NAME.0 and up, and the exchange NAME.partitions.<N> in front of them,
 *        declared; and whether a queue has partitions (topology_unlike,
 *        topology_number of topology.h).
 * WHO    topology.c.
 * OWNS   Nothing.
 * FAILS  As topology.h.
 */
#ifndef COMMON_AMQP_TOPOLOGY_PARTS_H
#define COMMON_AMQP_TOPOLOGY_PARTS_H

#include "common/amqp/queue_spec.h"

/* The declaration of one. */
void topology_part_spec(struct queue_spec *q, const struct link *l,
                        const char *name, const char *exchange);
/* All of them, and what is in front. */
int topology_parts_open(struct link *l, const struct topology *t,
                        const char *dead, struct problem *p);

#endif

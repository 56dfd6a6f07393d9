/* queue_spec.h - one queue as it is declared
 *
 * WHAT   The arguments of a quorum queue with a net under it, its declaration,
 *        and in words why the broker has another one.
 * WHO    The files of topology.h.
 * OWNS   Nothing: names and texts are borrowed until it is declared.
 * FAILS  As topology.h.
 */
#ifndef COMMON_AMQP_QUEUE_SPEC_H
#define COMMON_AMQP_QUEUE_SPEC_H

#include <string.h>

#include "common/amqp/topology.h"

#define QUEUE_SPEC_ARGUMENTS 8
#define QUEUE_SPEC_PARTED    ".partitions."

/* A declaration in the making. */
struct queue_spec {
    const char *name;
    amqp_table_entry_t entries[QUEUE_SPEC_ARGUMENTS];
    int count;
};

static inline amqp_bytes_t queue_spec_bytes(const char *text)
{
    return (amqp_bytes_t){strlen(text), (void *)(uintptr_t)text};
}

void queue_spec_init(struct queue_spec *q, const struct link *l,
                     const char *name, const char *net);
/* One more argument. */
void queue_spec_text(struct queue_spec *q, const char *name, const char *value);
void queue_spec_number(struct queue_spec *q, const char *name, int64_t value);
void queue_spec_single(struct queue_spec *q);
/* Declare the queue: 0, or -errno as link_reply. A queue that differs only in
 * its delivery limit is accepted, and l->limited is set if the queue may have a
 * limit. */
int queue_spec_declare(struct link *l, const struct queue_spec *q,
                       bool passive);
/* Declare it as `t` has it; with `as_it_is` one of another kind will do. */
int queue_spec_ready(struct link *l, const struct topology *t,
                     const struct queue_spec *q, bool as_it_is,
                     struct problem *p);
/* A problem: why `name` cannot be used, after `err` of link_reply. */
int queue_spec_refused(struct link *l, const struct topology *t,
                       const char *name, int err, struct problem *p);

#endif

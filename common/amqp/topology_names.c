/* topology_names.c - what the queues are called, and how long they let a
 * message wait (see topology.h)
 *
 * A time to live of each message would make a message wait behind one that
 * waits longer: the broker looks at the head of a queue only. So a queue has
 * one length.
 */
#include "common/amqp/topology.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/amqp/queue_spec.h"

/* ms; the longest is a day, and a longer wait is several of them. */
static const uint64_t lengths[TOPOLOGY_LENGTHS] = {
    1000, 4000, 16000, 60000, 240000, 960000, 3600000, 14400000, 86400000};

const char *topology_dead(const struct topology *t, char out[TOPOLOGY_NAME])
{
    snprintf(out, TOPOLOGY_NAME, "%s.dead", t->operand->queue);
    return out;
}

const char *topology_queue(const struct topology *t, unsigned part,
                           char out[TOPOLOGY_NAME])
{
    if (t->partitions)
        snprintf(out, TOPOLOGY_NAME, "%s.%u", t->operand->queue, part);
    else
        snprintf(out, TOPOLOGY_NAME, "%s", t->operand->queue);
    return out;
}

const char *topology_waits(const struct topology *t, unsigned part, uint64_t ms,
                           char out[TOPOLOGY_NAME])
{
    size_t n = strlen(topology_queue(t, part, out));

    snprintf(out + n, TOPOLOGY_NAME - n, ".wait.%" PRIu64, ms);
    return out;
}

const char *topology_exchange(const struct topology *t, char out[TOPOLOGY_NAME])
{
    snprintf(out, TOPOLOGY_NAME, "%s" QUEUE_SPEC_PARTED "%u", t->operand->queue,
             t->partitions);
    return out;
}

void topology_time_to_live(const struct topology *t, const char *name,
                           amqp_basic_properties_t *p)
{
    size_t own = strlen(t->operand->queue);

    if (strstr(name, t->operand->queue) != name)
        return;
    if (t->partitions && name[own] == '.')
        own += 1 + strspn(name + own + 1, "0123456789");
    if (strncmp(name + own, ".wait.", 6) != 0)
        return;
    p->_flags |= AMQP_BASIC_EXPIRATION_FLAG;
    p->expiration = queue_spec_bytes(name + own + 6);
}

uint64_t topology_length(uint64_t ms)
{
    uint64_t longest = 0;

    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        if (lengths[i] <= ms)
            longest = lengths[i];
    return longest;
}

unsigned topology_index(uint64_t ms)
{
    unsigned i = 0;

    while (i < TOPOLOGY_LENGTHS - 1 && lengths[i] < ms)
        i++;
    return i;
}

uint64_t topology_length_at(unsigned i)
{
    return lengths[i];
}

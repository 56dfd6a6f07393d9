/* amqp_message.c - one message of a broker, in the worker (see
 * amqp_message.h) */
#include "worker/source/amqp/amqp_message.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

#define SUMMED 4096 /* bytes of a body that tell it from others */

struct amqp_message *amqp_message_make(amqp_bytes_t raw, size_t body_size)
{
    struct amqp_message *m =
        malloc(sizeof *m + raw.len + HEADER_MAX + body_size);

    if (!m)
        return NULL;
    *m = (struct amqp_message){.raw = {raw.len, m->bytes},
                               .body = m->bytes + raw.len + HEADER_MAX,
                               .body_size = body_size};
    memcpy(m->bytes, raw.bytes, raw.len);
    return m;
}

void amqp_message_free(struct amqp_message *m)
{
    free(m->own_raw);
    free(m);
}

/* Make the key by which a message is known. That of a copy has the copy's
 * line: two messages of a producer may have one id, and each has copies of
 * its own. That of an original has its body, so that messages that differ
 * are not taken for each other. */
static void key_set(struct amqp_message *m, const struct envelope *e)
{
    size_t summed = m->body_size < SUMMED ? m->body_size : SUMMED;
    uint64_t part;

    m->line = e->line;
    m->derived = e->derived;
    m->key = (struct run_key){e->id, (uint32_t)e->attempt, (uint16_t)e->replay,
                              (uint16_t)e->hop};
    memcpy(&part, m->key.id.bytes, sizeof part);
    part ^=
        m->line ? m->line : fnv_add(FNV_BEGIN ^ m->body_size, m->body, summed);
    memcpy(m->key.id.bytes, &part, sizeof part);
}

/* Read the group of a message, or refuse the message: only what comes to one
 * partition has an order. */
static void group_set(struct amqp_message *m, struct amqp_queue *queue,
                      const struct envelope *e)
{
    unsigned parts = queue->topology.partitions;

    m->grouped = true;
    m->group_crc = e->group_crc;
    if (!parts)
        m->refused =
            "it names a group, and a queue without partitions keeps no "
            "order";
    else if (!e->good_group)
        m->refused = "what it names in mqw-group cannot be a group";
    else if (e->group_crc % parts != m->part)
        m->refused = "it is not in the partition of its group";
    if (m->refused && !atomic_exchange(&queue->group_logged, true))
        log_error("group_refused", F_STR("queue", queue->operand->shown),
                  F_STR("error", m->refused),
                  F_STR("next",
                        parts ? "such messages are dead letters: the routing "
                                "key is CRC-32 of mqw-group modulo the number "
                                "of partitions"
                              : "such messages are dead letters, as several "
                                "workers would run them in any order; leave "
                                "out mqw-group, or give --partitions to its "
                                "workers and senders"));
}

int amqp_message_read(struct amqp_message *m, struct amqp_queue *queue,
                      bool redelivered)
{
    char head[HEADER_MAX];
    struct envelope e;
    int err = envelope_read(&e, m->raw, m->body, m->body_size, head);

    if (err)
        return err;
    m->id = e.id;
    key_set(m, &e);
    m->due_wall_ns = e.due_ns;
    m->first_ns = e.first_ns;
    m->m.data = m->body - e.head;
    m->m.size = m->body_size + e.head;
    memcpy((unsigned char *)(uintptr_t)m->m.data, head, e.head);
    m->m.id = &m->id;
    m->m.priority = e.priority;
    m->m.failures = (uint32_t)e.attempt;
    if (redelivered || e.resent)
        m->m.flags |= MESSAGE_REDELIVERED;
    if (e.due_ns)
        m->m.flags |= MESSAGE_STORED;
    if (e.has_group)
        group_set(m, queue, &e);
    if (!m->refused)
        m->refused = e.wrong;
    return 0;
}

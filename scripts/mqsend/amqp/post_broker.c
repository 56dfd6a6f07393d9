/* post_broker.c - mqsend to a queue on a broker (see post.h)
 *
 * A message gets its id before it is sent for the first time. So a message that
 * is sent twice, because its confirm was lost, has one id, and the second one
 * is marked. mqsend.c calls post_all through broker_engine_amqp, in its only
 * thread.
 */
#include "scripts/mqsend/post.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <bsd/stdlib.h>

#include "common/amqp/publisher.h"
#include "common/amqp/topology.h"
#include "common/base/clock.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/broker/broker_engine.h"
#include "common/broker/broker_operand.h"
#include "common/cli/complain.h"
#include "common/cli/term.h"

#define ENTRIES (HEADER_X_MAX + 8)

/* One run. */
struct run {
    struct posting posting;
    struct publisher *publisher;
    struct topology topology;
    uint64_t given; /* messages that the publisher accepted */
    unsigned next;  /* partition for the next message without a group */
    char password[BROKER_PASSWORD];
};

/* Give one message to the publisher, which keeps a copy. Without a group, the
 * partitions take the messages in turn; a delayed message goes to a wait queue
 * first. The AMQP headers stand for the lines of the text header that a POSIX
 * queue would get. Callback of posting_run. */
static int message_put(void *arg, const char *body, size_t size,
                       struct problem *p)
{
    struct run *r = arg;
    const struct post *post = r->posting.post;
    struct envelope *e = post->envelope;
    amqp_table_entry_t headers[ENTRIES];
    amqp_basic_properties_t properties = {
        ._flags = AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG,
        .headers = {0, headers},
        .delivery_mode = 2,
        .priority = (uint8_t)post->priority};
    char name[TOPOLOGY_NAME], id[ULID_TEXT];
    uint64_t now = clock_wall_ns(), due = envelope_not_before(e, now), ms;
    unsigned part = 0, parts = r->topology.partitions;
    int n = 0, err;

    if (size > post->most)
        return problem_set(p, EX_DATAERR, EMSGSIZE,
                           "body too large: %zu bytes, a broker takes up to "
                           "%zu",
                           size, post->most);
    if (parts)
        part = e->group ? partition_of(e->group, strlen(e->group), parts)
                        : r->next++ % parts;
    ms = topology_target(&r->topology, part,
                         due > now ? (due - now) / NS_PER_MS : 0, name);
    err = ms > 0 ? publisher_wait_queue(r->publisher, part, ms, p) : 0;
    if (err)
        return err;
    if (!e->has_id && !e->raw)
        e->id = ulid_make(now);
    if (!e->raw) {
        properties._flags |= AMQP_BASIC_MESSAGE_ID_FLAG;
        properties.message_id = amqp_cstring_bytes(ulid_print(e->id, id));
        headers[n++] = entry_number("mqw-sent", now);
        if (due)
            headers[n++] = entry_number("mqw-due", due);
        if (e->ttl_ns)
            headers[n++] = entry_number("mqw-expires", ns_add(now, e->ttl_ns));
        if (e->timeout_ms)
            headers[n++] = entry_number("mqw-timeout", e->timeout_ms);
        if (e->group)
            headers[n++] = entry_text("mqw-group", e->group);
        for (size_t i = 0; i < e->x_count; i++)
            headers[n++] = entry_of(e->x[i].name, e->x[i].value);
        properties.headers.num_entries = n;
    }
    if (post->priority)
        properties._flags |= AMQP_BASIC_PRIORITY_FLAG;
    r->given++;
    err = publisher_put(r->publisher, name, &properties, body, size, p);
    if (err == -ENOMEM || err == -EMSGSIZE)
        r->given--;
    if (err)
        return err;
    if (envelope_print_id(e, post->tell, post->operand->shown) < 0)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    term_progress_step(&r->posting.bar, publisher_confirmed(r->publisher));
    return 0;
}

/* Send the messages of one run. Returns the exit status. */
static int post_all(const struct post *post)
{
    struct run r = {
        .posting.post = post,
        .topology = {.operand = post->operand,
                     .partitions = (unsigned)post->access->partitions},
        .next = arc4random()};
    const struct publisher_setup setup = {.link = {.operand = post->operand,
                                                   .password = r.password,
                                                   .tls = post->access->tls,
                                                   .name = "mqsend"},
                                          .topology = r.topology,
                                          .create = post->create,
                                          .priorities = post->priority > 0,
                                          .wait_ns = post->wait_ns,
                                          .stop = cli_interrupted};
    uint64_t confirmed, none, known, left;
    struct problem p = {0};
    char text[128];
    int err, status = 0;

    if (broker_password_find(r.password, post->operand,
                             post->access->password_file, &p) < 0 ||
        publisher_open(&r.publisher, &setup, &p) < 0) {
        explicit_bzero(r.password, sizeof r.password);
        return complain_of(&p);
    }
    posting_start(&r.posting, post, "confirmed");
    err = posting_run(&r.posting, message_put, &r, &p);
    if (!err)
        err = publisher_flush(r.publisher, &p);
    if (err) { /* messages without an answer may be in the queue or not */
        confirmed = publisher_confirmed(r.publisher);
        none = publisher_refused(r.publisher);
        known = confirmed + none;
        left = r.given > known ? r.given - known : 0;
        snprintf(text, sizeof text, "%" PRIu64 " confirmed", confirmed);
        if (none > 0)
            text_append(text, sizeof text, ", %" PRIu64 " not taken", none);
        if (none == 0 || left > 0)
            text_append(text, sizeof text, ", %" PRIu64 " not known", left);
        status = posting_fail(&r.posting, &p, text);
    }
    term_progress_end(&r.posting.bar);
    if (!status)
        status = complain_output(0);
    publisher_close(&r.publisher);
    explicit_bzero(r.password, sizeof r.password);
    return status;
}

const struct broker_engine broker_engine_amqp = {.send = post_all};

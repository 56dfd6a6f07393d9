/* post_broker.c - the sending of a run's messages to a queue on a broker (see
 * post.h)
 *
 * The id of a message is fixed before it is sent for the first time: what is
 * sent twice, as its confirm was lost, has one id, and the second says so.
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
#include "common/broker/broker_engine.h"
#include "common/broker/broker_operand.h"
#include "common/cli/complain.h"
#include "common/cli/term.h"

#define ENTRIES (HEADER_X_MAX + 8)

/* One run. */
struct run {
    const struct post *post;
    struct publisher *publisher;
    struct topology topology;
    struct rate_limit rate;
    struct term_progress bar;
    uint64_t given; /* to the publisher, which may have sent them */
    /* Of each part, bits of wait queues that are there. */
    unsigned declared[PARTITIONS_MAX];
    unsigned next; /* part, of a message without a group */
    char password[BROKER_PASSWORD];
};

static amqp_table_entry_t number(const char *name, uint64_t n)
{
    return (amqp_table_entry_t){
        .key = amqp_cstring_bytes(name),
        .value = {.kind = AMQP_FIELD_KIND_I64,
                  .value.i64 = n > INT64_MAX ? INT64_MAX : (int64_t)n}};
}

/* headers_fill - what the text header says of a POSIX queue's message */
static int headers_fill(const struct envelope *e, uint64_t now,
                        amqp_table_entry_t all[ENTRIES])
{
    int n = 0;

    all[n++] = number("mqw-sent", now);
    if (envelope_not_before(e, now))
        all[n++] = number("mqw-due", envelope_not_before(e, now));
    if (e->ttl_ns)
        all[n++] = number("mqw-expires", ns_add(now, e->ttl_ns));
    if (e->timeout_ms)
        all[n++] = number("mqw-timeout", e->timeout_ms);
    if (e->group)
        all[n++] = (amqp_table_entry_t){
            .key = amqp_cstring_bytes("mqw-group"),
            .value = {.kind = AMQP_FIELD_KIND_UTF8,
                      .value.bytes = amqp_cstring_bytes(e->group)}};
    for (size_t i = 0; i < e->x_count; i++)
        all[n++] = (amqp_table_entry_t){
            .key = {e->x[i].name.size, (void *)(uintptr_t)e->x[i].name.at},
            .value = {.kind = AMQP_FIELD_KIND_UTF8,
                      .value.bytes = {e->x[i].value.size,
                                      (void *)(uintptr_t)e->x[i].value.at}}};
    return n;
}

/* part_of - that of its group; the others are spread */
static unsigned part_of(struct run *r)
{
    const char *group = r->post->envelope->group;
    unsigned parts = r->topology.partitions;

    if (!parts)
        return 0;
    return group ? partition_of(group, strlen(group), parts)
                 : r->next++ % parts;
}

/* target - where it waits for its delay, or the queue itself */
static int target(struct run *r, uint64_t now, char name[TOPOLOGY_NAME],
                  struct problem *p)
{
    uint64_t due = envelope_not_before(r->post->envelope, now);
    uint64_t ms = topology_length(due > now ? (due - now) / NS_PER_MS : 0);
    unsigned bit, part = part_of(r);
    int err;

    if (ms == 0) {
        topology_queue(&r->topology, part, name);
        return 0;
    }
    topology_waits(&r->topology, part, ms, name);
    bit = 1U << topology_index(ms);
    if (r->declared[part] & bit)
        return 0;
    err = publisher_wait_queue(r->publisher, part, ms, p);
    if (!err)
        r->declared[part] |= bit;
    return err;
}

/* message_put - to the publisher, which keeps a copy */
static int message_put(struct run *r, const char *body, size_t size,
                       struct problem *p)
{
    struct envelope *e = r->post->envelope;
    amqp_table_entry_t headers[ENTRIES];
    amqp_basic_properties_t properties = {
        ._flags = AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG,
        .headers = {0, headers},
        .delivery_mode = 2};
    char name[TOPOLOGY_NAME], id[ULID_TEXT];
    uint64_t now = clock_wall_ns();
    int err = target(r, now, name, p);

    if (err)
        return err;
    if (!e->has_id && !e->raw)
        e->id = ulid_make(now);
    if (!e->raw) {
        properties._flags |= AMQP_BASIC_MESSAGE_ID_FLAG;
        properties.message_id = amqp_cstring_bytes(ulid_print(e->id, id));
        properties.headers.num_entries = headers_fill(e, now, headers);
    }
    if (r->post->priority) {
        properties._flags |= AMQP_BASIC_PRIORITY_FLAG;
        properties.priority = (uint8_t)r->post->priority;
    }
    r->given++;
    err = publisher_put(r->publisher,
                        &(struct publication){.queue = name,
                                              .properties = &properties,
                                              .body = body,
                                              .size = size},
                        p);
    if (err == -ENOMEM || err == -EMSGSIZE)
        r->given--; /* it never was */
    if (err)
        return err;
    if (envelope_told(e, r->post->tell, r->post->operand->shown) < 0)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    term_progress_step(&r->bar, publisher_confirmed(r->publisher));
    return 0;
}

/* record_put - one record as often as asked */
static int record_put(struct run *r, const char *body, size_t size,
                      struct problem *p)
{
    int err = 0;

    if (size > r->post->most)
        return problem_set(p, EX_DATAERR, EMSGSIZE,
                           "body too large: %zu bytes, a broker takes up to "
                           "%zu",
                           size, r->post->most);
    for (uint64_t n = r->post->repeat; n > 0 && !err; n--) {
        err = rate_limit_wait(&r->rate);
        if (err || cli_interrupt_seen())
            return problem_set(p, EX_TEMPFAIL, EINTR, "interrupted");
        err = message_put(r, body, size, p);
    }
    return err;
}

/* records_put - all of them, and all are confirmed on 0 */
static int records_put(struct run *r, struct problem *p)
{
    const char *body;
    size_t size;
    int n, err = 0;

    while (!err) {
        n = input_next(r->post->input, &body, &size);
        if (n == INPUT_END)
            return publisher_flush(r->publisher, p);
        if (n == -EINTR && !cli_interrupt_seen())
            continue;
        if (n < 0)
            return problem_set(p, n == -EINTR ? EX_TEMPFAIL : EX_IOERR, -n,
                               "cannot read the input: %s", errno_text(-n));
        err = record_put(r, body, size, p);
    }
    return err;
}

/* failed - why, how many are there for sure, and how many are surely not: of
 * the others nobody knows */
static int failed(struct run *r, const struct problem *p)
{
    uint64_t confirmed = r->publisher ? publisher_confirmed(r->publisher) : 0;
    uint64_t none = r->publisher ? publisher_refused(r->publisher) : 0;
    uint64_t known = confirmed + none;
    uint64_t left = r->given - (r->given < known ? r->given : known);
    char lost[40] = "", unknown[40] = "";

    if (none > 0)
        snprintf(lost, sizeof lost, ", %" PRIu64 " not taken", none);
    if (none == 0 || left > 0)
        snprintf(unknown, sizeof unknown, ", %" PRIu64 " not known", left);
    term_progress_end(&r->bar);
    fflush(stdout);
    complain(0, "%s: %" PRIu64 " confirmed%s%s", p->text, confirmed, lost,
             unknown);
    cli_interrupt_die();
    return p->status;
}

static bool stop(void *arg)
{
    (void)arg;
    return cli_interrupt_seen() != 0;
}

/* connect_to - to any of the hosts */
static int connect_to(struct run *r, struct problem *p)
{
    const struct post *post = r->post;
    struct publisher_setup setup = {
        .link = {.operand = post->operand,
                 .password = r->password,
                 .tls = post->access->tls,
                 .name = "mqsend"},
        .topology = r->topology,
        .create = post->create,
        .priorities = post->priority > 0,
        .wait_ns = post->wait_ns,
        .stop = stop,
    };
    int err = broker_password_find(r->password, post->operand,
                                   post->access->password_file, p);

    return err ? err : publisher_open(&r->publisher, &setup, p);
}

static int post_all(const struct post *post)
{
    struct run r = {
        .post = post,
        .topology = {.operand = post->operand,
                     .partitions = (unsigned)post->access->partitions},
        .next = arc4random()};
    struct problem p = {0};
    int status = 0;

    if (connect_to(&r, &p) < 0)
        return complain_of(&p);
    if (!post->quiet && (post->many || post->repeat > 1))
        term_progress_start(&r.bar, "confirmed", post->many ? 0 : post->repeat);
    rate_limit_start(&r.rate, post->rate, clock_mono_ns());
    if (records_put(&r, &p) < 0)
        status = failed(&r, &p);
    term_progress_end(&r.bar);
    if (!status && (fflush(stdout) != 0 || ferror(stdout)))
        status = complain(EX_IOERR, "cannot write the ids");
    publisher_close(&r.publisher);
    return status;
}

const struct broker_engine broker_engine_amqp = {.send = post_all};

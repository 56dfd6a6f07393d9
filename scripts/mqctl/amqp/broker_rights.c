/* broker_rights.c - see broker_rights.h
 *
 * RabbitMQ looks at the right to read before it looks at the arguments of a
 * consumer: a priority that is no number is refused with 406, and without the
 * right it is 403. No consumer is there at any moment.
 */
#include "scripts/mqctl/amqp/broker_rights.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/ulid.h"

static amqp_bytes_t word(const char *text)
{
    return (amqp_bytes_t){strlen(text), (void *)(uintptr_t)text};
}

static int read_try(struct link *l, const char *queue,
                    struct broker_rights *out)
{
    amqp_table_entry_t wrong = {
        .key = word("x-priority"),
        .value = {.kind = AMQP_FIELD_KIND_UTF8, .value.bytes = word("none")}};
    int err;

    (void)amqp_basic_consume(l->c, LINK_CHANNEL, word(queue), word(""), 0, 0, 0,
                             (amqp_table_t){1, &wrong});
    err = link_reply(l, amqp_get_rpc_reply(l->c));
    if (err != -EPROTO)
        return err ? err : -EPROTO; /* a consumer: this is another server */
    if (l->code == AMQP_ACCESS_REFUSED)
        memcpy(out->no_read, l->why, LINK_WHY);
    return link_channel(l);
}

/* answer_read - 1 there is one, 0 none yet, -errno */
static int answer_read(struct link *l, struct broker_rights *out)
{
    amqp_frame_t f;
    int n = 0;

    while (!out->answered && (n = link_frame(l, &f)) == YES) {
        const amqp_method_t *m = &f.payload.method;

        if (f.frame_type != AMQP_FRAME_METHOD)
            continue;
        out->answered =
            f.channel == LINK_CHANNEL &&
            (m->id == AMQP_BASIC_ACK_METHOD || m->id == AMQP_BASIC_NACK_METHOD);
        if (f.channel == LINK_CHANNEL && link_closed_by(l, m)) {
            memcpy(out->no_write, l->why, LINK_WHY);
            n = 1;
            break;
        }
    }
    out->blocked = l->blocked;
    link_tidy(l);
    return n < 0 ? n : out->answered || out->blocked || out->no_write[0];
}

static int write_try(struct link *l, struct broker_rights *out)
{
    const amqp_basic_properties_t none = {0};
    uint64_t end = clock_mono_ns() + BROKER_RIGHTS_S * NS_PER_S;
    char name[ULID_TEXT];
    int err;

    ulid_print(ulid_make(clock_wall_ns()), name);
    (void)amqp_confirm_select(l->c, LINK_CHANNEL);
    err = link_reply(l, amqp_get_rpc_reply(l->c));
    if (!err)
        err = link_status(l, amqp_basic_publish(l->c, LINK_CHANNEL, word(""),
                                                word(name), 1, 0, &none,
                                                word("")));
    while (!err && (err = answer_read(l, out)) == 0) {
        struct pollfd fd = {.fd = l->fd, .events = POLLIN};

        if (clock_mono_ns() >= end)
            return 0;
        (void)poll(&fd, 1, 100);
    }
    return err < 0 ? err : 0;
}

int broker_rights(struct link *l, const char *queue, struct broker_rights *out)
{
    int err = 0;

    *out = (struct broker_rights){0};
    if (queue)
        err = read_try(l, queue, out);
    return err ? err : write_try(l, out);
}

/* link.h - a connection to a broker, with one channel
 *
 * WHAT   Connects to one of the hosts of an operand, logs in and opens channel
 *        1, or says in plain words why it cannot. Reads frames as they come.
 * WHO    Every room that talks to a broker; one thread at a time, because of
 *        librabbitmq. After an error other than -EPROTO only link_close may
 *        follow.
 * OWNS   The connection. Borrows the setup until link_open returns.
 * FAILS  link_open: a problem. 69 no host answers, or no server can be used; 77
 *        user, password or rights; 66 no such virtual host; 78 TLS. Other
 *        functions: -errno; the connection is lost, except after -EPROTO.
 */
#ifndef COMMON_AMQP_LINK_H
#define COMMON_AMQP_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/amqp/rabbit.h"
#include "common/broker/broker_operand.h"
#include "common/message/header.h"

#define LINK_CHANNEL   1
#define LINK_HEARTBEAT 30 /* seconds */
/* From this version on, a replicated queue drops a message after 20 deliveries
 * by default, and supports priorities. */
#define SERVER_4 0x040000
/* From this version on, the broker cancels the consumer of a message that is
 * not acknowledged within consumer_timeout; earlier ones close the channel. */
#define SERVER_4_3 0x040300
#define LINK_WHY   256

struct link_setup {
    const struct broker_operand *operand;
    const char *password;
    struct broker_tls tls;
    const char *name; /* by which the broker lists the connection */
    unsigned limit_s; /* for a host to answer; 0: the usual limits */
};

struct link {
    amqp_connection_state_t c;
    int fd;
    unsigned host;   /* index in the operand's hosts */
    unsigned server; /* version of the server: 0x030a08 is 3.10.8 */
    char version[32];
    bool blocked;       /* the broker accepts no messages */
    bool limited;       /* a queue has a delivery limit that is not ours */
    char why[LINK_WHY]; /* reason of the last error */
    uint16_t code;      /* broker's code of that error, such as 404; 0: none */
};

/* Connect to one of the hosts, in turn from `first` on, until one lets us in or
 * returns an error that another host would repeat. */
int link_open(struct link **out, const struct link_setup *setup, unsigned first,
              struct problem *p);
/* Read the next frame, without waiting: YES; NO: there is none; -errno: the
 * connection is gone. Before waiting on `fd`, read until NO: while a call waits
 * for its answer, librabbitmq queues other frames, and `fd` does not become
 * readable for them. Sends due heartbeats. Pointers of a frame are valid until
 * amqp_maybe_release_buffers.
 */
int link_frame(struct link *l, amqp_frame_t *frame);
/* Read a text that the server sent at login, such as "cluster_name"; "": it
 * sent none. */
void link_property(const struct link *l, const char *name, char *out,
                   size_t room);
/* Convert the result of a call that waits for the broker's answer. Returns 0;
 * -EPROTO if the broker closed the channel (see `code` and `why`); or -errno:
 * the connection is gone. */
int link_reply(struct link *l, amqp_rpc_reply_t reply);
/* Convert the result of a call that waits for no answer. */
int link_status(struct link *l, int status);
/* Return true if the broker closes the channel or the connection by this
 * method, with `code` and `why` filled. */
bool link_closed_by(struct link *l, const amqp_method_t *method);
/* Return the broker's max_message_size in bytes, if it closed the channel
 * because of a longer body; 0: it was closed for another reason. */
uint64_t link_largest_body(const struct link *l);
/* Open another channel 1 after -EPROTO of link_reply. */
int link_channel(struct link *l);
void link_close(struct link **link); /* NULL-safe; sets NULL */

/* ---- entries of an AMQP table; texts are borrowed ---- */

amqp_table_entry_t entry_text(const char *name, const char *value);
amqp_table_entry_t entry_of(struct header_text name, struct header_text value);
/* Numbers in a table are signed, so a larger number becomes INT64_MAX. */
amqp_table_entry_t entry_number(const char *name, uint64_t n);
amqp_table_entry_t entry_true(const char *name);

/* ---- a message that comes in, frame by frame ---- */

/* A message is in one block of malloc(3): `before` bytes for the owner of the
 * block, the encoded properties, `gap` bytes, the body. */
struct incoming {
    size_t before, gap;   /* constant */
    uint64_t tag;         /* 0: no message has begun */
    bool redelivered;     /* the broker has delivered it before */
    char consumer[24];    /* name of the consumer; "": it is longer */
    unsigned char *block; /* NULL until the header frame has come */
    amqp_bytes_t raw;     /* encoded properties, in `block` */
    unsigned char *body;  /* in `block` */
    size_t body_size, filled;
};

/* Add a frame of the channel to the message. YES: the message is complete, and
 * `block` is the caller's until incoming_next; NO: more must come; -errno. */
int incoming_frame(struct incoming *in, struct link *l, const amqp_frame_t *f);
/* Expect another message. Frees `block`, unless the caller has set it to NULL.
 */
void incoming_next(struct incoming *in);

#endif

/* broker_operand.h - a queue on a broker, as it is named on a command line
 *
 * WHAT   Reads amqp://USER@HOST[:PORT][,HOST2[:PORT]...]/VHOST/QUEUE, and
 *        amqps:// for TLS. Percent-encoded bytes are decoded.
 * WHO    Any thread. Pure functions.
 * OWNS   Nothing; all text is in the struct.
 * FAILS  A problem with status 64 that repeats no password.
 */
#ifndef COMMON_BROKER_BROKER_OPERAND_H
#define COMMON_BROKER_BROKER_OPERAND_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/problem.h"
#include "common/base/safe_text.h"

#define BROKER_HOSTS      8
#define BROKER_PARTITIONS 64  /* of one queue, at most */
#define BROKER_HOST       254 /* a name in the DNS, and NUL */
#define BROKER_USER       128
#define BROKER_VHOST      128
/* An AMQP name has 255 bytes, and NAME.wait.86400000 is one of ours. */
#define BROKER_QUEUE  224
#define BROKER_FOLDER 768

struct broker_host {
    char name[BROKER_HOST]; /* an IPv6 address is without its brackets */
    unsigned port;
};

struct broker_operand {
    bool tls;
    char user[BROKER_USER];
    struct broker_host hosts[BROKER_HOSTS];
    unsigned host_count; /* > 0 */
    char vhost[BROKER_VHOST];
    char queue[BROKER_QUEUE];
    /* As it was given, without the user: for logs, titles and MQW_QUEUE. */
    char shown[QUEUE_NAME_MAX];
    /* What its folder in a state directory is called: "/amqp/VHOST@HOST/QUEUE",
     * escaped, so that each part is one name. */
    char folder[BROKER_FOLDER];
};

/* Whether `text` is meant to be one: it has the scheme. */
bool broker_operand_is(const char *text);
int broker_operand_parse(struct broker_operand *out, const char *text,
                         struct problem *p);

/* The operand whose folder is "/amqp/VHOST@HOST/QUEUE": with one host, and no
 * user. False: it is none. */
bool broker_operand_of(char out[QUEUE_NAME_MAX], const char *folder);

#endif

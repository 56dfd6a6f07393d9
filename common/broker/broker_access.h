/* broker_access.h - what opens a queue on a broker, as a command line gives it
 *
 * WHAT   The flags of a broker: their rows for a table of options
 *        (common/options/options.h), and what is wrong with those given.
 * WHO    Whatever program takes amqp:// operands.
 * OWNS   Nothing; strings are argv's.
 * FAILS  A problem with status 64 that names the flag.
 */
#ifndef COMMON_BROKER_BROKER_ACCESS_H
#define COMMON_BROKER_BROKER_ACCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/problem.h"
#include "common/broker/broker_operand.h"

struct broker_tls {
    const char *ca, *cert, *key; /* NULL: the system's; none */
};
struct broker_access {
    const char *password_file; /* NULL: broker_password.h */
    struct broker_tls tls;
    uint64_t partitions; /* of the queue; 0: it has none */
};

/* The rows; told of each is where it goes: BROKER_TLS_CA(AT(access.tls.ca)). */
#define BROKER_PASSWORD_FILE(...)                                            \
    {                                                                        \
        "password-file", 0, OPT_STRING,                                      \
            .value = "FILE", __VA_ARGS__,                                    \
            .help = "file with the password for a broker; else "             \
                    "$CREDENTIALS_DIRECTORY/amqp-password or $AMQP_PASSWORD" \
    }
#define BROKER_TLS_CA(...)                                                   \
    {                                                                        \
        "tls-ca", 0, OPT_STRING,                                             \
            .value = "FILE", __VA_ARGS__,                                    \
            .help =                                                          \
                "authorities that may have signed the broker's certificate " \
                "(amqps://); without this, those that the system trusts"     \
    }
#define BROKER_TLS_CERT(...)                                                   \
    {                                                                          \
        "tls-cert", 0, OPT_STRING, .value = "FILE", __VA_ARGS__,               \
                                   .help = "certificate to show to the broker" \
    }
#define BROKER_TLS_KEY(...)                                     \
    {                                                           \
        "tls-key", 0, OPT_STRING, .value = "FILE", __VA_ARGS__, \
                                  .help = "its private key"     \
    }

#define BROKER_PARTITIONS_ROW(...)                                         \
    {                                                                      \
        "partitions", 0, OPT_NUMBER,                                       \
            .value = "N", .min = 1, .max = BROKER_PARTITIONS, __VA_ARGS__, \
            .help = "the queue is N queues of a "                          \
                    "broker, and each group is in one "                    \
                    "of them: all its workers and "                        \
                    "senders give the same N"                              \
    }

/* Refuse flags that do not fit to `operand` ("": none was given): all of them
 * if it is no queue on a broker, those of TLS if it has none, and a certificate
 * without its key. */
int broker_access_check(const struct broker_access *a, const char *operand,
                        struct problem *p);
/* Refuse a flag, as `operand` is no queue on a broker. */
int broker_only(const char *flag, const char *operand, struct problem *p);

#endif

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

/* The first that was given, "--tls-ca"; NULL: none. */
const char *broker_access_given(const struct broker_access *a);
/* Nothing is given for a queue that is on no broker, and no certificate
 * without its key: 0, or a problem. */
int broker_access_check(const struct broker_access *a, bool on_broker,
                        struct problem *p);
/* For a tool, after that: flags for TLS need an operand that has it. */
int broker_access_tls_check(const struct broker_access *a, const char *operand,
                            struct problem *p);

#endif

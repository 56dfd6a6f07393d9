/* broker_operand.h - a queue on a broker, as a command line names and opens it
 *
 * WHAT   Reads amqp://USER@HOST[:PORT][,HOST2[:PORT]...]/VHOST/QUEUE, and
 *        amqps:// for TLS. Percent-encoded bytes are decoded. Has the rows of
 *        its flags for a table of options (common/cli/options.h). Finds
 *        the password of the operand's user: --password-file FILE,
 *        $CREDENTIALS_DIRECTORY/amqp-password, $AMQP_PASSWORD, or "guest" for
 *        the user guest on loopback; in this order.
 * WHO    Every program, for its operand and its flags. The functions are pure,
 *        for any thread, except broker_password_find: it takes AMQP_PASSWORD
 *        out of the environment, so that no handler is given it, and is called
 *        before the program has a second thread.
 * OWNS   Nothing; text is in the struct, or argv's. The caller wipes the
 *        password.
 * FAILS  A problem that repeats no password: status 64 (wrong, or no password
 *        given), 66 (no such file) or 78 (the file is not to be trusted).
 */
#ifndef COMMON_BROKER_BROKER_OPERAND_H
#define COMMON_BROKER_BROKER_OPERAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/problem.h"
#include "common/base/safe_text.h"

#define BROKER_HOSTS      8
#define BROKER_PARTITIONS 64  /* of one queue, at most */
#define BROKER_HOST       254 /* a name in the DNS, and NUL */
#define BROKER_USER       128
#define BROKER_VHOST      128
/* Leaves room for NAME.63.wait.86400000: an AMQP name has up to 255 bytes. */
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
    /* The operand without the user: for logs, titles and MQW_QUEUE. */
    char shown[QUEUE_NAME_MAX];
    /* Its folder in a state directory: "/amqp/VHOST@HOST/QUEUE", escaped so
     * that each part is one name. */
    char folder[BROKER_FOLDER];
};

/* Return true if `text` has the scheme of a broker. */
bool broker_operand_is(const char *text);
int broker_operand_parse(struct broker_operand *out, const char *text,
                         struct problem *p);

/* Make the operand whose folder is "/amqp/VHOST@HOST/QUEUE": with one host, and
 * no user. Returns false if there is none. */
bool broker_operand_of(char out[QUEUE_NAME_MAX], const char *folder);

struct broker_tls {
    const char *ca, *cert, *key; /* NULL: the system's CAs; no certificate */
};
struct broker_access {
    const char *password_file; /* NULL: not given */
    struct broker_tls tls;
    uint64_t partitions; /* of the queue; 0: it has none */
};

/* The rows of the flags. The argument is the place of the value:
 * BROKER_TLS_CA(AT(access.tls.ca)). */
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
            .help = "the queue is split into N "                           \
                    "queues of a broker, each group "                      \
                    "in one of them; all workers and "                     \
                    "senders must give the same N"                         \
    }

/* Refuse flags that do not fit `operand` ("": none was given): all flags if it
 * is not a queue on a broker, the TLS flags if it is amqp://, and a certificate
 * without its key. */
int broker_access_check(const struct broker_access *a, const char *operand,
                        struct problem *p);
/* Refuse a flag because `operand` is not a queue on a broker. */
int broker_only(const char *flag, const char *operand, struct problem *p);

#define BROKER_PASSWORD 256

/* Find the password. `file` is --password-file or NULL. A newline at the end is
 * not part of it. */
int broker_password_find(char out[BROKER_PASSWORD],
                         const struct broker_operand *o, const char *file,
                         struct problem *p);

#endif

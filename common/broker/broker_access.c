/* broker_access.c - what opens a queue on a broker, as a command line gives it
 * (see broker_access.h) */
#include "common/broker/broker_access.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sysexits.h>

const char *broker_access_given(const struct broker_access *a)
{
    return a->password_file ? "--password-file"
           : a->tls.ca      ? "--tls-ca"
           : a->tls.cert    ? "--tls-cert"
           : a->tls.key     ? "--tls-key"
           : a->partitions  ? "--partitions"
                            : NULL;
}

int broker_access_check(const struct broker_access *a, bool on_broker,
                        struct problem *p)
{
    const char *given = broker_access_given(a);

    if (given && !on_broker)
        return problem_set(p, EX_USAGE, EINVAL,
                           "%s is for a queue on a broker (amqp://): leave it "
                           "out",
                           given);
    if (!a->tls.cert != !a->tls.key)
        return problem_set(p, EX_USAGE, EINVAL,
                           "--tls-cert and --tls-key go together: give both");
    return 0;
}

int broker_access_tls_check(const struct broker_access *a, const char *operand,
                            struct problem *p)
{
    const char *given = a->tls.ca     ? "--tls-ca"
                        : a->tls.cert ? "--tls-cert"
                        : a->tls.key  ? "--tls-key"
                                      : NULL;

    if (!given || strncmp(operand, "amqps://", 8) == 0)
        return 0;
    return problem_set(p, EX_USAGE, EINVAL,
                       "%s cannot be used with amqp://, which has no TLS: give "
                       "amqps://, or leave it out",
                       given);
}

/* broker_access.c - what opens a queue on a broker, as a command line gives it
 * (see broker_access.h) */
#include "common/broker/broker_access.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sysexits.h>

int broker_only(const char *flag, const char *operand, struct problem *p)
{
    return operand[0]
               ? problem_set(p, EX_USAGE, EINVAL,
                             "%s is for a queue on a broker (amqp://), and %s "
                             "is not one: leave it out",
                             flag, operand)
               : problem_set(p, EX_USAGE, EINVAL,
                             "%s is for a queue on a broker (amqp://): leave "
                             "it out",
                             flag);
}

int broker_access_check(const struct broker_access *a, const char *operand,
                        struct problem *p)
{
    const char *tls = a->tls.ca     ? "--tls-ca"
                      : a->tls.cert ? "--tls-cert"
                      : a->tls.key  ? "--tls-key"
                                    : NULL;
    const char *given = a->password_file ? "--password-file"
                        : tls            ? tls
                        : a->partitions  ? "--partitions"
                                         : NULL;

    if (given && !broker_operand_is(operand))
        return broker_only(given, operand, p);
    if (!a->tls.cert != !a->tls.key)
        return problem_set(p, EX_USAGE, EINVAL,
                           "--tls-cert and --tls-key go together: give both");
    if (!tls || strncmp(operand, "amqps://", 8) == 0)
        return 0;
    return problem_set(p, EX_USAGE, EINVAL,
                       "%s cannot be used with amqp://, which has no TLS: give "
                       "amqps://, or leave it out",
                       tls);
}

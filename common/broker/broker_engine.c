/* broker_engine.c - what a program does with a queue on a broker (see
 * broker_engine.h) */
#include "common/broker/broker_engine.h"

#include <errno.h>
#include <sysexits.h>

/* Weak: its address is NULL where no object defines it. */
#pragma weak broker_engine_amqp

const struct broker_engine *broker_engine_of(const char *operand,
                                             struct problem *p)
{
    if (&broker_engine_amqp)
        return &broker_engine_amqp;
    (void)problem_set(p, EX_USAGE, ENOTSUP,
                      "%s: amqp:// needs a build with librabbitmq: "
                      "scripts/deps, then make",
                      operand);
    return NULL;
}

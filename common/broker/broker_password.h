/* broker_password.h - what opens a broker
 *
 * WHAT   Finds the password of an operand's user: --password-file FILE,
 *        $CREDENTIALS_DIRECTORY/amqp-password, $AMQP_PASSWORD, or "guest" for
 *        the user guest on loopback; in this order.
 * WHO    One thread, before there are others: it takes AMQP_PASSWORD out of the
 *        environment, so that no handler is given it.
 * OWNS   Nothing; the caller wipes what it was given.
 * FAILS  A problem with status 64 (none given), 66 (no such file) or 78 (the
 *        file is not to be trusted).
 */
#ifndef COMMON_BROKER_BROKER_PASSWORD_H
#define COMMON_BROKER_BROKER_PASSWORD_H

#include "common/base/problem.h"

struct broker_operand;

#define BROKER_PASSWORD 256

/* `file` is --password-file or NULL. A newline at its end is no part of it. */
int broker_password_find(char out[BROKER_PASSWORD],
                         const struct broker_operand *o, const char *file,
                         struct problem *p);

#endif

/* field.h - a value in the headers of a message on a broker
 *
 * WHAT   Compares names, and reads numbers and text of whatever kind a
 *        producer's library chose for them.
 * WHO    Any thread. Pure functions.
 * OWNS   Nothing.
 * FAILS  False: it is another kind, or a number below 0.
 */
#ifndef COMMON_AMQP_FIELD_H
#define COMMON_AMQP_FIELD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/amqp/rabbit.h"

bool field_named(amqp_bytes_t key, const char *name);
bool field_begins(amqp_bytes_t key, const char *with);
bool field_number(const amqp_field_value_t *v, uint64_t *out);
bool field_text(const amqp_field_value_t *v, amqp_bytes_t *out);

#endif

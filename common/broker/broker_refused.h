/* broker_refused.h - what cannot be used with a queue on a broker
 *
 * WHAT   One table for all programs: an option or a verb, and the reason why a
 *        broker cannot have it.
 * WHO    Each program, after it has read its command line. Pure functions.
 * OWNS   Nothing.
 * FAILS  A problem with status 64 that names the option and the reason.
 */
#ifndef COMMON_BROKER_BROKER_REFUSED_H
#define COMMON_BROKER_BROKER_REFUSED_H

#include "common/cli/options.h"

/* Return the reason why `program` cannot use this option or verb with a queue
 * on a broker; NULL: it can. */
const char *broker_refusal(const char *program, const char *name);

/* Refuse the option of this row if it was given and cannot be used with
 * `operand`, a queue on a broker. `options` is the struct that the row is read
 * into; `partitions` are those of the queue, 0 without any. */
int broker_option_check(const char *program, const struct option_row *row,
                        const void *options, const char *operand,
                        uint64_t partitions, struct problem *p);
/* Refuse a verb that cannot be used with `operand`. */
int broker_verb_check(const char *program, const char *verb,
                      const char *operand, struct problem *p);

#endif

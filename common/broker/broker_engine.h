/* broker_engine.h - what a program does with a queue on a broker, and what it
 * cannot
 *
 * WHAT   One struct of functions for all operands with amqp:// or amqps://.
 *        Each program defines broker_engine_amqp in its folder amqp/ and fills
 *        in what it does. A build without librabbitmq leaves these folders out;
 *        then there is no engine, and the operand is refused here. One table
 *        for all programs has the options and verbs that cannot be used with
 *        such an operand, with the reason.
 * WHO    The main thread of each program, after it has read its command line.
 * OWNS   Nothing.
 * FAILS  broker_engine_of: NULL and a problem with status 64. The checks: a
 *        problem with status 64 that names the option and the reason.
 */
#ifndef COMMON_BROKER_BROKER_ENGINE_H
#define COMMON_BROKER_BROKER_ENGINE_H

#include <stdint.h>

#include "common/base/problem.h"
#include "common/cli/options.h"

struct broker_letters;
struct broker_source_setup;
struct handler_ops;
struct options;
struct post;
struct source;

struct broker_engine {
    /* mqworker and libmqworker, on the engine's thread
     * (worker/source/source.h). source_stop waits up to limit_ns for the
     * confirms of the last verdicts. After that, the source calls none of its
     * events. */
    int (*source_open)(struct source **out,
                       const struct broker_source_setup *setup,
                       struct problem *p);
    void (*source_stop)(struct source *s, uint64_t limit_ns);
    void (*source_close)(struct source *s);
    /* mqworker --forward (worker/handlers/handler.h) */
    const struct handler_ops *forward;
    /* mqsend (scripts/mqsend/post.h): the exit status */
    int (*send)(const struct post *post);
    /* mqdlq (scripts/mqdlq/mqdlq_broker.h) */
    const struct broker_letters *letters;
    /* mqctl (scripts/mqctl/mqctl.h): the exit status */
    int (*doctor)(const struct options *o);
};

/* The engine of this program for `operand`, a queue on a broker. */
const struct broker_engine *broker_engine_of(const char *operand,
                                             struct problem *p);

/* Defined in the program's folder amqp/, if that was built. */
extern const struct broker_engine broker_engine_amqp;
/* mqworker's `forward`, in worker/handlers/amqp/. */
extern const struct handler_ops handler_forward_amqp;

/* Refuse the option of this row if it was given and cannot be used with
 * `operand`, a queue on a broker. `options` is the struct that the row is read
 * into; `partitions` is the number of the queue's partitions, or 0. */
int broker_option_check(const char *program, const struct option_row *row,
                        const void *options, const char *operand,
                        uint64_t partitions, struct problem *p);
/* Refuse a verb that cannot be used with `operand`. */
int broker_verb_check(const char *program, const char *verb,
                      const char *operand, struct problem *p);

#endif

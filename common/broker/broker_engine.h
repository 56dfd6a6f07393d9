/* broker_engine.h - what a program does with a queue on a broker
 *
 * WHAT   One struct of functions for all operands with amqp:// or amqps://.
 *        Each program defines broker_engine_amqp in its folder amqp/ and fills
 *        in what it does. A build without librabbitmq leaves these folders out;
 *        then there is no engine, and the operand is refused here.
 * WHO    Any thread.
 * OWNS   Nothing.
 * FAILS  broker_engine_of: NULL and a problem with status 64.
 */
#ifndef COMMON_BROKER_BROKER_ENGINE_H
#define COMMON_BROKER_BROKER_ENGINE_H

#include <stdint.h>

#include "common/base/problem.h"

struct broker_letters;
struct broker_source_setup;
struct options;
struct post;
struct source;

struct broker_engine {
    /* mqworker, libmqworker (worker/source/amqp/source_amqp.h). stop: wait up
     * to limit_ns for the confirms of the last verdicts; after it the source
     * calls no event. */
    int (*source_open)(struct source **out,
                       const struct broker_source_setup *setup,
                       struct problem *p);
    void (*source_stop)(struct source *s, uint64_t limit_ns);
    void (*source_close)(struct source *s);
    /* mqsend (scripts/mqsend/post.h): the exit status */
    int (*send)(const struct post *post);
    /* mqdlq (scripts/mqdlq/mqdlq_broker.h) */
    const struct broker_letters *letters;
    /* mqctl (scripts/mqctl/mqctl.h): the exit status */
    int (*doctor)(const struct options *o);
    int (*move)(const struct options *o);
};

/* The engine of this program for `operand`, a queue on a broker. */
const struct broker_engine *broker_engine_of(const char *operand,
                                             struct problem *p);

/* Defined in the program's folder amqp/, if that was built. */
extern const struct broker_engine broker_engine_amqp;

#endif

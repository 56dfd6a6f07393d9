/* no_broker.c - in the place of amqp/, where librabbitmq was not there when
 * this was built (see broker.h) */
#include "scripts/mqdlq/broker.h"

#include <errno.h>
#include <sysexits.h>

#include "common/text/complain.h"

int broker_open(struct context *ctx)
{
    return complain(EX_USAGE,
                    "%s: amqp:// needs a build with librabbitmq: scripts/deps, "
                    "then make",
                    ctx->o->line.operands[0]);
}

int broker_close(struct context *ctx)
{
    (void)ctx;
    return 0;
}

/* The others are called after broker_open alone, which fails. */

int64_t broker_discard(struct context *ctx, const int64_t *rows, size_t n)
{
    (void)ctx, (void)rows, (void)n;
    return -ENOTSUP;
}

const char *broker_machine(void *arg, int64_t row, unsigned n)
{
    (void)arg, (void)row, (void)n;
    return NULL;
}

int broker_replay_begin(struct context *ctx, const char **to)
{
    (void)ctx, (void)to;
    return EX_USAGE;
}

int broker_replay(struct context *ctx, const struct letter *l, bool first,
                  struct broker_sent *out)
{
    (void)ctx, (void)l, (void)first, (void)out;
    return EX_USAGE;
}

int broker_canary_wait(struct context *ctx)
{
    (void)ctx;
    return EX_USAGE;
}

int broker_import(struct context *ctx, const struct decoding *list, size_t n,
                  struct broker_imported *sum, struct problem *p)
{
    (void)ctx, (void)list, (void)n, (void)sum;
    return problem_set(p, EX_USAGE, ENOTSUP, "built without librabbitmq");
}

/* no_broker.c - in the place of amqp/, where librabbitmq was not there
 * when this was built (see mqctl.h) */
#include <sysexits.h>

#include "common/text/complain.h"
#include "scripts/mqctl/mqctl.h"

static int needs_it(const char *operand)
{
    return complain(EX_USAGE,
                    "%s: amqp:// needs a build with librabbitmq: scripts/deps, "
                    "then make",
                    operand);
}

int doctor_broker_run(const struct options *o)
{
    return needs_it(o->line.operands[0]);
}

int move_run(const struct options *o)
{
    return needs_it(o->line.operands[1]);
}

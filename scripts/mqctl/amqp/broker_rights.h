/* broker_rights.h - what a user may do with a queue, found by trying
 *
 * WHAT   Asks to consume in a way that the broker refuses after it has looked
 *        at the right, and sends a message to a queue that is not there, which
 *        comes back. Nothing is taken, and nothing is left.
 * WHO    The thread that has the link.
 * OWNS   Nothing.
 * FAILS  -errno: the connection is gone.
 */
#ifndef SCRIPTS_MQCTL_AMQP_BROKER_RIGHTS_H
#define SCRIPTS_MQCTL_AMQP_BROKER_RIGHTS_H

#include <stdbool.h>

#include "common/amqp/link.h"

#define BROKER_RIGHTS_S 5 /* until it has to have answered */

struct broker_rights {
    char no_read[LINK_WHY], no_write[LINK_WHY]; /* "": it may, or not known */
    bool answered; /* it took the message, and said so */
    bool blocked;  /* it takes none: an alarm */
};

/* `queue`: one that exists; NULL: the right to read is not known. */
int broker_rights(struct link *l, const char *queue, struct broker_rights *out);

#endif

/* mqctl_explain.h - explain: where a message is and why
 *
 * WHAT   Looks in custody, in the store, in the journal of what is gone.
 * WHO    main.
 * OWNS   Nothing.
 * FAILS  An exit status; 66 if nobody has heard of the message.
 */
#ifndef SCRIPTS_MQCTL_MQCTL_EXPLAIN_H
#define SCRIPTS_MQCTL_MQCTL_EXPLAIN_H

#include "scripts/mqctl/mqctl_options.h"

int explain_run(const struct options *o);

#endif

/* mqctl_steer.h - pause, resume, set, drain, stop, quit
 *
 * WHAT   Passes an order on to the worker and says what it answered.
 * WHO    main.
 * OWNS   Nothing.
 * FAILS  An exit status.
 */
#ifndef SCRIPTS_MQCTL_MQCTL_STEER_H
#define SCRIPTS_MQCTL_MQCTL_STEER_H

#include "scripts/mqctl/mqctl_options.h"

int steer_run(const struct options *o);

#endif

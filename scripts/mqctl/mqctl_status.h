/* mqctl_status.h - status: what workers do
 *
 * WHAT   One queue in detail, several in a table, each as JSON.
 * WHO    main.
 * OWNS   Nothing.
 * FAILS  An exit status; 69 if no worker runs on a queue that was named.
 */
#ifndef SCRIPTS_MQCTL_MQCTL_STATUS_H
#define SCRIPTS_MQCTL_MQCTL_STATUS_H

#include "scripts/mqctl/mqctl_options.h"

int status_run(const struct options *o);

#endif

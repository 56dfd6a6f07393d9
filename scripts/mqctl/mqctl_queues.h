/* mqctl_queues.h - queues, create, remove
 *
 * WHAT   Every queue that can be found, with its worker; make one, remove one.
 * WHO    main.
 * OWNS   Nothing.
 * FAILS  An exit status.
 */
#ifndef SCRIPTS_MQCTL_MQCTL_QUEUES_H
#define SCRIPTS_MQCTL_MQCTL_QUEUES_H

#include "scripts/mqctl/mqctl_options.h"

int queues_run(const struct options *o);
int create_run(const struct options *o);
int remove_run(const struct options *o);

#endif

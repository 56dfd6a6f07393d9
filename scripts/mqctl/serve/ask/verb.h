/* verb.h - what a verb of mqctl prints with --json
 *
 * WHAT   Runs the verb in this process, and reads the objects it prints.
 * WHO    A child of the server.
 * OWNS   Nothing.
 * FAILS  By the exit status of the verb; the reason is out on stderr.
 */
#ifndef SCRIPTS_MQCTL_SERVE_ASK_VERB_H
#define SCRIPTS_MQCTL_SERVE_ASK_VERB_H

#include <jansson.h>

#include "scripts/mqctl/mqctl.h"

/* Add to `list` what the verb prints; its exit status. */
int verb_run(int (*verb)(const struct options *), const struct options *o,
             json_t *list);

#endif

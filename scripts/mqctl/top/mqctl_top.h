/* mqctl_top.h - top: watch workers
 *
 * WHAT   A screen on a terminal (mqctl_top_screen.c), else a line for each
 *        queue and look.
 * WHO    main.
 * OWNS   Nothing.
 * FAILS  An exit status.
 */
#ifndef SCRIPTS_MQCTL_TOP_MQCTL_TOP_H
#define SCRIPTS_MQCTL_TOP_MQCTL_TOP_H

#include "scripts/mqctl/top/mqctl_top_data.h"

int top_run(const struct options *o);
/* Until q; an exit status. */
int top_screen(struct top *t);

#endif

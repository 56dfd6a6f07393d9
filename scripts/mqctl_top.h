/* mqctl_top.h - top: watch workers
 *
 * WHAT   A screen on a terminal (mqctl_top_screen.c), else a line for each
 *        queue and look.
 * WHO    main.
 * OWNS   Nothing.
 * FAILS  An exit status.
 */
#ifndef SCRIPTS_MQCTL_TOP_H
#define SCRIPTS_MQCTL_TOP_H

#include "scripts/mqctl_top_data.h"

int top_run(const struct options *o);
/* Until q; an exit status. */
int top_screen(struct top *t);
/* "12.3/s", "820us", in at most 8 columns; "-" for 0. */
#define TOP_SHORT 16
const char *top_duration(uint64_t ns, char buf[TOP_SHORT]);
/* A number; "-" for one below 0, which is not known. */
#define TOP_COUNT 24
const char *top_count(int64_t n, char buf[TOP_COUNT]);

#endif

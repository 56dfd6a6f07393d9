/* screen.h - top on a terminal
 *
 * WHAT   Looks, draws and obeys keys until q.
 * WHO    main, once.
 * OWNS   The terminal, until it returns.
 * FAILS  An exit status; the reason is out on stderr.
 */
#ifndef SCRIPTS_MQCTL_TOP_SCREEN_H
#define SCRIPTS_MQCTL_TOP_SCREEN_H

#include "scripts/mqctl/top/top.h"

int top_screen(struct top *t);

#endif

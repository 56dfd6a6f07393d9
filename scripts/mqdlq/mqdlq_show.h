/* mqdlq_show.h - the verb show: one letter with all there is to it
 *
 * WHAT   Fields, history of attempts, body on stdout; or the body alone.
 * WHO    main, once.
 * OWNS   Nothing.
 * FAILS  Returns the exit status; the reason is out on stderr.
 */
#ifndef SCRIPTS_MQDLQ_MQDLQ_SHOW_H
#define SCRIPTS_MQDLQ_MQDLQ_SHOW_H

#include "scripts/mqdlq/mqdlq_context.h"

int show_run(struct context *d);

#endif

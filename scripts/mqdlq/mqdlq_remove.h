/* mqdlq_remove.h - the verbs that remove letters: discard, purge
 *
 * WHAT   Removes the chosen letters and their history for good, in transactions
 *        short enough for a running worker.
 * WHO    main, once.
 * OWNS   Nothing.
 * FAILS  Returns the exit status; stderr has the reason and how many went.
 */
#ifndef SCRIPTS_MQDLQ_MQDLQ_REMOVE_H
#define SCRIPTS_MQDLQ_MQDLQ_REMOVE_H

#include "scripts/mqdlq/mqdlq_context.h"

int remove_run(struct context *d);

#endif

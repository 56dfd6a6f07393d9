/* mqdlq_import.h - the verb import: letters that export printed, put in again
 *
 * WHAT   Reads JSON lines, writes new dead letters in batches, in order.
 * WHO    main, once.
 * OWNS   The letters of a batch.
 * FAILS  Returns the exit status; stderr names the line at fault and how many
 *        letters are in: all lines before that one, none from it on.
 */
#ifndef SCRIPTS_MQDLQ_MQDLQ_IMPORT_H
#define SCRIPTS_MQDLQ_MQDLQ_IMPORT_H

#include "scripts/mqdlq/mqdlq_context.h"

int import_run(struct context *d);

#endif

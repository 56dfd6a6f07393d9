/* mqdlq_list.h - the verbs that look at many letters: list, export
 *
 * WHAT   Tables, counts and JSON lines of dead letters on stdout.
 * WHO    main, once.
 * OWNS   Nothing.
 * FAILS  Returns the exit status; the reason is out on stderr.
 */
#ifndef SCRIPTS_MQDLQ_MQDLQ_LIST_H
#define SCRIPTS_MQDLQ_MQDLQ_LIST_H

#include "scripts/mqdlq/mqdlq_context.h"

int list_run(struct context *d);
int export_run(struct context *d);
/* The chosen letters as JSON lines, oldest first unless `backwards`. */
int list_json(struct context *d, bool backwards);

#endif

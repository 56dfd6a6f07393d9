/* library.h - options of the library as settings of the worker
 *
 * WHAT   One table: an option of mqworker.h is the flag of the same name, with
 *        its default and its range.
 * WHO    mqw_open.
 * OWNS   Copies of the strings that the worker keeps, in the settings.
 * FAILS  A problem that names the field.
 */
#ifndef WORKER_LIBRARY_H
#define WORKER_LIBRARY_H

#include "common/base/problem.h"
#include "worker/mqworker.h"
#include "worker/config/settings.h"

/* What a program gave, of whatever size it was compiled with, as the struct of
 * today. *into is usable in any case. */
int options_adopt(struct mqw_options *into, const struct mqw_options *given,
                  struct problem *p);
int options_read(struct settings *set, const struct mqw_options *o,
                 struct problem *p);
/* What options_read copied. */
void options_free(struct settings *set);

#endif

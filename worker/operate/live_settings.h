/* live_settings.h - settings that may change while the worker runs
 *
 * WHAT   One table names them; each is the flag of that name, read and checked
 *        by its row. mqctl set, the library's mqw_set_ functions and TTIN and
 *        TTOU all come here.
 * WHO    Any thread, unless marked otherwise.
 * OWNS   Nothing; the settings are the engine's.
 * FAILS  A problem with status 64; the setting stays as it was.
 */
#ifndef WORKER_OPERATE_LIVE_SETTINGS_H
#define WORKER_OPERATE_LIVE_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/problem.h"

struct orders;

#define TUNE_TEXT 256

/* The i-th name; NULL after the last. */
const char *live_settings_name(size_t i);
/* Its value now, as the flag takes it: "8", "1m30s", "none". */
void live_settings_print(struct orders *o, const char *name,
                         char out[TUNE_TEXT]);
/* Print the setting's value at the start of the worker, in the same form, and
 * store the wall time of the last change in *set_ns. Returns false if the
 * setting was not changed. */
bool live_settings_started(struct orders *o, size_t i, char out[TUNE_TEXT],
                           uint64_t *set_ns);
/* Record that a setting has just been changed by another path. In the loop. */
void live_settings_stamp(struct orders *o, const char *name);
/* Whether `text` is a value for it, and there is room for what it brings: 0, a
 * problem, or -EINPROGRESS: room is made, ask again when cap.h says so. */
int live_settings_ready(struct orders *o, const char *name, const char *text,
                        struct problem *p);
/* Change it; `old` and `now` as live_settings_print. In the peeker. */
int live_settings_text(struct orders *o, const char *name, const char *text,
                       char old[TUNE_TEXT], char now[TUNE_TEXT],
                       struct problem *p);
/* The same for one that is a number; UINT64_MAX where "none" is allowed.
 * max-concurrency: in the peeker. */
int live_settings_number(struct orders *o, const char *name, uint64_t value,
                         struct problem *p);

#endif

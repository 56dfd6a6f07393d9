/* live_settings.h - settings that may change while the worker runs
 *
 * WHAT   The rows of settings.h whose `live` is set, each read and checked like
 *        its flag. mqctl set, the library's mqw_set_ functions and TTIN and
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
#include "worker/config/settings.h"

struct orders;

/* Print the setting's value at the start of the worker, and store the wall time
 * of its last change in *set_ns. Returns false if the value is still the
 * same. */
bool live_settings_started(struct orders *o, const struct option_row *row,
                           char out[SETTING_TEXT], uint64_t *set_ns);
/* Record that a setting has just been changed by another path. In the loop. */
void live_settings_stamp(struct orders *o, const char *name);
/* Check that `text` is a value for the setting, and that there is room for its
 * effect. Returns 0, or -EINVAL or -ENOSPC with a problem; -EINPROGRESS: room is
 * being made, ask again when cap.h says so. */
int live_settings_ready(struct orders *o, const char *name, const char *text,
                        struct problem *p);
/* Change the setting, and print its old and new value as its flag takes them. In
 * the peeker. */
int live_settings_text(struct orders *o, const char *name, const char *text,
                       char old[SETTING_TEXT], char now[SETTING_TEXT],
                       struct problem *p);
/* Change a setting that is a number; UINT64_MAX stands for "none".
 * max-concurrency: in the peeker. */
int live_settings_number(struct orders *o, const char *name, uint64_t value,
                         struct problem *p);

#endif

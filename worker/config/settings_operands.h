/* settings_operands.h - the queue, what handles its messages, and the flags for
 * that
 *
 * WHAT   What stands beside the flags of mqworker, and which flags mean
 *        something to that kind of handler: a command, a long-lived command, a
 *        plugin.
 * WHO    settings_parse, once all flags are read; live_settings.c.
 * OWNS   Nothing; strings are argv's.
 * FAILS  A problem with status 64.
 */
#ifndef WORKER_CONFIG_SETTINGS_OPERANDS_H
#define WORKER_CONFIG_SETTINGS_OPERANDS_H

#include "common/base/problem.h"
#include "worker/config/settings.h"

/* `before` are the `count` operands in front of "--", `command` what follows
 * it, NULL-terminated; NULL: there is no "--". */
int settings_operands_take(struct settings *s, int count, char **command,
                           char **before, struct problem *p);

#endif

/* tool.h - mqdlq, run for a person in front of top
 *
 * WHAT   Runs mqdlq beside us, as it is typed, and keeps what it prints: one
 *        way to replay and to discard, whoever asks for it.
 * WHO    One thread, which waits for its end.
 * OWNS   *out is the caller's.
 * FAILS  By an exit status, with the reason in `why`.
 */
#ifndef SCRIPTS_MQCTL_TOP_TOOL_H
#define SCRIPTS_MQCTL_TOP_TOOL_H

#include <stdint.h>

#include "scripts/mqctl/mqctl.h"

#define TOOL_WHY 512

/* One letter of a queue: show, replay, discard. `why`: the last line of what it
 * printed, which says how it went. */
int tool_letter(const struct options *o, const char *verb, const char *queue,
                int64_t row, char **out, char why[TOOL_WHY]);

#endif

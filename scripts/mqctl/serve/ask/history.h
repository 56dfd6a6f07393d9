/* history.h - the last ten minutes and the last day of each queue
 *
 * WHAT   A ring of samples a second and one of samples a minute, filled from
 *        what the watcher prints.
 * WHO    The server's thread fills; children, which have a copy, read too.
 * OWNS   The rings.
 * FAILS  A queue for which there is no memory has no history.
 */
#ifndef SCRIPTS_MQCTL_SERVE_ASK_HISTORY_H
#define SCRIPTS_MQCTL_SERVE_ASK_HISTORY_H

#include <jansson.h>
#include <stdint.h>

#define HISTORY_SECONDS 600
#define HISTORY_MINUTES 1440
#define HISTORY_SPARK   10 /* seconds in one value of a spark */

/* Add the watcher's current measurement. */
void history_add(const char *queue, const json_t *look);
/* The queue is gone. */
void history_forget(const char *queue);
/* {"step_s":1, "end":..., "done":[..], ...}: oldest first, null where nobody
 * looked. `minutes`: the day. */
json_t *history_json(const char *queue, int minutes);
/* {"step_s":10, "queues":[{"queue":..., "done":[..]}, ...]}: means of ten
 * minutes, a few bytes for each queue. */
json_t *history_sparks(void);
/* The rates and times of the last look, and its last minutes as a line. */
json_t *history_recent(const char *queue);

#endif

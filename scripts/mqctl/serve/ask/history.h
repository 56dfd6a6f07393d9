/* history.h - the last ten minutes and the last day of each queue
 *
 * WHAT   A ring of samples for each second and one for each minute, filled with
 *        the looks of the watching child.
 * WHO    The server's thread fills the rings. Children read their copies.
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
/* Forget a queue that is gone. */
void history_forget(const char *queue);
/* Return {"step_s":1, "end":..., "done":[..], ...}: oldest first, null where
 * there was no look. `minutes`: of the last day. */
json_t *history_json(const char *queue, int minutes);
/* Return {"step_s":10, "queues":[{"queue":..., "done":[..]}, ...]}: means of
 * ten minutes, a few bytes for each queue. */
json_t *history_sparks(void);
/* Return the rates and durations of the last look. */
json_t *history_recent(const char *queue);

#endif

/* history.h - what each queue did in the last ten minutes and the last day
 *
 * WHAT   Two rings of samples for each queue: one a second for ten minutes, and
 *        one each ten seconds for a day. Each look of the watching child adds
 *        to them. The second ring is also in a file, so that a day's chart
 *        survives a restart of the server.
 * WHO    watch.c adds looks and asks for rates, request.c for sparklines, on
 *        the server's only thread. A child that answers a request reads its
 *        copy of the memory.
 * OWNS   The rings and the file.
 * FAILS  A queue for which there is no memory has no history. Without the file
 *        the history ends with the server.
 */
#ifndef SCRIPTS_MQCTL_SERVE_ASK_HISTORY_H
#define SCRIPTS_MQCTL_SERVE_ASK_HISTORY_H

#include <jansson.h>
#include <stdint.h>

#define HISTORY_NAME   "web.history"
#define HISTORY_QUEUES 128 /* in the file, which has at most 35 MB */

/* Read the samples of an earlier server, and keep the file open for new
 * ones. */
void history_open(const char *path);
/* Add a look of the watching child. */
void history_add(const char *queue, const json_t *look);
/* Forget a queue that is gone. */
void history_forget(const char *queue);
/* Return the curves of "10m", "1h" or "24h", oldest value first, null where
 * nothing was measured; NULL: another range. */
json_t *history_json(const char *queue, const char *range);
/* Return the curves of ten minutes for all queues, a character for each value,
 * because the overview needs them in few bytes. */
json_t *history_sparks(void);
/* Set the rates and durations in a row of the overview: means of 5 s, and the
 * share of failures in 5 min. */
void history_row(const char *queue, json_t *row);

#endif

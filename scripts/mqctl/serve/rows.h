/* rows.h - the overview: a row for each queue, and their totals
 *
 * WHAT   Keeps the last look at each queue and the row that was made of it, and
 *        sends what changed since the round before to the event streams.
 * WHO    The server's thread. The child that watches the queues makes the
 *        looks (watch.h).
 * OWNS   The looks and the rows.
 * FAILS  A queue for which there is no memory has no row.
 */
#ifndef SCRIPTS_MQCTL_SERVE_ROWS_H
#define SCRIPTS_MQCTL_SERVE_ROWS_H

#include <jansson.h>

/* Take a look at a queue, and `line`, its text. */
void rows_take(json_t *look, const char *line);
/* End a round, in which each queue was looked at: send the differences. */
void rows_round(void);
/* Return the whole overview; `about` describes the server. The caller frees
 * the result. */
json_t *rows_all(json_t *about);
/* Return the last look at a queue, which the next round may free; NULL: there
 * is none. */
json_t *rows_look(const char *queue);

#endif

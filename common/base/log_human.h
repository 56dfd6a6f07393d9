/* log_human.h - a line of the log for somebody who reads along
 *
 * WHAT   `14:22:01 retry  01JD…  exit 1: no answer  1 of 3, again in 1.2s`:
 *        local time, the event, the message, what happened; colour on a
 *        terminal. And which form stderr gets if nobody says.
 * WHO    Any thread.
 * OWNS   Nothing.
 * FAILS  Never; a text that does not fit is cut.
 */
#ifndef COMMON_BASE_LOG_HUMAN_H
#define COMMON_BASE_LOG_HUMAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/log.h"

struct log_event {
    enum log_level level;
    const char *name;
    const struct log_field *fields;
    size_t n;
    uint64_t wall_ns;
};

/* What stderr is: LOG_JOURNAL where $JOURNAL_STREAM names it, LOG_HUMAN on a
 * terminal, else LOG_TEXT. */
enum log_format log_format_of_stderr(void);
/* Whether stderr is a terminal that takes colour, and nobody objects. */
bool log_human_colour(void);
/* One line without its newline; returns its bytes. Where the line would be
 * wider than `columns` an id is shortened, then what a handler said of an
 * error, and `started` and `stopped` go without some numbers; 0: never. */
size_t log_human(char *buf, size_t room, const struct log_event *event,
                 bool colour, unsigned columns);
/* "1.2s", "340ms", "2h 5m": what a person wants to know of it. */
const char *log_human_duration(uint64_t ns, char *buf, size_t room);

#endif

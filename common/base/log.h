/* log.h - one event, one line on stderr: key=value text or JSON
 *
 * WHAT   log_warn("handler_exit", F_STR("msg", id), F_INT("status", 75)) gives
 *        `time=… level=warn event=handler_exit msg=01JD… status=75`, or the
 *        same as a JSON object, or a short line for people (below).
 *        Values with spaces, quotes, '=' or control bytes are quoted and
 *        escaped, invalid UTF-8 becomes \xNN (text) or U+FFFD (JSON): a line
 *        is always one line and always valid UTF-8.
 * WHO    Any thread; no caller waits for the reader of stderr. Lines never mix.
 *        A line that stderr cannot take without waiting is written by the log's
 *        own thread, which is started for the first such line.
 * OWNS   The log's thread, and 1 MiB for queued lines.
 * FAILS  Never. Lines that do not fit into the queue or cannot be written are
 *        dropped and counted; event=log_lines_dropped reports their number as
 *        soon as stderr takes lines again. A line over 8 KiB is cut.
 */
#ifndef COMMON_BASE_LOG_H
#define COMMON_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
/* In the order of the words of --log-format. LOG_JOURNAL has no word. */
enum log_format {
    LOG_TEXT,    /* key=value */
    LOG_JSON,    /* durations are numbers, in seconds */
    LOG_HUMAN,   /* log_human */
    LOG_AUTO,    /* LOG_JOURNAL, LOG_HUMAN or LOG_TEXT, by what stderr is */
    LOG_JOURNAL, /* key=value, sd-daemon(3)'s level in front, no time */
};

struct log_field {
    const char *key;
    enum { FIELD_STR, FIELD_BYTES, FIELD_INT, FIELD_UINT, FIELD_DURATION } type;
    size_t size; /* of FIELD_BYTES */
    union {
        const char *str; /* NULL leaves the field out */
        int64_t i;
        uint64_t u;
    };
};
#define F_STR(k, v) \
    ((struct log_field){.key = (k), .type = FIELD_STR, .str = (v)})
#define F_BYTES(k, v, n) \
    ((struct log_field){ \
        .key = (k), .type = FIELD_BYTES, .size = (n), .str = (v)})
#define F_INT(k, v) \
    ((struct log_field){.key = (k), .type = FIELD_INT, .i = (int64_t)(v)})
#define F_UINT(k, v) \
    ((struct log_field){.key = (k), .type = FIELD_UINT, .u = (uint64_t)(v)})
/* A duration in ns, printed as duration_print does; in JSON as seconds. */
#define F_DURATION(k, v) \
    ((struct log_field){.key = (k), .type = FIELD_DURATION, .u = (uint64_t)(v)})

/* Set the format; lines below `least` are dropped. */
void log_setup(enum log_level least, enum log_format format);
/* Pass lines to `sink` instead of stderr, without the newline and
 * NUL-terminated. It may be called by any thread, may log, and must not call
 * log_divert. NULL: stderr again. On return the previous sink is not running
 * and is not called again. */
typedef void log_sink(enum log_level level, const char *line, size_t size,
                      void *arg);
void log_divert(log_sink *sink, void *arg);
bool log_enabled(enum log_level level);
void log_write(enum log_level level, const char *event,
               const struct log_field *fields, size_t n);
/* Return the number of lost lines that log_lines_dropped has not yet
 * reported. */
uint64_t log_lost(void);
/* Wait up to a second until all lines so far are written. Call this before the
 * process exits and before something else writes to stderr. */
void log_flush(void);

/* Log an event with at least one field. The fields are evaluated only if the
 * level is enabled. */
#define LOG_AT(level, event, ...)                                  \
    do {                                                           \
        if (log_enabled(level)) {                                  \
            const struct log_field log_fields_[] = {__VA_ARGS__};  \
            log_write(level, event, log_fields_,                   \
                      sizeof log_fields_ / sizeof log_fields_[0]); \
        }                                                          \
    } while (0)
#define log_debug(event, ...) LOG_AT(LOG_DEBUG, event, __VA_ARGS__)
#define log_info(event, ...)  LOG_AT(LOG_INFO, event, __VA_ARGS__)
#define log_warn(event, ...)  LOG_AT(LOG_WARN, event, __VA_ARGS__)
#define log_error(event, ...) LOG_AT(LOG_ERROR, event, __VA_ARGS__)

/* ---- a line for a person ----
 *
 * `14:22:01 retry  01JD…  exit 1: no answer  1 of 3, again in 1.2s`: local
 * time, the event, the message, what happened; colour on a terminal. A text
 * that does not fit is cut.
 */

struct log_event {
    enum log_level level;
    const char *name;
    const struct log_field *fields;
    size_t n;
    uint64_t wall_ns;
};

/* Print one line without its newline; returns its size in bytes. If the line is
 * wider than `columns` (0: no limit), the id is shortened, and `started` and
 * `stopped` omit some numbers; then the handler's text of an error is cut. */
size_t log_human(char *buf, size_t room, const struct log_event *event,
                 bool colour, unsigned columns);

/* Log event=panic what=... and abort, because of a bug of ours. Nothing durable
 * changes: messages in flight stay in custody, as after a kill. May be called
 * by any thread, with any lock held but those of the log; uses no memory but
 * the stack. (The only other abort(3) is that of --timeout-abort, which is no
 * bug and logs event=handler_abort.) */
_Noreturn void panic(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));

#endif

/* log.c - see log.h */
#include "common/base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log_human.h"
#include "common/base/utf8.h"

#define LINE_MAX_BYTES 8192
/* What closes any line fits in here: '"', ',"cut":true', '}', '\n'. */
#define LINE_TAIL 16
#define UNIT_TEXT 16 /* one character of a value, escaped */

/* A line that is being built. Pieces go in whole or not at all; after the
 * first that does not fit, only line_close adds something. */
struct line {
    char text[LINE_MAX_BYTES];
    size_t size;
    bool cut;
};

static atomic_int log_least = LOG_INFO; /* enum log_level */
static atomic_int log_shape = LOG_TEXT; /* enum log_format */
static pthread_rwlock_t log_to_lock = PTHREAD_RWLOCK_INITIALIZER;
static log_sink *log_to; /* under log_to_lock, which the call holds, too: none
                            comes after it was changed */
static void *log_to_arg; /* under log_to_lock */
static pthread_mutex_t log_mtx = PTHREAD_MUTEX_INITIALIZER;
static bool log_torn; /* under log_mtx: the last line on stderr has no end */

static const char *const level_names[] = {
    [LOG_DEBUG] = "debug",
    [LOG_INFO] = "info",
    [LOG_WARN] = "warn",
    [LOG_ERROR] = "error",
};

/* The priority of a level, as the journal takes it: sd-daemon(3). */
static const char *const level_priorities[] = {
    [LOG_DEBUG] = "<7>",
    [LOG_INFO] = "<6>",
    [LOG_WARN] = "<4>",
    [LOG_ERROR] = "<3>",
};

void log_setup(enum log_level least, enum log_format format)
{
    if (format == LOG_AUTO)
        format = log_format_of_stderr();
    atomic_store_explicit(&log_least, (int)least, memory_order_relaxed);
    atomic_store_explicit(&log_shape, (int)format, memory_order_relaxed);
}

void log_divert(log_sink *sink, void *arg)
{
    pthread_rwlock_wrlock(&log_to_lock);
    log_to = sink;
    log_to_arg = arg;
    pthread_rwlock_unlock(&log_to_lock);
}

bool log_enabled(enum log_level level)
{
    return (int)level >= atomic_load_explicit(&log_least, memory_order_relaxed);
}

/* line_put - append `size` bytes, or mark the line as cut */
static void line_put(struct line *l, const char *text, size_t size)
{
    if (l->cut || l->size + size > LINE_MAX_BYTES - LINE_TAIL) {
        l->cut = true;
        return;
    }
    memcpy(l->text + l->size, text, size);
    l->size += size;
}

/* line_puts - append a string, or mark the line as cut */
static void line_puts(struct line *l, const char *text)
{
    line_put(l, text, strlen(text));
}

/* line_end - append to a cut line too, out of LINE_TAIL */
static void line_end(struct line *l, const char *text)
{
    size_t size = strlen(text);

    memcpy(l->text + l->size, text, size);
    l->size += size;
}

/* unit_escape - the escape of a character that cannot stand for itself */
static const char *unit_escape(uint32_t c, char buf[UNIT_TEXT])
{
    switch (c) {
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    }
    if (log_shape == LOG_JSON && c > 0xFFFF) /* RFC 8259, section 7 */
        snprintf(buf, UNIT_TEXT, "\\u%04x\\u%04x",
                 (unsigned)(0xD800 + ((c - 0x10000) >> 10)),
                 (unsigned)(0xDC00 + (c & 0x3FF)));
    else
        snprintf(buf, UNIT_TEXT,
                 log_shape == LOG_JSON ? "\\u%04x"
                 : c < 0x80            ? "\\x%02x"
                                       : "\\u{%04x}",
                 (unsigned)c);
    return buf;
}

/* unit_put - one character of a value; how many bytes it took */
static size_t unit_put(struct line *l, const unsigned char *at, size_t size)
{
    char buf[UNIT_TEXT];
    uint32_t c;
    size_t took = utf8_read(at, size, &c);

    if (took == 0) {
        snprintf(buf, sizeof buf, "\\x%02x", at[0]);
        line_puts(l, log_shape == LOG_JSON ? "\uFFFD" : buf);
        return 1;
    }
    if (c == '"' || c == '\\' || utf8_hidden(c))
        line_puts(l, unit_escape(c, buf));
    else
        line_put(l, (const char *)at, took);
    return took;
}

/* value_plain - whether a text value can stand without quotes */
static bool value_plain(const unsigned char *value, size_t size)
{
    size_t at = 0;

    while (at < size) {
        uint32_t c;
        size_t took = utf8_read(value + at, size - at, &c);

        if (took == 0 || c == ' ' || c == '=' || c == '"' || c == '\\' ||
            utf8_hidden(c))
            return false;
        at += took;
    }
    return size > 0;
}

/* value_put - a string, in quotes where the format or the string wants them */
static void value_put(struct line *l, const char *text, size_t size)
{
    const unsigned char *value = (const unsigned char *)text;
    size_t at = 0;

    if (log_shape != LOG_JSON && value_plain(value, size)) {
        while (at < size && !l->cut)
            at += unit_put(l, value + at, size - at);
        return;
    }
    line_puts(l, "\"");
    if (l->cut)
        return;
    while (at < size && !l->cut)
        at += unit_put(l, value + at, size - at);
    line_end(l, "\"");
}

/* number_put - a number whole or not at all: half of one is a wrong one */
static void number_put(struct line *l, const struct log_field *f)
{
    char buf[DURATION_TEXT];

    if (f->type == FIELD_DURATION && log_shape == LOG_JSON) {
        snprintf(buf, sizeof buf, "%ju.%09ju", (uintmax_t)(f->u / NS_PER_S),
                 (uintmax_t)(f->u % NS_PER_S));
        line_puts(l, buf);
        return;
    }
    if (f->type == FIELD_DURATION) {
        duration_print(f->u, buf);
        value_put(l, buf, strlen(buf));
        return;
    }
    if (f->type == FIELD_INT)
        snprintf(buf, sizeof buf, "%jd", (intmax_t)f->i);
    else
        snprintf(buf, sizeof buf, "%ju", (uintmax_t)f->u);
    line_puts(l, buf);
}

/* key_put - what stands in front of a value */
static void key_put(struct line *l, const char *key)
{
    bool json = log_shape == LOG_JSON;

    line_puts(l, json ? ",\"" : " ");
    line_puts(l, key);
    line_puts(l, json ? "\":" : "=");
}

/* field_put - key and value; nothing of it if no part of the value fits */
static void field_put(struct line *l, const struct log_field *f)
{
    bool text = f->type == FIELD_STR || f->type == FIELD_BYTES;
    size_t start = l->size;
    size_t value_at;

    if (l->cut || (text && !f->str))
        return;
    key_put(l, f->key);
    value_at = l->size;
    if (f->type == FIELD_STR)
        value_put(l, f->str, strlen(f->str));
    else if (f->type == FIELD_BYTES)
        value_put(l, f->str, f->size);
    else
        number_put(l, f);
    if (l->cut && (!text || l->size == value_at))
        l->size = start;
}

/* line_open - time, level, event. Starts with a newline that only a line after
 * a torn one is written with. */
static void line_open(struct line *l, enum log_level level, const char *event)
{
    char now[TIME_TEXT];

    l->size = 0;
    l->cut = false;
    if (log_shape == LOG_JOURNAL) { /* which has the time */
        line_puts(l, "\n");
        line_puts(l, level_priorities[level]);
        line_puts(l, "level=");
    } else {
        time_print(clock_wall_ns(), now);
        line_puts(l, log_shape == LOG_JSON ? "\n{\"time\":\"" : "\ntime=");
        line_puts(l, now);
        line_puts(l, log_shape == LOG_JSON ? "\",\"level\":\"" : " level=");
    }
    line_puts(l, level_names[level]);
    line_puts(l, log_shape == LOG_JSON ? "\",\"event\":" : " event=");
    value_put(l, event, strlen(event));
}

/* line_close - say that it was cut, and end it */
static void line_close(struct line *l)
{
    if (l->cut)
        line_end(l, log_shape == LOG_JSON ? ",\"cut\":true" : " cut=true");
    line_end(l, log_shape == LOG_JSON ? "}\n" : "\n");
}

/* line_write - to stderr. Text that a full non-blocking stderr does not take is
 * dropped: a stuck reader must not stop the worker. Half a line then stays
 * behind, so the next one starts with a newline of its own. The lock is for
 * lines over PIPE_BUF, which a full pipe would mix (pipe(7)). */
static void line_write(const struct line *l)
{
    const char *at, *end = l->text + l->size;

    pthread_mutex_lock(&log_mtx);
    at = l->text + !log_torn;
    while (at < end) {
        ssize_t took = write(STDERR_FILENO, at, (size_t)(end - at));

        if (took < 0 && errno == EINTR)
            continue;
        if (took <= 0)
            break;
        at += took;
    }
    /* Nothing was written: as torn as before. Only the newline: whole. */
    if (at == end || at == l->text + 1)
        log_torn = false;
    else if (at > l->text)
        log_torn = true;
    pthread_mutex_unlock(&log_mtx);
}

/* line_hand - to the sink, without the newlines around it; false: there is
* none */
static bool line_hand(struct line *l, enum log_level level)
{
    bool handed;

    pthread_rwlock_rdlock(&log_to_lock);
    handed = log_to != NULL;
    if (handed) {
        l->text[l->size - 1] = '\0';
        log_to(level, l->text + 1, l->size - 2, log_to_arg);
    }
    pthread_rwlock_unlock(&log_to_lock);
    return handed;
}

/* line_human - the whole line, as wide as the terminal if it is one */
static void line_human(struct line *l, const struct log_event *event)
{
    struct winsize size;
    unsigned columns =
        ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;

    l->text[0] = '\n'; /* as line_open has it */
    l->cut = false;
    l->size = 1 + log_human(l->text + 1, LINE_MAX_BYTES - LINE_TAIL, event,
                            log_human_colour(), columns);
    line_end(l, "\n");
}

/* log_write - one event as one line; errno stays as it is */
void log_write(enum log_level level, const char *event,
               const struct log_field *fields, size_t n)
{
    struct line l;
    int saved = errno;

    if (!log_enabled(level))
        return;
    if (log_shape == LOG_HUMAN)
        line_human(
            &l, &(struct log_event){level, event, fields, n, clock_wall_ns()});
    else {
        line_open(&l, level, event);
        for (size_t i = 0; i < n; i++)
            field_put(&l, &fields[i]);
        line_close(&l);
    }
    if (!line_hand(&l, level))
        line_write(&l);
    errno = saved;
}

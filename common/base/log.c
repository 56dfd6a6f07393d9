/* log.c - write log lines to stderr (see log.h)
 *
 * Any thread builds its line on its own stack (line_build) and hands it to
 * line_send, or to the sink of log_divert. The second half prints lines for
 * people (log_human).
 */
#include "common/base/log.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/libc.h"
#include "common/base/safe_text.h"

#define LINE_MAX_BYTES 8192
/* Room for the end of any line: '"', ',"cut":true', '}', '\n'. */
#define LINE_TAIL 16
#define UNIT_TEXT 16 /* one character of a value, escaped */
/* Size of the buffer of waiting lines, bytes; a power of two. */
#define LATE_BYTES (1u << 20)
#define FLUSH_S    1 /* Longest wait of log_flush, seconds. */
#define STACK_BYTES \
    (128u << 10) /* Stack of the writer thread, with room for two lines. */

/* A line under construction. A piece is added whole or not at all. After the
 * first piece that does not fit, only the closing characters are added. */
struct line {
    char text[LINE_MAX_BYTES];
    size_t size;
    bool cut;
};

static atomic_int log_least = LOG_INFO; /* enum log_level */
static atomic_int log_shape = LOG_TEXT; /* enum log_format */
static pthread_rwlock_t log_to_lock = PTHREAD_RWLOCK_INITIALIZER;
static log_sink *log_to; /* under log_to_lock, held while it is called */
static void *log_to_arg; /* under log_to_lock */

/* Lines that stderr could not take without waiting, oldest first. Each line
 * ends with its only newline. log_mtx protects these variables. */
static pthread_mutex_t log_mtx = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t log_more = PTHREAD_COND_INITIALIZER; /* late_size > 0 */
static pthread_cond_t log_idle; /* The writer has nothing to do. */
static bool log_runs;           /* The writer thread was started. */
static bool log_busy;           /* The writer has taken a line and is writing
                                   it. */
static bool log_rest;           /* The first late line is the rest of a line on
                                 stderr. */
static bool log_torn;           /* The last line on stderr is incomplete. */
static char late[LATE_BYTES];   /* Ring buffer. */
static size_t late_at, late_size; /* Index of the first byte; number of
                                     bytes. */
static uint64_t log_dropped; /* Lines lost since the last log_lines_dropped. */

#define RESET "\033[0m"
#define DIM   "\033[2m"

static const struct {
    const char *name;
    const char *priority; /* in front of a line for the journal: sd-daemon(3) */
    const char *colour;   /* of the event's name, for people */
} levels[] = {
    [LOG_DEBUG] = {"debug", "<7>", DIM},
    [LOG_INFO] = {"info", "<6>", "\033[32m"},
    [LOG_WARN] = {"warn", "<4>", "\033[33m"},
    [LOG_ERROR] = {"error", "<3>", "\033[31m"},
};

void log_setup(enum log_level least, enum log_format format)
{
    const char *journal = getenv("JOURNAL_STREAM");
    char real[64] = "-"; /* unlike any value of the variable */
    struct stat st;

    if (journal && fstat(STDERR_FILENO, &st) == 0)
        snprintf(real, sizeof real, "%ju:%ju", (uintmax_t)st.st_dev,
                 (uintmax_t)st.st_ino);
    if (format == LOG_AUTO)
        format = journal && strcmp(journal, real) == 0 ? LOG_JOURNAL
                 : isatty(STDERR_FILENO)               ? LOG_HUMAN
                                                       : LOG_TEXT;
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

/* Append `size` bytes, or mark the line as cut. */
static void line_add(struct line *l, const char *text, size_t size)
{
    if (l->cut || l->size + size > LINE_MAX_BYTES - LINE_TAIL) {
        l->cut = true;
        return;
    }
    memcpy(l->text + l->size, text, size);
    l->size += size;
}

static void line_add_text(struct line *l, const char *text)
{
    line_add(l, text, strlen(text));
}

/* Append to a line even if it is cut: LINE_TAIL leaves room for that. */
static void line_end(struct line *l, const char *text)
{
    size_t size = strlen(text);

    memcpy(l->text + l->size, text, size);
    l->size += size;
}

/* Append one character of a value, escaped if necessary; returns the number of
 * bytes read. */
static size_t unit_put(struct line *l, const unsigned char *at, size_t size)
{
    static const char plain[] = "\n\r\t\"\\", escaped[] = "nrt\"\\";
    bool json = log_shape == LOG_JSON;
    char buf[UNIT_TEXT];
    uint32_t c;
    size_t took = utf8_read(at, size, &c);
    const char *found = took == 1 && c ? strchr(plain, (int)c) : NULL;

    if (took > 0 && !found && !utf8_hidden(c)) {
        line_add(l, (const char *)at, took);
        return took;
    }
    if (took == 0)
        snprintf(buf, sizeof buf, json ? "\uFFFD" : "\\x%02x", at[0]);
    else if (found)
        snprintf(buf, sizeof buf, "\\%c", escaped[found - plain]);
    else if (json && c > 0xFFFF) /* RFC 8259, section 7 */
        snprintf(buf, sizeof buf, "\\u%04x\\u%04x",
                 (unsigned)(0xD800 + ((c - 0x10000) >> 10)),
                 (unsigned)(0xDC00 + (c & 0x3FF)));
    else
        snprintf(buf, sizeof buf,
                 json       ? "\\u%04x"
                 : c < 0x80 ? "\\x%02x"
                            : "\\u{%04x}",
                 (unsigned)c);
    line_add_text(l, buf);
    return took ? took : 1;
}

/* Return true if a text value needs no quotes. */
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

/* Append a string, in quotes if the format or the string requires them. */
static void value_put(struct line *l, const char *text, size_t size)
{
    const unsigned char *value = (const unsigned char *)text;
    bool quoted = log_shape == LOG_JSON || !value_plain(value, size);
    size_t at = 0;

    if (quoted)
        line_add_text(l, "\"");
    if (l->cut)
        return;
    while (at < size && !l->cut)
        at += unit_put(l, value + at, size - at);
    if (quoted)
        line_end(l, "\"");
}

/* Append a key and its value. A number that does not fit is left out, because
 * half of a number is a wrong number; a text is cut. A key without any part of
 * its value is left out as well. */
static void field_add(struct line *l, const struct log_field *f)
{
    bool text = f->type == FIELD_STR || f->type == FIELD_BYTES;
    size_t start = l->size, value_at;
    char buf[DURATION_TEXT];

    if (l->cut || (text && !f->str))
        return;
    line_add_text(l, log_shape == LOG_JSON ? ",\"" : " ");
    line_add_text(l, f->key);
    line_add_text(l, log_shape == LOG_JSON ? "\":" : "=");
    value_at = l->size;
    if (f->type == FIELD_DURATION && log_shape == LOG_JSON)
        snprintf(buf, sizeof buf, "%ju.%09ju", (uintmax_t)(f->u / NS_PER_S),
                 (uintmax_t)(f->u % NS_PER_S));
    else if (f->type == FIELD_DURATION)
        duration_print(f->u, buf);
    else if (f->type == FIELD_INT)
        snprintf(buf, sizeof buf, "%jd", (intmax_t)f->i);
    else
        snprintf(buf, sizeof buf, "%ju", (uintmax_t)f->u);
    if (text)
        value_put(l, f->str, f->type == FIELD_STR ? strlen(f->str) : f->size);
    else
        line_add_text(l, buf);
    if (l->cut && (!text || l->size == value_at))
        l->size = start;
}

/* Build the whole line of an event. LOG_HUMAN: as wide as the terminal, in
 * colour if the terminal has it and NO_COLOR is not set. */
static void line_build(struct line *l, enum log_level level, const char *event,
                       const struct log_field *fields, size_t n)
{
    char now[TIME_TEXT];

    l->size = 0;
    l->cut = false;
    if (log_shape == LOG_HUMAN) {
        const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
        struct winsize size = {.ws_col = 0};

        (void)ioctl(STDERR_FILENO, TIOCGWINSZ, &size);
        l->size = log_human(
            l->text, LINE_MAX_BYTES - LINE_TAIL,
            &(struct log_event){level, event, fields, n, clock_wall_ns()},
            isatty(STDERR_FILENO) && !(no && *no) &&
                !(term && strcmp(term, "dumb") == 0),
            size.ws_col);
        line_end(l, "\n");
        return;
    }
    if (log_shape == LOG_JOURNAL) { /* the journal adds the time */
        line_add_text(l, levels[level].priority);
        line_add_text(l, "level=");
    } else {
        time_print(clock_wall_ns(), now);
        line_add_text(l, log_shape == LOG_JSON ? "{\"time\":\"" : "time=");
        line_add_text(l, now);
        line_add_text(l, log_shape == LOG_JSON ? "\",\"level\":\"" : " level=");
    }
    line_add_text(l, levels[level].name);
    line_add_text(l, log_shape == LOG_JSON ? "\",\"event\":" : " event=");
    value_put(l, event, strlen(event));
    for (size_t i = 0; i < n; i++)
        field_add(l, &fields[i]);
    if (l->cut)
        line_end(l, log_shape == LOG_JSON ? ",\"cut\":true" : " cut=true");
    line_end(l, log_shape == LOG_JSON ? "}\n" : "\n");
}

/* ---- stderr ----
 *
 * The reader of stderr may stop reading, so no thread that does other work
 * waits for it. O_NONBLOCK cannot be used, because that flag belongs to the
 * open file, which the handlers and the shell share. If the kernel can write a
 * line without waiting, the calling thread writes it. Otherwise the line is
 * queued for the writer thread, which is started for the first such line.
 */

/* Write to stderr, waiting for its reader; returns the number of bytes written
 * before an error. */
static size_t stderr_write(const char *text, size_t size)
{
    struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};
    size_t at = 0;

    while (at < size) {
        ssize_t took = write(STDERR_FILENO, text + at, size - at);

        if (took > 0)
            at += (size_t)took;
        else if (took < 0 && errno == EAGAIN)
            (void)poll(&room, 1, -1);
        else if (took == 0 || errno != EINTR)
            break;
    }
    return at;
}

static void *writer_run(void *arg);

/* Start the writer; returns false if it cannot be started. The writer blocks
 * all signals, so that they reach the program's own threads. */
static bool writer_start(void)
{
    pthread_condattr_t steady;
    pthread_attr_t attr;
    sigset_t all, before;
    pthread_t thread;

    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&log_idle, &steady);
    pthread_condattr_destroy(&steady);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    log_runs = pthread_create(&thread, &attr, writer_run, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return log_runs;
}

/* Queue a line, or its rest, for the writer; returns false if it is lost. If a
 * line does not fit, drop it and all later lines until the queue is empty, so
 * that there is a single gap and log_lines_dropped marks the place. */
static bool late_put(const char *text, size_t size)
{
    bool full = size > LATE_BYTES - late_size ||
                (log_dropped && (late_size || log_busy));

    if (full || (!log_runs && !writer_start())) {
        log_dropped++;
        return false;
    }
    for (size_t i = 0; i < size; i++)
        late[(late_at + late_size + i) % LATE_BYTES] = text[i];
    late_size += size;
    pthread_cond_signal(&log_more);
    return true;
}

/* Write a line if stderr takes it without waiting, else queue it. The caller
 * holds log_mtx. */
static void line_send(const struct line *l);

/* Log the number of lost lines. The caller holds log_mtx; stderr has just taken
 * a line, and the queue is empty. */
static void dropped_send(void)
{
    const struct log_field fields[] = {
        F_UINT("count", log_dropped),
        F_STR("next",
              "check the program that reads the log: it stopped, was too slow "
              "or ran out of space. Messages were not delayed")};
    struct line l;

    log_dropped = 0;
    line_build(&l, LOG_WARN, "log_lines_dropped", fields, 2);
    line_send(&l);
}

static void line_send(const struct line *l)
{
    struct iovec line = {.iov_base = (char *)l->text, .iov_len = l->size};
    struct stat st;
    ssize_t n = 0;
    size_t took;
    bool queued;

    /* Write as much as stderr takes without waiting. RWF_NOWAIT works for pipes
     * and sockets since Linux 6.4, and not for terminals. A write to a regular
     * file waits for no reader. */
    if (late_size == 0 && !log_busy && !log_torn)
        n = fstat(STDERR_FILENO, &st) == 0 && S_ISREG(st.st_mode)
                ? write(STDERR_FILENO, l->text, l->size)
                : pwritev2(STDERR_FILENO, &line, 1, -1, RWF_NOWAIT);
    took = n > 0 ? (size_t)n : 0;
    if (took == l->size) {
        if (log_dropped)
            dropped_send();
        return;
    }
    queued = late_put(l->text + took, l->size - took);
    if (took > 0)
        *(queued ? &log_rest : &log_torn) = true;
}

/* Run the writer thread: write late lines one by one, each with one write(2) if
 * stderr allows it. Start the line after a torn one with an extra newline.
 */
static void *writer_run(void *arg)
{
    char text[1 + LINE_MAX_BYTES] = "\n";

    pthread_mutex_lock(&log_mtx);
    for (;;) {
        size_t size, from, end;
        bool rest;

        while (late_size == 0)
            pthread_cond_wait(&log_more, &log_mtx);
        rest = log_rest;
        log_rest = false;
        from = log_torn ? 0 : 1;
        size = 1;
        do { /* take the first late line out of the ring */
            text[size++] = late[late_at];
            late_at = (late_at + 1) % LATE_BYTES;
            late_size--;
        } while (text[size - 1] != '\n');
        log_busy = true;
        pthread_mutex_unlock(&log_mtx);
        end = from + stderr_write(text + from, size - from);
        pthread_mutex_lock(&log_mtx);
        log_busy = false;
        if (end < size) {
            log_dropped++;
            log_torn = end > 1 || rest || (log_torn && end == 0);
        } else {
            log_torn = false;
            if (late_size == 0 && log_dropped)
                dropped_send();
        }
        if (late_size == 0)
            pthread_cond_broadcast(&log_idle);
    }
    return arg;
}

uint64_t log_lost(void)
{
    uint64_t n;

    pthread_mutex_lock(&log_mtx);
    n = log_dropped;
    pthread_mutex_unlock(&log_mtx);
    return n;
}

void log_flush(void)
{
    struct timespec end;

    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += FLUSH_S;
    pthread_mutex_lock(&log_mtx);
    while ((late_size || log_busy) &&
           pthread_cond_timedwait(&log_idle, &log_mtx, &end) == 0)
        ;
    pthread_mutex_unlock(&log_mtx);
}

/* Leaves errno unchanged. */
void log_write(enum log_level level, const char *event,
               const struct log_field *fields, size_t n)
{
    struct line l;
    int saved = errno;
    bool diverted;

    if (!log_enabled(level))
        return;
    line_build(&l, level, event, fields, n);
    pthread_rwlock_rdlock(&log_to_lock);
    diverted = log_to != NULL;
    if (diverted) {
        l.text[l.size - 1] = '\0'; /* instead of the newline */
        log_to(level, l.text, l.size - 1, log_to_arg);
    }
    pthread_rwlock_unlock(&log_to_lock);
    if (!diverted) {
        pthread_mutex_lock(&log_mtx);
        line_send(&l);
        pthread_mutex_unlock(&log_mtx);
    }
    errno = saved;
}

/* ---- a line for a person ---- */

#define ERROR_LEAST 12   /* columns that a cut error text keeps */
#define ID_END      8    /* characters that a shortened id keeps, at its end */
#define VALUE_MAX   1024 /* bytes that one value may take */

struct text {
    char *at;
    size_t room, size;
    unsigned columns; /* without colour */
    bool colour;
    unsigned error_columns; /* most columns of an error's text; 0: any */
};

/* Append a text if all of it fits. */
static void text_put(struct text *t, const char *text, bool shown)
{
    size_t size = strlen(text);

    if (t->size + size >= t->room)
        return;
    memcpy(t->at + t->size, text, size + 1);
    t->size += size;
    for (; shown && *text; text++)
        t->columns += ((unsigned char)*text & 0xC0) != 0x80;
}

/* Append an escape sequence, if the line is in colour. */
static void text_colour(struct text *t, const char *sequence)
{
    if (t->colour)
        text_put(t, sequence, false);
}

static void text_printf(struct text *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void text_printf(struct text *t, const char *format, ...)
{
    char buf[128];
    va_list args;

    va_start(args, format);
    vsnprintf(buf, sizeof buf, format, args);
    va_end(args);
    text_put(t, buf, true);
}

/* Append the value of a field, made printable. */
static void text_value(struct text *t, const struct log_field *f)
{
    char buf[VALUE_MAX];

    switch (f->type) {
    case FIELD_STR:
        safe_text_copy(buf, sizeof buf, f->str, strlen(f->str));
        break;
    case FIELD_BYTES:
        safe_text_copy(buf, sizeof buf, f->str, f->size);
        break;
    case FIELD_DURATION:
        duration_rough(f->u, buf);
        break;
    case FIELD_INT:
        snprintf(buf, sizeof buf, "%jd", (intmax_t)f->i);
        break;
    case FIELD_UINT:
        snprintf(buf, sizeof buf, "%ju", (uintmax_t)f->u);
        break;
    }
    text_put(t, buf, true);
}

/* Find a field by its name; NULL if it is missing or has no value. */
static const struct log_field *field_find(const struct log_event *e,
                                          const char *key)
{
    for (size_t i = 0; i < e->n; i++) {
        const struct log_field *f = &e->fields[i];
        bool text = f->type == FIELD_STR || f->type == FIELD_BYTES;

        if (strcmp(f->key, key) == 0)
            return text && !f->str ? NULL : f;
    }
    return NULL;
}

/* Append `before` and the value of a field, if there is one. */
static void text_field(struct text *t, const struct log_event *e,
                       const char *before, const char *key)
{
    const struct log_field *f = field_find(e, key);

    if (!f)
        return;
    text_put(t, before, true);
    text_value(t, f);
}

/* Append the handler's own text for its error, cut if the line is too wide. The
 * whole text is in a log line of the handler, or in the dead letter. */
static void text_error(struct text *t, const struct log_event *e)
{
    unsigned first = t->columns;
    size_t at = t->size;

    text_field(t, e, ": ", "error_text");
    if (!t->error_columns || t->columns - first <= t->error_columns)
        return;
    t->columns = first;
    while (t->at[at] && t->columns - first < t->error_columns - 1) {
        at++;
        while (((unsigned char)t->at[at] & 0xC0) == 0x80)
            at++;
        t->columns++;
    }
    t->at[at] = '\0';
    t->size = at;
    text_put(t, "\u2026", true);
}

/* Print the events retry and dead in words; returns false for others. */
static bool fields_known(struct text *t, const struct log_event *e)
{
    bool retry = strcmp(e->name, "retry") == 0;

    if (!retry && strcmp(e->name, "dead") != 0)
        return false;
    text_field(t, e, "  ", retry ? "error" : "reason");
    if (!retry)
        text_field(t, e, ": ", "error");
    text_error(t, e);
    text_colour(t, DIM);
    text_field(t, e, "  ", retry ? "attempt" : "attempts");
    text_field(t, e, " of ", "of");
    text_field(t, e, retry ? ", again in " : " failed, letter ",
               retry ? "in" : "letter");
    text_colour(t, RESET);
    return true;
}

/* Return true if the field is left out of a line that is too wide: a value in
 * the lines `started` and `stopped` that mqctl status shows, too. */
static bool field_spared(const char *event, const char *key)
{
    static const char *const spared[][2] = {
        {"started", "|state_dir|runtime_dir|in_queue|spooled|"},
        {"stopped",
         "|queue|deliveries|discarded|mean|longest|in_queue|spooled|"},
    };
    char word[32];

    snprintf(word, sizeof word, "|%s|", key);
    for (size_t i = 0; i < sizeof spared / sizeof *spared; i++)
        if (strcmp(event, spared[i][0]) == 0)
            return strstr(spared[i][1], word) != NULL;
    return false;
}

/* Append all fields except the id. The fields `line` (from a handler) and
 * `next` (advice) come without their key, the others as key=value, in quotes if
 * the value has a blank. */
static void fields_any(struct text *t, const struct log_event *e, bool brief)
{
    for (size_t i = 0; i < e->n; i++) {
        const struct log_field *f = &e->fields[i];
        bool text = f->type == FIELD_STR || f->type == FIELD_BYTES;
        bool bare = strcmp(f->key, "line") == 0 || strcmp(f->key, "next") == 0;
        bool quote = !bare && f->type == FIELD_STR && f->str &&
                     (!*f->str || strpbrk(f->str, " ="));

        if (strcmp(f->key, "msg") == 0 || (text && !f->str) ||
            (brief && field_spared(e->name, f->key)))
            continue;
        text_put(t, "  ", true);
        if (!bare) {
            text_colour(t, DIM);
            text_printf(t, "%s=", f->key);
            text_colour(t, RESET);
        }
        text_put(t, quote ? "\"" : "", true);
        text_value(t, f);
        text_put(t, quote ? "\"" : "", true);
    }
}

/* Print the whole line; returns its width in columns. */
static unsigned event_print(struct text *t, const struct log_event *e,
                            bool brief)
{
    const struct log_field *id = field_find(e, "msg");
    time_t s = (time_t)(e->wall_ns / NS_PER_S);
    struct tm tm;
    char now[16] = "";

    t->size = 0;
    t->columns = 0;
    if (localtime_r(&s, &tm))
        strftime(now, sizeof now, "%H:%M:%S ", &tm);
    text_colour(t, DIM);
    text_put(t, now, true);
    text_colour(t, RESET);
    text_colour(t, levels[e->level].colour);
    text_printf(t, "%-6s", e->name);
    text_colour(t, RESET);
    if (id && id->type == FIELD_STR) {
        size_t size = strlen(id->str);

        text_put(t, " ", true);
        if (brief && size > ID_END) { /* only the end of the id */
            text_put(t, "\u2026", true);
            text_put(t, id->str + size - ID_END, true);
        } else
            text_value(t, id);
    }
    if (!fields_known(t, e))
        fields_any(t, e, brief);
    return t->columns;
}

size_t log_human(char *buf, size_t room, const struct log_event *event,
                 bool colour, unsigned columns)
{
    struct text t = {.at = buf, .room = room, .colour = colour};
    const struct log_field *error = field_find(event, "error_text");
    unsigned wide = event_print(&t, event, false);
    char whole[VALUE_MAX + 8];
    struct text alone = {.at = whole, .room = sizeof whole};

    if (columns == 0 || wide <= columns)
        return t.size;
    wide = event_print(&t, event, true);
    if (wide <= columns || !error)
        return t.size;
    text_put(&alone, ": ", true); /* the error text, to see how wide it is */
    text_value(&alone, error);
    if (alone.columns >= ERROR_LEAST + wide - columns) {
        t.error_columns = alone.columns - (wide - columns);
        event_print(&t, event, true);
    }
    return t.size;
}

#define WHAT 256

void panic(const char *fmt, ...)
{
    char what[WHAT];
    va_list args;

    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    log_error("panic", F_STR("what", what),
              F_STR("next", "the process aborts and loses nothing; start it "
                            "again, and report this with the lines before"));
    log_flush();
    abort();
}

/* log_human.c - see log_human.h */
#include "common/base/log_human.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/safe_text.h"

#define ERROR_LEAST 12   /* columns of an error's text that say something */
#define ID_END      8    /* of an id that is shortened, what differs most */
#define VALUE_MAX   1024 /* bytes that one value may take */

#define RESET "\033[0m"
#define DIM   "\033[2m"

static const char *const level_colours[] = {
    [LOG_DEBUG] = DIM,
    [LOG_INFO] = "\033[32m",
    [LOG_WARN] = "\033[33m",
    [LOG_ERROR] = "\033[31m",
};

struct text {
    char *at;
    size_t room, size;
    unsigned columns; /* without colour */
    bool colour;
    unsigned error_columns; /* that an error's text takes at most; 0: any */
};

enum log_format log_format_of_stderr(void)
{
    const char *journal = getenv("JOURNAL_STREAM");
    char real[64];
    struct stat st;

    if (journal && fstat(STDERR_FILENO, &st) == 0) {
        snprintf(real, sizeof real, "%ju:%ju", (uintmax_t)st.st_dev,
                 (uintmax_t)st.st_ino);
        if (strcmp(journal, real) == 0)
            return LOG_JOURNAL;
    }
    return isatty(STDERR_FILENO) ? LOG_HUMAN : LOG_TEXT;
}

bool log_human_colour(void)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

    return isatty(STDERR_FILENO) && !(no && *no) &&
           !(term && strcmp(term, "dumb") == 0);
}

const char *log_human_duration(uint64_t ns, char *buf, size_t room)
{
    uint64_t ms = ns / NS_PER_MS, s = ns / NS_PER_S;

    if (ns < NS_PER_MS)
        snprintf(buf, room, "%juus", (uintmax_t)(ns / 1000));
    else if (s == 0)
        snprintf(buf, room, "%jums", (uintmax_t)ms);
    else if (s < 60)
        snprintf(buf, room, "%ju.%jus", (uintmax_t)s,
                 (uintmax_t)(ms % 1000 / 100));
    else if (s < 3600)
        snprintf(buf, room, "%jum %jus", (uintmax_t)(s / 60),
                 (uintmax_t)(s % 60));
    else if (s < 86400)
        snprintf(buf, room, "%juh %jum", (uintmax_t)(s / 3600),
                 (uintmax_t)(s % 3600 / 60));
    else
        snprintf(buf, room, "%jud %juh", (uintmax_t)(s / 86400),
                 (uintmax_t)(s % 86400 / 3600));
    return buf;
}

/* text_put - append what fits as a whole */
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

/* text_colour - an escape sequence, where colour is wanted */
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

/* text_value - a field's value, printable */
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
        log_human_duration(f->u, buf, sizeof buf);
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

/* field_of - the field of that name, if it has a value */
static const struct log_field *field_of(const struct log_event *e,
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

/* text_field - `before` and the value of a field that is there */
static void text_field(struct text *t, const struct log_event *e,
                       const char *before, const char *key)
{
    const struct log_field *f = field_of(e, key);

    if (!f)
        return;
    text_put(t, before, true);
    text_value(t, f);
}

/* text_id - the message; its end alone if `brief` */
static void text_id(struct text *t, const struct log_event *e, bool brief)
{
    const struct log_field *f = field_of(e, "msg");
    size_t size;

    if (!f || f->type != FIELD_STR)
        return;
    size = strlen(f->str);
    text_put(t, " ", true);
    if (brief && size > ID_END) {
        text_put(t, "\u2026", true);
        text_put(t, f->str + size - ID_END, true);
    } else
        text_value(t, f);
}

/* text_error - what a handler said of it, cut where the line is too wide; the
 * whole of it is a line of the handler's, or in its letter */
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

/* fields_known - in words, of the two events that are read most; how it was
 * tried, and when it is again, or which letter it is */
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

/* field_spared - whether a line that is too wide goes without it: numbers of
 * the first and the last line of a run, which mqctl status has, too */
static bool field_spared(const char *event, const char *key)
{
    static const char *const spared[][2] = {
        {"started", "|state_dir|runtime_dir|in_queue|"},
        {"stopped", "|queue|deliveries|discarded|mean|longest|in_queue|"},
    };
    char word[32];

    snprintf(word, sizeof word, "|%s|", key);
    for (size_t i = 0; i < sizeof spared / sizeof *spared; i++)
        if (strcmp(event, spared[i][0]) == 0)
            return strstr(spared[i][1], word) != NULL;
    return false;
}

/* fields_any - all but the id: text of others and advice bare, the rest as
 * key=value, in quotes if there is a blank in it */
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

/* line_of - the whole line; how many columns it takes */
static unsigned line_of(struct text *t, const struct log_event *e, bool brief)
{
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
    text_colour(t, level_colours[e->level]);
    text_printf(t, "%-6s", e->name);
    text_colour(t, RESET);
    text_id(t, e, brief);
    if (!fields_known(t, e))
        fields_any(t, e, brief);
    return t->columns;
}

/* error_columns - ": " and the text of an error, whole */
static unsigned error_columns(const struct log_field *error)
{
    char buf[VALUE_MAX + 8];
    struct text t = {.at = buf, .room = sizeof buf};

    text_put(&t, ": ", true);
    text_value(&t, error);
    return t.columns;
}

size_t log_human(char *buf, size_t room, const struct log_event *event,
                 bool colour, unsigned columns)
{
    struct text t = {.at = buf, .room = room, .colour = colour};
    const struct log_field *error = field_of(event, "error_text");
    unsigned wide = line_of(&t, event, false), text;

    if (columns == 0 || wide <= columns)
        return t.size;
    wide = line_of(&t, event, true);
    if (wide <= columns || !error)
        return t.size;
    text = error_columns(error);
    if (text >= ERROR_LEAST + wide - columns) {
        t.error_columns = text - (wide - columns);
        line_of(&t, event, true);
    }
    return t.size;
}

/* settings_print.c - see settings_print.h */
#include "worker/config/settings_print.h"
#include "worker/config/rate_text.h"
#include "worker/rules/verdict.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/safe_text.h"

/* ---- flags that a function of their own reads ---- */

static bool backoff_told(const struct settings *s, const struct settings *def,
                         char out[SETTING_TEXT])
{
    char other[SETTING_TEXT];
    struct backoff b;

    settings_backoff(s, &b);
    backoff_print(&b, out, SETTING_TEXT);
    backoff_print(&def->backoff, other, SETTING_TEXT);
    return strcmp(out, other) != 0;
}

static bool on_exit_told(const struct settings *s, const struct settings *def,
                         char out[SETTING_TEXT])
{
    size_t used = 0;

    for (int i = 0; i < 256; i++)
        if (s->on_exit[i] != def->on_exit[i] && used < SETTING_TEXT - 1) {
            int n =
                snprintf(out + used, SETTING_TEXT - used, "%s%d=%s",
                         used ? "," : "", i, verdict_rules[s->on_exit[i]].name);

            used += (size_t)n;
        }
    return used > 0;
}

static bool separator_told(const struct settings *s, const struct settings *def,
                           char out[SETTING_TEXT])
{
    snprintf(out, SETTING_TEXT, "%c", s->group_separator);
    return s->group_separator != def->group_separator;
}

static bool dead_queue_told(const struct settings *s,
                            const struct settings *def, char out[SETTING_TEXT])
{
    (void)def;
    strlcpy(out, s->dead_letter_queue, SETTING_TEXT);
    return *out != '\0';
}

static bool plugin_arg_told(const struct settings *s,
                            const struct settings *def, char out[SETTING_TEXT])
{
    const char *text = s->plugin_arg ? s->plugin_arg : "";

    (void)def;
    safe_text_copy(out, SETTING_TEXT, text, strlen(text));
    return s->plugin_arg != NULL;
}

static bool rate_told(const struct settings *s, const struct settings *def,
                      char out[SETTING_TEXT])
{
    uint64_t rate = atomic_load(&s->rate);
    char text[RATE_TEXT];

    (void)def;
    strlcpy(out, rate_print(rate, text), SETTING_TEXT);
    return rate != RATE_OFF;
}

static const struct {
    const char *flag;
    bool (*told)(const struct settings *s, const struct settings *def,
                 char out[SETTING_TEXT]);
} special[] = {
    {"backoff", backoff_told},           {"on-exit", on_exit_told},
    {"group-separator", separator_told}, {"dead-letter-queue", dead_queue_told},
    {"plugin-arg", plugin_arg_told},     {"rate", rate_told},
};

/* ---- the others, by their type ---- */

/* number_at - a live one may change meanwhile */
static uint64_t number_at(const struct settings *s,
                          const struct option_row *row)
{
    const void *at = (const char *)s + row->offset;

    return atomic_load((const _Atomic uint64_t *)at);
}

/* number_text - as its row would read it */
static void number_text(const struct option_row *row, uint64_t n,
                        char out[SETTING_TEXT])
{
    char text[DURATION_TEXT], size[SIZE_TEXT];

    if (row->type == OPT_CHOICE) {
        const char *word = row->words;

        for (; n > 0; n--)
            word = strchr(word, '|') + 1;
        snprintf(out, SETTING_TEXT, "%.*s", (int)strcspn(word, "|"), word);
    } else if (row->words && n == UINT64_MAX) {
        strlcpy(out, row->words, SETTING_TEXT);
    } else if (row->type == OPT_DURATION) {
        strlcpy(out, duration_print(n, text), SETTING_TEXT);
    } else if (row->type == OPT_SIZE) {
        strlcpy(out, size_print(n, size), SETTING_TEXT);
    } else {
        snprintf(out, SETTING_TEXT,
                 row->type == OPT_OCTAL ? "0%" PRIo64 : "%" PRIu64, n);
    }
}

/* seen - of a flag whose value may be left out: whether it was given */
static bool seen(const struct settings *s, const struct option_row *row)
{
    return row->seen && *((const bool *)s + row->seen - 1);
}

/* plain_told - a row that no function reads */
static bool plain_told(const struct settings *s, const struct settings *def,
                       const struct option_row *row, char out[SETTING_TEXT])
{
    const char *const *text;

    out[0] = '\0';
    switch (row->type) {
    case OPT_FLAG:
        return *((const bool *)s + row->offset);
    case OPT_STRING:
        text = (const void *)((const char *)s + row->offset);
        if (*text)
            safe_text_copy(out, SETTING_TEXT, *text, strlen(*text));
        return *text != NULL;
    case OPT_COUNT:
    case OPT_NUMBER:
    case OPT_OCTAL:
    case OPT_DURATION:
    case OPT_SIZE:
    case OPT_CHOICE:
        number_text(row, number_at(s, row), out);
        return row->seen ? seen(s, row)
                         : number_at(s, row) != number_at(def, row);
    case OPT_CALL:
    default:
        return false;
    }
}

/* told - whether it is not at its default; its value to `out` */
static bool told(const struct settings *s, const struct settings *def,
                 const struct option_row *row, char out[SETTING_TEXT])
{
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if (strcmp(special[i].flag, row->name) == 0)
            return special[i].told(s, def, out);
    return plain_told(s, def, row, out);
}

void settings_told(const struct settings *s,
                   void (*visit)(const char *flag, const char *value,
                                 void *arg),
                   void *arg)
{
    struct settings def;
    char text[SETTING_TEXT];

    settings_init(&def);
    for (size_t i = 0; i < settings_table.count; i++)
        if (told(s, &def, &settings_table.rows[i], text))
            visit(settings_table.rows[i].name, text, arg);
}

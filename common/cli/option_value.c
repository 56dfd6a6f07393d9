/* option_value.c - see option_value.h */
#include "common/cli/option_value.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/safe_text.h"

#define FLAG_TEXT  96
#define RANGE_TEXT 192
#define LETTERS    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

bool option_bare(const struct option_row *row)
{
    return row->type == OPT_FLAG || row->type == OPT_COUNT ||
           (row->type == OPT_CALL && !row->value);
}

const char *option_value(const struct option_row *row)
{
    if (option_bare(row))
        return "";
    if (row->value)
        return row->value;
    return row->type == OPT_CHOICE ? row->words : "VALUE";
}

/* row_bounded - the row has an upper bound of its own */
static bool row_bounded(const struct option_row *row)
{
    return row->max > 0 && row->max < INT64_MAX;
}

/* row_max - upper bound; no parser gives more than INT64_MAX */
static uint64_t row_max(const struct option_row *row)
{
    return row_bounded(row) ? row->max : INT64_MAX;
}

/* bound_print - a bound as the flag's value is written */
static void bound_print(const struct option_row *row, uint64_t bound,
                        char buf[DURATION_TEXT])
{
    _Static_assert(SIZE_TEXT == DURATION_TEXT, "one buffer serves both");

    if (row->type == OPT_DURATION)
        duration_print(bound, buf);
    else if (row->type == OPT_SIZE)
        size_print(bound, buf);
    else
        snprintf(buf, DURATION_TEXT, row->type == OPT_OCTAL ? "%#jo" : "%ju",
                 (uintmax_t)bound);
}

/* range_print - "1 to 1024", "1 or more, or none" */
static const char *range_print(const struct option_row *row,
                               char buf[RANGE_TEXT])
{
    char least[DURATION_TEXT], most[DURATION_TEXT];
    const char * or = row->words ? ", or " : "";
    const char *word = row->words ? row->words : "";

    bound_print(row, row->min, least);
    bound_print(row, row_max(row), most);
    if (!row_bounded(row))
        snprintf(buf, RANGE_TEXT, "%s or more%s%s", least, or, word);
    else
        snprintf(buf, RANGE_TEXT, "%s to %s%s%s", least, most, or, word);
    return buf;
}

/* limit_print - what is allowed, for a value over it */
static const char *limit_print(const struct option_row *row,
                               char buf[RANGE_TEXT])
{
    char most[DURATION_TEXT];

    if (row_bounded(row))
        return range_print(row, buf);
    bound_print(row, row_max(row), most);
    snprintf(buf, RANGE_TEXT, "at most %s", most);
    return buf;
}

/* form_print - what a value looks like, for one that does not */
static const char *form_print(const struct option_row *row,
                              char buf[RANGE_TEXT])
{
    const char *form = NULL;

    if (row->type == OPT_DURATION)
        form = "a number with ns, us, ms, s, m, h or d, like 250ms";
    else if (row->type == OPT_SIZE)
        form = "a whole number of bytes, or one with KiB, MiB or GiB, "
               "like 8KiB";
    if (!form)
        return range_print(row, buf);
    snprintf(buf, RANGE_TEXT, "%s%s%s", form, row->words ? ", or " : "",
             row->words ? row->words : "");
    return buf;
}

/* value_refuse - `what` is wrong with the text, `give` is what is allowed */
static int value_refuse(const struct option_row *row, const char *text,
                        const char *what, const char *give, struct problem *p)
{
    return problem_set(p, EX_USAGE, EINVAL, "--%s: \"%.200s\" %s; give %s",
                       row->name, text, what, give);
}

/* number_parse - plain digits, perhaps with a unit; strtoumax alone would take
 * a sign and spaces */
static int number_parse(const char *text, char unit, uint64_t *value)
{
    char *end;

    if (*text < '0' || *text > '9')
        return -EINVAL;
    errno = 0;
    *value = strtoumax(text, &end, 10);
    if (*end && (*end != unit || end[1]))
        return -EINVAL;
    return errno || *value > INT64_MAX ? -ERANGE : 0;
}

/* octal_parse - octal digits, up to 63 bits */
static int octal_parse(const char *text, uint64_t *value)
{
    if (!*text || text[strspn(text, "01234567")])
        return -EINVAL;
    errno = 0;
    *value = strtoumax(text, NULL, 8);
    return errno || *value > INT64_MAX ? -ERANGE : 0;
}

/* unit_trouble - what is wrong with a duration or a size that starts as one */
static const char *unit_trouble(const char *text, const char *otherwise,
                                int (*parse)(const char *, uint64_t *))
{
    size_t size = strlen(text);

    if (text[size - 1] >= '0' && text[size - 1] <= '9')
        return "has no unit";
    while (*text) {
        char one[8];
        uint64_t ignored;

        text += strspn(text, "0123456789.");
        size = strspn(text, LETTERS);
        if (size == 0)
            return otherwise;
        snprintf(one, sizeof one, "1%.*s", (int)size, text);
        if (size > sizeof one - 2 || parse(one, &ignored) < 0)
            return "has no such unit";
        text += size;
    }
    return otherwise;
}

/* form_trouble - what is wrong with a text that is no value of that type */
static const char *form_trouble(const struct option_row *row, const char *text)
{
    bool number = *text >= '0' && *text <= '9';

    if (!*text)
        return "is empty";
    if (row->type == OPT_NUMBER)
        return "is not a number";
    if (row->type == OPT_OCTAL)
        return "is not an octal number";
    if (row->type == OPT_SIZE)
        return number ? unit_trouble(text, "is not a size", size_parse)
                      : "is not a size";
    return number ? unit_trouble(text, "is not a duration", duration_parse)
                  : "is not a duration";
}

/* number_read - any of the types whose values are ordered */
static int number_read(const struct option_row *row, const char *text,
                       uint64_t *into, struct problem *p)
{
    uint64_t value = 0;
    char give[RANGE_TEXT];
    int rc;

    if (row->words && strcmp(text, row->words) == 0) {
        *into = UINT64_MAX;
        return 0;
    }
    rc = row->type == OPT_NUMBER     ? number_parse(text, row->unit, &value)
         : row->type == OPT_OCTAL    ? octal_parse(text, &value)
         : row->type == OPT_DURATION ? duration_parse(text, &value)
                                     : size_parse(text, &value);
    if (rc == -EINVAL)
        return value_refuse(row, text, form_trouble(row, text),
                            form_print(row, give), p);
    if (rc == 0 && value < row->min)
        return value_refuse(row, text, "is too small", range_print(row, give),
                            p);
    if (rc < 0 || value > row_max(row))
        return value_refuse(row, text, "is too large", limit_print(row, give),
                            p);
    *into = value;
    return 0;
}

/* choices_print - "text|json" as "text or json" */
static const char *choices_print(const char *words, char buf[RANGE_TEXT])
{
    size_t at = 0;

    buf[0] = '\0';
    if (!words)
        return buf;
    while (*words && at < RANGE_TEXT - 1) {
        size_t size = strcspn(words, "|");
        const char *next = words + size + (words[size] == '|');
        const char *join = !*next ? "" : strchr(next, '|') ? ", " : " or ";
        int put = snprintf(buf + at, RANGE_TEXT - at, "%.*s%s", (int)size,
                           words, join);

        at += (size_t)put;
        words = next;
    }
    return buf;
}

/* choice_read - index of the word among "text|json" */
static int choice_read(const struct option_row *row, const char *text,
                       uint64_t *into, struct problem *p)
{
    const char *word = row->words;
    char give[RANGE_TEXT];

    for (uint64_t i = 0; word; i++) {
        size_t size = strcspn(word, "|");

        if (size == strlen(text) && memcmp(word, text, size) == 0) {
            *into = i;
            return 0;
        }
        word = word[size] ? word + size + 1 : NULL;
    }
    return value_refuse(row, text, "is not one of the choices",
                        choices_print(row->words, give), p);
}

/* call_read - the row's own reader; its text is made to name the flag */
static int call_read(const struct option_row *row, const char *text,
                     void *target, struct problem *p)
{
    struct problem own = {0};
    int rc = row->call(text, target, &own);
    char flag[FLAG_TEXT];
    bool named;

    if (rc == 0)
        return 0;
    snprintf(flag, sizeof flag, "--%s", row->name);
    named = strncmp(own.text, flag, strlen(flag)) == 0;
    return problem_set(p, own.status ? own.status : EX_USAGE, -rc, "%s%s%s",
                       named ? "" : flag, named ? "" : ": ", own.text);
}

/* option_read - `text` into the row's target; NULL: the value was left out */
int option_read(const struct option_row *row, const char *text, void *into,
                struct problem *p)
{
    void *target = (char *)into + row->offset;

    if (row->type == OPT_CALL)
        return call_read(row, text, target, p);
    if (row->type == OPT_FLAG) {
        *(bool *)target = true;
        return 0;
    }
    if (row->type == OPT_COUNT) {
        ++*(uint64_t *)target;
        return 0;
    }
    if (!text)
        text = row->preset;
    if (!text)
        return 0;
    if (row->type == OPT_CHOICE)
        return choice_read(row, text, target, p);
    if (row->type != OPT_STRING)
        return number_read(row, text, target, p);
    if (!*text)
        return value_refuse(row, text, "is empty", option_value(row), p);
    *(const char **)target = text;
    return 0;
}

/* Print a number, or the word that stands for it. */
static void number_print(const struct option_row *row, uint64_t n, char *out,
                         size_t room)
{
    char text[DURATION_TEXT];
    const char *word = row->words;

    if (row->type == OPT_CHOICE) {
        for (; n > 0; n--)
            word = strchr(word, '|') + 1;
        snprintf(out, room, "%.*s", (int)strcspn(word, "|"), word);
    } else if (word && n == UINT64_MAX) {
        strlcpy(out, word, room);
    } else {
        bound_print(row, n, text);
        strlcpy(out, text, room);
    }
}

bool option_print(const struct option_row *row, const void *from, char *out,
                  size_t room)
{
    const void *at = (const char *)from + row->offset;
    const char *text;

    out[0] = '\0';
    if (row->type == OPT_FLAG)
        return *(const bool *)at;
    if (row->type == OPT_CALL)
        return row->print && row->print(at, out, room);
    if (row->type == OPT_STRING) {
        text = *(const char *const *)at;
        if (text)
            safe_text_copy(out, room, text, strlen(text));
        return text != NULL;
    }
    number_print(row, atomic_load((const _Atomic uint64_t *)at), out, room);
    return true;
}

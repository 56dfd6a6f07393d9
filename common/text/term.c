/* term.c - see term.h */
#include "common/text/term.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "common/base/safe_text.h"
#include "common/base/utf8.h"

#define DEFAULT_WIDTH 80

bool term_is_terminal(FILE *out)
{
    return isatty(fileno(out)) == 1;
}

int term_width(FILE *out)
{
    struct winsize size;
    const char *text;
    long columns;

    if (!term_is_terminal(out))
        return 0;
    if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    text = getenv("COLUMNS");
    columns = text ? strtol(text, NULL, 10) : 0;
    return columns > 0 && columns < 10000 ? (int)columns : DEFAULT_WIDTH;
}

/* colour_wanted - a terminal that can, and nobody said no (no-color.org) */
static bool colour_wanted(FILE *out)
{
    const char *off = getenv("NO_COLOR");
    const char *kind = getenv("TERM");

    return term_is_terminal(out) && !(off && *off) && kind &&
           strcmp(kind, "dumb") != 0;
}

const char *term_colour(FILE *out, enum term_colour colour)
{
    static const char *const codes[] = {
        [TERM_PLAIN] = "\033[0m",  [TERM_BOLD] = "\033[1m",
        [TERM_DIM] = "\033[2m",    [TERM_RED] = "\033[31m",
        [TERM_GREEN] = "\033[32m", [TERM_YELLOW] = "\033[33m",
    };

    return colour_wanted(out) ? codes[colour] : "";
}

/* rune_columns - what a terminal gives a character. wcwidth(3) asks the
 * thread's locale, which a program need not have set: use one with UTF-8. */
static int rune_columns(uint32_t rune)
{
    static locale_t utf8;
    locale_t before;
    int columns;

    if (rune < 0x300)
        return 1;
    if (!utf8)
        utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    if (!utf8)
        return 1;
    before = uselocale(utf8);
    columns = wcwidth((wchar_t)rune);
    uselocale(before);
    return columns < 0 ? 1 : columns;
}

size_t term_fit(const char *text, int columns, int *taken)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t size = strlen(text);
    size_t at = 0;

    *taken = 0;
    while (at < size) {
        uint32_t rune;
        size_t n = utf8_read(s + at, size - at, &rune);
        int wide = n ? rune_columns(rune) : 1;

        if (*taken + wide > columns)
            break;
        *taken += wide;
        at += n ? n : 1;
    }
    return at;
}

int term_columns(const char *text)
{
    int columns;

    term_fit(text, INT32_MAX, &columns);
    return columns;
}

const char *term_tail(const char *text, int columns)
{
    int over = term_columns(text) - columns, taken;
    size_t at;

    if (over <= 0)
        return text;
    at = term_fit(text, over, &taken);
    return text + (taken < over ? term_fit(text, over + 1, &taken) : at);
}

/* word_size - bytes up to a blank; a command in `...` is one word, as what is
 * copied from two lines is two commands */
static size_t word_size(const char *word)
{
    size_t size = strcspn(word, " ");
    const char *open = memchr(word, '`', size);
    const char *close = open ? strchr(open + 1, '`') : NULL;

    if (!close || close < word + size)
        return size;
    return (size_t)(close - word) + strcspn(close, " ");
}

void term_words(FILE *out, const char *text, int at, int indent, int width)
{
    char safe[4096];
    const char *end = safe; /* of the word before */
    int taken;

    safe_text_copy(safe, sizeof safe, text, strlen(text));
    for (const char *word = safe; *word; word += strspn(word, " ")) {
        size_t size = word_size(word);
        bool first = word == safe;
        int blanks = (int)(word - end);
        char copy[sizeof safe];

        memcpy(copy, word, size);
        copy[size] = '\0';
        taken = term_columns(copy);
        if (width && !first && at + blanks + taken > width && at > indent) {
            fprintf(out, "\n%*s", indent, "");
            at = indent;
        } else {
            fprintf(out, "%*s", blanks, "");
            at += blanks;
        }
        fputs(copy, out);
        at += taken;
        word += size;
        end = word;
    }
}

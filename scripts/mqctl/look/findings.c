/* findings.c - findings, one line each (see doctor.h) */
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/safe_text.h"
#include "common/cli/json_line.h"
#include "common/cli/term.h"
#include "scripts/mqctl/look/doctor.h"

static const struct {
    const char *name;
    enum term_colour colour;
} levels[] = {
    [FINE] = {"ok", TERM_GREEN},
    [NOTE] = {"note", TERM_DIM},
    [WARN] = {"warn", TERM_YELLOW},
    [BAD] = {"bad", TERM_RED},
};

#define INDENT 6 /* columns of "warn  " */

/* as_text - a line, and one more for the command that fixes it, which is never
 * broken, so that it can be copied */
static void as_text(struct findings *f, const struct finding *what,
                    const char *text)
{
    FILE *out = f->parts[what->level] ? f->parts[what->level] : stdout;
    char line[2048];

    snprintf(line, sizeof line, "%s%s%s: %s", f->queue ? f->queue : "",
             f->queue ? " " : "", what->check, text);
    fprintf(out, "%s%-4s%s  ", term_colour(stdout, levels[what->level].colour),
            levels[what->level].name, term_colour(stdout, TERM_PLAIN));
    term_words(out, line, INDENT, INDENT, term_width(stdout));
    if (what->fix) {
        fprintf(out, "\n%*s-> ", INDENT, "");
        safe_text(out, what->fix, strlen(what->fix), true);
    }
    fputc('\n', out);
}

const char *fix(struct findings *f, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(f->fix, sizeof f->fix, fmt, args);
    va_end(args);
    return f->fix;
}

/* finding - tell it */
void finding(struct findings *f, const struct finding *what, const char *fmt,
             ...)
{
    char text[768];

    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    f->counts[what->level]++;
    if (f->quiet && what->level < WARN)
        return;
    if (!f->json)
        as_text(f, what, text);
    else
        (void)json_print_line(
            json_pack("{s:o, s:s, s:s, s:o, s:o}", "queue",
                      f->queue ? json_printable(f->queue) : json_null(),
                      "check", what->check, "level", levels[what->level].name,
                      "text", json_printable(text), "fix",
                      what->fix ? json_printable(what->fix) : json_null()),
            stdout);
}

void findings_begin(struct findings *f)
{
    for (int level = FINE; !f->json && level < LEVELS; level++)
        f->parts[level] = open_memstream(&f->texts[level], &f->sizes[level]);
}

bool findings_end(struct findings *f)
{
    unsigned found = f->counts[BAD] + f->counts[WARN];

    for (int level = LEVELS - 1; level >= FINE; level--) {
        if (!f->parts[level])
            continue;
        fclose(f->parts[level]);
        fwrite(f->texts[level], 1, f->sizes[level], stdout);
        free(f->texts[level]);
    }
    if (f->json || f->quiet)
        return found > 0;
    printf("%s%u ok%s", term_colour(stdout, found ? TERM_BOLD : TERM_GREEN),
           f->counts[FINE], term_colour(stdout, TERM_PLAIN));
    if (f->counts[NOTE])
        printf(", %u note%s", f->counts[NOTE], term_plural(f->counts[NOTE]));
    printf(", %u finding%s", found, term_plural(found));
    if (found)
        printf(" (%u bad, %u warn)", f->counts[BAD], f->counts[WARN]);
    putchar('\n');
    return found > 0;
}

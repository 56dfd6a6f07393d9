/* mqctl_findings.c - findings, one line each (see mqctl_doctor.h) */
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/safe_text.h"
#include "common/text/json_line.h"
#include "common/text/term.h"
#include "scripts/mqctl/doctor/mqctl_doctor.h"

static const struct {
    const char *name;
    enum term_colour colour;
} levels[] = {
    [FINE] = {"ok", TERM_GREEN},
    [NOTE] = {"note", TERM_DIM},
    [WARN] = {"warn", TERM_YELLOW},
    [BAD] = {"bad", TERM_RED},
};

/* as_json - an object */
static void as_json(const struct findings *f, const struct finding *what,
                    const char *text)
{
    json_t *o = json_pack(
        "{s:s?, s:s, s:s, s:s, s:s?}", "queue", f->queue, "check", what->check,
        "level", levels[what->level].name, "text", text, "fix", what->fix);

    (void)json_print_line(o, stdout);
}

/* as_text - a line, and one more for what fixes it */
static void as_text(const struct findings *f, const struct finding *what,
                    const char *text)
{
    printf("%s%-4s%s  %s%s", term_colour(stdout, levels[what->level].colour),
           levels[what->level].name, term_colour(stdout, TERM_PLAIN),
           f->queue ? f->queue : "", f->queue ? " " : "");
    printf("%s: ", what->check);
    safe_text(stdout, text, strlen(text), true);
    if (what->fix) {
        fputs("\n      -> ", stdout);
        safe_text(stdout, what->fix, strlen(what->fix), true);
    }
    putchar('\n');
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
    if (what->level >= WARN)
        f->some = true;
    if (f->json)
        as_json(f, what, text);
    else
        as_text(f, what, text);
}

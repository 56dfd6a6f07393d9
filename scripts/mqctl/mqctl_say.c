/* mqctl_say.c - see mqctl_say.h */
#include "scripts/mqctl/mqctl_say.h"

#include <stdarg.h>
#include <stdio.h>

#include "common/text/term.h"

/* say - one line on stderr */
int say(int status, const char *fmt, ...)
{
    char text[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    term_complain("mqctl", "%s", text);
    return status;
}

int say_problem(const struct problem *p)
{
    return say(p->status, "%s", p->text);
}

int say_memory(void)
{
    struct problem p;

    problem_memory(&p);
    return say_problem(&p);
}

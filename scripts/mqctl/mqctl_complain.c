/* mqctl_complain.c - see mqctl_complain.h */
#include "scripts/mqctl/mqctl_complain.h"

#include <stdarg.h>
#include <stdio.h>

#include "common/text/term.h"

/* complain - one line on stderr */
int complain(int status, const char *fmt, ...)
{
    char text[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    term_complain("mqctl", "%s", text);
    return status;
}

int complain_of(const struct problem *p)
{
    return complain(p->status, "%s", p->text);
}

int say_memory(void)
{
    struct problem p;

    problem_memory(&p);
    return complain_of(&p);
}

/* complain.c - see complain.h */
#include "common/text/complain.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/errno_text.h"
#include "common/base/safe_text.h"

static const char *name = "mqworker";

void complain_as(const char *program)
{
    name = program;
}

int complain(int status, const char *fmt, ...)
{
    char *text = NULL;
    va_list args;
    int size;

    va_start(args, fmt);
    size = vasprintf(&text, fmt, args);
    va_end(args);
    fprintf(stderr, "%s: ", name);
    if (size >= 0) {
        safe_text(stderr, text, (size_t)size, true);
        free(text);
    }
    fputc('\n', stderr);
    return status;
}

int complain_of(const struct problem *p)
{
    return complain(p->status, "%s", p->text);
}

int complain_memory(void)
{
    struct problem p;

    problem_memory(&p);
    return complain_of(&p);
}

int complain_output(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    return complain(EX_IOERR, "cannot write the output: %s", errno_text(errno));
}

void complain_reads(const char *what)
{
    if (isatty(STDIN_FILENO) == 1)
        complain(0,
                 "reads %s from this terminal; Ctrl-D at the start of a line "
                 "ends it, Ctrl-C gives up",
                 what);
}

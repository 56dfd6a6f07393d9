/* complain.c - see complain.h */
#include "common/text/complain.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/errno_text.h"
#include "common/base/safe_text.h"
#include "common/text/term.h"

#define INDENT 4

static const char *name = "mqworker";

void complain_as(const char *program)
{
    name = program;
}

/* say - on a terminal cut between words, as that would cut within one */
static void say(const char *text, size_t size)
{
    int width = term_width(stderr);

    fprintf(stderr, "%s: ", name);
    if (width > 0)
        term_words(stderr, text, (int)strlen(name) + 2, INDENT, width);
    else
        safe_text(stderr, text, size, true);
    fputc('\n', stderr);
}

int complain(int status, const char *fmt, ...)
{
    char *text = NULL;
    va_list args;
    int size;

    va_start(args, fmt);
    size = vasprintf(&text, fmt, args);
    va_end(args);
    say(size < 0 ? "" : text, size < 0 ? 0 : (size_t)size);
    if (size >= 0)
        free(text);
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

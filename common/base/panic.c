/* panic.c - see panic.h */
#include "common/base/panic.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"

#define WHAT 256

void panic(const char *fmt, ...)
{
    char what[WHAT];
    va_list args;

    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    log_error("panic", F_STR("what", what),
              F_STR("next", "the process aborts and loses nothing; start it "
                            "again, and report this with the lines before"));
    log_flush();
    abort();
}

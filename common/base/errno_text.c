/* errno_text.c - see errno_text.h */
#include "common/base/errno_text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *errno_text(int err)
{
    static _Thread_local char unknown[32];
    const char *known = strerrordesc_np(err);

    if (err == EUCLEAN) /* what our files say, and file systems do */
        return "the file is damaged";
    if (err == EBUSY)
        return "in use, or locked by another program";
    if (known)
        return known;
    snprintf(unknown, sizeof unknown, "Unknown error %d", err);
    return unknown;
}

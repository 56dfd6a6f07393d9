/* queue_name.c - the name of a queue (see queue_name.h) */
#include "common/base/queue_name.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/safe_text.h"

/* name_flaw - what is wrong with a name without its slash, NULL if nothing */
static const char *name_flaw(const char *name)
{
    if (name[0] == '\0')
        return "is empty: a queue is called /NAME";
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return "is not allowed: it names a directory";
    if (strlen(name) > QUEUE_NAME_MAX - 2)
        return "is too long: 254 bytes after the slash are allowed";
    for (const char *c = name; *c; c++) {
        if (*c == '/')
            return "has a slash inside: a queue is called /NAME";
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return "has a control character, which is not allowed";
    }
    return NULL;
}

int queue_name(const char *text, char out[QUEUE_NAME_MAX], struct problem *p)
{
    const char *name = text[0] == '/' ? text + 1 : text;
    const char *flaw = name_flaw(name);

    if (flaw) {
        char safe[QUEUE_NAME_SAFE];

        safe_text_copy(safe, sizeof safe, text, strlen(text));
        return problem_set(p, EX_USAGE, EINVAL, "queue name \"%s\" %s", safe,
                           flaw);
    }
    snprintf(out, QUEUE_NAME_MAX, "/%s", name);
    return 0;
}

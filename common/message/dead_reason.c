/* dead_reason.c - why a message is a dead letter (see dead_reason.h) */
#include "common/message/dead_reason.h"

#include <string.h>

static const char *const texts[REASON_COUNT] = {
    [REASON_NONE] = "none",
    [REASON_EXHAUSTED] = "exhausted",
    [REASON_REJECTED] = "rejected",
    [REASON_EXPIRED] = "expired",
    [REASON_CRASHED] = "crashed",
    [REASON_BAD_HEADER] = "bad-header",
    [REASON_GROUP_CLOSED] = "group-closed",
};

const char *dead_reason_text(enum dead_reason reason)
{
    if ((unsigned)reason >= REASON_COUNT)
        return "unknown";
    return texts[reason];
}

enum dead_reason dead_reason_parse(const char *text)
{
    for (int i = REASON_NONE + 1; i < REASON_COUNT; i++)
        if (strcmp(text, texts[i]) == 0)
            return (enum dead_reason)i;
    return REASON_COUNT;
}

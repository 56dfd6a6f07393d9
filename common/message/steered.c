/* steered.c - see steered.h */
#include "common/message/steered.h"

#include <string.h>

static const char *const texts[STEERED_RESULTS] = {
    [STEERED] = "done",
    [STEERED_BEFORE] = "already",
    [STEERED_GONE] = "gone",
    [STEERED_IN_FLIGHT] = "in flight",
};

const char *steered_text(enum steered result)
{
    return texts[result];
}

enum steered steered_parse(const char *text)
{
    int i = 0;

    while (i < STEERED_RESULTS && (!text || strcmp(text, texts[i]) != 0))
        i++;
    return (enum steered)i;
}

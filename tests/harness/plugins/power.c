/* power.c - the plugin of the power cuts; a body is "#NUMBER WORD"
 *
 * It notes in $POWER_SEEN what is visible outside: "B number attempt marked"
 * before the work and "E number" after it, each in one write. WORD is done,
 * retry (the first attempt fails) or dead; with an argument all are done.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/mqworker.h"

static int seen = -1;

static void note(const char *line, int size)
{
    if (write(seen, line, (size_t)size) != size)
        abort();
}

int mqw_init(const char *arg, void **user)
{
    seen = open(getenv("POWER_SEEN"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
                0600);
    if (seen < 0)
        abort();
    *user = (void *)arg;
    return 0;
}

int mqw_handle(const struct mqw_message *m, struct mqw_context *context)
{
    char body[64], word[32] = "", line[96];
    unsigned number = 0;

    (void)context;
    snprintf(body, sizeof body, "%.*s", (int)m->size, (const char *)m->body);
    if (sscanf(body, "#%u %31s", &number, word) != 2)
        abort();
    note(line, snprintf(line, sizeof line, "B %u %u %d\n", number, m->attempt,
                        m->redelivered));
    note(line, snprintf(line, sizeof line, "E %u\n", number));
    if (context && mqw_user(context))
        return MQW_DONE;
    return strcmp(word, "dead") == 0                       ? MQW_DEAD
           : strcmp(word, "retry") == 0 && m->attempt == 1 ? MQW_RETRY
                                                           : MQW_DONE;
}

/* done.c - a plugin that acts like the handlers of faults_fixture.h
 *
 * "dead..." is dead and "retry..." fails once. Everything else is done and
 * appends a line to $TEST_DIR/done, or to ./done without that variable.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/mqworker.h"

static int done = -1;

int mqw_init(const char *arg, void **user)
{
    const char *folder = getenv("TEST_DIR");
    char path[4096];

    (void)arg;
    snprintf(path, sizeof path, "%s/done", folder ? folder : ".");
    done = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    *user = &done;
    return done < 0;
}

static int begins(const struct mqw_message *m, const char *word)
{
    return m->size >= strlen(word) && memcmp(m->body, word, strlen(word)) == 0;
}

int mqw_handle(const struct mqw_message *m, struct mqw_context *context)
{
    char line[512];
    int n = snprintf(line, sizeof line, "%.*s\n", (int)m->size,
                     (const char *)m->body);

    if (begins(m, "dead"))
        mqw_set_reason(context, "exit 65");
    if (begins(m, "dead") || (begins(m, "retry") && m->attempt == 1))
        return begins(m, "dead") ? MQW_DEAD : MQW_RETRY;
    if (write(done, line, (size_t)n) != n)
        abort();
    return MQW_DONE;
}

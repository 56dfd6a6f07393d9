/* turns.c - a plugin that notes which message of a group ran, in order
 *
 * A body is a number within its group. Each run that is done adds two lines to
 * $TEST_DIR/turns: "b GROUP NUMBER ATTEMPT REDELIVERED PID" and "e GROUP NUMBER
 * PID"; a killed run adds only the first. "bad" instead of a number fails each
 * time. Each seventh number fails at its first attempt. "kill" kills the
 * worker, and fails once when it runs again.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/mqworker.h"

static int turns = -1;

int mqw_init(const char *arg, void **user)
{
    char path[4096];

    (void)arg, (void)user;
    snprintf(path, sizeof path, "%s/turns", getenv("TEST_DIR"));
    turns = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    return turns < 0;
}

/* Append one line in one write. */
static void note(const char *line, int size)
{
    if (write(turns, line, (size_t)size) != size)
        abort();
}

int mqw_handle(const struct mqw_message *m, struct mqw_context *context)
{
    char line[600], body[16];
    const char *group = m->group ? m->group : "-";
    int size = m->group ? (int)m->group_size : 1;

    (void)context;
    snprintf(body, sizeof body, "%.*s", (int)m->size, (const char *)m->body);
    note(line, snprintf(line, sizeof line, "b %.*s %s %u %d %d\n", size, group,
                        body, m->attempt, m->redelivered, (int)getpid()));
    if (strcmp(body, "kill") == 0 && !m->redelivered)
        raise(SIGKILL);
    usleep(10000);
    if (strcmp(body, "bad") == 0)
        return MQW_RETRY;
    if (strtol(body, NULL, 10) % 7 == 0 && m->attempt == 1) /* also "kill" */
        return MQW_RETRY;
    note(line, snprintf(line, sizeof line, "e %.*s %s %d\n", size, group, body,
                        (int)getpid()));
    return MQW_DONE;
}

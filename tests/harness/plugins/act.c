/* act.c - a plugin that does what the body says: abort, nap, wait, hang, dead
 * or retry
 *
 * Each call appends a line to $TEST_DIR/runs: body, attempt, redelivered.
 * mqw_init and mqw_fini append a line as well. "wait" returns when the message
 * is cancelled, "hang" never. "nap" takes 200 ms, and longer while the file
 * "stay" exists. "later abort" and "later nap" are retried and act at their
 * second attempt. mqw_init refuses the argument "no".
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/mqworker.h"

static int runs = -1;

/* Append one line in one write. */
static void note(const char *what, size_t size, unsigned attempt, int again)
{
    char line[512];
    int n = snprintf(line, sizeof line, "%.*s %u %d\n", (int)size, what,
                     attempt, again);

    if (write(runs, line, (size_t)n) != n)
        abort();
}

int mqw_init(const char *arg, void **user)
{
    char path[4096];

    if (arg && strcmp(arg, "no") == 0)
        return 3;
    snprintf(path, sizeof path, "%s/runs", getenv("TEST_DIR"));
    runs = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (arg)
        note(arg, strlen(arg), 0, 0);
    *user = &runs;
    return 0;
}

void mqw_fini(void *user)
{
    note(user == &runs ? "fini" : "lost", 4, 0, 0);
    close(runs);
}

static int is(const struct mqw_message *m, const char *word)
{
    return m->size == strlen(word) && memcmp(m->body, word, m->size) == 0;
}

int mqw_handle(const struct mqw_message *m, struct mqw_context *context)
{
    bool first = m->attempt == 1;

    note(m->body, m->size, m->attempt, m->redelivered);
    if (first && (is(m, "later abort") || is(m, "later nap")))
        return MQW_RETRY;
    if (is(m, "abort") || is(m, "later abort"))
        abort();
    if (is(m, "nap") || is(m, "later nap"))
        do /* stay in flight while another message aborts */
            usleep(200000);
        while (access("stay", F_OK) == 0);
    while (is(m, "hang") || (is(m, "wait") && !mqw_cancelled(m)))
        usleep(1000);
    if (is(m, "dead"))
        mqw_set_reason(context, "as told");
    return is(m, "dead")             ? MQW_DEAD
           : is(m, "retry") && first ? MQW_RETRY
                                     : MQW_DONE;
}

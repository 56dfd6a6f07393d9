/* ledger.c - a plugin that notes its runs in $TEST_DIR
 *
 * A body is a number. Each run appends a line to "began": number, attempt,
 * redelivered, id, "plugin". Each done message appends one to "ended": number,
 * time (ns since the epoch). Each seventh number fails at its first attempt,
 * each hundredth is a dead letter. With $LEDGER_KEEPS each done message leaves
 * a descriptor open.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "worker/mqworker.h"

static int began = -1, ended = -1;

/* Append one line in one write. */
static void note(int fd, const char *line, int size)
{
    if (write(fd, line, (size_t)size) != size)
        abort();
}

static int note_open(const char *name)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/%s", getenv("TEST_DIR"), name);
    return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

int mqw_init(const char *arg, void **user)
{
    (void)arg, (void)user;
    began = note_open("began");
    ended = note_open("ended");
    return began < 0 || ended < 0;
}

int mqw_handle(const struct mqw_message *m, struct mqw_context *context)
{
    char line[128];
    struct timespec now;
    unsigned long n;

    (void)context;
    snprintf(line, sizeof line, "%.*s", (int)m->size, (const char *)m->body);
    n = strtoul(line, NULL, 10);
    note(began, line,
         snprintf(line, sizeof line, "%lu %u %d %s plugin\n", n, m->attempt,
                  m->redelivered, mqw_id(m)));
    usleep(30000);
    if (n % 100 == 0)
        return MQW_DEAD;
    if (n % 7 == 0 && m->attempt == 1)
        return MQW_RETRY;
    clock_gettime(CLOCK_REALTIME, &now);
    note(ended, line,
         snprintf(line, sizeof line, "%lu %" PRId64 "%09ld\n", n,
                  (int64_t)now.tv_sec, now.tv_nsec));
    if (getenv("LEDGER_KEEPS") && dup(began) < 0)
        abort();
    return MQW_DONE;
}

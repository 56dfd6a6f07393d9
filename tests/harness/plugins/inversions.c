/* inversions.c - a plugin that checks the order of priorities
 *
 * A body is "PRIORITY.NUMBER"; the numbers of a priority grow from 1. The
 * plugin shares the file $TEST_DIR/inversions with the sender: for each
 * priority, how many sends have returned and how many messages have arrived.
 * Every message of a higher priority whose send had returned when the last
 * handler ended must have arrived before this one. One handler runs at a time.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/harness/plugins/inversions.h"
#include "worker/mqworker.h"

static struct inversions *in;
static uint64_t sent[INVERSIONS_PRIORITIES]; /* when the last handler ended */

int mqw_init(const char *arg, void **user)
{
    char path[4096];
    int fd;

    (void)arg, (void)user;
    snprintf(path, sizeof path, "%s/inversions", getenv("TEST_DIR"));
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return 1;
    in = mmap(NULL, sizeof *in, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return in == MAP_FAILED;
}

int mqw_handle(const struct mqw_message *m, struct mqw_context *context)
{
    char body[64];
    unsigned priority;
    unsigned long number;

    (void)context;
    snprintf(body, sizeof body, "%.*s", (int)m->size, (const char *)m->body);
    if (sscanf(body, "%u.%lu", &priority, &number) != 2 ||
        priority >= INVERSIONS_PRIORITIES || priority != m->priority)
        abort();
    if (number != atomic_load(&in->came[priority]) + 1)
        atomic_fetch_add(&in->out_of_line, 1);
    for (unsigned i = priority + 1; i < INVERSIONS_PRIORITIES; i++)
        if (atomic_load(&in->came[i]) < sent[i]) {
            atomic_fetch_add(&in->inverted, 1);
            break;
        }
    atomic_fetch_add(&in->came[priority], 1);
    for (unsigned i = 0; i < INVERSIONS_PRIORITIES; i++)
        sent[i] = atomic_load(&in->sent[i]);
    return MQW_DONE;
}

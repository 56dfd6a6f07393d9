/* meter.c - a plugin that counts, for the benchmark (tests/bench/amqp/meter.h)
 *
 * Its argument is "WARM N FILE". After N messages it writes the meter to FILE.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/bench/amqp/meter.h"
#include "worker/mqworker.h"

static struct meter meter;
static char file[4096];

int mqw_init(const char *arg, void **user)
{
    *user = NULL;
    return arg && sscanf(arg, "%lu %lu %4095s", &meter.warm, &meter.n, file) ==
                       3
               ? 0
               : 1;
}

/* Write the whole file in one step, for a reader that waits for it. */
static void leave(void)
{
    int fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    if (fd < 0 || write(fd, &meter, sizeof meter) != sizeof meter)
        abort();
    close(fd);
}

int mqw_handle(const struct mqw_message *m, struct mqw_context *context)
{
    (void)context;
    if (meter_count(&meter, m->body, m->size))
        leave();
    return MQW_DONE;
}

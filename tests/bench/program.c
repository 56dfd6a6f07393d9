/* program.c - see program.h */
#include "tests/bench/program.h"

#include <errno.h>
#include <mqueue.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/feed.h"

#define ARGUMENTS 32
#define LIMIT_S   60 /* until there is room; it takes a ms or so */

int program_start_on(const char *queue, const char *const *arguments)
{
    const char *argv[ARGUMENTS] = {place->mqworker, "-q", "--state-dir",
                                   place->state, queue};
    size_t n = 5;
    int pid;

    for (size_t i = 0; arguments[i] && n + 1 < ARGUMENTS; i++)
        argv[n++] = arguments[i];
    pid = fork_bound();
    if (pid > 0)
        return pid;
    execv(argv[0], (char *const *)argv);
    fail(errno, "%s", argv[0]);
}

int program_start(const char *const *arguments)
{
    return program_start_on(place->queue, arguments);
}

void program_stop(int pid)
{
    kill(pid, SIGTERM);
    child_done(pid, "mqworker");
}

void program_send(int mq, unsigned long n, size_t size)
{
    static char body[FEED_MOST];

    feed_body(body);
    for (unsigned long i = 0; i < n; i++) {
        struct timespec end;

        clock_gettime(CLOCK_REALTIME, &end);
        end.tv_sec += LIMIT_S;
        feed_turn(body, i);
        if (mq_timedsend((mqd_t)mq, body, size, 0, &end) < 0)
            fail(errno, "sending to mqworker");
    }
}

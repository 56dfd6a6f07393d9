/* torture_exec.c - handler of the torture program: a process for each message
 * (torture_witness.h)
 *
 * The handler takes up to 4 ms, or longer if torture_dawdle sleeps. About every
 * third process waits for a child in another session.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/crash/torture/torture_witness.h"

static const char *variable(const char *name)
{
    const char *value = getenv(name);

    return value ? value : "";
}

static bool is_set(const char *name)
{
    return variable(name)[0] == '1';
}

static unsigned number(const char *name)
{
    return (unsigned)strtoul(variable(name), NULL, 10);
}

static void nap(unsigned us)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)us * 1000}, NULL);
}

/* Read all of stdin. */
static size_t body_read(unsigned char *body, size_t room)
{
    size_t used = 0;
    ssize_t n;

    while (used < room && (n = read(0, body + used, room - used)) > 0)
        used += (size_t)n;
    return used;
}

/* Sleep up to 4 ms, here or in a child. */
static void work(void)
{
    struct timespec ts;
    uint64_t chance;
    pid_t pid;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    chance = torture_hash((uint64_t)ts.tv_nsec ^ (uint64_t)getpid() << 32);
    if (chance % 3 != 0) {
        nap((unsigned)(chance >> 8) % 4000);
        return;
    }
    pid = fork();
    if (pid == 0) {
        setsid();
        nap((unsigned)(chance >> 8) % 4000);
        _exit(0);
    }
    if (pid > 0)
        waitpid(pid, NULL, 0);
}

int main(void)
{
    static const int statuses[] = {
        [TORTURE_DEAD] = 65, [TORTURE_DISCARD] = 3, [TORTURE_LATER] = 0};
    static unsigned char body[TORTURE_MOST + 1];
    const char *group = getenv("MQW_GROUP");
    struct torture_seen seen = {
        .body = body,
        .size = body_read(body, sizeof body),
        .id = variable("MQW_ID"),
        .attempt = number("MQW_ATTEMPT"),
        .priority = number("MQW_PRIORITY"),
        .marked = is_set("MQW_REDELIVERED"),
        .inferred = is_set("MQW_LENGTH_INFERRED"),
        .group = group,
        .group_size = group ? strlen(group) : 0,
    };
    struct torture_run run;

    torture_world_open();
    torture_begin(&seen, &run);
    work();
    torture_dawdle();
    torture_end(&run);
    return run.fails ? 1 : statuses[run.fate];
}

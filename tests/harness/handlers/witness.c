/* witness.c - handler of the kill test: note each delivery and its process
 *
 * Each line of $TEST_DIR/witness is appended in one write, so the order of the
 * lines is the order in time:
 *   WHAT KEY CHECK REDELIVERED ATTEMPT INFERRED DELIVERY STATUS PID TIME
 * WHAT: S start, E end with this exit status, T a child is alive. KEY: nNUMBER,
 * or tSIZE:ID for a body too small for a number. CHECK: enum kill_what.
 * DELIVERY distinguishes the runs of a message. A run takes some ms; every
 * third one waits for a child in another session.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/crash/torture/kill_message.h"

enum { TICK_MS = 2 };

struct run {
    int fd;
    char key[64];
    char delivery[48];
    enum kill_what what;
    unsigned attempt;
};

static const char *variable(const char *name)
{
    const char *value = getenv(name);

    return value && value[0] ? value : "0";
}

static long long now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (long long)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void nap(unsigned ms)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)ms * 1000000}, NULL);
}

/* Append one line in one write. */
static void note_write(const struct run *r, char what, int status)
{
    char line[256];
    int n = snprintf(line, sizeof line, "%c %s %d %s %u %s %s %d %d %lld\n",
                     what, r->key, (int)r->what, variable("MQW_REDELIVERED"),
                     r->attempt, variable("MQW_LENGTH_INFERRED"), r->delivery,
                     status, (int)getpid(), now_ns());

    if (write(r->fd, line, (size_t)n) != n)
        _exit(1);
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

/* Run a child that has left the process group, and wait for it. */
static void child_escape(const struct run *r, unsigned ticks)
{
    pid_t pid = fork();

    if (pid == 0) {
        setsid();
        for (unsigned i = 0; i < ticks; i++) {
            nap(TICK_MS);
            note_write(r, 'T', 0);
        }
        _exit(0);
    }
    if (pid < 0 || waitpid(pid, NULL, 0) < 0)
        _exit(1);
}

int main(void)
{
    unsigned char body[KILL_MAX + 1];
    size_t size = body_read(body, sizeof body);
    uint64_t chance = kill_hash((uint64_t)getpid() ^ (uint64_t)now_ns());
    struct run r = {.attempt = (unsigned)atoi(variable("MQW_ATTEMPT"))};
    char path[4096];
    uint32_t number;
    int status;

    snprintf(path, sizeof path, "%s/witness", variable("TEST_DIR"));
    r.fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    r.what = kill_check(body, size, &number);
    if (size < KILL_TINY)
        snprintf(r.key, sizeof r.key, "t%zu:%s", size, variable("MQW_ID"));
    else
        snprintf(r.key, sizeof r.key, "n%u", number);
    snprintf(r.delivery, sizeof r.delivery, "%d-%lld", (int)getpid(), now_ns());
    note_write(&r, 'S', 0);
    if (chance % 3 == 0)
        child_escape(&r, 1 + (unsigned)(chance >> 8) % 4);
    else
        nap((unsigned)(chance >> 8) % 6);
    status = size < KILL_TINY ? 0 : kill_exit(number, r.attempt);
    note_write(&r, 'E', status);
    return status;
}

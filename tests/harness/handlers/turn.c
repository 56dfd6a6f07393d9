/* turn.c - handler for tests of groups: note when each delivery starts and ends
 *
 * turn [MAX_MS [FAIL_PERCENT [GENERATION]]]: take up to MAX_MS at random, fail
 * in FAIL_PERCENT of the deliveries. Each line of $TEST_DIR/turns is appended
 * in one write, so the order of the lines is the order in time:
 *   S|E GROUP PRIORITY ATTEMPT REDELIVERED GENERATION PID STATUS BODY
 * S start, E end with this exit status; GROUP is "-" for none.
 * Files in $TEST_DIR control it: it waits while gate.BODY exists, exits with 65
 * if dead.BODY exists, and with 1 if fail.BODY exists.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BODY_MAX = 40, EXIT_DEAD = 65 };

struct run {
    int fd;
    const char *dir, *generation;
    char body[BODY_MAX + 1];
};

/* Return the value of a variable; `missing` if it is missing or empty. */
static const char *variable(const char *name, const char *missing)
{
    const char *value = getenv(name);

    return value && value[0] ? value : missing;
}

static void note_write(const struct run *r, char what, int status)
{
    char line[512];
    int n =
        snprintf(line, sizeof line, "%c %.300s %s %s %s %s %d %d %s\n", what,
                 variable("MQW_GROUP", "-"), variable("MQW_PRIORITY", "-1"),
                 variable("MQW_ATTEMPT", "0"), variable("MQW_REDELIVERED", "0"),
                 r->generation, (int)getpid(), status, r->body);

    if (write(r->fd, line, (size_t)n) != n)
        _exit(1);
}

/* Return whether the test has created that file for this body. */
static int control_exists(const struct run *r, const char *what)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/%s.%s", r->dir, what, r->body);
    return access(path, F_OK) == 0;
}

/* Return a random number that differs between processes (splitmix64). */
static uint64_t random_number(void)
{
    struct timespec now;
    uint64_t x;

    clock_gettime(CLOCK_MONOTONIC, &now);
    x = (uint64_t)now.tv_nsec ^ (uint64_t)getpid() << 32;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static void nap_us(uint64_t us)
{
    nanosleep(&(struct timespec){.tv_sec = (time_t)(us / 1000000),
                                 .tv_nsec = (long)(us % 1000000) * 1000},
              NULL);
}

static void body_read(struct run *r)
{
    ssize_t got = read(0, r->body, BODY_MAX);

    r->body[got > 0 ? got : 0] = '\0';
    for (char *at = r->body; *at; at++)
        if (*at <= ' ' || *at == '/')
            *at = '?';
}

int main(int argc, char **argv)
{
    unsigned long max_ms = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    unsigned long percent = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    struct run r = {.dir = variable("TEST_DIR", "."),
                    .generation = argc > 3 ? argv[3] : "0"};
    uint64_t luck = random_number();
    char path[4096];
    int status = 0;

    snprintf(path, sizeof path, "%s/turns", r.dir);
    r.fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    body_read(&r);
    note_write(&r, 'S', 0);
    if (max_ms)
        nap_us(luck % (max_ms * 1000));
    while (control_exists(&r, "gate"))
        nap_us(2000);
    if (control_exists(&r, "dead"))
        status = EXIT_DEAD;
    else if (control_exists(&r, "fail") || (luck >> 32) % 100 < percent)
        status = 1;
    note_write(&r, 'E', status);
    return status;
}

/* span.c - a handler that takes some time and notes when it ran
 *
 * span MS [STATUS]: sleep for MS, exit with STATUS. At its end each run appends
 * one line to $TEST_DIR/spans in one write: START END ATTEMPT BODY, with
 * monotonic ns and at most 100 bytes of the body.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { BODY_MAX = 100 };

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int main(int argc, char **argv)
{
    uint64_t start = now_ns();
    const char *dir = getenv("TEST_DIR"), *attempt = getenv("MQW_ATTEMPT");
    char path[4096], body[BODY_MAX + 1], line[256];
    long ms = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
    ssize_t got = read(0, body, BODY_MAX);
    body[got > 0 ? got : 0] = '\0';
    nanosleep(
        &(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000},
        NULL);
    snprintf(path, sizeof path, "%s/spans", dir ? dir : ".");
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int size = snprintf(line, sizeof line, "%" PRIu64 " %" PRIu64 " %s %s\n",
                        start, now_ns(), attempt ? attempt : "-", body);
    if (fd < 0 || write(fd, line, (size_t)size) != size)
        return 1;
    return argc > 2 ? (int)strtol(argv[2], NULL, 10) : 0;
}

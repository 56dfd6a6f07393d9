/* answer.c - see answer.h */
#include "tests/bench/answer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/bench/feed.h"
#include "tests/bench/place.h"

#define LINE_MOST 2048 /* of MSG, its groups and x- headers included */

struct answerer {
    const char *file;
    unsigned long warm, n, done;
    uint64_t from_ns;
    bool fills;       /* the queue, itself */
    struct task plan; /* with that */
    struct tally fill;
    bool batch;
    size_t in_size, out_size;
    char in[1 << 16], out[1 << 14];
};

/* Write the answers so far. */
static bool out_flush(struct answerer *a)
{
    size_t size = a->out_size;

    a->out_size = 0;
    return size == 0 || write(1, a->out, size) == (ssize_t)size;
}

/* Add the answer to the message with that id. */
static bool ok_put(struct answerer *a, const char *id, size_t size)
{
    if (a->out_size + size + 4 > sizeof a->out && !out_flush(a))
        return false;
    memcpy(a->out + a->out_size, "OK ", 3);
    memcpy(a->out + a->out_size + 3, id, size);
    a->out[a->out_size + 3 + size] = '\n';
    a->out_size += size + 4;
    return a->batch || out_flush(a);
}

/* Write the result, messages a second. */
static bool rate_put(const struct answerer *a, double rate)
{
    FILE *f = fopen(a->file, "we");

    if (!f)
        return false;
    fprintf(f, "%f\n", rate);
    return fclose(f) == 0;
}

/* Count an answered message; write the result after the last. */
static bool took(struct answerer *a)
{
    uint64_t now;

    if (a->fills && a->done++ == 0)
        tally_start(&a->fill, &a->plan);
    else if (a->fills && tally_count(&a->fill))
        return rate_put(a, tally_rate(&a->fill));
    if (a->fills)
        return true;
    a->done++;
    if (a->done == a->warm)
        a->from_ns = clock_mono_ns();
    if (a->done != a->n)
        return true;
    now = clock_mono_ns();
    return rate_put(a, (double)(a->n - a->warm) * 1e9 /
                           (double)(now - a->from_ns));
}

/* Answer the first message. Return its size; 0: it is incomplete, -1: it is no
 * message. */
static ssize_t message_take(struct answerer *a, const char *at, size_t size)
{
    const char *line = memchr(at, '\n', size), *id = at + 4, *end;
    unsigned long body;
    size_t whole;
    char *rest;

    if (!line)
        return size < LINE_MOST ? 0 : -1;
    if (strncmp(at, "MSG ", 4) != 0 ||
        !(end = memchr(id, ' ', (size_t)(line - id))))
        return -1;
    body = strtoul(end + 1, &rest, 10);
    whole = (size_t)(line + 1 - at) + body + 1;
    if (whole > sizeof a->in)
        return -1;
    if (whole > size)
        return 0;
    if (a->fills && !took(a)) /* filled before the worker looks again */
        return -1;
    if (!ok_put(a, id, (size_t)(end - id)) || (!a->fills && !took(a)))
        return -1;
    return (ssize_t)whole;
}

/* Answer all messages that were read. Return false if something is wrong. */
static bool in_take(struct answerer *a)
{
    size_t at = 0;
    ssize_t n;

    while ((n = message_take(a, a->in + at, a->in_size - at)) > 0)
        at += (size_t)n;
    a->in_size -= at;
    memmove(a->in, a->in + at, a->in_size);
    return n == 0 && out_flush(a);
}

int answer(int argc, char **argv)
{
    static struct answerer a;
    ssize_t n;

    if (argc < 3)
        return EX_USAGE;
    a.file = argv[0];
    a.warm = strtoul(argv[1], NULL, 10);
    a.n = strtoul(argv[2], NULL, 10);
    if (argc > 4) {
        a.fills = true;
        a.plan.size = strtoul(argv[3], NULL, 10);
        a.plan.depth = strtol(argv[4], NULL, 10);
        a.plan.n = a.n - 1;
        place_join(getenv("MQW_QUEUE"));
    } else {
        a.batch = argc > 3;
    }
    while ((n = read(0, a.in + a.in_size, sizeof a.in - a.in_size)) > 0) {
        a.in_size += (size_t)n;
        if (!in_take(&a))
            return EX_DATAERR;
    }
    return n < 0 ? EX_OSERR : EX_OK;
}

/* meter.h - count and time the messages that arrive from a broker
 *
 * WHAT   A clock from message number `warm` to number `n`, and for each of
 *        those the time since it was sent, if its body says when that was.
 * WHO    The bare loop, and the plugin (tests/harness/plugins/meter.c), which
 *        leaves it in a file. One delivery at a time.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef TESTS_BENCH_AMQP_METER_H
#define TESTS_BENCH_AMQP_METER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define METER_MOST 4096 /* times that are kept */

struct meter {
    unsigned long warm, n, seen;
    uint64_t from_ns, ns;
    unsigned long late_count;
    double late_ns[METER_MOST]; /* of those behind `warm` */
};

/* Return CLOCK_MONOTONIC. A plugin cannot call clock_mono_ns. */
static inline uint64_t meter_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Count a message that has arrived; return true for the last. */
static inline bool meter_count(struct meter *m, const void *body, size_t size)
{
    uint64_t now = meter_now(), sent = 0;

    m->seen++;
    if (m->seen == m->warm)
        m->from_ns = now;
    if (m->seen > m->warm && m->late_count < METER_MOST &&
        size >= sizeof sent) {
        memcpy(&sent, body, sizeof sent);
        m->late_ns[m->late_count++] = (double)now - (double)sent;
    }
    m->ns = now - m->from_ns;
    return m->seen == m->n;
}

#endif

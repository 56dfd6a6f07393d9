/* peers.h - servers of queues that people would use instead
 *
 * WHAT   Starts beanstalkd, Redis or RabbitMQ for one measurement, and speaks
 *        to the first two as their clients do: put, take, done. Each is set so
 *        that the end of any process loses no message, as with ours.
 * WHO    A measuring process.
 * OWNS   The server, whose files are in the place of the measurement. It ends
 *        with the process.
 * FAILS  fail(); NOT_BUILT where the server is not installed.
 */
#ifndef TESTS_BENCH_PEERS_H
#define TESTS_BENCH_PEERS_H

#include <stdio.h>

#include "tests/bench/bench.h"
#include "tests/bench/feed.h"

/* One connection. */
struct peer_link {
    int fd;
    FILE *in;
    char id[64];              /* of the message that was taken */
    char body[FEED_MOST + 1]; /* its bytes, and a NUL */
    size_t size;
};

struct peer {
    const char *socket;        /* its name below the place */
    const char *const *server; /* argv; "%s" is the path of the place */
    void (*prepare)(struct peer_link *l); /* a fresh queue; NULL: no need */
    void (*put)(struct peer_link *l, const char *body); /* it is accepted */
    void (*take)(struct peer_link *l); /* the next; waits for one */
    void (*done)(struct peer_link *l); /* the one that was taken last */
};
extern const struct peer peer_beanstalkd, peer_redis_list, peer_redis_stream;

/* Start the server with an empty queue, and wait until it is ready. */
enum measured peer_start(const struct peer *peer);
void peer_open(const struct peer *peer, struct peer_link *l);
/* Start a process that puts `n` bodies of `size` bytes, one after the other. */
int peer_send(const struct peer *peer, unsigned long n, size_t size);

/* Start a node of RabbitMQ and tell its port. It ends with this process. */
enum measured rabbit_node(unsigned *port);
/* Start a node with an empty durable queue; write its URL to `url`. */
#define RABBIT_URL   64
#define RABBIT_QUEUE "bench"
enum measured rabbit_start(char url[RABBIT_URL]);
/* Start amqp-publish for `n` persistent messages, one a line. */
int rabbit_send(const char *url, unsigned long n, size_t size);

#endif

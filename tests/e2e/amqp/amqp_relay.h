/* amqp_relay.h - let a broker seem far away
 *
 * WHAT   Passes connections on to another port of this machine, and delays what
 *        either side writes.
 * WHO    One test at a time.
 * OWNS   A process for all connections and two for each; they end with the
 *        test.
 * FAILS  By ending the test; in its processes, by ending the connection.
 */
#ifndef TESTS_AMQP_RELAY_H
#define TESTS_AMQP_RELAY_H

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <bsd/unistd.h>

struct relay_chunk {
    TAILQ_ENTRY(relay_chunk) link;
    int64_t due_us;
    ssize_t size;
    char bytes[16384];
};
TAILQ_HEAD(relay_chunks, relay_chunk);

static inline int64_t relay_now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Read what has come. Returns false at the end of the stream. */
static inline bool relay_read(struct relay_chunks *all, int from,
                              unsigned delay_ms)
{
    struct relay_chunk *c = malloc(sizeof *c);

    if (!c)
        _exit(1);
    c->size = recv(from, c->bytes, sizeof c->bytes, 0);
    c->due_us = relay_now_us() + (int64_t)delay_ms * 1000;
    if (c->size <= 0) {
        free(c);
        return false;
    }
    TAILQ_INSERT_TAIL(all, c, link);
    return true;
}

static inline void relay_write(struct relay_chunks *all, int to)
{
    struct relay_chunk *c = TAILQ_FIRST(all);
    ssize_t done = 0, n;

    for (; done < c->size; done += n) {
        n = send(to, c->bytes + done, (size_t)(c->size - done), MSG_NOSIGNAL);
        if (n < 0)
            _exit(1);
    }
    TAILQ_REMOVE(all, c, link);
    free(c);
}

/* Copy one direction of a connection until its end. */
static inline void relay_pump(int from, int to, unsigned delay_ms)
{
    struct relay_chunks all = TAILQ_HEAD_INITIALIZER(all);
    struct pollfd in = {.fd = from, .events = POLLIN};
    const struct relay_chunk *c;

    while (in.fd >= 0 || !TAILQ_EMPTY(&all)) {
        int64_t left = -1;
        struct timespec wait;

        if ((c = TAILQ_FIRST(&all)) != NULL) {
            left = c->due_us - relay_now_us();
            if (left <= 0) {
                relay_write(&all, to);
                continue;
            }
        }
        wait = (struct timespec){left / 1000000, left % 1000000 * 1000};
        if (ppoll(&in, 1, left < 0 ? NULL : &wait, NULL) > 0 &&
            !relay_read(&all, from, delay_ms))
            in.fd = -1;
    }
    shutdown(to, SHUT_WR);
    _exit(0);
}

static inline void relay_serve(int near, unsigned port, unsigned delay_ms)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int far = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    if (far < 0 || connect(far, (struct sockaddr *)&at, sizeof at) < 0)
        _exit(1);
    /* TCP itself must add no delay. */
    setsockopt(near, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(far, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (fork() == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        relay_pump(far, near, delay_ms);
    }
    relay_pump(near, far, delay_ms);
}

/* Open a relay on loopback to a port there. Returns its own port. */
static inline unsigned relay_open(unsigned port, unsigned delay_ms)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), next;

    cr_assert(fd >= 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    cr_assert_eq(listen(fd, 16), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&at, &length), 0);
    if (fork() == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGCHLD, SIG_IGN);
        /* Close inherited pipes, whose ends the janitor and Criterion await. */
        if (dup2(fd, 3) != 3)
            _exit(1);
        closefrom(4);
        while ((next = accept(3, NULL, NULL)) >= 0) {
            if (fork() == 0) {
                (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
                relay_serve(next, port, delay_ms);
            }
            close(next);
        }
        _exit(0);
    }
    close(fd);
    return ntohs(at.sin_port);
}

#endif

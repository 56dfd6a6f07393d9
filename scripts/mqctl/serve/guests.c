/* guests.c - see guests.h */
#include "scripts/mqctl/serve/guests.h"

#include <bsd/sys/queue.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"

struct guest {
    TAILQ_ENTRY(guest) link;
    int fd;
    struct in6_addr peer; /* an IPv4 address is in its first bytes */
    uint64_t since_ns;    /* it came, or its last request was over */
    bool known;           /* not in the list: a request with a token runs */
    bool sent_away;       /* nor this: shut down, libmicrohttpd will close it */
};
/* Those without a token, the oldest first. */
static TAILQ_HEAD(guests, guest) strangers = TAILQ_HEAD_INITIALIZER(strangers);
static unsigned stranger_count;
/* Monotonic time before which no connection is accepted, because there was no
 * descriptor for the last one. The listening socket stays readable, so without
 * this pause the server would poll it in a busy loop. */
static uint64_t full_until_ns;

#define FULL_NS (NS_PER_S / 10)

static void list_add(struct guest *g)
{
    g->since_ns = clock_mono_ns();
    TAILQ_INSERT_TAIL(&strangers, g, link);
    stranger_count++;
}

static void list_remove(struct guest *g)
{
    TAILQ_REMOVE(&strangers, g, link);
    stranger_count--;
}

/* send_away - libmicrohttpd reads the end of the connection, and closes it;
 * until then the descriptor is not used for another one */
static void send_away(struct guest *g)
{
    list_remove(g);
    g->sent_away = true;
    (void)shutdown(g->fd, SHUT_RDWR);
}

/* peer_of - the address; zeros on a unix socket, where all are one peer */
static struct in6_addr peer_of(const struct sockaddr_storage *from)
{
    struct in6_addr peer = {0};

    if (from->ss_family == AF_INET)
        memcpy(&peer, &((const struct sockaddr_in *)from)->sin_addr,
               sizeof(struct in_addr));
    else if (from->ss_family == AF_INET6)
        peer = ((const struct sockaddr_in6 *)from)->sin6_addr;
    return peer;
}

/* room_make - for one more of that address */
static void room_make(const struct in6_addr *peer)
{
    struct guest *g, *oldest = NULL;
    unsigned of_peer = 0;

    TAILQ_FOREACH (g, &strangers, link) {
        if (memcmp(&g->peer, peer, sizeof *peer) != 0)
            continue;
        if (!oldest)
            oldest = g;
        of_peer++;
    }
    if (of_peer >= GUESTS_OF_PEER)
        send_away(oldest);
    else if (stranger_count >= GUESTS_MAX)
        send_away(TAILQ_FIRST(&strangers));
}

/* Return true if a connection is waiting. accept4(2) cannot tell: without a
 * free descriptor it fails with EMFILE even if no connection is waiting. */
static bool is_waiting(int listener)
{
    struct pollfd p = {.fd = listener, .events = POLLIN};

    return poll(&p, 1, 0) > 0;
}

void guests_take(struct MHD_Daemon *daemon, int listener)
{
    for (int n = 0; n < GUESTS_A_TURN; n++) {
        struct sockaddr_storage from = {0};
        socklen_t size = sizeof from;
        struct in6_addr peer;
        int fd = accept4(listener, (struct sockaddr *)&from, &size,
                         SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0 &&
            (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
             errno == ENOMEM) &&
            is_waiting(listener)) {
            if (!TAILQ_EMPTY(&strangers))
                send_away(TAILQ_FIRST(&strangers));
            full_until_ns = clock_mono_ns() + FULL_NS;
        }
        if (fd < 0)
            return;
        peer = peer_of(&from);
        room_make(&peer);
        /* It closes the descriptor if it has no room. */
        (void)MHD_add_connection(daemon, fd, (struct sockaddr *)&from, size);
    }
}

bool guests_full(uint64_t now_ns)
{
    return now_ns < full_until_ns;
}

uint64_t guests_keep(uint64_t now_ns)
{
    const uint64_t time = GUEST_TIME_S * NS_PER_S;
    struct guest *g;
    uint64_t due;

    while ((g = TAILQ_FIRST(&strangers)) && g->since_ns + time <= now_ns)
        send_away(g);
    due = g ? g->since_ns + time : UINT64_MAX;
    return guests_full(now_ns) && full_until_ns < due ? full_until_ns : due;
}

void guest_known(struct MHD_Connection *c, bool known)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct guest *g = info ? info->socket_context : NULL;

    if (!g || g->sent_away || g->known == known)
        return;
    g->known = known;
    if (known)
        list_remove(g);
    else
        list_add(g);
}

void guest_notify(void *cls, struct MHD_Connection *c, void **guest,
                  enum MHD_ConnectionNotificationCode code)
{
    const union MHD_ConnectionInfo *info;
    struct guest *g = *guest;

    (void)cls;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (g && !g->known && !g->sent_away)
            list_remove(g);
        free(g);
        *guest = NULL;
        return;
    }
    /* A connection without an entry is still closed after 15 s without a
     * byte. */
    g = calloc(1, sizeof *g);
    if (!g)
        return;
    /* Since libmicrohttpd 1.0 each call overwrites what the last one returned:
     * copy before the next call. */
    info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    g->fd = info ? info->connect_fd : -1;
    info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (g->fd < 0 || !info) {
        free(g);
        return;
    }
    g->peer = peer_of((const struct sockaddr_storage *)info->client_addr);
    list_add(g);
    *guest = g;
}

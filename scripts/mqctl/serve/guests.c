/* guests.c - the connections, and which is closed (see guests.h) */
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
    uint64_t since_ns;    /* time of its arrival or of its last request's end */
    bool known;           /* has a request with a token; not in the list */
    bool sent_away;       /* shut down, not closed yet; not in the list */
};
/* Connections without a token, the oldest first. */
static TAILQ_HEAD(guests, guest) strangers = TAILQ_HEAD_INITIALIZER(strangers);
static unsigned stranger_count;
/* Monotonic time before which no connection is accepted, because there was no
 * descriptor for the last one. The listening socket stays readable, so without
 * this pause the server would poll it in a busy loop. */
static uint64_t full_until_ns;

#define FULL_NS (NS_PER_S / 10)

static void guest_list(struct guest *g)
{
    g->since_ns = clock_mono_ns();
    TAILQ_INSERT_TAIL(&strangers, g, link);
    stranger_count++;
}

static void guest_unlist(struct guest *g)
{
    TAILQ_REMOVE(&strangers, g, link);
    stranger_count--;
}

/* Shut a connection down. libmicrohttpd then reads the end of file and closes
 * the descriptor, which no other connection can get before that. */
static void guest_send_away(struct guest *g)
{
    guest_unlist(g);
    g->sent_away = true;
    (void)shutdown(g->fd, SHUT_RDWR);
}

/* Return an address; zeros on a unix socket, where all clients are one peer. */
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

void guests_take(struct MHD_Daemon *daemon, int listener)
{
    for (int n = 0; n < GUESTS_A_TURN; n++) {
        struct sockaddr_storage from = {0};
        struct pollfd waiting = {.fd = listener, .events = POLLIN};
        struct guest *g, *oldest = NULL;
        socklen_t size = sizeof from;
        struct in6_addr peer;
        unsigned of_peer = 0;
        int fd = accept4(listener, (struct sockaddr *)&from, &size,
                         SOCK_CLOEXEC | SOCK_NONBLOCK);

        /* Without a free descriptor, accept4(2) fails with EMFILE even if no
         * connection is waiting. */
        if (fd < 0 &&
            (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
             errno == ENOMEM) &&
            poll(&waiting, 1, 0) > 0) {
            if (!TAILQ_EMPTY(&strangers))
                guest_send_away(TAILQ_FIRST(&strangers));
            full_until_ns = clock_mono_ns() + FULL_NS;
        }
        if (fd < 0)
            return;
        /* Make room for one more connection of that address. */
        peer = peer_of(&from);
        TAILQ_FOREACH (g, &strangers, link)
            if (memcmp(&g->peer, &peer, sizeof peer) == 0) {
                oldest = oldest ? oldest : g;
                of_peer++;
            }
        if (of_peer >= GUESTS_OF_PEER)
            guest_send_away(oldest);
        else if (stranger_count >= GUESTS_MAX)
            guest_send_away(TAILQ_FIRST(&strangers));
        /* libmicrohttpd closes the descriptor if it has no room. */
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
        guest_send_away(g);
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
        guest_unlist(g);
    else
        guest_list(g);
}

void guest_notify(void *cls, struct MHD_Connection *c, void **guest,
                  enum MHD_ConnectionNotificationCode code)
{
    const union MHD_ConnectionInfo *info;
    struct guest *g = *guest;

    (void)cls;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (g && !g->known && !g->sent_away)
            guest_unlist(g);
        free(g);
        *guest = NULL;
        return;
    }
    /* Without an entry, libmicrohttpd still closes the connection after 15 s
     * without a byte. */
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
    guest_list(g);
    *guest = g;
}

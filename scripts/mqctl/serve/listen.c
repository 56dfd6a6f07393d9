/* listen.c - see listen.h */
#include "scripts/mqctl/serve/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/problem.h"
#include "common/base/unix_socket.h"

#define BACKLOG  128
#define FIRST_FD 3 /* sd_listen_fds(3) */

union address {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    struct sockaddr_storage room;
};

/* parse - "127.0.0.1:8480", "[::1]:8480"; "localhost" is 127.0.0.1 */
static int parse(const char *text, union address *out, struct problem *p)
{
    const char *colon = strrchr(text, ':');
    char name[64], *end;
    size_t size = colon ? (size_t)(colon - text) : 0;
    unsigned long port = colon ? strtoul(colon + 1, &end, 10) : 0;

    *out = (union address){0};
    if (!colon || size == 0 || size >= sizeof name || !colon[1] || *end ||
        port > 65535)
        return problem_set(p, EX_USAGE, EINVAL,
                           "--listen: \"%.64s\" is not an address; give "
                           "127.0.0.1:8480, [::1]:8480 or unix:PATH",
                           text);
    memcpy(name, text, size);
    name[size] = '\0';
    if (strcmp(name, "localhost") == 0)
        strlcpy(name, "127.0.0.1", sizeof name);
    if (inet_pton(AF_INET, name, &out->four.sin_addr) == 1) {
        out->four.sin_family = AF_INET;
        out->four.sin_port = htons((uint16_t)port);
        return 0;
    }
    if (name[0] == '[' && name[size - 1] == ']') {
        name[size - 1] = '\0';
        if (inet_pton(AF_INET6, name + 1, &out->six.sin6_addr) == 1) {
            out->six.sin6_family = AF_INET6;
            out->six.sin6_port = htons((uint16_t)port);
            return 0;
        }
    }
    return problem_set(p, EX_USAGE, EINVAL,
                       "--listen: \"%.64s\" is not an address; give a number "
                       "like 127.0.0.1 or [::1], and names by --allow-host",
                       text);
}

static bool loopback(const union address *a)
{
    if (a->any.sa_family == AF_INET)
        return ntohl(a->four.sin_addr.s_addr) >> 24 == 127;
    return a->any.sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&a->six.sin6_addr);
}

/* name_own - what a browser would call this address */
static void name_own(const union address *a, struct serve_guard *g)
{
    char text[64] = "";

    if (a->any.sa_family == AF_INET) {
        inet_ntop(AF_INET, &a->four.sin_addr, g->own, sizeof g->own);
        g->port = ntohs(a->four.sin_port);
        return;
    }
    inet_ntop(AF_INET6, &a->six.sin6_addr, text, sizeof text);
    snprintf(g->own, sizeof g->own, "[%s]", text);
    g->port = ntohs(a->six.sin6_port);
}

/* allowed - another address than loopback is for those who hide the token from
 * the network */
static int allowed(const struct serve_options *o, const union address *a,
                   struct problem *p)
{
    if (loopback(a) || o->tls_cert || o->behind_proxy)
        return 0;
    return problem_set(p, EX_USAGE, EACCES,
                       "only loopback is listened on without TLS: others on "
                       "the network would read the token and the messages; "
                       "give --tls-cert and --tls-key, or --behind-proxy, or "
                       "reach it by ssh -L");
}

static int listen_inet(const struct serve_options *o, const char *text,
                       struct serve_guard *g, struct problem *p)
{
    union address a;
    socklen_t size;
    int err = parse(text, &a, p), fd, one = 1;

    if (!err)
        err = allowed(o, &a, p);
    if (err)
        return err;
    size = a.any.sa_family == AF_INET ? sizeof a.four : sizeof a.six;
    fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 &&
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
        bind(fd, &a.any, size) == 0 && listen(fd, BACKLOG) == 0 &&
        getsockname(fd, &a.any, &size) == 0) {
        name_own(&a, g);
        return fd;
    }
    err = errno;
    if (fd >= 0)
        close(fd);
    return problem_set(p,
                       err == EACCES       ? EX_NOPERM
                       : err == EADDRINUSE ? EX_TEMPFAIL
                                           : EX_OSERR,
                       err, "cannot listen on %s: %s; give another --listen",
                       text, errno_text(err));
}

/* listen_unix - at a path where nothing is, or a socket without a listener */
static int listen_unix(const char *path, struct problem *p)
{
    struct stat st;
    int fd = unix_socket_connect(path);

    if (fd >= 0) {
        close(fd);
        return problem_set(p, EX_TEMPFAIL, EADDRINUSE,
                           "somebody listens at %s already; end that, or give "
                           "another --listen",
                           path);
    }
    if (lstat(path, &st) == 0 && !S_ISSOCK(st.st_mode))
        return problem_set(p, EX_CANTCREAT, EEXIST,
                           "%s exists and is not a socket; remove it, or give "
                           "another --listen",
                           path);
    fd = unix_socket_listen(path, BACKLOG);
    if (fd < 0)
        return problem_set(p, EX_CANTCREAT, -fd, "cannot listen at %s: %s",
                           path, errno_text(-fd));
    return fd;
}

/* number_of - an environment variable as a number, -1: not there, or none */
static long number_of(const char *name)
{
    const char *text = getenv(name);
    char *end;
    long n = text && *text ? strtol(text, &end, 10) : -1;

    return text && *text && !*end ? n : -1;
}

/* handed_over - the socket of a unit; -1: there is none */
static int handed_over(struct serve_guard *g, union address *a)
{
    socklen_t size = sizeof *a;
    int fd = FIRST_FD;

    if (number_of("LISTEN_PID") != getpid() || number_of("LISTEN_FDS") != 1)
        return -1;
    /* NOLINTBEGIN(concurrency-mt-unsafe): the page has no threads */
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    /* NOLINTEND(concurrency-mt-unsafe) */
    if (getsockname(fd, &a->any, &size) < 0)
        return -1;
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    if (a->any.sa_family != AF_UNIX)
        name_own(a, g);
    return fd;
}

int listen_open(const struct serve_options *o, struct serve_guard *g,
                struct problem *p)
{
    const char *text = o->listen ? o->listen : SERVE_LISTEN;
    union address a = {0};
    int fd = handed_over(g, &a);

    g->names = o->hosts.at;
    g->name_count = o->hosts.count;
    g->secure = o->tls_cert != NULL;
    if (fd >= 0 && a.any.sa_family != AF_UNIX) {
        int err = allowed(o, &a, p);

        return err ? err : fd;
    }
    if (fd >= 0)
        return fd;
    if (strncmp(text, "unix:", 5) == 0)
        return listen_unix(text + 5, p);
    return listen_inet(o, text, g, p);
}

/* serve.c - the HTTP server of mqctl serve (see mqctl.h)
 *
 * One thread, which waits for connections, for the children that answer
 * requests, and for the child that watches all queues. The thread opens no
 * store and asks no worker, so no store and no worker can make it wait.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/folder.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/base/unix_socket.h"
#include "common/cli/complain.h"
#include "common/cli/json_line.h"
#include "common/state/statedir.h"
#include "scripts/mqctl/mqctl.h"
#include "scripts/mqctl/serve/ask/history.h"
#include "scripts/mqctl/serve/confine.h"
#include "scripts/mqctl/serve/events.h"
#include "scripts/mqctl/serve/guard.h"
#include "scripts/mqctl/serve/guests.h"
#include "scripts/mqctl/serve/jobs.h"
#include "scripts/mqctl/serve/look.h"
#include "scripts/mqctl/serve/request.h"
#include "scripts/mqctl/serve/watch.h"

#define SERVE_LISTEN "127.0.0.1:8480"

/* ---- the listening socket ---- */

#define BACKLOG  128
#define FIRST_FD 3 /* sd_listen_fds(3) */

union address {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    struct sockaddr_storage room;
};

/* Return a pointer to the host's number in an address. */
static void *address_host(union address *a)
{
    return a->any.sa_family == AF_INET6 ? (void *)&a->six.sin6_addr
                                        : &a->four.sin_addr;
}

/* Parse "127.0.0.1:8480" or "[::1]:8480"; "localhost" is 127.0.0.1. */
static int address_parse(const char *text, union address *out,
                         struct problem *p)
{
    const char *colon = strrchr(text, ':');
    char name[64], *end = name;
    size_t size = colon ? (size_t)(colon - text) : 0;
    unsigned long port = colon ? strtoul(colon + 1, &end, 10) : 0;
    bool six = size > 2 && text[0] == '[' && text[size - 1] == ']';

    *out = (union address){.any.sa_family = six ? AF_INET6 : AF_INET};
    out->four.sin_port =
        htons((uint16_t)port); /* at the same offset for IPv6 */
    snprintf(name, sizeof name, "%.*s", (int)size - 2 * six, text + six);
    if (!six && strcmp(name, "localhost") == 0)
        strlcpy(name, "127.0.0.1", sizeof name);
    if (!colon || !colon[1] || *end || port > 65535 || size >= sizeof name ||
        inet_pton(out->any.sa_family, name, address_host(out)) != 1)
        return problem_set(p, EX_USAGE, EINVAL,
                           "--listen: \"%.64s\" is not an address; give a "
                           "number like 127.0.0.1:8480 or [::1]:8480, or "
                           "unix:PATH; host names belong in --allow-host",
                           text);
    return 0;
}

/* Set the host and the port that a browser uses for this address. */
static void guard_name(struct serve_guard *g, union address *a)
{
    char text[INET6_ADDRSTRLEN] = "";

    inet_ntop(a->any.sa_family, address_host(a), text, sizeof text);
    snprintf(g->own, sizeof g->own, a->any.sa_family == AF_INET ? "%s" : "[%s]",
             text);
    g->port = ntohs(a->four.sin_port);
}

/* Refuse an address other than loopback if others on the network could read the
 * token. */
static int address_check(const struct serve_options *o, const union address *a,
                         struct problem *p)
{
    bool loopback = a->any.sa_family == AF_INET
                        ? ntohl(a->four.sin_addr.s_addr) >> 24 == 127
                        : a->any.sa_family == AF_INET6 &&
                              IN6_IS_ADDR_LOOPBACK(&a->six.sin6_addr);

    if (loopback || o->tls_cert || o->behind_proxy)
        return 0;
    return problem_set(p, EX_USAGE, EACCES,
                       "without TLS, give --listen a loopback address (reach "
                       "it by ssh -L), because others on the network could "
                       "read the token and the messages; or give --tls-cert "
                       "and --tls-key, or --behind-proxy");
}

static int listen_inet(const struct serve_options *o, const char *text,
                       struct serve_guard *g, struct problem *p)
{
    union address a;
    socklen_t size;
    int fd, err, one = 1;

    if (address_parse(text, &a, p) < 0 || address_check(o, &a, p) < 0)
        return -EINVAL;
    size = a.any.sa_family == AF_INET ? sizeof a.four : sizeof a.six;
    fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 &&
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
        bind(fd, &a.any, size) == 0 && listen(fd, BACKLOG) == 0 &&
        getsockname(fd, &a.any, &size) == 0) {
        guard_name(g, &a);
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

/* Listen on a UNIX socket. The path must be free, or have a socket at which no
 * program listens any more. */
static int listen_unix(const char *path, struct problem *p)
{
    struct stat st;
    int fd = unix_socket_connect(path);

    if (fd >= 0) {
        close(fd);
        return problem_set(p, EX_TEMPFAIL, EADDRINUSE,
                           "another program is listening at %s; stop it, or "
                           "give another --listen",
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

/* Return the listening socket, which systemd may have passed. Set the names
 * that clients may use for the server. */
static int listen_open(const struct serve_options *o, struct serve_guard *g,
                       struct problem *p)
{
    const char *text = o->listen ? o->listen : SERVE_LISTEN,
               *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    bool passed = pid && strtol(pid, NULL, 10) == getpid() && count &&
                  strcmp(count, "1") == 0;
    union address a = {0};
    socklen_t size = sizeof a;

    g->names = o->hosts.at;
    g->name_count = o->hosts.count;
    g->secure = o->tls_cert != NULL;
    if (passed) {
        /* NOLINTBEGIN(concurrency-mt-unsafe): the server has one thread */
        unsetenv("LISTEN_PID");
        unsetenv("LISTEN_FDS");
        unsetenv("LISTEN_FDNAMES");
        /* NOLINTEND(concurrency-mt-unsafe) */
    }
    if (passed && getsockname(FIRST_FD, &a.any, &size) == 0) {
        (void)fcntl(FIRST_FD, F_SETFD, FD_CLOEXEC);
        (void)fcntl(FIRST_FD, F_SETFL, fcntl(FIRST_FD, F_GETFL) | O_NONBLOCK);
        if (a.any.sa_family == AF_UNIX)
            return FIRST_FD;
        guard_name(g, &a);
        return address_check(o, &a, p) < 0 ? -EACCES : FIRST_FD;
    }
    return strncmp(text, "unix:", 5) == 0 ? listen_unix(text + 5, p)
                                          : listen_inet(o, text, g, p);
}

/* ---- the server ---- */

/* Connections with a token, without one, and being closed. */
#define CONNECTIONS    (2 * GUESTS_MAX + GUESTS_A_TURN)
#define CONNECTION_MEM (16u << 10) /* a request's lines and headers */
#define TIMEOUT_S      15 /* for a client that neither sends nor receives */
#define TOKEN_NAME     "web.token"
#define JOBS_NAME      "web.jobs" /* the number of the last job */

struct server {
    struct serve_site site;
    struct MHD_Daemon *daemon;
    int listener, signals, epoll;
    char *cert, *key; /* NULL: no TLS */
    bool stop;
};

/* ---- starting ---- */

/* Read a file as a string; the caller frees it. */
static char *tls_file_read(const char *path, struct problem *p)
{
    FILE *in = fopen(path, "re");
    char *text = NULL;
    size_t room = 0;
    ssize_t n = in ? getdelim(&text, &room, '\0', in) : -1;

    if (n <= 0) {
        problem_fill(p, EX_NOINPUT, "cannot read %s: %s", path,
                     errno ? errno_text(errno) : "it is empty");
        free(text);
        text = NULL;
    }
    if (in)
        fclose(in);
    return text;
}

static int tls_read(struct server *s, struct problem *p)
{
    const struct serve_options *o = s->site.o;

    if (!o->tls_cert && !o->tls_key)
        return 0;
    if (!o->tls_cert || !o->tls_key)
        return problem_set(p, EX_USAGE, EINVAL,
                           "give both --tls-cert and --tls-key, or neither");
    if (MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
        return problem_set(p, EX_UNAVAILABLE, ENOSYS,
                           "libmicrohttpd is built without TLS here; use a "
                           "proxy and --behind-proxy");
    s->cert = tls_file_read(o->tls_cert, p);
    s->key = s->cert ? tls_file_read(o->tls_key, p) : NULL;
    return s->key ? 0 : -EINVAL;
}

/* Print the path of a file of the server in the first state directory, and make
 * that directory if no worker has run yet. */
static int own_path(const struct serve_options *o, const char *name,
                    char path[PATH_MAX], struct problem *p)
{
    char root[PATH_MAX];
    int err = statedir_root(root, o->state_dirs.at[0], p);

    if (err)
        return err;
    err = folder_make(root);
    if (err && err != -EEXIST)
        return problem_set(p, EX_CANTCREAT, -err,
                           "state directory %s: %s; see --state-dir, or give "
                           "a --token-file",
                           root, errno_text(-err));
    if (!folder_join(path, root, "/", name))
        return problem_set(p, EX_CANTCREAT, ENAMETOOLONG,
                           "the path of the state directory is too long");
    return 0;
}

static int daemon_start(struct server *s, struct problem *p)
{
    unsigned flags =
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET;
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, s->cert},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, s->key},
        {MHD_OPTION_END, 0, NULL},
    };
    const union MHD_DaemonInfo *info;

    s->daemon = MHD_start_daemon(
        s->key ? flags | MHD_USE_TLS : flags, 0, NULL, NULL, request_handle,
        &s->site, MHD_OPTION_NOTIFY_CONNECTION, guest_notify, NULL,
        MHD_OPTION_URI_LOG_CALLBACK, request_begin, &s->site,
        MHD_OPTION_NOTIFY_COMPLETED, request_over, NULL,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)TIMEOUT_S,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEM,
        MHD_OPTION_STRICT_FOR_CLIENT, 1,
        s->key ? MHD_OPTION_ARRAY : MHD_OPTION_END, tls, MHD_OPTION_END);
    info = s->daemon ? MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD)
                     : NULL;
    if (!info)
        return problem_set(p, EX_OSERR, EIO, "libmicrohttpd cannot start%s",
                           s->key ? "; check that the certificate and the key "
                                    "are PEM files and belong together"
                                  : "");
    s->epoll = info->epoll_fd;
    return 0;
}

static int server_start(struct server *s, struct problem *p)
{
    static const int stops[] = {SIGTERM, SIGINT, SIGHUP};
    const struct serve_options *o = s->site.o;
    char host[HOST_NAME_MAX + 1] = "", path[PATH_MAX];
    gid_t readers = SERVE_NOBODY;
    struct sigaction now;
    json_t *dirs;
    sigset_t set;
    int err;

    /* SIGHUP and SIGINT stay ignored if they were when the server started, as
     * by nohup(1) or in the background of a script. */
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++)
        if (stops[i] == SIGTERM || sigaction(stops[i], NULL, &now) < 0 ||
            now.sa_handler != SIG_IGN)
            sigaddset(&set, stops[i]);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->signals < 0)
        return problem_set(p, EX_OSERR, errno, "signalfd: %s",
                           errno_text(errno));
    err = tls_read(s, p);
    if (!err && o->group)
        err = serve_group_find(o->group, &readers, p);
    if (!err && !o->token_file)
        err = own_path(o, TOKEN_NAME, path, p);
    if (!err)
        err = serve_token_load(&s->site.guard,
                               o->token_file ? o->token_file : path,
                               o->token_file ? readers : SERVE_NOBODY, p);
    if (!err && o->allow_write) {
        err = own_path(o, JOBS_NAME, path, p);
        if (!err)
            jobs_open(path);
    }
    if (err)
        return err;
    /* The page shows its host, so that several open pages can be told apart. */
    dirs = json_array();
    for (size_t i = 0; i < o->state_dirs.count; i++)
        if (statedir_root(path, o->state_dirs.at[i], p) == 0)
            json_array_append_new(dirs, json_printable(path));
    (void)gethostname(host, sizeof host - 1);
    s->site.about = json_pack(
        "{s:o, s:s, s:o, s:b, s:b, s:o}", "host", json_printable(host),
        "version", MQW_VERSION, "state_dirs", dirs, "write", o->allow_write,
        "bodies", !o->no_bodies, "started_at", json_time(clock_wall_ns()));
    s->listener = listen_open(o, &s->site.guard, p);
    if (s->listener < 0)
        return s->listener;
    if (own_path(o, HISTORY_NAME, path, p) == 0)
        history_open(path);
    err = daemon_start(s, p);
    if (err)
        return err;
    /* All files are open, and nothing has been read from a client. */
    confine(o->allow_write);
    err = watch_start(o);
    return !err ? 0
                : problem_set(p, EX_OSERR, -err,
                              "cannot start the watching child: %s",
                              errno_text(-err));
}

/* ---- running ---- */

/* Wait for the next thing that happens, and handle it. */
static void server_turn(struct server *s)
{
    uint64_t now = clock_mono_ns(), due, other;
    MHD_UNSIGNED_LONG_LONG most;
    struct signalfd_siginfo info;
    int ms;
    struct pollfd fds[] = {
        {.fd = s->epoll, .events = POLLIN},
        {.fd = s->signals, .events = POLLIN},
        {.fd = watch_fd(), .events = POLLIN},
        {.fd = guests_full(now) ? -1 : s->listener, .events = POLLIN},
    };

    events_keep(now);
    MHD_run(s->daemon);
    due = jobs_step(now);
    other = watch_keep(now);
    due = other < due ? other : due;
    other = guests_keep(now);
    ms = clock_ms_until(other < due ? other : due);
    if (MHD_get_timeout(s->daemon, &most) == MHD_YES &&
        (ms < 0 || most < (unsigned)ms))
        ms = most < INT_MAX ? (int)most : INT_MAX;
    if (poll(fds, 4, ms) < 0)
        return;
    if (fds[3].revents)
        guests_take(s->daemon, s->listener);
    if (fds[1].revents) {
        while (read(s->signals, &info, sizeof info) == sizeof info)
            s->stop |= info.ssi_signo != SIGCHLD;
        look_reap();
    }
    if (!fds[2].revents)
        return;
    watch_read();
    if (streams_count() == 0)
        watch_fast(false);
}

/* Run the server until SIGTERM, SIGINT or SIGHUP. */
int serve_run(const struct options *o)
{
    static struct server s;
    static struct serve_options told;
    const struct serve_guard *g = &s.site.guard;
    struct problem p = {0};
    int err;

    told = o->serve;
    if (told.state_dirs.count == 0)
        told.state_dirs.count = 1;
    s.site.o = &told;
    err = server_start(&s, &p);
    if (!err && g->port)
        printf("http%s://%s:%u/#t=%s\n", g->secure ? "s" : "", g->own, g->port,
               g->token);
    else if (!err)
        printf("ssh -L 8480:%s HOST, then http://localhost:8480/#t=%s\n",
               told.listen && strncmp(told.listen, "unix:", 5) == 0
                   ? told.listen + 5
                   : "SOCKET",
               g->token);
    fflush(stdout);
    while (!err && !s.stop)
        server_turn(&s);
    /* A batch still sends the letter that it has begun: look_end_all waits. */
    if (s.daemon) {
        jobs_end();
        look_end_all();
        requests_end();
        events_end();
        MHD_run(s.daemon);
        MHD_stop_daemon(s.daemon);
    }
    watch_end();
    log_flush();
    return err ? complain_of(&p) : 0;
}

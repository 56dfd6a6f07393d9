/* serve.c - a page for all queues of the machine (see mqctl.h)
 *
 * One thread, which waits for connections, for the children that look, and for
 * the one that watches. It opens no store and asks no worker: so nothing that a
 * store or a worker does makes it wait.
 */
#include <errno.h>
#include <limits.h>
#include <microhttpd.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/folder.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/state/statedir.h"
#include "common/text/complain.h"
#include "scripts/mqctl/mqctl.h"
#include "scripts/mqctl/serve/confine.h"
#include "scripts/mqctl/serve/events.h"
#include "scripts/mqctl/serve/guests.h"
#include "scripts/mqctl/serve/jobs.h"
#include "scripts/mqctl/serve/listen.h"
#include "scripts/mqctl/serve/look.h"
#include "scripts/mqctl/serve/request.h"
#include "scripts/mqctl/serve/watch.h"

/* Those with a token, strangers, and strangers that are about to be closed. */
#define CONNECTIONS    (2 * GUESTS_MAX + GUESTS_A_TURN)
#define CONNECTION_MEM (16u << 10) /* a request's lines and headers */
#define TIMEOUT_S      15 /* of a client that says, or takes, nothing */
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

/* file_read - a whole file, NUL-terminated; the caller's */
static char *file_read(const char *path, struct problem *p)
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
                           "--tls-cert and --tls-key go together");
    if (MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
        return problem_set(p, EX_UNAVAILABLE, ENOSYS,
                           "libmicrohttpd is built without TLS here; use a "
                           "proxy and --behind-proxy");
    s->cert = file_read(o->tls_cert, p);
    s->key = s->cert ? file_read(o->tls_key, p) : NULL;
    return s->key ? 0 : -EINVAL;
}

/* Print the path of the server's file in the first state directory, and create
 * that directory if no worker has run yet. */
static int own_path(const struct serve_options *o, const char *name,
                    char path[PATH_MAX], struct problem *p)
{
    char root[PATH_MAX];
    int err = statedir_root(
        root, o->state_dirs.count ? o->state_dirs.at[0] : NULL, p);

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

static int token_load(struct server *s, struct problem *p)
{
    const struct serve_options *o = s->site.o;
    char path[PATH_MAX];
    gid_t readers = SERVE_NOBODY;
    int err = o->group ? serve_group_find(o->group, &readers, p) : 0;

    if (err)
        return err;
    if (o->token_file)
        return serve_token_load(&s->site.guard, o->token_file, readers, p);
    err = own_path(o, TOKEN_NAME, path, p);
    return err ? err : serve_token_load(&s->site.guard, path, SERVE_NOBODY, p);
}

/* Only a server with --allow-write has jobs. */
static int jobs_load(const struct serve_options *o, struct problem *p)
{
    char path[PATH_MAX];
    int err = o->allow_write ? own_path(o, JOBS_NAME, path, p) : 0;

    if (!err && o->allow_write)
        jobs_open(path);
    return err;
}

/* mhd_says - what libmicrohttpd has to tell: of connections that ended */
static void mhd_says(void *cls, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));
static void mhd_says(void *cls, const char *format, va_list args)
{
    char text[256];

    (void)cls;
    vsnprintf(text, sizeof text, format, args);
    text[strcspn(text, "\n")] = '\0';
    log_debug("web_library", F_STR("text", text));
}

static int daemon_start(struct server *s, struct problem *p)
{
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME |
                     MHD_USE_ERROR_LOG | MHD_USE_NO_LISTEN_SOCKET;
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, s->cert},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, s->key},
        {MHD_OPTION_END, 0, NULL},
    };
    const union MHD_DaemonInfo *info;

    s->daemon = MHD_start_daemon(
        s->key ? flags | MHD_USE_TLS : flags, 0, NULL, NULL, request_handle,
        &s->site, MHD_OPTION_EXTERNAL_LOGGER, mhd_says, NULL,
        MHD_OPTION_NOTIFY_CONNECTION, guest_notify, NULL,
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
                           s->key ? "; look whether certificate and key are "
                                    "PEM and go together"
                                  : "");
    s->epoll = info->epoll_fd;
    return 0;
}

/* Catch the signals that stop the server, except HUP and INT if they are
 * ignored (nohup(1), a background job of a script). */
static int signals_open(struct server *s, struct problem *p)
{
    static const int stops[] = {SIGTERM, SIGINT, SIGHUP};
    struct sigaction now;
    sigset_t set;

    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++)
        if (stops[i] == SIGTERM || sigaction(stops[i], NULL, &now) < 0 ||
            now.sa_handler != SIG_IGN)
            sigaddset(&set, stops[i]);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return s->signals >= 0 ? 0
                           : problem_set(p, EX_OSERR, errno, "signalfd: %s",
                                         errno_text(errno));
}

/* confined - all is open; from here on come the bytes of others */
static void confined(const struct server *s)
{
    int err = confine(s->site.o->allow_write);

    if (err)
        log_warn("web_unconfined", F_STR("error", errno_text(-err)),
                 F_STR("next", "nothing stops; see docs/web.md"));
}

static int server_start(struct server *s, struct problem *p)
{
    int err = tls_read(s, p);

    if (!err)
        err = signals_open(s, p);
    if (!err)
        err = token_load(s, p);
    if (!err)
        err = jobs_load(s->site.o, p);
    if (err)
        return err;
    s->listener = listen_open(s->site.o, &s->site.guard, p);
    if (s->listener < 0)
        return s->listener;
    err = daemon_start(s, p);
    if (err)
        return err;
    confined(s);
    err = watch_start(s->site.o);
    return !err ? 0
                : problem_set(p, EX_OSERR, -err,
                              "cannot start the watching child: %s",
                              errno_text(-err));
}

/* address_print - the one line of the start */
static void address_print(const struct server *s)
{
    const struct serve_guard *g = &s->site.guard;
    const char *listen = s->site.o->listen;

    if (g->port)
        printf("http%s://%s:%u/#t=%s\n", g->secure ? "s" : "", g->own, g->port,
               g->token);
    else
        printf("ssh -L 8480:%s HOST, then http://localhost:8480/#t=%s\n",
               listen && strncmp(listen, "unix:", 5) == 0 ? listen + 5
                                                          : "SOCKET",
               g->token);
    fflush(stdout);
}

/* ---- running ---- */

static void signals_take(struct server *s)
{
    struct signalfd_siginfo info;

    while (read(s->signals, &info, sizeof info) == sizeof info)
        if (info.ssi_signo != SIGCHLD)
            s->stop = true;
    look_reap();
}

/* watcher_take - what differs goes to all browsers */
static void watcher_take(void)
{
    json_t *changes = NULL;

    if (!watch_read(&changes))
        return;
    if (json_array_size(changes))
        event_send("queues", changes);
    else
        json_decref(changes);
    if (streams_count() == 0)
        watch_fast(false);
}

/* pause_ms - until the library, a job or the watcher has something to do */
static int pause_ms(struct server *s, uint64_t now)
{
    uint64_t job = jobs_step(now), watch = watch_keep(now);
    uint64_t due = job < watch ? job : watch, guest = guests_keep(now);
    MHD_UNSIGNED_LONG_LONG most;
    int ms = clock_ms_until(due < guest ? due : guest);

    if (MHD_get_timeout(s->daemon, &most) == MHD_YES &&
        (ms < 0 || most < (unsigned)ms))
        ms = most < INT_MAX ? (int)most : INT_MAX;
    return ms;
}

static void turn(struct server *s)
{
    uint64_t now = clock_mono_ns();
    struct pollfd fds[] = {
        {.fd = s->epoll, .events = POLLIN},
        {.fd = s->signals, .events = POLLIN},
        {.fd = watch_fd(), .events = POLLIN},
        {.fd = guests_full(now) ? -1 : s->listener, .events = POLLIN},
    };

    events_keep(now);
    MHD_run(s->daemon);
    if (poll(fds, 4, pause_ms(s, now)) < 0)
        return;
    if (fds[3].revents)
        guests_take(s->daemon, s->listener);
    if (fds[1].revents)
        signals_take(s);
    if (fds[2].revents)
        watcher_take();
}

/* server_stop - streams end, looks are given up; a letter on its way is sent */
static void server_stop(struct server *s)
{
    if (s->daemon) {
        jobs_end();
        look_end_all();
        requests_end();
        events_end();
        MHD_run(s->daemon);
        MHD_stop_daemon(s->daemon);
    }
    if (s->listener >= 0)
        close(s->listener);
    watch_end();
    if (s->signals >= 0)
        close(s->signals);
    free(s->cert);
    free(s->key);
}

/* serve_run - run the server until SIGTERM, SIGINT or SIGHUP */
int serve_run(const struct options *o)
{
    static struct server s = {.listener = -1, .signals = -1, .epoll = -1};
    struct problem p = {0};
    int err;

    s.site.o = &o->serve;
    err = server_start(&s, &p);
    if (!err) {
        address_print(&s);
        while (!s.stop)
            turn(&s);
    }
    server_stop(&s);
    log_flush();
    return err ? complain_of(&p) : 0;
}

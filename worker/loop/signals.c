/* signals.c - the signals that a worker takes (see signals.h) */
#include "worker/loop/signals.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/base/container.h"

static const int taken[] = {SIGTERM, SIGINT,  SIGQUIT, SIGHUP,
                            SIGUSR2, SIGCONT, SIGTTIN, SIGTTOU};

static void signals_fill(sigset_t *set)
{
    sigemptyset(set);
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        sigaddset(set, taken[i]);
}

void signals_nothing(int signal)
{
    (void)signal;
}

void signals_block(void)
{
    struct sigaction nothing = {.sa_handler = signals_nothing,
                                .sa_flags = SA_RESTART};
    sigset_t set;

    signals_fill(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    sigaction(SIGPIPE, &nothing, NULL);
    /* A file that may not grow is a full disk. */
    sigaction(SIGXFSZ, &nothing, NULL);
}

/* arrived - all that came */
static void arrived(struct loop_source *source)
{
    struct signals *s = CONTAINER_OF(source, struct signals, source);
    struct signalfd_siginfo info;

    while (read(source->fd, &info, sizeof info) == sizeof info)
        s->came(s->arg, (int)info.ssi_signo);
}

int signals_open(struct signals *s, struct loop *loop,
                 void (*came)(void *arg, int signal), void *arg)
{
    sigset_t set;

    signals_fill(&set);
    s->came = came;
    s->arg = arg;
    s->source = (struct loop_source){
        .fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK), .ready = arrived};
    return s->source.fd < 0 ? -errno : loop_add(loop, &s->source, EPOLLIN);
}

void signals_close(struct signals *s)
{
    if (s->source.fd >= 0)
        close(s->source.fd);
    s->source.fd = -1;
}

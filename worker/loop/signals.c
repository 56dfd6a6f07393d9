/* signals.c - the signals that a worker handles (see signals.h) */
#include "worker/loop/signals.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/base/basics.h"
#include "common/base/libc.h"
#include "common/base/log.h"

static const int taken[] = {SIGTERM, SIGINT,  SIGQUIT, SIGHUP, SIGUSR2,
                            SIGCONT, SIGTTIN, SIGTTOU, 0};
/* Signals that would kill the process by default but mean nothing to the
 * worker. */
static const int stray[] = {SIGUSR1,   SIGALRM, SIGVTALRM, SIGPROF, SIGIO,
                            SIGSTKFLT, SIGPWR,  SIGXCPU,   0};

/* The signals read from the signalfd. Set once, by signals_block. */
static sigset_t mine;

/* Return true if the signal is in a list that ends with 0. */
static bool is_in(int sig, const int *list)
{
    while (*list && *list != sig)
        list++;
    return *list != 0;
}

/* Return true for a stray signal without a handler in this process; a preloaded
 * profiler, for example, handles SIGPROF. */
static bool is_stray(int sig)
{
    struct sigaction now;

    return (is_in(sig, stray) || (sig >= SIGRTMIN && sig <= SIGRTMAX)) &&
           sigaction(sig, NULL, &now) == 0 && now.sa_handler == SIG_DFL;
}

void signals_nothing(int signal)
{
    (void)signal;
}

void signals_block(bool whole_process)
{
    struct sigaction nothing = {.sa_handler = signals_nothing,
                                .sa_flags = SA_RESTART};
    struct sigaction now;

    sigemptyset(&mine);
    for (int sig = 1; sig < _NSIG; sig++) {
        /* The parent may have made this process ignore the signal, as a shell
         * does with INT and QUIT of background jobs, and nohup(1) with HUP. */
        bool ignored = (sig == SIGHUP || sig == SIGINT || sig == SIGQUIT) &&
                       sigaction(sig, NULL, &now) == 0 &&
                       now.sa_handler == SIG_IGN;

        if ((is_in(sig, taken) && !ignored) || (whole_process && is_stray(sig)))
            sigaddset(&mine, sig);
    }
    pthread_sigmask(SIG_BLOCK, &mine, NULL);
    sigaction(SIGPIPE, &nothing, NULL);
    /* A write past RLIMIT_FSIZE then fails with EFBIG, as on a full disk. */
    sigaction(SIGXFSZ, &nothing, NULL);
}

static void signals_read(struct loop_source *source)
{
    struct signals *s = CONTAINER_OF(source, struct signals, source);
    struct signalfd_siginfo info;
    sigset_t one;

    while (read(source->fd, &info, sizeof info) == sizeof info) {
        int sig = (int)info.ssi_signo;

        if (is_in(sig, taken) || sig == SIGXCPU) {
            s->came(s->arg, sig);
        } else if (is_stray(sig)) {
            log_warn("signal_ignored", F_STR("signal", sigabbrev_np(sig)),
                     F_INT("number", sig), F_UINT("from", info.ssi_pid),
                     F_STR("next", "send SIGTERM to stop, SIGUSR2 to pause and "
                                   "SIGCONT to resume, or use mqctl"));
        } else {
            /* Leave the signal to a handler that a plugin has set since it was
             * blocked. It goes to this thread, because the others block all
             * signals. */
            sigdelset(&mine, sig);
            (void)signalfd(source->fd, &mine, 0);
            sigemptyset(&one);
            sigaddset(&one, sig);
            pthread_sigmask(SIG_UNBLOCK, &one, NULL);
            raise(sig);
        }
    }
}

int signals_open(struct signals *s, struct loop *loop,
                 void (*came)(void *arg, int signal), void *arg)
{
    s->came = came;
    s->arg = arg;
    s->source = (struct loop_source){
        .fd = signalfd(-1, &mine, SFD_CLOEXEC | SFD_NONBLOCK),
        .ready = signals_read};
    return s->source.fd < 0 ? -errno : loop_add(loop, &s->source, EPOLLIN);
}

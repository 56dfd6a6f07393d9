/* cli_interrupt.c - see cli_interrupt.h */
#include "common/text/cli_interrupt.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

static volatile sig_atomic_t seen;

/* signal_note - remember the signal
 * A blocking call would sleep over a signal that comes between a look at `seen`
 * and the call: the alarm interrupts that call, and each later one, a second
 * on. */
static void signal_note(int number)
{
    if (number != SIGALRM)
        seen = number;
    alarm(1);
}

/* cli_interrupt_catch - set the handlers, without SA_RESTART */
void cli_interrupt_catch(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction act = {.sa_handler = signal_note};

    sigemptyset(&act.sa_mask);
    sigaction(SIGALRM, &act, NULL);
    act.sa_flags = (int)SA_RESETHAND;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction before;

        sigaction(numbers[i], NULL, &before);
        if (before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &act, NULL);
    }
}

int cli_interrupt_seen(void)
{
    return (int)seen;
}

void cli_interrupt_die(void)
{
    int number = cli_interrupt_seen();

    if (number == 0)
        return;
    fflush(NULL);
    signal(number, SIG_DFL);
    raise(number);
}

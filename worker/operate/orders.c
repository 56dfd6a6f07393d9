/* orders.c - the parts that orders to a running worker act on (see orders.h) */
#include "worker/operate/orders.h"

#include <signal.h>

#include "worker/operate/cap.h"
#include "worker/operate/live_settings.h"
#include "worker/operate/pause.h"
#include "worker/operate/stop.h"

void orders_signal(void *arg, int signal)
{
    struct orders *o = arg;

    switch (signal) {
    case SIGUSR2:
        pause_begin(o->pause, PAUSER_SIGNAL, 0, 0);
        break;
    case SIGCONT:
        (void)pause_end(o->pause, PAUSER_SIGNAL);
        break;
    case SIGTTIN:
        cap_change(o->cap, +1);
        live_settings_stamp(o, "max-concurrency");
        break;
    case SIGTTOU:
        cap_change(o->cap, -1);
        live_settings_stamp(o, "max-concurrency");
        break;
    default:
        stop_worker(o->stop, signal);
    }
}

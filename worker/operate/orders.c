/* orders.c - the parts that orders to a running worker act on (see orders.h) */
#include "worker/operate/orders.h"

#include <signal.h>

#include "worker/flow/flow.h"
#include "worker/operate/cap.h"
#include "worker/operate/stop.h"

void orders_signal(void *arg, int signal)
{
    const struct orders *o = arg;

    switch (signal) {
    case SIGUSR2:
        gate_pause(&o->flow->gate, true);
        break;
    case SIGCONT:
        gate_pause(&o->flow->gate, false);
        break;
    case SIGTTIN:
        cap_change(o->cap, +1);
        break;
    case SIGTTOU:
        cap_change(o->cap, -1);
        break;
    default:
        stop_worker(o->stop, signal);
    }
}

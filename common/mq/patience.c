/* patience.c - no program waits for ever without a word (see patience.h) */
#include "common/mq/patience.h"

#include <errno.h>

#include "common/base/clock.h"

#define SILENCE_NS NS_PER_S

void patience_start(struct patience *p)
{
    p->end_ns = ns_add(clock_mono_ns(), SILENCE_NS);
}

bool patience_over(struct patience *p)
{
    if (p->said || p->end_ns == 0 || clock_mono_ns() < p->end_ns)
        return false;
    p->said = true;
    return true;
}

/* patience_send - the deadline of the sender decides, if it is first */
int patience_send(const struct patient_send *s)
{
    int err = queue_send(s->queue, s->data, s->size, s->priority);

    if (err != -EAGAIN)
        return err;
    patience_start(s->patience);
    if (s->patience->end_ns < s->deadline_ns) {
        err = queue_send_wait(s->queue, s->data, s->size, s->priority,
                              s->patience->end_ns);
        if (err != -EAGAIN)
            return err;
        s->say(patience_over(s->patience), s->arg);
    }
    return queue_send_wait(s->queue, s->data, s->size, s->priority,
                           s->deadline_ns);
}

/* slots.c - how many slots a worker needs (see slots.h) */
#include "worker/config/slots.h"

#include <stdatomic.h>

#define SPARE_SLOTS 16 /* for verdicts that cannot be written yet */

/* slots_for - for each thread one slot to receive into and as many as it may
 * deliver at once; then the lookahead, and the spool */
unsigned slots_for(const struct settings *set, unsigned cap)
{
    return cap * (1 + (unsigned)set->window) + (unsigned)set->lookahead +
           SPARE_SLOTS + (atomic_load(&set->spool) > 0 ? SPOOL_SLOTS : 0);
}

/* slots_more - one for each that may run, so that none waits until one of those
 * in use is free */
unsigned slots_more(const struct settings *set)
{
    return (unsigned)set->concurrency;
}

/* slots.h - how many slots a worker needs
 *
 * WHAT   Arithmetic on settings.
 * WHO    Any thread.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef WORKER_CONFIG_SLOTS_H
#define WORKER_CONFIG_SLOTS_H

#include "worker/config/settings.h"

/* Slots of messages on their way from the queue to the spool. */
#define SPOOL_SLOTS 128

/* Slots that a worker with that cap needs. */
unsigned slots_for(const struct settings *set, unsigned cap);
/* Slots that a start which finds all in use adds to them. */
unsigned slots_more(const struct settings *set);

#endif

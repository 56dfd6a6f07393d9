/* mqdlq_replay.h - the verb replay: letters into a queue again
 *
 * WHAT   Sends the chosen letters, oldest first, waiting for room.
 * WHO    main, once.
 * OWNS   The queue it opens.
 * FAILS  Returns the exit status; stderr has the reasons and how far it got. A
 *        letter that cannot be sent is named and the others go on.
 */
#ifndef SCRIPTS_MQDLQ_MQDLQ_REPLAY_H
#define SCRIPTS_MQDLQ_MQDLQ_REPLAY_H

#include "scripts/mqdlq/mqdlq_context.h"

int replay_run(struct context *d);

#endif

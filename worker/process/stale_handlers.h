/* stale_handlers.h - handlers that outlived their worker
 *
 * WHAT   Finds and kills what a dead worker's handlers left running, before
 *        their messages run again: by process group and start time, and by the
 *        mark in the environment, which finds what left the group or was
 *        started in the instant before the kill.
 * WHO    The engine at start, with the lock of the state directory.
 * OWNS   Nothing.
 * FAILS  -errno if /proc cannot be read; what it does not show is not found,
 *        so ask leftover_blind before. Returns only when what was found is
 *        gone.
 */
#ifndef WORKER_PROCESS_STALE_HANDLERS_H
#define WORKER_PROCESS_STALE_HANDLERS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct stale_handler {
    uint64_t mark;  /* its own, else the receive sequence (environment.h) */
    pid_t pgid;     /* 0: not known */
    uint64_t start; /* of the group's leader */
};

/* Why /proc would not show the handlers that are left, NULL if it does: it is
 * empty or another file system, that of another PID namespace, or does not let
 * us read the environment of our own user's processes. */
const char *leftover_blind(void);
/* How many processes were killed, or -errno. */
int stale_handlers_kill(uint64_t nonce, const struct stale_handler *list,
                        size_t n);

#endif

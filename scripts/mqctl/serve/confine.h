/* confine.h - limits the system calls of the server
 *
 * WHAT   A filter (seccomp(2)): a call that is not in its list fails with
 *        EPERM, or with ENOSYS if it is newer than the list. The children of
 *        the server, mqdlq among them, inherit the filter.
 * WHO    server_start in serve.c, once, before it reads from clients.
 * OWNS   Nothing. The filter cannot be removed.
 * FAILS  Never: without libseccomp (no_confine.c), or if the kernel refuses the
 *        filter, it logs web_unconfined, and the server runs without a filter.
 */
#ifndef SCRIPTS_MQCTL_SERVE_CONFINE_H
#define SCRIPTS_MQCTL_SERVE_CONFINE_H

#include <stdbool.h>

/* Install the filter. `write`: also allow mqdlq, and the calls of a replay. */
void confine(bool write);

#endif

/* confine.h - what the server may ask the kernel for
 *
 * WHAT   A filter of system calls (seccomp(2)): a call that is not in its list
 *        does not happen and fails with EPERM, or with ENOSYS if it is newer
 *        than the list. The children that look inherit it, and mqdlq does.
 * WHO    The server, once, before it reads what others send.
 * OWNS   Nothing; there is no way back.
 * FAILS  -ENOSYS: no list for this machine, or a kernel without such filters;
 *        -errno of seccomp(2).
 */
#ifndef SCRIPTS_MQCTL_SERVE_CONFINE_H
#define SCRIPTS_MQCTL_SERVE_CONFINE_H

#include <stdbool.h>

/* `write`: mqdlq is run, and what it does for a replay is allowed, too. */
int confine(bool write);

#endif

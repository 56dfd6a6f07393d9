/* body_file.h - the body of a delivery as a file
 *
 * WHAT   A handler's stdin: a file in memory, so that there is no pipe to block
 *        on, and it can be mapped or read again.
 * WHO    Any thread.
 * OWNS   Nothing; the caller closes the descriptor.
 * FAILS  -errno.
 */
#ifndef WORKER_PROCESS_BODY_FILE_H
#define WORKER_PROCESS_BODY_FILE_H

#include "worker/rules/delivery.h"

/* A descriptor that is read from the body's start, or -errno. */
int body_file_open(const struct delivery *d);

#endif

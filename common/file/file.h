/* file.h - bytes to a file
 *
 * WHAT   What pwrite(2) leaves to its caller.
 * WHO    Any thread.
 * OWNS   Nothing.
 * FAILS  -errno.
 */
#ifndef COMMON_FILE_H
#define COMMON_FILE_H

#include <stddef.h>
#include <sys/types.h>

/* pwrite(2) until all is out; the offset of `fd` stays. */
int file_write(int fd, const void *data, size_t size, off_t at);

#endif

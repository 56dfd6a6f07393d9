/* object_file.h - whether a file may be given to dlopen(3)
 *
 * WHAT   Looks at what would end the process: the loader maps what the headers
 *        of the file say, and touching a page that the file does not reach is a
 *        SIGBUS. All else that may be wrong the loader finds by itself.
 * WHO    Whoever loads a shared object. A file that is cut short after the look
 *        is not noticed.
 * OWNS   Nothing.
 * FAILS  -errno of open, fstat or pread; -EINVAL not a regular file; -ENOEXEC
 *        not an ELF file; -ENODATA shorter than it says. In `why` what is wrong
 *        and what to do, without the file's name.
 */
#ifndef WORKER_OBJECT_FILE_H
#define WORKER_OBJECT_FILE_H

#include <stddef.h>

int object_check(const char *path, char *why, size_t room);

#endif

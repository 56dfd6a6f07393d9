/* fs_type.h - kinds of file systems
 *
 * WHAT   Whether a file system is memory, and what it is called.
 * WHO    Any thread.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef COMMON_BASE_FS_TYPE_H
#define COMMON_BASE_FS_TYPE_H

#include <stdbool.h>

#define FS_TYPE_TEXT 32

/* `magic` is f_type of statfs(2). */

/* tmpfs or ramfs: pages of a file are never written back. */
bool fs_type_memory(long magic);
/* Its pages may be moved when they are written, or are on another machine. */
bool fs_type_doubtful(long magic);
/* "ext4"; "type 0x1234" of one that we do not know. Returns `out`. */
const char *fs_type_text(long magic, char out[FS_TYPE_TEXT]);

#endif

/* mount_point.h - where the file system is mounted that a file lies on
 *
 * WHAT   For advice: `df -h /srv`, `mount -o remount,rw /srv`; and whether a
 *        folder is the root of a mount.
 * WHO    Any thread.
 * OWNS   Nothing.
 * FAILS  By giving the path back as it is.
 */
#ifndef COMMON_BASE_MOUNT_POINT_H
#define COMMON_BASE_MOUNT_POINT_H

#include <limits.h>
#include <stdbool.h>

/* Of a path that is there. Returns `out`. */
const char *mount_point(const char *path, char out[PATH_MAX]);
/* Whether something is mounted at a folder itself. */
bool mount_point_is(const char *path);

#endif

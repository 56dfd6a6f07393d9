/* mount_point.c - see mount_point.h */
#include "common/base/mount_point.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "common/base/file.h"

/* mount_point_is - its parent on another device says so on kernels before 5.8,
 * which miss bind mounts by it */
bool mount_point_is(const char *path)
{
    char parent[PATH_MAX + 4];
    struct statx x;
    struct stat here, above;

    if (statx(AT_FDCWD, path, AT_NO_AUTOMOUNT, 0, &x) == 0 &&
        (x.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT))
        return x.stx_attributes & STATX_ATTR_MOUNT_ROOT;
    snprintf(parent, sizeof parent, "%s/..", path);
    return stat(path, &here) == 0 && stat(parent, &above) == 0 &&
           here.st_dev != above.st_dev;
}

const char *mount_point(const char *path, char out[PATH_MAX])
{
    if (!realpath(path, out)) {
        snprintf(out, PATH_MAX, "%s", path);
        return out;
    }
    while (!mount_point_is(out) && file_parent(out))
        ;
    return out;
}

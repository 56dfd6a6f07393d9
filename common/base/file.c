/* file.c - write and identify files; paths; file systems (see file.h) */
#include "common/base/file.h"

#include <byteswap.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/fault_point.h"
#include "common/base/libc.h"

int file_write(int fd, const void *data, size_t size, off_t at)
{
    const char *from = data;

    while (size > 0) {
        ssize_t n = pwrite(fd, from, size, at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        from += n;
        at += n;
        size -= (size_t)n;
    }
    return 0;
}

ssize_t file_read_text(const char *path, char *text, size_t room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    size_t size = 0;
    ssize_t n = 1;

    if (fd < 0)
        return -errno;
    while (size < room - 1 && n != 0) {
        n = read(fd, text + size, room - 1 - size);
        if (n < 0 && errno != EINTR)
            break;
        size += n > 0 ? (size_t)n : 0;
    }
    n = n < 0 ? -errno : (ssize_t)size;
    text[size] = '\0';
    close(fd);
    return n;
}

int file_create(const char *path, const void *data, size_t size)
{
    int fd =
        open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int err;

    if (fd < 0)
        return -errno;
    err = file_write(fd, data, size, 0);
    if (!err && fsync(fd) < 0)
        err = -errno;
    if (!err)
        return fd;
    close(fd);
    unlink(path);
    return err;
}

int file_replace(const char *path, const void *data, size_t size)
{
    char temp[PATH_MAX];
    int fd, err;

    if (snprintf(temp, sizeof temp, "%s.new", path) >= (int)sizeof temp)
        return -ENAMETOOLONG;
    (void)unlink(temp); /* if this fails, file_create reports that it exists */
    fd = file_create(temp, data, size);
    if (fd < 0)
        return fd;
    close(fd);
    err = FAULT_POINTS("file_replace", rename(temp, path) < 0 ? -errno : 0);
    if (err)
        unlink(temp);
    return err;
}

void fd_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

bool file_named(int fd, const char *path)
{
    struct stat is, named;

    return fstat(fd, &is) == 0 && lstat(path, &named) == 0 &&
           file_same(&is, &named);
}

int file_of_program(char path[PATH_MAX], const char *name)
{
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);
    size_t at;

    if (n < 0)
        return -errno;
    while (n > 0 && path[n - 1] != '/')
        n--;
    at = (size_t)n;
    return strlcpy(path + at, name, PATH_MAX - at) < PATH_MAX - at
               ? 0
               : -ENAMETOOLONG;
}

bool file_parent(char *path)
{
    char *slash = strrchr(path, '/');

    if (strcmp(path, "/") == 0 || strcmp(path, ".") == 0)
        return false;
    if (slash)
        slash[slash == path] = '\0';
    else
        memcpy(path, ".", sizeof ".");
    return true;
}

const char *file_foreign(uint32_t version, uint32_t head_bytes, uint32_t head)
{
    if (head_bytes == bswap_32(head))
        return "the other byte order";
    if (head_bytes != head || version >> 16 == FILE_MACHINE >> 16)
        return NULL;
    return version >> 16 == 0    ? "64-bit words"
           : version >> 16 == 32 ? "32-bit words"
                                 : NULL;
}

/* ---- file systems ---- */

/* Known file systems by f_type of statfs(2), which is compared as 32 bits,
 * because it is negative for some of them if long has no more. */
static const struct fs {
    uint32_t magic;
    enum fs_kind kind;
    const char *name;
} known[] = {
    {0x01021994, FS_MEMORY, "tmpfs"},      {0x858458F6, FS_MEMORY, "ramfs"},
    {0x0000EF53, FS_LOCAL, "ext4"},        {0x58465342, FS_LOCAL, "xfs"},
    {0xF2F52010, FS_LOCAL, "f2fs"},        {0x794C7630, FS_LOCAL, "overlay"},
    {0x9123683E, FS_DOUBTFUL, "btrfs"},    {0x2FC12FC1, FS_DOUBTFUL, "zfs"},
    {0xCA451A4E, FS_DOUBTFUL, "bcachefs"}, {0x00006969, FS_DOUBTFUL, "nfs"},
    {0xFF534D42, FS_DOUBTFUL, "cifs"},     {0xFE534D42, FS_DOUBTFUL, "smb2"},
    {0x01021997, FS_DOUBTFUL, "9p"},       {0x65735546, FS_DOUBTFUL, "fuse"},
    {0x00C36400, FS_DOUBTFUL, "ceph"},     {0x19830326, FS_DOUBTFUL, "fhgfs"},
    {0x7461636F, FS_DOUBTFUL, "ocfs2"},
};

static const struct fs *fs_find(long magic)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].magic == (uint32_t)magic)
            return &known[i];
    return NULL;
}

enum fs_kind fs_kind(long magic)
{
    const struct fs *fs = fs_find(magic);

    return fs ? fs->kind : FS_UNKNOWN;
}

const char *fs_type_text(long magic, char out[FS_TYPE_TEXT])
{
    const struct fs *fs = fs_find(magic);

    if (fs)
        strlcpy(out, fs->name, FS_TYPE_TEXT);
    else
        snprintf(out, FS_TYPE_TEXT, "type 0x%x", (unsigned)(uint32_t)magic);
    return out;
}

/* Before Linux 5.8, compare the device with that of the parent, which misses
 * bind mounts. */
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

/* The number matters after a kill: a child that the process was starting still
 * holds the locks of that process until execve(2) closes them, from the highest
 * descriptor down (task_work_run in kernel/task_work.c). Closing an inotify
 * descriptor takes 15 ms, and seconds on a busy machine, because the kernel
 * waits until its watches are freed. A lock with a lower number would be held
 * for all of that time. A number below 64 fits into the table that each process
 * has anyway, so a child starts as fast as without it. */
int file_fd_raise(int fd)
{
    int above = fcntl(fd, F_DUPFD_CLOEXEC, 48);

    if (above < 0)
        return fd;
    close(fd);
    return above;
}

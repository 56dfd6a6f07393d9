/* fs_type.c - kinds of file systems (see fs_type.h) */
#include "common/base/fs_type.h"

#include <stdint.h>
#include <stdio.h>
#include <bsd/string.h>

enum kind { MEMORY, LOCAL, DOUBTFUL };

/* statfs(2); the numbers are of 32 bits, some with the highest set. */
static const struct fs {
    uint32_t magic;
    enum kind kind;
    const char *name;
} known[] = {
    {0x01021994, MEMORY, "tmpfs"},      {0x858458F6, MEMORY, "ramfs"},
    {0x0000EF53, LOCAL, "ext4"},        {0x58465342, LOCAL, "xfs"},
    {0xF2F52010, LOCAL, "f2fs"},        {0x794C7630, LOCAL, "overlay"},
    {0x9123683E, DOUBTFUL, "btrfs"},    {0x2FC12FC1, DOUBTFUL, "zfs"},
    {0xCA451A4E, DOUBTFUL, "bcachefs"}, {0x00006969, DOUBTFUL, "nfs"},
    {0xFF534D42, DOUBTFUL, "cifs"},     {0xFE534D42, DOUBTFUL, "smb2"},
    {0x01021997, DOUBTFUL, "9p"},       {0x65735546, DOUBTFUL, "fuse"},
    {0x00C36400, DOUBTFUL, "ceph"},     {0x19830326, DOUBTFUL, "fhgfs"},
    {0x7461636F, DOUBTFUL, "ocfs2"},
};

static const struct fs *find(long magic)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].magic == (uint32_t)magic)
            return &known[i];
    return NULL;
}

bool fs_type_memory(long magic)
{
    const struct fs *fs = find(magic);

    return fs && fs->kind == MEMORY;
}

bool fs_type_doubtful(long magic)
{
    const struct fs *fs = find(magic);

    return fs && fs->kind == DOUBTFUL;
}

const char *fs_type_text(long magic, char out[FS_TYPE_TEXT])
{
    const struct fs *fs = find(magic);

    if (fs)
        strlcpy(out, fs->name, FS_TYPE_TEXT);
    else
        snprintf(out, FS_TYPE_TEXT, "type 0x%x", (unsigned)(uint32_t)magic);
    return out;
}

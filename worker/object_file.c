/* object_file.c - see object_file.h
 *
 * The layout is that of elf(5). Of a file for another machine the headers have
 * other sizes: it is left to the loader, which refuses it before it maps.
 */
#include "worker/object_file.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NATIVE_CLASS (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32)
#define NATIVE_DATA \
    (__BYTE_ORDER == __LITTLE_ENDIAN ? ELFDATA2LSB : ELFDATA2MSB)

/* piece_read - exactly so much, or -ENODATA: the file is shorter */
static int piece_read(int fd, void *into, size_t size, uint64_t at)
{
    ssize_t n = at <= INT64_MAX ? pread(fd, into, size, (off_t)at) : 0;

    if (n < 0)
        return -errno;
    return (size_t)n == size ? 0 : -ENODATA;
}

/* beyond - whether a piece of the file reaches over its end */
static bool beyond(uint64_t at, uint64_t size, uint64_t file)
{
    return at > file || size > file - at;
}

/* loads_check - each piece that will be mapped is there */
static int loads_check(int fd, const ElfW(Ehdr) * head, uint64_t file)
{
    ElfW(Phdr) part;
    int err = 0;

    if (head->e_phentsize != sizeof part)
        return 0; /* no file of this machine */
    for (unsigned i = 0; i < head->e_phnum && !err; i++) {
        err = piece_read(fd, &part, sizeof part,
                         (uint64_t)head->e_phoff + i * sizeof part);
        if (!err && part.p_type == PT_LOAD &&
            beyond(part.p_offset, part.p_filesz, file))
            err = -ENODATA;
    }
    return err;
}

/* object_look - the headers against the size of the file */
static int object_look(int fd)
{
    ElfW(Ehdr) head = {0};
    struct stat st;
    uint64_t sections;
    int err;

    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    err = piece_read(fd, head.e_ident, sizeof head.e_ident, 0);
    if (err == -ENODATA || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0)
        return err && err != -ENODATA ? err : -ENOEXEC;
    if (head.e_ident[EI_CLASS] != NATIVE_CLASS ||
        head.e_ident[EI_DATA] != NATIVE_DATA)
        return 0;
    err = piece_read(fd, &head, sizeof head, 0);
    if (err)
        return err;
    /* The table of sections is not loaded, but it is the end of the file. */
    sections = (uint64_t)head.e_shnum * head.e_shentsize;
    if (beyond(head.e_shoff, sections, (uint64_t)st.st_size))
        return -ENODATA;
    return loads_check(fd, &head, (uint64_t)st.st_size);
}

/* reason - the line for a person */
static void reason(int err, char *why, size_t room)
{
    const char *text =
        err == -EINVAL    ? "is not a file that can be loaded; give the path "
                            "of a shared object"
        : err == -ENOEXEC ? "is no shared object; build one with cc -shared "
                            "-fPIC"
        : err == -ENODATA ? "is cut short: build or copy it again"
                          : NULL;

    if (text)
        snprintf(why, room, "%s", text);
    else
        snprintf(why, room,
                 "cannot be loaded: %s; give the path of a shared object that "
                 "may be read",
                 strerror(-err));
}

/* object_check - 0, or why it is better not loaded */
int object_check(const char *path, char *why, size_t room)
{
    /* Not to wait for ever at a pipe that has a name. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), err;

    err = fd < 0 ? -errno : object_look(fd);
    if (fd >= 0)
        close(fd);
    if (err)
        reason(err, why, room);
    return err;
}

/* boot_id.c - see boot_id.h */
#include "common/base/boot_id.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define UUID    36
#define FOREIGN '~' /* follows an id that was mounted over the kernel's */

/* The wall time of the start is the same in all containers of a machine. It is
 * computed from two clocks, and changes when the clock is set, and by parts of
 * a second at each suspend. Two starts of a machine are further apart. */
#define SLACK_S 10

void boot_now(struct boot *out)
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    struct timespec wall, up;
    struct statfs fs;

    memset(out, 0, sizeof *out);
    clock_gettime(CLOCK_REALTIME, &wall);
    clock_gettime(CLOCK_BOOTTIME, &up);
    if (wall.tv_sec > up.tv_sec)
        out->time = (uint32_t)(wall.tv_sec - up.tv_sec);
    if (fd < 0)
        return;
    if (read(fd, out->id, UUID) < 0)
        out->id[0] = '\0';
    out->id[strcspn(out->id, "\n")] = '\0';
    /* A file of proc(5) is on procfs; a file mounted over it is not. */
    if (out->id[0] && (fstatfs(fd, &fs) < 0 || fs.f_type != PROC_SUPER_MAGIC))
        out->id[strlen(out->id)] = FOREIGN;
    close(fd);
}

/* Return true if the kernel made the id, and so gave it to one run only. */
static bool id_is_kernels(const struct boot *boot)
{
    size_t n = strnlen(boot->id, BOOT_ID);

    return n > 0 && boot->id[n - 1] != FOREIGN;
}

bool boot_same(const struct boot *a, const struct boot *b)
{
    uint32_t apart = a->time > b->time ? a->time - b->time : b->time - a->time;

    if (strncmp(a->id, b->id, BOOT_ID) == 0)
        return true;
    if (id_is_kernels(a) && id_is_kernels(b))
        return false;
    return a->time && b->time && apart <= SLACK_S;
}

const char *boot_print(const struct boot *boot, char buf[BOOT_TEXT])
{
    buf[0] = '\0';
    if (boot->id[0])
        snprintf(buf, BOOT_TEXT, "%.*s@%" PRIu32, BOOT_ID - 1, boot->id,
                 boot->time);
    return buf;
}

void boot_parse(struct boot *out, const char *text, size_t size)
{
    char copy[BOOT_TEXT], *at;

    memset(out, 0, sizeof *out);
    if (size >= sizeof copy)
        size = sizeof copy - 1;
    memcpy(copy, text, size);
    copy[size] = '\0';
    at = strchr(copy, '@');
    if (at) {
        out->time = (uint32_t)strtoul(at + 1, NULL, 10);
        *at = '\0';
    }
    snprintf(out->id, BOOT_ID, "%.*s", BOOT_ID - 1, copy);
}

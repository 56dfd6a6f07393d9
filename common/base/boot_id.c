/* boot_id.c - which run of the machine this is (see boot_id.h) */
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
#define FOREIGN '~' /* behind an id that somebody laid over the kernel's */

/* Wall clock minus time since the start is the same in every view of a machine.
 * It moves when the clock is set, and by parts of a second at each suspend; a
 * restart takes longer than that, with the run before it. */
#define SLACK_S 10

/* id_read - the kernel's, or one that covers it
 * A file of proc(5) is on procfs; a file mounted over it is not. */
static void id_read(char id[BOOT_ID])
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    struct statfs fs;
    ssize_t n;

    memset(id, 0, BOOT_ID);
    if (fd < 0)
        return;
    n = read(fd, id, UUID);
    if (n <= 0)
        n = 0;
    id[n] = '\0';
    id[strcspn(id, "\n")] = '\0';
    if (id[0] && (fstatfs(fd, &fs) < 0 || fs.f_type != PROC_SUPER_MAGIC))
        id[strlen(id)] = FOREIGN;
    close(fd);
}

/* start_time - when the machine was started, s since the epoch */
static uint32_t start_time(void)
{
    struct timespec wall, up;

    clock_gettime(CLOCK_REALTIME, &wall);
    clock_gettime(CLOCK_BOOTTIME, &up);
    return wall.tv_sec > up.tv_sec ? (uint32_t)(wall.tv_sec - up.tv_sec) : 0;
}

void boot_now(struct boot *out)
{
    id_read(out->id);
    out->time = start_time();
}

/* kernels - an id that the kernel gave to one run only */
static bool kernels(const struct boot *boot)
{
    size_t n = strnlen(boot->id, BOOT_ID);

    return n > 0 && boot->id[n - 1] != FOREIGN;
}

/* boot_same - by the ids, and where they prove nothing by the time */
bool boot_same(const struct boot *a, const struct boot *b)
{
    uint32_t apart = a->time > b->time ? a->time - b->time : b->time - a->time;

    if (strncmp(a->id, b->id, BOOT_ID) == 0)
        return true;
    if (kernels(a) && kernels(b))
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

/* boot_parse - a text of another kind is the id of no run at all */
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

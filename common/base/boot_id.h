/* boot_id.h - which run of the machine this is
 *
 * WHAT   The kernel's boot id, and when the machine was started by its own
 *        clock. A container manager may lay an id of its own over the kernel's
 *        (systemd-nspawn, LXC), and a service in the same container may see
 *        the kernel's (ProtectKernelTunables=): two ids in one run of the
 *        machine. So an id that is not the kernel's proves nothing by being
 *        another one; then the time of the start decides.
 * WHO    Any thread.
 * OWNS   Nothing.
 * FAILS  Never; where /proc does not tell, the id is "".
 */
#ifndef COMMON_BASE_BOOT_ID_H
#define COMMON_BASE_BOOT_ID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BOOT_ID   40 /* 36, a mark, NUL */
#define BOOT_TEXT 64

struct boot {
    char id[BOOT_ID]; /* ends with '~' if it is not the kernel's own */
    uint32_t time;    /* seconds since the epoch; 0: not known */
};

/* This run of the machine. Nothing of `out` is left as it was. */
void boot_now(struct boot *out);
/* Whether both name the same run. Two ids of the kernel decide it alone. */
bool boot_same(const struct boot *a, const struct boot *b);
/* "87c1d91e-...@1795340326": what boot_parse reads. "" without an id. */
const char *boot_print(const struct boot *boot, char buf[BOOT_TEXT]);
/* Parse `size` bytes of text; text without "@" leaves the time unknown. */
void boot_parse(struct boot *out, const char *text, size_t size);

#endif

/* boot_id.h - identify one run of the machine, from boot to shutdown
 *
 * WHAT   The kernel's boot id, and the wall time of the machine's start. A
 *        container manager may mount an id of its own over the kernel's
 *        (systemd-nspawn, LXC), and a service in the same container may see the
 *        kernel's (ProtectKernelTunables=): then one run of the machine has two
 *        ids. So if one of two ids is not the kernel's, the time of the start
 *        decides whether they name the same run.
 * WHO    Any thread.
 * FAILS  Never; if /proc is missing, the id is "".
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

/* Identify the current run of the machine. Sets every byte of `out`. */
void boot_now(struct boot *out);
/* Return true if both name the same run of the machine. */
bool boot_same(const struct boot *a, const struct boot *b);
/* Print "87c1d91e-...@1795340326", which boot_parse reads; "" without an id. */
const char *boot_print(const struct boot *boot, char buf[BOOT_TEXT]);
/* Parse `size` bytes of text; text without "@" leaves the time unknown. Text of
 * another form becomes an id that no run has. */
void boot_parse(struct boot *out, const char *text, size_t size);

#endif

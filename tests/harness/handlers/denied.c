/* denied.c - run a program under a filter that denies some system calls
 *
 * denied CALL=ERRNO PROGRAM [ARGUMENT...]. CALL is in the table below, ERRNO is
 * a number. LINUX_4_18 and LINUX_5_4 deny all calls that these kernels do not
 * have. Exits with 77 if no filter can be set.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/libc.h"

#define LAST 100000u

/* A range of system call numbers to deny. Calls that are newer than Linux 5.0
 * have the same number on all architectures. */
struct denied {
    const char *name;
    unsigned first, last;
};

static const struct denied *denied_find(const char *name, size_t size)
{
    static const struct denied calls[] = {
        {"waitid", SYS_waitid, SYS_waitid},
        {"pidfd_open", SYS_pidfd_open, SYS_pidfd_open},
        {"memfd_create", SYS_memfd_create, SYS_memfd_create},
        {"mq_open", SYS_mq_open, SYS_mq_open},
        {"mq_unlink", SYS_mq_unlink, SYS_mq_unlink},
        {"LINUX_4_18", SYS_pidfd_send_signal, LAST},
        {"LINUX_5_4", SYS_close_range, LAST},
    };

    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        if (strlen(calls[i].name) == size &&
            memcmp(calls[i].name, name, size) == 0)
            return &calls[i];
    return NULL;
}

/* Make these calls fail with `err` from now on. The filter does not check the
 * architecture, so it works only for programs of the native one. */
static int deny(const struct denied *d, unsigned err)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, d->first, 0, 2),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, d->last, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (err & SECCOMP_RET_DATA)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof code[0],
                                 .filter = code};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int main(int argc, char **argv)
{
    const char *equals = argc < 3 ? NULL : strchr(argv[1], '=');
    const struct denied *d =
        equals ? denied_find(argv[1], (size_t)(equals - argv[1])) : NULL;
    long err = equals ? strtol(equals + 1, NULL, 10) : 0;

    if (!d || err <= 0) {
        fprintf(stderr, "denied: give CALL=ERRNO PROGRAM\n");
        return 64;
    }
    if (deny(d, (unsigned)err) < 0) {
        fprintf(stderr, "denied: no filter: %s\n", strerror(errno));
        return 77;
    }
    execv(argv[2], argv + 2);
    fprintf(stderr, "denied: %s: %s\n", argv[2], strerror(errno));
    return 127;
}

/* denied.c - runs a program under a filter that denies one call
 *
 * denied CALL=ERRNO PROGRAM [ARGUMENT...]: CALL is waitid, pidfd_open or
 * memfd_create, ERRNO a number; status 77 where no filter can be set.
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

/* number_of - of a call that this can deny; -1: none */
static long number_of(const char *name, size_t size)
{
    static const struct {
        const char *name;
        long number;
    } calls[] = {{"waitid", SYS_waitid},
                 {"pidfd_open", SYS_pidfd_open},
                 {"memfd_create", SYS_memfd_create}};

    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        if (strlen(calls[i].name) == size &&
            memcmp(calls[i].name, name, size) == 0)
            return calls[i].number;
    return -1;
}

/* deny - that number says `err` from now on; programs of this kind only, as it
 * does not look at the architecture */
static int deny(unsigned number, unsigned err)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
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
    long number = equals ? number_of(argv[1], (size_t)(equals - argv[1])) : -1;
    long err = equals ? strtol(equals + 1, NULL, 10) : 0;

    if (number < 0 || err <= 0) {
        fprintf(stderr, "denied: give CALL=ERRNO PROGRAM\n");
        return 64;
    }
    if (deny((unsigned)number, (unsigned)err) < 0) {
        fprintf(stderr, "denied: no filter: %s\n", strerror(errno));
        return 77;
    }
    execv(argv[2], argv + 2);
    fprintf(stderr, "denied: %s: %s\n", argv[2], strerror(errno));
    return 127;
}

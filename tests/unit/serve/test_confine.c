/* test_confine.c - the filter of mqctl serve, as each machine would run it */
#include <byteswap.h>
#include <criterion/criterion.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* NOLINTNEXTLINE(bugprone-suspicious-include): its lists and filters */
#include "scripts/mqctl/serve/confine.c"

#define ALLOWED      SECCOMP_RET_ALLOW
#define FAILS(error) (SECCOMP_RET_ERRNO | (error))
#define NONE         0xffffffffU

/* A machine. `socket` and `socketcall` are the numbers of these calls where
 * socketcall(2) exists; 0: it does not. */
static const struct machine {
    const char *name;
    uint32_t arch, audit;
    int socket, socketcall;
    bool big;
} machines[] = {
    {"x86_64", SCMP_ARCH_X86_64, 0xc000003e, 0, 0, false},
    {"i386", SCMP_ARCH_X86, 0x40000003, 359, 102, false},
    {"arm", SCMP_ARCH_ARM, 0x40000028, 0, 0, false},
    {"aarch64", SCMP_ARCH_AARCH64, 0xc00000b7, 0, 0, false},
    {"mips", SCMP_ARCH_MIPS, 0x00000008, 0, 0, true},
    {"mipsel", SCMP_ARCH_MIPSEL, 0x40000008, 0, 0, false},
    {"mips64el", SCMP_ARCH_MIPSEL64, 0xc0000008, 0, 0, false},
    {"riscv64", SCMP_ARCH_RISCV64, 0xc00000f3, 0, 0, false},
    {"s390x", SCMP_ARCH_S390X, 0x80000016, 359, 102, true},
    {0},
};

/* A filter as the kernel gets it */
struct program {
    struct sock_filter at[BPF_MAXINSNS];
    size_t count;
};

static void program_make(struct program *out, const struct machine *m,
                         bool sockets, bool write)
{
    const bool big_endian = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
    scmp_filter_ctx f;
    FILE *file = tmpfile();

    cr_assert_eq(filter_make(&f, m->arch, sockets, write), 0, "%s", m->name);
    cr_assert_eq(seccomp_export_bpf(f, fileno(file)), 0, "%s", m->name);
    seccomp_release(f);
    rewind(file);
    out->count = fread(out->at, sizeof *out->at, BPF_MAXINSNS, file);
    fclose(file);
    cr_assert(out->count > 0 && out->count < BPF_MAXINSNS);
    for (size_t i = 0; m->big != big_endian && i < out->count; i++) {
        out->at[i].code = bswap_16(out->at[i].code);
        out->at[i].k = bswap_32(out->at[i].k);
    }
}

/* Return the verdict on a call with one argument; its others are 0. */
static uint32_t program_run(const struct program *p, const struct machine *m,
                            int number, unsigned which, uint32_t value)
{
    uint32_t data[16] = {(uint32_t)number, m->audit}, a = 0;

    data[4 + 2 * which + m->big] = value;
    for (size_t at = 0; at < p->count; at++) {
        const struct sock_filter *i = &p->at[at];
        bool yes = false;

        switch (i->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            a = data[i->k / 4];
            continue;
        case BPF_ALU | BPF_AND | BPF_K:
            a &= i->k;
            continue;
        case BPF_RET | BPF_K:
            return i->k;
        case BPF_JMP | BPF_JA:
            at += i->k;
            continue;
        case BPF_JMP | BPF_JEQ | BPF_K:
            yes = a == i->k;
            break;
        case BPF_JMP | BPF_JGE | BPF_K:
            yes = a >= i->k;
            break;
        case BPF_JMP | BPF_JGT | BPF_K:
            yes = a > i->k;
            break;
        default:
            cr_assert(false, "%s: instruction %#x", m->name, i->code);
        }
        at += yes ? i->jt : i->jf;
    }
    cr_assert(false, "%s: the program does not end", m->name);
    return 0;
}

/* The filters that a machine runs. */
struct filters {
    const struct machine *m;
    struct program calls, sockets;
};

static uint32_t filters_ask(const struct filters *f, int number, unsigned which,
                            uint32_t value)
{
    uint32_t said = program_run(&f->sockets, f->m, number, which, value);

    return said == ALLOWED ? program_run(&f->calls, f->m, number, which, value)
                           : said;
}

static int number_of(const struct machine *m, const char *call)
{
    if (m->socket && strcmp(call, "socket") == 0)
        return m->socket;
    if (m->socket && strcmp(call, "socketpair") == 0)
        return m->socket + 1;
    return seccomp_syscall_resolve_name_arch(m->arch, call);
}

static struct filters *filters_make(const struct machine *m, bool write)
{
    static struct filters f;

    f.m = m;
    program_make(&f.calls, m, false, write);
    program_make(&f.sockets, m, true, write);
    return &f;
}

Test(confine, no_name_in_the_lists_is_unknown)
{
    const char *const *lists[] = {always, to_write};

    for (size_t i = 0; i < 2; i++)
        for (const char *const *call = lists[i]; *call; call++)
            cr_expect_neq(seccomp_syscall_resolve_name(*call), __NR_SCMP_ERROR,
                          "%s", *call);
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        cr_expect_neq(seccomp_syscall_resolve_name(some[i].call),
                      __NR_SCMP_ERROR, "%s", some[i].call);
    cr_expect_gt(seccomp_syscall_resolve_name(NEWER), 0);
}

/* A call of the lists that a machine has is allowed there. */
Test(confine, a_listed_call_is_allowed_on_each_machine)
{
    for (const struct machine *m = machines; m->name; m++) {
        const struct filters *f = filters_make(m, true);
        const char *const *lists[] = {always, to_write};
        int many = 0;

        for (size_t i = 0; i < 2; i++)
            for (const char *const *call = lists[i]; *call; call++) {
                int number = number_of(m, *call);

                if (number < 0)
                    continue;
                many++;
                cr_expect_eq(filters_ask(f, number, 0, 0), ALLOWED, "%s: %s",
                             m->name, *call);
            }
        cr_expect_gt(many, 100, "%s: only %d", m->name, many);
    }
}

/* Calls by which a C library of 32 bits tells and waits until after 2038, and
 * those that some machines have under another name */
Test(confine, machines_of_32_bits_have_their_calls)
{
    static const char *const calls[] = {"clock_gettime64",
                                        "clock_nanosleep_time64",
                                        "futex_time64",
                                        "mq_timedsend_time64",
                                        "ppoll_time64",
                                        "pselect6_time64",
                                        "_llseek",
                                        "fcntl64",
                                        "fstat64",
                                        "fstatat64",
                                        "ftruncate64",
                                        "mmap2",
                                        "sigreturn",
                                        "statfs64",
                                        "statx"};

    for (const struct machine *m = machines; m->name; m++) {
        const struct filters *f = filters_make(m, true);

        if (m->arch != SCMP_ARCH_ARM && m->arch != SCMP_ARCH_MIPS &&
            m->arch != SCMP_ARCH_MIPSEL && m->arch != SCMP_ARCH_X86)
            continue;
        for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
            int number = number_of(m, calls[i]);

            cr_expect_gt(number, 0, "%s: %s", m->name, calls[i]);
            cr_expect_eq(filters_ask(f, number, 0, 0), ALLOWED, "%s: %s",
                         m->name, calls[i]);
        }
    }
}

/* Calls that an intruder in the server may try: the verdict on each without
 * --allow-write, and with it. NONE: the same. */
static const struct attempt {
    const char *call;
    unsigned argument;
    uint32_t value, shows, writes;
} attempts[] = {
    {"execve", 0, 0, FAILS(EPERM), ALLOWED},
    {"mq_timedsend", 0, 0, FAILS(EPERM), ALLOWED},
    {"mkdirat", 0, 0, FAILS(EPERM), ALLOWED},
    {"ptrace", 0, 0, FAILS(EPERM), NONE},
    {"process_vm_readv", 0, 0, FAILS(EPERM), NONE},
    {"mq_unlink", 0, 0, FAILS(EPERM), NONE},
    {"bind", 0, 0, FAILS(EPERM), NONE},
    {"seccomp", 0, 0, FAILS(EPERM), NONE},
    {"socket", 0, AF_UNIX, ALLOWED, NONE},
    {"socket", 0, AF_INET, FAILS(EPERM), NONE},
    {"socketpair", 0, AF_UNIX, ALLOWED, NONE},
    {"socketpair", 0, AF_INET6, FAILS(EPERM), NONE},
    {"mprotect", 2, PROT_READ | PROT_WRITE, ALLOWED, NONE},
    {"mprotect", 2, PROT_READ | PROT_EXEC, FAILS(EPERM), NONE},
    {"mmap2", 2, PROT_READ | PROT_EXEC, ALLOWED, NONE},
    {"mmap2", 2, PROT_READ | PROT_WRITE, ALLOWED, NONE},
    {"mmap2", 2, PROT_WRITE | PROT_EXEC, FAILS(EPERM), NONE},
    {"ioctl", 1, TCGETS, ALLOWED, NONE},
    {"ioctl", 1, TIOCSTI, FAILS(EPERM), NONE},
    {"prctl", 0, PR_SET_PDEATHSIG, ALLOWED, NONE},
    {"prctl", 0, PR_SET_DUMPABLE, FAILS(EPERM), NONE},
    {"prlimit64", 0, 0, ALLOWED, NONE},
    {"prlimit64", 0, 1, FAILS(EPERM), NONE},
    {"clone3", 0, 0, FAILS(ENOSYS), NONE},
    {"io_uring_setup", 0, 0, FAILS(EPERM), NONE},
    {"openat2", 0, 0, FAILS(ENOSYS), NONE},
    {"close_range", 0, 0, ALLOWED, NONE},
};

Test(confine, an_intruder_may_do_the_same_on_each_machine)
{
    for (const struct machine *m = machines; m->name; m++)
        for (int write = 0; write < 2; write++) {
            const struct filters *f = filters_make(m, write);

            for (size_t i = 0; i < sizeof attempts / sizeof *attempts; i++) {
                const struct attempt *a = &attempts[i];
                int number = number_of(m, a->call);

                if (number >= 0)
                    cr_expect_eq(filters_ask(f, number, a->argument, a->value),
                                 write && a->writes != NONE ? a->writes
                                                            : a->shows,
                                 "%s: %s of %u, write %d: %#x", m->name,
                                 a->call, a->value, write,
                                 filters_ask(f, number, a->argument, a->value));
            }
        }
}

/* The flags of clone(2) are its second argument on s390x. */
Test(confine, no_machine_makes_a_namespace)
{
    for (const struct machine *m = machines; m->name; m++) {
        const struct filters *f = filters_make(m, true);
        unsigned flags = m->arch == SCMP_ARCH_S390X;
        int number = number_of(m, "clone");

        cr_expect_eq(filters_ask(f, number, flags, SIGCHLD), ALLOWED, "%s",
                     m->name);
        cr_expect_eq(filters_ask(f, number, flags, CLONE_NEWUSER | SIGCHLD),
                     FAILS(EPERM), "%s", m->name);
    }
}

/* s390x and i386 pass mmap(2) a structure, but i386 has mmap2 as well. */
Test(confine, memory_is_not_writable_and_executable_where_that_can_be_seen)
{
    for (const struct machine *m = machines; m->name; m++) {
        const struct filters *f = filters_make(m, true);
        int number = number_of(m, "mmap");
        uint32_t said = number < 0
                            ? FAILS(EPERM)
                            : filters_ask(f, number, 2, PROT_WRITE | PROT_EXEC);

        if (m->arch == SCMP_ARCH_X86)
            said = filters_ask(f, number, 2, 0);
        cr_expect_eq(said, m->arch == SCMP_ARCH_S390X ? ALLOWED : FAILS(EPERM),
                     "%s", m->name);
    }
}

/* Arguments of socketcall(2) are in memory, where no filter sees the family. */
Test(confine, socketcall_makes_no_socket)
{
    for (const struct machine *m = machines; m->name; m++) {
        const struct filters *f = filters_make(m, true);

        if (!m->socketcall)
            continue;
        cr_expect_eq(filters_ask(f, m->socketcall, 0, SYS_SOCKET), FAILS(EPERM),
                     "%s", m->name);
        cr_expect_eq(filters_ask(f, m->socketcall, 0, SYS_SOCKETPAIR),
                     FAILS(EPERM), "%s", m->name);
        cr_expect_eq(filters_ask(f, m->socketcall, 0, SYS_BIND), FAILS(EPERM),
                     "%s", m->name);
        cr_expect_eq(filters_ask(f, m->socketcall, 0, SYS_CONNECT), ALLOWED,
                     "%s", m->name);
    }
}

/* The numbers of another machine mean other calls. A kernel without API level 3
 * of libseccomp, or qemu-user, can only kill the thread. */
Test(confine, a_program_of_another_machine_is_killed)
{
    const uint32_t killed = seccomp_api_get() < 3 ? SECCOMP_RET_KILL_THREAD
                                                  : SECCOMP_RET_KILL_PROCESS;

    for (const struct machine *m = machines; m->name; m++) {
        const struct filters *f = filters_make(m, true);
        struct machine other = *m;

        other.audit ^= 1;
        cr_expect_eq(program_run(&f->calls, &other, 0, 0, 0), killed, "%s",
                     m->name);
    }
}

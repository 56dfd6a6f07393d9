/* stepper.h - run code one instruction, or one system call, at a time
 *
 * WHAT   A child runs `act` under ptrace(2); after each step the parent may
 *        look at memory or files that both share. What it sees there is exactly
 *        what a SIGKILL at this point would leave.
 * WHO    Tests, one child at a time.
 * OWNS   The child.
 * FAILS  By ending the test; where ptrace is forbidden the test is skipped.
 */
#ifndef TESTS_UNIT_WHEEL_STEPPER_H
#define TESTS_UNIT_WHEEL_STEPPER_H

#include <criterion/criterion.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

/* stepper_shared - zeroed memory that a child shares with us */
static inline void *stepper_shared(size_t size)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    cr_assert(at != MAP_FAILED);
    return at;
}

/* stepper_child - stopped before `act` */
static inline pid_t stepper_child(void (*act)(void *arg), void *arg)
{
    pid_t pid = fork();
    int status;

    cr_assert(pid >= 0);
    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
            _exit(77);
        raise(SIGSTOP);
        act(arg);
        _exit(0);
    }
    cr_assert(waitpid(pid, &status, 0) == pid);
    if (WIFEXITED(status))
        cr_skip_test("ptrace is not allowed here");
    ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_EXITKILL);
    return pid;
}

/* stepper_next - one step on; false: the child has ended, and well */
static inline bool stepper_next(pid_t pid, enum __ptrace_request request)
{
    int status;

    cr_assert(ptrace(request, pid, NULL, NULL) == 0);
    cr_assert(waitpid(pid, &status, 0) == pid);
    if (WIFSTOPPED(status)) {
        cr_assert(WSTOPSIG(status) == SIGTRAP, "signal %d in the child",
                  WSTOPSIG(status));
        return true;
    }
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0,
              "the child ended with %#x", (unsigned)status);
    return false;
}

/* step_calls_before - system call stops before the `size` bytes at `shared`
 * change for the first time; the child runs to its end */
static inline unsigned step_calls_before(void (*act)(void *arg), void *arg,
                                         const void *shared, size_t size)
{
    void *last = malloc(size);
    pid_t pid = stepper_child(act, arg);
    unsigned stops = 0;
    bool same = true;

    cr_assert(last != NULL);
    memcpy(last, shared, size);
    while (stepper_next(pid, PTRACE_SYSCALL)) {
        same = same && memcmp(last, shared, size) == 0;
        stops += same;
    }
    cr_assert(!same, "it changes nothing");
    free(last);
    return stops;
}

/* step_through_after - so many system call stops, which change nothing: call
 * `look` after each instruction that changed the `size` bytes at `shared`; how
 * many that were */
static inline unsigned step_through_after(unsigned stops,
                                          void (*act)(void *arg),
                                          void (*look)(void *arg), void *arg,
                                          const void *shared, size_t size)
{
    void *last = malloc(size);
    pid_t pid = stepper_child(act, arg);
    unsigned changes = 0;

    cr_assert(last != NULL);
    memcpy(last, shared, size);
    while (stops-- > 0)
        cr_assert(stepper_next(pid, PTRACE_SYSCALL));
    cr_assert_eq(memcmp(last, shared, size), 0);
    while (stepper_next(pid, PTRACE_SINGLESTEP)) {
        if (memcmp(last, shared, size) == 0)
            continue;
        memcpy(last, shared, size);
        changes++;
        look(arg);
    }
    free(last);
    return changes;
}

/* step_through - the same from the beginning */
static inline unsigned step_through(void (*act)(void *arg),
                                    void (*look)(void *arg), void *arg,
                                    const void *shared, size_t size)
{
    return step_through_after(0, act, look, arg, shared, size);
}

/* step_calls - call `look` before and after each system call */
static inline unsigned step_calls(void (*act)(void *arg),
                                  void (*look)(void *arg), void *arg)
{
    pid_t pid = stepper_child(act, arg);
    unsigned stops = 0;

    while (stepper_next(pid, PTRACE_SYSCALL)) {
        stops++;
        look(arg);
    }
    return stops;
}

#endif

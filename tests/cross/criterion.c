/* criterion.c - run the tests of a program, each in a process of its own (see
 * criterion/criterion.h)
 *
 * The output has the lines that scripts/run-tests reads. --filter=GLOB, of
 * SUITE/NAME, selects tests; --timeout SECONDS limits each test that does not
 * give itself more; other arguments of Criterion are accepted, and change
 * nothing.
 * $MQW_TEST_UNSUITED has globs of the tests that the emulator cannot run,
 * separated by blanks.
 */
#include "tests/cross/criterion/criterion.h"

#include <errno.h>
#include <fnmatch.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PASSED, FAILED, SKIPPED, RESULTS };

static struct cr_test *tests, *suites;
static const struct cr_test *running;
static int result;               /* of the running test */
static double least_limit = 900; /* of a test's run, in seconds */
static jmp_buf runner_return;
static pthread_t runner;

void cr_add(struct cr_test *test)
{
    struct cr_test **last = test->name ? &tests : &suites;

    while (*last)
        last = &(*last)->next;
    *last = test;
}

static void line_print(const char *mark, const char *where, const char *format,
                       va_list args)
{
    printf("[%s] %s::%s: %s", mark, running->suite, running->name, where);
    vprintf(format, args);
    putchar('\n');
}

/* End the test. Only the thread that runs it can return to the runner. */
static _Noreturn void test_end(void)
{
    if (pthread_equal(runner, pthread_self()))
        longjmp(runner_return, 1);
    fflush(NULL);
    _exit(result);
}

void cr_failed(bool fatal, const char *file, int line, const char *what,
               const char *format, ...)
{
    char where[512];
    va_list args;

    snprintf(where, sizeof where, "%s:%d: %s:", file, line, what);
    va_start(args, format);
    line_print("FAIL", where, format, args);
    va_end(args);
    result = FAILED;
    if (fatal)
        test_end();
}

void cr_skipped(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    line_print("SKIP", "", format, args);
    va_end(args);
    result = SKIPPED;
    test_end();
}

/* Return true if a glob of $MQW_TEST_UNSUITED matches. */
static bool is_unsuited(const char *name)
{
    const char *at = getenv("MQW_TEST_UNSUITED");
    char glob[128];
    int size;

    for (; at && sscanf(at, "%127s%n", glob, &size) == 1; at += size)
        if (fnmatch(glob, name, 0) == 0)
            return true;
    return false;
}

/* Run one test in this process, then exit with its result. */
static _Noreturn void test_run(const struct cr_test *test,
                               const struct cr_options *suite)
{
    void (*init)(void) = test->options.init ? test->options.init : suite->init;
    void (*fini)(void) = test->options.fini ? test->options.fini : suite->fini;

    runner = pthread_self();
    if (setjmp(runner_return) == 0) {
        if (init)
            init();
        test->run();
    }
    if (fini && setjmp(runner_return) == 0)
        fini();
    fflush(NULL);
    _exit(result);
}

/* Run a test in a child process, and kill it at its time limit. Returns the
 * result. */
static int test_start(const struct cr_test *test)
{
    const struct cr_options none = {0}, *suite = &none;
    double limit = test->options.timeout > least_limit ? test->options.timeout
                                                       : least_limit;
    const struct timespec wait = {.tv_sec = (time_t)limit};
    sigset_t child;
    bool late;
    int status;

    for (const struct cr_test *s = suites; s; s = s->next)
        if (strcmp(s->suite, test->suite) == 0)
            suite = &s->options;
    running = test;
    fflush(stdout);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    pid_t pid = fork();
    if (pid == 0) {
        sigprocmask(SIG_UNBLOCK, &child, NULL);
        test_run(test, suite);
    }
    late = pid > 0 && sigtimedwait(&child, NULL, &wait) < 0;
    if (late)
        kill(pid, SIGKILL);
    if (pid < 0 || waitpid(pid, &status, 0) < 0) {
        printf("[FAIL] %s::%s: %s\n", test->suite, test->name, strerror(errno));
        return FAILED;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) < RESULTS)
        return WEXITSTATUS(status);
    printf("[FAIL] %s::%s: wait status 0x%x%s\n", test->suite, test->name,
           (unsigned)status, late ? ", killed at its time limit" : "");
    return FAILED;
}

int main(int argc, char **argv)
{
    unsigned count[RESULTS] = {0};
    const char *filter = "*";
    char name[256];

    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "--filter=", 9) == 0)
            filter = argv[i] + 9;
        else if (strcmp(argv[i], "--timeout") == 0 && i + 1 < argc)
            least_limit = atof(argv[++i]);
    for (const struct cr_test *t = tests; t; t = t->next) {
        snprintf(name, sizeof name, "%s/%s", t->suite, t->name);
        if (fnmatch(filter, name, 0) != 0)
            continue;
        if (!is_unsuited(name))
            count[test_start(t)]++;
        else
            printf("[SKIP] %s: the emulator lacks what it needs\n", name);
    }
    printf("[====] Synthesis: Tested: %u | Passing: %u | Failing: %u\n",
           count[PASSED] + count[FAILED], count[PASSED], count[FAILED]);
    return count[FAILED] > 0;
}

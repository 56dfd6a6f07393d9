/* test_panic.c - the last line says why */
#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/log.h"

/* Panic in a child; return what it wrote to stderr, and its wait status. */
static const char *last_words(enum log_format format, int *status)
{
    static char text[4096];
    size_t size = 0;
    ssize_t n;
    int fds[2];
    pid_t pid;

    cr_assert_eq(pipe(fds), 0);
    pid = fork();
    if (pid == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        signal(SIGABRT, SIG_DFL);
        dup2(fds[1], STDERR_FILENO);
        log_setup(LOG_ERROR, format);
        panic("wheel: slot %d of \"%s\"", 7, "a");
    }
    close(fds[1]);
    while ((n = read(fds[0], text + size, sizeof text - 1 - size)) > 0)
        size += (size_t)n;
    close(fds[0]);
    text[size] = '\0';
    cr_assert_eq(waitpid(pid, status, 0), pid);
    return text;
}

Test(panic, it_says_what_in_one_line_and_aborts)
{
    int status;
    const char *text = last_words(LOG_TEXT, &status);

    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    cr_assert(strstr(text, " level=error event=panic what=\"wheel: slot 7 of "
                           "\\\"a\\\"\" next="),
              "%s", text);
    cr_assert_eq(strchr(text, '\n'), text + strlen(text) - 1);
    text = last_words(LOG_JSON, &status);
    cr_assert(strstr(text, "\"event\":\"panic\",\"what\":\"wheel: slot 7 of "
                           "\\\"a\\\"\""),
              "%s", text);
}

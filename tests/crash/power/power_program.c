/* power_program.c - run our programs with the recorder or with another clock
 * (see power.h) */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/crash/power/power.h"

pid_t power_start(const struct power_place *at, const char *const *argv,
                  const char *preload, const char *log)
{
    const char *bin = getenv("MQW_BIN"), *dir = getenv("MQW_HANDLERS");
    char program[PATH_MAX], library[PATH_MAX], out[200];
    pid_t pid;
    int fd;

    if (!bin || !dir)
        power_fail("MQW_BIN and MQW_HANDLERS are not set: use make power-cuts");
    snprintf(program, sizeof program, "%s/%s", bin, argv[0]);
    snprintf(library, sizeof library, "%s/%s", dir, preload);
    snprintf(out, sizeof out, "%s/%s.log", at->base, log);
    pid = fork();
    if (pid != 0)
        return pid < 0 ? (power_fail("fork"), -1) : pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    fd = open(out, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    dup2(fd, 2);
    dup2(fd, 1);
    setenv("STATE_DIRECTORY", at->root, 1);
    setenv("POWER_SEEN", at->witness, 1);
    setenv("POWER_TRACE", at->trace, 1);
    setenv("POWER_ROOT", at->root, 1);
    setenv("POWER_WITNESS", at->witness, 1);
    setenv("POWER_BOOT", at->boot, 1);
    setenv("CLOCK_SHIFT", at->shift, 1);
    if (at->drop)
        setenv("POWER_DROP", at->drop, 1);
    setenv("LD_PRELOAD", library, 1);
    execv(program, (char *const *)argv);
    _exit(127);
}

int power_end(pid_t pid, const char *what)
{
    int status;

    if (waitpid(pid, &status, 0) != pid)
        power_fail("%s: waitpid", what);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

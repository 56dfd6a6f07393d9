/* copies.c - a plugin that forks a child, which forks a child as well
 *
 * Both inherit the worker's open files and do nothing, as between fork and
 * exec. Each appends a line to $TEST_DIR/copies. They exit, and the message is
 * done, when the file $TEST_DIR/open exists; they also exit with the thread
 * that forked them.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker/mqworker.h"

/* Run in a forked child, which forks `depth` more, each the child of the one
 * before. Only functions that are allowed after the fork of a thread are
 * called. */
static void stay(int depth)
{
    pid_t child = -1;
    int fd;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (depth > 0 && (child = fork()) == 0) {
        stay(depth - 1);
        _exit(0);
    }
    fd = open("copies", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, "x\n", 2) != 2)
        _exit(1);
    close(fd);
    while (access("open", F_OK) != 0)
        usleep(2000);
    if (child > 0)
        (void)waitpid(child, NULL, 0);
}

int mqw_handle(const struct mqw_message *m, struct mqw_context *context)
{
    pid_t child;

    (void)m;
    (void)context;
    if (chdir(getenv("TEST_DIR")) < 0)
        return MQW_DEAD;
    child = fork();
    if (child == 0) {
        stay(1);
        _exit(0);
    }
    if (child > 0)
        (void)waitpid(child, NULL, 0);
    return child > 0 ? MQW_DONE : MQW_DEAD;
}

/* copies.c - a plugin that forks: a child, and that one a child again
 *
 * Both have what the worker has open, and do nothing, as between fork and exec.
 * Each is a line in $TEST_DIR/copies. They end, and the message is done, when
 * there is a file $TEST_DIR/open; or with the thread that made them.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker/mqworker.h"

/* stay - the child of a thread of the worker, or of the first copy; `depth`
 * more of them are made. No more than what a forked thread may call. */
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

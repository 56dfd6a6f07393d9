/* listen.c - pass a queue to a program as a service manager does (no handler)
 *
 * listen QUEUE WHOSE COMMAND [ARG...]. QUEUE is opened as descriptor 3, and
 * COMMAND is run in this process. WHOSE:
 *   own    the queue is meant for COMMAND
 *   other  the queue is meant for another process
 *   gone   as own, but the name of the queue is removed before
 *   write  as own, but the queue is open for writing only
 */
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char pid[32];
    int fd;

    if (argc < 4)
        return 64;
    fd =
        mq_open(argv[1], (strcmp(argv[2], "write") == 0 ? O_WRONLY : O_RDONLY) |
                             O_NONBLOCK);
    if (fd < 0 || dup2(fd, 3) < 0) /* without close-on-exec unless fd is already
                                    * 3 */
        return 71;
    if (fcntl(3, F_SETFD, 0) < 0)
        return 71;
    if (strcmp(argv[2], "gone") == 0 && mq_unlink(argv[1]) < 0)
        return 71;
    snprintf(pid, sizeof pid, "%d",
             strcmp(argv[2], "other") == 0 ? (int)getppid() : (int)getpid());
    setenv("LISTEN_PID", pid, 1);
    setenv("LISTEN_FDS", "1", 1);
    execvp(argv[3], argv + 3);
    return 126;
}

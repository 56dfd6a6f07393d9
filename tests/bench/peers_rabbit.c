/* peers_rabbit.c - RabbitMQ, as programs of amqp-tools use it (see peers.h) */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/peers.h"

#define SCRIPT "tests/harness/rabbit" /* from the top of the tree */

/* Start a program with stdin from a file; NULL: /dev/null. */
static int program(const char *const argv[], const char *in)
{
    int pid = fork_bound();

    if (pid > 0)
        return pid;
    dup2(open(in ? in : "/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
    execvp(argv[0], (char *const *)argv);
    fail(errno, "%s", argv[0]);
}

/* Start the script, which ends its nodes at the end of its stdin, so when this
 * process ends. It is not killed with us: that would leave the nodes. */
static FILE *node_start(const char *dir)
{
    int in[2], out[2];
    pid_t pid;

    if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
        fail(errno, "pipe");
    pid = fork();
    if (pid < 0)
        fail(errno, "fork");
    if (pid == 0) {
        setpgid(0, 0); /* Ctrl-C is for us alone: it would leave the nodes */
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        execl(SCRIPT, SCRIPT, "run", dir, (char *)NULL);
        _exit(1);
    }
    close(in[0]);
    close(out[1]);
    return fdopen(out[0], "r");
}

/* Return whether the server, amqp-tools and the script are there. */
static bool installed(void)
{
    static const char look[] =
        "command -v amqp-consume && command -v amqp-publish && "
        "command -v amqp-declare-queue && test -x " SCRIPT " && "
        "{ command -v rabbitmq-server || "
        "test -x /usr/lib/rabbitmq/bin/rabbitmq-server; }";
    int pid = program((const char *const[]){"sh", "-c", look, NULL}, NULL);
    int status;

    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

enum measured rabbit_node(unsigned *port)
{
    char dir[PATH_MAX + 16], file[PATH_MAX + 32], word[16] = "";
    FILE *said, *ports;

    if (!installed())
        return NOT_BUILT;
    snprintf(dir, sizeof dir, "%s/rabbit", place->dir);
    said = node_start(dir);
    if (!said || !fgets(word, sizeof word, said) ||
        strcmp(word, "ready\n") != 0)
        fail(0, "RabbitMQ did not start");
    snprintf(file, sizeof file, "%s/ports", dir);
    ports = fopen(file, "re");
    if (!ports || fscanf(ports, "%u", port) != 1)
        fail(errno, "%s", file);
    fclose(ports);
    return MEASURED;
}

enum measured rabbit_start(char url[RABBIT_URL])
{
    unsigned port;

    if (rabbit_node(&port) != MEASURED)
        return NOT_BUILT;
    snprintf(url, RABBIT_URL, "amqp://guest:guest@127.0.0.1:%u", port);
    child_done(program((const char *const[]){"amqp-declare-queue", "-u", url,
                                             "-d", "-q", RABBIT_QUEUE, NULL},
                       NULL),
               "amqp-declare-queue");
    return MEASURED;
}

/* Write the bodies, one a line. */
static void bodies_write(const char *path, unsigned long n, size_t size)
{
    static char body[FEED_MOST];
    FILE *f = fopen(path, "we");

    if (!f)
        fail(errno, "%s", path);
    feed_body(body);
    for (unsigned long i = 0; i < n; i++) {
        feed_turn(body, i);
        fwrite(body, 1, size, f);
        putc('\n', f);
    }
    if (fclose(f) != 0)
        fail(errno, "%s", path);
}

int rabbit_send(const char *url, unsigned long n, size_t size)
{
    char path[PATH_MAX + 16];

    snprintf(path, sizeof path, "%s/bodies", place->dir);
    bodies_write(path, n, size);
    return program((const char *const[]){"amqp-publish", "-u", url, "-r",
                                         RABBIT_QUEUE, "-p", "-l", NULL},
                   path);
}

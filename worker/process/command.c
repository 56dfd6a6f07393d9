/* command.c - the command that is run for messages (see command.h) */
#include "worker/process/command.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/base/process_stat.h"
#include "worker/process/process.h"

#define SCRIPT_LINE \
    256 /* bytes of a first line that the kernel reads (BINPRM_BUF_SIZE) */

/* Return true if the file is a script whose first line does not name an
 * executable program; `buf` gets the reason. */
static bool script_fault(const char *path, char buf[COMMAND_WHY])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char line[SCRIPT_LINE + 1];
    ssize_t n = fd < 0 ? -1 : read(fd, line, SCRIPT_LINE);
    char *program, *end;

    if (fd >= 0)
        close(fd);
    if (n < 2 || memcmp(line, "#!", 2) != 0)
        return false;
    line[n] = '\0';
    line[strcspn(line, "\n")] = '\0';
    if (strchr(line, '\r')) {
        snprintf(buf, COMMAND_WHY,
                 "its first line ends in CR LF; convert it: sed -i 's/\\r$//' "
                 "%s",
                 path);
        return true;
    }
    program = line + 2 + strspn(line + 2, " \t");
    end = program + strcspn(program, " \t");
    *end = '\0';
    if (access(program, X_OK) == 0)
        return false;
    snprintf(buf, COMMAND_WHY, "its interpreter %s: %s", program,
             errno_text(errno));
    return true;
}

/* Copy the path where the command was last found; "" if it was not found. */
static void path_copy(struct command *c, char path[PATH_MAX])
{
    pthread_mutex_lock(&c->mtx);
    strlcpy(path, c->path, PATH_MAX);
    pthread_mutex_unlock(&c->mtx);
}

bool command_fault(struct command *c, char buf[COMMAND_WHY])
{
    char path[PATH_MAX];

    path_copy(c, path);
    return path[0] && script_fault(path, buf);
}

/* Explain why a command was not found: a name without a slash is searched for
 * in $PATH, a name with a slash starts from the working directory. */
static void missing_text(const char *name, char buf[COMMAND_WHY])
{
    static const char deleted[] = " (deleted)";
    char here[PATH_MAX];
    ssize_t n = readlink("/proc/self/cwd", here, sizeof here - 1);
    const char *end;

    here[n > 0 ? n : 0] = '\0';
    end = here + strlen(here) -
          (n > (ssize_t)strlen(deleted) ? strlen(deleted) : 0);
    if (strpbrk(name, " \t|&;<>$"))
        snprintf(buf, COMMAND_WHY,
                 "No such file or directory; to run a shell command line, use "
                 "-- sh -c 'LINE'");
    else if (!strchr(name, '/'))
        snprintf(buf, COMMAND_WHY, "not found in $PATH");
    else if (name[0] != '/' && strcmp(end, deleted) == 0)
        snprintf(buf, COMMAND_WHY,
                 "its working directory %.*s was removed; start the worker in "
                 "another directory",
                 (int)(end - here), here);
    else if (name[0] != '/')
        snprintf(buf, COMMAND_WHY, "No such file or directory, from %.90s",
                 here);
    else
        snprintf(buf, COMMAND_WHY, "%s", errno_text(ENOENT));
}

const char *command_why(struct command *c, int err, char buf[COMMAND_WHY])
{
    char path[PATH_MAX];

    path_copy(c, path);
    if (err == -ENOENT && !path[0])
        missing_text(c->argv[0], buf);
    else if (err == -ENOENT && !script_fault(path, buf))
        snprintf(buf, COMMAND_WHY,
                 "its dynamic loader is missing, so it was probably built for "
                 "another system");
    else if (err == -ENOEXEC)
        snprintf(buf, COMMAND_WHY,
                 "neither a program nor a script: its first line does not "
                 "start with #!");
    else if (err != -ENOENT)
        return errno_limit_text(-err, buf);
    return buf;
}

/* command_init - look it up, say so if it is not there */
void command_init(struct command *c, char *const *argv, uint64_t nonce)
{
    int err = process_find(argv[0], c->path);
    char why[COMMAND_WHY];

    c->argv = argv;
    c->alive = alive_key(nonce);
    pthread_mutex_init(&c->mtx, NULL);
    if (!err && !script_fault(c->path, why))
        return;
    if (err) {
        c->path[0] = '\0';
        command_why(c, err, why);
    }
    log_error("handler_not_found", F_STR("command", argv[0]),
              F_STR("error", why),
              F_STR("next", "messages are kept; put the command in place "
                            "and they run"));
}

void command_fini(struct command *c)
{
    pthread_mutex_destroy(&c->mtx);
}

/* find - where it is now; kept for the next start */
static int find(struct command *c, char path[PATH_MAX])
{
    int err = process_find(c->argv[0], path);

    pthread_mutex_lock(&c->mtx);
    if (err)
        c->path[0] = '\0';
    else
        strlcpy(c->path, path, sizeof c->path);
    pthread_mutex_unlock(&c->mtx);
    return err;
}

/* command_start - where it was found, else look again; no lock is held */
int command_start(struct command *c, struct process *out, char *const env[],
                  const int fds[3])
{
    char path[PATH_MAX];
    int err = -ENOENT;

    path_copy(c, path);
    if (path[0])
        err = process_start(out, path, c->argv, env, fds, c->alive);
    if (err == -ENOENT || err == -EACCES) {
        err = find(c, path);
        if (!err)
            err = process_start(out, path, c->argv, env, fds, c->alive);
    }
    return err;
}

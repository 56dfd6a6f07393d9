/* broker_password.c - what opens a broker (see broker_password.h) */
#include "common/broker/broker_password.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/folder.h"
#include "common/base/problem.h"
#include "common/broker/broker_operand.h"

#define CREDENTIAL "/amqp-password"
#define VARIABLE   "AMQP_PASSWORD"

/* loopback - all hosts are this machine: guest may not come from another */
static bool loopback(const struct broker_operand *o)
{
    for (unsigned i = 0; i < o->host_count; i++) {
        const char *name = o->hosts[i].name;

        if (strcmp(name, "localhost") != 0 && strncmp(name, "127.", 4) != 0 &&
            strcmp(name, "::1") != 0)
            return false;
    }
    return true;
}

/* taken - as far as one line of it goes */
static int taken(char out[BROKER_PASSWORD], size_t size, const char *from,
                 struct problem *p)
{
    while (size > 0 && (out[size - 1] == '\n' || out[size - 1] == '\r'))
        size--;
    out[size] = '\0';
    if (size == 0 || strlen(out) != size)
        return problem_set(p, EX_CONFIG, EINVAL,
                           "%s: %s: write the password into it, on one line",
                           from, size == 0 ? "is empty" : "has a NUL in it");
    return 0;
}

/* file_read - of a file that only its owner reads */
static int file_read(char out[BROKER_PASSWORD], const char *path,
                     struct problem *p)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat st;
    ssize_t n;

    if (fd < 0)
        return problem_set(p, EX_NOINPUT, errno,
                           "cannot read the password in %s: %s", path,
                           errno_text(errno));
    n = fstat(fd, &st) < 0 ? -1 : read(fd, out, BROKER_PASSWORD);
    close(fd);
    if (n < 0)
        return problem_set(p, EX_NOINPUT, errno,
                           "cannot read the password in %s: %s", path,
                           errno_text(errno));
    if (st.st_mode & (S_IRWXO | S_IWGRP))
        return problem_set(p, EX_CONFIG, EACCES,
                           "%s has a password and mode %04o: others can read "
                           "or change it; chmod 0600 %s",
                           path, (unsigned)st.st_mode & 07777, path);
    if (n == BROKER_PASSWORD)
        return problem_set(p, EX_CONFIG, EINVAL,
                           "%s has over %d bytes: a password is one line", path,
                           BROKER_PASSWORD - 1);
    return taken(out, (size_t)n, path, p);
}

/* variable_read - and it is gone: the environment is what handlers get */
static int variable_read(char out[BROKER_PASSWORD], struct problem *p)
{
    char *value = getenv(VARIABLE);
    size_t size = value ? strlen(value) : 0;
    bool fits = size < BROKER_PASSWORD;

    if (!value)
        return -ENOENT;
    if (fits)
        strlcpy(out, value, BROKER_PASSWORD);
    explicit_bzero(value, size); /* /proc/PID/environ shows the same bytes */
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): no threads yet */
    unsetenv(VARIABLE);
    if (!fits)
        return problem_set(p, EX_CONFIG, EINVAL,
                           VARIABLE " has over %d bytes: a password is one "
                                    "line",
                           BROKER_PASSWORD - 1);
    return taken(out, size, VARIABLE, p);
}

int broker_password_find(char out[BROKER_PASSWORD],
                         const struct broker_operand *o, const char *file,
                         struct problem *p)
{
    const char *folder = folder_variable("CREDENTIALS_DIRECTORY");
    char path[PATH_MAX];
    int err;

    /* In any case, so that it is gone. */
    err = variable_read(out, p);
    if (file)
        return file_read(out, file, p);
    if (folder && folder_join(path, folder, CREDENTIAL, "") &&
        access(path, F_OK) == 0)
        return file_read(out, path, p);
    if (err != -ENOENT)
        return err;
    if (strcmp(o->user, "guest") == 0 && loopback(o)) {
        strlcpy(out, "guest", BROKER_PASSWORD);
        return 0;
    }
    return problem_set(p, EX_USAGE, EINVAL,
                       "no password for user %s of %s: give --password-file "
                       "FILE, $CREDENTIALS_DIRECTORY/amqp-password or "
                       "AMQP_PASSWORD",
                       o->user, o->shown);
}

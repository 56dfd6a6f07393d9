/* command.c - the command that is run for messages (see command.h) */
#include "worker/process/command.h"

#include <errno.h>
#include <string.h>
#include <bsd/string.h>

#include "common/base/alive.h"
#include "common/base/errno_text.h"
#include "common/base/log.h"
#include "worker/process/process.h"

/* command_init - look it up, say so if it is not there */
void command_init(struct command *c, char *const *argv, uint64_t nonce)
{
    int err = process_find(argv[0], c->path);

    c->argv = argv;
    c->alive = alive_key(nonce);
    pthread_mutex_init(&c->mtx, NULL);
    if (!err)
        return;
    c->path[0] = '\0';
    log_error("handler_not_found", F_STR("command", argv[0]),
              F_STR("error", errno_text(-err)),
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

    pthread_mutex_lock(&c->mtx);
    strlcpy(path, c->path, sizeof path);
    pthread_mutex_unlock(&c->mtx);
    if (path[0])
        err = process_start(out, path, c->argv, env, fds, c->alive);
    if (err == -ENOENT || err == -EACCES) {
        err = find(c, path);
        if (!err)
            err = process_start(out, path, c->argv, env, fds, c->alive);
    }
    return err;
}

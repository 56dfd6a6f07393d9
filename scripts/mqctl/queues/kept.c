/* kept.c - see kept.h */
#include "scripts/mqctl/queues/kept.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/process_stat.h"
#include "common/custody/custody_look.h"
#include "common/state/runtimedir.h"

/* A file that is not there holds nothing. */
void kept_count(struct kept *k, struct snapshot *v)
{
    char path[PATH_MAX];
    struct store *s;
    int err = snapshot_store(v, &s);

    store_close(&s);
    if (err ? snapshot_unread(err) : v->store_err)
        k->unknown = v->no_store;
    else if (!err) {
        k->waiting = v->waiting + v->parked;
        k->spooled = v->spooled;
        k->dead = v->dead + v->replayed;
    }
    if (v->custody >= 0)
        k->in_flight = v->custody;
    else if (runtimedir_file(&v->dir, RUNTIMEDIR_CUSTODY, path, &k->unknown) ==
                 0 &&
             access(path, F_OK) == 0)
        problem_fill(&k->unknown, EX_CANTCREAT, "%s cannot be read", path);
}

int64_t kept_sum(const struct kept *k)
{
    return k->waiting + k->spooled + k->dead + k->in_flight;
}

const char *kept_text(const struct kept *k, char buf[KEPT_TEXT])
{
    const struct {
        int64_t n;
        const char *what;
    } all[] = {{k->waiting, "waiting"},
               {k->spooled, "in the spool"},
               {k->in_flight, "in flight"},
               {k->dead, k->dead == 1 ? "dead letter" : "dead letters"}};
    size_t at = 0;

    buf[0] = '\0';
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].n > 0)
            at += (size_t)snprintf(buf + at, KEPT_TEXT - at, "%s%" PRId64 " %s",
                                   at ? ", " : "", all[i].n, all[i].what);
    return buf;
}

void kept_alive_remove(const struct statedir *dir)
{
    char path[PATH_MAX];
    uint64_t nonce = 0;

    if (runtimedir_file(dir, RUNTIMEDIR_CUSTODY, path, NULL) == 0)
        nonce = custody_look_nonce(path);
    if (nonce)
        alive_remove(alive_key(nonce));
}

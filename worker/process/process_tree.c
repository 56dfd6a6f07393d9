/* process_tree.c - ends all that is left of a handler (see process_tree.h)
 *
 * Many handlers may be ended at once: what they all wait for hangs, and all
 * reach their limit. A search is a walk over /proc, so one walk serves all that
 * wait for one, as one sync serves many commits. And it is left out where
 * nothing at all was left behind, which one short read tells.
 */
#include "worker/process/process_tree.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <bsd/sys/queue.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/process/process_scan.h"
#include "worker/process/subreaper.h"
#include "worker/process/stderr_tail.h"

#define BATCH 64 /* that one search is for */

/* One that waits for a search; on the stack of its thread. */
struct wish {
    STAILQ_ENTRY(wish) link;
    const struct process_tree_of *of;
    bool granted; /* m */
};

/* m = under mtx   c = constant after open */
struct process_tree {
    uint64_t nonce; /* c */
    int hurry;      /* c  eventfd; readable from process_tree_hurry on */
    pthread_mutex_t mtx;
    pthread_cond_t ready;       /* m  a search has ended */
    STAILQ_HEAD(, wish) wishes; /* m  not taken by a search */
    bool searching;             /* m */
};

int process_tree_open(struct process_tree **out, uint64_t nonce)
{
    struct process_tree *s = calloc(1, sizeof *s);

    *out = NULL;
    if (!s)
        return -ENOMEM;
    s->nonce = nonce;
    s->hurry = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->hurry < 0) {
        int err = -errno;

        free(s);
        return err;
    }
    pthread_mutex_init(&s->mtx, NULL);
    pthread_cond_init(&s->ready, NULL);
    STAILQ_INIT(&s->wishes);
    *out = s;
    return 0;
}

void process_tree_close(struct process_tree **remains)
{
    struct process_tree *s = *remains;

    if (!s)
        return;
    *remains = NULL;
    close(s->hurry);
    pthread_cond_destroy(&s->ready);
    pthread_mutex_destroy(&s->mtx);
    free(s);
}

void process_tree_hurry(struct process_tree *s)
{
    uint64_t one = 1;

    (void)!write(s->hurry, &one, sizeof one);
}

/* failed - what could not be looked for stays */
static void failed(const char *id, int err)
{
    log_warn("remains_not_searched", F_STR("msg", id),
             F_STR("error", strerror(-err)),
             F_STR("next", "what the handler left outside of its process "
                           "group may still run; mount /proc, raise "
                           "ulimit -n"));
}

/* wait_for - until `fd` is readable; false: the grace is over
 * Its stderr is read meanwhile, or a handler that cleans up would wait for us.
 */
static bool wait_for(struct process_tree *s, const struct process_tree_of *of,
                     int fd, int *stderr_fd)
{
    for (;;) {
        struct pollfd fds[] = {{.fd = fd, .events = POLLIN},
                               {.fd = s->hurry, .events = POLLIN},
                               {.fd = *stderr_fd, .events = POLLIN}};
        int ms = clock_ms_until(of->kill_at_ns);

        if (ms == 0 || (poll(fds, 3, ms) < 0 && errno != EINTR) ||
            fds[1].revents)
            return false;
        if (fds[2].revents && !stderr_tail_read(of->tail, *stderr_fd))
            *stderr_fd = -1;
        if (fds[0].revents)
            return true;
    }
}

/* group_gone - wait while any that was found lives; false: the grace is over */
static bool group_gone(struct process_tree *s, struct process_scan *m,
                       const struct process_tree_of *of, int *stderr_fd)
{
    while (process_scan_living(m) > 0)
        if (!wait_for(s, of, process_scan_fd(m), stderr_fd))
            return false;
    return true;
}

/* grace - until the group is gone or its time is over */
static void grace(struct process_tree *s, const struct process_tree_of *of,
                  int *stderr_fd)
{
    struct process_scan_delivery one = {.group = of->group};
    struct process_scan_choice choice = {
        .of = &one, .count = 1, .groups_only = true};
    struct process_scan *m;
    int found, err = process_scan_open(&m);

    if (err) {
        failed(of->tail->id, err);
        return;
    }
    do {
        found = process_scan_find(m, &choice);
        if (found < 0)
            failed(of->tail->id, found);
    } while (found > 0 && group_gone(s, m, of, stderr_fd));
    process_scan_close(&m);
}

/* search - one for all of a batch */
static void search(struct process_tree *s, struct wish *const *batch, size_t n)
{
    struct process_scan_delivery list[BATCH];
    struct process_scan_choice choice = {
        .nonce = s->nonce, .of = list, .count = n, .ours = true};
    struct process_scan *m;
    int killed = process_scan_open(&m);

    for (size_t i = 0; i < n; i++)
        list[i] = (struct process_scan_delivery){.seq = batch[i]->of->seq,
                                                 .group = batch[i]->of->group};
    if (!killed)
        killed = process_scan_end(m, &choice);
    process_scan_close(&m);
    for (size_t i = 0; i < n && killed < 0; i++)
        failed(batch[i]->of->tail->id, killed);
    if (killed > 0)
        log_info("remains_killed",
                 F_STR("msg", n == 1 ? batch[0]->of->tail->id : NULL),
                 F_UINT("handlers", n), F_INT("processes", killed));
}

/* grant_locked - search for those that wait; the lock is not held meanwhile */
static void grant_locked(struct process_tree *s)
{
    struct wish *batch[BATCH] = {0}, *w;
    size_t n = 0;

    while (n < BATCH && (w = STAILQ_FIRST(&s->wishes)) != NULL) {
        STAILQ_REMOVE_HEAD(&s->wishes, link);
        batch[n++] = w;
    }
    s->searching = true;
    pthread_mutex_unlock(&s->mtx);
    search(s, batch, n);
    pthread_mutex_lock(&s->mtx);
    s->searching = false;
    for (size_t i = 0; i < n; i++)
        batch[i]->granted = true;
    pthread_cond_broadcast(&s->ready);
}

/* sweep - a search that began after this call has found nothing more */
static void sweep(struct process_tree *s, const struct process_tree_of *of)
{
    struct wish me = {.of = of};

    pthread_mutex_lock(&s->mtx);
    STAILQ_INSERT_TAIL(&s->wishes, &me, link);
    while (!me.granted) {
        if (s->searching)
            pthread_cond_wait(&s->ready, &s->mtx);
        else
            grant_locked(s);
    }
    pthread_mutex_unlock(&s->mtx);
}

/* nothing_left - outside of its group at least */
static bool nothing_left(const struct process_tree_of *of)
{
    return subreaper_none_but(of->known, of->known_count);
}

/* process_tree_end - grace, SIGKILL, sweep
 * The leader may have moved to another group, so it is killed by its number as
 * well, which is not free before it is reaped.
 */
void process_tree_end(struct process_tree *s, const struct process_tree_of *of)
{
    struct pollfd leader = {.fd = of->end, .events = POLLIN};
    int fd = of->stderr_fd;

    if ((of->end < 0 || wait_for(s, of, of->end, &fd)) &&
        clock_ms_until(of->kill_at_ns) != 0 && !nothing_left(of))
        grace(s, of, &fd);
    kill(-of->group, SIGKILL);
    kill(of->group, SIGKILL);
    while (of->end >= 0 && !leader.revents)
        (void)poll(&leader, 1, -1);
    if (!nothing_left(of))
        sweep(s, of);
}

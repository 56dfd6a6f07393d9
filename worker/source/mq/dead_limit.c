/* dead_limit.c - --keep-dead and --max-dead (see dead_limit.h) */
#include "worker/source/mq/dead_limit.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sysexits.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/store/letters.h"
#include "worker/config/settings.h"
#include "worker/loop/chore.h"
#include "worker/loop/dirty.h"
#include "worker/source/mq/due_rows.h"

#define PAUSE_NS (100 * NS_PER_MS) /* letters that die together go together */

/* c = constant after open */
struct dead_limit {
    struct dead_limit_setup with; /* c */
    struct chore chore;
};

/* One run. */
struct pass {
    uint64_t keep_ns, now_ns; /* wall */
    uint64_t over;            /* so many are too many */
    uint64_t next_ns;         /* wall; when the next one is too old */
    struct store_cursor old[STORE_PAGE];
    size_t count, aged; /* of these, those that are too old */
};

/* off - nothing is ever removed */
static bool off(const struct settings *set)
{
    return set->keep_dead_ns == UINT64_MAX && set->max_dead == 0;
}

/* begin - what is too old and how many are too many; counting reads the index
 * of all letters, so it is left out where no number is set */
static int begin(const struct dead_limit *l, struct pass *p)
{
    uint64_t most = l->with.set->max_dead;
    int64_t there;

    *p = (struct pass){.keep_ns = l->with.set->keep_dead_ns,
                       .now_ns = clock_wall_ns(),
                       .next_ns = UINT64_MAX};
    if (most == 0)
        return 0;
    there = store_count(l->with.store, STORE_DEAD);
    if (there > 0 && (uint64_t)there > most)
        p->over = (uint64_t)there - most;
    return there < 0 ? (int)there : 0;
}

/* choose - of a page, oldest first; false: those that follow stay */
static bool choose(const struct dead_limit *l, struct pass *p,
                   const struct store_cursor *page, int n)
{
    p->count = p->aged = 0;
    for (int i = 0; i < n; i++) {
        uint64_t end_ns = ns_add(page[i].ns, p->keep_ns);

        if (due_rows_is_claimed(l->with.due_rows, page[i].row))
            continue;
        if (end_ns > p->now_ns && p->over == 0) {
            p->next_ns = end_ns;
            return false;
        }
        p->aged += end_ns <= p->now_ns;
        p->over -= p->over > 0;
        p->old[p->count++] = page[i];
    }
    return true;
}

/* drop - what was chosen */
static int drop(struct dead_limit *l, const struct pass *p)
{
    int64_t gone;

    if (p->count == 0)
        return 0;
    gone = letters_drop(l->with.store, p->old, p->count);
    if (gone <= 0)
        return (int)gone;
    l->with.removed(l->with.arg, (uint64_t)gone);
    dirty_count(l->with.dirty);
    log_info("letters_removed", F_STR("queue", l->with.set->queue),
             F_INT("count", gone), F_UINT("too_old", p->aged),
             F_INT("first", p->old[0].row),
             F_INT("last", p->old[p->count - 1].row));
    return 0;
}

/* run - page by page, and look again when the next one is too old */
static int run(struct chore *chore)
{
    struct dead_limit *l = CONTAINER_OF(chore, struct dead_limit, chore);
    struct store_cursor page[STORE_PAGE], after = {0};
    struct pass p;
    bool more = !off(l->with.set);
    int err = more ? begin(l, &p) : 0;

    while (more && !err) {
        int n = letters_deaths(l->with.store, &after, page);

        more = n > 0 && choose(l, &p, page, n);
        err = n < 0 ? n : n > 0 ? drop(l, &p) : 0;
        if (n > 0)
            after = page[n - 1];
    }
    if (!err && !off(l->with.set) && p.next_ns != UINT64_MAX)
        chore_after(chore, p.next_ns - p.now_ns);
    return err;
}

static void tell(struct chore *chore, int err)
{
    const struct dead_limit *l = CONTAINER_OF(chore, struct dead_limit, chore);

    if (err)
        log_error("letters_not_removed", F_STR("queue", l->with.set->queue),
                  F_STR("error", errno_text(-err)),
                  F_STR("next", "they stay in the store, and it is tried "
                                "again; look at the disk of the store"));
}

void dead_limit_wake(struct dead_limit *l)
{
    if (l && !off(l->with.set))
        chore_after(&l->chore, PAUSE_NS);
}

int dead_limit_open(struct dead_limit **out,
                    const struct dead_limit_setup *setup, struct problem *p)
{
    struct dead_limit *l = *out = calloc(1, sizeof *l);

    if (!l)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    l->with = *setup;
    l->chore = (struct chore){.run = run,
                              .tell = tell,
                              .first_ns = NS_PER_S,
                              .most_ns = 30 * NS_PER_S,
                              .timers = setup->timers,
                              .pool = setup->pool};
    chore_init(&l->chore);
    return 0;
}

void dead_limit_close(struct dead_limit **limit)
{
    struct dead_limit *l = *limit;

    if (!l)
        return;
    *limit = NULL;
    timers_cancel_sync(l->with.timers, &l->chore.timer);
    free(l);
}

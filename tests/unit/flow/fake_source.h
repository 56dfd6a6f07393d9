/* fake_source.h - a source in memory
 *
 * WHAT   Does what source.h says, and what a real source does seldom: it
 *        refuses to settle, settles late, loses claims, gives a message twice.
 *        It keeps the promise of every source and holds flow to its part: what
 *        is not lent is not settled, what was settled without a lane is
 *        released once.
 * WHO    Tests of flow: include it in the test's one file. One thread at a
 *        time, or under fake.mtx as the calls of flow are.
 * OWNS   Its messages, for ever.
 * FAILS  By ending the test.
 */
#ifndef TESTS_UNIT_FLOW_FAKE_SOURCE_H
#define TESTS_UNIT_FLOW_FAKE_SOURCE_H

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "worker/source/source.h"

enum { FAKE_MOST = 512, FAKE_LENT = 16, FAKE_LANES = 64 };

enum fake_at { /* where a message is */
               FAKE_NOWHERE,
               FAKE_FRESH,   /* take gives it */
               FAKE_WAITS,   /* take_due gives it, at due_ns */
               FAKE_PARKED,  /* unpark gives it */
               FAKE_LEFT,    /* the owner before had it: recover lends it */
               FAKE_IS_LENT, /* flow has it */
               FAKE_LATE,    /* it is being settled */
               FAKE_GONE,    /* done or discarded */
               FAKE_DEAD,
};

struct fake_message {
    struct message m;
    struct ulid id;
    char text[256], group[64];
    enum fake_at at;
    uint64_t due_ns;
    unsigned lent, runs, settled; /* how often */
    bool running, unreleased;
    bool ran, waits, torn;  /* FAKE_LEFT: what recover says of it */
    struct source_run run;  /* and, if it ran, by what */
    struct settle last;     /* the verdict on it */
    struct settle *pending; /* FAKE_LATE: as flow gave it */
    char error[128];        /* of `last` */
    char tail[64];          /* of its attempt */
    unsigned order;         /* of all that were settled */
};

static struct fake {
    struct source source;
    struct source_ops ops; /* the test may change what it can */
    struct source_events events;
    pthread_mutex_t mtx; /* over all below; not held while an event is told */
    struct fake_message all[FAKE_MOST];
    unsigned count, lent, releases, watches, commits, ended;
    uint64_t seq;
    int fd;                       /* eventfd: readable while one is fresh */
    unsigned refusals;            /* so many settles fail */
    int refused, take_fails, due; /* with this error; `due`: of is_due */
    bool late, at_once;           /* settle late; answer before it returns */
    bool pending;
    int link;         /* enum source_link, or -errno */
    unsigned allowed; /* so many are lent at most */
    int resize_fails; /* with this error */
    bool looked;      /* runs was called: recover may be */
} fake;

static inline struct fake_message *fake_of(struct message *m)
{
    return CONTAINER_OF(m, struct fake_message, m);
}

/* ---- what flow does to a message ---- */

static inline void fake_run(struct message *m, uint64_t started_ns)
{
    struct fake_message *x = fake_of(m);

    cr_assert_eq(x->at, FAKE_IS_LENT, "%s runs, and is not lent", x->text);
    cr_assert(!x->running, "%s runs twice", x->text);
    cr_assert_gt(started_ns, 0);
    x->running = true;
    x->runs++;
}

static inline void fake_handler(struct message *m, uint64_t mark, uint64_t at)
{
    (void)mark, (void)at;
    cr_assert(fake_of(m)->running);
}

static inline void fake_handler_group(struct message *m, pid_t group)
{
    cr_assert(fake_of(m)->running);
    cr_assert_gt(group, 0);
}

static inline void fake_unrun(struct message *m, bool may_have_run)
{
    fake_of(m)->running = false;
    if (may_have_run)
        m->flags |= MESSAGE_REDELIVERED;
}

static const struct message_ops fake_message_ops = {
    .run = fake_run,
    .handler = fake_handler,
    .handler_group = fake_handler_group,
    .unrun = fake_unrun,
};

/* ---- what the test puts in ---- */

static inline struct fake_message *fake_add(const char *text, enum fake_at at)
{
    struct fake_message *x;

    pthread_mutex_lock(&fake.mtx);
    cr_assert_lt(fake.count, FAKE_MOST);
    x = &fake.all[fake.count++];
    *x = (struct fake_message){.at = at};
    snprintf(x->text, sizeof x->text, "%s", text);
    x->m = (struct message){.ops = &fake_message_ops,
                            .data = (const unsigned char *)x->text,
                            .size = strlen(x->text),
                            .id = &x->id,
                            .seq = at == FAKE_FRESH ? 0 : ++fake.seq,
                            .received_ns = 1,
                            .flags = at == FAKE_FRESH ? 0 : MESSAGE_STORED};
    pthread_mutex_unlock(&fake.mtx);
    return x;
}

/* fake_fresh_now - one that was added as FAKE_NOWHERE is to be taken */
static inline void fake_fresh_now(struct fake_message *x)
{
    uint64_t one = 1;

    pthread_mutex_lock(&fake.mtx);
    x->at = FAKE_FRESH;
    x->m.seq = 0;
    x->m.flags = 0;
    cr_assert_eq(write(fake.fd, &one, sizeof one), sizeof one);
    pthread_mutex_unlock(&fake.mtx);
}

/* fake_give - a fresh message */
static inline struct fake_message *fake_give(const char *text)
{
    struct fake_message *x = fake_add(text, FAKE_NOWHERE);

    fake_fresh_now(x);
    return x;
}

/* fake_store - one that waits until `due_ns` (CLOCK_BOOTTIME) */
static inline struct fake_message *fake_store(const char *text, uint64_t due_ns)
{
    struct fake_message *x = fake_add(text, FAKE_NOWHERE);

    pthread_mutex_lock(&fake.mtx);
    x->at = FAKE_WAITS;
    x->due_ns = due_ns;
    pthread_mutex_unlock(&fake.mtx);
    source_due_set(&fake.source, 1);
    return x;
}

/* fake_group - its group, as it was stored with it */
static inline struct fake_message *fake_group(struct fake_message *x,
                                              const char *group)
{
    strncpy(x->group, group, sizeof x->group - 1);
    x->m.group = (struct header_text){x->group, strlen(x->group)};
    return x;
}

/* fake_again - it comes once more, as if its claim had been lost */
static inline struct fake_message *fake_again(const struct fake_message *x)
{
    struct fake_message *copy = fake_give(x->text);

    copy->id = x->id;
    copy->m.flags |= MESSAGE_REDELIVERED;
    return copy;
}

/* ---- lending ---- */

static inline bool fake_index_used(unsigned index)
{
    for (unsigned i = 0; i < fake.count; i++) {
        const struct fake_message *x = &fake.all[i];

        if (x->m.index == index &&
            (x->at == FAKE_IS_LENT || x->at == FAKE_LATE || x->unreleased))
            return true;
    }
    return false;
}

/* fake_lend - 0, or -EAGAIN: as many are lent as may be */
static inline int fake_lend(struct fake_message *x, struct message **out)
{
    unsigned index = 0;

    while (index < fake.allowed && fake_index_used(index))
        index++;
    if (index == fake.allowed)
        return -EAGAIN;
    x->m.index = index;
    if (x->m.seq == 0)
        x->m.seq = ++fake.seq;
    x->at = FAKE_IS_LENT;
    x->lent++;
    x->running = false;
    fake.lent++;
    *out = &x->m;
    return 0;
}

static inline int fake_take(struct source *s, unsigned lane, uint64_t wall_ns,
                            struct message **out)
{
    int err = fake.take_fails;
    uint64_t one;

    cr_assert_eq(s, &fake.source);
    cr_assert_lt(lane, FAKE_LANES);
    fake.pending = false;
    pthread_mutex_lock(&fake.mtx);
    for (unsigned i = 0; !err && i < fake.count; i++)
        if (fake.all[i].at == FAKE_FRESH) {
            err = fake_lend(&fake.all[i], out);
            if (!err) {
                fake.all[i].m.received_ns = wall_ns;
                (void)!read(fake.fd, &one, sizeof one);
            }
            if (!err && (*out)->crashes)
                err = -ECANCELED;
            pthread_mutex_unlock(&fake.mtx);
            return err;
        }
    pthread_mutex_unlock(&fake.mtx);
    return err ? err : -EAGAIN;
}

/* fake_first - of those that wait, the one that is due first */
static inline struct fake_message *fake_first(void)
{
    struct fake_message *first = NULL;

    for (unsigned i = 0; i < fake.count; i++)
        if (fake.all[i].at == FAKE_WAITS &&
            (!first || fake.all[i].due_ns < first->due_ns))
            first = &fake.all[i];
    return first;
}

static inline int fake_take_due(struct source *s, unsigned lane,
                                struct message **out)
{
    struct fake_message *first;
    int err = -EAGAIN;

    cr_assert_eq(s, &fake.source);
    cr_assert_lt(lane, FAKE_LANES);
    pthread_mutex_lock(&fake.mtx);
    first = fake_first();
    if (first && first->due_ns <= clock_boot_ns())
        err = fake_lend(first, out);
    else /* its timer sets it again: fake_tick */
        source_due_clear(s, 1);
    pthread_mutex_unlock(&fake.mtx);
    return err;
}

/* fake_tick - as the source's timer: what is due by now is said to be */
static inline void fake_tick(void)
{
    const struct fake_message *first = fake_first();

    if (first && first->due_ns <= clock_boot_ns()) {
        source_due_set(&fake.source, 1);
        if (fake.events.changed)
            fake.events.changed(fake.events.flow);
    }
}

/* fake_before - the order of a group */
static inline bool fake_before(const struct message *a, const struct message *b,
                               bool low)
{
    if (a->priority != b->priority)
        return (a->priority < b->priority) == low;
    return a->seq < b->seq;
}

static inline int fake_unpark(struct source *s, unsigned lane,
                              struct header_text key, bool low,
                              const struct message *before,
                              struct message **out)
{
    struct fake_message *first = NULL;

    cr_assert_eq(s, &fake.source);
    cr_assert_lt(lane, FAKE_LANES);
    for (unsigned i = 0; i < fake.count; i++) {
        struct fake_message *x = &fake.all[i];

        if (x->at == FAKE_PARKED && strlen(x->group) == key.size &&
            memcmp(x->group, key.at, key.size) == 0 &&
            (!first || fake_before(&x->m, &first->m, low)))
            first = x;
    }
    if (!first)
        return -ENOENT;
    if (before && !fake_before(&first->m, before, low))
        return -EAGAIN;
    return fake_lend(first, out);
}

static inline int fake_link(struct source *s, struct message *m,
                            const struct header *h)
{
    (void)s;
    cr_assert(h->fields & HEADER_LETTER);
    if (fake.link == LINK_LETTER)
        m->flags |= MESSAGE_STORED | MESSAGE_FRONT;
    return fake.link;
}

/* ---- settling ---- */

/* fake_end - it is durable */
static inline void fake_end(struct fake_message *x, const struct settle *s)
{
    static const enum fake_at places[] = {
        [SETTLE_DONE] = FAKE_GONE,   [SETTLE_DISCARD] = FAKE_GONE,
        [SETTLE_RETRY] = FAKE_WAITS, [SETTLE_DEAD] = FAKE_DEAD,
        [SETTLE_PARK] = FAKE_PARKED, [SETTLE_RETURN] = FAKE_WAITS};

    x->at = places[s->kind];
    x->running = false;
    x->settled++;
    x->order = ++fake.ended;
    x->unreleased = s->lane == LANE_NONE;
    fake.lent--;
    x->last = (struct settle){.m = s->m, .kind = s->kind, .lane = s->lane};
    if (s->kind <= SETTLE_DISCARD)
        return; /* nothing else may be read */
    x->last = *s;
    x->due_ns = settle_due(s);
    x->error[0] = '\0';
    if (s->error)
        strncpy(x->error, s->error, sizeof x->error - 1);
    x->last.error = x->error;
    x->m.failures += s->attempt != NULL;
    x->tail[0] = '\0';
    if (s->attempt && s->attempt->stderr_size < sizeof x->tail) {
        memcpy(x->tail, s->attempt->stderr_tail, s->attempt->stderr_size);
        x->tail[s->attempt->stderr_size] = '\0';
    }
    if (s->group.at) {
        memmove(x->group, s->group.at, s->group.size);
        x->group[s->group.size] = '\0';
        x->m.group = (struct header_text){x->group, s->group.size};
    }
    if (x->at == FAKE_WAITS || x->at == FAKE_PARKED)
        x->m.flags |= MESSAGE_STORED;
    if (x->at == FAKE_WAITS)
        source_due_set(&fake.source, 1);
}

/* fake_lost - its claim is gone: it comes again */
static inline void fake_lost(struct fake_message *x)
{
    x->at = FAKE_NOWHERE;
    x->settled++;
    fake.lent--;
}

/* fake_one - how the source answers for one */
static inline int fake_one(struct settle *s)
{
    struct fake_message *x = fake_of(s->m);

    cr_assert_eq(x->at, FAKE_IS_LENT, "%s is settled and not lent", x->text);
    s->err = 0;
    if (atomic_load(&s->m->stale)) {
        fake_lost(x);
        s->err = -ESTALE;
    } else if (fake.refusals > 0) {
        fake.refusals--;
        fake_unrun(s->m, x->running);
        s->err = fake.refused;
    } else if (fake.late && s->kind != SETTLE_PARK) {
        x->at = FAKE_LATE;
        x->pending = s;
        s->err = -EINPROGRESS;
    } else {
        fake_end(x, s);
    }
    return s->err;
}

/* fake_answer - the end of a settle that was late */
static inline void fake_answer(struct fake_message *x, int err)
{
    struct settle *s = x->pending;

    cr_assert_eq(x->at, FAKE_LATE, "%s is not being settled", x->text);
    x->pending = NULL;
    s->err = err;
    if (err == -ESTALE) {
        fake_lost(x);
        fake_again(x);
    } else if (err) {
        x->at = FAKE_IS_LENT;
        fake_unrun(s->m, x->running);
    } else {
        fake_end(x, s);
        x->unreleased = false; /* the source has it back with the event */
    }
    fake.events.settled(fake.events.flow, s);
}

static inline int fake_settle(struct source *source, struct settle *list,
                              size_t n)
{
    struct fake_message *x = fake_of(list[0].m);
    int err = 0;

    cr_assert_eq(source, &fake.source);
    cr_assert(n >= 1 && n <= SETTLE_MOST);
    pthread_mutex_lock(&fake.mtx);
    fake.commits++;
    if (n > 1 && fake.refusals > 0) { /* all or none */
        fake.refusals--;
        for (size_t i = 0; i < n; i++)
            list[i].err = fake.refused;
        err = fake.refused;
    }
    for (size_t i = 0; i < n && !(n > 1 && err); i++) {
        cr_assert(n == 1 || (list[i].lane == LANE_NONE && !list[i].attempt));
        err = fake_one(&list[i]);
    }
    pthread_mutex_unlock(&fake.mtx);
    if (err == -ESTALE)
        fake_again(x);
    if (err == -EINPROGRESS && fake.at_once)
        fake_answer(x, 0);
    return err;
}

static inline void fake_release(struct source *s, struct message *m)
{
    cr_assert_eq(s, &fake.source);
    cr_assert(fake_of(m)->unreleased, "%s is released, and not to be",
              fake_of(m)->text);
    fake_of(m)->unreleased = false;
    fake.releases++;
}

static inline void fake_lane(struct source *s, unsigned lane)
{
    cr_assert_eq(s, &fake.source);
    cr_assert_lt(lane, FAKE_LANES);
}

/* ---- groups ---- */

static inline int fake_letters(struct source *s, struct header_text key)
{
    cr_assert_eq(s, &fake.source);
    for (unsigned i = 0; i < fake.count; i++)
        if (fake.all[i].at == FAKE_DEAD &&
            strlen(fake.all[i].group) == key.size &&
            memcmp(fake.all[i].group, key.at, key.size) == 0)
            return 1;
    return 0;
}

static inline int fake_groups(struct source *s,
                              int (*visit)(void *arg,
                                           const struct source_group *group),
                              void *arg)
{
    struct source_group g[FAKE_MOST] = {0};
    unsigned n = 0, at;
    int err = 0;

    cr_assert_eq(s, &fake.source);
    for (unsigned i = 0; i < fake.count; i++) {
        const struct fake_message *x = &fake.all[i];

        if (!x->m.group.at || x->at < FAKE_WAITS || x->at == FAKE_GONE)
            continue;
        for (at = 0; at < n; at++)
            if (g[at].key.size == x->m.group.size &&
                memcmp(g[at].key.at, x->group, g[at].key.size) == 0)
                break;
        n += at == n;
        g[at].key = x->m.group;
        g[at].parked += x->at == FAKE_PARKED;
        g[at].letters += x->at == FAKE_DEAD;
        if (x->at == FAKE_WAITS && x->m.failures > 0)
            g[at].head = x->m.seq;
    }
    for (at = 0; at < n && !err; at++)
        err = visit(arg, &g[at]);
    return err;
}

static inline void fake_watch(struct source *s, bool soon)
{
    (void)s, (void)soon;
    fake.watches++;
}

/* ---- looking ---- */

static inline bool fake_pending(const struct source *s)
{
    (void)s;
    return fake.pending;
}

static inline unsigned fake_room(const struct source *s)
{
    (void)s;
    return fake.allowed - fake.lent;
}

static inline unsigned fake_lent(const struct source *s)
{
    (void)s;
    return fake.allowed;
}

static inline int fake_resize(struct source *s, unsigned lent,
                              struct problem *p)
{
    (void)s;
    if (fake.resize_fails)
        return problem_set(p, 71, fake.resize_fails, "no room for %u", lent);
    cr_assert_leq(lent, FAKE_LENT);
    fake.allowed = lent;
    return 0;
}

static inline long fake_in(enum fake_at at)
{
    long n = 0;

    for (unsigned i = 0; i < fake.count; i++)
        n += fake.all[i].at == at;
    return n;
}

static inline long fake_fresh(const struct source *s)
{
    (void)s;
    return fake_in(FAKE_FRESH);
}

static inline uint64_t fake_waits(const struct source *s)
{
    (void)s;
    return (uint64_t)(fake_in(FAKE_WAITS) + fake_in(FAKE_PARKED));
}

static inline int fake_is_due(struct source *s)
{
    const struct fake_message *first = fake_first();

    (void)s;
    return fake.due                                    ? fake.due
           : first && first->due_ns <= clock_boot_ns() ? 1
                                                       : 0;
}

/* ---- from one owner to the next ---- */

/* fake_leave - one that the owner before had when it died */
static inline struct fake_message *fake_leave(const char *text, bool ran)
{
    struct fake_message *x = fake_add(text, FAKE_LEFT);

    x->ran = ran;
    x->m.flags = 0;
    return x;
}

static inline int fake_runs(struct source *s,
                            void (*visit)(void *arg,
                                          const struct source_run *run),
                            void *arg, struct problem *p)
{
    (void)s, (void)p;
    fake.looked = true;
    for (unsigned i = 0; i < fake.count; i++)
        if (fake.all[i].at == FAKE_LEFT && fake.all[i].ran)
            visit(arg, &fake.all[i].run);
    return 0;
}

static inline int
fake_recover(struct source *s,
             int (*visit)(void *arg, const struct source_left *left), void *arg)
{
    struct message *m = NULL;
    unsigned ran = 0;
    int err = 0;

    (void)s;
    cr_assert(fake.looked, "what ran is ended first");
    for (unsigned i = 0; i < fake.count; i++)
        ran += fake.all[i].at == FAKE_LEFT && fake.all[i].ran;
    for (unsigned i = 0; i < fake.count && !err; i++) {
        struct fake_message *x = &fake.all[i];

        if (x->at != FAKE_LEFT)
            continue;
        cr_assert_eq(fake_lend(x, &m), 0);
        m->crashes += x->ran;
        m->flags |= (x->ran ? MESSAGE_REDELIVERED : 0) |
                    (x->ran && ran == 1 ? MESSAGE_CRASHED_ALONE : 0) |
                    (x->waits ? MESSAGE_STORED : 0);
        err = visit(arg, &(struct source_left){.m = m,
                                               .ran = x->ran,
                                               .waits = x->waits,
                                               .torn = x->torn});
    }
    return err;
}

static inline int fake_keep(struct source *s,
                            int (*place)(void *arg, struct message *m,
                                         bool half, struct settle *out),
                            void *arg)
{
    struct settle to[FAKE_LENT] = {{0}};
    unsigned n = 0;
    int err = 0, is;

    (void)s;
    for (unsigned i = 0; i < fake.count; i++)
        if (fake.all[i].at == FAKE_IS_LENT) {
            to[n] = (struct settle){.m = &fake.all[i].m, .lane = LANE_NONE};
            fake_unrun(to[n].m, fake.all[i].running);
            is = place(arg, to[n].m, false, &to[n]);
            err = is < 0 && !err ? is : err;
            n += is == PLACE_WAITS;
        }
    for (unsigned i = 0; i < n && !err; i++) {
        cr_assert(to[i].kind == SETTLE_RETRY || to[i].kind == SETTLE_PARK);
        fake_end(fake_of(to[i].m), &to[i]);
        fake_of(to[i].m)->unreleased = false;
    }
    return err;
}

static inline int fake_done(struct source *s, struct message *m, unsigned lane)
{
    struct settle one = {.m = m, .kind = SETTLE_DONE, .lane = lane};

    return fake_settle(s, &one, 1);
}

/* fake_claim - it has no keys */
static inline int fake_claim(struct source *s, const struct message *m,
                             struct header_text key, uint64_t ns,
                             struct ulid *first)
{
    (void)s, (void)m, (void)key, (void)ns, (void)first;
    return -EOPNOTSUPP;
}

static inline uint64_t fake_next_seq(const struct source *s)
{
    (void)s;
    return 0;
}

static inline bool fake_queued(const struct source *s, int64_t number)
{
    (void)s, (void)number;
    return false;
}

static inline void fake_tuned(struct source *s)
{
    (void)s;
}

static const struct source_ops fake_ops = {
    .name = "fake",
    .take = fake_take,
    .take_due = fake_take_due,
    .settle = fake_settle,
    .release = fake_release,
    .rest = fake_lane,
    .pending = fake_pending,
    .room = fake_room,
    .fresh = fake_fresh,
    .is_due = fake_is_due,
    .lent = fake_lent,
    .resize = fake_resize,
    .tuned = fake_tuned,
    .runs = fake_runs,
    .recover = fake_recover,
};

static const struct source_local_ops fake_local_ops = {
    .done = fake_done,
    .warm = fake_lane,
    .link = fake_link,
    .claim = fake_claim,
    .unpark = fake_unpark,
    .groups = fake_groups,
    .letters = fake_letters,
    .watch = fake_watch,
    .next_seq = fake_next_seq,
    .queued = fake_queued,
    .waits = fake_waits,
    .keep = fake_keep,
};

static inline struct source *fake_open(void)
{
    memset(&fake, 0, sizeof fake);
    fake.ops = fake_ops;
    fake.source.ops = &fake.ops;
    fake.source.local = &fake_local_ops;
    atomic_store(&fake.source.timeout_most_ns, UINT64_MAX);
    fake.source.lanes = FAKE_LANES;
    fake.source.lent_most = fake.allowed = FAKE_LENT;
    pthread_mutex_init(&fake.mtx, NULL);
    fake.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
    cr_assert_geq(fake.fd, 0);
    fake.source.poll_fd = fake.fd;
    return &fake.source;
}

/* fake_close - what was settled without a lane was released */
static inline void fake_close(void)
{
    for (unsigned i = 0; i < fake.count; i++)
        cr_assert(!fake.all[i].unreleased, "%s was not released",
                  fake.all[i].text);
    close(fake.fd);
    pthread_mutex_destroy(&fake.mtx);
}

#endif

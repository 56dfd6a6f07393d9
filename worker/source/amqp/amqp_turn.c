/* amqp_turn.c - whether one may be lent now (see amqp_inner.h) */
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/source/amqp/amqp_inner.h"

#define STUCK_NS NS_PER_S /* a suspect may wait so long in silence */

bool amqp_suspect(const struct source_amqp *q, const struct amqp_message *m)
{
    return crashes_suspect(m->m.crashes, q->set->max_crashes);
}

/* none_runs - nor can begin to: each lent message has its verdict on the way,
 * or waits behind a head that waits in hand */
static bool none_runs(const struct source_amqp *q)
{
    const struct amqp_message *m;

    if (q->lent_count == q->late_count)
        return true;
    TAILQ_FOREACH (m, &q->lent, link)
        if (m->at == AMQP_LENT && !amqp_behind_head(q, m))
            return false;
    return true;
}

/* amqp_may_lend - behind a suspect all wait until it has its verdict, and it
 * waits for those that run */
bool amqp_may_lend(const struct source_amqp *q, const struct amqp_message *m)
{
    return m && !q->alone && (!amqp_suspect(q, m) || none_runs(q));
}

/* next - the first that has arrived; but a suspect behind a head in hand would
 * wait for the head, and that for the suspect's verdict. So it, and all behind
 * a head, come later. */
static struct amqp_message *next(const struct source_amqp *q)
{
    struct amqp_message *m = TAILQ_FIRST(&q->arrived);

    if (!m || !amqp_suspect(q, m) || !amqp_behind_head(q, m))
        return m;
    TAILQ_FOREACH (m, &q->arrived, link)
        if (!amqp_behind_head(q, m))
            return m;
    return NULL;
}

/* amqp_may_take - a suspect that is due would wait for ever if more were
 * lent */
struct amqp_message *amqp_may_take(const struct source_amqp *q)
{
    const struct amqp_message *due = TAILQ_FIRST(&q->due);
    struct amqp_message *m = next(q);

    return (!due || !amqp_suspect(q, due)) && amqp_may_lend(q, m) ? m : NULL;
}

/* ---- a suspect that has to wait ---- */

void amqp_suspect_count(struct source_amqp *q, const struct amqp_message *m,
                        bool more)
{
    if (amqp_suspect(q, m))
        q->suspects += more ? 1U : -1U;
}

/* stuck - the suspect that would be lent now, if no other message ran; NULL:
 * none. mtx is held */
static const struct amqp_message *stuck(const struct source_amqp *q)
{
    const struct amqp_message *m = TAILQ_FIRST(&q->due);

    if (q->alone)
        return NULL;
    if (!m || !amqp_suspect(q, m))
        m = next(q);
    return m && amqp_suspect(q, m) && !none_runs(q) ? m : NULL;
}

/* stuck_track - which one waits now, and since when; NULL: none. The inbox says
 * that it does, so it is woken where another one waits. mtx is held */
static const struct amqp_message *stuck_track(struct source_amqp *q)
{
    bool may_be = q->suspects > 0 || !TAILQ_EMPTY(&q->due);
    const struct amqp_message *m = may_be ? stuck(q) : NULL;

    if (!m) {
        q->stuck_ns = 0;
        return NULL;
    }
    if (q->stuck_ns != 0 && memcmp(&q->stuck, &m->id, sizeof m->id) == 0)
        return m;
    q->stuck = m->id;
    q->stuck_ns = clock_mono_ns();
    q->stuck_said = false;
    side_wake(&q->inbox);
    return m;
}

static void stuck_say(const struct source_amqp *q, struct ulid id,
                      uint32_t crashes, unsigned running)
{
    char text[ULID_TEXT];

    log_warn("suspect_waits", F_STR("queue", q->operand->shown),
             F_STR("msg", ulid_print(id, text)), F_UINT("crashes", crashes),
             F_UINT("running", running),
             F_STR("next", "a worker died while it ran, so it is to run alone: "
                           "it waits until those that run are done, and no "
                           "other one begins; --timeout ends those that "
                           "hang"));
}

uint64_t amqp_suspect_look(struct source_amqp *q)
{
    uint64_t now = clock_mono_ns(), left = UINT64_MAX;
    const struct amqp_message *m;
    uint32_t crashes = 0;
    struct ulid id;
    unsigned running;
    bool say;

    pthread_mutex_lock(&q->mtx);
    m = stuck_track(q);
    if (m && !q->stuck_said)
        left = q->stuck_ns + STUCK_NS > now ? q->stuck_ns + STUCK_NS - now : 0;
    say = left == 0;
    if (say) {
        q->stuck_said = true;
        id = m->id;
        crashes = m->m.crashes;
    }
    running = q->lent_count - q->late_count;
    pthread_mutex_unlock(&q->mtx);
    if (!say)
        return left;
    stuck_say(q, id, crashes, running);
    return UINT64_MAX;
}

/* ---- what changes it all ---- */

bool amqp_ready_locked(struct source_amqp *q)
{
    uint64_t n = 1;
    bool is = amqp_may_take(q) != NULL;
    bool due = amqp_may_lend(q, TAILQ_FIRST(&q->due));

    if (is != q->ready_said && is)
        (void)!write(q->ready_fd, &n, sizeof n);
    else if (is != q->ready_said)
        (void)!read(q->ready_fd, &n, sizeof n);
    q->ready_said = is;
    (void)stuck_track(q);
    if (due == source_due(&q->source))
        return false;
    if (due)
        source_due_set(&q->source, 1);
    else
        source_due_clear(&q->source, 1);
    return due;
}

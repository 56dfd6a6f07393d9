/* mqctl_move.c - one POSIX queue to a queue on a broker (see mqctl_move.h) */
#include "scripts/mqctl/amqp/mqctl_move.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/errno_text.h"
#include "common/state/state_forget.h"
#include "common/text/cli_interrupt.h"
#include "common/text/complain.h"
#include "common/text/json_line.h"
#include "common/waiting/waiting.h"

#define CONFIRM_NS (30 * NS_PER_S) /* for a confirm */

static const char *const froms[MOVE_FROM_COUNT] = {
    [MOVE_CUSTODY] = "in custody",   [MOVE_SPOOL] = "in the spool",
    [MOVE_QUEUE] = "in the queue",   [MOVE_WAITING] = "waiting",
    [MOVE_LETTERS] = "dead letters",
};
static const char *const keys[MOVE_FROM_COUNT] = {
    [MOVE_CUSTODY] = "custody", [MOVE_SPOOL] = "spool",
    [MOVE_QUEUE] = "queue",     [MOVE_WAITING] = "waiting",
    [MOVE_LETTERS] = "letters",
};

/* ---- before ---- */

static int group_visit(const struct waiting_row *w, void *arg)
{
    struct ulid *id = arg;

    if (!w->m.group)
        return 0;
    *id = w->m.id;
    return 1;
}

/* groups_check - nothing is sent of a queue whose groups wait in the store */
static int groups_check(struct move *m, struct problem *p)
{
    const struct waiting_filter all = {.states = WAITING_ALL};
    const struct waiting_place first = {0};
    struct move_message msg = {0};
    int n = m->store
                ? waiting_each(m->store, &all, &first, group_visit, &msg.id)
                : 0;

    if (n < 0)
        return problem_set(p, EX_CANTCREAT, -n,
                           "the store of %s cannot be read: %s", m->v.queue,
                           errno_text(-n));
    return n ? move_grouped(m, &msg, p) : 0;
}

/* idle_check - that no worker has it, nor has been killed with messages */
static int idle_check(const struct move *m, struct problem *p)
{
    const struct snapshot *v = &m->v;

    if (v->shut)
        return problem_set(p, v->no_live.status, EACCES, "%s", v->no_live.text);
    if (!v->has_queue && v->no_queue.status != EX_NOINPUT)
        return problem_set(p, v->no_queue.status, EACCES, "%s",
                           v->no_queue.text);
    if (!v->has_queue && !v->has_folder)
        return problem_set(p, EX_NOINPUT, ENOENT, "%s", v->no_queue.text);
    if (!v->has_queue && v->custody > 0)
        return problem_set(p, EX_NOINPUT, ENOENT,
                           "%" PRId64 " messages of %s are in custody, and "
                           "the queue is gone: mqctl create %s, and try again",
                           v->custody, v->queue, v->queue);
    if (v->worker == SNAPSHOT_RUNS)
        return problem_set(p, EX_UNAVAILABLE, EBUSY,
                           "worker %d runs on %s: end it first, with mqctl "
                           "drain --wait %s",
                           (int)v->pid, v->queue, v->queue);
    if (v->worker == SNAPSHOT_UNSEEN)
        return problem_set(p, v->no_live.status, EACCES,
                           "cannot see whether a worker runs on %s: %s",
                           v->queue, v->no_live.text);
    if (v->worker == SNAPSHOT_KILLED)
        return problem_set(p, EX_UNAVAILABLE, EBUSY,
                           "the last worker of %s was killed, and may have "
                           "messages and handlers left: start it once, and "
                           "drain it: mqctl drain --wait %s",
                           v->queue, v->queue);
    return 0;
}

static int store_find(struct move *m, struct problem *p)
{
    char path[PATH_MAX];
    int err = statedir_path(&m->dir, STATEDIR_STORE, path, p);

    if (!err)
        err = store_open(&m->store, path, false, p);
    return err == -ENOENT ? 0 : err;
}

static bool stop(void)
{
    return cli_interrupt_seen() != 0;
}

static int connect_to(struct move *m, struct problem *p)
{
    const struct options *o = m->o;
    const struct publisher_setup setup = {
        .link = {.operand = &m->to,
                 .password = m->password,
                 .tls_ca = o->tls_ca,
                 .tls_cert = o->tls_cert,
                 .tls_key = o->tls_key,
                 .name = "mqctl move"},
        .topology = m->topology,
        .create = true,
        .wait_ns = CONFIRM_NS,
        .stop = stop,
    };
    int err = broker_password_find(m->password, &m->to, o->password_file, p);

    return err ? err : publisher_open(&m->publisher, &setup, p);
}

/* ---- all ---- */

/* parts_move - the oldest first, as far as that can be told */
static int parts_move(struct move *m, struct problem *p)
{
    int err = groups_check(m, p);

    if (!err && m->store)
        err = move_spool(m, p);
    if (!err && m->v.has_queue)
        err = move_queue(m, p);
    if (!err && m->store)
        err = move_waiting(m, p);
    if (!err && m->store && m->o->letters)
        err = move_letters(m, p);
    return err;
}

/* locked - a worker that is started now is refused */
static int locked(struct move *m, struct problem *p)
{
    struct state_forget lock;
    int err = statedir_open(&m->dir, m->o->state_dir, m->v.queue, true, p);

    if (!err)
        err = state_forget_open(&lock, &m->dir, p);
    if (err == -ENOENT)
        return problem_set(p, EX_UNAVAILABLE, ENOENT,
                           "%s was removed just now: try again", m->dir.folder);
    if (err)
        return err;
    err = store_find(m, p);
    if (!err)
        err = connect_to(m, p);
    if (!err) {
        if (!m->o->quiet && !m->o->json)
            term_progress_start(&m->bar, "moved", 0);
        err = parts_move(m, p);
    }
    term_progress_end(&m->bar);
    publisher_close(&m->publisher);
    for (size_t i = 0; i < MOVE_BATCH; i++)
        envelope_made_free(&m->batch[i]);
    store_close(&m->store);
    state_forget_close(&lock);
    return err;
}

static void as_json(const struct move *m)
{
    json_t *all = json_pack("{s:s, s:s, s:I}", "queue", m->v.queue, "to",
                            m->to.shown, "moved", (json_int_t)m->total);

    for (size_t i = 0; i < MOVE_FROM_COUNT; i++)
        json_object_set_new(all, keys[i],
                            json_integer((json_int_t)m->moved[i]));
    (void)json_print_line(all, stdout);
}

/* told - what came of it, also if it was cut short */
static void told(const struct move *m, bool whole)
{
    const char *q = m->v.queue;

    if (m->o->json) {
        as_json(m);
        return;
    }
    if (m->o->quiet)
        return;
    printf("moved %" PRIu64 " messages of %s to %s", m->total, q, m->to.shown);
    for (size_t i = 0, n = 0; i < MOVE_FROM_COUNT; i++)
        if (m->moved[i])
            printf("%s%" PRIu64 " %s", n++ ? ", " : ": ", m->moved[i],
                   froms[i]);
    putchar('\n');
    if (m->own)
        complain(0,
                 "%" PRIu64 " had attempts, a backoff or a key of their own, "
                 "which a queue on a broker does not know",
                 m->own);
    if (m->grouped)
        complain(0,
                 "%" PRIu64 " dead letters of groups stay here, as groups need "
                 "a POSIX queue: mqdlq list --by group %s",
                 m->grouped, q);
    if (whole && m->v.dead > 0 && !m->o->letters)
        complain(0,
                 "%" PRId64 " dead letters stay here; mqctl move --letters "
                 "takes them along",
                 m->v.dead);
}

int move_run(const struct options *o)
{
    static struct move m;
    struct problem p = {0};
    int err;

    m.o = o;
    m.topology.operand = &m.to;
    cli_interrupt_catch();
    (void)gethostname(m.machine, sizeof m.machine - 1);
    if (broker_operand_parse(&m.to, o->line.operands[1], &p) < 0 ||
        snapshot_open(&m.v, o->state_dir, o->line.operands[0], false, &p) < 0)
        return complain_of(&p);
    err = idle_check(&m, &p);
    if (!err) {
        err = locked(&m, &p);
        if (!err || m.total)
            told(&m, !err);
    }
    explicit_bzero(m.password, sizeof m.password);
    snapshot_close(&m.v);
    if (!err)
        return 0;
    fflush(stdout);
    complain_of(&p);
    cli_interrupt_die();
    return p.status;
}

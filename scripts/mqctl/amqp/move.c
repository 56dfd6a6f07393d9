/* move.c - one POSIX queue to a queue on a broker (see move.h) */
#include "scripts/mqctl/amqp/move.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/folder.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/cli/complain.h"
#include "common/cli/json_line.h"
#include "common/cli/term.h"
#include "common/state/counters.h"
#include "common/state/runtimedir.h"
#include "common/state/state_forget.h"
#include "common/state/worker_lock.h"
#include "common/store/waiting.h"

#define CONFIRM_NS (30 * NS_PER_S) /* for a confirm */

static const char *const froms[MOVE_FROM_COUNT] = {
    [MOVE_QUEUE] = "in the queue",
    [MOVE_WAITING] = "waiting",
    [MOVE_LETTERS] = "dead letters",
};
static const char *const keys[MOVE_FROM_COUNT] = {
    [MOVE_QUEUE] = "queue",
    [MOVE_WAITING] = "waiting",
    [MOVE_LETTERS] = "letters",
};

/* ---- before ---- */

/* group_visit - visit: the first message that has a group */
static int group_visit(const struct waiting_row *w, void *arg)
{
    struct ulid *id = arg;

    if (!w->m.group)
        return 0;
    *id = w->m.id;
    return VISIT_ENOUGH;
}

/* groups_check - nothing is sent of a queue whose groups wait in the store */
static int groups_check(struct move *m, struct problem *p)
{
    const struct waiting_filter all = {.states = WAITING_ALL};
    const struct waiting_place first = {0};
    struct ulid id;
    int n = waiting_each(m->store, &all, &first, group_visit, &id);

    if (n < 0)
        return problem_set(p, EX_CANTCREAT, -n,
                           "the store of %s cannot be read: %s", m->v.queue,
                           errno_text(-n));
    return n == VISIT_ENOUGH ? move_grouped(m, &id, p) : 0;
}

static int killed(const struct move *m, struct problem *p)
{
    return problem_set(p, EX_UNAVAILABLE, EBUSY,
                       "the last worker of %s was killed, and may have "
                       "messages and handlers left: start it once, and drain "
                       "it: mqctl drain --wait %s",
                       m->v.queue, SHELL_QUEUE(m->v.queue));
}

/* in_use - by the holder of the lock: only a worker says who it is */
static int in_use(const struct move *m, struct problem *p)
{
    const char *queue = m->v.queue;
    pid_t pid = 0;

    (void)worker_lock_find(m->o->state_dir, queue, &pid, NULL);
    if (pid)
        return problem_set(
            p, EX_UNAVAILABLE, EBUSY,
            "worker %d is running on %s: end it first, with mqctl "
            "drain --wait %s",
            (int)pid, queue, SHELL_QUEUE(queue));
    return problem_set(p, EX_UNAVAILABLE, EBUSY,
                       "a worker that starts or ends, or another mqctl move, "
                       "has %s: try again when that is done",
                       queue);
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
    if (v->worker == SNAPSHOT_RUNS)
        return in_use(m, p);
    if (v->worker == SNAPSHOT_UNSEEN)
        return problem_set(p, v->no_live.status, EACCES,
                           "cannot see whether a worker runs on %s: %s",
                           v->queue, v->no_live.text);
    return v->worker == SNAPSHOT_KILLED ? killed(m, p) : 0;
}

/* owner_check - files that a move makes are of the user that the worker has */
static int owner_check(const struct move *m, struct problem *p)
{
    char user[FOLDER_USER];
    struct stat st;

    if (stat(m->dir.folder, &st) == 0 && st.st_uid != geteuid())
        return problem_set(
            p, EX_NOPERM, EPERM,
            "%s belongs to %s: run mqctl move as that user, like its worker",
            m->dir.folder, folder_user(st.st_uid, user));
    return 0;
}

/* ended_check - the same with the lock, as a worker may have come and gone
 * since: it takes its pidfile away as the last thing it does */
static int ended_check(struct move *m, struct problem *p)
{
    struct counters *counters;
    struct counters_header head = {0};
    struct problem ignored;
    struct stat st;
    char path[PATH_MAX];
    int err = statedir_path(&m->dir, STATEDIR_PIDFILE, path, p);

    if (err)
        return err;
    if (lstat(path, &st) == 0)
        return killed(m, p);
    if (runtimedir_file(&m->dir, RUNTIMEDIR_COUNTERS, path, &ignored) < 0 ||
        counters_attach(&counters, path, &ignored) < 0)
        return 0; /* custody tells */
    counters_header(counters, &head);
    counters_close(&counters);
    m->commits = head.gauges[COUNTERS_COMMITS];
    return head.gauges[COUNTERS_ENDED_NS] ? 0 : killed(m, p);
}

static bool stop(void *arg)
{
    (void)arg;
    return cli_interrupt_seen() != 0;
}

static int connect_to(struct move *m, struct problem *p)
{
    const struct options *o = m->o;
    const struct publisher_setup setup = {
        .link = {.operand = &m->to,
                 .password = m->password,
                 .tls = o->access.tls,
                 .name = "mqctl move"},
        .topology = m->topology,
        .create = true,
        .wait_ns = CONFIRM_NS,
        .stop = stop,
    };
    int err =
        broker_password_find(m->password, &m->to, o->access.password_file, p);

    return err ? err : publisher_open(&m->publisher, &setup, p);
}

/* ---- all ---- */

/* queue_move - until the queue and the spool are both empty; a program that
 * sends meanwhile sends to where nobody will be */
static int queue_move(struct move *m, struct intake *in, struct problem *p)
{
    int n;

    do {
        n = intake_some(in, p);
        if (n >= 0) {
            int err = move_spool(m, p);

            n = err ? err : n;
        }
    } while (n > 0);
    return n;
}

/* parts_move - the oldest first, as far as that can be told */
static int parts_move(struct move *m, struct intake *in, struct problem *p)
{
    int err = groups_check(m, p);

    if (!err)
        err = queue_move(m, in, p);
    if (!err)
        err = move_waiting(m, p);
    if (!err && m->o->letters)
        err = move_letters(m, p);
    return err;
}

/* locked - a worker that is started now is refused, as is another move */
static int locked(struct move *m, struct problem *p)
{
    struct intake *in = NULL;
    struct state_forget lock;
    int err = statedir_open(&m->dir, m->o->state_dir, m->v.queue, true, p);

    if (!err)
        err = state_forget_open(&lock, &m->dir, p);
    if (err == -ENOENT)
        return problem_set(p, EX_UNAVAILABLE, ENOENT,
                           "%s was removed just now: try again", m->dir.folder);
    if (err)
        return err;
    err = owner_check(m, p);
    if (!err)
        err = ended_check(m, p);
    if (!err)
        err = intake_open(&in, m, p);
    if (!err) {
        if (!m->o->quiet && !m->o->json)
            term_progress_start(&m->bar, "moved", 0);
        err = parts_move(m, in, p);
    }
    if (!err)
        m->elsewhere = store_count(m->store, STORE_REPLAYED);
    term_progress_end(&m->bar);
    intake_close(&in);
    store_close(&m->store);
    state_forget_close(&lock);
    return err;
}

static int connected(struct move *m, struct problem *p)
{
    int err = connect_to(m, p);

    if (!err)
        err = locked(m, p);
    publisher_close(&m->publisher);
    for (size_t i = 0; i < MOVE_BATCH; i++)
        envelope_made_free(&m->batch[i]);
    return err;
}

static void as_json(const struct move *m)
{
    json_t *all =
        json_pack("{s:o, s:s, s:I}", "queue", json_printable(m->v.queue), "to",
                  m->to.shown, "moved", (json_int_t)m->total);
    const struct {
        const char *key;
        uint64_t n;
    } rest[] = {{"own", m->own},
                {"inferred", m->inferred},
                {"copies", m->over},
                {"cancelled", m->cancelled},
                {"repeats", m->repeats},
                {"elsewhere", m->elsewhere > 0 ? (uint64_t)m->elsewhere : 0},
                {"grouped", m->grouped},
                {"untold", m->untold}};

    for (size_t i = 0; i < MOVE_FROM_COUNT; i++)
        json_object_set_new(all, keys[i],
                            json_integer((json_int_t)m->moved[i]));
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
        json_object_set_new(all, rest[i].key,
                            json_integer((json_int_t)rest[i].n));
    (void)json_print_line(all, stdout);
}

/* told_unsent - what came to its end here */
static void told_unsent(const struct move *m)
{
    if (m->over)
        complain(0,
                 "%" PRIu64 " were copies of dead letters that are settled: "
                 "not sent",
                 m->over);
    if (m->cancelled)
        complain(0, "%" PRIu64 " were cancelled: not sent", m->cancelled);
    if (m->repeats)
        complain(0,
                 "%" PRIu64 " repeated the unique key of another message: not "
                 "sent",
                 m->repeats);
    if (m->inferred)
        complain(0,
                 "%" PRIu64
                 " were received when a worker was killed, and their length "
                 "was inferred (docs/formats/custody.md), which cannot be "
                 "noted in a message on a broker",
                 m->inferred);
}

/* told_stays - what is here still */
static void told_stays(const struct move *m)
{
    if (m->elsewhere > 0)
        complain(0,
                 "%" PRId64 " dead letter%s sent again, and not here any more: "
                 "mqdlq list --replayed %s",
                 m->elsewhere, m->elsewhere == 1 ? " was" : "s were",
                 SHELL_QUEUE(m->v.queue));
    if (m->grouped)
        complain(0,
                 "%" PRIu64
                 " dead letter%s here, of a group, as a move does not "
                 "keep their order: mqdlq list --by group %s",
                 m->grouped, m->grouped == 1 ? " stays" : "s stay",
                 SHELL_QUEUE(m->v.queue));
    if (m->untold)
        complain(0,
                 "%" PRIu64
                 " dead letter%s here, because --on-dead has not run yet: "
                 "start the worker of %s, drain it, then move again",
                 m->untold, m->untold == 1 ? " stays" : "s stay", m->v.queue);
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
    printf("moved %" PRIu64 " message%s of %s to %s", m->total,
           term_plural(m->total), q, m->to.shown);
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
    told_unsent(m);
    told_stays(m);
    if (whole && m->v.dead > 0 && !m->o->letters)
        complain(
            0,
            "%" PRId64
            " dead letter%s here; mqctl move --letters moves these as well",
            m->v.dead, m->v.dead == 1 ? " stays" : "s stay");
}

int move_broker_run(const struct options *o)
{
    static struct move m;
    struct problem p = {0};
    int err;

    m.o = o;
    m.topology.operand = &m.to;
    m.topology.partitions = (unsigned)o->access.partitions;
    cli_interrupt_catch();
    (void)gethostname(m.machine, sizeof m.machine - 1);
    if (broker_operand_parse(&m.to, o->line.operands[1], &p) < 0 ||
        snapshot_open(&m.v, o->state_dir, o->line.operands[0], false, &p) < 0)
        return complain_of(&p);
    err = idle_check(&m, &p);
    if (!err) {
        err = connected(&m, &p);
        if (!err || m.total + m.cancelled + m.over + m.repeats)
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

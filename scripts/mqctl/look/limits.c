/* limits.c - the kernel's limits on queues: doctor's checks, and mqctl explain
 * with the name of an error (see doctor.h)
 *
 * doctor_run calls limits_check first, and explain_run calls error_explain, on
 * the only thread of the process. Where possible, limits are proved: a child
 * process creates a queue and removes it, because the kernel also counts queues
 * that nothing here can see.
 */
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/folder.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/cli/complain.h"
#include "common/cli/term.h"
#include "common/mq/mqlimit.h"
#include "common/mq/queue.h"
#include "common/state/worker_lock.h"
#include "scripts/mqctl/ask.h"
#include "scripts/mqctl/look/doctor.h"
#include "scripts/mqctl/proc.h"
#include "scripts/mqctl/queue_list.h"

#define BYTES_GOOD (UINT64_C(8) << 20) /* RLIMIT_MSGQUEUE advised at least */
#define UNTRIED    (-ENOTSUP)          /* no queue was created to find out */
#define PAYERS     64

/* Queues that a user is charged for: their number and cost. */
struct share {
    uint64_t queues, bytes;
    pid_t pid; /* a process that has one of them open */
};

enum share_kind {
    SHARE_HERE,    /* queues of this IPC namespace */
    SHARE_REMOVED, /* removed queues that are still open */
    SHARE_AWAY,    /* open queues of other IPC namespaces */
    SHARES,
};

enum payer_kind {
    PAYER_SELF,   /* this process */
    PAYER_WORKER, /* a running worker */
    PAYER_UNIT,   /* a unit of systemd whose worker is not running */
    PAYER_OWNER,  /* the owner of the queue, if none of the others */
};

/* A user who is charged for queues, and the limit of one process or unit. */
struct payer {
    enum payer_kind kind;
    uid_t uid;
    uint64_t limit, hard; /* RLIMIT_MSGQUEUE; UINT64_MAX: none */
    pid_t pid;            /* of the worker */
    const char *queue;    /* of the worker or unit */
    struct share shares[SHARES];
};

/* What happened when one more queue was created as a payer. */
struct trial {
    int err;                /* 0 or -errno of mq_open; UNTRIED */
    uint64_t charged;       /* bytes, for all queues; UINT64_MAX: not known */
    char left[QUEUE_PROBE]; /* the queue, if it could not be removed */
};

/* The limits, queues and users that the checks compare. */
struct machine {
    const struct options *o;
    struct mqlimit limit;
    /* Of the queue that the user asks about. */
    uint64_t depth, size;
    char name[QUEUE_NAME_MAX]; /* "/NAME" if the user named none */
    struct queue *queue;       /* NULL: none was named, or see no_queue */
    struct problem no_queue;   /* status 0: none was named, or it is open */
    const struct queue_list *queues;
    struct payer payers[PAYERS]; /* this process first */
    size_t count;
    /* Numbers of queues of this IPC namespace, of all payers: existing queues,
     * and removed queues that are still open. */
    uint64_t exist, removed;
    pid_t removed_pid;      /* has a removed queue open */
    struct trial trial;     /* of this process */
    char left[QUEUE_PROBE]; /* the queue of a trial; no other trial follows */
    /* The explained error, and the call that returned it; NULL for doctor. */
    const char *error, *call;
};

/* The result of one check, which becomes a finding. SAY and ADVISE append to
 * its text and to its fix. */
struct result {
    enum level level;
    char text[1024], fix[512];
};
#define SAY(r, ...)    text_append((r)->text, sizeof((r)->text), __VA_ARGS__)
#define ADVISE(r, ...) text_append((r)->fix, sizeof((r)->fix), __VA_ARGS__)

/* ---- who is charged ---- */

/* Parse a limit as proc(5) and systemctl print it. UINT64_MAX: no limit. */
static uint64_t limit_number(const char *text)
{
    return strncmp(text, "unlimited", 9) == 0 ||
                   strncmp(text, "infinity", 8) == 0
               ? UINT64_MAX
               : strtoull(text, NULL, 10);
}

/* Read the user and limits of a running worker. Returns false if none is
 * visible from here. */
static bool worker_payer(struct payer *payer, const struct options *o)
{
    static const char name[] = "Max msgqueue size";
    char path[32], text[4096], *at;
    struct holder h;
    struct stat st;

    if (worker_lock_find(o->state_dir, payer->queue, &payer->pid, NULL) !=
            WORKER_RUNS ||
        !payer->pid || !holder_is(&h, payer->pid, payer->queue) ||
        !proc_text(text, sizeof text, "/proc/%d/limits", (int)payer->pid) ||
        !(at = strstr(text, name)))
        return false;
    at += strlen(name);
    at += strspn(at, " ");
    payer->limit = limit_number(at);
    at += strcspn(at, " ");
    payer->hard = limit_number(at + strspn(at, " "));
    snprintf(path, sizeof path, "/proc/%d", (int)payer->pid);
    if (stat(path, &st) < 0)
        return false;
    payer->uid = st.st_uid;
    payer->kind = PAYER_WORKER;
    return true;
}

/* Read the user and limits with which systemd starts the worker of a queue.
 * Returns false if they are not known. */
static bool unit_payer(struct payer *payer, const struct options *o)
{
    char line[256], command[SHELL_WORD_ROOM(QUEUE_NAME_MAX) + 128];
    bool found = false, known = true;
    struct passwd entry, *user;
    char text[4096];
    FILE *in;

    if (o->look_only || !worker_has_unit(payer->queue))
        return false;
    snprintf(command, sizeof command,
             "systemctl show -p User -p LimitMSGQUEUE -p LimitMSGQUEUESoft "
             "mqworker@%s 2>/dev/null",
             SHELL_QUEUE(payer->queue + 1));
    in = popen(command, "re");
    while (in && fgets(line, sizeof line, in)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "User=", 5) == 0 && line[5]) {
            known =
                getpwnam_r(line + 5, &entry, text, sizeof text, &user) == 0 &&
                user;
            payer->uid = known ? user->pw_uid : 0;
        } else if (strncmp(line, "LimitMSGQUEUE=", 14) == 0) {
            payer->hard = limit_number(line + 14);
        } else if (strncmp(line, "LimitMSGQUEUESoft=", 18) == 0) {
            payer->limit = limit_number(line + 18);
            found = true;
        }
    }
    if (in)
        pclose(in);
    payer->kind = PAYER_UNIT;
    return found && known;
}

/* Add a payer, unless there is one with the same user and limit. */
static void payer_add(struct machine *m, const struct payer *payer)
{
    for (size_t k = 0; k < m->count; k++)
        if (m->payers[k].uid == payer->uid &&
            m->payers[k].limit == payer->limit)
            return;
    if (m->count < PAYERS)
        m->payers[m->count++] = *payer;
}

/* Charge a queue to all payers of its owner. */
static void share_add(struct machine *m, uid_t uid, enum share_kind kind,
                      uint64_t cost, pid_t pid)
{
    for (size_t k = 0; k < m->count; k++) {
        struct share *s = &m->payers[k].shares[kind];

        if (m->payers[k].uid != uid)
            continue;
        s->queues++;
        s->bytes += cost;
        s->pid = pid;
    }
}

/* Collect the payers: this process, workers, units, and the owner of the queue
 * that the user asks about. */
static void payers_read(struct machine *m)
{
    struct payer self = {.uid = getuid(), .limit = m->limit.bytes}, payer;
    struct rlimit r;
    struct stat st;

    if (getrlimit(RLIMIT_MSGQUEUE, &r) == 0)
        self.hard = r.rlim_max == RLIM_INFINITY ? UINT64_MAX : r.rlim_max;
    payer_add(m, &self);
    for (size_t i = 0; i < m->queues->count; i++) {
        payer = (struct payer){.queue = m->queues->at[i]};
        if (worker_payer(&payer, m->o) || unit_payer(&payer, m->o))
            payer_add(m, &payer);
    }
    if (!m->queue || fstat(queue_fd(m->queue), &st) < 0)
        return;
    for (size_t k = 0; k < m->count; k++)
        if (m->payers[k].uid == st.st_uid)
            return;
    payer = self;
    payer.kind = PAYER_OWNER;
    payer.uid = st.st_uid;
    payer_add(m, &payer);
}

/* Count the queues of the payers, as the kernel charges them. */
static void shares_read(struct machine *m, const struct fds *fds)
{
    dev_t dev = m->queues->dev; /* of the queues of this IPC namespace */
    const struct queue *q;
    struct queue_attr is;
    struct stat st;
    char path[64];
    size_t k;

    /* The queue that the user asks about may be missing in the list. The list
     * also has folders whose queue does not exist. */
    for (size_t i = 0; i <= m->queues->count; i++) {
        struct queue *listed = NULL;
        int err = 0;

        if (i < m->queues->count && m->queue &&
            strcmp(m->queues->at[i], m->name) == 0)
            continue;
        if (i < m->queues->count)
            err = queue_open(&listed, m->queues->at[i], 0, NULL, NULL, NULL);
        m->exist +=
            i < m->queues->count ? !err || err == -EACCES : m->queue != NULL;
        if (err)
            continue;
        q = listed ? listed : m->queue;
        if (q && fstat(queue_fd(q), &st) == 0) {
            dev = st.st_dev;
            share_add(m, st.st_uid, SHARE_HERE,
                      mqlimit_cost(queue_depth(q), queue_message_size(q)), 0);
        }
        queue_close(&listed);
    }
    for (size_t i = 0; i < fds->count; i++) {
        const struct fd_seen *seen = &fds->at[i];

        for (k = 0; k < i; k++) /* count a queue once */
            if (fds->at[k].dev == seen->dev && fds->at[k].ino == seen->ino)
                break;
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)seen->pid, seen->fd);
        if (k < i || stat(path, &st) < 0 || st.st_ino != seen->ino ||
            st.st_dev != seen->dev || (st.st_nlink > 0 && seen->dev == dev))
            continue;
        if (seen->dev == dev) {
            m->removed++;
            m->removed_pid = seen->pid;
        }
        if (queue_file_sizes(path, &is) < 0)
            continue;
        share_add(m, st.st_uid, st.st_nlink > 0 ? SHARE_AWAY : SHARE_REMOVED,
                  mqlimit_cost(is.depth, is.message_size), seen->pid);
    }
}

/* ---- proof ---- */

/* Create and remove a queue in a child process, with the user and the limit of
 * the payer. */
static void payer_try(struct machine *m, const struct payer *payer,
                      struct trial *out)
{
    struct rlimit r = {.rlim_cur = 0};
    struct trial *shared;
    pid_t child;

    *out = (struct trial){.err = UNTRIED, .charged = UINT64_MAX};
    if (m->o->look_only || m->left[0] ||
        (payer->uid != getuid() && geteuid() != 0))
        return;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return;
    *shared = *out;
    child = fork();
    if (child == 0) {
        (void)getrlimit(RLIMIT_MSGQUEUE, &r);
        r.rlim_cur =
            payer->limit == UINT64_MAX ? RLIM_INFINITY : (rlim_t)payer->limit;
        if (r.rlim_max < r.rlim_cur)
            r.rlim_max = r.rlim_cur;
        if (setrlimit(RLIMIT_MSGQUEUE, &r) == 0 &&
            (payer->uid == getuid() ||
             setresuid(payer->uid, payer->uid, payer->uid) == 0)) {
            shared->err = queue_probe(m->depth, m->size, shared->left);
            if (!shared->left[0])
                shared->charged = queue_charged(shared->left);
        }
        _exit(0);
    }
    if (child > 0 && waitpid(child, NULL, 0) == child)
        *out = *shared;
    memcpy(m->left, out->left, sizeof m->left);
    munmap(shared, sizeof *shared);
}

/* Append how a payer's limit can be raised. */
static void raise_advise(struct result *r, const struct payer *payer,
                         uint64_t need)
{
    if (payer->kind == PAYER_WORKER || payer->kind == PAYER_UNIT)
        ADVISE(r,
               "LimitMSGQUEUE=%" PRIu64 " in its unit (systemctl edit "
               "mqworker@%s), or ulimit -q %" PRIu64 " before it is started",
               need, SHELL_QUEUE(payer->queue + 1), need);
    else
        ADVISE(r,
               "ulimit -q %" PRIu64 " %s(systemd: LimitMSGQUEUE=%" PRIu64
               "; docker: --ulimit msgqueue=%" PRIu64 ":%" PRIu64 ")",
               need, need > payer->hard ? "as root " : "", need, need, need);
    ADVISE(r, ", or remove unused queues with mqctl remove; mqctl remove "
              "--orphans -n lists them");
    if (payer->shares[SHARE_REMOVED].queues)
        ADVISE(r, "; pid %d still has a removed one open: restart it",
               (int)payer->shares[SHARE_REMOVED].pid);
}

/* Check RLIMIT_MSGQUEUE of one payer: list what uses it, and say whether one
 * more queue fits. */
static void bytes_check(const struct machine *m, const struct payer *payer,
                        const struct trial *t, struct result *r)
{
    /* Before and after the word "queue". */
    static const char *const words[SHARES][2] = {
        {"", " here"}, {"removed ", ""}, {"", " of other IPC namespaces"}};
    /* The errors that mq_open returns before it checks RLIMIT_MSGQUEUE. */
    static const char *const names[] = {
        [EPERM] = "EPERM",   [EACCES] = "EACCES", [EINVAL] = "EINVAL",
        [ENOSPC] = "ENOSPC", [ENOSYS] = "ENOSYS",
    };
    const char *name =
        (size_t)-t->err < sizeof names / sizeof *names ? names[-t->err] : NULL;
    bool counted = t->charged != UINT64_MAX, fails;
    uint64_t seen = 0, used, need, cost = mqlimit_cost(m->depth, m->size);
    char user[FOLDER_USER], sum[MQLIMIT_COST];

    for (size_t i = 0; i < SHARES; i++)
        seen += payer->shares[i].bytes;
    used = counted ? t->charged : seen;
    fails = used > payer->limit || cost > payer->limit - used;
    *r = (struct result){.level = FINE};
    SAY(r, "%s is charged %s%" PRIu64, folder_user(payer->uid, user),
        counted ? "" : "at least ", used);
    if (payer->limit == UINT64_MAX)
        SAY(r, " bytes, without a limit");
    else
        SAY(r, " of %" PRIu64 " bytes", payer->limit);
    if (payer->kind == PAYER_WORKER)
        SAY(r, " that worker %d of %s may have", (int)payer->pid, payer->queue);
    else if (payer->kind == PAYER_UNIT)
        SAY(r, " that mqworker@%s may have", payer->queue + 1);
    else if (payer->kind == PAYER_OWNER)
        SAY(r, " that this process may have");
    if (payer->hard != payer->limit && payer->hard != UINT64_MAX)
        SAY(r, " (hard limit %" PRIu64 ")", payer->hard);
    SAY(r, " for queues (RLIMIT_MSGQUEUE)");
    for (size_t i = 0; i < SHARES; i++) {
        const struct share *s = &payer->shares[i];

        if (i == SHARE_HERE || s->queues)
            SAY(r, "%s %" PRIu64 " for %" PRIu64 " %squeue%s%s",
                i == SHARE_HERE ? ":" : ",", s->bytes, s->queues, words[i][0],
                term_plural(s->queues), words[i][1]);
        if (i != SHARE_HERE && s->queues)
            SAY(r, " (open in pid %d)", (int)s->pid);
    }
    if (counted && used > seen)
        SAY(r,
            ", %" PRIu64 " for queues that cannot be seen from here, of "
            "other IPC namespaces%s",
            used - seen, m->queues->complete ? "" : " or of this one");
    SAY(r, "; one more costs %s and ",
        mqlimit_cost_text(m->depth, m->size, sum));
    if (t->err == UNTRIED)
        SAY(r, "should %s, by these sums", fails ? "fail with EMFILE" : "fit");
    else if (t->err == -EMFILE)
        SAY(r, "fails with EMFILE%s",
            fails ? ""
                  : ": queues that cannot be seen, or the account of an outer "
                    "user namespace, use the rest");
    else if (name)
        SAY(r, "fails with %s before that limit is checked", name);
    else if (t->err)
        SAY(r, "fails with %s", errno_text(-t->err));
    else
        SAY(r, "fits: one was created%s", t->left[0] ? "" : " and removed");
    if (t->err && t->err != UNTRIED && t->err != -EMFILE) {
        r->level = NOTE;
        if (name)
            ADVISE(r,
                   "mqctl explain --queue-depth %" PRIu64
                   " --message-size %" PRIu64 " %s",
                   m->depth, m->size, name);
        return;
    }
    if (t->err == UNTRIED ? !fails : !t->err)
        return;
    r->level = WARN;
    /* The limit has to allow what all queues of the user use already. */
    need = used + cost > BYTES_GOOD ? used + cost : BYTES_GOOD;
    raise_advise(r, payer, need);
}

/* Explain the error of a trial. */
static void trial_explain(const struct machine *m, int err, struct problem *p)
{
    const struct mqlimit_request asked = {
        .name = m->name, .depth = m->depth, .message_size = m->size};

    (void)mqlimit_explain(&m->limit, &asked, err, p);
}

/* Check the number of queues against fs.mqueue.queues_max. */
static void queues_check(struct machine *m, struct result *r)
{
    uint64_t count = m->exist + m->removed, most = m->limit.queues_max;
    bool full = m->trial.err == -ENOSPC || count >= most;

    r->level = !full ? FINE : m->trial.err == 0 ? NOTE : BAD;
    SAY(r,
        "%" PRIu64 " of %" PRIu64
        " queue%s in this IPC namespace (fs.mqueue.queues_max)%s",
        count, most, term_plural(most),
        m->queues->complete ? "" : ", as far as visible");
    if (m->removed)
        SAY(r,
            ": %" PRIu64 " existing and %" PRIu64
            " removed but still open, in pid %d",
            m->exist, m->removed, (int)m->removed_pid);
    if (full && count < most)
        SAY(r, "; the rest cannot be seen from here, such as removed queues "
               "that processes of other users have open");
    if (r->level == NOTE)
        SAY(r, "; only processes with CAP_SYS_RESOURCE, such as this one, can "
               "create more");
    if (!full)
        return;
    if (m->removed)
        ADVISE(r, "restart pid %d, or ", (int)m->removed_pid);
    ADVISE(r,
           "sysctl fs.mqueue.queues_max=%" PRIu64
           ", or remove unused queues: mqctl remove --orphans -n",
           most < 512 ? UINT64_C(1024) : 2 * most);
}

/* Read the limits and the payers, and try to create a queue as this process. */
static void machine_read(struct machine *m, const struct options *o,
                         const struct queue_list *queues, const struct fds *fds,
                         const char *name)
{
    *m = (struct machine){.o = o,
                          .depth = o->depth,
                          .size = o->message_size,
                          .queues = queues,
                          .name = "/NAME"};
    if (name && queue_name(name, m->name, NULL) == 0)
        (void)queue_open(&m->queue, m->name, 0, NULL, NULL, &m->no_queue);
    mqlimit_read(&m->limit);
    mqlimit_fill(&m->limit, &m->depth, &m->size);
    payers_read(m);
    shares_read(m, fds);
    payer_try(m, &m->payers[0], &m->trial);
}

static void limit_print(struct findings *f, const struct result *r,
                        const char *check)
{
    FOUND(f, r->level, check, r->fix[0] ? r->fix : NULL, "%s", r->text);
}

/* Report a queue that a trial created and could not remove. */
static void left_print(struct findings *f, const struct machine *m)
{
    if (m->left[0])
        FOUND(f, BAD, "limits", fix(f, "mqctl remove --force %s", m->left),
              "the queue %s, created here as a test, could not be removed, and "
              "no further one was created. A seccomp filter or a security "
              "module may deny mq_unlink to this process",
              m->left);
}

void limits_check(struct findings *f, const struct options *o,
                  const struct queue_list *queues)
{
    const char *name = o->line.operand_count ? o->line.operands[0] : NULL;
    const struct queue_attr asked = {.depth = o->depth,
                                     .message_size = o->message_size};
    char differs[256];
    struct machine m;
    struct problem p;
    struct trial t;
    struct result r;

    machine_read(&m, o, queues, f->fds, name);
    for (size_t i = 0; i < m.count; i++) {
        if (i > 0)
            payer_try(&m, &m.payers[i], &t);
        bytes_check(&m, &m.payers[i], i > 0 ? &t : &m.trial, &r);
        limit_print(f, &r, "limits");
    }
    left_print(f, &m);
    r = (struct result){.level = FINE};
    queues_check(&m, &r);
    limit_print(f, &r, "limits");
    FOUND(f, FINE, "limits", NULL,
          "a queue holds at most %" PRIu64 " message%s of %" PRIu64
          " bytes (fs.mqueue.msg_max, msgsize_max); by default %" PRIu64
          " of %" PRIu64 " (msg_default, msgsize_default)",
          m.limit.depth_max, term_plural(m.limit.depth_max),
          m.limit.message_size_max, m.limit.depth_default,
          m.limit.message_size_default);
    if (m.trial.err && m.trial.err != UNTRIED && m.trial.err != -EMFILE &&
        m.trial.err != -ENOSPC) {
        trial_explain(&m, -m.trial.err, &p);
        FOUND(f, BAD, "limits", NULL, "%s", p.text);
    }
    /* mq_open with O_CREAT does not compare the sizes of an existing queue. */
    if (m.queue && queue_differs(m.queue, &asked, differs, sizeof differs))
        FOUND(f, WARN, "limits", "see \"Moving a queue\" in docs/runbook.md",
              "%s exists already, and mq_open takes it as it is: %s", m.name,
              differs);
    queue_close(&m.queue);
    if (queues->missing[0])
        FOUND(f, NOTE, "queues",
              mqlimit_kernel_has_queues() ? "mkdir -p /dev/mqueue && mount -t "
                                            "mqueue none /dev/mqueue"
                                          : NULL,
              "%s", queues->missing);
}

/* ---- mqctl explain ERROR ----
 *
 * Each check sets the level of its result and appends to the text: FINE if it
 * is proved that the cause does not apply here, BAD or WARN if it does, NOTE if
 * nothing is proved. */

static void self_bytes_check(struct machine *m, struct result *r)
{
    bytes_check(m, &m->payers[0], &m->trial, r);
    for (size_t i = 1; i < m->count && r->level < WARN; i++) {
        struct result other;
        struct trial t;

        payer_try(m, &m->payers[i], &t);
        bytes_check(m, &m->payers[i], &t, &other);
        if (other.level >= r->level)
            *r = other;
    }
}

static void descriptors_check(struct machine *m, struct result *r)
{
    bool gone = problem_descriptors_gone();

    r->level = gone ? BAD : FINE;
    SAY(r,
        "this process may open %s (RLIMIT_NOFILE is %" PRIu64
        "); for others see /proc/PID/limits and /proc/PID/fd",
        gone ? "no more files" : "more files", m->limit.descriptors);
    ADVISE(r, "ulimit -n %" PRIu64 ", LimitNOFILE=%" PRIu64,
           2 * m->limit.descriptors, 2 * m->limit.descriptors);
}

/* Check one of the two sizes against its sysctl. */
static void sysctl_check(const struct machine *m, struct result *r,
                         const char *name, uint64_t most, const char *flag,
                         uint64_t asked)
{
    bool fits = m->trial.err == 0; /* thanks to CAP_SYS_RESOURCE, if over */

    r->level = asked <= most ? FINE : fits ? NOTE : BAD;
    SAY(r,
        "fs.mqueue.%s is %" PRIu64 " in this IPC namespace, and more needs "
        "CAP_SYS_RESOURCE%s; checked with %" PRIu64 " (%s)",
        name, most, asked > most && fits ? ", which this process has" : "",
        asked, flag);
    ADVISE(r, "sysctl fs.mqueue.%s=%" PRIu64 " (docker run --sysctl)", name,
           asked);
}

static void depth_check(struct machine *m, struct result *r)
{
    sysctl_check(m, r, "msg_max", m->limit.depth_max, "--queue-depth",
                 m->depth);
}

static void size_check(struct machine *m, struct result *r)
{
    sysctl_check(m, r, "msgsize_max", m->limit.message_size_max,
                 "--message-size", m->size);
}

static void guard_check(struct machine *m, struct result *r)
{
    bool denied = m->trial.err == -EPERM || m->trial.err == -EACCES;
    bool untried = m->trial.err == UNTRIED;
    char guard[MQLIMIT_GUARD];

    r->level = denied ? BAD : untried ? NOTE : FINE;
    SAY(r, "this process has %s; %s", mqlimit_guard(guard),
        untried  ? "no queue was created to find out"
        : denied ? "it may not create a queue"
                 : "creating a queue worked");
    ADVISE(r, "%s", MQLIMIT_DENIALS);
}

static void support_check(struct machine *m, struct result *r)
{
    bool has = mqlimit_kernel_has_queues();
    struct problem p;

    r->level = m->trial.err == -ENOSYS ? BAD : has ? FINE : NOTE;
    if (r->level == BAD) {
        trial_explain(m, ENOSYS, &p);
        SAY(r, "%s", p.text);
    } else {
        SAY(r, "this kernel %s POSIX message queues",
            has ? "has" : "does not list");
    }
}

static void access_check(struct machine *m, struct result *r)
{
    struct queue *q = NULL;
    struct problem p;
    int err =
        queue_open(&q, m->name, QUEUE_RECEIVE | QUEUE_SEND, NULL, NULL, &p);

    r->level = !err ? FINE : p.status == EX_NOPERM ? BAD : NOTE;
    if (err)
        SAY(r, "%s", p.text);
    else
        SAY(r, "this process may read and write %s", m->name);
    queue_close(&q);
}

static void owner_check(struct machine *m, struct result *r)
{
    char his[FOLDER_USER], ours[FOLDER_USER];
    struct stat st;

    if (fstat(queue_fd(m->queue), &st) < 0)
        return;
    /* Root may lack CAP_FOWNER: NOTE. */
    r->level = st.st_uid == geteuid() ? FINE : geteuid() == 0 ? NOTE : BAD;
    SAY(r, "%s belongs to %s, and you are %s", m->name,
        folder_user(st.st_uid, his), folder_user(geteuid(), ours));
}

static void exists_check(struct machine *m, struct result *r)
{
    SAY(r,
        "it exists in this IPC namespace, with %zu x %zu bytes, which O_CREAT "
        "does not change",
        queue_depth(m->queue), queue_message_size(m->queue));
}

static void missing_check(struct machine *m, struct result *r)
{
    r->level = FINE;
    SAY(r, "%s exists now in this IPC namespace", m->name);
}

static void room_check(struct machine *m, struct result *r)
{
    long length = queue_length(m->queue), depth = (long)queue_depth(m->queue);
    bool sends = strstr(m->call, "send");
    bool timed = strcmp(m->error, "ETIMEDOUT") == 0;

    SAY(r, "it has %ld of %ld message%s now", length, depth,
        term_plural((uint64_t)depth));
    if (sends ? length < depth : length > 0)
        ADVISE(r, "call %s again: it is not %s now", m->call,
               sends ? "full" : "empty");
    else if (sends)
        ADVISE(r, "mqctl doctor %s says why it is full; %s",
               SHELL_QUEUE(m->name),
               timed ? "a later deadline leaves more time"
                     : "without O_NONBLOCK, mq_send waits for room");
    else
        ADVISE(r, "%s",
               timed ? "call it again to wait longer: nothing was sent"
                     : "wait with poll(2), or call mq_receive without "
                       "O_NONBLOCK");
}

static void largest_check(struct machine *m, struct result *r)
{
    SAY(r, "it takes at most %zu bytes", queue_message_size(m->queue));
}

/* Check for a registered process. Reading a queue's descriptor gives
 * "QSIZE:12 NOTIFY:0 SIGNO:0 NOTIFY_PID:4711". */
static void notify_check(struct machine *m, struct result *r)
{
    static const char name[] = "NOTIFY_PID:";
    char text[128] = "";
    const char *at;
    int pid;

    if (pread(queue_fd(m->queue), text, sizeof text - 1, 0) <= 0 ||
        !(at = strstr(text, name)))
        return;
    pid = (int)strtol(at + strlen(name), NULL, 10);
    r->level = pid ? BAD : FINE;
    if (pid)
        SAY(r, "pid %d is registered", pid);
    else
        SAY(r, "no process is registered for a notification by %s", m->name);
}

/* Whether a check needs the queue that the user named. */
enum needs { ANY, NAMED, OPEN };

/* The causes of each error, the most likely first. */
static const struct cause {
    const char *name, *call, *text;
    void (*check)(struct machine *m, struct result *r); /* NULL: none */
    enum needs needs;
    const char *next; /* what to do, if the check does not say it */
} causes[] = {
    {"EMFILE", "mq_open",
     "the queues of the user would cost more than RLIMIT_MSGQUEUE allows",
     self_bytes_check},
    {"EMFILE", "mq_open", "no descriptor is left (RLIMIT_NOFILE)",
     descriptors_check},
    {"ENFILE", "mq_open",
     "the system has no file handle left: sysctl fs.file-max", NULL},
    {"EINVAL", "mq_open", "mq_maxmsg is over msg_max", depth_check},
    {"EINVAL", "mq_open", "mq_msgsize is over msgsize_max", size_check},
    {"EINVAL", "mq_open",
     "the name has no leading slash, or mq_maxmsg or mq_msgsize is below 1",
     NULL},
    {"EINVAL", "mq_send", "the priority is over 32767", NULL},
    {"EINVAL", "mq_timedsend, mq_timedreceive",
     "tv_nsec of the deadline is not within 0 to 999,999,999", NULL},
    {"ENOSPC", "mq_open", "the IPC namespace has fs.mqueue.queues_max queues",
     queues_check},
    {"EMSGSIZE", "mq_send", "the message is longer than mq_msgsize",
     largest_check, OPEN,
     "send at most that, or see \"Moving a queue\" in docs/runbook.md"},
    {"EMSGSIZE", "mq_receive",
     "the buffer is shorter than mq_msgsize, even if the message would fit",
     largest_check, OPEN, "pass a buffer of that size; mq_getattr(3) has it"},
    {"EACCES", "mq_open", "the mode bits deny it", access_check, NAMED},
    {"EACCES", "mq_open", "the name has a second slash", NULL},
    {"EACCES", "mq_open", "a security module denies it", guard_check},
    {"EACCES", "mq_unlink", "only the owner and root may remove a queue",
     owner_check, OPEN, "have the owner or root remove it"},
    {"EPERM", "mq_open",
     "a filter of system calls (seccomp) or a security module denies it",
     guard_check},
    {"EPERM", "unlink",
     "only the owner and root may remove a queue (a file of /dev/mqueue)",
     owner_check, OPEN, "have the owner or root remove it"},
    {"ENOSYS", "mq_open",
     "the kernel has no POSIX message queues (CONFIG_POSIX_MQUEUE), or a "
     "filter of system calls (seccomp) pretends that",
     support_check},
    {"ENOENT", "mq_open",
     "no queue of that name in this IPC namespace, and no O_CREAT",
     missing_check, OPEN},
    {"ENOENT", "mq_open", "the name is only a slash", NULL},
    {"EEXIST", "mq_open", "O_EXCL, and the queue exists", exists_check, OPEN,
     "leave out O_EXCL, or remove the queue: mqctl remove"},
    {"ENAMETOOLONG", "mq_open", "more than 255 bytes follow the slash", NULL},
    {"ENOMEM", "mq_open", "the kernel has no memory left: see free(1)", NULL},
    {"ENOMEM", "mq_send",
     "the control group of the sender has no memory left: memory.max", NULL},
    {"EAGAIN", "mq_send", "the queue was full, and O_NONBLOCK is set",
     room_check, OPEN},
    {"EAGAIN", "mq_receive", "the queue was empty, and O_NONBLOCK is set",
     room_check, OPEN},
    {"ETIMEDOUT", "mq_timedsend",
     "the queue was full until the deadline passed; it is wall clock time, so "
     "setting the clock moves it",
     room_check, OPEN},
    {"ETIMEDOUT", "mq_timedreceive",
     "the queue was empty until the deadline passed; it is wall clock time, so "
     "setting the clock moves it",
     room_check, OPEN},
    {"EINTR", "mq_send, mq_receive",
     "a signal handler ran while the call waited: call it again", NULL},
    {"EBADF", "mq_send, mq_receive",
     "the descriptor is closed, or was opened for the other direction", NULL},
    {"EBUSY", "mq_notify",
     "only one process can be registered, and another one is", notify_check,
     OPEN, "stop that process, or have it call mq_notify with NULL"},
};

#define CAUSES (sizeof causes / sizeof *causes)

const char *error_names(char buf[ERROR_NAMES])
{
    buf[0] = '\0';
    for (const struct cause *c = causes; c < causes + CAUSES; c++)
        if (c == causes || strcmp(c->name, c[-1].name) != 0)
            text_append(buf, ERROR_NAMES, "%s%s", buf[0] ? ", " : "", c->name);
    return buf;
}

const struct cause *cause_find(const char *error)
{
    for (const struct cause *c = causes; c < causes + CAUSES; c++)
        if (strcasecmp(c->name, error) == 0)
            return c;
    return NULL;
}

int error_explain(const struct options *o)
{
    int n = o->line.operand_count;
    const char *error = o->line.operands[n - 1];
    struct findings f = {.json = o->json};
    struct queue_list queues = {0};
    struct fds fds = {.count = 0};
    const struct cause *c = cause_find(error), *end = causes + CAUSES;
    struct machine m;
    struct result r, all;

    if (!c)
        return -1;
    if (queue_list_of_queues(&queues, o->state_dir) < 0 || fds_read(&fds) < 0) {
        queue_list_free(&queues);
        return complain_memory();
    }
    machine_read(&m, o, &queues, &fds, n > 1 ? o->line.operands[0] : NULL);
    for (error = c->name; c < end && strcmp(c->name, error) == 0; c++) {
        r = all = (struct result){.level = NOTE};
        m.error = c->name;
        m.call = c->call;
        if (c->check && (c->needs == ANY || m.queue ||
                         (c->needs == NAMED && m.no_queue.status)))
            c->check(&m, &r);
        else if (c->check)
            SAY(&r, "%s", m.no_queue.text);
        all.level = r.level;
        if (r.level == FINE) { /* ruled out: do not print the cause */
            SAY(&all, "%s", r.text);
        } else {
            SAY(&all, "%s%s%s", c->text, r.text[0] ? ". Here: " : "", r.text);
            if (c->check && !r.text[0])
                ADVISE(&all, "mqctl explain QUEUE %s", c->name);
            else if (m.queue && c->next)
                ADVISE(&all, "%s", c->next);
            else
                ADVISE(&all, "%s", r.fix);
        }
        limit_print(&f, &all, c->call);
    }
    left_print(&f, &m);
    queue_close(&m.queue);
    fds_free(&fds);
    queue_list_free(&queues);
    return 0;
}

/* move.c - mqctl move: all messages of a POSIX queue to a queue on a broker
 *
 * main calls move_run, on the only thread. It starts the other programs, which
 * do the work: mqsend creates the queue on the broker; a worker with --forward
 * sends the messages of the kernel queue, the spool and the store until none
 * are left; mqdlq exports the letters here and imports them there. A kill of
 * any of these programs loses no message, and a message that may be sent twice
 * is marked (worker/handlers/forward.h). If mqctl itself is killed, the worker
 * stops in an orderly way, and the next move continues.
 *
 * A letter is removed here after mqdlq has imported it. Crash in between: both
 * queues have the letter; the next move skips its import and removes it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/libc.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/store/letters.h"
#include "common/cli/complain.h"
#include "common/cli/json_line.h"
#include "common/cli/term.h"
#include "scripts/mqctl/look/snapshot.h"
#include "scripts/mqctl/mqctl.h"

#define WORDS    32 /* of a command line */
#define LOOK_MS  200
#define STALL_NS (60 * NS_PER_S) /* longest time without progress */

struct move {
    const struct options *o;
    const char *queue, *to;
    struct broker_operand there; /* `to` */
    char partitions[24];
    struct snapshot before, after;
    uint64_t began_ns; /* wall */
    uint64_t letters;  /* letters that were moved */
    uint64_t refused;  /* messages that became letters: not forwarded */
    bool stalled;      /* the broker took no more, so the worker was stopped */
};

/* ---- programs ---- */

/* The command line of a program; it ends with a NULL. */
struct command_line {
    const char *at[WORDS + 1];
    size_t count;
};

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Add the words of a list that ends with a NULL. */
static void words_add(struct command_line *w, const char *const *list)
{
    for (; *list; list++)
        if (w->count < WORDS)
            w->at[w->count++] = *list;
}

/* Add a flag and its value, unless the value is NULL. */
static void flag_add(struct command_line *w, const char *name,
                     const char *value)
{
    if (value)
        words_add(w, LIST(name, value));
}

/* Add the flags for the broker; with `parts`, also --partitions. */
static void access_flags(struct command_line *w, const struct move *m,
                         bool parts)
{
    const struct broker_access *a = &m->o->access;

    flag_add(w, "--password-file", a->password_file);
    flag_add(w, "--tls-ca", a->tls.ca);
    flag_add(w, "--tls-cert", a->tls.cert);
    flag_add(w, "--tls-key", a->tls.key);
    flag_add(w, "--partitions", parts && a->partitions ? m->partitions : NULL);
}

/* Start a program with these descriptors as its standard input and output. The
 * kernel sends it SIGTERM if this process dies. mqsend and mqdlq get "mqctl" as
 * argv[0], so that their errors begin with the name of the program that the
 * user has started (complain_as). */
static pid_t program_start(struct command_line *w, int in, int out)
{
    const char *name = w->at[0];
    pid_t parent = getpid(), pid;
    char path[PATH_MAX];

    fflush(NULL);
    pid = fork();
    if (pid < 0)
        complain(EX_OSERR, "cannot run %s: %s", name, errno_text(errno));
    if (pid != 0)
        return pid;
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (strcmp(name, "mqworker") != 0)
        w->at[0] = "mqctl";
    if (getppid() == parent && file_of_program(path, name) == 0 &&
        dup2(in, 0) == 0 && dup2(out, 1) == 1)
        execv(path, (char *const *)w->at);
    complain(EX_OSERR, "cannot run %s: %s; install it beside mqctl", name,
             errno_text(errno));
    _exit(EX_OSERR);
}

/* Wait for a program and return its exit status. If this process is interrupted
 * meanwhile, pass that on as SIGTERM: the signal may have come to mqctl
 * only. */
static int program_end(pid_t pid)
{
    int status = 0;

    if (pid < 0)
        return EX_OSERR;
    while (waitpid(pid, &status, 0) < 0)
        if (cli_interrupt_seen())
            kill(pid, SIGTERM);
    return WIFEXITED(status) ? WEXITSTATUS(status) : EX_OSERR;
}

/* ---- messages ---- */

/* Return by how much a counter has grown; 0 if it was reset. */
static uint64_t count_grown(uint64_t now, uint64_t was)
{
    return now > was ? now - was : 0;
}

/* Return how many messages were forwarded since the move began. */
static uint64_t forwarded_count(const struct move *m,
                                const struct snapshot *now)
{
    return count_grown(now->totals.done, m->before.totals.done);
}

/* Run a worker that forwards all messages, and show its progress. Stop it if
 * the broker takes no message for too long. Returns an exit status. */
static int messages_forward(struct move *m, int null)
{
    const char separator[2] = {m->o->group_separator, '\0'};
    struct command_line w = {.count = 0};
    struct pollfd ended = {.fd = -1, .events = POLLIN};
    struct term_progress bar = {0};
    uint64_t end, seen = 0, now;
    struct snapshot v;
    struct problem p;
    pid_t pid;
    int status;

    words_add(&w, LIST("mqworker", "--quiet", "--no-create", "--exit-when-idle",
                       "--forward", m->to));
    access_flags(&w, m, true);
    flag_add(&w, "--state-dir", m->o->state_dir);
    flag_add(&w, "--runtime-dir", m->o->runtime_dir);
    flag_add(&w, "--group-separator", separator[0] ? separator : NULL);
    if (m->o->allow_disk_custody)
        words_add(&w, LIST("--allow-disk-custody"));
    words_add(&w, LIST(m->queue));
    pid = program_start(&w, null, null);
    if (pid > 0)
        ended.fd = pidfd_open(pid, 0);
    if (ended.fd >= 0 && !m->o->quiet && !m->o->json)
        term_progress_start(&bar, "moved", 0);
    end = ns_add(clock_mono_ns(), STALL_NS);
    while (ended.fd >= 0 && !m->stalled && poll(&ended, 1, LOOK_MS) == 0 &&
           !cli_interrupt_seen()) {
        if (snapshot_begin(&v, m->o->state_dir, m->queue, false, &p) < 0)
            continue;
        now = forwarded_count(m, &v);
        snapshot_close(&v);
        term_progress_step(&bar, now);
        if (now != seen)
            end = ns_add(clock_mono_ns(), STALL_NS);
        seen = now;
        m->stalled = clock_mono_ns() >= end;
    }
    if (m->stalled)
        kill(pid, SIGTERM);
    term_progress_end(&bar);
    if (ended.fd >= 0)
        close(ended.fd);
    status = program_end(pid);
    if (m->stalled)
        return complain(EX_TEMPFAIL,
                        "%s took no message for %d s: it is full, or the "
                        "broker is down. The remaining messages stay here; fix "
                        "the cause and run mqctl move again",
                        m->there.shown, (int)(STALL_NS / NS_PER_S));
    return cli_interrupt_seen() ? EX_TEMPFAIL : status;
}

/* ---- letters ---- */

/* Visit a letter: count it. */
static int refused_visit(const struct letter *l, void *arg)
{
    uint64_t *count = arg;

    (void)l;
    ++*count;
    return 0;
}

/* Export the letters of the POSIX queue, import them on the broker through a
 * pipe, and remove them from the store. Returns an exit status. */
static int letters_move(struct move *m, struct store *s, int null)
{
    int list = memfd_create("mqctl-letters", MFD_CLOEXEC), status = 0, err;
    struct store_cursor page[STORE_PAGE], after = {0}, *all = NULL, *grown;
    struct command_line out = {.count = 0}, in = {.count = 0};
    size_t count = 0, room = 0;
    int fds[2], imported, n = 1;
    pid_t from, to;

    /* Collect the existing letters, and write their numbers to `list`, which
     * the export reads. */
    err = list < 0 ? -errno : 0;
    while (!err && (n = letters_deaths(s, &after, page)) > 0) {
        after = page[n - 1];
        for (int i = 0; i < n && !err; i++) {
            grown = array_grow(all, count, &room, sizeof *all);
            if (!grown || dprintf(list, "%" PRId64 "\n", page[i].row) < 0)
                err = -ENOMEM;
            if (!grown)
                break;
            all = grown;
            all[count++] = page[i];
        }
    }
    if (!err)
        err = n < 0 ? n : lseek(list, 0, SEEK_SET) == 0 ? 0 : -errno;
    if (!err && count && pipe2(fds, O_CLOEXEC) < 0) {
        status = complain(EX_OSERR, "pipe2: %s", errno_text(errno));
    } else if (!err && count) {
        words_add(&out, LIST("mqdlq", "export"));
        flag_add(&out, "--state-dir", m->o->state_dir);
        words_add(&out, LIST(m->queue, "-"));
        words_add(&in, LIST("mqdlq", "import", "--quiet"));
        access_flags(&in, m, false);
        words_add(&in, LIST(m->to));
        from = program_start(&out, list, fds[1]);
        to = program_start(&in, fds[0], null);
        close(fds[0]);
        close(fds[1]);
        status = program_end(from);
        imported = program_end(to);
        status = status ? status : imported;
    }
    /* Remove the imported letters, unless they have died again since. */
    for (size_t i = 0; !err && !status && i < count; i += STORE_PAGE) {
        int64_t gone = letters_drop(
            s, all + i, count - i < STORE_PAGE ? count - i : STORE_PAGE);

        err = gone < 0 ? (int)gone : 0;
        m->letters += gone > 0 ? (uint64_t)gone : 0;
    }
    free(all);
    if (list >= 0)
        close(list);
    return err ? complain(EX_CANTCREAT,
                          "cannot move the letters of %s: %s; run mqctl move "
                          "again, which skips imported letters",
                          m->queue, errno_text(-err))
               : status;
}

/* ---- the verb ---- */

/* Print what was moved, even if the move was interrupted. */
static void moved_print(const struct move *m)
{
    const struct snapshot *a = &m->after, *b = &m->before;
    uint64_t sent = forwarded_count(m, a);
    int64_t waited =
        b->rows.waiting + b->rows.parked - a->rows.waiting - a->rows.parked;
    uint64_t waiting = waited < 0                ? 0
                       : (uint64_t)waited > sent ? sent
                                                 : (uint64_t)waited;
    uint64_t repeats = count_grown(a->totals.duplicates, b->totals.duplicates);
    uint64_t discarded =
        count_grown(a->totals.discarded, b->totals.discarded) - repeats;
    uint64_t expired = count_grown(a->totals.expired, b->totals.expired);
    const struct {
        const char *key, *text;
        uint64_t n;
        bool moved;
    } parts[] = {
        {"queue", "in the queue", sent - waiting, true},
        {"waiting", "waiting", waiting, true},
        {"letters", m->letters == 1 ? "dead letter" : "dead letters",
         m->letters, true},
        {"discarded", "not sent: cancelled, or copies of letters", discarded,
         false},
        {"repeats", "not sent: repeats of a unique key", repeats, false},
        {"expired", "not sent, dead now: expired", expired, false},
        {"refused", "not sent, dead now: cannot be forwarded", m->refused,
         false}};
    const size_t count = sizeof parts / sizeof *parts;
    const char *between = ": ";
    json_t *all;

    if (m->o->json) {
        all = json_pack("{s:s, s:I}", "to", m->there.shown, "moved",
                        (json_int_t)sent + (json_int_t)m->letters);
        for (size_t i = 0; i < count; i++)
            json_object_set_new(all, parts[i].key,
                                json_integer((json_int_t)parts[i].n));
        (void)json_print_line(all, stdout);
        return;
    }
    if (m->o->quiet)
        return;
    printf("moved %" PRIu64 " message%s of %s to %s", sent + m->letters,
           term_plural(sent + m->letters), m->queue, m->there.shown);
    for (size_t i = 0; i < count; i++)
        if (parts[i].n && parts[i].moved) {
            printf("%s%" PRIu64 " %s", between, parts[i].n, parts[i].text);
            between = ", ";
        }
    putchar('\n');
    for (size_t i = 0; i < count; i++)
        if (parts[i].n && !parts[i].moved)
            complain(0, "%" PRIu64 " %s", parts[i].n, parts[i].text);
    if (!m->o->letters && a->rows.dead > 0)
        complain(0,
                 "%" PRId64 " dead letter%s here; to move them as well: mqctl "
                 "move --letters",
                 a->rows.dead, a->rows.dead == 1 ? " stays" : "s stay");
}

/* Create the queue on the broker, then move messages and letters. Returns an
 * exit status. */
static int move_programs(struct move *m)
{
    const struct letter_filter failed = {.error_like = "not forwarded*",
                                         .since_ns = m->began_ns};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct command_line w = {.count = 0};
    struct store *s = NULL;
    struct problem p;
    int status, err;

    if (null < 0)
        return complain(EX_OSERR, "/dev/null: %s", errno_text(errno));
    words_add(&w, LIST("mqsend", "--quiet", "--create", "--lines"));
    access_flags(&w, m, true);
    words_add(&w, LIST(m->to));
    status = program_end(program_start(&w, null, null));
    if (!status)
        status = messages_forward(m, null);
    if (snapshot_open(&m->after, m->o->state_dir, m->queue, false, &p) < 0) {
        close(null);
        return complain_of(&p);
    }
    err = status ? -ENOENT : snapshot_store(&m->after, &s);
    if (!err) {
        (void)letters_each(s, &failed, false, refused_visit, &m->refused);
        if (m->o->letters)
            status = letters_move(m, s, null);
    } else if (err != -ENOENT) {
        status = complain_of(&m->after.no_store);
    }
    store_close(&s);
    if (!status || forwarded_count(m, &m->after))
        moved_print(m);
    if (!status && m->refused)
        status = complain(EX_DATAERR,
                          "some messages cannot be forwarded and are dead "
                          "letters now; to see why: "
                          "mqdlq list --error 'not forwarded*' %s",
                          STATEDIR_OPERAND(m->after.dir.root, m->queue));
    snapshot_close(&m->after);
    close(null);
    return status;
}

int move_run(const struct options *o)
{
    static struct move m;
    const struct snapshot *v = &m.before;
    struct letter_hook first;
    struct store *s = NULL;
    struct problem p;
    bool hook_left;
    int status;

    m.o = o;
    m.to = o->line.operands[1];
    m.began_ns = clock_wall_ns();
    snprintf(m.partitions, sizeof m.partitions, "%" PRIu64,
             o->access.partitions);
    cli_interrupt_catch();
    if (broker_operand_parse(&m.there, m.to, &p) < 0 ||
        snapshot_open(&m.before, o->state_dir, o->line.operands[0], false, &p) <
            0)
        return complain_of(&p);
    m.queue = m.before.queue;
    /* Refuse to move while --on-dead still has to run for letters: the worker
     * that forwards has no --on-dead, and would forget these runs. */
    hook_left =
        snapshot_store(&m.before, &s) == 0 && letters_hook(s, 0, &first) == 0;
    store_close(&s);
    if (v->worker == SNAPSHOT_RUNS)
        status = complain(EX_UNAVAILABLE,
                          "worker %d is running on %s; stop it first: mqctl "
                          "drain --wait %s",
                          (int)v->pid, m.queue,
                          STATEDIR_OPERAND(v->dir.root, m.queue));
    else if (!v->has_queue && v->has_folder)
        status = complain(EX_NOINPUT,
                          "queue %s does not exist any more. To move its saved "
                          "messages, first create it with its old message "
                          "size: mqctl create --message-size N %s",
                          m.queue, SHELL_QUEUE(m.queue));
    else if (hook_left)
        status = complain(EX_UNAVAILABLE,
                          "--on-dead has not run for all dead letters of %s "
                          "yet; start its worker, then stop it and move again: "
                          "mqctl drain --wait %s",
                          m.queue, STATEDIR_OPERAND(v->dir.root, m.queue));
    else if (!v->has_queue)
        status = complain_of(&v->no_queue);
    else
        status = move_programs(&m);
    snapshot_close(&m.before);
    fflush(stdout);
    cli_interrupt_die();
    return status;
}

/* doctor_queue.c - the checks of one queue and its worker (see doctor.h)
 *
 * doctor_run in doctor.c calls queue_check and then readers_check for each
 * queue, on the only thread of the process. Nothing is repaired here: each
 * finding names the command that does it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/base/problem.h"
#include "common/base/process_stat.h"
#include "common/base/safe_text.h"
#include "common/cli/json_line.h"
#include "common/custody/custody.h"
#include "common/mq/queue.h"
#include "common/state/runtimedir.h"
#include "common/store/letters.h"
#include "scripts/mqctl/ask.h"
#include "scripts/mqctl/look/doctor.h"
#include "scripts/mqctl/proc.h"

#define COMMAND_MOST 500 /* bytes of a command that is printed to be copied */
#define LATE_NS      (300 * NS_PER_S) /* warn of a message due for longer */

/* Report the dead letters for which the --on-dead command failed, with a shell
 * command that runs it by hand for the first of them. */
static void hooks_check(struct findings *f, struct snapshot *v)
{
    const char *queue = STATEDIR_OPERAND(v->dir.root, v->queue);
    const char *by_hand = NULL;
    const json_t *runs = json_object_get(v->live, "runs");
    const char *command =
        json_text_of(json_object_get(runs, "flags"), "on-dead");
    uint64_t n = v->counters ? v->head.gauges[COUNTERS_ON_DEAD] : 0;
    struct letter_hook hook = {.row = 0}; /* the first of them */
    char word[SHELL_WORD_ROOM(COMMAND_MOST)], row[24] = "ID";
    struct store *store;

    if (n == 0)
        return;
    if (snapshot_store(v, &store) == 0) {
        if (letters_hook(store, 0, &hook) == 0)
            snprintf(row, sizeof row, "%" PRId64, hook.row);
        store_close(&store);
    }
    /* Advise no command that was cut or escaped on its way here: it is not what
     * the user typed. */
    if (command && hook.row && strlen(command) < COMMAND_MOST &&
        !strstr(command, "\\x"))
        by_hand = fix(f,
                      "mqdlq show --json %s %" PRId64 " | MQW_LETTER=%" PRId64
                      " MQW_QUEUE=%s sh -c %s",
                      queue, hook.row, hook.row, SHELL_QUEUE(v->queue),
                      shell_word(command, word, sizeof word));
    FOUND(f, WARN, "on-dead", by_hand,
          "the --on-dead command failed for %" PRIu64 " dead letter%s, %" PRIu64
          " time%s in all. %s. event=on_dead_failed in its log says why; mqdlq "
          "discard %s %s removes the first letter",
          n, term_plural(n), v->sum.hooks_failed,
          term_plural(v->sum.hooks_failed),
          v->worker == SNAPSHOT_RUNS
              ? "The worker tries again for each within 5 minutes"
              : "The next worker with --on-dead tries again",
          queue, row);
}

/* ---- the queue and its worker ---- */

/* Return the command that starts a worker of the queue, as the owner of its
 * state: root may look at that state, but must not own files in it. */
static const char *start_command(struct findings *f, const struct snapshot *v)
{
    char user[FOLDER_USER], start[START_TEXT], root[SHELL_WORD_ROOM(PATH_MAX)];
    struct stat st;

    if (!v->has_folder || worker_has_unit(v->queue) ||
        stat(v->dir.folder, &st) < 0 || st.st_uid == geteuid())
        return fix(f, "%s", worker_start_text(v->queue, start));
    return fix(f, "sudo -u %s mqworker --state-dir %s %s -- COMMAND",
               folder_sudo_user(st.st_uid, user),
               shell_word(v->dir.root, root, sizeof root),
               SHELL_QUEUE(v->queue));
}

/* Check the queue itself; `away`: a worker with another state directory has the
 * queue open. */
static void kernel_check(struct findings *f, const struct snapshot *v,
                         bool away)
{
    const char *remedy = NULL; /* a command that gets messages moving */
    char bytes[32] = "";

    if (!v->has_queue) {
        FOUND(f,
              v->no_queue.status == EX_NOINPUT &&
                      (v->worker != SNAPSHOT_RUNS || snapshot_changing(v)) &&
                      v->has_folder
                  ? NOTE
                  : BAD,
              "queue", NULL, "%s", v->no_queue.text);
    } else if (v->depth >= v->depth_max) {
        /* Name a command only where it helps: a worker that takes nothing for
         * another reason needs neither more handlers nor a second worker. */
        if (!away && v->worker != SNAPSHOT_RUNS)
            remedy = start_command(f, v);
        else if (!away && snapshot_rate_reached(v))
            remedy = fix(f, "mqctl set %s rate=off",
                         STATEDIR_OPERAND(v->dir.root, v->queue));
        else if (!away && v->live && snapshot_state(v) == WORKER_STATE_RUNNING)
            remedy = fix(f, "mqctl set %s max-concurrency=%u",
                         STATEDIR_OPERAND(v->dir.root, v->queue),
                         2 * snapshot_cap(v));
        FOUND(f, WARN, "queue", remedy,
              "full (%ld of %ld message%s), and senders are waiting", v->depth,
              v->depth_max, term_plural((uint64_t)v->depth_max));
    } else if (v->depth < 0) {
        FOUND(f, NOTE, "queue", NULL, "its contents cannot be seen");
    } else {
        if (v->bytes >= 0)
            snprintf(bytes, sizeof bytes, ", %ld byte%s", v->bytes,
                     term_plural((uint64_t)v->bytes));
        FOUND(f, FINE, "queue", NULL, "%ld of %ld message%s%s", v->depth,
              v->depth_max, term_plural((uint64_t)v->depth_max), bytes);
    }
}

/* Report that a worker cannot write its store: another process has the store
 * locked, or the disk is full or broken. */
static void store_held_found(struct findings *f, const struct snapshot *v)
{
    char path[PATH_MAX + 16], who[LOCK_HOLDER];

    snprintf(path, sizeof path, "%s/%s", v->dir.folder, STATEDIR_STORE);
    if (lock_holder(path, v->pid, who))
        FOUND(f, BAD, "worker",
              fix(f,
                  "wait for %s to finish, or stop it; the worker then resumes "
                  "on its own",
                  who),
              "it is taking no messages, because %s has its store locked; its "
              "in-flight messages stay in custody",
              who);
    else
        FOUND(f, BAD, "worker",
              fix(f,
                  "df -h %s; free some space by deleting other files; the "
                  "worker resumes on its own",
                  v->dir.folder),
              "it is taking no messages, because its store cannot be "
              "written; its "
              "in-flight messages stay in custody");
}

/* Report that the worker takes no messages because one of its open files was
 * moved or removed, or cannot be written. Returns true if it did. */
static bool file_found(struct findings *f, const struct snapshot *v)
{
    uint64_t holds = v->head.gauges[COUNTERS_HOLDS] & COUNTERS_FILES;
    const char *live = snapshot_text(v, "file_gone");
    const char *path = snapshot_text(v, "file"),
               *next = snapshot_text(v, "file_next");
    char mount[PATH_MAX];

    if (!live && !holds)
        return false;
    if (!next && holds & (COUNTERS_STORE_GONE | COUNTERS_CUSTODY_GONE))
        next = "do not kill it; what to do is in its log, event=file_gone";
    else if (!next)
        next = fix(f,
                   "look for an error in dmesg, then mount -o remount,rw %s; "
                   "the worker resumes on its own",
                   mount_point(v->dir.folder, mount));
    FOUND(f, BAD, "files", next, "pid %d is taking no messages: %s%s%s",
          (int)snapshot_number(v, "pid", (uint64_t)v->pid),
          live ? live : worker_state_text(worker_state_of_holds(holds)),
          path ? ": " : "", path ? path : "");
    return true;
}

void worker_state_check(struct findings *f, const struct snapshot *v)
{
    const char *why = v->head.texts[COUNTERS_WHY_BREAKER];
    const char *queue = STATEDIR_OPERAND(v->dir.root, v->queue);
    const char *takes = snapshot_why(v), *set;
    int64_t lost =
        (int64_t)json_integer_value(json_object_get(v->live, "log_lost"));
    enum worker_state state = snapshot_state(v);
    char text[JSON_TEXT];

    if (state == WORKER_STATE_STARTING || state == WORKER_STATE_STOPPING) {
        FOUND(f, NOTE, "worker", NULL,
              "it is %s; run mqctl doctor again in a few seconds",
              snapshot_state_text(v));
        return;
    }
    if (v->stopped) {
        FOUND(f, BAD, "worker", fix(f, "kill -CONT %d", (int)v->pid), "%s",
              v->no_live.text);
        return;
    }
    if (!v->live)
        FOUND(f, WARN, "worker", "check its log, or use signals (mqworker(8))",
              "%s", v->no_live.text);
    if (lost > 0)
        FOUND(f, WARN, "worker",
              "check what reads the log: a stopped pager or terminal (Ctrl-Q "
              "resumes it), a log collector, a full disk",
              "nothing is reading its log: %" PRId64
              " lines are lost; messages are not delayed",
              lost);
    if (file_found(f, v))
        return;
    if (strcmp(snapshot_breaker(v), "closed") != 0) {
        FOUND(f, BAD, "worker",
              "fix the cause; the worker keeps trying on its own",
              "its breaker is %s: %s", snapshot_breaker(v), why);
    } else if (snapshot_paused(v)) {
        FOUND(f, WARN, "worker", fix(f, "mqctl resume %s", queue), "paused");
    } else if (state == WORKER_STATE_FULL) {
        set = json_as_text(snapshot_setting(v, "max-waiting"), text);
        FOUND(f, WARN, "worker",
              fix(f,
                  "find out what they are waiting for: mqctl status %s; or let "
                  "more wait: mqctl set %s max-waiting=N",
                  queue, queue),
              "%" PRId64
              " message%s waiting in the store, and --max-waiting allows %s: "
              "the worker takes no more messages until some are done or dead",
              v->rows.waiting + v->rows.parked,
              v->rows.waiting + v->rows.parked == 1 ? " is" : "s are",
              set ? set : "no more");
    } else if (state == WORKER_STATE_RATE_HELD) {
        set = json_as_text(snapshot_setting(v, "rate"), text);
        FOUND(f, WARN, "worker",
              fix(f,
                  "if that is too slow: mqctl set %s rate=N/s, or rate=off; "
                  "otherwise you need not do anything",
                  queue),
              "it is taking no messages, because --rate%s%s is reached; it "
              "resumes on its own",
              set ? " " : "", set ? set : "");
    } else if (state == WORKER_STATE_STORE_HELD) {
        store_held_found(f, v);
    } else if (snapshot_severity(v) == WORKER_IDLE) {
        FOUND(f, NOTE, "worker", NULL, "it is taking no messages: %s",
              snapshot_state_text(v));
    } else if (state != WORKER_STATE_RUNNING) {
        FOUND(f, WARN, "worker", "check its log",
              "it is taking no messages: %s", snapshot_state_text(v));
    } else {
        FOUND(f, FINE, "worker", NULL,
              "pid %d is running, %" PRIu64 " of %u message%s in flight%s%s",
              (int)v->pid, v->sum.running, snapshot_capacity(v),
              term_plural(snapshot_capacity(v)),
              takes ? "; it is taking no more messages: " : "",
              takes ? takes : "");
    }
}

/* Check a running worker's spool, messages that should have run by now, and
 * groups that are held by a dead letter. */
static void waiting_check(struct findings *f, const struct snapshot *v)
{
    const char *queue = STATEDIR_OPERAND(v->dir.root, v->queue);
    const json_t *most = snapshot_setting(v, "max-parked");
    char text[JSON_TEXT], late[DURATION_TEXT];
    const char *spool = json_as_text(snapshot_setting(v, "spool"), text);
    int64_t spooled = v->rows.spooled > 0 ? v->rows.spooled : 0;
    int64_t held = v->held > 0 ? v->held : 0;            /* some are spooled */
    int64_t room = spool ? strtoll(spool, NULL, 10) : 0; /* 0: it is off */
    uint64_t n = snapshot_groups_held(v), now = clock_wall_ns();
    const char *are = spooled == 1 ? " is" : "s are";

    if (v->worker != SNAPSHOT_RUNS)
        return;
    if (spooled && room > 0 && spooled + held >= room)
        FOUND(f, WARN, "spool",
              fix(f,
                  "find out why handlers are slower than senders: mqctl status "
                  "%s; or let more wait: mqctl set %s spool=N",
                  queue, queue),
              "full: %" PRId64
              " message%s waiting there, and --spool allows %s; senders wait "
              "when the queue is full as well",
              spooled, are, spool);
    else if (spooled)
        FOUND(f, FINE, "spool", NULL,
              "%" PRId64
              " message%s waiting there: senders are faster than handlers",
              spooled, are);
    /* In other states worker_state_check reports why no message runs. */
    if (v->rows.ages.due && v->rows.ages.due + LATE_NS <= now &&
        snapshot_state(v) == WORKER_STATE_RUNNING)
        FOUND(f, WARN, "overdue",
              fix(f,
                  "find out why handlers are slow: mqctl status %s; or run "
                  "more of them: mqctl set %s max-concurrency=%u",
                  queue, queue, 2 * snapshot_cap(v)),
              "a delayed message or retry has been due for %s; %" PRIu64
              " of at most %u messages are in flight",
              duration_rough(now - v->rows.ages.due, late), v->sum.running,
              snapshot_capacity(v));
    are = n == 1 ? " is" : "s are";
    if (n == 0)
        return;
    if (v->rows.replayed > 0)
        FOUND(f, WARN, "groups",
              fix(f,
                  "mqdlq list --replayed %s; if the replay of a letter was "
                  "interrupted, send it again: mqdlq replay --replayed --again "
                  "--group KEY %s",
                  queue, queue),
              "%" PRId64
              " letter%s being replayed; each holds its group until it is done",
              v->rows.replayed, v->rows.replayed == 1 ? " is" : "s are");
    if (json_is_integer(most) && v->rows.parked >= json_integer_value(most))
        /* A replay comes through if all messages before the letter can be
         * parked: allow twice their number. */
        FOUND(f, WARN, "groups",
              fix(f,
                  "mqctl set %s max-parked=%" PRId64
                  "; then mqdlq replay --group KEY %s. To go on without the "
                  "letter: mqctl group %s KEY release",
                  queue, 2 * (v->rows.parked + spooled + v->depth_max), queue,
                  queue),
              "%" PRIu64
              " group%s held, and --max-parked is reached: the worker receives "
              "no messages, so a replayed letter would not arrive either",
              n, are);
    else
        FOUND(f, WARN, "groups",
              fix(f,
                  "mqdlq list --by group %s; then mqdlq replay --group KEY %s, "
                  "or mqdlq discard --group KEY %s; to go on without the "
                  "letter: mqctl group %s KEY release",
                  queue, queue, queue, queue),
              "%" PRIu64 " group%s held: its head is a dead letter, and with "
              "--on-group-dead hold no other message of the group runs until "
              "that letter is replayed and done, or discarded, or the group is "
              "released",
              n, are);
}

/* Report that no worker is running. The in-flight messages of a killed worker
 * are in a file in memory, which may be gone. */
static void absent_found(struct findings *f, const struct snapshot *v)
{
    char path[PATH_MAX] = "", rest[PATH_MAX + sizeof v->no_custody.text];
    bool unread = v->custody < 0 && v->no_custody.status;
    bool waits = v->depth > 0 || snapshot_waits(v) > 0;
    bool unknown = v->no_custody.status || snapshot_unread(v->store_err);

    if (v->worker == SNAPSHOT_UNSEEN)
        FOUND(f, WARN, "worker", NULL,
              "cannot tell whether one is running: the lock %s/%s cannot be "
              "checked from here",
              v->dir.folder, STATEDIR_PIDFILE);
    else if (v->worker != SNAPSHOT_KILLED && waits)
        FOUND(
            f, WARN, "worker", start_command(f, v),
            "no worker is running, and messages are waiting: %ld in the queue, "
            "%" PRId64 " in custody, %" PRId64 " in the store, %" PRId64
            " in the spool",
            v->depth > 0 ? v->depth : 0, v->custody > 0 ? v->custody : 0,
            v->rows.waiting > 0 || v->rows.parked > 0
                ? v->rows.waiting + v->rows.parked
                : 0,
            v->rows.spooled > 0 ? v->rows.spooled : 0);
    else if (v->worker != SNAPSHOT_KILLED)
        FOUND(f, NOTE, "worker", unknown ? start_command(f, v) : NULL,
              unknown
                  ? "no worker is running; it is unknown whether messages are "
                    "waiting"
                  : "no worker is running, and no messages are waiting");
    if (v->worker != SNAPSHOT_KILLED)
        return;
    (void)runtimedir_file(&v->dir, RUNTIMEDIR_CUSTODY, path, NULL);
    if (v->custody < 0 && custody_known(path, NULL, NULL) < 0) {
        unread = true;
        snprintf(rest, sizeof rest,
                 "its unfinished messages are in %s, whose format is unknown",
                 path);
    } else if (unread) {
        snprintf(rest, sizeof rest,
                 "its unfinished messages cannot be counted: %s",
                 v->no_custody.text);
    } else if (v->custody < 0) {
        snprintf(rest, sizeof rest,
                 "its unfinished messages were not found: its runtime "
                 "directory is gone, or the machine was restarted");
    } else if (v->custody == 0) {
        snprintf(rest, sizeof rest, "it had no message in flight");
    } else {
        snprintf(rest, sizeof rest,
                 "its %" PRId64 " unfinished message%s waiting in %s",
                 v->custody, v->custody == 1 ? " is" : "s are", path);
    }
    FOUND(f, BAD, "worker", unread ? NULL : start_command(f, v),
          "the last worker, pid %d, was killed; %s", (int)v->pid, rest);
}

/* ---- custody and store ---- */

/* Check the file of slots: its file system, its format, and whether the
 * messages of a recreated queue fit. */
static void slots_check(struct findings *f, const struct snapshot *v)
{
    const char *queue = STATEDIR_OPERAND(v->dir.root, v->queue);
    json_int_t kib =
        json_integer_value(json_object_get(v->live, "unlocked_kib"));
    char path[PATH_MAX], type[FS_TYPE_TEXT];
    struct custody_head h;
    struct problem p;
    struct statfs s;
    ssize_t n;
    int fd;

    if (kib > 0) /* memory that is not locked may be swapped out */
        FOUND(f, WARN, "custody",
              fix(f,
                  "let the worker lock %" JSON_INTEGER_FORMAT " KiB "
                  "(ulimit -l, LimitMEMLOCK=, docker --ulimit memlock=) "
                  "and restart it",
                  kib),
              "messages in flight, %" JSON_INTEGER_FORMAT " KiB, are not "
              "locked in memory: a kill while they are swapped out loses the "
              "message that is being received",
              kib);
    fd = runtimedir_file(&v->dir, RUNTIMEDIR_CUSTODY, path, &p) == 0
             ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
             : -1;
    if (fd < 0) {
        if (v->no_custody.status && v->worker != SNAPSHOT_KILLED &&
            !snapshot_changing(v))
            FOUND(f, WARN, "custody", NULL, "%s", v->no_custody.text);
        return;
    }
    if (fstatfs(fd, &s) == 0 && fs_kind((long)s.f_type) != FS_MEMORY)
        FOUND(f, WARN, "custody",
              fix(f,
                  "mqctl drain %s; then mqworker --runtime-dir "
                  "/dev/shm/mqworker-%u %s -- COMMAND, or another folder "
                  "on a tmpfs",
                  queue, (unsigned)geteuid(), queue),
              "%s is on %s: a kill while it is written back loses the message "
              "that is being received",
              path, fs_type_text((long)s.f_type, type));
    if (snapshot_changing(v)) {
        close(fd); /* the file may be incomplete, or the last worker's */
        return;
    }
    n = pread(fd, &h, sizeof h, 0);
    if (n < 0)
        FOUND(f, BAD, "custody", NULL, "%s: %s", path, errno_text(errno));
    else if (n != sizeof h)
        FOUND(f, BAD, "custody",
              "move the file away and start the worker again; what it held is "
              "lost",
              "%s is cut short", path);
    else if (custody_head_check(&h, path, &p) < 0)
        FOUND(f, BAD, "custody", NULL, "%s", p.text);
    else if (v->worker == SNAPSHOT_RUNS && v->has_queue &&
             h.body_bytes < (uint64_t)v->message_size)
        FOUND(f, BAD, "attributes",
              fix(f, "mqctl drain %s, then start the worker again", queue),
              "the queue takes messages of %ld byte%s, but the worker has room "
              "for %" PRIu64 ", the size of an earlier queue of that name",
              v->message_size, term_plural((uint64_t)v->message_size),
              h.body_bytes);
    close(fd);
}

#define CHECKED_MOST \
    (UINT64_C(64) << 20) /* bytes; checked in a tenth of a second */

/* Check the whole store if that is quick; otherwise print the result of the
 * worker's check at startup. */
static void store_damage_check(struct findings *f, struct snapshot *v)
{
    const char *seen = snapshot_text(v, "store_check");
    char found[STORE_FOUND] = "";
    struct store *s;
    uint64_t bytes;
    int err = 0;

    if (v->store_err || snapshot_store(v, &s) < 0 || !s)
        return;
    bytes = store_bytes(s);
    if (bytes <= CHECKED_MOST)
        err = store_check(s, NULL, found);
    store_close(&s);
    if (bytes > CHECKED_MOST && seen && strcmp(seen, "ok") != 0)
        FOUND(f, strcmp(seen, "being checked") == 0 ? NOTE : BAD, "store",
              strcmp(seen, "being checked") == 0 ? NULL : DISK_DAMAGED_ADVICE,
              "the check at the worker's start: %s", seen);
    else if (bytes > CHECKED_MOST && !seen)
        FOUND(f, NOTE, "store",
              fix(f, "sqlite3 -readonly %s/%s 'PRAGMA quick_check'",
                  v->dir.folder, STATEDIR_STORE),
              "it is too large to be checked for damage now: %" PRIu64 " MiB",
              bytes >> 20);
    else if (err == -EUCLEAN)
        FOUND(f, BAD, "store", DISK_DAMAGED_ADVICE, "%s/%s is damaged: %s",
              v->dir.folder, STATEDIR_STORE, found);
    else if (err)
        FOUND(f, WARN, "store", disk_advice(err),
              "%s/%s could not be checked for damage: %s", v->dir.folder,
              STATEDIR_STORE, errno_text(-err));
}

/* ---- other consumers ---- */

/* The kernel hands a message directly to a process that is blocked in
 * mq_receive. A process that waits in poll or epoll, as a worker does, is not
 * even woken (pipelined_send in ipc/mqueue.c). */

#define AGAIN_NS 20000000 /* until the second check of a process */

/* A descriptor of the queue in another process. */
struct reader {
    pid_t pid;
    int fd;
    bool blocked; /* a thread of the process is in mq_receive on it */
};

/* The call of programs whose time_t is longer than a word; -1: none has it. */
#ifdef SYS_mq_timedreceive_time64
#define RECEIVE_TIME64 SYS_mq_timedreceive_time64
#else
#define RECEIVE_TIME64 (-1)
#endif

/* Visit a thread: note whether it is in mq_timedreceive(fd) now. Returns false,
 * which ends the visits, if it is. */
static bool thread_look(int thread, void *arg)
{
    struct reader *r = arg;
    char text[256], *at;
    long number;

    /* The file has "243 0x3 ...", the number of the system call and its first
     * argument; for a running thread it has the word "running". */
    r->blocked = proc_text(text, sizeof text, "/proc/%d/task/%d/syscall",
                           (int)r->pid, thread) &&
                 ((number = strtol(text, &at, 10)) == SYS_mq_timedreceive ||
                  number == RECEIVE_TIME64) &&
                 strtol(at, NULL, 16) == r->fd;
    return !r->blocked;
}

/* Return true if the descriptor still refers to the queue. */
static bool fd_is_same(const struct fd_seen *seen)
{
    struct stat st;
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)seen->pid, seen->fd);
    return stat(path, &st) == 0 && st.st_dev == seen->dev &&
           st.st_ino == seen->ino;
}

/* Return true if the process has the queue open only for a moment and takes no
 * messages: another mqctl, or a starting handler of `worker` (0: none). Before
 * its exec, a handler has copies of all descriptors of the worker. The exec
 * first changes the name of the program and then closes the descriptors, so a
 * handler may look like another program that has the queue open. Check twice:
 * what is still open at the second check was opened by that program itself. */
static bool is_passing(const struct fd_seen *seen, pid_t worker)
{
    uint64_t start = process_start_time(seen->pid);
    struct timespec nap = {.tv_nsec = AGAIN_NS};
    struct process_stat child;

    if (proc_same_program(seen->pid, getpid()))
        return true;
    /* A child or grandchild of the worker before its exec. */
    if (worker && proc_same_program(seen->pid, worker) &&
        process_stat(seen->pid, &child) &&
        (child.parent == worker ||
         (proc_same_program(child.parent, worker) &&
          process_stat(child.parent, &child) && child.parent == worker)))
        return true;
    while (nanosleep(&nap, &nap) < 0 && errno == EINTR)
        ;
    return !fd_is_same(seen) || process_start_time(seen->pid) != start;
}

/* Report the process that has the checked queue open, if it may take messages.
 * Returns true if it is another consumer. */
static bool reader_found(struct findings *f, const struct snapshot *v,
                         const struct fd_seen *seen)
{
    pid_t worker = v->worker == SNAPSHOT_RUNS ? v->pid : 0;
    struct reader r = {.pid = seen->pid, .fd = seen->fd};
    char path[64], name[64];
    struct holder h;
    bool is_worker;

    if (seen->pid == getpid() || seen->pid == worker || !fd_is_same(seen) ||
        !holder_receives(seen->pid, seen->fd))
        return false;
    snprintf(path, sizeof path, "/proc/%d/task", (int)seen->pid);
    (void)proc_numbers(path, thread_look, &r);
    if (!r.blocked && is_passing(seen, worker))
        return false;
    is_worker = holder_is(&h, seen->pid, v->queue);
    if (is_worker && holder_is_of(&h, v->dir.folder))
        return false; /* our own worker, started since its lock was checked */
    (void)proc_text(name, sizeof name, "/proc/%d/comm", (int)seen->pid);
    name[strcspn(name, "\n")] = '\0';
    if (!r.blocked && strcmp(name, "systemd") == 0) {
        /* It created the queue (mqworker@.socket), and takes no messages. */
        FOUND(f, NOTE, "other consumers",
              "systemctl --version; see \"A queue made by systemd\" in "
              "docs/systemd.md",
              "systemd (pid %d) has the queue open, for a socket unit; "
              "systemd before version 258 hangs at a reboot if messages are "
              "left in the queue",
              (int)seen->pid);
        return false;
    }
    /* A worker may have the only copy of its messages: never advise to kill
     * it. */
    if (is_worker && h.there)
        FOUND(f, WARN, "other consumers",
              fix(f, "mqctl doctor --state-dir %.*s %s",
                  (int)(strrchr(h.folder, '/') - h.folder), h.folder,
                  SHELL_QUEUE(v->queue)),
              "another mqworker (pid %d) is taking messages of this queue; its "
              "state is in %s",
              (int)h.pid, h.folder);
    else if (is_worker)
        FOUND(f, BAD, "other consumers",
              "do not kill it. If the folder was moved, move it back, and the "
              "worker resumes on its own; if it was removed, the worker writes "
              "it again (docs/runbook.md, A file is gone)",
              "an mqworker (pid %d) has the queue open, and its state "
              "directory cannot be seen here: it was removed, moved, "
              "unmounted or mounted over%s%s",
              (int)h.pid, h.folder[0] ? "; it has files open in " : "",
              h.folder);
    else if (r.blocked)
        FOUND(f, BAD, "other consumers", fix(f, "kill %d", (int)seen->pid),
              "pid %d (%s) is blocked in mq_receive: the kernel hands it each "
              "message before a worker is woken",
              (int)seen->pid, name);
    else
        FOUND(f, WARN, "other consumers", fix(f, "kill %d", (int)seen->pid),
              "pid %d (%s) has the queue open to receive, and may take "
              "messages from the worker",
              (int)seen->pid, name);
    return true;
}

void readers_check(struct findings *f, const struct snapshot *v)
{
    size_t hidden = f->fds->hidden;
    bool others = false;
    struct problem p;
    struct queue *q;
    struct stat st;

    if (queue_open(&q, v->queue, 0, NULL, NULL, &p) < 0)
        return; /* kernel_check has reported it */
    if (fstat(queue_fd(q), &st) == 0)
        for (size_t i = 0; i < f->fds->count; i++)
            if (f->fds->at[i].dev == st.st_dev &&
                f->fds->at[i].ino == st.st_ino)
                others |= reader_found(f, v, &f->fds->at[i]);
    queue_close(&q);
    if (!others)
        FOUND(f, FINE, "other consumers", NULL, "none%s",
              hidden ? " among the processes that can be inspected" : "");
    if (hidden)
        FOUND(f, NOTE, "other consumers", "run mqctl doctor as root",
              "%zu process%s of other users cannot be inspected", hidden,
              hidden == 1 ? "" : "es");
}

void queue_check(struct findings *f, struct snapshot *v)
{
    const char *differs = snapshot_text(v, "queue_differs");
    const char *queue = STATEDIR_OPERAND(v->dir.root, v->queue);
    char path[64], ours[64] = "", its[64] = "";
    struct holder h;
    /* A worker with another state directory has the queue open: readers_check
     * reports it, and no finding advises to start a second one. */
    bool away = v->worker != SNAPSHOT_RUNS &&
                holder_find(&h, v->queue, f->fds) &&
                !holder_is_of(&h, v->dir.folder);
    bool unread = snapshot_unread(v->store_err);

    kernel_check(f, v, away);
    if (!v->has_folder) {
        if (!away)
            FOUND(f, v->shut ? BAD : NOTE, "worker", NULL, "%s",
                  v->no_live.text);
        return;
    }
    if (v->worker == SNAPSHOT_RUNS)
        worker_state_check(f, v);
    else if (!away)
        absent_found(f, v);
    waiting_check(f, v);
    hooks_check(f, v);
    slots_check(f, v);
    if (differs) /* a start does not change the attributes of a queue */
        FOUND(f, WARN, "attributes",
              fix(f,
                  "mqctl drain %s; mqctl remove %s; and start the worker again",
                  queue, queue),
              "%s", differs);
    /* A worker in a container has a queue of its own. */
    snprintf(path, sizeof path, "/proc/%d/ns/ipc", (int)v->pid);
    if (v->worker == SNAPSHOT_RUNS &&
        readlink("/proc/self/ns/ipc", ours, sizeof ours - 1) >= 0 &&
        readlink(path, its, sizeof its - 1) >= 0 && strcmp(ours, its) != 0)
        FOUND(f, WARN, "namespace",
              fix(f, "nsenter -t %d -i mqctl status %s", (int)v->pid, queue),
              "the worker is in %s, mqctl in %s: the queue seen here is not "
              "the worker's, but has the same name",
              its, ours);
    if (unread || v->rows.dead < 0) {
        /* The store of a starting worker may be incomplete. */
        if (v->rows.dead >= 0 || !snapshot_changing(v))
            FOUND(f, unread ? WARN : NOTE, "store", NULL, "%s",
                  v->no_store.text);
    } else if (v->rows.dead > 0) {
        FOUND(f, WARN, "dead letters",
              fix(f, "mqdlq list --by error %s", queue),
              "%" PRId64 " dead letter%s", v->rows.dead,
              term_plural((uint64_t)v->rows.dead));
    } else {
        FOUND(f, FINE, "dead letters", NULL, "none");
    }
    store_damage_check(f, v);
    /* The counters of a killed worker are gone with its custody, which
     * absent_found reports. */
    if (v->no_counters.text[0] && !snapshot_text(v, "file_gone") &&
        !snapshot_changing(v) &&
        !(v->worker == SNAPSHOT_KILLED && v->custody < 0))
        FOUND(f, NOTE, "counters", NULL, "%s", v->no_counters.text);
}

/* doctor.c - the verb, findings, and the checks of the machine (see
 * doctor.h) */
#include "scripts/mqctl/look/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/broker/broker_engine.h"
#include "common/broker/broker_operand.h"
#include "common/cli/complain.h"
#include "common/cli/json_line.h"
#include "common/cli/term.h"
#include "common/state/statedir.h"
#include "scripts/mqctl/proc.h"
#include "scripts/mqctl/queue_list.h"

#define MIB        UINT64_C(1048576)
#define SPACE_LOW  (64 * MIB)            /* warn below this free space, bytes */
#define SPACE_NONE (64 * UINT64_C(1024)) /* no room for a large commit */

/* ---- findings ---- */

static const struct {
    const char *name;
    enum term_colour colour;
} levels[] = {
    [FINE] = {"ok", TERM_GREEN},
    [NOTE] = {"note", TERM_DIM},
    [WARN] = {"warn", TERM_YELLOW},
    [BAD] = {"bad", TERM_RED},
};

#define INDENT 6 /* columns of "warn  " */

const char *fix(struct findings *f, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(f->fix, sizeof f->fix, fmt, args);
    va_end(args);
    return f->fix;
}

void finding_print(struct findings *f, const struct finding *what,
                   const char *fmt, ...)
{
    FILE *out = f->parts[what->level] ? f->parts[what->level] : stdout;
    char text[1024], line[2048];

    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    f->counts[what->level]++;
    if (f->quiet && what->level < WARN)
        return;
    if (f->json) {
        (void)json_print_line(
            json_pack("{s:o, s:s, s:s, s:o, s:o}", "queue",
                      f->queue ? json_printable(f->queue) : json_null(),
                      "check", what->check, "level", levels[what->level].name,
                      "text", json_printable(text), "fix",
                      what->fix ? json_printable(what->fix) : json_null()),
            stdout);
        return;
    }
    snprintf(line, sizeof line, "%s%s%s: %s", f->queue ? f->queue : "",
             f->queue ? " " : "", what->check, text);
    fprintf(out, "%s%-4s%s  ", term_colour(stdout, levels[what->level].colour),
            levels[what->level].name, term_colour(stdout, TERM_PLAIN));
    term_words(out, line, INDENT, INDENT, term_width(stdout));
    if (what->fix) { /* on one line, so that it can be copied */
        fprintf(out, "\n%*s-> ", INDENT, "");
        safe_text(out, what->fix, strlen(what->fix), true);
    }
    fputc('\n', out);
}

void findings_begin(struct findings *f)
{
    for (int level = FINE; !f->json && level < LEVELS; level++)
        f->parts[level] = open_memstream(&f->texts[level], &f->sizes[level]);
}

bool findings_end(struct findings *f)
{
    unsigned found = f->counts[BAD] + f->counts[WARN];

    for (int level = LEVELS - 1; level >= FINE; level--) {
        if (!f->parts[level])
            continue;
        fclose(f->parts[level]);
        fwrite(f->texts[level], 1, f->sizes[level], stdout);
        free(f->texts[level]);
    }
    if (f->json || f->quiet)
        return found > 0;
    printf("%s%u ok%s", term_colour(stdout, found ? TERM_BOLD : TERM_GREEN),
           f->counts[FINE], term_colour(stdout, TERM_PLAIN));
    if (f->counts[NOTE])
        printf(", %u note%s", f->counts[NOTE], term_plural(f->counts[NOTE]));
    printf(", %u finding%s", found, term_plural(found));
    if (found)
        printf(" (%u bad, %u warn)", f->counts[BAD], f->counts[WARN]);
    putchar('\n');
    return found > 0;
}

/* ---- queues that no process has open ---- */

#define ORPHANS_SHOWN 10
/* Time without use after which a queue gets a warning instead of a note; before
 * that, its user may still want it. */
#define ORPHAN_OLD_NS (600 * NS_PER_S)

/* Print the orphans that no worker has ever used. The other orphans appear
 * among the queues whose worker is not running. */
static void orphans_check(struct findings *f, const struct options *o,
                          const struct queue_list *queues)
{
    char text[ORPHAN_TEXT], unseen[96] = "";
    enum level level, worst = NOTE;
    struct orphans all;
    const char *repair;
    size_t shown = 0;

    if (orphans_find(&all, queues, o->state_dir, f->fds) < 0)
        return;
    if (all.hidden)
        snprintf(unseen, sizeof unseen,
                 " (%zu process%s of other users cannot be inspected)",
                 all.hidden, all.hidden == 1 ? "" : "es");
    for (size_t i = 0; i < all.count; i++) {
        const struct orphan *orphan = &all.at[i];
        const char *queue = SHELL_QUEUE(orphan->queue);

        if (orphan->has_folder)
            continue;
        level = all.hidden || orphan->idle_ns < ORPHAN_OLD_NS ? NOTE : WARN;
        if (shown++ >= ORPHANS_SHOWN) {
            worst = level > worst ? level : worst;
            continue;
        }
        repair = orphan->depth > 0
                     ? fix(f,
                           "mqworker %s -- COMMAND, or, to delete its %ld "
                           "message%s: mqctl remove --force %s",
                           queue, orphan->depth,
                           term_plural((uint64_t)orphan->depth), queue)
                     : fix(f, "mqctl remove %s", queue);
        FOUND(f, level, "orphans", repair, "no process has %s open%s: %s",
              orphan->queue, unseen, orphan_text(orphan, text));
    }
    if (shown > ORPHANS_SHOWN)
        FOUND(f, worst, "orphans",
              "mqctl remove --orphans --dry-run lists all of them",
              "%zu more queue%s that no process has open",
              shown - ORPHANS_SHOWN, term_plural(shown - ORPHANS_SHOWN));
    orphans_free(&all);
}

/* ---- the state directory ---- */

/* Check that the state directory is there, can be written to, and has space
 * left for retries and dead letters. */
static void state_dir_check(struct findings *f, const struct options *o)
{
    char root[PATH_MAX], mount[PATH_MAX], text[SIZE_TEXT];
    const char *room;
    struct problem p;
    struct statvfs s;
    struct stat st;
    uint64_t left;
    int fd;

    if (statedir_root(root, o->state_dir, &p) < 0) {
        FOUND(f, BAD, "state directory", NULL, "%s", p.text);
        return;
    }
    fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        FOUND(f, NOTE, "state directory", NULL,
              "%s: %s; the first worker creates it", root, errno_text(ENOENT));
        return;
    }
    if (fd < 0) {
        (void)statedir_refuse(root, errno, &p);
        FOUND(f, BAD, "state directory", NULL, "%s", p.text);
        return;
    }
    if (fstat(fd, &st) < 0 || statvfs(root, &s) < 0) {
        FOUND(f, WARN, "state directory", NULL, "%s: %s", root,
              errno_text(errno));
        close(fd);
        return;
    }
    close(fd);
    mount_point(root, mount);
    if (s.f_files > 0 && s.f_favail < 16)
        FOUND(f, BAD, "state directory",
              fix(f, "df -i %s; remove files there", mount),
              "%s has no inodes left", root);
    if (s.f_flag & ST_RDONLY) {
        FOUND(f, BAD, "state directory",
              fix(f,
                  "check dmesg for disk errors; after such errors run umount "
                  "and fsck first; then mount -o remount,rw %s",
                  mount),
              "%s is on a read-only file system, mounted at %s", root, mount);
        return;
    }
    /* The owner of the folder writes there. Root may also use the file system's
     * reserved blocks. */
    left = (uint64_t)(st.st_uid == 0 ? s.f_bfree : s.f_bavail) * s.f_frsize /
           1024 * 1024;
    if (left >= 1024 * MIB)
        snprintf(text, sizeof text, "%.1f GiB", (double)left / (1024.0 * MIB));
    else if (left >= MIB)
        snprintf(text, sizeof text, "%" PRIu64 " MiB", left / MIB);
    else
        snprintf(text, sizeof text, "%" PRIu64 " KiB", left / 1024);
    /* Removing a letter needs some space itself, so it does not help once the
     * disk is full. */
    room = fix(f,
               "df -h %s; free some space by deleting other files, or enlarge "
               "it; %s",
               mount,
               left < SPACE_NONE
                   ? "waiting messages then resume on their own"
                   : "old dead letters can be removed while there is room: "
                     "mqdlq purge --older-than 30d QUEUE");
    if (left < SPACE_NONE)
        FOUND(f, BAD, "state directory", room,
              "%s is full: %s free. Retries and dead letters still fit into "
              "the store's own free space; once that is used up, the worker "
              "takes no more messages. No message is lost",
              root, text);
    else
        FOUND(f, left < SPACE_LOW ? WARN : FINE, "state directory",
              left < SPACE_LOW ? room : NULL, "%s has %s free", root, text);
}

/* ---- the verb ---- */

/* Check one queue and its worker. */
static void queue_named_check(struct findings *f, const struct options *o,
                              const char *name)
{
    struct problem p;
    struct snapshot v;

    if (snapshot_open(&v, o->state_dir, name, true, &p) < 0) {
        f->queue = name;
        FOUND(f, BAD, "folder", NULL, "%s", p.text);
    } else {
        f->queue = v.queue;
        queue_check(f, &v);
        readers_check(f, &v);
        snapshot_close(&v);
    }
    f->queue = NULL;
}

int doctor_run(const struct options *o)
{
    struct findings f = {.json = o->json, .quiet = o->quiet};
    struct queue_list queues = {0}, workers = {0};
    struct fds fds = {.count = 0};
    char ours[64] = "", first[64] = ""; /* IPC namespaces */
    struct problem p;

    if (o->line.operand_count && broker_operand_is(o->line.operands[0])) {
        const struct broker_engine *engine =
            broker_engine_of(o->line.operands[0], &p);

        return engine ? engine->doctor(o) : complain_of(&p);
    }
    if (queue_list_of_queues(&queues, o->state_dir) < 0 ||
        queue_list_of_workers(&workers, o->state_dir) < 0 ||
        fds_read(&fds) < 0) {
        queue_list_free(&workers);
        queue_list_free(&queues);
        return complain_memory();
    }
    f.fds = &fds;
    findings_begin(&f);
    limits_check(&f, o, &queues);
    if (o->line.operand_count == 0)
        orphans_check(&f, o, &queues);
    if (readlink("/proc/self/ns/ipc", ours, sizeof ours - 1) > 0 &&
        readlink("/proc/1/ns/ipc", first, sizeof first - 1) > 0 &&
        strcmp(ours, first) != 0)
        FOUND(&f, NOTE, "namespace", NULL,
              "mqctl sees the queues of %s, but process 1 is in %s. Each "
              "namespace has its own queues and limits",
              ours, first);
    else
        FOUND(&f, FINE, "namespace", NULL, "%s", ours);
    state_dir_check(&f, o);
    if (o->line.operand_count)
        queue_named_check(&f, o, o->line.operands[0]);
    else
        for (size_t i = 0; i < workers.count; i++)
            queue_named_check(&f, o, workers.at[i]);
    fds_free(&fds);
    queue_list_free(&workers);
    queue_list_free(&queues);
    return findings_end(&f) ? 1 : 0;
}

/* power.c - audit the disk after a simulated power cut (see power.h)
 *
 * A run is recorded. For many points of the run the program makes a state that
 * the disk may have after a power cut at that point, and audits it:
 * - SQLite must read the store, whose contents must be exactly those of one
 *   commit, no older than the last commit that had returned;
 * - in every --worker-every-th state a worker starts, as after a reboot, and
 *   settles all waiting messages. A message that had run before must be marked
 *   when it runs again, a cancelled message must not run, and all letters must
 *   be there except discarded ones.
 * No two runs are the same, so a single state is audited again from the record
 * of its run: --keep FILE writes the record, and a failure prints the other
 * flags.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/crash/power/power.h"

#define WORKER_LIMIT_S "60"

static struct power_place place;

/* A version of the store, and the event with which it begins. */
struct dump {
    size_t event;
    bool promised;
    uint64_t hash;
};

/* The states to audit. */
struct choice {
    unsigned long states, every, seed;
    const char *replay; /* record with the one state to audit; NULL: all */
    unsigned long point;
};

/* What was seen of a message before a point of the run. */
struct known {
    unsigned attempt; /* of its last delivery; 0: none */
    bool cancelled, discarded;
};

static struct known known[POWER_NUMBERS];
static struct dump *dumps;
static size_t dump_count;
static unsigned long marked, repeats, workers, failures, hashes_met;

/* Print the log of a program. */
static void log_show(const char *of)
{
    char path[160], text[4096];
    ssize_t n;
    int fd;

    snprintf(path, sizeof path, "%s/%s.log", place.base, of);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? 0 : read(fd, text, sizeof text);
    fprintf(stderr, "%s: %.*s\n", of, n > 0 ? (int)n : 0, text);
    if (fd >= 0)
        close(fd);
}

void power_fail(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fprintf(stderr, "power: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, " (%s)\n", strerror(errno));
    va_end(args);
    log_show("tools");
    log_show("worker");
    exit(70);
}

/* ---- what must be there ---- */

/* Note the contents of the store at an event, if they have changed. */
static void dump_note(const struct power_disk *d, size_t event, bool promised)
{
    static struct power_content content;
    struct dump *last = dump_count ? &dumps[dump_count - 1] : NULL;
    char error[200];

    power_disk_make(d, place.root, 0, true);
    if (!power_store_read(&place, &content, error))
        power_fail("event %zu: the store of the run: %s", event, error);
    if (!last || last->hash != content.hash)
        dumps[dump_count++] = (struct dump){event, promised, content.hash};
    else
        last->promised |= promised && last->event == event;
    /* Promised from here on */
    if (promised && last && last->hash == content.hash)
        dumps[dump_count++] = (struct dump){event, true, content.hash};
}

/* Find the version of each commit, at the sync that ends it. */
static void versions_find(const struct power_events *e, uint64_t root)
{
    struct power_disk *d = power_disk_open(root);
    size_t i;

    dumps = calloc(e->count + 1, sizeof *dumps);
    if (!dumps)
        power_fail("out of memory");
    for (i = 0; i < e->count; i++) {
        enum power_kind kind = e->all[i]->kind;

        power_disk_add(d, e->all[i]);
        if (kind == POWER_SYNC || kind == POWER_UNSYNC || kind == POWER_PROMISE)
            dump_note(d, i, kind == POWER_PROMISE);
    }
    power_disk_close(d);
}

/* Return true if the store may have this version: one from the last commit that
 * had returned before the point to the first one after it. */
static bool version_legal(size_t point, uint64_t hash)
{
    size_t at = 0, floor = 0;

    while (at < dump_count && dumps[at].event <= point) {
        if (dumps[at].promised)
            floor = at;
        at++;
    }
    if (floor == 0 && hash == 0)
        return true; /* no store, and no commit of it had returned */
    for (size_t i = floor; i <= at && i < dump_count; i++)
        if (dumps[i].hash == hash)
            return true;
    return false;
}

/* ---- the audit by a worker ---- */

static unsigned long failed(unsigned long seed, size_t point, const char *what,
                            unsigned number)
{
    fprintf(stderr, "power: --seed %lu --point %zu: %s (%u)\n", seed, point,
            what, number);
    if (failures++ == 0)
        log_show("worker");
    return failures;
}

static const char *runs_check(bool ran[POWER_NUMBERS], unsigned *number)
{
    unsigned attempt, mark;
    const char *wrong = NULL;
    FILE *in = fopen(place.witness, "re");
    char line[96];

    while (in && fgets(line, sizeof line, in)) {
        struct known *k;

        if (sscanf(line, "B %u %u %u", number, &attempt, &mark) != 3)
            continue;
        k = &known[*number];
        repeats += k->attempt != 0;
        marked += mark;
        if (ran[*number] && !wrong)
            wrong = "ran twice after the power cut";
        else if (k->cancelled && !wrong)
            wrong = "was cancelled and runs";
        else if (k->attempt >= attempt && !mark && !wrong)
            wrong = "runs again without a mark";
        ran[*number] = true;
        if (wrong)
            break;
    }
    if (in)
        fclose(in);
    return wrong;
}

static bool is_dead(const struct power_row *row)
{
    return row->state == POWER_LETTER || row->state == POWER_SENT;
}

/* Check that waiting messages have run and dead ones are letters. */
static const char *rows_check(const struct power_content *before,
                              const bool ran[POWER_NUMBERS], unsigned *number)
{
    static struct power_content after;
    bool letter[POWER_NUMBERS] = {false}, waits[POWER_NUMBERS] = {false};
    char error[200];

    if (!power_store_read(&place, &after, error))
        return "the store cannot be read afterwards";
    for (size_t i = 0; i < after.count; i++) {
        *number = after.rows[i].number;
        if (after.rows[i].state != POWER_LETTER)
            return "is still waiting";
        if (known[*number].discarded)
            return "was discarded and is a letter";
        letter[*number] = true;
    }
    for (size_t i = 0; i < before->count; i++)
        waits[before->rows[i].number] |= !is_dead(&before->rows[i]);
    for (size_t i = 0; i < before->count; i++) {
        const struct power_row *row = &before->rows[i];
        bool dead = is_dead(row);

        *number = row->number;
        /* A letter that is being replayed and waits in the spool runs from
         * there. */
        if (dead && !letter[*number] && !(waits[*number] && ran[*number]))
            return "was a letter and is none now";
        if (!dead && !row->cancelled && !ran[*number])
            return "was waiting and did not run";
    }
    return NULL;
}

static int folder_remove(const char *path)
{
    char command[200];

    snprintf(command, sizeof command, "rm -rf %s", path);
    return system(command);
}

static void worker_audit(const struct power_content *before, unsigned long seed,
                         size_t point)
{
    const char *argv[] = {"mqworker",
                          "-c",
                          "2",
                          "--queue-depth",
                          "10",
                          "--message-size",
                          "400",
                          "--run-for",
                          WORKER_LIMIT_S "s",
                          "--exit-when-idle",
                          "--plugin",
                          NULL,
                          "--plugin-arg",
                          "done",
                          "--state-dir",
                          place.root,
                          "--runtime-dir",
                          place.memory,
                          place.queue,
                          NULL};
    bool ran[POWER_NUMBERS] = {false};
    char plugin[PATH_MAX];
    const char *wrong = NULL;
    unsigned number = 0;
    int status;

    snprintf(plugin, sizeof plugin, "%s/plugins/power.so",
             getenv("MQW_HANDLERS"));
    argv[11] = plugin;
    unlink(place.witness);
    if (folder_remove(place.memory) != 0 || mkdir(place.memory, 0700) < 0)
        power_fail("%s", place.memory);
    status =
        power_end(power_start(&place, argv, "plugins/clock_shift.so", "worker"),
                  "mqworker");
    workers++;
    if (status != 0) {
        number = (unsigned)status;
        wrong = "the worker exited with this status";
    }
    if (!wrong)
        wrong = runs_check(ran, &number);
    if (!wrong)
        wrong = rows_check(before, ran, &number);
    if (wrong)
        failed(seed, point, wrong, number);
}

/* Note what a program outside the worker has seen. */
static void world_note(const struct power_record *r)
{
    unsigned number, attempt = 0;
    char line[96], what;

    snprintf(line, sizeof line, "%.*s", (int)r->size, power_data(r));
    if (r->kind != POWER_WORLD ||
        sscanf(line, "%c %u %u", &what, &number, &attempt) < 2)
        return;
    if (what == 'B' || what == 'R')
        known[number].attempt = attempt;
    known[number].cancelled |= what == 'C';
    known[number].discarded |= what == 'D';
}

static void state_audit(const struct power_disk *d, unsigned long seed,
                        size_t point, bool worker)
{
    static struct power_content content;
    uint64_t state = seed * 0x9e3779b97f4a7c15u ^ point;
    uint64_t choice = power_random(&state);
    char error[200];

    power_disk_make(d, place.root, choice, false);
    if (!power_store_read(&place, &content, error)) {
        failed(seed, point, error, 0);
        return;
    }
    if (!version_legal(point, content.hash)) {
        failed(seed, point, "a commit that had returned is missing", 0);
        return;
    }
    hashes_met++;
    if (!worker)
        return;
    power_disk_make(d, place.root, choice, false);
    worker_audit(&content, seed, point);
}

/* ---- main ---- */

/* Remove all files; also runs after an exit in the middle. */
static void place_clean(void)
{
    const char *argv[] = {"mqctl", "remove", "--force", place.queue, NULL};

    if (access(place.base, F_OK) == 0) {
        power_end(power_start(&place, argv, "plugins/clock_shift.so", "tools"),
                  "mqctl");
        folder_remove(place.base);
    }
}

/* Make the files of the run, with this number in their names. */
static void place_make(int number)
{
    snprintf(place.base, sizeof place.base, "/dev/shm/mqw-power-%d", number);
    snprintf(place.root, sizeof place.root, "%s/state", place.base);
    snprintf(place.memory, sizeof place.memory, "%s/memory", place.base);
    snprintf(place.witness, sizeof place.witness, "%s/witness", place.base);
    snprintf(place.trace, sizeof place.trace, "%s/trace", place.base);
    snprintf(place.boot, sizeof place.boot, "%s/boot", place.base);
    snprintf(place.shift, sizeof place.shift, "%s/shift", place.base);
    snprintf(place.queue, sizeof place.queue, "/mqw-power-%d", number);
    if (mkdir(place.base, 0700) < 0 || mkdir(place.root, 0700) < 0 ||
        mkdir(place.memory, 0700) < 0)
        power_fail("%s", place.base);
    atexit(place_clean);
}

static void text_write(const char *path, const char *text)
{
    FILE *out = fopen(path, "we");

    if (!out || fputs(text, out) < 0 || fclose(out) != 0)
        power_fail("%s", path);
}

/* Copy the record of the run for --replay. Call this before power_disk reads
 * the record. */
static void trace_keep(const char *file)
{
    char command[PATH_MAX + 200];

    snprintf(command, sizeof command, "cp '%s' '%s'", place.trace, file);
    if (system(command) != 0)
        power_fail("%s", file);
}

/* Record a run and read its events. */
static uint64_t load_record(struct power_events *e, const char *keep)
{
    struct power_trace trace;
    struct stat st;

    place_make((int)getpid());
    text_write(place.boot, "11111111-2222-3333-4444-555555555555\n");
    power_trace_open(&trace, place.trace, true);
    if (stat(place.root, &st) < 0)
        power_fail("%s", place.root);
    trace.head->root = st.st_ino;
    trace.head->pid = getpid();
    power_load(&place);
    if (keep)
        trace_keep(keep);
    power_events_read(e, place.trace);
    return st.st_ino;
}

/* Read the events of a kept record. The names must be those of its run, because
 * the state contains them. */
static uint64_t load_kept(struct power_events *e, const char *file)
{
    struct power_trace trace;

    if (access(file, R_OK) < 0)
        power_fail("%s", file);
    power_trace_open(&trace, file, false);
    place_make((int)trace.head->pid);
    text_write(place.boot, "11111111-2222-3333-4444-555555555555\n");
    power_events_read(e, file);
    return trace.head->root;
}

/* Audit evenly spaced states, or only the chosen one. */
static size_t states_audit(const struct power_events *e, uint64_t root,
                           const struct choice *c)
{
    struct power_disk *d = power_disk_open(root);
    size_t done = 0;

    for (size_t i = 0; i < e->count; i++) {
        power_disk_add(d, e->all[i]);
        world_note(e->all[i]);
        if (c->replay && i == c->point)
            state_audit(d, c->seed, i, true), done++;
        for (; !c->replay && done * e->count < (i + 1) * c->states; done++)
            state_audit(d, c->seed + done, i,
                        c->every && done % c->every == c->every - 1);
    }
    power_disk_close(d);
    return done;
}

int main(int argc, char **argv)
{
    static const struct option flags[] = {
        {"states", required_argument, NULL, 'n'},
        {"worker-every", required_argument, NULL, 'w'},
        {"seed", required_argument, NULL, 's'},
        {"drop", required_argument, NULL, 'd'},
        {"keep", required_argument, NULL, 'k'},
        {"replay", required_argument, NULL, 'r'},
        {"point", required_argument, NULL, 'p'},
        {NULL, 0, NULL, 0},
    };
    struct choice choice = {.states = 10000, .every = 5, .seed = 1};
    const char *keep = NULL;
    struct power_events e;
    uint64_t root;
    size_t done;
    int c;

    while ((c = getopt_long(argc, argv, "", flags, NULL)) != -1)
        if (c == 'n')
            choice.states = strtoul(optarg, NULL, 10);
        else if (c == 'w')
            choice.every = strtoul(optarg, NULL, 10);
        else if (c == 's')
            choice.seed = strtoul(optarg, NULL, 10);
        else if (c == 'd')
            place.drop = optarg;
        else if (c == 'k')
            keep = optarg;
        else if (c == 'r')
            choice.replay = optarg;
        else if (c == 'p')
            choice.point = strtoul(optarg, NULL, 10);
        else
            return 64;
    root = choice.replay ? load_kept(&e, choice.replay) : load_record(&e, keep);
    text_write(place.shift, "864000\n");
    versions_find(&e, root);
    done = states_audit(&e, root, &choice);
    printf("%zu events, %zu versions of the store, %zu states (%lu read as one "
           "of them), %lu workers, %lu repeats, %lu marked: %lu failures\n",
           e.count, dump_count, done, hashes_met, workers, repeats, marked,
           failures);
    return failures != 0;
}

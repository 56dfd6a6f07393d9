/* torture_count.c - count the user instructions of a message, by function (see
 * torture.h)
 *
 * The worker has one work item and a plugin that does nothing; all messages
 * are alike. The receiving thread runs freely for some messages, as under load,
 * and is then stepped from the return of one mq_timedreceive to the call of the
 * next. So the decisions that depend on the clock (whether handlers are quick)
 * are those of an unwatched worker, and the count does not depend on the speed
 * of the machine.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <mqueue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "tests/crash/torture/torture.h"
#include "tests/crash/torture/torture_tracer.h"

#define SAMPLES   31    /* messages that are stepped */
#define FREE      32    /* messages that run freely between two samples */
#define NTH       2     /* receive to step; before it the queue had messages */
#define STEPS     20000 /* limit for one message */
#define ADDRESSES (SAMPLES * STEPS)
/* Instructions of a clock_gettime in the vDSO of x86-64, beyond those of the
 * system call that replaces it here (torture_tracer.c). */
#define CLOCK          62
#define FUNCTIONS_MOST 40 /* functions that are printed */
#define OBJECTS        32
#define ROOM_NS        (100 * NS_PER_MS) /* wait for room in the queue */
#define TRIES          600

/* A file that is mapped for execution. */
struct object {
    uint64_t from, to;
    char path[PATH_MAX];
};

/* Instructions at one address; after same_join, those of one function. */
struct spot {
    uint64_t ip, count;
    const struct object *object;
    char name[128];
};

struct count {
    struct torture *t;
    struct tracer tracer;
    mqd_t queue;
    uint64_t sent;
    uint64_t *ips; /* address after each instruction of all samples */
    size_t n;
    uint64_t reads; /* clock reads in the current sample */
    uint64_t steps[SAMPLES];
    struct object objects[OBJECTS];
    size_t object_count;
};

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* ---- stepping ---- */

/* Send one message. Return false if the queue has no room within `wait_ns`. */
static bool message_send(struct count *c, uint64_t wait_ns)
{
    unsigned char message[TORTURE_MOST];
    uint64_t end = clock_wall_ns() + wait_ns;
    struct timespec ts = {.tv_sec = (time_t)(end / NS_PER_S),
                          .tv_nsec = (long)(end % NS_PER_S)};
    struct torture_plan plan;
    size_t size;

    torture_plan(c->sent, &plan);
    size = torture_make(&plan, 0, message);
    if (mq_timedsend(c->queue, (const char *)message, size, 0, &ts) == 0) {
        c->sent++;
        return true;
    }
    if (errno != ETIMEDOUT)
        torture_die("%s: %s", c->t->queue, strerror(errno));
    return false;
}

/* Let the worker run at full speed for some messages. A thread that is still
 * traced by system calls is continued at each stop. */
static void run_free(struct count *c)
{
    tracer_run(&c->tracer);
    for (unsigned sent = 0, tries = 0; sent < FREE;) {
        sent += message_send(c, ROOM_NS);
        if (++tries == TRIES)
            torture_die("the worker takes no more messages");
        tracer_serve(&c->tracer);
    }
    tracer_hold(&c->tracer);
}

static void visit(void *arg, uint64_t ip)
{
    struct count *c = arg;

    if (c->n == ADDRESSES)
        torture_die("more than %d instructions", ADDRESSES);
    c->ips[c->n++] = ip;
    c->reads += ip == c->tracer.clock_ip;
}

/* Step through one message and return its instructions, without the call of
 * mq_timedreceive. */
static uint64_t message_step(struct count *c)
{
    uint64_t steps;
    bool again;

    run_free(c);
    while (message_send(c, 0))
        continue;
    if (tracer_catch(&c->tracer, NTH) != TRACER_CAUGHT)
        torture_die("the worker ended by itself");
    c->reads = 0;
    steps = tracer_step(&c->tracer, STEPS, visit, c, &again) - 1;
    return steps + c->reads * CLOCK;
}

/* ---- names ---- */

/* List the files that the worker has mapped. */
static void objects_read(struct count *c)
{
    char path[64], line[PATH_MAX + 128];
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/maps", (int)c->tracer.pid);
    f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f) && c->object_count < OBJECTS) {
        struct object *o = &c->objects[c->object_count], *last = o - 1;
        bool same;

        o->path[0] = '\0';
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %*s %*s %*s %4095s",
                   &o->from, &o->to, o->path) < 3)
            continue;
        same = c->object_count && strcmp(last->path, o->path) == 0;
        if (same)
            last->to = o->to;
        else
            c->object_count++;
    }
    if (f)
        fclose(f);
}

static const struct object *object_of(const struct count *c, uint64_t ip)
{
    for (size_t i = 0; i < c->object_count; i++)
        if (ip >= c->objects[i].from && ip < c->objects[i].to)
            return &c->objects[i];
    return NULL;
}

/* Name the addresses of one object by addr2line, which prints "0x...", a
 * function and a line, and two more lines for each level of inlining. */
static void spots_name(struct torture *t, struct spot *spots, size_t n,
                       const struct object *o)
{
    char command[2 * PATH_MAX], line[1024];
    const char *list = place_path(t, "addresses");
    struct spot *at = NULL;
    bool is_name = false;
    FILE *f = fopen(list, "we");

    for (size_t i = 0; f && i < n; i++)
        if (spots[i].object == o)
            fprintf(f, "%" PRIx64 "\n", spots[i].ip - o->from);
    if (f)
        fclose(f);
    snprintf(command, sizeof command,
             "addr2line -a -f -i -e '%s' <'%s' 2>/dev/null", o->path, list);
    f = popen(command, "re");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "0x", 2) == 0) {
            at = at ? at + 1 : spots;
            while (at < spots + n && at->object != o)
                at++;
        } else if (is_name && at && at < spots + n && line[0] != '?') {
            snprintf(at->name, sizeof at->name, "%.100s", line);
        }
        is_name = strncmp(line, "0x", 2) == 0;
    }
    if (f)
        pclose(f);
}

static int by_name(const void *a, const void *b)
{
    const struct spot *x = a, *y = b;
    int order = strcmp(x->name, y->name);

    return order ? order : (x->object > y->object) - (x->object < y->object);
}

static int by_count(const void *a, const void *b)
{
    const struct spot *x = a, *y = b;

    return (x->count < y->count) - (x->count > y->count);
}

/* Print the functions with the mean of all samples. */
static void functions_print(const struct spot *spots, size_t n)
{
    uint64_t all = 0;

    for (size_t i = 0; i < n; i++)
        all += spots[i].count;
    for (size_t i = 0; i < n && i < FUNCTIONS_MOST; i++)
        printf("  %8.1f %5.1f %%  %-32s %s\n", (double)spots[i].count / SAMPLES,
               (double)spots[i].count * 100 / (double)all, spots[i].name,
               spots[i].object ? spots[i].object->path : "");
}

/* Join neighbours of the same name; return how many remain. */
static size_t same_join(struct spot *spots, size_t n)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++)
        if (kept && by_name(&spots[kept - 1], &spots[i]) == 0)
            spots[kept - 1].count += spots[i].count;
        else
            spots[kept++] = spots[i];
    return kept;
}

/* Print which functions the instructions belong to; an inlined function counts
 * for itself. */
static void breakdown(struct count *c)
{
    struct spot *spots = calloc(c->n, sizeof *spots);
    size_t n = 0;

    if (!spots)
        torture_die("out of memory");
    objects_read(c);
    qsort(c->ips, c->n, sizeof *c->ips, by_number);
    for (size_t i = 0; i < c->n; i++) {
        if (n == 0 || spots[n - 1].ip != c->ips[i])
            spots[n++] = (struct spot){.ip = c->ips[i],
                                       .object = object_of(c, c->ips[i]),
                                       .name = "(no name)"};
        spots[n - 1].count++;
    }
    for (size_t i = 0; i < c->object_count; i++)
        if (c->objects[i].path[0] == '/')
            spots_name(c->t, spots, n, &c->objects[i]);
    qsort(spots, n, sizeof *spots, by_name);
    n = same_join(spots, n);
    qsort(spots, n, sizeof *spots, by_count);
    functions_print(spots, n);
    free(spots);
}

/* ---- the run ---- */

/* Print one line, which a test reads. The lower eighth is printed instead of
 * the median: stepping a message takes so long, above all on a busy machine,
 * that work which is due every 100 ms may fall into most samples. */
static void cost_print(const struct count *c, const char *name)
{
    uint64_t steps[SAMPLES];

    memcpy(steps, c->steps, sizeof steps);
    qsort(steps, SAMPLES, sizeof *steps, by_number);
    printf("%s: %" PRIu64 " instructions a message (lower eighth of %d, "
           "%" PRIu64 " to %" PRIu64 "), %d for each look at the clock\n",
           name, steps[SAMPLES / 8], SAMPLES, steps[0], steps[SAMPLES - 1],
           CLOCK);
}

/* Count for a worker with these options. Return false if ptrace(2) is not
 * permitted. */
static bool count_one(const struct torture_options *o, const char *name,
                      const char *const *options)
{
    struct torture t = {.options = o,
                        .kind = TORTURE_PLUGIN,
                        .plugin = "plugins/nothing.so",
                        .traced = true};
    static struct count all;
    struct count *c = &all;
    enum tracer_caught caught;

    place_open(&t);
    *c = (struct count){.t = &t, .ips = calloc(ADDRESSES, sizeof *c->ips)};
    if (!c->ips)
        torture_die("out of memory");
    c->queue = mq_open(t.queue, O_WRONLY);
    while (message_send(c, 0))
        continue;
    worker_start(&t, NULL, options);
    caught = tracer_start(&c->tracer, t.worker.pid);
    if (caught == TRACER_CAUGHT)
        caught = tracer_catch(&c->tracer, NTH);
    if (caught == TRACER_ENDED)
        torture_die("the worker ended by itself");
    for (size_t i = 0; i < SAMPLES && caught == TRACER_CAUGHT; i++)
        c->steps[i] = message_step(c);
    if (caught == TRACER_CAUGHT) {
        cost_print(c, name);
        breakdown(c);
        tracer_kill(&c->tracer);
    }
    mq_close(c->queue);
    place_close(&t);
    free(c->ips);
    return caught == TRACER_CAUGHT;
}

bool count_run(const struct torture_options *o)
{
    static const char *const plain[] = {"-c", "1", NULL};
    static const char *const limit[] = {"-c", "1", "--timeout", "1m", NULL};
    struct torture_options grouped = *o;

    grouped.path = PATH_GROUP;
    processor_take(0);
    return count_one(o, "plain", plain) &&
           count_one(&grouped, "limit and groups", limit);
}

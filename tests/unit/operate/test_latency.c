/* test_latency.c - what is done to a large custody keeps the loop waiting for
 * nothing
 *
 * 64 slots of 16 MiB are added, and written again after a removal, by jobs of
 * the pool, while the loop fires a timer each millisecond and maps what a new
 * thread would need. How late the timer is, less the time that the thread
 * waited for a processor (/proc/self/task/TID/schedstat), is what it was kept
 * from. A machine that is busy can add to that, so the best of some rounds
 * counts: what keeps the loop waiting does so in each of them.
 */
#include "tests/unit/operate/cap_fixture.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/statvfs.h>

enum { CAP = 1, MOST = 64, STACK = 256 << 10, ROUNDS = 5 };

#define MOST_LATE (20 * NS_PER_MS)
#define TICK      NS_PER_MS
/* Two files, and as much for others. */
#define NEEDS ((uint64_t)4 * MOST * CUSTODY_BODY_MAX)

static struct timer tick;
static uint64_t due_ns, waited_ns, worst_ns;
static atomic_bool done;

/* waited - how long this thread has waited for a processor so far */
static uint64_t waited(void)
{
    unsigned long long ran = 0, wait = 0;
    char path[64];
    FILE *file;

    snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", (int)gettid());
    file = fopen(path, "re");
    if (!file || fscanf(file, "%llu %llu", &ran, &wait) != 2)
        wait = 0;
    if (file)
        fclose(file);
    return wait;
}

static void ticked(struct timer *timer)
{
    uint64_t wait = waited(), now = clock_mono_ns(), late = now - due_ns;
    uint64_t lost = wait - waited_ns;
    void *stack;

    late = late > lost ? late - lost : 0;
    if (late > worst_ns)
        worst_ns = late;
    stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(stack, MAP_FAILED);
    munmap(stack, STACK);
    waited_ns = waited();
    due_ns = clock_mono_ns() + TICK;
    timers_start(flow.timers, timer, due_ns);
}

static bool finished(void *arg)
{
    (void)arg;
    return atomic_load(&done);
}

static int wait_ms(void *arg)
{
    (void)arg;
    return -1;
}

/* run - the loop, until `done` */
static uint64_t run(void)
{
    static const struct loop_hooks hooks = {.finished = finished,
                                            .wait_ms = wait_ms,
                                            .quiet = cap_nothing,
                                            .round = cap_nothing};

    atomic_store(&done, false);
    worst_ns = 0;
    waited_ns = waited();
    due_ns = clock_mono_ns() + TICK;
    timers_start(flow.timers, &tick, due_ns);
    loop_run(flow.loop, &hooks, NULL);
    return worst_ns;
}

static void over(void *arg)
{
    (void)arg;
    atomic_store(&done, true);
}

static void setup(void)
{
    flow = (struct flow){0};
    mq = (struct source_mq){0};
    strcpy(fixture_dir, "/dev/shm/mqw-latency-XXXXXX");
    cr_assert(mkdtemp(fixture_dir));
    snprintf(fixture_file, sizeof fixture_file, "%s/custody", fixture_dir);
    cap_open(CAP, MOST, CUSTODY_BODY_MAX, over);
    timer_init(&tick, ticked);
}

static void put_back_job(struct pool_job *job)
{
    struct problem p;

    (void)job;
    cr_assert_eq(custody_put_back(mq.custody, &p), 0, "%s", p.text);
    over(NULL);
    loop_wake(flow.loop);
}

/* adding - the longest that the loop was kept waiting, ns */
static uint64_t adding(void)
{
    uint64_t worst;

    cr_assert_eq(cap_set(&cap, MOST, NULL), -EINPROGRESS);
    worst = run();
    cr_assert_eq(atomic_load(&flow.gate.cap), MOST);
    return worst;
}

static uint64_t rewriting(void)
{
    static struct pool_job job = {.run = put_back_job};

    cr_assert_eq(unlink(fixture_file), 0);
    cr_assert_eq(pool_submit(flow.pool, &job), 0);
    return run();
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static bool room(void)
{
    struct statvfs shm;

    return statvfs("/dev/shm", &shm) == 0 &&
           (uint64_t)shm.f_bavail * shm.f_frsize >= NEEDS &&
           (uint64_t)sysconf(_SC_AVPHYS_PAGES) *
                   (uint64_t)sysconf(_SC_PAGESIZE) >=
               NEEDS;
}

Test(latency, adding_and_rewriting_64_slots_of_16_mib_delays_no_timer,
     .timeout = 600)
{
    uint64_t add = UINT64_MAX, rewrite = UINT64_MAX;

    if (!room())
        cr_skip_test("no 4 GiB are free in /dev/shm");
    for (int i = 0; i < ROUNDS && (add >= MOST_LATE || rewrite >= MOST_LATE);
         i++) {
        setup();
        add = least(add, adding());
        rewrite = least(rewrite, rewriting());
        cap_close();
    }
    fprintf(stderr,
            "latency: the loop waited %" PRIu64 " us at most while slots were "
            "added, %" PRIu64 " us while they were written again\n",
            add / NS_PER_US, rewrite / NS_PER_US);
    cr_expect_lt(add, MOST_LATE);
    cr_expect_lt(rewrite, MOST_LATE);
}

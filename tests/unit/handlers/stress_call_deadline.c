/* stress_call_deadline.c - calls against their time limits, for the thread
 * sanitizer
 *
 * stress_call_deadline [CALLS [SEED]]. Each thread has a place, and makes calls
 * with limits about as long as the calls. Some calls go on until their limit
 * has come: it must come, though the timer is not started for each call. A call
 * is late exactly if it was told so, once, and never before its time. Each call
 * is on the stack of its round, so telling it after call_deadline_leave is a
 * use after return.
 */
#include "tests/unit/wheel/stress_fixture.h"

#include "worker/handlers/call_deadline.h"

#define SURELY 16 /* one call in so many waits for its limit */
#define STUCK  (20 * NS_PER_S)

struct call {
    atomic_uint told;
    uint64_t not_before; /* ns */
};

static struct call_deadline place[THREADS];
static struct call *_Atomic now_in[THREADS]; /* its call that runs */

static void on_late(void *arg)
{
    struct call *c = *(struct call * _Atomic *)arg;

    if (clock_mono_ns() < c->not_before) {
        fprintf(stderr, "told before its time\n");
        atomic_fetch_add(&wrong, 1);
    }
    atomic_fetch_add(&c->told, 1);
}

/* Make one call. */
static void once(unsigned thread, unsigned *state)
{
    struct call_deadline *p = &place[thread];
    bool surely = rand_r(state) % SURELY == 0, was_late;
    uint64_t limit = (uint64_t)rand_r(state) % FEW_NS;
    uint64_t now = clock_mono_ns();
    uint64_t until = now + (uint64_t)rand_r(state) % FEW_NS;
    struct call c = {.not_before = now + limit};

    now_in[thread] = &c;
    call_deadline_enter(p, (struct message *)(void *)&c,
                        rand_r(state) % 8 || surely ? now + limit : UINT64_MAX);
    while (surely ? atomic_load(&c.told) == 0 && clock_mono_ns() < now + STUCK
                  : clock_mono_ns() < until)
        ;
    was_late = call_deadline_leave(p);
    atomic_fetch_add(was_late ? &late : &in_time, 1);
    if (was_late != atomic_load(&c.told) || (surely && !was_late)) {
        fprintf(stderr, "late %d, told %u times, waited for it %d\n", was_late,
                atomic_load(&c.told), surely);
        atomic_fetch_add(&wrong, 1);
    }
}

int main(int argc, char **argv)
{
    if (!stress_open(argc, argv))
        return 1;
    for (unsigned i = 0; i < THREADS; i++) {
        call_deadline_init(&place[i], timers, on_late, &now_in[i]);
        if (i % 2) { /* as where the kernel has no barrier */
            place[i].barrier = false;
            atomic_store(&place[i].asked, true);
        }
    }
    if (!stress_run(once))
        return 1;
    for (unsigned i = 0; i < THREADS; i++)
        call_deadline_fini(&place[i]);
    return stress_close("stress_call_deadline");
}

/* stress_attention.c - no bit is lost, and none stays, between threads that
 * change the reasons; run also under the thread sanitizer
 *
 * Usage: stress_attention [ROUNDS]
 *
 * A seat is a reason as the gate has it, computed under a lock. A row is a
 * reason as a source has it, without a lock. After each round all threads stand
 * still, and each bit must match its reason.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "worker/flow/gate.h"
#include "worker/source/source.h"

enum { THREADS = 4, STEPS = 200, CAP = 2 };

static struct gate gate;
static struct settings set = {.concurrency = CAP, .breaker_pause_ns = 1};
static struct source source = {.attention = &gate.attention};
static pthread_barrier_t start, end;
static unsigned rounds = 1000, wrong;

static void told(void *arg, enum gate_event event)
{
    (void)arg;
    (void)event;
}

/* Enter and leave the gate, and change the cap now and then. */
static void seat(unsigned *state)
{
    if (gate_enter(&gate)) {
        if (rand_r(state) % 2 || !gate_leave_over(&gate, 1))
            gate_leave(&gate);
    }
    if (rand_r(state) % 8 == 0)
        gate_set_cap(&gate, 1 + (unsigned)rand_r(state) % CAP);
    if (rand_r(state) % 8 == 0)
        gate_tune_breaker(&gate, (unsigned)rand_r(state) % 2, 1);
}

/* Set a reason to look for due rows, or clear it. */
static void row(unsigned *state)
{
    if (rand_r(state) % 2)
        source_due_set(&source, 1 + rand_r(state) % 2);
    else
        source_due_clear(&source, 1 + rand_r(state) % 2);
}

static void *work(void *arg)
{
    unsigned state = *(unsigned *)arg + 1;
    bool seated = false; /* from one round to the next */

    for (unsigned r = 0; r < rounds; r++) {
        pthread_barrier_wait(&start);
        if (seated)
            gate_leave(&gate);
        for (unsigned i = 0; i < STEPS; i++) {
            seat(&state);
            row(&state);
        }
        seated = gate_enter(&gate);
        pthread_barrier_wait(&end);
        pthread_barrier_wait(&end); /* meanwhile main checks the bits */
    }
    return NULL;
}

/* Check that the bit is set exactly if the reason is there. */
static void expect(const char *name, unsigned bit, bool reason)
{
    if (!(attention_look(&gate.attention) & bit) == reason) {
        fprintf(stderr, "%s: the bit is %d, the reason %d\n", name, !reason,
                reason);
        wrong++;
    }
}

static void check(void)
{
    unsigned running = gate_running(&gate);

    expect("others", ATTEND_OTHERS, running > 1);
    expect("cap", ATTEND_CAP, running > atomic_load(&gate.cap));
    expect("breaker", ATTEND_BREAKER, atomic_load(&gate.breaker.limit) > 0);
    expect("due", ATTEND_DUE, source_due(&source));
}

int main(int argc, char **argv)
{
    pthread_t thread[THREADS];
    unsigned number[THREADS];

    if (argc > 1)
        rounds = (unsigned)strtoul(argv[1], NULL, 10);
    log_setup(LOG_ERROR + 1, LOG_TEXT);
    gate_init(&gate, &set, told, NULL);
    pthread_barrier_init(&start, NULL, THREADS);
    pthread_barrier_init(&end, NULL, THREADS + 1);
    for (unsigned i = 0; i < THREADS; i++) {
        number[i] = i;
        if (pthread_create(&thread[i], NULL, work, &number[i]) != 0)
            return 1;
    }
    for (unsigned r = 0; r < rounds; r++) {
        pthread_barrier_wait(&end);
        check();
        pthread_barrier_wait(&end);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    gate_fini(&gate);
    printf("%u rounds of %d steps on %d threads, %u wrong\n", rounds, STEPS,
           THREADS, wrong);
    return wrong > 0;
}

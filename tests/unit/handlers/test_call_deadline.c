/* test_call_deadline.c - a seized call never comes back; any other call does */
#include "worker/handlers/call_deadline.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/libc.h"

#define THREADS 3
#define TRIALS  20

struct runner {
    struct call_deadline place;
    char slot; /* its address is all that counts */
    atomic_int tid;
    atomic_uint entered, left; /* calls */
    atomic_bool over;          /* the thread ended, as it was told in time */
    unsigned warm;             /* calls before it posts `warm` */
};

static atomic_bool told;
static sem_t warm;

static struct message *slot_of(struct runner *r)
{
    return (struct message *)(void *)&r->slot;
}

/* Make calls, one after the other, until told to end. Leaving a call that was
 * seized does not return. */
static void *calls(void *arg)
{
    struct runner *r = arg;

    atomic_store(&r->tid, gettid());
    while (!atomic_load(&told)) {
        atomic_fetch_add(&r->entered, 1);
        call_deadline_enter(&r->place, slot_of(r), UINT64_MAX);
        if (atomic_load(&r->left) % 4 == 0) /* calls must last, to be seized */
            sched_yield();
        call_deadline_leave(&r->place);
        if (atomic_fetch_add(&r->left, 1) == r->warm)
            sem_post(&warm);
    }
    atomic_store(&r->over, true);
    return NULL;
}

/* Return true if the thread waits in the kernel; until then it is running. */
static bool sleeps(const struct runner *r)
{
    char path[64], state = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/self/task/%d/stat",
             atomic_load(&r->tid));
    f = fopen(path, "r");
    if (!f || fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
        state = 0;
    if (f)
        fclose(f);
    return state == 'S';
}

/* Seize the call of a runner, until the runner has ended or its call is seized;
 * that may not change any more. Returns 0, or an exit status that says what was
 * wrong. */
static int seize(struct runner *r, unsigned *seized)
{
    struct message *slot;
    unsigned n = 0;

    while (!atomic_load(&r->over) && !call_deadline_seized(&r->place)) {
        slot = call_deadline_seize(&r->place);
        if (slot && slot != slot_of(r))
            return 2;
        n += slot != NULL;
    }
    /* A thread that is leaving its call is not seized for a moment. */
    while (n > 0 && !atomic_load(&r->over) && !sleeps(r))
        sched_yield();
    if (n > 1 || n != call_deadline_seized(&r->place) ||
        n == atomic_load(&r->over))
        return 3;
    if (call_deadline_seize(&r->place))
        return 4;
    *seized += n;
    return 0;
}

/* Run a trial in a process of its own, as its threads stay behind. Returns 100
 * plus the number of seized calls, or what was wrong. */
static int trial(unsigned n)
{
    static struct runner runners[THREADS];
    unsigned seized = 0, left[THREADS];
    int wrong = 0;

    sem_init(&warm, 0, 0);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_t thread;

        call_deadline_init(&runners[i].place, NULL, NULL, NULL);
        runners[i].warm = n % 7 * 100;
        if (pthread_create(&thread, NULL, calls, &runners[i]) != 0)
            return 1;
    }
    for (unsigned i = 0; i < THREADS; i++)
        sem_wait(&warm);
    atomic_store(&told, n % 2);
    for (unsigned i = 0; i < THREADS && !wrong; i++) {
        wrong = seize(&runners[i], &seized);
        left[i] = atomic_load(&runners[i].left);
    }
    for (unsigned i = 0; i < THREADS && !wrong; i++) {
        bool stuck = call_deadline_seized(&runners[i].place);

        while (stuck && !sleeps(&runners[i]))
            sched_yield();
        if (left[i] != atomic_load(&runners[i].left))
            wrong = 5; /* a seized call came back */
        else if (atomic_load(&runners[i].entered) != left[i] + stuck)
            wrong = 6;
    }
    return wrong ? wrong : 100 + (int)seized;
}

Test(place, a_seized_call_never_comes_back_and_others_do)
{
    unsigned all = 0, some = 0;

    for (unsigned n = 0; n < TRIALS; n++) {
        pid_t pid = fork();
        int status;

        cr_assert_geq(pid, 0);
        if (pid == 0)
            _exit(trial(n));
        cr_assert_eq(waitpid(pid, &status, 0), pid);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) >= 100,
                  "trial %u: %#x", n, (unsigned)status);
        if (n % 2 == 0)
            cr_assert_eq(WEXITSTATUS(status), 100 + THREADS,
                         "nobody was told to end, but not all were seized");
        all += THREADS;
        some += (unsigned)WEXITSTATUS(status) - 100;
    }
    cr_assert_lt(some, all, "none ended by itself");
}

/* turns_send.c - send messages of groups (see turns.h) */
#include "tests/harness/internal.h"

#include "tests/harness/turns.h"

#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MESSAGE_MAX = 400, PRODUCERS_MAX = 8, HIGH = 3 };

static pid_t producers[PRODUCERS_MAX]; /* 0: not started, or exited */

/* Write header and body; return their size. */
static size_t message_make(char message[MESSAGE_MAX], const char *group,
                           const char *body)
{
    int n = group ? snprintf(message, MESSAGE_MAX, "MQW/1\ngroup: %s\n\n%s",
                             group, body)
                  : snprintf(message, MESSAGE_MAX, "MQW/1\n\n%s", body);

    return (size_t)n;
}

void turns_send(const char *queue, const char *group, unsigned priority,
                const char *body)
{
    char message[MESSAGE_MAX];

    harness_send(queue, message, message_make(message, group, body), priority);
}

void turns_send_number(const char *queue, const char *group, unsigned priority,
                       unsigned producer, unsigned number)
{
    char body[32];

    snprintf(body, sizeof body, "%u.%u", producer, number);
    turns_send(queue, group, priority, body);
}

/* ---- producers ---- */

/* Print the name of a group of the plan. */
static void group_name(const struct turns_plan *plan, unsigned group,
                       char name[64])
{
    snprintf(name, 64, "%s%u", plan->prefix ? plan->prefix : "g", group);
}

/* Send one message; waits for room without a limit. */
static void number_send(mqd_t q, const struct turns_plan *plan, unsigned me,
                        unsigned group, unsigned number)
{
    char message[MESSAGE_MAX], name[64], body[32];
    unsigned mix = (group * 31 + number) * 7;
    unsigned priority = plan->high_in && mix % plan->high_in == 0 ? HIGH : 0;

    group_name(plan, group, name);
    snprintf(body, sizeof body, "%u.%u", me, number);
    if (mq_send(q, message, message_make(message, name, body), priority) < 0)
        _exit(1);
}

/* Write `n` numbers from `first` on in a random order. */
static void shuffle(unsigned *list, unsigned first, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        unsigned k = (unsigned)random() % (i + 1);

        list[i] = list[k];
        list[k] = first + i;
    }
}

/* Send one message in `producers` of each group, block after block. */
static _Noreturn void producer_run(const char *queue,
                                   const struct turns_plan *plan, unsigned me)
{
    unsigned *order = calloc(plan->block, sizeof *order);
    mqd_t q;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    janitor_leave();
    srandom(plan->seed + me);
    q = mq_open(queue, O_WRONLY);
    if (q == (mqd_t)-1 || !order)
        _exit(1);
    for (unsigned first = 0; first < plan->groups; first += plan->block) {
        unsigned n = plan->groups - first < plan->block ? plan->groups - first
                                                        : plan->block;

        for (unsigned i = me; i < plan->each; i += plan->producers) {
            shuffle(order, first, n);
            for (unsigned k = 0; k < n; k++)
                number_send(q, plan, me, order[k], i);
        }
    }
    _exit(0);
}

void turns_produce(const char *queue, const struct turns_plan *plan)
{
    if (plan->producers > PRODUCERS_MAX)
        harness_fail("%u producers are too many", plan->producers);
    for (unsigned i = 0; i < plan->producers; i++) {
        producers[i] = fork();
        if (producers[i] < 0)
            harness_fail("fork: %s", strerror(errno));
        if (producers[i] == 0)
            producer_run(queue, plan, i);
    }
}

bool turns_produced(void)
{
    bool all = true;
    int status;

    for (unsigned i = 0; i < PRODUCERS_MAX; i++) {
        if (producers[i] == 0)
            continue;
        if (waitpid(producers[i], &status, WNOHANG) == 0) {
            all = false;
            continue;
        }
        producers[i] = 0;
        if (status != 0)
            harness_fail("a producer could not send");
    }
    return all;
}

/* settings_operands.c - see settings_operands.h */
#include "worker/config/settings_operands.h"
#include "worker/rules/verdict.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/base/safe_text.h"
#include "common/broker/broker_refused.h"

/* All that a source on a broker can lend: what it has in hand of all partitions
 * (partition_in_hand), and what lost its claim with a connection and still waits for
 * its turn. So a message of any group may be taken. */
#define IN_HAND        8192
#define FORWARD_WINDOW 64 /* published to a broker and not confirmed */
#define FLAG_TEXT      64 /* "--max-requests 9223372036854775807" */

/* queue_check - one operand, and it stands where a queue does */
static int queue_check(int count, char **command, char **before,
                       struct problem *p)
{
    if (count == 0)
        return problem_set(p, EX_USAGE, EINVAL,
                           "no queue: mqworker QUEUE -- COMMAND, like mqworker "
                           "/orders -- ./handle-order; see mqworker --help");
    if (count > 1 && command)
        return problem_set(p, EX_USAGE, EINVAL,
                           "\"%s\" and \"%s\" before --: give one queue; a "
                           "value that may be left out is joined with =, like "
                           "--exit-when-idle=5s",
                           before[0], before[1]);
    if (count > 1)
        return problem_set(p, EX_USAGE, EINVAL,
                           "\"%s\" after the queue %s: the command comes after "
                           "--, like mqworker %s -- %s",
                           before[1], before[0], SHELL_QUEUE(before[0]),
                           SHELL_QUEUE(before[1]));
    return 0;
}

/* for_children - a flag that is for the children of --stream; false: none */
static bool for_children(const struct settings *s, char flag[FLAG_TEXT])
{
    char size[SIZE_TEXT];

    if (s->window > 1)
        snprintf(flag, FLAG_TEXT, "--window %" PRIu64, s->window);
    else if (s->max_requests)
        snprintf(flag, FLAG_TEXT, "--max-requests %" PRIu64, s->max_requests);
    else if (s->max_rss)
        snprintf(flag, FLAG_TEXT, "--max-rss %s", size_print(s->max_rss, size));
    else
        return false;
    return true;
}

/* exits_mapped - whether there was --on-exit */
static bool exits_mapped(const struct settings *s)
{
    for (size_t i = 0; i < sizeof s->on_exit; i++)
        if (s->on_exit[i] != VERDICT_UNMAPPED)
            return true;
    return false;
}

/* plugin_check - nothing that is about processes */
static int plugin_check(const struct settings *s, char *const *command,
                        struct problem *p)
{
    char flag[FLAG_TEXT];

    if (s->stream)
        return problem_set(p, EX_USAGE, EINVAL,
                           "--plugin %s and --stream: give one of them",
                           s->plugin);
    if (command && command[0]) /* our unit has -- and no COMMAND then */
        return problem_set(p, EX_USAGE, EINVAL,
                           "--plugin %s and a command: give one of them",
                           s->plugin);
    if (for_children(s, flag))
        return problem_set(p, EX_USAGE, EINVAL,
                           "--plugin %s and %s, which is for the children of "
                           "--stream: leave it out",
                           s->plugin, flag);
    if (exits_mapped(s))
        return problem_set(p, EX_USAGE, EINVAL,
                           "--plugin %s and --on-exit: a plugin has no exit "
                           "code, mqw_handle returns the verdict; leave out "
                           "--on-exit",
                           s->plugin);
    return 0;
}

/* Return the flag that cannot be combined with --forward, or NULL. */
static const char *not_with_forward(const struct settings *s,
                                    char *const *command, char flag[FLAG_TEXT])
{
    return command && command[0]                       ? "a command"
           : s->plugin                                 ? "--plugin"
           : s->plugin_arg                             ? "--plugin-arg"
           : s->timeout_abort                          ? "--timeout-abort"
           : s->stream                                 ? "--stream"
           : for_children(s, flag)                     ? flag
           : exits_mapped(s)                           ? "--on-exit"
           : atomic_load(&s->timeout_ns) != UINT64_MAX ? "--timeout"
           : s->max_crashes_given                      ? "--max-crashes"
                                                       : NULL;
}

static int forward_check(const struct settings *s, char *const *command,
                         struct problem *p)
{
    char flag[FLAG_TEXT];
    const char *not = not_with_forward(s, command, flag);

    return not ? problem_set(
                     p, EX_USAGE, EINVAL,
                     "--forward %s and %s: messages are sent to %s, and "
                     "nothing runs for them; give one of the two",
                     s->forward, not, s->forward)
               : 0;
}

/* Read the destination of --forward. Without flags that say otherwise, one
 * thread sends, which keeps the order, and a destination that is full is tried
 * again after a second. A crash of the worker is never blamed on a message. */
static int forward_take(struct settings *s, struct problem *p)
{
    int err;

    if (broker_operand_is(s->forward)) {
        err = broker_operand_parse(&s->forward_to, s->forward, p);
        s->window = FORWARD_WINDOW;
        snprintf(s->forward_queue, sizeof s->forward_queue, "%s",
                 s->forward_to.shown);
#ifndef MQW_AMQP
        if (!err)
            err = problem_set(p, EX_USAGE, ENOTSUP,
                              "--forward %s: amqp:// needs a build with "
                              "librabbitmq: scripts/deps, then make",
                              s->forward_queue);
#endif
    } else {
        err = queue_name(s->forward, s->forward_queue, p);
    }
    s->max_crashes = CRASHES_MOST;
    if (!s->concurrency_given)
        s->concurrency = 1;
    if (!s->breaker_pause_given)
        s->breaker_pause_ns = NS_PER_S;
    return err;
}

/* Return true if two operands name the same queue on the same broker. */
static bool brokers_same(const struct broker_operand *a,
                         const struct broker_operand *b)
{
    if (strcmp(a->vhost, b->vhost) != 0 || strcmp(a->queue, b->queue) != 0)
        return false;
    for (unsigned i = 0; i < a->host_count; i++)
        for (unsigned k = 0; k < b->host_count; k++)
            if (strcmp(a->hosts[i].name, b->hosts[k].name) == 0 &&
                a->hosts[i].port == b->hosts[k].port)
                return true;
    return false;
}

/* Check, after the queue was read, that its messages are not sent back to
 * it. */
static int forward_other_check(const struct settings *s, struct problem *p)
{
    bool same = settings_on_broker(s) ? brokers_same(&s->broker, &s->forward_to)
                                      : strcmp(s->queue, s->forward_queue) == 0;

    return same ? problem_set(p, EX_USAGE, EINVAL,
                              "--forward %s: that is the queue that is "
                              "consumed; give another one",
                              s->forward)
                : 0;
}

/* Complain that no command was given, and name the place for it. Our systemd
 * unit reads the command from a file and passes on that file's name. */
static int no_command(const char *queue, struct problem *p)
{
    const char *file = getenv("MQW_CONFIG");

    if (file)
        return problem_set(p, EX_USAGE, EINVAL,
                           "no command: put COMMAND=/path/of/your-handler into "
                           "%s, which the unit reads; by hand: mqworker %s -- "
                           "COMMAND",
                           file, SHELL_QUEUE(queue));
    return problem_set(p, EX_USAGE, EINVAL,
                       "no command: mqworker %s -- COMMAND, like mqworker %s "
                       "-- ./handle-order",
                       SHELL_QUEUE(queue), SHELL_QUEUE(queue));
}

/* command_check - there is one, and the flags are for its kind */
static int command_check(const struct settings *s, char *const *command,
                         const char *queue, struct problem *p)
{
    char flag[FLAG_TEXT];

    if (s->plugin_arg || s->timeout_abort)
        return problem_set(p, EX_USAGE, EINVAL,
                           "%s is for a plugin: give "
                           "--plugin FILE.so, too",
                           s->plugin_arg ? "--plugin-arg" : "--timeout-abort");
    if (!command || !command[0] || command[0][0] == '\0')
        return no_command(queue, p);
    if (!s->stream && for_children(s, flag))
        return problem_set(p, EX_USAGE, EINVAL,
                           "%s is for a long-lived command: give --stream, too",
                           flag);
    if (s->stream && exits_mapped(s))
        return problem_set(p, EX_USAGE, EINVAL,
                           "--stream and --on-exit: the exit code of a "
                           "long-lived command is not a verdict; it answers "
                           "OK, RETRY, DEAD or DISCARD; leave out --on-exit");
    return 0;
}

/* partitions_take - a head that failed waits in hand, and what is behind it: as
 * much as the broker gives */
static int partitions_take(struct settings *s, struct problem *p)
{
    if (s->lookahead_given)
        return problem_set(p, EX_USAGE, EINVAL,
                           "--lookahead %" PRIu64 " and --partitions %" PRIu64
                           ": what a worker has in hand is the same for all "
                           "workers of such a queue; leave out --lookahead",
                           s->lookahead, s->access.partitions);
    s->lookahead = IN_HAND;
    return 0;
}

/* broker_take - the operand names a queue on a broker */
static int broker_take(struct settings *s, const char *operand,
                       struct problem *p)
{
    int err = broker_operand_parse(&s->broker, operand, p);

    if (!err)
        err = broker_access_check(&s->access,
                                  s->forward_to.tls ? s->forward : operand, p);
    if (err)
        return err;
    for (size_t i = 0; i < settings_table.count; i++)
        if (broker_option_check("mqworker", &settings_table.rows[i], s,
                                s->broker.shown, s->access.partitions, p) < 0)
            return -EINVAL;
    snprintf(s->queue, sizeof s->queue, "%s", s->broker.shown);
    if (s->forward_to.host_count)
        s->forward_partitions = (unsigned)s->access.partitions;
    return s->access.partitions ? partitions_take(s, p) : 0;
}

/* Check the flags of a broker that is only the destination, and leave none of
 * them for the queue itself. */
static int forward_access_take(struct settings *s, struct problem *p)
{
    int err = broker_access_check(&s->access, s->forward, p);

    s->forward_partitions = (unsigned)s->access.partitions;
    s->access.partitions = 0;
    return err;
}

/* queue_take - a POSIX queue, or one on a broker */
static int queue_take(struct settings *s, const char *operand,
                      struct problem *p)
{
    if (broker_operand_is(operand))
        return broker_take(s, operand, p);
    if (s->forward_to.host_count)
        return forward_access_take(s, p) < 0 ? -EINVAL
                                             : queue_name(operand, s->queue, p);
    if (s->allow_unreplicated)
        return broker_only("--allow-unreplicated", operand, p);
    if (broker_access_check(&s->access, operand, p) < 0)
        return -EINVAL;
    return queue_name(operand, s->queue, p);
}

/* settings_operands_take - exactly a queue, and one thing to handle its
 * messages */
int settings_operands_take(struct settings *s, int count, char **command,
                           char **before, struct problem *p)
{
    int err = queue_check(count, command, before, p);

    if (!err)
        err = s->forward  ? forward_check(s, command, p)
              : s->plugin ? plugin_check(s, command, p)
                          : command_check(s, command, before[0], p);
    if (!err && s->forward)
        err = forward_take(s, p);
    if (err)
        return err;
    s->command = s->plugin || s->forward ? NULL : command;
    err = queue_take(s, before[0], p);
    return !err && s->forward ? forward_other_check(s, p) : err;
}

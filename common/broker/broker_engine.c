/* broker_engine.c - the operations and the restrictions of a queue on a broker
 * (see broker_engine.h) */
#include "common/broker/broker_engine.h"

#include <errno.h>
#include <string.h>
#include <sysexits.h>

/* Weak: its address is NULL where no object defines it. */
#pragma weak broker_engine_amqp

const struct broker_engine *broker_engine_of(const char *operand,
                                             struct problem *p)
{
    const struct broker_engine *engine = &broker_engine_amqp;

    if (engine)
        return engine;
    (void)problem_set(p, EX_USAGE, ENOTSUP,
                      "%s: amqp:// needs a build with librabbitmq: "
                      "scripts/deps, then make without MINIMAL=1 and AMQP=",
                      operand);
    return NULL;
}

#define NO_GROUPS                                                              \
    "a broker has no groups; mqctl status shows the partitions of the worker " \
    "here and how many groups are waiting, mqctl doctor --partitions N the "   \
    "messages and consumers of each partition, rabbitmqctl list_consumers "    \
    "queue_name active channel_pid the active consumer"

static const struct refused {
    const char *program;
    const char *name; /* of an option, without --, or of a verb */
    const char *reason;
    const char *value; /* the refused values, in words; NULL: all */
    uint64_t above;    /* numbers up to this can be used */
    bool parted;       /* a queue with partitions can have it */
} refused[] = {
    {"mqworker", "dead-letter-queue",
     .reason = "dead letters are in the queue NAME.dead of the broker"},
    {"mqworker", "on-dead",
     .reason = "dead letters are on the broker: consume NAME.dead"},
    {"mqworker", "keep-dead",
     .reason = "dead letters stay on the broker until somebody removes them"},
    {"mqworker", "max-dead",
     .reason = "dead letters stay on the broker until somebody removes them"},
    {"mqworker", "on-group-dead",
     .reason = "the broker cannot be asked for the letters of a group",
     .value = "hold"},
    {"mqworker", "spool", .reason = "a broker keeps waiting messages on disk"},
    {"mqworker", "spool-sync",
     .reason = "a broker keeps waiting messages on disk"},
    {"mqworker", "group-separator",
     .reason = "the group of a message is in its header mqw-group"},
    {"mqworker", "queue-depth",
     .reason = "set x-max-length by a policy of the broker"},
    {"mqworker", "message-size",
     .reason = "the broker has a limit of its own (max_message_size)"},
    {"mqworker", "mode", .reason = "the broker has users and permissions"},
    {"mqworker", "max-waiting",
     .reason = "waiting messages are in queues of the broker and never stop a "
               "worker"},
    {"mqworker", "max-parked",
     .reason =
         "messages behind the head of a group stay in the worker, not parked"},
    {"mqworker", "lookahead",
     .reason = "without --partitions it has no ordered groups", .parted = true},
    {"mqworker", "group-quantum",
     .reason = "without --partitions it has no ordered groups", .parted = true},
    {"mqworker", "allow-disk-custody",
     .reason = "the broker keeps the messages in flight"},

    {"mqsend", "priority", .reason = "255 is the highest on a broker",
     .value = "above 255", .above = UINT8_MAX},
    {"mqsend", "group",
     .reason = "without --partitions N, here and at its workers, a group would "
               "run in any order",
     .parted = true},
    {"mqsend", "unique",
     .reason = "a broker does not remember the keys of earlier messages"},
    {"mqsend", "max-attempts", .reason = "on a broker it is up to the worker"},
    {"mqsend", "backoff", .reason = "on a broker it is up to the worker"},
    {"mqsend", "queue-depth",
     .reason = "set x-max-length by a policy of the broker"},
    {"mqsend", "message-size",
     .reason = "the broker has a limit of its own (max_message_size)"},
    {"mqsend", "mode", .reason = "the broker has users and permissions"},
    {"mqsend", "no-wait",
     .reason =
         "mqsend waits for each message until it is confirmed; --wait DUR "
         "limits the wait"},

    {"mqdlq replay", "again",
     .reason = "a replay removes the letter from the dead letters"},
    {"mqdlq", "replayed",
     .reason = "a replay removes the letter from the dead letters"},
    {"mqdlq", "raw",
     .reason = "messages of a broker have no header, but properties, which a "
               "replay keeps"},
    {"mqdlq", "state-dir", .reason = "dead letters are on the broker"},

    {"mqctl", "list",
     .reason = "AMQP shows only how many messages there are (mqctl doctor, "
               "rabbitmqctl list_queues); mqdlq list shows the dead letters"},
    {"mqctl", "groups", .reason = NO_GROUPS},
    {"mqctl", "group", .reason = NO_GROUPS},
    {"mqctl", "keys",
     .reason = "a broker has no unique keys, so its messages run without them"},
    {"mqctl", "explain",
     .reason =
         "a broker cannot look up a message; mqdlq show searches the dead "
         "letters, and the logs of the workers have, after msg=, the id of "
         "each message that failed"},
    {"mqctl", "cancel",
     .reason = "a broker cannot remove a single waiting message; mqctl pause "
               "keeps a worker from taking more, mqdlq discard removes dead "
               "letters"},
    {"mqctl", "run-now",
     .reason = "a broker keeps a waiting message until its time has come; "
               "mqdlq replay sends dead letters again"},
    {"mqctl", "create",
     .reason = "start its worker, or use mqsend --create, to create it"},
    {"mqctl", "remove",
     .reason = "rabbitmqctl delete_queue removes it; its wait queues and dead "
               "letters are queues of their own (rabbitmqctl list_queues)"},
    {"mqctl", "move",
     .reason =
         "move takes messages from a POSIX queue: mqctl move /NAME amqp://..."},
};

static const struct refused *refused_find(const char *program, const char *name)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (strcmp(refused[i].program, program) == 0 &&
            strcmp(refused[i].name, name) == 0)
            return &refused[i];
    return NULL;
}

int broker_option_check(const char *program, const struct option_row *row,
                        const void *options, const char *operand,
                        uint64_t partitions, struct problem *p)
{
    const struct refused *r = refused_find(program, row->name);
    const char *at = (const char *)options + row->offset;
    struct option_row number = *row;
    uint64_t value, preset = 0;
    bool given;

    if (!r || (r->parted && partitions))
        return 0;
    /* An option was given if its value is neither 0 nor the preset. */
    if (row->seen && !r->above) {
        given = *((const bool *)options + row->seen - 1);
    } else if (row->type == OPT_FLAG) {
        given = *(const bool *)at;
    } else if (row->type == OPT_STRING) {
        given = *(const char *const *)at != NULL;
    } else if (row->type == OPT_CALL) { /* text in place */
        given = *at != '\0';
    } else { /* a number */
        number.offset = number.seen = 0;
        if (row->preset && !row->optional)
            (void)option_read(&number, row->preset, &preset, p);
        memcpy(&value, at, sizeof value);
        given = r->above ? value > r->above : value && value != preset;
    }
    if (!given)
        return 0;
    return problem_set(p, EX_USAGE, EINVAL,
                       "--%s%s%s cannot be used with %s: %s; leave it out",
                       r->name, r->value ? " " : "", r->value ? r->value : "",
                       operand, r->reason);
}

int broker_verb_check(const char *program, const char *verb,
                      const char *operand, struct problem *p)
{
    const struct refused *r = refused_find(program, verb);

    return r ? problem_set(p, EX_USAGE, EINVAL, "%s cannot be used with %s: %s",
                           verb, operand, r->reason)
             : 0;
}

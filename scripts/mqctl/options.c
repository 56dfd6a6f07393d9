/* options.c - the command line of mqctl (see mqctl.h) */
#include "scripts/mqctl/mqctl.h"

#include <errno.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/base/safe_text.h"
#include "common/broker/broker_operand.h"
#include "common/broker/broker_engine.h"
#include "common/cli/filter_rows.h"
#include "common/message/header.h"
#include "common/mq/mqlimit.h"

/* The verbs, in the order of the enum. `least` and `most` are 0 if left out. */
static const struct subcommand_row verbs[] = {
    [VERB_QUEUES] = {"queues", "[options]",
                     "List every queue of this machine and its worker.",
                     .under = "Inspect", .run = queues_run},
    [VERB_LIST] = {"list", "[options] QUEUE",
                   "List running and waiting messages.", .least = 1, .most = 1,
                   .also = "ls", .under = "Inspect", .run = list_run},
    [VERB_RUN_NOW] = {"run-now", "[options] QUEUE ID...|--all|filter",
                      "Make delayed messages and retries due now.", .least = 1,
                      .most = SUBCOMMAND_ANY, .under = "Manage messages",
                      .run = steer_messages_run},
    [VERB_CANCEL] = {"cancel", "[options] QUEUE ID...|--all|filter",
                     "Discard waiting messages, or running ones.", .least = 1,
                     .most = SUBCOMMAND_ANY, .under = "Manage messages",
                     .run = steer_messages_run},
    [VERB_GROUPS] = {"groups", "[options] QUEUE",
                     "List ordered groups with messages.", .least = 1,
                     .most = 1, .under = "Inspect", .run = groups_run},
    [VERB_GROUP] =
        {"group", "[options] QUEUE KEY close|open|release",
         "Close a group to new messages, open it again, or release a held one.",
         .least = 3, .most = 3, .last = "close|open|release",
         .under = "Manage messages", .run = group_run},
    [VERB_KEYS] = {"keys", "[options] QUEUE", "List unique keys, or free one.",
                   .least = 1, .most = 1, .under = "Manage messages",
                   .run = keys_run},
    [VERB_STATUS] = {"status", "[options] [QUEUE...]",
                     "Show what workers do; without QUEUE all of them.",
                     .most = SUBCOMMAND_ANY, .under = "Inspect",
                     .run = status_run},
    [VERB_TOP] = {"top", "[options] [QUEUE...]",
                  "Watch workers live; plain lines if there is no terminal.",
                  .most = SUBCOMMAND_ANY, .under = "Inspect", .run = top_run},
    [VERB_PAUSE] = {"pause", "[options] QUEUE...|--all [DUR]",
                    "Stop taking messages until resume or for DUR.",
                    .most = SUBCOMMAND_ANY, .under = "Control a worker",
                    .run = steer_run},
    [VERB_RESUME] = {"resume", "[options] QUEUE...|--all",
                     "Take messages again.", .most = SUBCOMMAND_ANY,
                     .under = "Control a worker", .run = steer_run},
    [VERB_SET] = {"set", "[options] QUEUE [NAME=VALUE...]",
                  "Change settings of a running worker, or list them.",
                  .least = 1, .most = SUBCOMMAND_ANY, .settings = true,
                  .under = "Control a worker", .run = steer_run},
    [VERB_DRAIN] = {"drain", "[options] QUEUE...|--all",
                    "Let the worker finish running messages and exit.",
                    .most = SUBCOMMAND_ANY, .under = "Control a worker",
                    .run = steer_run},
    [VERB_STOP] = {"stop", "[options] QUEUE...|--all",
                   "The same, within the worker's --grace; like SIGTERM.",
                   .most = SUBCOMMAND_ANY, .under = "Control a worker",
                   .run = steer_run},
    [VERB_QUIT] =
        {"quit", "[options] QUEUE...",
         "Let the worker end its handlers now and exit; like SIGQUIT.",
         .least = 1, .most = SUBCOMMAND_ANY, .under = "Control a worker",
         .run = steer_run},
    [VERB_EXPLAIN] = {"explain", "[options] [QUEUE] ID",
                      "Show where a message is and why.", .least = 1, .most = 2,
                      .under = "Inspect", .run = explain_run},
    [VERB_DOCTOR] = {"doctor", "[options] [QUEUE]",
                     "Diagnose problems, and name the command that fixes each.",
                     .most = 1, .under = "Inspect", .run = doctor_run},
    [VERB_METRICS] = {"metrics", "[options]",
                      "Print numbers of all workers for Prometheus.",
                      .under = "Inspect", .run = metrics_run},
    [VERB_SERVE] = {"serve", "[options]",
                    "Show all queues and dead letters in a browser.",
                    .also = "web", .under = "Inspect", .run = serve_run},
    [VERB_CREATE] = {"create", "[options] QUEUE", "Create a queue.", .least = 1,
                     .most = 1, .under = "Create and remove queues",
                     .run = create_run},
    [VERB_REMOVE] = {"remove", "[options] QUEUE...|--orphans", "Remove queues.",
                     .most = SUBCOMMAND_ANY,
                     .under = "Create and remove queues", .run = remove_run},
    [VERB_FORGET] = {"forget", "[options] QUEUE",
                     "Delete the saved state of a removed queue.", .least = 1,
                     .most = 1, .under = "Create and remove queues",
                     .run = forget_run},
    [VERB_MOVE] = {"move", "[options] QUEUE amqp://...",
                   "Send all messages of a POSIX queue to a queue on a broker.",
                   .least = 2, .most = 2, .under = "Create and remove queues",
                   .run = move_run},
};

/* Read the values of --state, with commas between them, as bits. */
static int states_read(const char *text, const char *const *names,
                       unsigned count, const char *allowed, unsigned *out,
                       struct problem *p)
{
    unsigned bits = 0;
    size_t size;

    for (const char *at = text;; at += size + 1) {
        unsigned i = 0;

        size = strcspn(at, ",");
        while (i < count &&
               (strlen(names[i]) != size || memcmp(names[i], at, size) != 0))
            i++;
        if (i == count)
            return problem_set(p, EX_USAGE, EINVAL,
                               "--state: \"%.*s\" is not a state; give %s, "
                               "several with commas",
                               (int)size, at, allowed);
        bits |= 1u << i;
        if (!at[size])
            break;
    }
    *out = bits;
    return 0;
}

/* Read --state of messages. */
static int read_state(const char *text, void *into, struct problem *p)
{
    struct options *o = into;
    const char *names[WAITING_STATES];

    for (int i = 0; i < WAITING_STATES; i++)
        names[i] = waiting_state_text((enum waiting_state)i);
    return states_read(text, names, WAITING_STATES,
                       "running, ready, spooled, delayed, retry, parked or "
                       "held",
                       &o->filter.states, p);
}

/* Read --state of groups. */
static int read_where(const char *text, void *into, struct problem *p)
{
    const char *names[GROUP_IS_COUNT];

    for (int i = 0; i < GROUP_IS_COUNT; i++)
        names[i] = group_where_text((enum group_where)i);
    return states_read(text, names, GROUP_IS_COUNT,
                       "running, ready, blocked, held or closing", into, p);
}

/* Add a value of a flag that may be given several times. */
static int read_word(const char *text, void *into, struct problem *p)
{
    struct words *words = into;

    if (words->count == WORDS_MOST)
        return problem_set(p, EX_USAGE, E2BIG, "at most %d can be given",
                           WORDS_MOST);
    words->at[words->count++] = text;
    return 0;
}

#define AT(member)   .offset = offsetof(struct options, member)
#define V(verb)      (1u << VERB_##verb)
#define EVERY        ((1u << VERB_COUNT) - 1)
#define ENDS         (V(DRAIN) | V(STOP) | V(QUIT))
#define STEER        (V(RUN_NOW) | V(CANCEL))
#define FILTER       (V(LIST) | STEER)
#define BROKER       (V(DOCTOR) | V(MOVE))
#define EVERY_WORKER (V(PAUSE) | V(RESUME) | V(DRAIN) | V(STOP))
#define ORDERS       (V(PAUSE) | V(RESUME) | V(SET) | ENDS)

static const struct subcommand_flag flags[] = {
    {V(SERVE),
     {"listen", 0, OPT_STRING, .value = "ADDRESS", .preset = "127.0.0.1:8480",
      AT(serve.listen), .help = "where to listen: ADDRESS:PORT, or unix:PATH"}},
    {V(SERVE),
     {"state-dir", 0, OPT_CALL, .value = "DIR", .call = read_word,
      AT(serve.state_dirs),
      .help = "state directory of workers; may be given several times; without "
              "this, found as by the worker"}},
    {V(SERVE),
     {"allow-write", 0, OPT_FLAG, AT(serve.allow_write),
      .help = "let people change dead letters, waiting messages, groups and "
              "settings there, and pause, resume and drain"}},
    {V(SERVE),
     {"no-bodies", 0, OPT_FLAG, AT(serve.no_bodies),
      .help = "neither show bodies of messages nor give them out"}},
    {V(SERVE),
     {"token-file", 0, OPT_STRING, .value = "PATH", AT(serve.token_file),
      .help = "file with the token, made if it is missing; without this, "
              "web.token in the state directory"}},
    {V(SERVE),
     {"group", 0, OPT_STRING, .value = "GROUP", AT(serve.group),
      .help = "let members of GROUP look: they can read the token, which must "
              "be in a --token-file"}},
    {V(SERVE),
     {"metrics-open", 0, OPT_FLAG, AT(serve.metrics_open),
      .help = "give /metrics to everybody, without a token"}},
    {V(SERVE),
     {"allow-host", 0, OPT_CALL, .value = "NAME", .call = read_word,
      AT(serve.hosts),
      .help = "another name of the server, like queues.example.org; may be "
              "given several times"}},
    {V(SERVE),
     {"behind-proxy", 0, OPT_FLAG, AT(serve.behind_proxy),
      .help = "there is a proxy in front, which uses TLS; its X-Forwarded-User "
              "is logged"}},
    {V(SERVE),
     {"tls-cert", 0, OPT_STRING, .value = "PATH", AT(serve.tls_cert),
      .help = "use TLS with this certificate (PEM)"}},
    {V(SERVE),
     {"tls-key", 0, OPT_STRING, .value = "PATH", AT(serve.tls_key),
      .help = "its key (PEM)"}},
    {EVERY & ~V(SERVE),
     {"json", 'j', OPT_FLAG, AT(json),
      .help = "print JSON, one object on each line"}},
    {ORDERS | STEER | V(GROUP) | V(KEYS) | V(CREATE) | V(REMOVE) | V(FORGET) |
         V(MOVE),
     {"quiet", 'q', OPT_FLAG, AT(quiet), .help = "print only errors"}},
    {V(DOCTOR),
     {"quiet", 'q', OPT_FLAG, AT(quiet), .help = "print only problems"}},
    {FILTER,
     {"state", 's', OPT_CALL, .value = "STATE,...", .call = read_state,
      .words = "running|ready|spooled|delayed|retry|parked|held",
      .help = "only messages that are running, ready, spooled, delayed, retry, "
              "parked or held"}},
    {V(GROUPS),
     {"state", 's', OPT_CALL, .value = "STATE,...", .call = read_where,
      AT(groups), .words = "running|ready|blocked|held|closing",
      .help = "only groups that are running, ready, blocked, held or "
              "closing"}},
    {V(GROUPS),
     {"group", 0, OPT_STRING, .value = "KEY", AT(filter.group),
      .help = "only that group"}},
    {V(KEYS),
     {"free", 0, OPT_STRING, .value = "KEY", AT(free_key),
      .help = "free KEY, so that the next message with that key runs"}},
    {FILTER, FILTER_ERROR("messages whose last", AT(filter.error_like))},
    {FILTER, FILTER_GROUP("messages", AT(filter.group))},
    {FILTER, FILTER_MATCH("messages", AT(filter.match))},
    {V(REMOVE),
     {"orphans", 0, OPT_FLAG, AT(orphans),
      .help = "all queues that no process has open"}},
    {V(REMOVE),
     {"match", 0, OPT_STRING, .value = "GLOB", AT(filter.match),
      .help = "with --orphans: only queues whose name matches GLOB, like "
              "'/test-*'"}},
    {FILTER, FILTER_SINCE("messages received", AT(filter.since_ns))},
    {FILTER, FILTER_UNTIL("messages received", AT(filter.until_ns))},
    {FILTER | V(GROUPS),
     {"limit", 0, OPT_NUMBER, .value = "N", .min = 1, .max = INT64_MAX,
      AT(limit), .help = "only the first N of them"}},
    {ENDS,
     {"wait", 0, OPT_DURATION, true, .value = "DUR", .words = "forever",
      .preset = "forever", AT(wait_ns),
      .seen = offsetof(struct options, wait) + 1,
      .help = "return when the worker has exited; exit 75 if it has not after "
              "DUR"}},
    {STEER, {"all", 'a', OPT_FLAG, AT(all), .help = "all messages"}},
    {EVERY_WORKER,
     {"all", 'a', OPT_FLAG, AT(all),
      .help = "all running workers with this state directory"}},
    {V(CANCEL),
     {"running", 0, OPT_FLAG, AT(running),
      .help = "also running messages: their handlers are terminated"}},
    {STEER | V(REMOVE) | V(FORGET),
     {"dry-run", 'n', OPT_FLAG, AT(dry_run),
      .help = "print what would be done and do nothing"}},
    {V(LIST) | V(GROUPS),
     {"after", 0, OPT_STRING, .value = "CURSOR", AT(after),
      .help = "continue after the object with this cursor"}},
    {V(TOP),
     {"interval", 'i', OPT_DURATION, .value = "DUR", .min = 100 * NS_PER_MS,
      .max = 3600 * NS_PER_S, .preset = "1s", AT(interval_ns),
      .help = "time from one round to the next"}},
    {V(TOP),
     {"rounds", 0, OPT_NUMBER, .value = "N", .min = 1, .max = INT64_MAX,
      .old_letter = 'n', AT(rounds), .help = "end after N rounds"}},
    {V(METRICS),
     {"textfile", 0, OPT_STRING, .value = "PATH", AT(textfile),
      .help = "write to PATH, whole or not at all, for node_exporter"}},
    {V(CREATE),
     {"queue-depth", 0, OPT_NUMBER, .value = "N", .min = 1,
      .max = MQLIMIT_HARD_DEPTH, AT(depth),
      .help = "messages that it holds; without this, the kernel's default"}},
    {V(CREATE),
     {"message-size", 0, OPT_SIZE, .value = "SIZE", .min = 1,
      .max = MQLIMIT_HARD_MESSAGE_SIZE, AT(message_size),
      .help = "its largest message; without this, the kernel's default"}},
    {V(CREATE),
     {"mode", 0, OPT_OCTAL, .value = "OCTAL", .max = 0777, .preset = "0600",
      AT(mode), .help = "access mode"}},
    {V(MOVE),
     {"letters", 0, OPT_FLAG, AT(letters), .help = "also move dead letters"}},
    {V(MOVE),
     {"group-separator", 0, OPT_CALL, .value = "CHAR", .call = header_separator,
      AT(group_separator),
      .help = "the same as the worker's, to find the messages of groups"}},
    {V(MOVE),
     {"runtime-dir", 0, OPT_STRING, .value = "DIR", AT(runtime_dir),
      .help = "where messages in flight are kept, on a tmpfs"}},
    {V(MOVE),
     {"allow-disk-custody", 0, OPT_FLAG, AT(allow_disk_custody),
      .help = "run even if there is no tmpfs: a kill while the disk is written "
              "may lose the message that is being received"}},
    {BROKER, BROKER_PASSWORD_FILE(AT(access.password_file))},
    {BROKER, BROKER_TLS_CA(AT(access.tls.ca))},
    {BROKER, BROKER_TLS_CERT(AT(access.tls.cert))},
    {BROKER, BROKER_TLS_KEY(AT(access.tls.key))},
    {BROKER, BROKER_PARTITIONS_ROW(AT(access.partitions))},
    {V(REMOVE),
     {"force", 'f', OPT_FLAG, AT(force),
      .help = "even if it holds messages, which are lost, or has a worker"}},
    {V(FORGET),
     {"force", 'f', OPT_FLAG, AT(force),
      .help = "even if messages are saved, which are deleted"}},
    {V(STATUS) | V(TOP) | V(EXPLAIN) | V(DOCTOR),
     {"utc", 0, OPT_FLAG, AT(utc),
      .help = "print times in UTC (RFC 3339) on a terminal, too"}},
    {EVERY & ~(V(CREATE) | V(SERVE)),
     {"state-dir", 0, OPT_STRING, .value = "DIR", AT(state_dir),
      .help = "state directory of the workers; without this, found as by the "
              "worker"}},
    {EVERY,
     {"help", 'h', OPT_FLAG, AT(line.help), .help = "print this and exit"}},
};

/* Take the duration of pause from the end of the operands. A queue name begins
 * with a slash, or is no duration. Refuse a name that is almost a duration,
 * because a mistyped duration would pause the other queues without an end. */
static int pause_read(struct options *o, struct problem *p)
{
    int n = o->line.operand_count;
    uint64_t ns;

    if (n == 1 && !o->all)
        return 0;
    for (int i = 0; i < n; i++) {
        const char *word = o->line.operands[i];
        bool is = duration_parse(word, &ns) == 0;

        if (is && i == n - 1) {
            o->pause_for = word;
            o->line.operand_count--;
        } else if (is || (i > 0 && word[0] >= '0' && word[0] <= '9')) {
            return problem_set(p, EX_USAGE, EINVAL,
                               is ? "pause: more follows the duration %s; give "
                                    "it last (the queue of that name is /%s)"
                                  : "pause: \"%s\" is not a duration; give one "
                                    "like 30s or 10m (the queue of that name "
                                    "is /%s)",
                               word, word);
        }
    }
    return 0;
}

static bool is_queue(const char *word)
{
    return word[0] == '/' || broker_operand_is(word);
}

/* Check each verb's operands and flags. A verb that changes messages must be
 * told which, and not twice. */
static int options_check(void *options, struct problem *p)
{
    struct options *o = options;
    const struct waiting_filter *f = &o->filter;
    const char *verb = verbs[o->line.verb].name;
    char *const *words = o->line.operands;
    const int n = o->line.operand_count; /* with the duration of pause */
    const char *first = n > 0 ? words[0] : "",
               *last = n > 0 ? words[n - 1] : "";
    bool ids = n > 1, narrowed = filter_given(o), all = o->orphans || o->all;

    if (1u << o->line.verb & (STEER | V(SET) | V(EXPLAIN)) && n > 1 &&
        !is_queue(first) && is_queue(last))
        return problem_set(p, EX_USAGE, EINVAL,
                           "%s: the queue comes first; did you mean mqctl %s "
                           "%s %s%s?",
                           verb, verb, SHELL_QUEUE(last), first,
                           n > 2 ? " ..." : "");
    /* Refuse what a queue on a broker does not have, and flags of a broker for
     * another queue. */
    if ((broker_operand_is(first) &&
         broker_verb_check("mqctl", verb, first, p) < 0) ||
        broker_access_check(&o->access, last, p) < 0)
        return -EINVAL;
    if (o->line.verb == VERB_MOVE && !broker_operand_is(last))
        return problem_set(p, EX_USAGE, EINVAL,
                           "move: %s is not a queue on a broker; give "
                           "amqp://USER@HOST/VHOST/QUEUE",
                           last);
    if (o->serve.group && o->serve.allow_write)
        return problem_set(p, EX_USAGE, EINVAL,
                           "serve: --group is for people who only look; leave "
                           "out --allow-write, or start a second server for "
                           "people who may change something");
    if (o->serve.group && !o->serve.token_file)
        return problem_set(
            p, EX_USAGE, EINVAL,
            "serve: --group needs a --token-file in a folder that the group "
            "can get into; the state directory is not one");
    if (o->line.verb == VERB_PAUSE && pause_read(o, p) < 0)
        return -EINVAL;
    if (!(1u << o->line.verb & (STEER | EVERY_WORKER | V(REMOVE))))
        return 0;
    /* These verbs take queues or messages, or the flag that selects all of
     * them, and not both. */
    if (o->line.verb == VERB_REMOVE && f->match && !o->orphans)
        return problem_set(
            p, EX_USAGE, EINVAL,
            "remove: --match needs --orphans; give both, or name the queues");
    if (!(1u << o->line.verb & STEER)) {
        if (all && o->line.operand_count)
            return problem_set(
                p, EX_USAGE, EINVAL,
                "%s: queues and %s exclude each other; give one of them", verb,
                o->orphans ? "--orphans" : "--all");
        if (!all && o->line.operand_count == 0)
            return problem_set(p, EX_USAGE, EINVAL,
                               "%s: no queue given; usage: mqctl %s %s", verb,
                               verb, verbs[o->line.verb].usage);
        return 0;
    }
    if (o->line.verb == VERB_RUN_NOW && f->states != WAITING_ALL &&
        f->states & WAITING_BIT(WAITING_SPOOLED))
        return problem_set(p, EX_USAGE, EINVAL,
                           "run-now: messages of the spool are due already, "
                           "and run in their turn; leave spooled out of "
                           "--state");
    if (o->line.verb == VERB_CANCEL && !o->running &&
        f->states == WAITING_BIT(WAITING_RUNNING))
        return problem_set(p, EX_USAGE, EINVAL,
                           "cancel: running messages are skipped; give "
                           "--running to have their handlers terminated");
    if (ids && (narrowed || all))
        return problem_set(p, EX_USAGE, EINVAL,
                           "%s: ids and %s are both given; give one", verb,
                           all ? "--all" : "a filter");
    if (!ids && !narrowed && !all)
        return problem_set(p, EX_USAGE, EINVAL,
                           "%s: nothing chosen; give ids, a filter, or --all",
                           verb);
    return 0;
}

/* Exit statuses of the verbs, except 0. */
static const struct subcommand_exit exits[] = {
    {V(DOCTOR), 1, "doctor found a problem"},
    {EVERY, EX_USAGE, "the command line is wrong"},
    {V(MOVE), EX_DATAERR,
     "some messages cannot be sent, and are now dead letters"},
    {V(EXPLAIN) | STEER, EX_NOINPUT, "the message is not known"},
    {V(GROUP), EX_NOINPUT, "the group does not exist"},
    {V(KEYS), EX_NOINPUT, "the key does not exist"},
    {V(FORGET), EX_NOINPUT, "the queue has no saved state"},
    {V(SERVE), EX_NOINPUT, "a file does not exist"},
    {EVERY & ~(V(EXPLAIN) | STEER | V(GROUP) | V(FORGET) | V(SERVE) |
               V(QUEUES) | V(DOCTOR) | V(METRICS) | V(CREATE)),
     EX_NOINPUT, "the queue does not exist"},
    {V(MOVE), EX_NOINPUT, "the virtual host or password file does not exist"},
    {ORDERS | STEER | V(GROUP) | V(STATUS) | V(TOP) | V(KEYS), EX_UNAVAILABLE,
     "no worker is running"},
    {V(REMOVE) | V(FORGET), EX_UNAVAILABLE, "the removal was refused"},
    {V(SERVE), EX_UNAVAILABLE, "mqctl was built without serve"},
    {V(MOVE), EX_UNAVAILABLE, "a worker has the queue, or no broker answers"},
    {EVERY, EX_OSERR, "a system limit was reached"},
    {EVERY & ~V(CREATE), EX_CANTCREAT, "the state directory cannot be used"},
    {V(METRICS), EX_CANTCREAT, "the file cannot be written"},
    {V(CREATE), EX_CANTCREAT, "the queue exists already"},
    {EVERY, EX_IOERR, "input or output failed"},
    {ORDERS | V(GROUP) | V(STATUS), EX_TEMPFAIL, "the worker does not answer"},
    {ENDS, EX_TEMPFAIL, "the worker has not exited within --wait"},
    {STEER, EX_TEMPFAIL, "the message is in flight"},
    {V(SERVE), EX_TEMPFAIL, "the address is in use"},
    {V(MOVE), EX_TEMPFAIL,
     "the broker takes no message, or the move was interrupted"},
    {EVERY, EX_NOPERM, "permission was denied"},
    {EVERY & ~V(CREATE), EX_CONFIG, "a file is of another version"},
    {V(MOVE), EX_CONFIG,
     "the queue on the broker is of another kind, or the password or TLS file "
     "cannot be used"},
};

const struct subcommand_table mqctl_table = {
    .program = "mqctl",
    .usage = "VERB [options] [QUEUE ...]",
    .about = "Inspect and control workers of POSIX message queues.",
    .exits = exits,
    .exit_count = sizeof exits / sizeof *exits,
    .notes = "See mqctl(1).",
    .verbs = verbs,
    .verb_count = VERB_COUNT,
    .flags = flags,
    .flag_count = sizeof flags / sizeof *flags,
    .check = options_check,
};

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

/* NULL in a build that lacks their library; `absent` below then says why. */
#pragma weak serve_run
#pragma weak top_run

/* The verbs. A verb without `least` and `most` takes no operands. */
static const struct subcommand_row verbs[] = {
    [VERB_QUEUES] = {"queues", "[options]",
                     "List every queue of this machine and its worker.",
                     queues_run, "Inspect"},
    [VERB_LIST] = {"list", "[options] QUEUE",
                   "List running and waiting messages.", list_run, "Inspect", 1,
                   1, .also = "ls"},
    [VERB_RUN_NOW] = {"run-now", "[options] QUEUE ID...|--all|filter",
                      "Make delayed messages and retries due now.",
                      steer_messages_run, "Manage messages", 1, SUBCOMMAND_ANY},
    [VERB_CANCEL] = {"cancel", "[options] QUEUE ID...|--all|filter",
                     "Discard waiting messages, or running ones.",
                     steer_messages_run, "Manage messages", 1, SUBCOMMAND_ANY},
    [VERB_GROUPS] = {"groups", "[options] QUEUE",
                     "List ordered groups with messages.", groups_run,
                     "Inspect", 1, 1},
    [VERB_GROUP] =
        {"group", "[options] QUEUE KEY close|open|release",
         "Close a group to new messages, open it again, or release a held one.",
         group_run, "Manage messages", 3, 3, .last = "close|open|release"},
    [VERB_KEYS] = {"keys", "[options] QUEUE", "List unique keys, or free one.",
                   keys_run, "Manage messages", 1, 1},
    [VERB_STATUS] = {"status", "[options] [QUEUE...]",
                     "Show what workers are doing; without QUEUE, all of them.",
                     status_run, "Inspect", 0, SUBCOMMAND_ANY,
                     .elsewhere = "ps|info|stats"},
    [VERB_TOP] = {"top", "[options] [QUEUE...]",
                  "Watch workers live; plain lines if there is no terminal.",
                  top_run, "Inspect", 0, SUBCOMMAND_ANY,
                  .absent = "MINIMAL=1; use mqctl status, or build without "
                            "MINIMAL=1"},
    [VERB_PAUSE] = {"pause", "[options] QUEUE...|--all [DUR]",
                    "Stop taking messages until resume or for DUR.", steer_run,
                    "Control a worker", 0, SUBCOMMAND_ANY},
    [VERB_RESUME] = {"resume", "[options] QUEUE...|--all",
                     "Take messages again.", steer_run, "Control a worker", 0,
                     SUBCOMMAND_ANY},
    [VERB_SET] = {"set", "[options] QUEUE [NAME=VALUE...]",
                  "Change settings of a running worker, or list them.",
                  steer_run, "Control a worker", 1, SUBCOMMAND_ANY,
                  .settings = true},
    [VERB_DRAIN] = {"drain", "[options] QUEUE...|--all",
                    "Let the worker finish running messages and exit.",
                    steer_run, "Control a worker", 0, SUBCOMMAND_ANY},
    [VERB_STOP] = {"stop", "[options] QUEUE...|--all",
                   "Drain within the worker's --grace; like SIGTERM.",
                   steer_run, "Control a worker", 0, SUBCOMMAND_ANY},
    [VERB_QUIT] =
        {"quit", "[options] QUEUE...",
         "Let the worker terminate its handlers now and exit; like SIGQUIT.",
         steer_run, "Control a worker", 1, SUBCOMMAND_ANY, .elsewhere = "kill"},
    [VERB_EXPLAIN] = {"explain", "[options] [QUEUE] ID|ERROR",
                      "Show where a message is, or explain an error (EMFILE).",
                      explain_run, "Inspect", 1, 2},
    [VERB_DOCTOR] = {"doctor", "[options] [QUEUE]",
                     "Diagnose problems, and name the command that fixes each.",
                     doctor_run, "Inspect", 0, 1},
    [VERB_METRICS] = {"metrics", "[options]",
                      "Print numbers of all workers for Prometheus.",
                      metrics_run, "Inspect"},
    [VERB_SERVE] = {"serve", "[options]",
                    "Show all queues and dead letters in a browser.", serve_run,
                    "Inspect", .also = "web",
                    .absent = "MINIMAL=1, or no headers of libmicrohttpd "
                              "(scripts/deps installs them); build again "
                              "without MINIMAL=1"},
    [VERB_CREATE] = {"create", "[options] QUEUE", "Create a queue.", create_run,
                     "Create and remove queues", 1, 1},
    [VERB_REMOVE] = {"remove", "[options] QUEUE...|--orphans", "Remove queues.",
                     remove_run, "Create and remove queues", 0, SUBCOMMAND_ANY,
                     .elsewhere = "delete|rm"},
    [VERB_FORGET] = {"forget", "[options] QUEUE...",
                     "Delete the saved state of removed queues.", forget_run,
                     "Create and remove queues", 1, SUBCOMMAND_ANY},
    [VERB_MOVE] = {"move", "[options] QUEUE amqp://...",
                   "Send all messages of a POSIX queue to a queue on a broker.",
                   move_run, "Create and remove queues", 2, 2},
};

/* Read --state, with commas between its values, as bits: states of groups for
 * mqctl groups, else of messages. */
static int read_states(const char *text, void *into, struct problem *p)
{
    struct options *o = into;
    const bool groups = o->line.verb == VERB_GROUPS;
    const unsigned count = groups ? GROUP_IS_COUNT + 0u : WAITING_STATES + 0u;
    unsigned bits = 0;
    size_t size;

    for (const char *at = text;; at += size + 1) {
        unsigned i = 0;

        size = strcspn(at, ",");
        for (; i < count; i++) {
            const char *name = groups
                                   ? group_where_text((enum group_where)i)
                                   : waiting_state_text((enum waiting_state)i);

            if (strlen(name) == size && memcmp(name, at, size) == 0)
                break;
        }
        if (i == count)
            return problem_set(p, EX_USAGE, EINVAL,
                               "--state: \"%.*s\" is not a state; give %s, "
                               "several with commas",
                               (int)size, at,
                               groups
                                   ? "running, ready, blocked, held or closing"
                                   : "running, ready, spooled, delayed, retry, "
                                     "parked or held");
        bits |= 1u << i;
        if (!at[size])
            break;
    }
    *(groups ? &o->groups : &o->filter.states) = bits;
    return 0;
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

static const struct option_row flags[] = {
    {"listen", 0, OPT_STRING, .verbs = V(SERVE), .value = "ADDRESS",
     .preset = "127.0.0.1:8480", AT(serve.listen),
     .help = "where to listen: ADDRESS:PORT, or unix:PATH"},
    {"state-dir", 0, OPT_CALL, .verbs = V(SERVE), .value = "DIR",
     .call = read_word, AT(serve.state_dirs),
     .help = "state directory of workers; may be given several times; "
             "default: the one that mqworker uses"},
    {"allow-write", 0, OPT_FLAG, .verbs = V(SERVE), AT(serve.allow_write),
     .help = "let people change dead letters, waiting messages, groups and "
             "settings in the browser, and pause, resume and drain workers"},
    {"no-bodies", 0, OPT_FLAG, .verbs = V(SERVE), AT(serve.no_bodies),
     .help = "hide the bodies of messages"},
    {"token-file", 0, OPT_STRING, .verbs = V(SERVE), .value = "PATH",
     AT(serve.token_file),
     .help = "file with the token, created if it is missing; default: "
             "web.token in the state directory"},
    {"group", 0, OPT_STRING, .verbs = V(SERVE), .value = "GROUP",
     AT(serve.group),
     .help = "let members of GROUP look: they can read the token, which must "
             "be in a --token-file"},
    {"metrics-open", 0, OPT_FLAG, .verbs = V(SERVE), AT(serve.metrics_open),
     .help = "give /metrics to everybody, without a token"},
    {"allow-host", 0, OPT_CALL, .verbs = V(SERVE), .value = "NAME",
     .call = read_word, AT(serve.hosts),
     .help = "another name of the server, like queues.example.org; may be "
             "given several times"},
    {"behind-proxy", 0, OPT_FLAG, .verbs = V(SERVE), AT(serve.behind_proxy),
     .help = "a proxy with TLS is in front; log its X-Forwarded-User"},
    {"tls-cert", 0, OPT_STRING, .verbs = V(SERVE), .value = "PATH",
     AT(serve.tls_cert), .help = "use TLS with this certificate (PEM)"},
    {"tls-key", 0, OPT_STRING, .verbs = V(SERVE), .value = "PATH",
     AT(serve.tls_key), .help = "its key (PEM)"},
    {"json", 'j', OPT_FLAG, .verbs = EVERY & ~V(SERVE), AT(json),
     .help = "print JSON, one object on each line"},
    {"quiet", 'q', OPT_FLAG,
     .verbs = ORDERS | STEER | V(GROUP) | V(KEYS) | V(CREATE) | V(REMOVE) |
              V(FORGET) | V(MOVE),
     AT(quiet), .help = "print only errors"},
    {"quiet", 'q', OPT_FLAG, .verbs = V(DOCTOR), AT(quiet),
     .help = "print only problems"},
    {"state", 's', OPT_CALL, .verbs = FILTER, .value = "STATE,...",
     .call = read_states,
     .words = "running|ready|spooled|delayed|retry|parked|held",
     .help = "only messages that are running, ready, spooled, delayed, retry, "
             "parked or held"},
    {"state", 's', OPT_CALL, .verbs = V(GROUPS), .value = "STATE,...",
     .call = read_states, .words = "running|ready|blocked|held|closing",
     .help = "only groups that are running, ready, blocked, held or closing"},
    {"group", 0, OPT_STRING, .verbs = V(GROUPS), .value = "KEY",
     AT(filter.group), .help = "only that group"},
    {"free", 0, OPT_STRING, .verbs = V(KEYS), .value = "KEY", AT(free_key),
     .help = "free KEY, so that the next message with that key runs"},
    FILTER_ERROR("messages whose last", .verbs = FILTER, AT(filter.error_like)),
    FILTER_GROUP("messages", .verbs = FILTER, AT(filter.group)),
    FILTER_MATCH("messages", .verbs = FILTER, AT(filter.match)),
    {"orphans", 0, OPT_FLAG, .verbs = V(REMOVE), AT(orphans),
     .help = "all queues that no process has open"},
    {"match", 0, OPT_STRING, .verbs = V(REMOVE), .value = "GLOB",
     AT(filter.match),
     .help = "with --orphans: only queues whose name matches GLOB, like "
             "'/test-*'"},
    FILTER_SINCE("messages received", .verbs = FILTER, AT(filter.since_ns)),
    FILTER_UNTIL("messages received", .verbs = FILTER, AT(filter.until_ns)),
    {"limit", 0, OPT_NUMBER, .verbs = FILTER | V(GROUPS), .value = "N",
     .min = 1, .max = INT64_MAX, AT(limit), .help = "only the first N of them"},
    {"wait", 0, OPT_DURATION, .verbs = ENDS, .optional = true, .value = "DUR",
     .words = "forever", .preset = "forever", AT(wait_ns),
     .seen = offsetof(struct options, wait) + 1,
     .help = "return when the worker has exited; exit 75 if it has not after "
             "DUR"},
    {"all", 'a', OPT_FLAG, .verbs = STEER, AT(all), .help = "all messages"},
    {"all", 'a', OPT_FLAG, .verbs = EVERY_WORKER, AT(all),
     .help = "all running workers with this state directory"},
    {"running", 0, OPT_FLAG, .verbs = V(CANCEL), AT(running),
     .help = "also running messages: their handlers are terminated"},
    {"dry-run", 'n', OPT_FLAG, .verbs = STEER | V(REMOVE) | V(FORGET),
     AT(dry_run), .help = "print what would be done and do nothing"},
    {"after", 0, OPT_STRING, .verbs = V(LIST) | V(GROUPS), .value = "CURSOR",
     AT(after), .help = "continue after the object with this cursor"},
    {"interval", 'i', OPT_DURATION, .verbs = V(TOP), .value = "DUR",
     .min = 100 * NS_PER_MS, .max = 3600 * NS_PER_S, .preset = "1s",
     AT(interval_ns), .help = "time from one round to the next"},
    {"rounds", 0, OPT_NUMBER, .verbs = V(TOP), .value = "N", .min = 1,
     .max = INT64_MAX, .old_letter = 'n', AT(rounds),
     .help = "exit after N rounds"},
    {"textfile", 0, OPT_STRING, .verbs = V(METRICS), .value = "PATH",
     AT(textfile),
     .help = "write to PATH, whole or not at all, for node_exporter"},
    {"queue-depth", 0, OPT_NUMBER, .verbs = V(CREATE) | V(DOCTOR) | V(EXPLAIN),
     .value = "N", .min = 1, .max = MQLIMIT_HARD_DEPTH, AT(depth),
     .help = "messages that the queue can hold; default: the kernel's"},
    {"message-size", 0, OPT_SIZE, .verbs = V(CREATE) | V(DOCTOR) | V(EXPLAIN),
     .value = "SIZE", .min = 1, .max = MQLIMIT_HARD_MESSAGE_SIZE,
     AT(message_size),
     .help = "largest message of the queue; default: the kernel's"},
    {"mode", 0, OPT_OCTAL, .verbs = V(CREATE), .value = "OCTAL", .max = 0777,
     .preset = "0600", AT(mode), .help = "access mode"},
    {"letters", 0, OPT_FLAG, .verbs = V(MOVE), AT(letters),
     .help = "also move dead letters"},
    {"group-separator", 0, OPT_CALL, .verbs = V(MOVE), .value = "CHAR",
     .call = header_separator, AT(group_separator),
     .help = "the same as the worker's, to find the messages of groups"},
    {"runtime-dir", 0, OPT_STRING, .verbs = V(MOVE), .value = "DIR",
     AT(runtime_dir), .help = "where messages in flight are kept, on a tmpfs"},
    {"allow-disk-custody", 0, OPT_FLAG, .verbs = V(MOVE),
     AT(allow_disk_custody),
     .help = "run even if there is no tmpfs: a kill while the disk is written "
             "may lose the message that is being received"},
    BROKER_PASSWORD_FILE(.verbs = BROKER, AT(access.password_file)),
    BROKER_TLS_CA(.verbs = BROKER, AT(access.tls.ca)),
    BROKER_TLS_CERT(.verbs = BROKER, AT(access.tls.cert)),
    BROKER_TLS_KEY(.verbs = BROKER, AT(access.tls.key)),
    BROKER_PARTITIONS_ROW(.verbs = BROKER, AT(access.partitions)),
    {"force", 'f', OPT_FLAG, .verbs = V(REMOVE), AT(force),
     .help = "remove even queues that have a worker, or messages, which are "
             "lost"},
    {"force", 'f', OPT_FLAG, .verbs = V(FORGET), AT(force),
     .help = "delete the saved messages as well"},
    {"utc", 0, OPT_FLAG, .verbs = V(STATUS) | V(TOP) | V(EXPLAIN) | V(DOCTOR),
     AT(utc), .help = "print times in UTC (RFC 3339), even on a terminal"},
    {"state-dir", 0, OPT_STRING, .verbs = EVERY & ~(V(CREATE) | V(SERVE)),
     .value = "DIR", AT(state_dir),
     .help = "state directory of the workers; default: the one that "
             "mqworker uses"},
    {"help", 'h', OPT_FLAG, .verbs = EVERY, AT(line.help),
     .help = "print this and exit"},
};

/* Take the duration of pause, if the last operand is one; a queue with such a
 * name needs its slash. Refuse an operand that is almost a duration: if it were
 * taken for a queue, the other queues would be paused without a limit. */
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
            return problem_set(
                p, EX_USAGE, EINVAL,
                is ? "pause: more follows the duration %s; give it last (the "
                     "queue of that name is /%s)"
                   : "pause: \"%s\" is not a duration; give one like 30s or "
                     "10m (the queue of that name is /%s)",
                word, word);
        }
    }
    return 0;
}

static bool is_queue(const char *word)
{
    return word[0] == '/' || broker_operand_is(word);
}

/* Check the verb's operands and flags. A verb that changes messages needs ids,
 * a filter or --all; ids exclude the other two. */
static int options_check(void *options, struct problem *p)
{
    struct options *o = options;
    const struct waiting_filter *f = &o->filter;
    const unsigned verb = 1u << o->line.verb;
    const char *name = verbs[o->line.verb].name, *text = NULL;
    char *const *words = o->line.operands;
    const int n = o->line.operand_count; /* the duration of pause included */
    const char *first = n > 0 ? words[0] : "",
               *last = n > 0 ? words[n - 1] : "";
    bool ids = n > 1, narrowed = filter_given(o), all = o->orphans || o->all;
    bool of_queues = verb & (EVERY_WORKER | V(REMOVE)); /* or all of them */

    if (verb & (STEER | V(SET) | V(EXPLAIN)) && n > 1 && !is_queue(first) &&
        is_queue(last))
        return problem_set(
            p, EX_USAGE, EINVAL,
            "%s: the queue comes first; did you mean mqctl %s %s %s%s?", name,
            name, SHELL_QUEUE(last), first, n > 2 ? " ..." : "");
    /* Refuse verbs that do not work for a queue on a broker, and flags of a
     * broker for a POSIX queue. */
    if ((broker_operand_is(first) &&
         broker_verb_check("mqctl", name, first, p) < 0) ||
        broker_access_check(&o->access, last, p) < 0)
        return -EINVAL;
    if (o->line.verb == VERB_MOVE && !broker_operand_is(last))
        return problem_set(p, EX_USAGE, EINVAL,
                           "move: %s is not a queue on a broker; give "
                           "amqp://USER@HOST/VHOST/QUEUE",
                           last);
    if (o->line.verb == VERB_PAUSE && pause_read(o, p) < 0)
        return -EINVAL;
    if (o->serve.group && o->serve.allow_write)
        text = "--group is for people who only look; leave out --allow-write, "
               "or start a second server for people who may change something";
    else if (o->serve.group && !o->serve.token_file)
        text = "--group needs a --token-file in a folder that the group can "
               "get into; the state directory is not one";
    else if (verb & V(REMOVE) && f->match && !o->orphans)
        text = "--match needs --orphans; give both, or name the queues";
    else if (of_queues && all && o->line.operand_count)
        text = o->orphans
                   ? "queues and --orphans exclude each other; give one of them"
                   : "queues and --all exclude each other; give one of them";
    else if (verb & V(RUN_NOW) && f->states != WAITING_ALL &&
             f->states & WAITING_BIT(WAITING_SPOOLED))
        text = "messages of the spool are due already, and run in their turn; "
               "leave spooled out of --state";
    else if (verb & V(CANCEL) && !o->running &&
             f->states == WAITING_BIT(WAITING_RUNNING))
        text = "running messages are skipped; give --running to have their "
               "handlers terminated";
    else if (verb & STEER && ids && (narrowed || all))
        text = all ? "ids and --all are both given; give one"
                   : "ids and a filter are both given; give one";
    else if (verb & STEER && !ids && !narrowed && !all)
        text = "nothing chosen; give ids, a filter, or --all";
    if (!text && of_queues && !all && o->line.operand_count == 0)
        return problem_set(p, EX_USAGE, EINVAL,
                           "%s: no queue given; usage: mqctl %s %s", name, name,
                           verbs[o->line.verb].usage);
    return text ? problem_set(p, EX_USAGE, EINVAL, "%s: %s", name, text) : 0;
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

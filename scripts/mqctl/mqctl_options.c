/* mqctl_options.c - see mqctl_options.h */
#include "scripts/mqctl/mqctl_options.h"

#include <errno.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/mq/mqlimit.h"

static const struct subcommand_row verbs[] = {
    [VERB_QUEUES] = {"queues", "[options]",
                     "List every queue of this machine and its worker."},
    [VERB_STATUS] = {"status", "[options] [QUEUE...]",
                     "Show what workers do; without QUEUE all of them."},
    [VERB_TOP] = {"top", "[options] [QUEUE...]",
                  "Watch workers; lines where there is no terminal."},
    [VERB_PAUSE] = {"pause", "[options] QUEUE [DUR]",
                    "Take no messages, until resume or for DUR."},
    [VERB_RESUME] = {"resume", "[options] QUEUE", "Take messages again."},
    [VERB_SET] = {"set", "[options] QUEUE NAME=VALUE...",
                  "Change settings of a running worker."},
    [VERB_DRAIN] = {"drain", "[options] QUEUE",
                    "Let the worker finish what runs and exit."},
    [VERB_STOP] = {"stop", "[options] QUEUE",
                   "The same, within the worker's --grace; as SIGTERM."},
    [VERB_QUIT] = {"quit", "[options] QUEUE",
                   "Let it end its handlers now and exit; as SIGQUIT."},
    [VERB_EXPLAIN] = {"explain", "[options] QUEUE ID",
                      "Say where a message is and why."},
    [VERB_DOCTOR] = {"doctor", "[options] [QUEUE]",
                     "Look for trouble, with the command that fixes it."},
    [VERB_METRICS] = {"metrics", "[options]",
                      "Print numbers of all workers for Prometheus."},
    [VERB_CREATE] = {"create", "[options] QUEUE", "Make a queue."},
    [VERB_REMOVE] = {"remove", "[options] QUEUE", "Remove a queue."},
};

#define AT(member) .offset = offsetof(struct options, member)
#define V(verb)    (1u << VERB_##verb)
#define EVERY      ((1u << VERB_COUNT) - 1)
#define TABLES     (V(QUEUES) | V(STATUS) | V(TOP) | V(EXPLAIN) | V(DOCTOR))
#define ENDS       (V(DRAIN) | V(STOP) | V(QUIT))
#define ORDERS     (V(PAUSE) | V(RESUME) | V(SET) | ENDS)

static const struct subcommand_flag flags[] = {
    {TABLES | ORDERS,
     {"json", 'j', OPT_FLAG, AT(json), .help = "one JSON object a line"}},
    {V(TOP),
     {"interval", 'i', OPT_DURATION, .value = "DUR", .min = 100 * NS_PER_MS,
      .max = 3600 * NS_PER_S, .preset = "1s", AT(interval_ns),
      .help = "how long from one look to the next"}},
    {V(TOP),
     {"rounds", 'n', OPT_NUMBER, .value = "N", .min = 1, .max = INT64_MAX,
      AT(rounds), .help = "end after N looks"}},
    {V(METRICS),
     {"textfile", 0, OPT_STRING, .value = "PATH", AT(textfile),
      .help = "write to PATH, whole or not at all, for node_exporter"}},
    {V(CREATE),
     {"queue-depth", 0, OPT_NUMBER, .value = "N", .min = 1,
      .max = MQLIMIT_HARD_DEPTH, AT(depth),
      .help = "messages it holds; without this the kernel's default"}},
    {V(CREATE),
     {"message-size", 0, OPT_SIZE, .value = "SIZE", .min = 1,
      .max = MQLIMIT_HARD_MESSAGE_SIZE, AT(message_size),
      .help = "its largest message; without this the kernel's default"}},
    {V(CREATE),
     {"mode", 0, OPT_OCTAL, .value = "OCTAL", .max = 0777, .preset = "0600",
      AT(mode), .help = "access mode"}},
    {V(REMOVE),
     {"force", 'f', OPT_FLAG, AT(force),
      .help = "also with messages in it, which are lost, or a worker"}},
    {EVERY & ~V(CREATE),
     {"state-dir", 0, OPT_STRING, .value = "DIR", AT(state_dir),
      .help = "state directory of the workers; without this as the "
              "worker finds it"}},
    {EVERY, {"help", 'h', OPT_FLAG, AT(help), .help = "print this and exit"}},
};

static const struct subcommand_table table = {
    .program = "mqctl",
    .usage = "VERB [options] [QUEUE ...]",
    .about = "Look at workers of POSIX message queues, and steer them.",
    .notes = "Exit status: 0; 1 doctor found something; 64 usage; 66 no such "
             "queue or\nmessage; 69 no worker runs; 71 system limit; 73 state "
             "directory; 77 no\npermission; 78 file of another version. See "
             "mqctl(1).",
    .verbs = verbs,
    .verb_count = VERB_COUNT,
    .flags = flags,
    .flag_count = sizeof flags / sizeof *flags,
};

/* How many operands a verb takes. */
static const struct {
    int least, most; /* most 0: any number, -1: none */
} operands[] = {
    [VERB_QUEUES] = {0, -1}, [VERB_STATUS] = {0, 0}, [VERB_TOP] = {0, 0},
    [VERB_PAUSE] = {1, 2},   [VERB_RESUME] = {1, 1}, [VERB_SET] = {2, 0},
    [VERB_DRAIN] = {1, 1},   [VERB_STOP] = {1, 1},   [VERB_QUIT] = {1, 1},
    [VERB_EXPLAIN] = {2, 2}, [VERB_DOCTOR] = {0, 1}, [VERB_METRICS] = {0, -1},
    [VERB_CREATE] = {1, 1},  [VERB_REMOVE] = {1, 1},
};

/* verb_parse - the verb of that name */
enum verb verb_parse(const char *text)
{
    return (enum verb)subcommand_find(&table, text);
}

const char *verb_name(enum verb verb)
{
    return verbs[verb].name;
}

/* operands_check - as many as the verb takes */
static int operands_check(const struct options *o, struct problem *p)
{
    int n = o->operands.count, most = operands[o->verb].most;
    const char *what = NULL;

    if (n < operands[o->verb].least)
        what = n == 0 ? "no queue given" : "too little given";
    else if (most && n > (most < 0 ? 0 : most))
        what = "too much given";
    return what ? problem_set(p, EX_USAGE, EINVAL, "%s: %s; usage: mqctl %s %s",
                              verbs[o->verb].name, what, verbs[o->verb].name,
                              verbs[o->verb].usage)
                : 0;
}

/* options_read - the flags of the verb */
int options_read(struct options *o, int argc, char **argv, struct problem *p)
{
    int err;

    o->interval_ns = NS_PER_S;
    err = subcommand_read(&table, o->verb, argc, argv, o, &o->operands, p);
    return err || o->help ? err : operands_check(o, p);
}

/* options_complete - -1: argv does not ask for it */
int options_complete(int argc, char **argv)
{
    return verbs_dump(&table, argc, argv);
}

/* help_print - of one verb, or the list of verbs */
void help_print(enum verb verb, FILE *out)
{
    subcommand_help(&table, verb, out);
}

/* settings.c - reads the flags and operands of a worker (see settings.h)
 *
 * main calls settings_parse before there are threads, or the library calls
 * settings_init and settings_check. The table of flags is also read in the
 * loop, for mqctl set and mqctl status.
 */
#include "worker/config/settings.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/stdlib.h>
#include <bsd/string.h>

#include "common/base/basics.h"
#include "common/broker/broker_engine.h"
#include "common/message/header.h"
#include "common/mq/mqlimit.h"
#include "worker/config/rate_text.h"
#include "worker/rules/verdict.h"

#define PERCENT_MAX 1000
#define TEXT_MAX    1024

/* Read a map of exit codes: "3=discard,70=dead". */
static int read_on_exit(const char *text, void *into, struct problem *p)
{
    uint8_t *map = into;
    char copy[TEXT_MAX], *rest = copy, *entry;

    if (strlcpy(copy, text, sizeof copy) >= sizeof copy)
        return problem_set(p, EX_USAGE, EINVAL,
                           "--on-exit: the map is over %d bytes", TEXT_MAX - 1);
    while ((entry = strsep(&rest, ",")) != NULL) {
        char *word = strchr(entry, '=');
        const char *wrong = NULL;
        long long code = 0;
        int verdict = -1;

        if (word) {
            *word++ = '\0';
            code = strtonum(entry, 0, 255, &wrong);
            verdict = verdict_named(word);
        }
        if (!word || wrong || verdict < 0)
            return problem_set(p, EX_USAGE, EINVAL,
                               "--on-exit: \"%s\" has an entry that is not "
                               "CODE=VERDICT; give exit codes 0 to 255 with "
                               "done, retry, dead or discard, like "
                               "3=discard,70=dead",
                               text);
        map[code] = (uint8_t)verdict;
    }
    return 0;
}

/* Print the mapped exit codes, as read_on_exit reads them. */
static bool print_on_exit(const void *from, char *out, size_t room)
{
    const uint8_t *map = from;
    size_t used = 0;

    for (int i = 0; i < 256; i++)
        if (map[i] != VERDICT_UNMAPPED && used < room - 1)
            used += (size_t)snprintf(out + used, room - used, "%s%d=%s",
                                     used ? "," : "", i,
                                     verdict_rules[map[i]].name);
    return used > 0;
}

/* Guards the backoff in settings. It is held only to copy the backoff, and no
 * other lock is taken meanwhile. */
static pthread_mutex_t backoff_mtx = PTHREAD_MUTEX_INITIALIZER;

static bool print_backoff(const void *from, char *out, size_t room)
{
    struct backoff b;

    settings_backoff(CONTAINER_OF(from, const struct settings, backoff), &b);
    backoff_print(&b, out, room);
    return true;
}

static bool print_rate(const void *from, char *out, size_t room)
{
    char text[RATE_TEXT];

    strlcpy(out, rate_print(atomic_load((const _Atomic uint64_t *)from), text),
            room);
    return true;
}

/* Check the name of a queue before anything is opened. */
static int read_queue_name(const char *text, void *into, struct problem *p)
{
    return queue_name(text, into, p);
}

static bool print_queue_name(const void *from, char *out, size_t room)
{
    return strlcpy(out, from, room) > 0;
}

static bool print_character(const void *from, char *out, size_t room)
{
    return snprintf(out, room, "%c", *(const char *)from) > 0 && out[0];
}

/* Take any text, even an empty one: only the plugin can judge it. */
static int read_any(const char *text, void *into, struct problem *p)
{
    (void)p;
    *(const char **)into = text;
    return 0;
}

static bool print_any(const void *from, char *out, size_t room)
{
    const char *text = *(const char *const *)from;

    if (text)
        safe_text_copy(out, room, text, strlen(text));
    return text != NULL;
}

#define AT(member)      .offset = offsetof(struct settings, member)
#define SEEN(member)    .seen = offsetof(struct settings, member) + 1
#define LIVE            .live = true
#define LIBRARY(member) .library = offsetof(struct mqw_options, member) + 1

static const struct option_row rows[] = {
    {"max-concurrency", 'c', OPT_NUMBER, .value = "N", .min = 1,
     .max = CONCURRENCY_MAX, .preset = "processors", AT(concurrency),
     .elsewhere = "workers|jobs|parallel|threads", SEEN(concurrency_given),
     LIVE, LIBRARY(max_concurrency), .under = "Deliveries",
     .help = "how many handlers may run at the same time"},
    {"batch-time-limit", 0, OPT_DURATION, .value = "DUR", .words = "none",
     .preset = "1s", AT(batch_limit_ns), LIVE, LIBRARY(batch_time_limit),
     .help = "how long a work item takes and runs messages before it gives up "
             "its thread; 0: one message; none: until the queue is empty"},
    {"rate", 0, OPT_CALL, .value = "N[/s|/m|/h][,BURST]", .preset = "off",
     AT(rate), .call = rate_parse, .print = print_rate, LIVE, LIBRARY(rate),
     .help = "at most N deliveries in a second, minute or hour, retries "
             "included, in bursts of up to BURST; without BURST, as many as "
             "are allowed in a tenth of a second, but at least 1"},
    {"max-attempts", 0, OPT_NUMBER, .value = "N", .min = 1, .max = 1000000,
     .preset = "5", AT(max_attempts), LIVE, LIBRARY(max_attempts),
     .elsewhere = "retries|max-retries|retry|tries", .under = "Failures",
     .help = "failed deliveries before a message is dead"},
    {"backoff", 0, OPT_CALL, .value = "SPEC", .preset = "exp:1s,5m",
     AT(backoff), .call = backoff_parse, .print = print_backoff, LIVE,
     LIBRARY(backoff),
     .help = "how long a failed message waits: exp:BASE,MAX, or a list like "
             "1s,5s,30s whose last entry repeats"},
    {"jitter", 0, OPT_NUMBER, .value = "PERCENT", .max = PERCENT_MAX,
     .preset = "20", .unit = "%", AT(jitter_percent), LIVE, LIBRARY(jitter),
     .help = "random extra wait, up to this share of the backoff; a retry is "
             "never earlier than its backoff"},
    {"retry-for", 0, OPT_DURATION, .value = "DUR", .words = "none", .min = 1,
     .preset = "none", AT(retry_for_ns), LIVE, LIBRARY(retry_for),
     .help = "a failed message that was received DUR ago or earlier is not "
             "retried"},
    {"max-crashes", 0, OPT_NUMBER, .value = "N", .min = 1, .max = CRASHES_MOST,
     .preset = "3", AT(max_crashes), SEEN(max_crashes_given),
     LIBRARY(max_crashes),
     .help =
         "a message is dead once the worker has died N times while running it"},
    {"on-exit", 0, OPT_CALL, .value = "MAP", AT(on_exit), .call = read_on_exit,
     .print = print_on_exit,
     .help = "verdicts for exit codes, like 3=discard,70=dead; verdicts: done, "
             "retry, dead, discard"},
    {"breaker-failures", 0, OPT_NUMBER, .value = "N", .max = 1000000,
     .preset = "0", AT(breaker_failures), LIVE, LIBRARY(breaker_failures),
     .help = "handler failures in a row that open the breaker; 0 is off"},
    {"breaker-pause", 0, OPT_DURATION, .value = "DUR", .min = NS_PER_MS,
     .preset = "10s", AT(breaker_pause_ns), SEEN(breaker_pause_given), LIVE,
     LIBRARY(breaker_pause),
     .help = "how long the worker takes no messages after the breaker has "
             "opened; then it runs one message as a probe"},
    {"timeout", 't', OPT_DURATION, .value = "DUR", .words = "none",
     .min = NS_PER_MS, .preset = "none", AT(timeout_ns), LIVE, LIBRARY(timeout),
     .under = "Time limits of handlers",
     .help = "time limit of a handler: SIGTERM to its process group; a "
             "message's own timeout replaces it"},
    {"max-timeout", 0, OPT_DURATION, .value = "DUR", .words = "none",
     .min = NS_PER_MS, .preset = "none", AT(max_timeout_ns), LIVE,
     LIBRARY(max_timeout),
     .help = "the longest time limit that a message may ask for; a longer one "
             "counts as this"},
    {"timeout-abort", 0, OPT_FLAG, AT(timeout_abort), LIBRARY(timeout_abort),
     .help = "abort the worker if a plugin's function runs longer than its "
             "time limit and --kill-after together; this counts as a crash, "
             "and the next start runs the message again"},
    {"kill-after", 0, OPT_DURATION, .value = "DUR", .preset = "5s",
     AT(kill_after_ns), LIVE, LIBRARY(kill_after),
     .help = "how long after SIGTERM to send SIGKILL to the handler and all "
             "processes that it started"},
    {"grace", 0, OPT_DURATION, .value = "DUR", .preset = "30s", AT(grace_ns),
     LIVE, LIBRARY(grace),
     .help = "how long running handlers may take to finish after SIGTERM or "
             "SIGINT; a second signal skips the rest"},
    {"run-for", 0, OPT_DURATION, .value = "DUR", .min = NS_PER_MS,
     AT(run_for_ns), LIBRARY(run_for), .under = "Bounded runs",
     .help = "take only messages that should be finished within DUR of the "
             "start, then exit with 0"},
    {"estimated-duration", 0, OPT_DURATION, .value = "DUR", .preset = "2s",
     AT(estimated_duration_ns), LIBRARY(estimated_duration),
     .help = "handler time that --run-for assumes until one has been measured"},
    {"tolerance-factor", 0, OPT_NUMBER, .value = "N", .min = 1, .max = 1000,
     .preset = "5", AT(tolerance_factor), LIBRARY(tolerance_factor),
     .help = "--run-for stops taking messages N times the mean handler time "
             "before its end"},
    {"exit-when-idle", 0, OPT_DURATION, true, .value = "DUR", .preset = "0s",
     AT(exit_when_idle_ns), SEEN(exit_when_idle),
     .help = "exit once the queue has been empty and no handler has run for "
             "DUR; waiting retries do not count, and are left to the next run"},
    {"max-deliveries", 0, OPT_NUMBER, .value = "N", .min = 1, .max = INT64_MAX,
     AT(max_deliveries), LIBRARY(max_deliveries),
     .help = "exit after N deliveries"},
    {"lookahead", 0, OPT_NUMBER, .value = "N", .min = 1, .max = 65536,
     .preset = "64", AT(lookahead), LIBRARY(lookahead), SEEN(lookahead_given),
     .under = "Ordered groups",
     .help = "messages that may be held for ordered groups"},
    {"group-quantum", 0, OPT_NUMBER, .value = "N", .min = 1, .max = 1000,
     .preset = "10", AT(group_quantum), LIVE, LIBRARY(group_quantum),
     SEEN(group_quantum_given),
     .help = "messages of one group that run in a row before other groups get "
             "the thread"},
    {"max-parked", 0, OPT_NUMBER, .value = "N", .min = 1, .max = INT64_MAX,
     .preset = "100000", AT(max_parked), LIVE, LIBRARY(max_parked),
     SEEN(max_parked_given),
     .help = "messages of blocked groups that may be parked in the store; at "
             "this number the worker receives no more"},
    {"on-group-dead", 0, OPT_CHOICE, .value = "continue|hold",
     .words = "continue|hold", .preset = "continue", AT(on_group_dead),
     LIBRARY(on_group_dead),
     .help = "what to do with a group whose first message has died: continue "
             "with the next message, or hold the group until mqdlq has "
             "replayed or discarded the letter"},
    {"group-separator", 0, OPT_CALL, .value = "CHAR", AT(group_separator),
     .call = header_separator, .print = print_character,
     .help = "the group of a message without a header is the text before the "
             "first CHAR of its body"},
    {"max-waiting", 0, OPT_NUMBER, .value = "N", .min = 1, .max = INT64_MAX,
     .preset = "1000000", AT(max_waiting), LIVE, LIBRARY(max_waiting),
     SEEN(max_waiting_given), .under = "Waiting messages",
     .help = "messages that may wait in the store, for any reason; at this "
             "number the worker takes no more from the queue"},
    {"max-delay", 0, OPT_DURATION, .value = "DUR", .words = "none",
     .preset = HEADER_MAX_DELAY, AT(max_delay_ns), SEEN(max_delay_given), LIVE,
     LIBRARY(max_delay),
     .help = "longest delay: a message with a later not-before is dead; a "
             "handler that asks for more gets this delay"},
    {"spool", 0, OPT_NUMBER, true, .value = "N", .preset = "1000000", AT(spool),
     LIVE, LIBRARY(spool),
     .help = "move up to N messages from the queue to the store as they "
             "arrive, and run them from there in the same order: senders do "
             "not wait, and waiting messages survive a reboot; 0 is off"},
    {"spool-sync", 0, OPT_CHOICE, .value = "waiting|always",
     .words = "waiting|always", .preset = "waiting", AT(spool_sync),
     LIBRARY(spool_sync),
     .help = "which messages the spool writes to disk: only those that wait, "
             "or every one before it runs"},
    {"dead-letter-queue", 0, OPT_CALL, .value = "NAME", AT(dead_letter_queue),
     .call = read_queue_name, .print = print_queue_name,
     LIBRARY(dead_letter_queue), .under = "Dead letters",
     .help = "move dead letters to this POSIX queue when it has room"},
    {"keep-dead", 0, OPT_DURATION, .value = "DUR", .words = "none",
     .min = NS_PER_MS, .preset = "none", AT(keep_dead_ns), LIVE,
     LIBRARY(keep_dead), .help = "remove dead letters DUR after they died"},
    {"max-dead", 0, OPT_NUMBER, .value = "N", .max = INT64_MAX, .preset = "0",
     AT(max_dead), LIVE, LIBRARY(max_dead),
     .help =
         "keep at most N dead letters: the oldest are removed; 0 keeps all"},
    {"on-dead", 0, OPT_STRING, .value = "COMMAND", AT(on_dead),
     LIBRARY(on_dead),
     .help = "run by sh -c once for each message that becomes a dead letter, "
             "with the letter as JSON on stdin"},
    {"plugin", 0, OPT_STRING, .value = "FILE.so", AT(plugin),
     .under = "Plugins and long-lived handlers",
     .help = "call the C function of a shared object instead of a command"},
    {"plugin-arg", 0, OPT_CALL, .value = "S", AT(plugin_arg), .call = read_any,
     .print = print_any, .help = "argument of the plugin's mqw_init"},
    {"stream", 0, OPT_FLAG, AT(stream),
     .help = "COMMAND is started once for each thread and kept; it reads "
             "messages from stdin and writes verdicts to stdout"},
    {"window", 0, OPT_NUMBER, .value = "N", .min = 1, .max = WINDOW_MAX,
     .preset = "1", AT(window),
     .help = "messages that each child of --stream may have unanswered"},
    {"max-requests", 0, OPT_NUMBER, .value = "N", .min = 1, .max = INT64_MAX,
     AT(max_requests), .help = "replace a child of --stream after N messages"},
    {"max-rss", 0, OPT_SIZE, .value = "SIZE", .min = 1, .max = INT64_MAX,
     AT(max_rss),
     .help = "replace a child of --stream whose resident memory is over SIZE"},
    {"forward", 0, OPT_STRING, .value = "DEST", AT(forward),
     .under = "Forwarding",
     .help = "send each message to the queue DEST instead of running a "
             "command: a POSIX queue, or a queue on a broker (amqp://)"},
    {"no-create", 0, OPT_FLAG, AT(no_create), LIBRARY(no_create),
     .under = "The queue", .help = "do not create the queue if it is missing"},
    {"queue-depth", 0, OPT_NUMBER, .value = "N", .min = 1,
     .max = MQLIMIT_HARD_DEPTH, AT(queue_depth), LIBRARY(queue_depth),
     .help = "messages that a created queue holds"},
    {"message-size", 0, OPT_SIZE, .value = "SIZE", .min = 1,
     .max = MQLIMIT_HARD_MESSAGE_SIZE, AT(message_size), LIBRARY(message_size),
     .help = "largest message of a created queue"},
    {"mode", 0, OPT_OCTAL, .value = "OCTAL", .max = 0777, .preset = "0600",
     AT(mode), LIBRARY(mode), .help = "access mode of a created queue"},
    BROKER_PASSWORD_FILE(AT(access.password_file),
                         .under = "A queue on a broker"),
    BROKER_TLS_CA(AT(access.tls.ca)),
    BROKER_TLS_CERT(AT(access.tls.cert)),
    BROKER_TLS_KEY(AT(access.tls.key)),
    BROKER_PARTITIONS_ROW(AT(access.partitions)),
    {"allow-unreplicated", 0, OPT_FLAG, AT(allow_unreplicated),
     .help = "accept a queue on a broker that is on one node only, and is lost "
             "with that node"},
    {"state-dir", 0, OPT_STRING, .value = "DIR", AT(state_dir),
     LIBRARY(state_dir), .under = "State",
     .help = "where retries and dead letters are kept"},
    {"runtime-dir", 0, OPT_STRING, .value = "DIR", AT(runtime_dir),
     LIBRARY(runtime_dir),
     .help = "where messages in flight are kept, on a tmpfs"},
    {"allow-disk-custody", 0, OPT_FLAG, AT(allow_disk_custody),
     .help = "run even if there is no tmpfs: a kill while the disk is written "
             "may lose the message that is being received"},
    {"log-format", 0, OPT_CHOICE, .value = "FORMAT",
     .words = "text|json|human|auto", .preset = "auto", AT(log_format),
     .under = "Log",
     .help = "lines on stderr: text is key=value, human is short and coloured; "
             "auto is human on a terminal, else text; lines in the journal "
             "have no time"},
    {"stderr-rate", 0, OPT_NUMBER, .value = "N", .max = 1000000,
     .preset = "200", AT(stderr_rate), LIVE,
     .help = "lines of the handlers' stderr that are logged per second, in "
             "bursts of up to ten seconds' worth; 0 logs all"},
    {"verbose", 'v', OPT_COUNT, AT(verbose),
     .help = "also log each successful delivery"},
    {"quiet", 'q', OPT_FLAG, AT(quiet), .help = "log warnings and errors only"},
    {"help", 'h', OPT_FLAG, AT(help), .under = "Help",
     .help = "print this and exit"},
    {"version", 0, OPT_FLAG, AT(version), .help = "print the version and exit"},
};

_Static_assert(sizeof rows / sizeof rows[0] <= SETTINGS_MOST,
               "orders.h has a time for each");

const struct option_table settings_table = {
    .program = "mqworker",
    .usage = "[options] QUEUE -- COMMAND [ARG...]\n"
             "[options] --plugin FILE.so QUEUE\n"
             "[options] --forward DEST QUEUE",
    .about = "Run COMMAND for each message of a POSIX message queue, or of a "
             "RabbitMQ quorum queue (amqp://USER@HOST/VHOST/QUEUE), without "
             "losing any.",
    .notes =
        "COMMAND gets the body on stdin and MQW_* in its environment.\nExit 0: "
        "done. 65: dead. 126, 127: cannot be started, no attempt is "
        "counted.\nAny other status: retry after the backoff.\n\nSignals: TERM "
        "and INT finish and stop, QUIT stops now, USR2 pauses,\nCONT resumes, "
        "TTIN and TTOU raise and lower the concurrency.\n\nExit status: 0; 64 "
        "the command line is wrong; 66 the queue, virtual\nhost or password "
        "file does not exist; 69 the queue has a worker, or no\nbroker "
        "answers; 71 a system limit was reached; 73 the state directory\n"
        "cannot be used; 74 input or output failed; 77 permission was denied;\n"
        "78 a file is of another version, the queue on the broker is of "
        "another\nkind, or the password or TLS file cannot be used."
        "\n\nExample:\n  mqworker -c "
        "4 /orders -- ./handle-order\n\nSee also: mqctl(1), mqsend(1), "
        "mqdlq(1)",
    .rows = rows,
    .count = sizeof rows / sizeof rows[0],
};

const struct option_row *settings_row(const char *flag)
{
    for (size_t i = 0; i < settings_table.count; i++)
        if (strcmp(settings_table.rows[i].name, flag) == 0)
            return &settings_table.rows[i];
    return NULL;
}

int settings_check_number(const struct option_row *row, uint64_t value,
                          struct problem *p)
{
    uint64_t most = row->max ? row->max : INT64_MAX;

    if (row->type == OPT_CHOICE) { /* the value is the index of a word */
        most = 0;
        for (const char *c = row->words; *c; c++)
            most += *c == '|';
    } else if (row->words && value == UINT64_MAX) {
        return 0; /* the row's word */
    }
    if (value >= row->min && value <= most)
        return 0;
    return problem_set(p, EX_USAGE, EINVAL,
                       "--%s: %" PRIu64 " is out of range, allowed are "
                       "%" PRIu64 " to %" PRIu64,
                       row->name, value, row->min, most);
}

/* Read the default values of the table as if the user had given them. Two rows
 * are skipped, because their defaults are only for --help: the number of
 * processors comes from the kernel, and mode 0 means: not given. */
void settings_init(struct settings *s)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    struct problem p = {0};

    *s = (struct settings){.take_signals = true};
    memset(s->on_exit, VERDICT_UNMAPPED, sizeof s->on_exit);
    for (size_t i = 0; i < settings_table.count; i++)
        if (rows[i].preset && !rows[i].optional &&
            strcmp(rows[i].name, "mode") != 0 &&
            strcmp(rows[i].name, "max-concurrency") != 0 &&
            option_read(&rows[i], rows[i].preset, s, &p) < 0)
            panic("settings: a default is none: %s", p.text);
    s->concurrency = processors > 0 ? (uint64_t)processors : 1;
}

void settings_backoff(const struct settings *s, struct backoff *out)
{
    pthread_mutex_lock(&backoff_mtx);
    *out = s->backoff;
    pthread_mutex_unlock(&backoff_mtx);
}

void settings_set_backoff(struct settings *s, const struct backoff *b)
{
    pthread_mutex_lock(&backoff_mtx);
    s->backoff = *b;
    pthread_mutex_unlock(&backoff_mtx);
}

int settings_queue_flags(const struct settings *s)
{
    return QUEUE_RECEIVE | (s->no_create ? 0 : QUEUE_CREATE);
}

void settings_attr(const struct settings *s, struct queue_attr *out)
{
    *out = (struct queue_attr){.depth = s->queue_depth,
                               .message_size = s->message_size,
                               .mode = (mode_t)s->mode};
}

uint64_t settings_margin(const struct settings *s, uint64_t mean_ns)
{
    uint64_t wide;

    if (__builtin_mul_overflow(mean_ns, s->tolerance_factor, &wide) ||
        wide > UINT64_MAX / 2)
        return UINT64_MAX / 2;
    return wide;
}

/* ---- the time that a message may stay in hand ---- */

/* Failures after which the wait no longer grows: a list of waits repeats its
 * last entry, and even an exponential backoff from 1 ns is at its maximum. */
#define SETTLED_AFTER 64
_Static_assert(BACKOFF_STEPS <= SETTLED_AFTER, "the last one repeats");

/* Return the wait after that many failures, with all of the jitter. */
static uint64_t wait_ns(const struct settings *s, const struct backoff *b,
                        uint32_t failures)
{
    uint64_t wait = backoff_delay(b, failures, 0);

    return ns_add(wait, wait / 100 * s->jitter_percent);
}

/* Return how long all attempts of a message may take, with the waits between
 * them. Only the first SETTLED_AFTER waits are added one by one; after that all
 * are equal, so the rest is one multiplication. */
static uint64_t sum_ns(const struct settings *s, const struct backoff *b)
{
    uint64_t limit = s->timeout_ns == UINT64_MAX ? 0 : s->timeout_ns;
    uint64_t asked = s->max_timeout_ns == UINT64_MAX ? 0 : s->max_timeout_ns;
    /* Longest time of one attempt; 0 if it has no limit, as it is unknown. */
    uint64_t run = limit > asked ? limit : asked;
    uint64_t sum = run, attempts = s->max_attempts, each;
    uint32_t n = 1;

    for (; n < attempts && n < SETTLED_AFTER; n++)
        sum = ns_add(ns_add(sum, wait_ns(s, b, n)), run);
    if (n >= attempts)
        return sum;
    each = ns_add(wait_ns(s, b, n), run);
    attempts -= n;
    return each > UINT64_MAX / attempts ? UINT64_MAX
                                        : ns_add(sum, attempts * each);
}

uint64_t in_hand_limit_wait(const struct settings *s, const struct backoff *b,
                            uint32_t failures)
{
    uint64_t attempts = s->max_attempts, sum = sum_ns(s, b), spare = 0;

    if (sum < IN_HAND_LIMIT_NS)
        spare = (IN_HAND_LIMIT_NS - sum) / (attempts ? attempts : 1);
    return ns_add(wait_ns(s, b, failures), spare);
}

int in_hand_limit_check(const struct settings *s, const struct backoff *b,
                        struct problem *p)
{
    char text[DURATION_TEXT];

    if (sum_ns(s, b) < IN_HAND_LIMIT_NS)
        return 0;
    return problem_set(p, EX_USAGE, EINVAL,
                       "--partitions: --max-attempts %" PRIu64 ", each up to "
                       "--timeout or --max-timeout, with the waits of "
                       "--backoff and --jitter between them, take %s or more "
                       "in total; a broker gives a message that is not "
                       "acknowledged within 30m to another worker: make the "
                       "total less than 20m",
                       (uint64_t)s->max_attempts,
                       duration_print(IN_HAND_LIMIT_NS, text));
}

/* ---- operands, and the flags that go with them ---- */

/* The value of --lookahead with partitions: the most messages that a source on
 * a broker can lend, so the lookahead never keeps a message from being taken.
 * They are the messages in hand of all partitions (partition_in_hand), and
 * those that wait for their turn although a lost connection ended their claim.
 */
#define IN_HAND        8192
#define FORWARD_WINDOW 64 /* most messages published and not confirmed yet */
#define FLAG_TEXT      64 /* "--max-requests 9223372036854775807" */

/* Print the first given flag that applies only to children of --stream. Returns
 * false if none was given. */
static bool stream_flag_print(const struct settings *s, char flag[FLAG_TEXT])
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

static bool exits_mapped(const struct settings *s)
{
    char text[FLAG_TEXT];

    return print_on_exit(s->on_exit, text, sizeof text);
}

/* Refuse flags and operands that make no sense with --plugin. */
static int plugin_option_check(const struct settings *s, char *const *command,
                               struct problem *p)
{
    char flag[FLAG_TEXT];
    /* With a plugin, our systemd unit gives a "--" without a command. */
    const char *other = s->stream                    ? "--stream"
                        : command && command[0]      ? "a command"
                        : stream_flag_print(s, flag) ? flag
                        : exits_mapped(s)            ? "--on-exit"
                                                     : NULL;

    return other ? problem_set(p, EX_USAGE, EINVAL,
                               "--plugin %s and %s: a plugin is called instead "
                               "of a command, and returns the verdict; give "
                               "one of them",
                               s->plugin, other)
                 : 0;
}

int settings_forward_check(const struct settings *s, char *const *command,
                           struct problem *p)
{
    char flag[FLAG_TEXT];
    const char *other = command && command[0]        ? "a command"
                        : s->plugin                  ? "--plugin"
                        : s->plugin_arg              ? "--plugin-arg"
                        : s->timeout_abort           ? "--timeout-abort"
                        : s->stream                  ? "--stream"
                        : stream_flag_print(s, flag) ? flag
                        : exits_mapped(s)            ? "--on-exit"
                        : atomic_load(&s->timeout_ns) != UINT64_MAX
                            ? "--timeout"
                        : s->max_crashes_given ? "--max-crashes"
                        : s->max_delay_given   ? "--max-delay"
                                               : NULL;

    return other
               ? problem_set(
                     p, EX_USAGE, EINVAL,
                     "--forward %s and %s: forwarded messages are sent on and "
                     "not run here; give only one of the two",
                     s->forward, other)
               : 0;
}

/* Read the destination of --forward, and set what forwarding needs. By default
 * one thread sends, which keeps the order, and a full destination is tried
 * again after a second. A crash of the worker never counts against a message.
 * No message is delayed here, because its not-before is forwarded with it. */
static int forward_take(struct settings *s, struct problem *p)
{
    int err;

    if (broker_operand_is(s->forward)) {
        err = broker_operand_parse(&s->forward_to, s->forward, p);
        s->window = FORWARD_WINDOW;
        snprintf(s->forward_queue, sizeof s->forward_queue, "%s",
                 s->forward_to.shown);
    } else {
        err = queue_name(s->forward, s->forward_queue, p);
    }
    s->max_crashes = CRASHES_MOST;
    s->max_delay_ns = 0;
    if (!s->concurrency_given)
        s->concurrency = 1;
    if (!s->breaker_pause_given)
        s->breaker_pause_ns = NS_PER_S;
    return err;
}

/* Refuse to forward a queue to itself. Call this after the queue was read. Two
 * queues on brokers are the same if they have the same name and virtual host
 * and share a host. */
static int forward_other_check(const struct settings *s, struct problem *p)
{
    const struct broker_operand *a = &s->broker, *b = &s->forward_to;
    bool same =
        !settings_on_broker(s) && strcmp(s->queue, s->forward_queue) == 0;

    for (unsigned i = 0; i < a->host_count; i++)
        for (unsigned k = 0; k < b->host_count; k++)
            same |= strcmp(a->vhost, b->vhost) == 0 &&
                    strcmp(a->queue, b->queue) == 0 &&
                    strcmp(a->hosts[i].name, b->hosts[k].name) == 0 &&
                    a->hosts[i].port == b->hosts[k].port;
    return same ? problem_set(p, EX_USAGE, EINVAL,
                              "--forward %s: a queue cannot be forwarded to "
                              "itself; give another queue",
                              s->forward)
                : 0;
}

/* Check that there is a command, and that no flag is given that is only for a
 * plugin or for the other kind of command (--stream or one per message). */
static int command_check(const struct settings *s, char *const *command,
                         const char *queue, struct problem *p)
{
    const char *file = getenv("MQW_CONFIG"); /* set by our systemd unit */
    char flag[FLAG_TEXT];

    if (s->plugin_arg || s->timeout_abort)
        return problem_set(p, EX_USAGE, EINVAL,
                           "%s is for a plugin: give "
                           "--plugin FILE.so, too",
                           s->plugin_arg ? "--plugin-arg" : "--timeout-abort");
    if (!command || !command[0] || command[0][0] == '\0')
        return file
                   ? problem_set(p, EX_USAGE, EINVAL,
                                 "no command: put "
                                 "COMMAND=/path/of/your-handler into %s, which "
                                 "the unit reads; by hand: mqworker %s -- "
                                 "COMMAND",
                                 file, SHELL_QUEUE(queue))
                   : problem_set(p, EX_USAGE, EINVAL,
                                 "no command: mqworker %s -- COMMAND, like "
                                 "mqworker %s -- ./handle-order",
                                 SHELL_QUEUE(queue), SHELL_QUEUE(queue));
    if (!s->stream && stream_flag_print(s, flag))
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

bool settings_changed(const struct settings *s, const struct settings *preset,
                      const struct option_row *row, char text[SETTING_TEXT])
{
    char other[SETTING_TEXT];
    bool has = option_print(row, s, text, SETTING_TEXT);

    return row->seen ? *((const bool *)s + row->seen - 1)
                     : has != option_print(row, preset, other, sizeof other) ||
                           strcmp(text, other) != 0;
}

/* Take an operand that names a queue on a broker. */
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
    if (!s->access.partitions)
        return 0;
    if (s->lookahead_given)
        return problem_set(p, EX_USAGE, EINVAL,
                           "--lookahead %" PRIu64 " and --partitions %" PRIu64
                           ": what a worker has in hand is the same for all "
                           "workers of such a queue; leave out --lookahead",
                           s->lookahead, s->access.partitions);
    /* A failed head stays in hand until its retry, and so do all messages of
     * its group behind it, as many as the broker delivers. */
    s->lookahead = IN_HAND;
    return 0;
}

/* ---- all settings together ---- */

int settings_check(const struct settings *s, struct problem *p)
{
    uint64_t margin = settings_margin(s, s->estimated_duration_ns);
    char run[DURATION_TEXT], one[DURATION_TEXT], all[DURATION_TEXT];

    if (strcmp(s->dead_letter_queue, s->queue) == 0)
        return problem_set(p, EX_USAGE, EINVAL,
                           "--dead-letter-queue: \"%s\" is the queue that is "
                           "consumed; give another name",
                           s->dead_letter_queue);
    if (s->access.partitions && in_hand_limit_check(s, &s->backoff, p) < 0)
        return -EINVAL;
    /* Refuse a run that would end before its first message: run_limits_take
     * takes none within the margin before the end. */
    if (s->run_for_ns == 0 || s->run_for_ns > margin)
        return 0;
    return problem_set(p, EX_USAGE, EINVAL,
                       "--run-for %s is %s than %" PRIu64
                       " x --estimated-duration %s = %s: nothing would be "
                       "taken; give a longer --run-for, or "
                       "--estimated-duration",
                       duration_print(s->run_for_ns, run),
                       s->run_for_ns < margin ? "shorter" : "no longer",
                       s->tolerance_factor,
                       duration_print(s->estimated_duration_ns, one),
                       duration_print(margin, all));
}

int settings_parse(struct settings *s, int argc, char **argv, struct problem *p)
{
    char **command;
    int count, rest;
    int err = options_parse(&settings_table, argc, argv, s, &count, &rest, p);

    if (err || s->help || s->version)
        return err;
    /* The first `count` arguments have to be one queue; the command begins at
     * argv[rest], or there is no "--". */
    if (count == 0)
        return problem_set(p, EX_USAGE, EINVAL,
                           "no queue: mqworker QUEUE -- COMMAND, like mqworker "
                           "/orders -- ./handle-order; see mqworker --help");
    if (count == 1 && rest < 0 && strcmp(argv[0], "help") == 0 && !s->plugin &&
        !s->forward) {
        s->help = true;
        return 0;
    }
    if (count > 1 && rest >= 0)
        return problem_set(p, EX_USAGE, EINVAL,
                           "\"%s\" and \"%s\" before --: give one queue",
                           argv[0], argv[1]);
    if (count > 1)
        return problem_set(p, EX_USAGE, EINVAL,
                           "\"%s\" after the queue %s: the command comes after "
                           "--, like mqworker %s -- %s",
                           argv[1], argv[0], SHELL_QUEUE(argv[0]),
                           SHELL_QUEUE(argv[1]));
    command = rest < 0 ? NULL : argv + rest;
    err = s->forward  ? settings_forward_check(s, command, p)
          : s->plugin ? plugin_option_check(s, command, p)
                      : command_check(s, command, argv[0], p);
    if (!err && s->forward)
        err = forward_take(s, p);
    if (err)
        return err;
    s->command = s->plugin || s->forward ? NULL : command;
    if (broker_operand_is(argv[0])) {
        err = broker_take(s, argv[0], p);
    } else if (!s->forward_to.host_count && s->allow_unreplicated) {
        err = broker_only("--allow-unreplicated", argv[0], p);
    } else {
        err = broker_access_check(
            &s->access, s->forward_to.host_count ? s->forward : argv[0], p);
        /* If only the destination is on a broker, --partitions is about the
         * destination. */
        if (s->forward_to.host_count) {
            s->forward_partitions = (unsigned)s->access.partitions;
            s->access.partitions = 0;
        }
        if (!err)
            err = queue_name(argv[0], s->queue, p);
    }
    if (!err && s->forward)
        err = forward_other_check(s, p);
    return err ? err : settings_check(s, p);
}

/* mqsend.c - the program mqsend: send messages to a queue (docs/mqsend.1)
 *
 * Has main, the flags, and opens the queue; post.c and amqp/post_broker.c send.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/base/safe_text.h"
#include "common/broker/broker_engine.h"
#include "common/broker/broker_operand.h"
#include "common/cli/complain.h"
#include "common/cli/options.h"
#include "common/cli/term.h"
#include "common/mq/queue.h"
#include "common/state/statedir.h"
#include "scripts/mqsend/envelope.h"
#include "scripts/mqsend/input.h"
#include "scripts/mqsend/post.h"

#define BROKER_BODY (128u << 20) /* a broker's default limit */

#define DURATION_MAX ((uint64_t)INT64_MAX)
#define COUNT_MAX    ((uint64_t)INT64_MAX)

struct options {
    struct envelope envelope;
    struct queue_attr attr;
    const char *file;
    struct broker_access access;
    uint64_t priority, timeout_ns, wait_ns, repeat, rate, mode;
    bool lines, null, raw, create, no_wait, print_id, json, quiet, help,
        version;
    bool has_delay, has_depth, has_size, has_mode, has_wait;
    bool has_group, has_backoff, has_unique;
};

#define AT(member)   .offset = offsetof(struct options, member)
#define SEEN(member) .seen = offsetof(struct options, member) + 1

static const struct option_row rows[] = {
    {"priority", 'p', OPT_NUMBER, .value = "N", .max = QUEUE_PRIORITY_MAX,
     .preset = "0", AT(priority), .under = "The message",
     .help = "priority of the message; higher ones are received first"},
    {"group", 0, OPT_CALL, .value = "KEY", AT(envelope), .call = flag_group,
     SEEN(has_group), .help = "ordered group the message belongs to"},
    {"id", 0, OPT_CALL, .value = "ID", AT(envelope), .call = flag_id,
     .help = "id of the message, a ULID; only for one message"},
    {"delay", 0, OPT_DURATION, .value = "DUR", .max = DURATION_MAX,
     AT(envelope.delay_ns), SEEN(has_delay),
     .help = "the worker holds the message for DUR after it was sent"},
    {"at", 0, OPT_CALL, .value = "TIME", AT(envelope), .call = flag_at,
     .help = "the worker holds the message until then: 14:30, \"tomorrow "
             "08:00\", 2026-11-23T14:30 in local time, or with a zone"},
    {"ttl", 0, OPT_DURATION, .value = "DUR", .min = 1, .max = DURATION_MAX,
     AT(envelope.ttl_ns),
     .help = "the message is neither started nor retried after DUR"},
    {"timeout", 't', OPT_DURATION, .value = "DUR", .min = 1,
     .max = DURATION_MAX, AT(timeout_ns),
     .help = "time limit of its handler, in whole ms"},
    {"max-attempts", 0, OPT_NUMBER, .value = "N", .min = 1,
     .max = HEADER_ATTEMPTS, AT(envelope.max_attempts),
     .elsewhere = "retries|max-retries|retry|tries",
     .help = "failed deliveries before it is dead, instead of the worker's "
             "--max-attempts"},
    {"backoff", 0, OPT_CALL, .value = "SPEC", AT(envelope), SEEN(has_backoff),
     .call = flag_backoff,
     .help = "how long the message waits before each retry, like exp:1s,5m "
             "or 1s,5s,30s, instead of the worker's --backoff"},
    {"unique", 0, OPT_CALL, .value = "KEY[,DUR]", AT(envelope),
     SEEN(has_unique), .call = flag_unique,
     .help = "the worker discards the message if it has received another one "
             "with that key within DUR (1h)"},
    {"header", 0, OPT_CALL, .value = "x-NAME=VALUE", AT(envelope),
     .call = flag_header,
     .help = "a line of your own in the header; may be repeated"},
    {"raw", 0, OPT_FLAG, AT(raw),
     .help = "send the body alone, without a header"},
    {"file", 0, OPT_STRING, .value = "FILE", AT(file),
     .under = "What is sent, and how often", .help = "take the body from FILE"},
    {"lines", 0, OPT_FLAG, AT(lines),
     .help = "one message for each line of the input"},
    {"null", '0', OPT_FLAG, AT(null),
     .help = "one message for each NUL-terminated record"},
    {"repeat", 0, OPT_NUMBER, .value = "N", .min = 1, .max = COUNT_MAX,
     .preset = "1", AT(repeat), .help = "send each message N times"},
    {"rate", 0, OPT_NUMBER, .value = "N[/s]", .min = 1, .max = 1000000000,
     .unit = "/s", AT(rate), .help = "send N messages a second"},
    {"wait", 0, OPT_DURATION, .value = "DUR", .max = DURATION_MAX, AT(wait_ns),
     SEEN(has_wait), .under = "If the queue is full",
     .help = "for each message, wait at most DUR for room in a full queue; "
             "without this, wait until there is room"},
    {"no-wait", 0, OPT_FLAG, AT(no_wait),
     .help = "do not wait for room in a full queue"},
    {"create", 0, OPT_FLAG, AT(create), .under = "If the queue does not exist",
     .help = "create the queue if it is missing"},
    {"queue-depth", 0, OPT_NUMBER, .value = "N", .min = 1, .max = 65536,
     AT(attr.depth), SEEN(has_depth),
     .help = "messages that a created queue holds"},
    {"message-size", 0, OPT_SIZE, .value = "SIZE", .min = 1, .max = 16 << 20,
     AT(attr.message_size), SEEN(has_size),
     .help = "largest message of a created queue"},
    {"mode", 0, OPT_OCTAL, .value = "OCTAL", .max = 0777, .preset = "0600",
     AT(mode), SEEN(has_mode), .help = "access mode of a created queue"},
    BROKER_PASSWORD_FILE(AT(access.password_file),
                         .under = "A queue on a broker"),
    BROKER_TLS_CA(AT(access.tls.ca)),
    BROKER_TLS_CERT(AT(access.tls.cert)),
    BROKER_TLS_KEY(AT(access.tls.key)),
    BROKER_PARTITIONS_ROW(AT(access.partitions)),
    {"print-id", 0, OPT_FLAG, AT(print_id), .under = "Output",
     .help = "print the id of each message that was sent, one on each line"},
    {"json", 'j', OPT_FLAG, AT(json),
     .help = "print queue and id of each message that was sent as JSON, one "
             "object on each line"},
    {"quiet", 'q', OPT_FLAG, AT(quiet),
     .help = "print only errors: no progress bar, no notes"},
    {"help", 'h', OPT_FLAG, AT(help), .under = "Help",
     .help = "print this and exit"},
    {"version", 0, OPT_FLAG, AT(version), .help = "print the version and exit"},
};

static const struct option_table table = {
    .program = "mqsend",
    .usage = "[options] QUEUE [BODY]",
    .about = "Send messages to a POSIX message queue, or to a RabbitMQ quorum "
             "queue (amqp://USER@HOST/VHOST/QUEUE).",
    .notes = "The body is BODY, else the contents of FILE, else all of stdin.\n"
             "Exit status: 0; 64 the command line is wrong; 65 the message is\n"
             "too large; 66 the queue does not exist; 69 no broker answers; 71 "
             "a\nsystem limit was reached; 74 input or output failed; 75 the "
             "queue\nstayed full, or the broker does not confirm; 77 "
             "permission was\ndenied; 78 the queue on the broker is of another "
             "kind, or the\npassword or TLS file cannot be used.\n"
             "See mqsend(1).",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
};

/* Check the operands QUEUE and BODY, which may be NULL, and flags that exclude
 * or need each other. */
static int usage_check(const struct options *o, int operands,
                       const char *operand, const char *body, struct problem *p)
{
    const struct envelope *e = &o->envelope;
    const char *raw = e->has_id         ? "--id"
                      : e->group        ? "--group"
                      : o->has_delay    ? "--delay"
                      : e->at_ns        ? "--at"
                      : e->ttl_ns       ? "--ttl"
                      : o->timeout_ns   ? "--timeout"
                      : e->max_attempts ? "--max-attempts"
                      : e->backoff      ? "--backoff"
                      : e->unique.at    ? "--unique"
                      : e->x_count      ? "--header"
                      : o->print_id     ? "--print-id"
                                        : NULL;
    char start[TIME_TEXT], life[DURATION_TEXT];
    const char *text = NULL;

    if (operands < 1)
        text = "no queue given; usage: mqsend [options] QUEUE [BODY]";
    else if (operands > 2)
        text = "more than QUEUE and BODY given; quote a body with blanks in it";
    else if (body && o->file)
        text = "BODY and --file are both given; give one";
    else if (o->lines && o->null)
        text = "--lines and --null are both given; give one";
    else if (o->has_wait && o->no_wait)
        text = "--wait and --no-wait are both given; give one";
    else if (e->has_id && (o->lines || o->null || o->repeat > 1))
        text = "--id is for one message; without it each message gets an id of "
               "its own";
    else if (!o->create && (o->has_depth || o->has_size || o->has_mode))
        text = "--queue-depth, --message-size and --mode are for a queue that "
               "mqsend creates; add --create";
    else if (e->at_ns && o->has_delay)
        text = "--at and --delay are both given; give one";
    if (text)
        return problem_set(p, EX_USAGE, EINVAL, "%s", text);
    if (e->ttl_ns && (e->delay_ns >= e->ttl_ns ||
                      e->at_ns >= ns_add(clock_wall_ns(), e->ttl_ns)))
        return problem_set(p, EX_USAGE, EINVAL,
                           "%s %s is not before the end of --ttl %s: the "
                           "message would expire before it may run; give a "
                           "longer --ttl",
                           e->at_ns ? "--at" : "--delay",
                           e->at_ns ? time_print(e->at_ns, start)
                                    : duration_print(e->delay_ns, start),
                           duration_print(e->ttl_ns, life));
    if (o->raw && raw)
        return problem_set(p, EX_USAGE, EINVAL,
                           "%s needs a header, and --raw sends none; leave one "
                           "of them out",
                           raw);
    for (size_t i = 0; broker_operand_is(operand) && i < table.count; i++)
        if (broker_option_check("mqsend", &rows[i], o, operand,
                                o->access.partitions, p) < 0)
            return -EINVAL;
    return broker_access_check(&o->access, operand, p);
}

/* Open the POSIX queue to send to, and warn if an existing queue differs from
 * the flags. On an error complain; if the queue does not exist, also name the
 * nearest existing one. Returns the exit status. */
static int queue_get(const struct options *o, const char *operand,
                     const char *body, struct queue **queue)
{
    char name[QUEUE_NAME_MAX], differs[256], near[NAME_MAX + 2];
    struct queue_attr attr = o->attr;
    int how = QUEUE_SEND | (o->create ? QUEUE_CREATE : 0);
    struct problem p = {0};
    bool created = false;
    int err = queue_name(operand, name, &p);

    if (err)
        return complain_of(&p);
    attr.mode = o->has_mode ? (mode_t)o->mode : 0600;
    err = queue_open(queue, name, how, &attr, &created, &p);
    if (err && p.status == EX_NOINPUT && *operand != '/' && body &&
        *body == '/')
        return complain(EX_NOINPUT,
                        "%s; if %s is the queue, it comes first: mqsend QUEUE "
                        "BODY",
                        p.text, body);
    if (err && p.status == EX_NOINPUT && strcmp(operand, "help") == 0)
        return complain(EX_NOINPUT, "%s; for help: mqsend --help", p.text);
    if (err && p.status == EX_NOINPUT && queue_guess(NULL, name, near))
        return complain(EX_NOINPUT, "%s; or did you mean %s?", p.text, near);
    if (err)
        return complain_of(&p);
    if (!o->has_mode)
        attr.mode = 0;
    if (o->create && !created &&
        queue_differs(*queue, &attr, differs, sizeof differs))
        complain(0, "warning: %s exists: %s", name, differs);
    return 0;
}

/* Send all messages to a queue or a broker. Returns the exit status. */
static int messages_send(struct options *o, const char *name, const char *body)
{
    const struct broker_engine *engine = NULL;
    struct broker_operand operand;
    struct queue *queue = NULL;
    struct input *input = NULL;
    struct problem p = {0};
    struct input_spec spec = {
        .text = body,
        .file = o->file,
        .delimiter = o->lines  ? '\n'
                     : o->null ? '\0'
                               : INPUT_WHOLE,
    };
    struct post post = {
        .operand = &operand,
        .access = &o->access,
        .create = o->create,
        .most = BROKER_BODY,
        .envelope = &o->envelope,
        .priority = (uint32_t)o->priority,
        .wait_ns = o->no_wait    ? 0
                   : o->has_wait ? o->wait_ns
                                 : UINT64_MAX,
        .repeat = o->repeat,
        .rate = o->rate,
        .many = o->lines || o->null,
        .tell = o->json       ? ENVELOPE_JSON
                : o->print_id ? ENVELOPE_ID
                              : ENVELOPE_NOTHING,
        .quiet = o->quiet,
    };
    int status;

    o->envelope.raw = o->raw;
    o->envelope.timeout_ms = (o->timeout_ns + NS_PER_MS - 1) / NS_PER_MS;
    if (envelope_check(&o->envelope, o->quiet, &p) < 0)
        return complain_of(&p);
    if (broker_operand_is(name)) {
        if (broker_operand_parse(&operand, name, &p) < 0 ||
            (engine = broker_engine_of(operand.shown, &p)) == NULL)
            return complain_of(&p);
    } else {
        status = queue_get(o, name, body, &queue);
        if (status)
            return status;
    }
    spec.keep = queue ? queue_message_size(queue) : BROKER_BODY;
    if (input_open(&input, &spec, &p) < 0) {
        status = complain_of(&p);
    } else {
        if (!body && !o->file && !o->quiet)
            complain_reads(o->lines  ? "messages, one a line,"
                           : o->null ? "messages, each up to a NUL,"
                                     : "the body");
        post.queue = queue;
        post.input = input;
        status = engine ? engine->send(&post) : post_run(&post);
    }
    input_close(&input);
    queue_close(&queue);
    return status;
}

int main(int argc, char **argv)
{
    static struct options o = {.repeat = 1};
    struct problem p = {0};
    const char *body = NULL;
    int operands = 0, rest = -1, asked = options_dump(&table, argc, argv);
    int err;

    complain_as("mqsend");
    if (asked >= 0)
        return asked;
    err = options_parse(&table, argc, argv, &o, &operands, &rest, &p);
    if (!err && o.help) {
        options_help(&table, stdout, term_width(stdout));
        return complain_output(0);
    }
    if (!err && o.version) {
        puts("mqsend " MQW_VERSION);
        return complain_output(0);
    }
    while (!err && rest >= 0 && rest < argc)
        argv[operands++] = argv[rest++]; /* operands after "--" */
    body = operands == 2 ? argv[1] : NULL;
    if (err || usage_check(&o, operands, argv[0], body, &p) < 0)
        return complain_of(&p);
    cli_interrupt_catch();
    return messages_send(&o, argv[0], body);
}

/* mqdlq.c - the program mqdlq: inspect, replay and discard dead letters
 * (docs/mqdlq.1)
 *
 * Has main, the table of flags and verbs, and opens the store or the broker.
 */
#include "scripts/mqdlq/mqdlq.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/base/problem.h"
#include "common/broker/broker_engine.h"
#include "common/cli/complain.h"
#include "common/cli/filter_rows.h"
#include "common/cli/json_line.h"
#include "common/cli/term.h"
#include "common/message/header.h"
#include "common/mq/queue.h"
#include "common/state/counters.h"
#include "common/state/runtimedir.h"
#include "common/state/statedir.h"
#include "common/state/worker_lock.h"
#include "scripts/mqdlq/broker.h"

/* ---- the command line ---- */

#define DURATION_MAX ((uint64_t)INT64_MAX)

static const struct subcommand_row verbs[] = {
    [VERB_LIST] = {"list", "[options] [QUEUE]",
                   "List dead letters; without QUEUE, count them per queue.",
                   .most = SUBCOMMAND_ANY, .also = "ls"},
    [VERB_SHOW] = {"show", "[options] QUEUE ID...",
                   "Show letters with the history of their attempts.",
                   .least = 1, .most = SUBCOMMAND_ANY},
    [VERB_REPLAY] = {"replay", "[options] QUEUE ID...|-|--all|filter",
                     "Send letters to the queue again, oldest first.",
                     .least = 1, .most = SUBCOMMAND_ANY,
                     .elsewhere = "retry|requeue|resend|redrive"},
    [VERB_EDIT] = {"edit", "[options] QUEUE ID",
                   "Edit the body of a letter and send it again.", .least = 2,
                   .most = 2},
    [VERB_DISCARD] = {"discard", "[options] QUEUE ID...|-|--all|filter",
                      "Permanently remove letters.", .least = 1,
                      .most = SUBCOMMAND_ANY,
                      .elsewhere = "delete|remove|rm|drop"},
    [VERB_PURGE] = {"purge", "[options] QUEUE --older-than DUR|--all|filter",
                    "Permanently remove old letters.", .least = 1,
                    .most = SUBCOMMAND_ANY},
    [VERB_EXPORT] = {"export", "[options] QUEUE [ID...|-]",
                     "Print letters as JSON, one on each line, oldest first.",
                     .least = 1, .most = SUBCOMMAND_ANY},
    [VERB_IMPORT] = {"import", "[options] QUEUE [FILE]",
                     "Add letters that export printed, from FILE or stdin.",
                     .least = 1, .most = 2},
};

/* Read --reason. */
static int flag_reason(const char *text, void *into, struct problem *p)
{
    struct options *o = into;

    o->filter.reason = dead_reason_parse(text);
    if (o->filter.reason != REASON_NONE && o->filter.reason != REASON_COUNT)
        return 0;
    return problem_set(p, EX_USAGE, EINVAL,
                       "--reason: \"%s\" is not a reason; give exhausted, "
                       "rejected, expired, crashed, bad-header or group-closed",
                       text);
}

#define AT(member)   .offset = offsetof(struct options, member)
#define SEEN(member) .seen = offsetof(struct options, member) + 1
#define V(verb)      (1u << VERB_##verb)
#define REMOVE       (V(REPLAY) | V(DISCARD) | V(PURGE))
#define FILTER       (V(LIST) | V(SHOW) | REMOVE | V(EXPORT))
#define EVERY        ((1u << VERB_COUNT) - 1)

/* Each flag and the verbs that take it. */
static const struct option_row flags[] = {
    {"reason", 0, OPT_CALL, .verbs = FILTER, .value = "REASON",
     .call = flag_reason,
     .words = "exhausted|rejected|expired|crashed|bad-header|group-closed",
     .help = "only letters with this reason: exhausted, rejected, expired, "
             "crashed, bad-header or group-closed"},
    FILTER_ERROR("letters whose", .verbs = FILTER, AT(filter.error_like)),
    FILTER_GROUP("letters", .verbs = FILTER, AT(filter.group)),
    FILTER_MATCH("letters", .verbs = FILTER, AT(filter.match)),
    FILTER_SINCE("letters that died", .verbs = FILTER, AT(filter.since_ns)),
    FILTER_UNTIL("letters that died", .verbs = FILTER, AT(filter.until_ns)),
    {"limit", 0, OPT_NUMBER, .verbs = FILTER, .value = "N", .min = 1,
     .max = INT64_MAX, AT(filter.limit),
     .help = "only the N newest matching letters"},
    {"replayed", 0, OPT_FLAG, .verbs = FILTER, AT(filter.replayed),
     .help = "choose letters on their way through the queue instead of dead "
             "ones"},
    {"all", 'a', OPT_FLAG, .verbs = REMOVE, AT(all), .help = "all letters"},
    {"older-than", 0, OPT_DURATION, .verbs = V(PURGE), .value = "DUR",
     .max = DURATION_MAX, AT(older_than_ns), SEEN(has_older_than),
     .help = "only letters that died longer ago than DUR"},
    {"json", 'j', OPT_FLAG, .verbs = EVERY & ~V(EXPORT), AT(json),
     .help = "print JSON, one object on each line: letters with their "
             "history, or counts"},
    {"quiet", 'q', OPT_FLAG, .verbs = REMOVE | V(EDIT) | V(IMPORT), AT(quiet),
     .help = "print only errors"},
    {"count", 0, OPT_FLAG, .verbs = V(LIST), AT(count),
     .help = "print only how many there are"},
    {"by", 0, OPT_CHOICE, .verbs = V(LIST), .value = "reason|error|group",
     .words = "reason|error|group", AT(by), SEEN(has_by),
     .help = "count them by reason, error or group"},
    {"body", 0, OPT_FLAG, .verbs = V(SHOW), AT(body),
     .help = "print the body alone, byte for byte"},
    {"body", 0, OPT_STRING, .verbs = V(EDIT), .value = "FILE", AT(new_body),
     .help = "read the new body from FILE (- for stdin) instead of running "
             "$VISUAL, $EDITOR or vi"},
    {"to", 0, OPT_STRING, .verbs = V(REPLAY), .value = "QUEUE", AT(to),
     .help = "send to another queue; the letter is then removed"},
    {"raw", 0, OPT_FLAG, .verbs = V(REPLAY), AT(raw),
     .help = "send the bytes as they were received; the letter is "
             "then removed"},
    {"reset-expiry", 0, OPT_FLAG, .verbs = V(REPLAY) | V(EDIT),
     AT(reset_expiry),
     .help = "drop the time at which a letter expires; without this, an "
             "expired letter is refused"},
    {"again", 0, OPT_FLAG, .verbs = V(REPLAY) | V(IMPORT), AT(again),
     .help = "replay: also send letters whose replay is under way, a second "
             "time (give their ids, or --replayed); import: also add letters "
             "that exist already"},
    {"canary", 0, OPT_FLAG, .verbs = V(REPLAY), AT(canary),
     .help = "send one first, and the others only if that one is done"},
    {"canary-time", 0, OPT_DURATION, .verbs = V(REPLAY), .value = "DUR",
     .min = NS_PER_MS, .max = DURATION_MAX, AT(canary_ns), SEEN(has_canary),
     .help = "with --canary on a broker: assume that the canary is done if it "
             "has not died DUR after a worker took it"},
    {"rate", 0, OPT_NUMBER, .verbs = V(REPLAY), .value = "N[/s]", .min = 1,
     .max = 1000000000, .unit = "/s", AT(rate), .help = "send N a second"},
    {"wait", 0, OPT_DURATION, .verbs = V(EDIT), .value = "DUR",
     .max = DURATION_MAX, AT(wait_ns), SEEN(has_wait),
     .help = "wait at most DUR for room in the queue; without this, as long "
             "as it takes"},
    {"wait", 0, OPT_DURATION, .verbs = V(REPLAY), .value = "DUR",
     .max = DURATION_MAX, AT(wait_ns), SEEN(has_wait),
     .help = "wait at most DUR for room in the queue, for each letter, and "
             "for the canary; without this, as long as it takes"},
    {"dry-run", 'n', OPT_FLAG, .verbs = REMOVE, AT(dry_run),
     .help = "print what would be done and do nothing"},
    {"utc", 0, OPT_FLAG, .verbs = EVERY & ~(V(EXPORT) | V(IMPORT)), AT(utc),
     .help = "print times in UTC (RFC 3339) on a terminal, too"},
    {"local", 0, OPT_FLAG, .verbs = EVERY & ~(V(EXPORT) | V(IMPORT)), AT(local),
     .help = "print times as on a terminal even if there is none"},
    BROKER_PASSWORD_FILE(.verbs = EVERY, AT(access.password_file)),
    BROKER_TLS_CA(.verbs = EVERY, AT(access.tls.ca)),
    BROKER_TLS_CERT(.verbs = EVERY, AT(access.tls.cert)),
    BROKER_TLS_KEY(.verbs = EVERY, AT(access.tls.key)),
    BROKER_PARTITIONS_ROW(.verbs = V(REPLAY), AT(access.partitions)),
    {"state-dir", 0, OPT_STRING, .verbs = EVERY, .value = "DIR", AT(state_dir),
     .help = "state directory of the worker; without this, found as by the "
             "worker"},
    {"help", 'h', OPT_FLAG, .verbs = EVERY, AT(line.help),
     .help = "print this and exit"},
};

/* Exit statuses of the verbs, except 0. */
static const struct subcommand_exit exits[] = {
    {EVERY, EX_USAGE, "the command line is wrong"},
    {V(REPLAY) | V(EDIT), EX_DATAERR,
     "a letter was refused: it is being replayed, has expired or is too "
     "large"},
    {V(EDIT), EX_DATAERR, "its body is unchanged or empty"},
    {V(IMPORT), EX_DATAERR, "a line is wrong"},
    {EVERY & ~V(IMPORT), EX_NOINPUT, "the letter or queue does not exist"},
    {V(IMPORT), EX_NOINPUT, "the file does not exist"},
    {EVERY & ~V(EDIT), EX_UNAVAILABLE, "no broker answers"},
    {V(EDIT), EX_UNAVAILABLE, "the editor failed"},
    {EVERY, EX_OSERR, "a system limit was reached"},
    {EVERY, EX_CANTCREAT, "the state directory cannot be used"},
    {EVERY, EX_IOERR, "input or output failed"},
    {EVERY, EX_TEMPFAIL, "the store is locked"},
    {V(REPLAY) | V(EDIT), EX_TEMPFAIL, "the queue stayed full"},
    {V(REPLAY), EX_TEMPFAIL, "the canary died"},
    {EVERY, EX_NOPERM, "permission was denied"},
    {EVERY, EX_CONFIG, "the store is of another version"},
};

bool filter_given(const struct options *o)
{
    const struct letter_filter *f = &o->filter;

    return f->reason != REASON_NONE || f->error_like || f->group || f->match ||
           f->since_ns || f->until_ns || f->limit || f->replayed;
}

/* Check that ids or a filter are given where the verb needs them, and not
 * both. */
static int choice_check(const struct options *o, struct problem *p)
{
    const char *verb = verbs[o->line.verb].name;
    bool ids = o->line.operand_count > 1;
    bool narrowed = filter_given(o);
    struct options other;
    bool must;

    if (ids && o->line.verb == VERB_PURGE)
        return problem_set(p, EX_USAGE, EINVAL,
                           "purge takes no ids; use discard for them");
    other = *o;
    other.filter.replayed = false;
    if (ids && (o->all || filter_given(&other)))
        return problem_set(p, EX_USAGE, EINVAL,
                           "%s: ids and %s are both given; give one", verb,
                           o->all ? "--all" : "a filter");
    must = o->line.verb == VERB_SHOW || o->line.verb == VERB_REPLAY ||
           o->line.verb == VERB_DISCARD || o->line.verb == VERB_PURGE;
    if (!must || ids || narrowed || o->all)
        return 0;
    return problem_set(p, EX_USAGE, EINVAL, "%s: nothing chosen; give %s", verb,
                       o->line.verb == VERB_SHOW ? "ids or a filter"
                       : o->line.verb == VERB_PURGE
                           ? "--older-than, another filter, or --all"
                           : "ids, - for ids on stdin, a filter, or --all");
}

/* Refuse flags that do not apply to letters on a broker, and flags of a broker
 * for other letters. */
static int broker_flags_check(const struct options *o, struct problem *p)
{
    const char *operand = o->line.operand_count ? o->line.operands[0] : "";
    const char *program =
        o->line.verb == VERB_REPLAY ? "mqdlq replay" : "mqdlq";
    const char *text = NULL;

    if (!broker_operand_is(operand))
        return o->has_canary
                   ? problem_set(p, EX_USAGE, EINVAL,
                                 "--canary-time is for a queue on a broker; "
                                 "here the worker tells how the canary ended, "
                                 "and --wait limits how long that may take")
                   : broker_access_check(&o->access, operand, p);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (broker_option_check("mqdlq", &flags[i], o, operand, 0, p) < 0 ||
            broker_option_check(program, &flags[i], o, operand, 0, p) < 0)
            return -EINVAL;
    if (o->line.verb == VERB_EDIT)
        text = "a letter on a broker cannot be edited there; change its body "
               "in the output of mqdlq export, and give that to mqdlq import "
               "--again; then discard the letter";
    else if (o->canary && !o->has_canary)
        text =
            "--canary needs --canary-time DUR here: a broker does not report "
            "done messages, so the canary counts as done if it has not "
            "died DUR after a worker took it; give more time than a "
            "handler takes";
    else if (o->to && o->access.partitions)
        text = "--to names one queue, and --partitions is for the partitions "
               "of another; leave out one of them";
    else if (o->to && (o->to[0] == '/' || broker_operand_is(o->to)))
        text = "--to takes the name of a queue in the same virtual host";
    return text ? problem_set(p, EX_USAGE, EINVAL, "%s", text)
                : broker_access_check(&o->access, operand, p);
}

/* Check flags that exclude or need each other; callback of mqdlq_table. */
static int flags_check(void *options, struct problem *p)
{
    struct options *o = options;
    const char *text = NULL;

    if (o->has_older_than) { /* another way to say --until */
        uint64_t now = clock_wall_ns();
        uint64_t until = o->older_than_ns < now ? now - o->older_than_ns : 1;

        if (o->filter.until_ns == 0 || until < o->filter.until_ns)
            o->filter.until_ns = until;
    }
    if (o->line.verb == VERB_LIST && o->has_by && o->line.operand_count == 0)
        text = "--by counts the letters of one queue; give QUEUE";
    else if (o->line.verb == VERB_LIST && o->line.operand_count > 1)
        text = "list takes no ids; use show for them";
    else if (o->count + o->has_by > 1 || (o->json && o->body))
        text = "give --count or --by, not both; and --json or --body, not both";
    else if (o->raw && o->reset_expiry)
        text = "--raw sends the old expiry with the old header; leave out "
               "--raw or --reset-expiry";
    else if (o->canary && (o->raw || o->to))
        text = "--canary must see how the letter ends, which it cannot with "
               "--raw or --to";
    else if (o->has_canary && !o->canary)
        text = "--canary-time needs --canary";
    else if (o->line.verb == VERB_EDIT && strcmp(o->line.operands[1], "-") == 0)
        text = "edit takes one id and does not read it from stdin";
    else if (o->again && (o->raw || o->to))
        text = "--again sends a copy that the worker must recognize, which it "
               "cannot with --raw or --to";
    else if (o->again && o->line.verb == VERB_REPLAY &&
             o->line.operand_count == 1 && !o->filter.replayed)
        text = "--again is about letters that are on their way; give their "
               "ids, or --replayed";
    if (text)
        return problem_set(p, EX_USAGE, EINVAL, "%s", text);
    return broker_flags_check(o, p) < 0 ? -EINVAL : choice_check(o, p);
}

const struct subcommand_table mqdlq_table = {
    .program = "mqdlq",
    .usage = "VERB [options] QUEUE ...",
    .about =
        "Inspect, replay and discard the dead letters of a queue (/NAME or\n"
        "amqp://USER@HOST/VHOST/QUEUE).",
    .exits = exits,
    .exit_count = sizeof exits / sizeof *exits,
    .notes = "See mqdlq(1).",
    .verbs = verbs,
    .verb_count = VERB_COUNT,
    .flags = flags,
    .flag_count = sizeof flags / sizeof *flags,
    .check = flags_check,
};

/* ---- the store or the broker ---- */

int store_failed(const char *what, int err)
{
    if (err == -EBUSY)
        return complain(EX_TEMPFAIL,
                        "cannot %s: another program has kept the store locked "
                        "for too long; try again",
                        what);
    return complain(err == -ENOMEM                         ? EX_OSERR
                    : disk_is_full(err) || err == -EUCLEAN ? EX_CANTCREAT
                                                           : EX_IOERR,
                    "cannot %s: %s; %s", what, errno_text(-err),
                    disk_advice(err));
}

bool summary_print(const struct context *ctx, json_t *object)
{
    if (!ctx->o->json)
        json_decref(object);
    else if (json_print_line(object, stdout) < 0)
        complain_memory();
    return ctx->o->json || ctx->o->quiet;
}

/* Open the store in the queue's folder. Returns -ENOENT if no store exists, and
 * the problem names the path that was tried; -EINVAL for other problems.
 * While a worker is running whose store was moved or removed, refuse to create
 * a new store in its place or to open another file. */
static int store_find(struct context *ctx, bool create, struct problem *p)
{
    static struct statedir dir;
    char path[PATH_MAX], file[PATH_MAX];
    struct counters *c = NULL;
    struct counters_header h = {0};
    enum worker_phase phase;
    struct worker_wait wait = {0};
    struct stat st;
    bool gone;
    int err = statedir_open(&dir, ctx->o->state_dir, ctx->queue, create, p);

    memcpy(ctx->root, dir.root, sizeof ctx->root);
    if (err)
        return dir.folder[0] ? err : -EINVAL;
    err = statedir_path(&dir, STATEDIR_STORE, path, p);
    if (err)
        return err == -ENOENT ? -EINVAL : err;
    do { /* A starting worker creates the store within seconds. */
        phase = worker_phase(&dir);
        gone = stat(path, &st) < 0 && errno == ENOENT;
    } while (phase != WORKER_PHASE_NONE && gone &&
             worker_phase_wait(&dir, &wait));
    if (phase == WORKER_PHASE_SERVING && gone) {
        problem_fill(p, EX_TEMPFAIL,
                     "%s was moved or removed under its running worker. If it "
                     "was moved, move it back; if it was removed, the worker "
                     "restores it within seconds; mqctl doctor %s shows which",
                     path, CONTEXT_OPERAND(ctx));
        return -EINVAL;
    }
    if (phase == WORKER_PHASE_SERVING &&
        runtimedir_file(&dir, RUNTIMEDIR_COUNTERS, file, NULL) == 0 &&
        counters_attach(&c, file, NULL) == 0)
        counters_header(c, &h);
    counters_close(&c);
    if (h.gauges[COUNTERS_HOLDS] & COUNTERS_STORE_GONE) {
        problem_fill(p, EX_TEMPFAIL,
                     "%s is not the file that worker %d has open: that file "
                     "was moved or removed. Run mqctl doctor %s, follow its "
                     "advice, then try again",
                     path, (int)h.pid, CONTEXT_OPERAND(ctx));
        return -EINVAL;
    }
    err = store_open(&ctx->store, path, create, p);
    if (err == -ENOENT)
        return problem_set(p, EX_CANTCREAT, ENOENT,
                           "%s does not exist: nothing has been kept for this "
                           "queue yet",
                           path);
    return err;
}

int context_open(struct context *ctx, const struct options *o, bool create)
{
    struct problem p = {0}, unknown = {0};
    struct statedir dir;
    struct queue *q = NULL;
    int err;

    *ctx = (struct context){.o = o};
    if (broker_operand_is(o->line.operands[0])) {
        const struct broker_engine *engine =
            broker_engine_of(o->line.operands[0], &p);

        if (!engine)
            return complain_of(&p);
        ctx->letters = engine->letters;
        return ctx->letters->open(ctx);
    }
    err = queue_name(o->line.operands[0], ctx->queue, &p);
    if (!err)
        err = store_find(ctx, create, &p);
    if (err != -ENOENT || create)
        return err ? complain(p.status, "%s", p.text) : 0;
    /* There is no store. Without one an existing queue has no dead letters. */
    if (statedir_open(&dir, o->state_dir, ctx->queue, false, NULL) == 0 ||
        queue_open(&q, ctx->queue, 0, NULL, NULL, &unknown) == 0 ||
        unknown.status != EX_NOINPUT) {
        queue_close(&q);
        return complain(0, "no dead letters of %s: %s", ctx->queue, p.text);
    }
    queue_absent(o->state_dir, ctx->queue, &unknown);
    return complain_of(&unknown);
}

int context_close(struct context *ctx)
{
    int status = ctx->letters ? ctx->letters->close(ctx) : 0;

    store_close(&ctx->store);
    return status;
}

int main(int argc, char **argv)
{
    static int (*const runs[VERB_COUNT])(struct context *) = {
        [VERB_LIST] = list_run,     [VERB_SHOW] = show_run,
        [VERB_REPLAY] = replay_run, [VERB_DISCARD] = remove_run,
        [VERB_EDIT] = replay_run,   [VERB_PURGE] = remove_run,
        [VERB_EXPORT] = list_run,   [VERB_IMPORT] = import_run,
    };
    static struct options o;
    static struct context ctx;
    int status;

    json_needs_memory();
    signal(SIGXFSZ, SIG_IGN); /* report a file size limit as a full disk */
    status = subcommand_begin(&mqdlq_table, argc, argv, &o.line);
    if (status >= 0)
        return status;
    term_time_local(!o.json && !o.utc && (o.local || term_is_terminal(stdout)));
    if (o.line.verb == VERB_LIST && o.line.operand_count == 0)
        return complain_output(queues_run(&o));
    status = context_open(&ctx, &o, o.line.verb == VERB_IMPORT);
    if (!status) {
        cli_interrupt_catch();
        status = complain_output(runs[o.line.verb](&ctx));
    }
    status = status_worse(status, context_close(&ctx));
    cli_interrupt_die();
    return status;
}

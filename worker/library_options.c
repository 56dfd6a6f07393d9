/* library_options.c - options of the library as settings (see library.h) */
#include "worker/library.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <bsd/string.h>

#include "common/base/log.h"
#include "common/base/safe_text.h"

#define FIELD_TEXT 64

/* Bytes of the first version: a program cannot have fewer. */
#define LEAST_BYTES                               \
    (offsetof(struct mqw_options, problem_size) + \
     sizeof(((struct mqw_options *)0)->problem_size))

/* Options that are numbers, by the flag that checks them. */
static const struct {
    const char *flag;
    size_t at; /* uint64_t in struct mqw_options */
} numbers[] = {
#define NUMBER(flag, member)                       \
    {                                              \
        flag, offsetof(struct mqw_options, member) \
    }
    NUMBER("max-concurrency", max_concurrency),
    NUMBER("batch-time-limit", batch_time_limit),
    NUMBER("max-attempts", max_attempts),
    NUMBER("jitter", jitter),
    NUMBER("retry-for", retry_for),
    NUMBER("max-crashes", max_crashes),
    NUMBER("max-delay", max_delay),
    NUMBER("timeout", timeout),
    NUMBER("max-timeout", max_timeout),
    NUMBER("kill-after", kill_after),
    NUMBER("grace", grace),
    NUMBER("run-for", run_for),
    NUMBER("estimated-duration", estimated_duration),
    NUMBER("tolerance-factor", tolerance_factor),
    NUMBER("max-deliveries", max_deliveries),
    NUMBER("breaker-failures", breaker_failures),
    NUMBER("breaker-pause", breaker_pause),
    NUMBER("lookahead", lookahead),
    NUMBER("group-quantum", group_quantum),
    NUMBER("max-parked", max_parked),
    NUMBER("max-waiting", max_waiting),
    NUMBER("queue-depth", queue_depth),
    NUMBER("message-size", message_size),
    NUMBER("mode", mode),
    NUMBER("spool", spool),
    NUMBER("spool-sync", spool_sync),
    NUMBER("keep-dead", keep_dead),
    NUMBER("max-dead", max_dead),
#undef NUMBER
};
#define NUMBERS (sizeof numbers / sizeof numbers[0])

/* row_of - of a flag that there is */
static const struct option_row *row_of(const char *flag)
{
    const struct option_row *row = settings_row(flag);

    if (!row)
        panic("options: there is no flag --%s", flag); /* it was renamed */
    return row;
}

static uint64_t *number_at(void *base, size_t offset)
{
    return (uint64_t *)(void *)((char *)base + offset);
}

/* defaults - those of the program */
static void defaults(struct mqw_options *o)
{
    struct settings set;

    settings_init(&set);
    *o = (struct mqw_options){.struct_size = sizeof *o,
                              .exit_when_idle = MQW_NEVER,
                              .log_level = MQW_LOG_INFO};
    for (size_t i = 0; i < NUMBERS; i++)
        *number_at(o, numbers[i].at) =
            *number_at(&set, row_of(numbers[i].flag)->offset);
}

/* mqw_options_init - as much of it as the program knows */
int mqw_options_init(struct mqw_options *options, size_t size)
{
    struct mqw_options o;

    if (!options || size < LEAST_BYTES || size > sizeof o)
        return -EINVAL;
    defaults(&o);
    o.struct_size = size;
    memcpy(options, &o, size);
    return 0;
}

int options_adopt(struct mqw_options *into, const struct mqw_options *given,
                  struct problem *p)
{
    size_t size = given ? given->struct_size : 0;

    defaults(into);
    if (size < LEAST_BYTES || size > sizeof *into)
        return problem_set(p, EX_USAGE, EINVAL,
                           "the options have %zu bytes, this library knows "
                           "%zu: call mqw_options_init first; it fails where "
                           "the library is older than the program",
                           size, sizeof *into);
    memcpy(into, given, size);
    if (into->retry_for == 0) /* "no limit" of programs that say so */
        into->retry_for = MQW_NEVER;
    return 0;
}

/* field_refuse - what is wrong with a flag's value as said of the field:
 * "--max-attempts: ..." to "max_attempts: ..." */
static int field_refuse(const char *flag, int err, struct problem *p)
{
    char name[FIELD_TEXT];
    const char *rest = p->text + (strncmp(p->text, "--", 2) == 0 ? 2 : 0);
    size_t size = strlen(flag);

    strlcpy(name, flag, sizeof name);
    for (char *c = name; *c; c++)
        *c = *c == '-' ? '_' : *c;
    if (strncmp(rest, flag, size) == 0 && strncmp(rest + size, ": ", 2) == 0)
        rest += size + 2;
    return problem_set(p, p->status, -err, "%s: %s", name, rest);
}

/* number_read - one number in the range of its flag; what was left as it was
 * needs no check: it may mean "none", which no value of the flag says */
static int number_read(struct settings *set, const struct option_row *row,
                       uint64_t value, struct problem *p)
{
    uint64_t *into = number_at(set, row->offset);
    int err = value != *into ? settings_check_number(row, value, p) : 0;

    if (err)
        return field_refuse(row->name, err, p);
    *into = value;
    return 0;
}

/* text_read - an option that is a text, by the flag that reads it */
static int text_read(struct settings *set, const char *flag, const char *text,
                     struct problem *p)
{
    const struct option_row *row = row_of(flag);
    int err = text ? row->call(text, (char *)set + row->offset, p) : 0;

    return err ? field_refuse(flag, err, p) : 0;
}

/* switches_read - what is neither number nor text */
static int switches_read(struct settings *set, const struct mqw_options *o,
                         struct problem *p)
{
    const char separator[2] = {(char)o->group_separator, '\0'};

    set->no_create = o->no_create != 0;
    set->timeout_abort = o->timeout_abort != 0;
    set->take_signals = o->take_signals != 0;
    set->exit_when_idle = o->exit_when_idle != MQW_NEVER;
    set->exit_when_idle_ns = set->exit_when_idle ? o->exit_when_idle : 0;
    set->on_group_dead = o->on_group_dead;
    set->allow_disk_custody = o->allow_disk_custody != 0;
    if (o->on_group_dead > GROUP_DEAD_HOLD || o->log_level < MQW_LOG_DEBUG ||
        o->log_level > MQW_LOG_ERROR || o->log_format < LOG_TEXT ||
        o->log_format > LOG_JSON)
        return problem_set(p, EX_USAGE, EINVAL,
                           "on_group_dead is 0 or 1, log_level 0 to 3, "
                           "log_format 0 or 1");
    if (o->spool_sync > SPOOL_SYNC_ALWAYS)
        return problem_set(p, EX_USAGE, EINVAL, "spool_sync is 0 or 1");
    if (o->group_separator < 0 || o->group_separator > 127)
        return problem_set(p, EX_USAGE, EINVAL,
                           "group_separator: %d is not one ASCII character",
                           o->group_separator);
    return o->group_separator ? text_read(set, "group-separator", separator, p)
                              : 0;
}

/* copy_keep - a copy of a path or a command that was given */
static int copy_keep(const char **out, const char *text, struct problem *p)
{
    if (!text)
        return 0;
    *out = strdup(text);
    return *out ? 0 : problem_set(p, EX_OSERR, ENOMEM, "out of memory");
}

/* fields_name - each "--run-for" of a problem becomes "run_for" */
static void fields_name(struct problem *p)
{
    char *to = p->text;

    for (const char *from = p->text; *from;) {
        if (strncmp(from, "--", 2) != 0 || !islower((unsigned char)from[2])) {
            *to++ = *from++;
            continue;
        }
        for (from += 2; islower((unsigned char)*from) || *from == '-'; from++)
            *to++ = *from == '-' ? '_' : *from;
    }
    *to = '\0';
}

/* options_read - all of them, checked as flags are */
int options_read(struct settings *set, const struct mqw_options *o,
                 struct problem *p)
{
    int err = 0;

    settings_init(set);
    if (!o->queue)
        return problem_set(p, EX_USAGE, EINVAL, "no queue: set options.queue");
    err = queue_name(o->queue, set->queue, p);
    for (size_t i = 0; i < NUMBERS && !err; i++)
        err = number_read(set, row_of(numbers[i].flag),
                          *number_at((void *)o, numbers[i].at), p);
    if (!err)
        err = text_read(set, "backoff", o->backoff, p);
    if (!err)
        err = text_read(set, "rate", o->rate, p);
    if (!err)
        err = text_read(set, "dead-letter-queue", o->dead_letter_queue, p);
    if (!err)
        err = switches_read(set, o, p);
    if (!err) {
        err = settings_check(set, p);
        if (err)
            fields_name(p);
    }
    if (!err)
        err = copy_keep(&set->state_dir, o->state_dir, p);
    if (!err)
        err = copy_keep(&set->runtime_dir, o->runtime_dir, p);
    if (!err)
        err = copy_keep(&set->on_dead, o->on_dead, p);
    return err;
}

void options_free(struct settings *set)
{
    free((void *)set->state_dir);
    free((void *)set->runtime_dir);
    free((void *)set->on_dead);
    set->state_dir = set->runtime_dir = set->on_dead = NULL;
}

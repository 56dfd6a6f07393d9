/* mqsend_flags.c - see mqsend_flags.h */
#include "scripts/mqsend/mqsend_flags.h"

#include <errno.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/message/backoff.h"
#include "common/options/moment.h"
#include "common/text/complain.h"

/* flag_id - --id */
int flag_id(const char *text, void *into, struct problem *p)
{
    struct envelope *e = into;

    e->has_id = true;
    if (ulid_parse(text, strlen(text), &e->id) == 0)
        return 0;
    return problem_set(p, EX_USAGE, EINVAL,
                       "--id: \"%s\" is not an id; give a ULID, 26 characters "
                       "like 01JD3Z6Q9V0X8N5T2K7B4M1C3F",
                       text);
}

/* flag_at - --at */
int flag_at(const char *text, void *into, struct problem *p)
{
    struct envelope *e = into;
    struct moment m;

    if (moment_parse(text, clock_wall_ns(), &m) < 0 || m.wall_ns == 0)
        return problem_set(p, EX_USAGE, EINVAL,
                           "--at: \"%s\" is not a time; give 14:30, \"tomorrow "
                           "08:00\", or a date and time like 2026-11-23T14:30 "
                           "(local) or 2026-11-23T14:30:00Z",
                           text);
    e->at_ns = m.wall_ns;
    e->at_text = text;
    e->at_clock = m.clock;
    return 0;
}

void flag_at_note(const struct envelope *e)
{
    char when[MOMENT_TEXT];

    if (!e->at_ns)
        return;
    moment_print(e->at_ns, when);
    if (e->at_ns <= clock_wall_ns())
        complain(0, "--at: \"%s\" is past (%s): it may run at once", e->at_text,
                 when);
    else if (e->at_clock == MOMENT_SKIPPED)
        complain(0, "--at: the clock skips \"%s\" that day: it runs at %s",
                 e->at_text, when);
    else if (e->at_clock == MOMENT_TWICE)
        complain(0,
                 "--at: the clock shows \"%s\" twice that day: it runs at %s",
                 e->at_text, when);
}

void flag_far_note(const struct envelope *e)
{
    uint64_t now = clock_wall_ns(), at = envelope_not_before(e, now), most;
    char ahead[DURATION_TEXT];

    (void)duration_parse(HEADER_MAX_DELAY, &most);
    if (at > now && at - now > most)
        complain(0,
                 "%s: that is %s ahead; the worker makes a dead letter of "
                 "it, unless its --max-delay (" HEADER_MAX_DELAY
                 " by default) allows that",
                 e->at_ns ? "--at" : "--delay",
                 duration_print((at - now) / NS_PER_S * NS_PER_S, ahead));
}

/* flag_group - --group */
int flag_group(const char *text, void *into, struct problem *p)
{
    struct envelope *e = into;

    e->group = text;
    if (header_value_ok(text, strlen(text)))
        return 0;
    return problem_set(p, EX_USAGE, EINVAL,
                       "--group: \"%s\" is not a group; give 1 to %d bytes of "
                       "printable UTF-8 without blanks at its ends",
                       text, HEADER_VALUE_MAX);
}

/* flag_backoff - --backoff */
int flag_backoff(const char *text, void *into, struct problem *p)
{
    struct envelope *e = into;
    struct backoff b;

    e->backoff = text;
    if (strlen(text) <= HEADER_VALUE_MAX)
        return backoff_parse(text, &b, p);
    return problem_set(p, EX_USAGE, EINVAL,
                       "--backoff: \"%.40s...\" is over %d bytes", text,
                       HEADER_VALUE_MAX);
}

/* flag_unique - --unique KEY[,DUR]; the text after the last comma is a part of
 * the key where it is no duration */
int flag_unique(const char *text, void *into, struct problem *p)
{
    struct envelope *e = into;
    const char *comma = strrchr(text, ',');
    size_t size = strlen(text);
    uint64_t ns;

    if (comma && duration_parse(comma + 1, &ns) == 0) {
        size = (size_t)(comma - text);
        e->unique_for_ms = ns / NS_PER_MS + (ns % NS_PER_MS != 0);
        if (e->unique_for_ms < 1 || e->unique_for_ms > HEADER_MS_MAX)
            return problem_set(p, EX_USAGE, EINVAL,
                               "--unique: %s is not 1ms or more", comma + 1);
    }
    e->unique = (struct header_text){text, size};
    if (header_value_ok(text, size))
        return 0;
    return problem_set(p, EX_USAGE, EINVAL,
                       "--unique: \"%s\" does not begin with a key; give 1 to "
                       "%d bytes of printable UTF-8 without blanks at its "
                       "ends, and a duration after a comma, like order-17,10m",
                       text, HEADER_VALUE_MAX);
}

/* flag_header - --header, any number of times */
int flag_header(const char *text, void *into, struct problem *p)
{
    return envelope_add_x(into, text, p);
}

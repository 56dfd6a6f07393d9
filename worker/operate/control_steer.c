/* control_steer.c - see control_steer.h */
#include "worker/operate/control_steer.h"

#include <errno.h>
#include <stdio.h>
#include <sysexits.h>
#include <bsd/stdlib.h>

#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "worker/operate/control_verbs.h"
#include "worker/operate/steering.h"

/* numbers_read - of rows, or with a minus keys of the spool; false: one is
 * none, or there are none */
static bool numbers_read(char *const *words, size_t count,
                         int64_t out[STEER_MOST])
{
    const char *trouble = NULL;

    for (size_t i = 0; i < count && !trouble; i++) {
        out[i] = strtonum(words[i], -INT64_MAX, INT64_MAX, &trouble);
        if (out[i] == 0)
            return false;
    }
    return count > 0 && !trouble;
}

/* steered_json - a word for each number; or why nothing has happened */
static json_t *steered_json(const struct steering *s)
{
    const enum steered *results;
    char text[512];
    size_t n;
    int err = steering_results(s, &results, &n);
    json_t *all;

    if (err) {
        snprintf(text, sizeof text,
                 "the store cannot be written: %s. Nothing was changed; %s, "
                 "and try again",
                 errno_text(-err), disk_advice(err));
        return control_refusal(disk_is_full(err) ? EX_CANTCREAT : EX_TEMPFAIL,
                               text);
    }
    all = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(all, json_string(steered_text(results[i])));
    return json_pack("{s:b, s:o}", "ok", 1, "results", all);
}

/* over - what came of one that was begun; NULL and `later`: not yet */
static json_t *over(struct steering **s, bool *later)
{
    json_t *out;

    *later = !steering_is_over(*s);
    if (*later)
        return NULL;
    out = steered_json(*s);
    steering_drop(s);
    return out;
}

/* begun - the answer comes later */
static json_t *begun(int err, bool *later)
{
    *later = !err;
    return err ? control_refusal(EX_OSERR, errno_text(-err)) : NULL;
}

/* can_steer - NULL, or why not */
static json_t *can_steer(const struct flow *f)
{
    return f->source->local
               ? NULL
               : control_refusal(EX_UNAVAILABLE,
                                 "messages of this source cannot be steered");
}

json_t *control_steer(struct flow *f, enum steer what, char *const *words,
                      size_t count, struct control_call *call, bool *later)
{
    int64_t numbers[STEER_MOST];
    json_t *no = can_steer(f);

    if (*call->steering)
        return over(call->steering, later);
    if (no)
        return no;
    if (!numbers_read(words, count, numbers))
        return control_refusal(EX_USAGE, "give numbers of rows, as the store "
                                         "has them");
    return begun(
        steering_begin(call->steering, f, what, numbers, count, call->end),
        later);
}

json_t *control_cancel_lent(struct flow *f, char *const *words, size_t count,
                            struct control_call *call, bool *later)
{
    char bytes[HEADER_VALUE_MAX];
    struct header_text key = {0};
    int64_t seq[STEER_MOST];
    json_t *no = can_steer(f);
    int size = count == 2 ? hex_parse(words[1], bytes, sizeof bytes) : 0;

    if (*call->steering)
        return over(call->steering, later);
    if (no)
        return no;
    if (count > 2 || size < 0 || !numbers_read(words, count > 0, seq) ||
        seq[0] < 0)
        return control_refusal(EX_USAGE,
                               "cancel-lent: give the receive sequence of a "
                               "message, and the key of its group in "
                               "hexadecimal if it has one");
    if (size > 0)
        key = (struct header_text){.at = bytes, .size = (size_t)size};
    return begun(steering_begin_lent(call->steering, f, (uint64_t)seq[0], key,
                                     call->end),
                 later);
}

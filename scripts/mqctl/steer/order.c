/* order.c - see order.h */
#include "scripts/mqctl/steer/order.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "common/message/hex.h"
#include "common/state/statedir.h"
#include "common/text/complain.h"
#include "scripts/mqctl/ask.h"

/* words_read - a word for each message; false: it is no answer to this */
static bool words_read(const json_t *answer, size_t count,
                       enum waiting_steered *out)
{
    static const char *const words[] = {
        [WAITING_STEERED] = "done",
        [WAITING_NOT_SO] = "already",
        [WAITING_GONE] = "gone",
        [WAITING_IN_FLIGHT] = "in flight",
    };
    const json_t *all = json_object_get(answer, "results");

    if (json_array_size(all) != count)
        return false;
    for (size_t i = 0; i < count; i++) {
        const char *word = json_string_value(json_array_get(all, i));
        int k = WAITING_STEERED;

        while (k <= WAITING_IN_FLIGHT && (!word || strcmp(word, words[k]) != 0))
            k++;
        if (k > WAITING_IN_FLIGHT)
            return false;
        out[i] = (enum waiting_steered)k;
    }
    return true;
}

/* order - one request */
static int order(const struct messages *m, const char *line, size_t count,
                 enum waiting_steered *out, int *status)
{
    struct problem p = {0};
    json_t *answer;
    const char *why;
    int err = 0;

    if (ask(&m->dir, m->queue, line, &answer, &p) < 0) {
        if (ask_runs(&m->dir) == 0)
            return -EAGAIN;
        *status = complain_of(&p);
        return -EIO;
    }
    if (!json_is_true(json_object_get(answer, "ok")) ||
        !words_read(answer, count, out)) {
        why = json_string_value(json_object_get(answer, "error"));
        *status = complain(EX_TEMPFAIL, "%s", why ? why : "no answer");
        err = -EIO;
    }
    json_decref(answer);
    return err;
}

int order_rows(const struct messages *m, const char *verb, const int64_t *rows,
               size_t count, enum waiting_steered *out, int *status)
{
    char line[STATEDIR_REQUEST];
    int n = snprintf(line, sizeof line, "%s", verb);

    for (size_t i = 0; i < count; i++)
        n += snprintf(line + n, sizeof line - (size_t)n, " %" PRId64, rows[i]);
    return order(m, line, count, out, status);
}

int order_slot(const struct messages *m, const struct custody_seen *c,
               enum waiting_steered *out, int *status)
{
    char line[STATEDIR_REQUEST], hex[2 * HEADER_VALUE_MAX + 1];

    snprintf(line, sizeof line, "cancel-lent %" PRIu64 " %s", c->seq,
             hex_print(c->group, strlen(c->group), hex));
    return order(m, line, 1, out, status);
}

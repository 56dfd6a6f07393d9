/* cursor.c - see cursor.h */
#include "scripts/mqctl/look/cursor.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/safe_text.h"

const char *messages_cursor(const struct message_seen *seen,
                            char text[CURSOR_TEXT])
{
    bool parked = seen->state == WAITING_PARKED || seen->state == WAITING_HELD;
    int n;

    if (seen->in_slot) {
        snprintf(text, CURSOR_TEXT, "slot-%d-%" PRIu64, (int)seen->state,
                 seen->seq);
        return text;
    }
    if (seen->state == WAITING_SPOOLED) {
        snprintf(text, CURSOR_TEXT, "spool-%" PRId64,
                 messages_spooled_key(seen));
        return text;
    }
    if (!parked) {
        snprintf(text, CURSOR_TEXT, "%s-%" PRIu64 "-%" PRId64,
                 seen->state == WAITING_READY ? "due" : "time", seen->due_ns,
                 seen->row);
        return text;
    }
    n = snprintf(text, CURSOR_TEXT, "park-%" PRIu32 "-%" PRIu64 "-",
                 seen->priority, seen->seq);
    hex_print(seen->group, seen->group_size, text + n);
    return text;
}

/* group_parse - what messages_cursor made of it */
static bool group_parse(struct waiting_place *at, const char *hex)
{
    int size = hex_parse(hex, at->group, sizeof at->group);

    at->group_size = size < 0 ? 0 : (size_t)size;
    return size >= 0;
}

/* number_cut - the digits at *text, and the dash after them; false: there are
 * none */
static bool number_cut(const char **text, uint64_t *out)
{
    char *end;

    if (!*text || **text < '0' || **text > '9')
        return false;
    *out = strtoull(*text, &end, 10);
    *text = *end == '-' ? end + 1 : end;
    return true;
}

/* after_word - what follows "WORD-"; NULL: it is another one */
static const char *after_word(const char *text, const char *word)
{
    size_t size = strlen(word);

    return strncmp(text, word, size) == 0 ? text + size : NULL;
}

/* row_cut - the due time of a row, and its number */
static bool row_cut(const char *text, struct waiting_place *at)
{
    uint64_t row;

    if (!number_cut(&text, &at->at) || !number_cut(&text, &row) || *text)
        return false;
    at->row = (int64_t)row;
    return true;
}

/* cursor_parse - "" is the place before all */
int cursor_parse(struct cursor *c, const char *text)
{
    const char *slot = after_word(text, "slot-");
    const char *due = after_word(text, "due-");
    const char *spool = after_word(text, "spool-");
    const char *time = after_word(text, "time-");
    const char *park = after_word(text, "park-");
    struct waiting_place *at = &c->place;
    uint64_t state, key, priority;

    *c = (struct cursor){.slots = true, .due = true, .spool = true};
    if (!*text)
        return 0;
    if (number_cut(&slot, &state) && number_cut(&slot, &c->seq) && !*slot &&
        state < WAITING_STATES) {
        c->state = (enum waiting_state)state;
        return 0;
    }
    c->slots = false;
    if (row_cut(due, at))
        return 0;
    c->due = false;
    if (number_cut(&spool, &key) && !*spool && key <= INT64_MAX) {
        c->spooled = (int64_t)key;
        return 0;
    }
    c->spool = false;
    if (row_cut(time, at))
        return 0;
    if (!number_cut(&park, &priority) || !number_cut(&park, &at->at) ||
        !group_parse(at, park))
        return -EINVAL;
    at->priority = (uint32_t)priority;
    at->parked = true;
    return 0;
}

/* doctor_hooks.c - letters that nobody was told of */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/safe_text.h"
#include "common/store/letters.h"
#include "scripts/mqctl/look/doctor.h"

#define COMMAND_MOST 500

/* command_of - as the worker was told; NULL: none answers, or it is not given
 * as it was typed: it is long, or has what is not printed */
static const char *command_of(const struct snapshot *v)
{
    const json_t *runs = json_object_get(v->live, "runs");
    const char *text = json_string_value(
        json_object_get(json_object_get(runs, "flags"), "on-dead"));

    return text && strlen(text) < COMMAND_MOST && !strstr(text, "\\x") ? text
                                                                       : NULL;
}

/* letter_of - one that somebody is to be told of; 0: none is seen */
static int64_t letter_of(struct snapshot *v)
{
    struct letter_hook hook = {.row = 0};
    struct store *store;

    if (snapshot_store(v, &store) < 0)
        return 0;
    (void)letters_hook(store, 0, &hook);
    store_close(&store);
    return hook.row;
}

/* tried_by - what the worker does, by hand; NULL: the command is not known */
static const char *tried_by(struct findings *f, const struct snapshot *v,
                            int64_t row)
{
    const char *command = command_of(v);
    char word[SHELL_WORD_ROOM(COMMAND_MOST)];

    if (!command || !row)
        return NULL;
    return fix(f,
               "mqdlq show --json %s %" PRId64 " | MQW_LETTER=%" PRId64
               " MQW_QUEUE=%s sh -c %s",
               SHELL_QUEUE(v->queue), row, row, SHELL_QUEUE(v->queue),
               shell_word(command, word, sizeof word));
}

void hooks_check(struct findings *f, struct snapshot *v)
{
    uint64_t n = v->counters ? v->head.gauges[COUNTERS_UNTOLD] : 0;
    int64_t row;

    if (n == 0)
        return;
    row = letter_of(v);
    FOUND(f, WARN, "on-dead", tried_by(f, v, row),
          "the command of --on-dead failed for %" PRIu64 " letter%s, %" PRIu64
          " time%s in all; %s; event=on_dead_failed in its log says how, and "
          "mqdlq discard %s %" PRId64 " gives a letter up",
          n, n == 1 ? "" : "s", v->sum.hooks_failed,
          v->sum.hooks_failed == 1 ? "" : "s",
          v->worker == SNAPSHOT_RUNS
              ? "it runs again for each, after 5 minutes at most"
              : "it runs again when a worker is started with it",
          SHELL_QUEUE(v->queue), row);
}

/* filter_rows.h - flags that filter messages or letters
 *
 * WHAT   Rows for options.h. Each macro takes the noun for the help text
 *        ("messages") and the place of the value: FILTER_GROUP("letters",
 *        AT(filter.group)).
 * WHO    mqctl and mqdlq.
 */
#ifndef COMMON_CLI_FILTER_ROWS_H
#define COMMON_CLI_FILTER_ROWS_H

#include "common/cli/moment.h"
#include "common/cli/options.h"

#define FILTER_ERROR(NOUN, ...)                                              \
    {                                                                        \
        "error", 0, OPT_STRING,                                              \
            .value = "TEXT", __VA_ARGS__,                                    \
            .help = "only " NOUN                                             \
                    " error contains TEXT or matches it as a pattern, like " \
                    "'timeout*'"                                             \
    }
#define FILTER_GROUP(NOUN, ...)                                       \
    {                                                                 \
        "group", 0, OPT_STRING, .value = "KEY", __VA_ARGS__,          \
                                .help = "only " NOUN " of that group" \
    }
#define FILTER_MATCH(NOUN, ...)                                               \
    {                                                                         \
        "match", 0, OPT_STRING, .value = "TEXT", __VA_ARGS__,                 \
                                .help = "only " NOUN " with TEXT in the body" \
    }
#define FILTER_SINCE(NOUN, ...)                                               \
    {                                                                         \
        "since", 0, OPT_CALL,                                                 \
            .value = "TIME", .call = moment_past_read, __VA_ARGS__,           \
            .help =                                                           \
                "only " NOUN " at TIME or later: 14:30, 2026-11-20, "         \
                "2026-11-20T19:22 in local time or with a zone, or how long " \
                "ago, like 2h"                                                \
    }
#define FILTER_UNTIL(NOUN, ...)                                                \
    {                                                                          \
        "until", 0, OPT_CALL, .value = "TIME", .call = moment_past_read,       \
                              __VA_ARGS__, .help = "only " NOUN " before TIME" \
    }

#endif

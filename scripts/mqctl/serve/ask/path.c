/* path.c - the routes (see ask.h) */
#include "scripts/mqctl/serve/ask/ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <bsd/string.h>

#include "common/broker/broker_operand.h"
#include "common/cli/options.h"

#define API "/api/v1"

const char *const serve_query_names[QUERY_COUNT] = {
    [QUERY_AFTER] = "after",     [QUERY_LIMIT] = "limit",
    [QUERY_ERROR] = "error",     [QUERY_REASON] = "reason",
    [QUERY_GROUP] = "group",     [QUERY_MATCH] = "match",
    [QUERY_SINCE] = "since",     [QUERY_UNTIL] = "until",
    [QUERY_ID] = "id",           [QUERY_QUEUE] = "queue",
    [QUERY_RANGE] = "range",     [QUERY_STATE] = "state",
    [QUERY_PATTERN] = "pattern",
};

#define LETTERS (QUERY_FILTER | QUERY(AFTER) | QUERY(LIMIT))

/* docs/openapi.yaml describes the routes below /api/ and their answers. */
static const struct serve_route routes[] = {
    {"GET", "/", .what = SERVE_PAGE},
    {"GET", "/dead", .what = SERVE_PAGE},
    {"GET", "/groups", .what = SERVE_PAGE},
    {"GET", "/find", .what = SERVE_PAGE},
    {"GET", "/queues/{q}", .what = SERVE_PAGE},
    {"GET", "/queues/{q}/messages", .what = SERVE_PAGE},
    {"GET", "/queues/{q}/dead", .what = SERVE_PAGE},
    {"GET", "/queues/{q}/groups", .what = SERVE_PAGE},
    {"GET", "/queues/{q}/settings", .what = SERVE_PAGE},
    {"GET", "/queues/{q}/dead/{row}", .what = SERVE_PAGE},
    {"GET", "/queues/{q}/messages/{word}", .what = SERVE_PAGE},
    {"GET", "/static/{word}", SERVE_FILE, .open = true},
    {"GET", "/favicon.ico", SERVE_FILE, .open = true},
    {"GET", "/healthz", SERVE_HEALTH, .open = true},
    {"GET", "/metrics", .what = SERVE_METRICS},
    {"POST", API "/session", SERVE_SESSION, .open = true},
    {"DELETE", API "/session", SERVE_SESSION_END, .open = true},
    {"GET", API "/about", .what = SERVE_ABOUT},
    {"GET", API "/overview", .what = SERVE_OVERVIEW},
    {"GET", API "/events", SERVE_EVENTS, .query = QUERY(QUEUE)},
    {"GET", API "/sparks", .what = SERVE_SPARKS},
    {"GET", API "/findings", SERVE_FINDINGS, .query = QUERY(QUEUE)},
    {"GET", API "/doctor", SERVE_DOCTOR, .query = QUERY(QUEUE)},
    {"GET", API "/explain", SERVE_EXPLAIN, .query = QUERY(ID) | QUERY(QUEUE)},
    {"GET", API "/letters/groups", SERVE_BY_ERROR,
     .query = QUERY_FILTER | QUERY(QUEUE)},
    {"GET", API "/queues", .what = SERVE_QUEUES},
    {"GET", API "/queues/{q}", .what = SERVE_QUEUE},
    {"GET", API "/queues/{q}/history", SERVE_HISTORY, .query = QUERY(RANGE)},
    {"GET", API "/queues/{q}/settings", .what = SERVE_SETTINGS},
    {"GET", API "/queues/{q}/messages", SERVE_MESSAGES,
     .query = QUERY(AFTER) | QUERY(STATE)},
    {"GET", API "/queues/{q}/messages/{word}", .what = SERVE_MESSAGE},
    {"GET", API "/queues/{q}/groups", SERVE_GROUPS,
     .query = QUERY(AFTER) | QUERY(STATE)},
    {"GET", API "/queues/{q}/letters", SERVE_LETTERS, .query = LETTERS},
    {"GET", API "/queues/{q}/letters/{row}", .what = SERVE_LETTER},
    {"GET", API "/queues/{q}/letters/{row}/body", .what = SERVE_BODY},
    {"GET", API "/jobs", .what = SERVE_JOBS},
    {"GET", API "/jobs/{row}", .what = SERVE_JOB},
    {"GET", API "/jobs/{row}/outcome", .what = SERVE_JOB_OUTCOME},
    {"DELETE", API "/jobs/{row}", SERVE_JOB_STOP, .write = true},
    {"POST", API "/queues/{q}/letters/replay", SERVE_REPLAY, .write = true},
    {"POST", API "/queues/{q}/letters/discard", SERVE_DISCARD, .write = true},
    {"POST", API "/queues/{q}/letters/{row}/edit", SERVE_EDIT, .write = true},
    {"POST", API "/queues/{q}/messages/run-now", SERVE_RUN_NOW, .write = true},
    {"POST", API "/queues/{q}/messages/cancel", SERVE_CANCEL, .write = true},
    {"POST", API "/queues/{q}/groups/{word}", SERVE_STEER_GROUP, .write = true},
    {"PATCH", API "/queues/{q}/settings", SERVE_SET, .write = true},
    {"POST", API "/queues/{q}/{word}", SERVE_STEER, .write = true},
};

enum serve_query serve_query_find(const char *name, unsigned allowed)
{
    for (unsigned i = 0; i < QUERY_COUNT; i++)
        if (allowed & 1u << i && strcmp(name, serve_query_names[i]) == 0)
            return (enum serve_query)i;
    return QUERY_COUNT;
}

const char *serve_query_list(unsigned allowed, char *out, size_t room)
{
    size_t n = 0;

    snprintf(out, room, "no names");
    for (unsigned i = 0; i < QUERY_COUNT; i++)
        if (allowed & 1u << i && n < room)
            n += (size_t)snprintf(out + n, room - n, "%s%s", n ? ", " : "",
                                  serve_query_names[i]);
    return out;
}

const char *serve_queue_list(const char *path, char *out, size_t room)
{
    static const char queue[] = API "/queues/{q}/";
    size_t n = 0;

    *out = '\0';
    if (strncmp(path, queue, strlen(API "/queues/")) != 0)
        return out;
    path = strchr(path + strlen(API "/queues/"), '/');
    if (!path || strchr(path + 1, '/'))
        return out;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        const char *name = routes[i].pattern;

        if (strcmp(routes[i].method, "GET") != 0 || n >= room ||
            strncmp(name, queue, sizeof queue - 1) != 0)
            continue;
        name += sizeof queue - 1;
        if (!strchr(name, '/'))
            n +=
                (size_t)snprintf(out + n, room - n, "%s%s",
                                 n ? ", " : "; below a queue there are ", name);
    }
    return out;
}

bool serve_number_read(const char *text, int64_t *out)
{
    int64_t n = 0;

    if (!*text || *text == '0')
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || n > (INT64_MAX - 9) / 10)
            return false;
        n = n * 10 + (*text - '0');
    }
    *out = n;
    return true;
}

/* Read a queue on a broker. Its name has slashes, so it is percent-encoded
 * twice in a path; libmicrohttpd has already decoded it once. */
static bool operand_read(char out[QUEUE_NAME_MAX], const char *text)
{
    char plain[SERVE_SEGMENT];
    struct broker_operand o;
    struct problem p;
    size_t n = 0;

    for (; *text; text++) {
        char digits[3] = "";

        if (*text == '%') {
            strlcpy(digits, text + 1, sizeof digits);
            if (strspn(digits, "0123456789abcdefABCDEF") != 2)
                return false;
            text += 2;
        }
        plain[n++] = digits[0] ? (char)strtoul(digits, NULL, 16) : *text;
    }
    plain[n] = '\0';
    if (strlen(plain) != n || !broker_operand_is(plain) ||
        broker_operand_parse(&o, plain, &p) < 0)
        return false;
    memcpy(out, o.shown, sizeof o.shown);
    return true;
}

/* Read a path. Returns false if it does not have the form of the pattern. */
static bool path_match(struct serve_path *out, const char *pattern,
                       const char *path)
{
    char segment[SERVE_SEGMENT] = "/"; /* then it can name a queue */
    bool fits;

    *out = (struct serve_path){0};
    for (;;) {
        size_t n = strcspn(path, "/"), want = strcspn(pattern, "/");

        fits = *pattern == '{' && n > 0 && n + 2 <= sizeof segment;
        if (fits) {
            memcpy(segment + 1, path, n);
            segment[n + 1] = '\0';
        }
        if (*pattern != '{')
            fits = n == want && memcmp(path, pattern, n) == 0;
        else if (fits && strncmp(pattern, "{q}", 3) == 0)
            fits = operand_read(out->queue, segment + 1) ||
                   queue_name(segment, out->queue, NULL) == 0;
        else if (fits && strncmp(pattern, "{row}", 5) == 0)
            fits = serve_number_read(segment + 1, &out->row);
        else if (fits)
            fits = strlcpy(out->word, segment + 1, sizeof out->word) <
                   sizeof out->word;
        if (!fits)
            return false;
        path += n;
        pattern += want;
        if (!*path || !*pattern)
            return *path == *pattern;
        path++;
        pattern++;
    }
}

int serve_path_read(struct serve_path *out, const char *method,
                    const char *path)
{
    char allow[SERVE_ALLOW] = "";
    bool known = false; /* some route has the method */

    if (strcmp(method, "HEAD") == 0)
        method = "GET";
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        const struct serve_route *r = &routes[i];

        known |= strcmp(r->method, method) == 0;
        if (!path_match(out, r->pattern, path))
            continue;
        out->route = r;
        if (strcmp(r->method, method) == 0)
            return 0;
        if (r->what == SERVE_STEER &&
            !word_among("pause|resume|drain", out->word, strlen(out->word)))
            continue; /* a POST of another word finds nothing either */
        if (!strstr(allow, r->method))
            snprintf(allow + strlen(allow), sizeof allow - strlen(allow),
                     "%s%s%s", allow[0] ? ", " : "", r->method,
                     strcmp(r->method, "GET") == 0 ? ", HEAD" : "");
    }
    *out = (struct serve_path){0};
    memcpy(out->allow, allow, sizeof allow);
    if (!known)
        return 501;
    return allow[0] ? 405 : 404;
}

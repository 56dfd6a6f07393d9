/* request.c - see request.h */
#include "scripts/mqctl/serve/request.h"

#include <bsd/string.h>
#include <bsd/sys/queue.h>
#include <errno.h>
#include <inttypes.h>
#include <sha2.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/cli/json_line.h"
#include "scripts/mqctl/serve/ask/ask.h"
#include "scripts/mqctl/serve/ask/history.h"
#include "scripts/mqctl/serve/events.h"
#include "scripts/mqctl/serve/guests.h"
#include "scripts/mqctl/serve/jobs.h"
#include "scripts/mqctl/serve/look.h"
#include "scripts/mqctl/serve/watch.h"

#define BODY_MAX    (64u << 10)
#define WRONG_MOST  10 /* wrong tokens a minute; then status 429 */
#define COOKIE_NAME 32
#define CLIENT_LEFT 499 /* only in the log, if no status could be sent */

struct visit {
    LIST_ENTRY(visit) link;
    struct MHD_Connection *c;
    struct serve_site *site;
    struct serve_ask ask;
    char *body;
    size_t size;
    const char *host;    /* the Host header */
    unsigned hosts;      /* Host headers */
    unsigned framings;   /* headers that give the length of the body */
    bool begun;          /* request_handle was called */
    bool api;            /* the address is below /api/ */
    bool nul;            /* the address has a NUL byte */
    bool large;          /* the body is over BODY_MAX */
    bool waiting;        /* suspended, until a look ends */
    bool answered;       /* `end` is filled in */
    struct look_end end; /* out: -1 before the end and after look_answer() */
};
static LIST_HEAD(, visit) visits = LIST_HEAD_INITIALIZER(visits);

static const char *header_find(const struct visit *v, const char *name)
{
    return MHD_lookup_connection_value(v->c, MHD_HEADER_KIND, name);
}

/* ---- responses ---- */

#define TYPE_JSON    "application/json"
#define TYPE_JS      "text/javascript; charset=utf-8"
#define TYPE_CSS     "text/css; charset=utf-8"
#define TYPE_TEXT    "text/plain; charset=utf-8"
#define TYPE_METRICS "text/plain; version=0.0.4; charset=utf-8"
#define TYPE_BYTES   "application/octet-stream"

/* Scripts and styles come from the server's own files, never from text in the
 * page. No other site may show the page in a frame, and it submits no form. */
#define POLICY                                                                \
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src "   \
    "'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; " \
    "form-action 'none'; require-trusted-types-for 'script'; trusted-types "  \
    "'none'"

/* The last two apply to documents, which scripts and styles are not. */
static const char *const headers[][2] = {
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"X-Frame-Options", "DENY"},
};
#define HEADERS (sizeof headers / sizeof *headers)

/* Add a header to a response; no header for the value NULL. Without memory, the
 * response is released and *r becomes NULL. */
static void header_add(struct MHD_Response **r, const char *name,
                       const char *value)
{
    if (!*r || !value || MHD_add_response_header(*r, name, value))
        return;
    MHD_destroy_response(*r);
    *r = NULL;
}

/* Send a response with the headers that all responses have, and release it.
 * NULL: close the connection. */
static enum MHD_Result reply_send(const struct visit *v, unsigned status,
                                  const char *type, struct MHD_Response *r)
{
    bool document = strcmp(type, TYPE_JS) != 0 && strcmp(type, TYPE_CSS) != 0;
    enum MHD_Result ok;

    for (size_t i = 0; i < HEADERS - (document ? 0 : 2); i++)
        header_add(&r, headers[i][0], headers[i][1]);
    if (document)
        header_add(&r, "Content-Security-Policy",
                   strcmp(type, TYPE_BYTES) == 0 ? "sandbox; default-src 'none'"
                                                 : POLICY);
    if (r && !MHD_get_response_header(r, "Cache-Control"))
        header_add(&r, "Cache-Control", "no-store");
    if (status == 401)
        header_add(&r, "WWW-Authenticate", "Bearer realm=\"mqctl serve\"");
    if (status == 405)
        header_add(&r, "Allow", v->ask.path.allow);
    header_add(&r, "Content-Type", type);
    if (!r)
        return MHD_NO;
    ok = MHD_queue_response(v->c, status, r);
    MHD_destroy_response(r);
    return ok;
}

/* Send JSON and free it (NULL: close the connection). A client that has the
 * same JSON already gets status 304. */
static enum MHD_Result reply_json(const struct visit *v, char *text)
{
    const char *held = header_find(v, "If-None-Match");
    char tag[SHA256_DIGEST_STRING_LENGTH + 2] = "\"";
    struct MHD_Response *r;
    bool same;

    if (!text)
        return MHD_NO;
    SHA256Data((const uint8_t *)text, strlen(text), tag + 1);
    strlcat(tag, "\"", sizeof tag);
    same = held && strcmp(held, tag) == 0;
    if (same)
        *text = '\0';
    r = MHD_create_response_from_buffer(strlen(text), text,
                                        MHD_RESPMEM_MUST_FREE);
    if (!r)
        free(text);
    header_add(&r, "ETag", tag);
    header_add(&r, "Cache-Control", "no-cache");
    return reply_send(v, same ? 304 : 200, TYPE_JSON, r);
}

/* Return the HTTP status for the exit status of a tool. */
static unsigned reply_status(int exit_status)
{
    switch (exit_status) {
    case 0:
        return 200;
    case 1:
        return 409;
    case EX_USAGE:
        return 400;
    case EX_DATAERR:
        return 422;
    case EX_NOINPUT:
        return 404;
    case EX_UNAVAILABLE:
    case EX_OSERR:
    case EX_TEMPFAIL:
        return 503;
    case EX_NOPERM:
        return 403;
    case -SIGALRM:
        return 504;
    default:
        return 500;
    }
}

/* Refuse a request of a program (RFC 9457), with the line that a tool printed
 * and its exit status; 0: no tool failed. */
static enum MHD_Result problem_send(const struct visit *v, unsigned status,
                                    int exit_status, const char *line)
{
    struct MHD_Response *r = NULL;
    json_t *o = json_pack("{s:s, s:s, s:i, s:o}", "type", "about:blank",
                          "title", MHD_get_reason_phrase_for(status), "status",
                          (int)status, "detail", json_printable(line));
    char *text;

    if (exit_status)
        json_object_set_new(o, "exit_status", json_integer(exit_status));
    text = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    if (text)
        r = MHD_create_response_from_buffer(strlen(text), text,
                                            MHD_RESPMEM_MUST_FREE);
    return reply_send(v, status, "application/problem+json", r);
}

/* Send a file of web/, compressed if the client accepts gzip. The name NULL is
 * the page. Programs read its status; its scripts find out by themselves what
 * is wrong, and show it. */
static enum MHD_Result reply_file(const struct visit *v, unsigned status,
                                  const char *name)
{
    static const char *const types[][2] = {
        {".js", TYPE_JS},
        {".css", TYPE_CSS},
        {".svg", "image/svg+xml"},
    };
    const char *coding = header_find(v, "Accept-Encoding"),
               *held = header_find(v, "If-None-Match"),
               *dot = name ? strrchr(name, '.') : NULL,
               *type = name ? NULL : "text/html; charset=utf-8";
    bool zip = coding && strstr(coding, "gzip"), same;
    const struct serve_file *f = serve_files, *end = f + serve_file_count;
    char wanted[SERVE_WORD + 4];
    struct MHD_Response *r;

    for (size_t i = 0; dot && i < sizeof types / sizeof *types; i++)
        if (strcmp(dot, types[i][0]) == 0)
            type = types[i][1];
    snprintf(wanted, sizeof wanted, "%s%s", name ? name : "index.html",
             zip ? ".gz" : "");
    while (f < end && strcmp(f->name, wanted) != 0)
        f++;
    if (f == end || !type)
        return problem_send(v, 404, 0, "there is no such file");
    same = status == 200 && held && strcmp(held, f->etag) == 0;
    r = MHD_create_response_from_buffer(same ? 0 : f->size, (void *)f->bytes,
                                        MHD_RESPMEM_PERSISTENT);
    header_add(&r, "ETag", f->etag);
    header_add(&r, "Cache-Control", "no-cache");
    header_add(&r, "Vary", "Accept-Encoding");
    header_add(&r, "Content-Encoding", zip ? "gzip" : NULL);
    return reply_send(v, same ? 304 : status, type, r);
}

/* Refuse a request. Outside of the API, a browser gets the page for 401, to
 * sign in, and for 404, to show that the address is wrong; otherwise a line of
 * text. */
static enum MHD_Result request_refuse(const struct visit *v, unsigned status,
                                      const char *line)
{
    const char *accept = header_find(v, "Accept");
    char text[512];

    if (v->api || !accept || !strstr(accept, "text/html"))
        return problem_send(v, status, 0, line);
    if (status == 401 || status == 404)
        return reply_file(v, status, NULL);
    snprintf(text, sizeof text, "%s: %s\n", MHD_get_reason_phrase_for(status),
             line);
    return reply_send(v, status, TYPE_TEXT,
                      MHD_create_response_from_buffer(strlen(text), text,
                                                      MHD_RESPMEM_MUST_COPY));
}

/* ---- checking a request ---- */

/* Read the Host header, and count the headers that may come only once. */
static enum MHD_Result header_count(void *cls, enum MHD_ValueKind kind,
                                    const char *name, const char *value)
{
    struct visit *v = cls;

    (void)kind;
    if (strcasecmp(name, "Host") == 0) {
        v->host = v->hosts++ == 0 && value ? value : "";
        return MHD_YES;
    }
    v->framings += strcasecmp(name, "Content-Length") == 0 ||
                   strcasecmp(name, "Transfer-Encoding") == 0;
    return MHD_YES;
}

/* Return true if the browser speaks TLS, with this server or with its proxy. */
static bool is_secure(const struct visit *v)
{
    return v->site->guard.secure || v->site->o->behind_proxy;
}

/* Name the cookie by the port that the browser sees. A browser has one set of
 * cookies for all ports of a host, and two servers on one host must not replace
 * each other's cookie. */
static void cookie_name(const struct visit *v, char out[COOKIE_NAME])
{
    unsigned port = serve_host_port(v->host);
    const char *base = is_secure(v) ? "__Host-mqctl" : "mqctl";

    if (port)
        snprintf(out, COOKIE_NAME, "%s-%u", base, port);
    else
        strlcpy(out, base, COOKIE_NAME);
}

/* Return the cookie if valid, else NULL. */
static const char *cookie_of(const struct visit *v)
{
    char name[COOKIE_NAME];
    const char *cookie;

    cookie_name(v, name);
    cookie = MHD_lookup_connection_value(v->c, MHD_COOKIE_KIND, name);
    return cookie && serve_cookie_right(&v->site->guard, cookie,
                                        clock_wall_ns() / NS_PER_S)
               ? cookie
               : NULL;
}

/* Return true if the request has the token. */
static bool has_token(const struct visit *v)
{
    const char *bearer = header_find(v, "Authorization");

    return bearer && strncasecmp(bearer, "Bearer ", 7) == 0 &&
           serve_token_right(&v->site->guard, bearer + 7);
}

/* Return true if the request has the token, or its cookie. */
static bool is_signed_in(const struct visit *v)
{
    return header_find(v, "Authorization") ? has_token(v)
                                           : cookie_of(v) != NULL;
}

/* Count a wrong token. Returns true if there were too many this minute. */
static bool token_wrong_count(void)
{
    static uint64_t minute;
    static unsigned count;
    uint64_t now = clock_mono_ns() / (60 * NS_PER_S);

    count = now == minute ? count + 1 : 1;
    minute = now;
    return count > WRONG_MOST;
}

/* Return why a request may not change anything; NULL: it may. */
static const char *write_flaw(const struct visit *v)
{
    const char *key, *cookie;

    if (!serve_site_ours(header_find(v, "Sec-Fetch-Site"),
                         header_find(v, "Origin"), v->host))
        return "the request comes from a page of another site";
    key = header_find(v, "X-MQ-Key");
    cookie = cookie_of(v); /* may have expired since is_signed_in */
    if (!has_token(v) &&
        !(key && cookie && serve_key_right(&v->site->guard, cookie, key)))
        return "a change needs the page's key as well as the cookie. Sign in "
               "again: open the address with the token that mqctl serve "
               "printed";
    if (!header_find(v, "X-MQ-Request"))
        return "a request that changes something needs the header "
               "X-MQ-Request: 1, which no form of another site can send";
    if (!v->site->o->allow_write)
        return "this server is read-only; start it with --allow-write to allow "
               "changes";
    return NULL;
}

/* Reason for refusing a query; "": accepted. */
static char query_flaw[256];

/* Take one name of the query. Refuse a name that is misspelt, given twice or
 * cut by a NUL byte, because ignoring it would drop a restriction. */
static enum MHD_Result query_take(void *cls, enum MHD_ValueKind kind,
                                  const char *name, size_t name_size,
                                  const char *value, size_t size)
{
    struct visit *v = cls;
    const struct serve_route *route = v->ask.path.route;
    enum serve_query which = serve_query_find(name, route->query);
    char known[128];

    (void)kind;
    if (which == QUERY_COUNT || strlen(name) != name_size)
        snprintf(query_flaw, sizeof query_flaw,
                 "\"%.64s\" is not known here; the query can have %s", name,
                 serve_query_list(route->query, known, sizeof known));
    else if (v->ask.query[which])
        snprintf(query_flaw, sizeof query_flaw, "%s is given twice", name);
    else if (!value || strlen(value) != size)
        snprintf(query_flaw, sizeof query_flaw,
                 "%s has no value, or a NUL "
                 "byte in it",
                 name);
    else if (!*value && which != QUERY_AFTER)
        snprintf(query_flaw, sizeof query_flaw,
                 "%s is empty; give a value or leave it out", name);
    else
        v->ask.query[which] = value;
    return query_flaw[0] ? MHD_NO : MHD_YES;
}

/* Check the head of a request. Returns the status with which to refuse it,
 * and why; 0 if it is in order. */
static unsigned request_check(struct visit *v, const char *method,
                              const char *url, const char **why)
{
    static const char json[] = "application/json";
    static char text[256]; /* the server has one thread */
    int status = serve_path_read(&v->ask.path, method, url);
    const struct serve_route *route = v->ask.path.route;
    const char *type = header_find(v, "Content-Type");
    bool open; /* no token is needed */
    char host[100], below[128];

    v->host = "";
    (void)MHD_get_connection_values(v->c, MHD_HEADER_KIND, header_count, v);
    if (!serve_host_ours(&v->site->guard, v->host)) {
        safe_text_copy(host, sizeof host, v->host, strlen(v->host));
        snprintf(text, sizeof text,
                 "the Host header \"%s\" does not name this server; start "
                 "it with --allow-host NAME to allow that name",
                 host);
        *why = text;
        return 421;
    }
    /* libmicrohttpd takes the first length; a proxy may take the other. */
    *why = "the request gives the length of its body twice";
    if (v->framings > 1)
        return 400;
    *why = "there is a NUL byte (%00) in the address";
    if (v->nul)
        return 400;
    *why = "the request has no valid token; open the address that mqctl serve "
           "prints, or send Authorization: Bearer TOKEN";
    open = route && (route->open || (route->what == SERVE_METRICS &&
                                     v->site->o->metrics_open));
    if (!open && !is_signed_in(v))
        return header_find(v, "Authorization") && token_wrong_count() ? 429
                                                                      : 401;
    guest_known(v->c, is_signed_in(v));
    if (status == 404)
        snprintf(text, sizeof text, "there is nothing at that path%s",
                 serve_queue_list(url, below, sizeof below));
    else
        snprintf(text, sizeof text, "this path does not allow %.20s; give %s",
                 method, v->ask.path.allow);
    *why = status == 501 ? "no path allows that method" : text;
    if (!route)
        return (unsigned)status;
    *why = route->write ? write_flaw(v) : NULL;
    if (*why)
        return 403;
    *why = "the body must be JSON: send Content-Type: application/json";
    if (route->write && v->framings > 0 &&
        (!type || strncasecmp(type, json, sizeof json - 1) != 0 ||
         !strchr("; \t", type[sizeof json - 1])))
        return 415;
    query_flaw[0] = '\0';
    if (route->what != SERVE_PAGE) /* whose query is for its scripts */
        (void)MHD_get_connection_values_n(v->c, MHD_GET_ARGUMENT_KIND,
                                          query_take, v);
    *why = query_flaw;
    return query_flaw[0] ? 400 : 0;
}

/* ---- signing in and out ---- */

/* Answer with a cookie and its key; the age 0 makes the browser delete it. */
static enum MHD_Result cookie_send(struct visit *v, const char *cookie,
                                   unsigned age_s, const char *key)
{
    char name[COOKIE_NAME], line[256];
    struct MHD_Response *r =
        MHD_create_response_from_buffer(0, (void *)"", MHD_RESPMEM_PERSISTENT);

    cookie_name(v, name);
    snprintf(line, sizeof line,
             "%s=%s; Path=/; Max-Age=%u; HttpOnly; SameSite=Lax%s", name,
             cookie, age_s, is_secure(v) ? "; Secure" : "");
    header_add(&r, "Set-Cookie", line);
    header_add(&r, "X-MQ-Key", key);
    return reply_send(v, 204, TYPE_JSON, r);
}

/* Begin a session if the body has the token, or end the session. */
static enum MHD_Result session_change(struct visit *v)
{
    char cookie[SERVE_COOKIE], key[SERVE_TOKEN];
    json_t *body = json_loadb(v->body ? v->body : "", v->size, 0, NULL);
    const char *token = json_string_value(json_object_get(body, "token"));
    bool right = token && serve_token_right(&v->site->guard, token);

    json_decref(body);
    if (!serve_site_ours(header_find(v, "Sec-Fetch-Site"),
                         header_find(v, "Origin"), v->host))
        return request_refuse(v, 403,
                              "the request comes from a page of another site");
    if (v->ask.path.route->what == SERVE_SESSION_END)
        return cookie_send(v, "", 0, NULL);
    if (!right)
        return request_refuse(v, token_wrong_count() ? 429 : 401,
                              "that is not the token of this server");
    serve_cookie_make(&v->site->guard,
                      clock_wall_ns() / NS_PER_S + SERVE_COOKIE_S, cookie);
    serve_key_make(&v->site->guard, cookie, key);
    return cookie_send(v, cookie, SERVE_COOKIE_S, key);
}

/* ---- looking ---- */

/* Resume a connection whose look has ended. */
static void look_ended(const struct look_end *end, void *owner)
{
    struct visit *v = owner;

    v->end = *end;
    v->answered = true;
    v->waiting = false;
    MHD_resume_connection(v->c);
}

/* Start a child that answers, and suspend the connection until it has ended. */
static enum MHD_Result look_begin(struct visit *v)
{
    struct ask_job job; /* for the child, which has a copy */
    pid_t pid;

    v->ask.o = v->site->o;
    v->ask.body = v->body ? v->body : "";
    v->ask.body_size = v->size;
    v->ask.look = rows_look(v->ask.path.queue);
    if (v->ask.path.route->what == SERVE_JOB_OUTCOME) {
        if (!job_rows(v->ask.path.row, &job))
            return request_refuse(
                v, 404,
                "there is no replay with that number, or it has too "
                "many letters to check each one; mqdlq list shows "
                "the ones that died again");
        v->ask.job = &job;
    }
    pid = look_start(&(struct look_job){
        .run = answer_print,
        .arg = &v->ask,
        .input = -1,
        .limit_s = v->ask.path.route->what == SERVE_CANCEL ? CANCEL_TIME_S
                                                           : LOOK_TIME_S,
        .ended = look_ended,
        .owner = v,
    });
    v->ask.job = NULL;
    v->ask.look = NULL; /* the next round may free it */
    if (pid == -EAGAIN)
        return request_refuse(v, 503, "too many requests at once; try again");
    if (pid < 0)
        return request_refuse(v, 503, errno_text((int)-pid));
    v->waiting = true;
    MHD_suspend_connection(v->c);
    return MHD_YES;
}

/* ---- answering ---- */

/* Log who changed what. The body of an edit is left out, because it has the
 * contents of a message. */
static void change_log(const struct visit *v, unsigned status)
{
    const char *user =
        v->site->o->behind_proxy ? header_find(v, "X-Forwarded-User") : NULL;
    size_t shown = v->ask.path.route->what == SERVE_EDIT ? 0
                   : v->size < 1024                      ? v->size
                                                         : 1024;

    log_info("web_write", F_STR("what", v->ask.path.route->pattern),
             F_STR("queue", v->ask.path.queue), F_STR("word", v->ask.path.word),
             F_INT("row", v->ask.path.row), F_STR("user", user),
             F_BYTES("body", v->body ? v->body : "", shown),
             F_UINT("status", status), F_STR("error", v->end.line));
}

/* Start a job that replays or discards the letters that the look printed. */
static enum MHD_Result job_begin(struct visit *v, const struct look_end *look)
{
    struct problem p;
    int64_t id = jobs_start(&v->ask, look, &p);
    char text[64], where[64];
    struct MHD_Response *r;

    if (id < 0)
        return problem_send(v, reply_status(p.status), p.status, p.text);
    snprintf(text, sizeof text, "{\"job\":\"%" PRId64 "\"}\n", id);
    snprintf(where, sizeof where, "/api/v1/jobs/%" PRId64, id);
    r = MHD_create_response_from_buffer(strlen(text), text,
                                        MHD_RESPMEM_MUST_COPY);
    header_add(&r, "Location", where);
    return reply_send(v, 202, TYPE_JSON, r);
}

/* Answer with the child's output, or with the reason for its absence. */
static enum MHD_Result look_answer(struct visit *v)
{
    const struct serve_route *route = v->ask.path.route;
    struct look_end end = v->end;
    unsigned status = reply_status(end.status);
    struct MHD_Response *r;
    char name[64];

    v->end.out = -1; /* `end` has the file now */
    if (route->write) {
        change_log(v, status);
        watch_soon();
    }
    if (status != 200) {
        close(end.out);
        return problem_send(v, status, end.status,
                            end.line[0] ? end.line
                                        : "the request was stopped early; see "
                                          "the log of mqctl serve");
    }
    if (route->what == SERVE_REPLAY || route->what == SERVE_DISCARD)
        return job_begin(v, &end);
    if (route->what != SERVE_BODY && route->what != SERVE_METRICS)
        return reply_json(v, look_output(&end));
    r = MHD_create_response_from_fd(end.size, end.out);
    if (!r)
        close(end.out);
    if (route->what == SERVE_METRICS)
        return reply_send(v, 200, TYPE_METRICS, r);
    snprintf(name, sizeof name, "attachment; filename=\"letter-%" PRId64 "\"",
             v->ask.path.row);
    header_add(&r, "Content-Disposition", name);
    return reply_send(v, 200, TYPE_BYTES, r);
}

/* Answer with JSON, and release it. */
static enum MHD_Result json_answer(struct visit *v, json_t *o)
{
    char *text = json_dumps(o, SERVE_JSON);

    json_decref(o);
    return reply_json(v, text);
}

/* Begin a stream of events: of all queues, and of the one in the query. */
static enum MHD_Result stream_begin(struct visit *v)
{
    const char *named = v->ask.query[QUERY_QUEUE];
    char queue[QUEUE_NAME_MAX] = "";
    struct MHD_Response *r;

    if (named)
        snprintf(queue, sizeof queue, "%s%s",
                 *named == '/' || strstr(named, "://") ? "" : "/", named);
    r = stream_open(v->c, header_find(v, "Last-Event-ID"),
                    rows_all(v->site->about), queue, rows_look(queue));
    if (!r)
        return request_refuse(v, 503, "too many event streams are open");
    watch_fast(true);
    header_add(&r, "X-Accel-Buffering", "no");
    return reply_send(v, 200, "text/event-stream", r);
}

/* Answer a complete request, or start the child that answers it. */
static enum MHD_Result request_serve(struct visit *v)
{
    const struct serve_path *path = &v->ask.path;
    json_t *o;
    int err;

    if (v->large)
        return request_refuse(v, 413, "the body is larger than 64 KiB");
    switch (path->route->what) {
    case SERVE_HEALTH:
        err = look_possible();
        if (err)
            return request_refuse(v, 503, errno_text(-err));
        return reply_send(v, 200, TYPE_TEXT,
                          MHD_create_response_from_buffer(
                              3, (void *)"ok\n", MHD_RESPMEM_PERSISTENT));
    case SERVE_FILE:
        return reply_file(v, 200, path->word[0] ? path->word : "icon.svg");
    case SERVE_PAGE:
        return reply_file(v, 200, NULL);
    case SERVE_SESSION:
    case SERVE_SESSION_END:
        return session_change(v);
    case SERVE_ABOUT:
        return json_answer(v, json_incref(v->site->about));
    case SERVE_OVERVIEW:
        return json_answer(v, rows_all(v->site->about));
    case SERVE_SPARKS:
        return json_answer(v, history_sparks());
    case SERVE_EVENTS:
        return stream_begin(v);
    case SERVE_JOBS:
    case SERVE_JOB:
    case SERVE_JOB_STOP:
        o = jobs_json(path->row);
        if (!o)
            return request_refuse(
                v, 404,
                "no such job; the server keeps its most recent jobs until it "
                "stops");
        if (path->route->what == SERVE_JOB_STOP)
            job_stop(path->row);
        return json_answer(v, o);
    default:
        return look_begin(v);
    }
}

void *request_begin(void *cls, const char *uri, struct MHD_Connection *c)
{
    struct visit *v = calloc(1, sizeof *v);

    if (!v)
        return NULL;
    v->c = c;
    v->site = cls;
    v->end.out = -1;
    /* libmicrohttpd passes the path decoded and as a string, which a NUL byte
     * would cut. */
    v->nul = strstr(uri, "%00") != NULL;
    v->api = strncmp(uri, "/api/", 5) == 0;
    LIST_INSERT_HEAD(&visits, v, link);
    return v;
}

enum MHD_Result request_handle(void *cls, struct MHD_Connection *c,
                               const char *url, const char *method,
                               const char *version, const char *data,
                               size_t *size, void **visit)
{
    struct visit *v = *visit;
    const char *why = NULL;
    unsigned status;
    size_t added;
    char *more;

    (void)version, (void)c, (void)cls;
    if (!v)
        return MHD_NO;
    if (!v->begun) {
        v->begun = true;
        status = request_check(v, method, url, &why);
        return status ? request_refuse(v, status, why) : MHD_YES;
    }
    if (*size) {
        added = *size;
        *size = 0;
        /* Skip the bytes of a body that is too large: such a request is refused
         * when the whole body has arrived. */
        v->large = v->large || v->size + added > BODY_MAX;
        if (v->large)
            return MHD_YES;
        more = realloc(v->body, v->size + added + 1);
        if (!more)
            return MHD_NO;
        memcpy(more + v->size, data, added);
        v->body = more;
        v->size += added;
        more[v->size] = '\0';
        return MHD_YES;
    }
    return v->answered ? look_answer(v) : request_serve(v);
}

void request_over(void *cls, struct MHD_Connection *c, void **visit,
                  enum MHD_RequestTerminationCode why)
{
    struct visit *v = *visit;
    const struct serve_route *route = v ? v->ask.path.route : NULL;

    (void)cls, (void)why;
    if (!v)
        return;
    guest_known(c, false);
    LIST_REMOVE(v, link);
    /* The client left before look_answer() ran. Log a change that the look made
     * nevertheless; a job has not begun. */
    if (v->end.out >= 0) {
        bool job = route->what == SERVE_REPLAY || route->what == SERVE_DISCARD;

        if (job)
            strlcpy(v->end.line, "the client left before the job began",
                    sizeof v->end.line);
        if (route->write)
            change_log(v, job ? CLIENT_LEFT : reply_status(v->end.status));
        close(v->end.out);
    }
    free(v->body);
    free(v);
    *visit = NULL;
}

void requests_end(void)
{
    struct visit *v;

    LIST_FOREACH (v, &visits, link)
        if (v->waiting) {
            v->waiting = false;
            v->answered = true;
            v->end = (struct look_end){.status = -1, .out = -1};
            MHD_resume_connection(v->c);
        }
}

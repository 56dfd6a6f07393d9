/* reply.c - see reply.h */
#include "scripts/mqctl/serve/reply.h"

#include <bsd/string.h>
#include <jansson.h>
#include <sha2.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "common/cli/json_line.h"
#include "scripts/mqctl/serve/ask/ask.h"

/* Scripts and styles are files of ours, and no text in the page is one. No page
 * of another site may show ours in a frame, and no form of it is ever sent. */
#define POLICY                                                                \
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src "   \
    "'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; " \
    "form-action 'none'; require-trusted-types-for 'script'; trusted-types "  \
    "'none'"

#define BEARER "Bearer realm=\"mqctl serve\""

static const char *const headers[][2] = {
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"X-Frame-Options", "DENY"},
};

enum MHD_Result reply_send(struct MHD_Connection *c, unsigned status,
                           const char *type, struct MHD_Response *r)
{
    bool body = strcmp(type, REPLY_BYTES) == 0;
    enum MHD_Result ok = MHD_YES;

    if (!r)
        return MHD_NO;
    for (size_t i = 0; i < sizeof headers / sizeof *headers && ok; i++)
        ok = MHD_add_response_header(r, headers[i][0], headers[i][1]);
    if (ok)
        ok = MHD_add_response_header(r, "Content-Security-Policy",
                                     body ? "sandbox; default-src 'none'"
                                          : POLICY);
    if (ok && !MHD_get_response_header(r, "Cache-Control"))
        ok = MHD_add_response_header(r, "Cache-Control", "no-store");
    if (ok)
        ok = MHD_add_response_header(r, "Content-Type", type);
    if (ok)
        ok = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return ok;
}

enum MHD_Result reply_text(struct MHD_Connection *c, unsigned status,
                           const char *type, const char *text)
{
    return reply_send(c, status, type,
                      MHD_create_response_from_buffer(
                          strlen(text), (void *)text, MHD_RESPMEM_MUST_COPY));
}

/* Return the words that go with a status. */
static const char *status_title(unsigned status)
{
    static const struct {
        unsigned status;
        const char *title;
    } titles[] = {
        {400, "Bad request"},
        {401, "A token is needed"},
        {403, "Not allowed"},
        {404, "Not found"},
        {405, "Method not allowed"},
        {409, "Changed in the meantime"},
        {413, "Too large"},
        {415, "Unsupported format"},
        {421, "Not a name of this server"},
        {429, "Too many wrong tokens"},
        {501, "Unknown method"},
        {503, "Not available"},
        {504, "Timed out"},
    };

    for (size_t i = 0; i < sizeof titles / sizeof *titles; i++)
        if (titles[i].status == status)
            return titles[i].title;
    return "Something went wrong";
}

enum MHD_Result reply_problem(struct MHD_Connection *c,
                              const struct reply_problem *p)
{
    const char *title = status_title(p->status);
    struct MHD_Response *r = NULL;
    char *text = NULL;
    json_t *o;

    /* The page signs in, and shows that an address is wrong. A server that was
     * called by a foreign name does not send it. */
    if (p->person && (p->status == 401 || p->status == 404))
        return reply_page(c, p->status);
    if (p->person) {
        if (asprintf(&text, "%s: %s\n", title, p->line) < 0)
            text = NULL;
    } else {
        o = json_pack("{s:s, s:s, s:i, s:o}", "type", "about:blank", "title",
                      title, "status", (int)p->status, "detail",
                      json_printable(p->line));
        if (p->exit_status)
            json_object_set_new(o, "exit_status", json_integer(p->exit_status));
        text = json_dumps(o, JSON_COMPACT);
        json_decref(o);
    }
    if (text)
        r = MHD_create_response_from_buffer(strlen(text), text,
                                            MHD_RESPMEM_MUST_FREE);
    if (r && p->status == 401)
        (void)MHD_add_response_header(r, "WWW-Authenticate", BEARER);
    if (r && p->status == 405)
        (void)MHD_add_response_header(r, "Allow", p->allow);
    return reply_send(c, p->status,
                      p->person ? "text/plain; charset=utf-8"
                                : "application/problem+json",
                      r);
}

/* Return a header of the request; "" if it has none. */
static const char *header_of(struct MHD_Connection *c, const char *name)
{
    const char *value = MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);

    return value ? value : "";
}

enum MHD_Result reply_json(struct MHD_Connection *c, char *text)
{
    char tag[SHA256_DIGEST_STRING_LENGTH + 2] = "\"";
    struct MHD_Response *r = NULL;
    size_t size = text ? strlen(text) : 0;
    bool same;

    if (!text)
        return MHD_NO;
    SHA256Data((const uint8_t *)text, size, tag + 1);
    strlcat(tag, "\"", sizeof tag);
    same = strcmp(header_of(c, "If-None-Match"), tag) == 0;
    if (same)
        *text = '\0';
    r = MHD_create_response_from_buffer(same ? 0 : size, text,
                                        MHD_RESPMEM_MUST_FREE);
    if (!r)
        free(text);
    if (r && (!MHD_add_response_header(r, "ETag", tag) ||
              !MHD_add_response_header(r, "Cache-Control", "no-cache"))) {
        MHD_destroy_response(r);
        r = NULL;
    }
    return reply_send(c, same ? 304 : 200, REPLY_JSON, r);
}

/* Return the file of that name, the compressed one if the client takes it. */
static const struct serve_file *file_find(struct MHD_Connection *c,
                                          const char *name)
{
    bool zip = strstr(header_of(c, "Accept-Encoding"), "gzip") != NULL;
    char wanted[SERVE_WORD + 4];

    snprintf(wanted, sizeof wanted, "%s%s", name, zip ? ".gz" : "");
    for (size_t i = 0; i < serve_file_count; i++)
        if (strcmp(serve_files[i].name, wanted) == 0)
            return &serve_files[i];
    return NULL;
}

/* Send a file with its headers. */
static enum MHD_Result file_send(struct MHD_Connection *c,
                                 const struct serve_file *f, unsigned status,
                                 const char *type)
{
    bool same =
        status == 200 && strcmp(header_of(c, "If-None-Match"), f->etag) == 0;
    bool zip = strcmp(f->name + strlen(f->name) - 3, ".gz") == 0;
    struct MHD_Response *r = MHD_create_response_from_buffer(
        same ? 0 : f->size, (void *)f->bytes, MHD_RESPMEM_PERSISTENT);

    if (r &&
        (!MHD_add_response_header(r, "ETag", f->etag) ||
         !MHD_add_response_header(r, "Cache-Control", "no-cache") ||
         !MHD_add_response_header(r, "Vary", "Accept-Encoding") ||
         (zip && !MHD_add_response_header(r, "Content-Encoding", "gzip")) ||
         (status == 401 &&
          !MHD_add_response_header(r, "WWW-Authenticate", BEARER)))) {
        MHD_destroy_response(r);
        r = NULL;
    }
    return reply_send(c, same ? 304 : status, type, r);
}

enum MHD_Result reply_page(struct MHD_Connection *c, unsigned status)
{
    const struct serve_file *f = file_find(c, "index.html");

    return f ? file_send(c, f, status, REPLY_HTML) : MHD_NO;
}

enum MHD_Result reply_file(struct MHD_Connection *c, const char *name)
{
    static const char *const types[][2] = {
        {".js", "text/javascript; charset=utf-8"},
        {".css", "text/css; charset=utf-8"},
        {".svg", "image/svg+xml"},
    };
    const char *dot = strrchr(name, '.');
    const struct serve_file *f = file_find(c, name);

    for (size_t i = 0; f && i < sizeof types / sizeof *types; i++)
        if (dot && strcmp(dot, types[i][0]) == 0)
            return file_send(c, f, 200, types[i][1]);
    return reply_problem(
        c, &(struct reply_problem){.status = 404,
                                   .line = "there is no such file"});
}

unsigned reply_status(int exit_status)
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

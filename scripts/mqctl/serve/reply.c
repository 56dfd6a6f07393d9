/* reply.c - see reply.h */
#include "scripts/mqctl/serve/reply.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "common/cli/json_line.h"
#include "scripts/mqctl/serve/ask/ask.h"

/* Scripts and styles are files of ours, no text in a page is one; no page of
 * another site may show us in a frame. Forms look (GET) or log in. */
#define POLICY                                                               \
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src "  \
    "'self'; img-src 'self'; frame-ancestors 'none'; base-uri 'none'; "      \
    "form-action 'self'; require-trusted-types-for 'script'; trusted-types " \
    "'none'"

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
    size_t size = 0;
    FILE *out;
    json_t *o;

    if (p->page && (out = open_memstream(&text, &size)) != NULL) {
        page_message(out, title, p->line, p->login);
        fclose(out);
    } else if (!p->page) {
        o = json_pack("{s:s, s:s, s:i, s:o}", "type", "about:blank", "title",
                      title, "status", (int)p->status, "detail",
                      json_printable(p->line));
        if (p->exit_status)
            json_object_set_new(o, "exit_status", json_integer(p->exit_status));
        text = json_dumps(o, JSON_COMPACT);
        json_decref(o);
        size = text ? strlen(text) : 0;
    }
    if (text)
        r = MHD_create_response_from_buffer(size, text, MHD_RESPMEM_MUST_FREE);
    if (r && p->status == 401)
        (void)MHD_add_response_header(r, "WWW-Authenticate",
                                      "Bearer realm=\"mqctl serve\"");
    if (r && p->status == 405)
        (void)MHD_add_response_header(r, "Allow", p->allow);
    return reply_send(c, p->status,
                      p->page ? REPLY_HTML : "application/problem+json", r);
}

enum MHD_Result reply_file(struct MHD_Connection *c, const char *name)
{
    const char *has =
        MHD_lookup_connection_value(c, MHD_HEADER_KIND, "If-None-Match");
    const char *dot = strrchr(name, '.');
    /* A page without its data is not served; no other file lacks a dot. */
    bool page = !dot || strcmp(dot, ".html") == 0;

    for (size_t i = 0; i < serve_file_count && !page; i++) {
        const struct serve_file *f = &serve_files[i];
        bool same = has && strcmp(has, f->etag) == 0;
        struct MHD_Response *r;

        if (strcmp(f->name, name) != 0)
            continue;
        r = MHD_create_response_from_buffer(
            same ? 0 : f->size, (void *)f->bytes, MHD_RESPMEM_PERSISTENT);
        if (r && (!MHD_add_response_header(r, "ETag", f->etag) ||
                  !MHD_add_response_header(r, "Cache-Control", "no-cache"))) {
            MHD_destroy_response(r);
            r = NULL;
        }
        return reply_send(c, same ? 304 : 200,
                          strcmp(dot, ".js") == 0
                              ? "text/javascript; charset=utf-8"
                          : strcmp(dot, ".css") == 0 ? "text/css; charset=utf-8"
                                                     : "image/svg+xml",
                          r);
    }
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

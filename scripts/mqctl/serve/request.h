/* request.h - one request, from its first line to its answer
 *
 * WHAT   Checks a request in this order: the name of the server, the token,
 *        the path, the rules for changes. Then answers with what a child
 *        prints, with a problem (RFC 9457), or with a file that is built into
 *        the program. The page is such a file; its scripts ask for everything
 *        that it shows.
 * WHO    libmicrohttpd calls the first three from MHD_run, and serve.c the
 *        last; both on the server's only thread.
 * OWNS   A struct visit for each request.
 * FAILS  With an answer that says why.
 */
#ifndef SCRIPTS_MQCTL_SERVE_REQUEST_H
#define SCRIPTS_MQCTL_SERVE_REQUEST_H

#include <jansson.h>
#include <microhttpd.h>

#include "scripts/mqctl/mqctl.h"
#include "scripts/mqctl/serve/guard.h"

struct serve_site {
    const struct serve_options *o;
    struct serve_guard guard;
    json_t *about; /* of the server: its host, its version, what it allows */
};

/* The callbacks of libmicrohttpd: MHD_OPTION_URI_LOG_CALLBACK, whose result is
 * the `visit` of the others, MHD_AccessHandlerCallback and
 * MHD_RequestCompletedCallback. `cls` is the site. */
void *request_begin(void *cls, const char *uri, struct MHD_Connection *c);
enum MHD_Result request_handle(void *cls, struct MHD_Connection *c,
                               const char *url, const char *method,
                               const char *version, const char *data,
                               size_t *size, void **visit);
void request_over(void *cls, struct MHD_Connection *c, void **visit,
                  enum MHD_RequestTerminationCode why);
/* Answer the requests whose looks are stopped with the server. */
void requests_end(void);

#endif

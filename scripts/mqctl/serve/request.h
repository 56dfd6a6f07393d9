/* request.h - one request, from its first line to its answer
 *
 * WHAT   Checks who asks, in this order: the name that we were called by, the
 *        token, the path, the rules for what changes something. Then has a
 *        child look, and answers with what that prints.
 * WHO    libmicrohttpd, in the server's thread.
 * OWNS   A struct visit for each request.
 * FAILS  By an answer.
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
/* The server ends: no look will. */
void requests_end(void);

#endif

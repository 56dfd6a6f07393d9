/* guard.h - who may send requests
 *
 * WHAT   Checks the name by which a server was addressed, the site that a
 *        request comes from, the token, and the cookie that replaces it.
 * WHO    serve.c loads the token when it starts, request.c checks each
 *        request; one thread.
 * OWNS   Nothing; the names belong to the command line.
 * FAILS  serve_token_load: a problem, 73 or 77; serve_group_find: 64.
 *
 * A page of another site can make a browser send requests to this server, and
 * the site's own name can begin to mean this address while the page is open
 * (DNS rebinding). serve_site_ours refuses requests from a page of another
 * site; after DNS rebinding, the Host header still has the other name, which
 * serve_host_ours refuses.
 */
#ifndef SCRIPTS_MQCTL_SERVE_GUARD_H
#define SCRIPTS_MQCTL_SERVE_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/problem.h"

#define SERVE_TOKEN    65 /* 64 hex digits and NUL */
#define SERVE_COOKIE   (16 + 1 + SERVE_TOKEN)
#define SERVE_COOKIE_S 43200u /* 12 hours */

struct serve_guard {
    const char *const *names; /* --allow-host */
    size_t name_count;
    char own[256]; /* address to listen on; "": a UNIX socket */
    unsigned port; /* 0: any, for a UNIX socket */
    bool secure;   /* the server speaks TLS */
    char token[SERVE_TOKEN];
};

/* Return true if a Host header names this server. */
bool serve_host_ours(const struct serve_guard *g, const char *host);
/* Return true if a request comes from a page of this server, or from no page.
 * `site` is its Sec-Fetch-Site, `origin` its Origin; NULL: not sent. */
bool serve_site_ours(const char *site, const char *origin, const char *host);

#define SERVE_NOBODY ((gid_t)-1)
/* Find a group by name or number; 0 or a problem. */
int serve_group_find(const char *name, gid_t *out, struct problem *p);
/* Read the token from the file `path`, which is made if it is missing. The file
 * must be readable by its owner and the group `readers` (SERVE_NOBODY: no
 * group), and by nobody else. So a server without --group refuses a token that
 * a group can read. */
int serve_token_load(struct serve_guard *g, const char *path, gid_t readers,
                     struct problem *p);
bool serve_token_right(const struct serve_guard *g, const char *text);
/* Make a cookie that is valid until a time, and check one. */
void serve_cookie_make(const struct serve_guard *g, uint64_t until_s,
                       char out[SERVE_COOKIE]);
bool serve_cookie_right(const struct serve_guard *g, const char *text,
                        uint64_t now_s);
/* A browser sends a cookie to every port of a host, so servers of other users
 * may see the cookie. A change with a cookie therefore also needs the cookie's
 * key. Only the page that signed in gets the key, and keeps it in the storage
 * of its origin. */
void serve_key_make(const struct serve_guard *g, const char *cookie,
                    char out[SERVE_TOKEN]);
bool serve_key_right(const struct serve_guard *g, const char *cookie,
                     const char *key);
/* Return the port in a Host header; 0 if there is none. */
unsigned serve_host_port(const char *host);

#endif

/* guard.h - who may ask
 *
 * WHAT   The name by which a server was addressed, the site that a request
 *        comes from, the token, and the cookie that stands for it.
 * WHO    One thread.
 * OWNS   Nothing; the names are the command line's.
 * FAILS  serve_token_load: a problem, 73 or 77; serve_group_find: 64.
 *
 * A page of another site can make a browser send requests to us, and a name of
 * its own can come to mean our address while the page is open (DNS rebinding).
 * The first cannot set headers of ours, the second cannot have our name.
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
    char own[256]; /* the address that was given; "": a socket by path */
    unsigned port; /* 0: any, as of a UNIX socket */
    bool secure;   /* TLS is spoken */
    char token[SERVE_TOKEN];
};

/* Whether a Host header is ours. */
bool serve_host_ours(const struct serve_guard *g, const char *host);
/* Whether a request comes from a page of ours, or from no page: `site` is its
 * Sec-Fetch-Site, `origin` its Origin; NULL: not sent. */
bool serve_site_ours(const char *site, const char *origin, const char *host);

#define SERVE_NOBODY ((gid_t)-1)
/* The group of that name, or number; 0 or a problem. */
int serve_group_find(const char *name, gid_t *out, struct problem *p);
/* Read the token from `path`, which is made if it is missing. `readers`: who
 * can read the file besides its owner, and must be able to. A token that a
 * group knows is never that of a server whose file only its owner reads. */
int serve_token_load(struct serve_guard *g, const char *path, gid_t readers,
                     struct problem *p);
bool serve_token_right(const struct serve_guard *g, const char *text);
/* A cookie that is good until then, and whether one is. */
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

/* listen.h - where the server listens
 *
 * WHAT   An address as it was given, checked, and a socket for it; or the one
 *        that systemd hands over.
 * WHO    serve_run, once.
 * OWNS   Nothing; the caller closes the socket.
 * FAILS  listen_open: a problem.
 */
#ifndef SCRIPTS_MQCTL_SERVE_LISTEN_H
#define SCRIPTS_MQCTL_SERVE_LISTEN_H

#include "common/base/problem.h"
#include "scripts/mqctl/mqctl.h"
#include "scripts/mqctl/serve/guard.h"

#define SERVE_LISTEN "127.0.0.1:8480"

/* The socket; fills the name and port of `g`. */
int listen_open(const struct serve_options *o, struct serve_guard *g,
                struct problem *p);

#endif

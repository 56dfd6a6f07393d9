/* guests.h - the connections, and which is closed if there are too many
 *
 * WHAT   Takes connections from the listening socket. If there are too many, of
 *        one address or in all, closes the oldest that has not shown a token:
 *        it may be idle, have sent half a request, or read a page that needs no
 *        token. A connection whose request came with a token stays.
 * WHO    serve.c accepts connections, libmicrohttpd reports their begin and
 *        end, and request.c the tokens; all on the server's only thread.
 * OWNS   An entry for each connection, while libmicrohttpd has it.
 * FAILS  A connection that cannot be taken is closed.
 */
#ifndef SCRIPTS_MQCTL_SERVE_GUESTS_H
#define SCRIPTS_MQCTL_SERVE_GUESTS_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>

#define GUESTS_MAX     256 /* without a token */
#define GUESTS_OF_PEER 64  /* without a token, of one address */
#define GUESTS_A_TURN  64  /* accepted by one call of guests_take */
#define GUEST_TIME_S   15  /* to show a token, or to read what needs no token */

/* Accept the connections that wait at `listener`; close older ones if there are
 * too many. */
void guests_take(struct MHD_Daemon *daemon, int listener);
/* Return true while no descriptor is left for another connection: do not poll
 * the listening socket then. */
bool guests_full(uint64_t now_ns);
/* Close timed-out connections. Returns when to call again (monotonic, ns);
 * UINT64_MAX: never. */
uint64_t guests_keep(uint64_t now_ns);
/* Note that a request of the connection has shown a token, or is over. */
void guest_known(struct MHD_Connection *c, bool known);
/* MHD_NotifyConnectionCallback */
void guest_notify(void *cls, struct MHD_Connection *c, void **guest,
                  enum MHD_ConnectionNotificationCode code);

#endif

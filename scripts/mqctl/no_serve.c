/* no_serve.c - mqctl serve where libmicrohttpd was not there to build it
 * with (see mqctl.h) */
#include <sysexits.h>

#include "common/cli/complain.h"
#include "scripts/mqctl/mqctl.h"

int serve_run(const struct options *o)
{
    (void)o;
    return complain(EX_UNAVAILABLE,
                    "serve: this mqctl was built without libmicrohttpd; "
                    "install its headers (scripts/deps does), and build again");
}

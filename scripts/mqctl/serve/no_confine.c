/* no_confine.c - mqctl serve in a build without libseccomp (see confine.h) */
#include "common/base/log.h"
#include "scripts/mqctl/serve/confine.h"

void confine(bool write)
{
    (void)write;
    log_warn("web_unconfined", F_STR("error", "built without libseccomp"),
             F_STR("next", "mqctl serve runs without a filter of system calls; "
                           "for one, install libseccomp with scripts/deps and "
                           "build again"));
}

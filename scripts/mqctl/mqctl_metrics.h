/* mqctl_metrics.h - metrics: numbers of all workers for Prometheus
 *
 * WHAT   Text format 0.0.4, one family after the other, one sample for each
 *        queue; to stdout, or to a file that is replaced whole.
 * WHO    main.
 * OWNS   Nothing.
 * FAILS  An exit status; a file stays as it was then.
 */
#ifndef SCRIPTS_MQCTL_MQCTL_METRICS_H
#define SCRIPTS_MQCTL_MQCTL_METRICS_H

#include "scripts/mqctl/mqctl_options.h"

int metrics_run(const struct options *o);

#endif

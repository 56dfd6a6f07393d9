/* mqctl.c - look at workers and steer them (docs/mqctl.1) */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "scripts/mqctl/doctor/mqctl_doctor.h"
#include "scripts/mqctl/mqctl_explain.h"
#include "scripts/mqctl/mqctl_metrics.h"
#include "scripts/mqctl/mqctl_options.h"
#include "scripts/mqctl/mqctl_queues.h"
#include "scripts/mqctl/mqctl_complain.h"
#include "scripts/mqctl/mqctl_status.h"
#include "scripts/mqctl/mqctl_steer.h"
#include "scripts/mqctl/top/mqctl_top.h"

/* output_end - stdout may be a file on a full disk */
static int output_end(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    return complain(EX_IOERR, "cannot write the output: %s", strerror(errno));
}

static int (*const runs[VERB_COUNT])(const struct options *) = {
    [VERB_STATUS] = status_run,   [VERB_PAUSE] = steer_run,
    [VERB_RESUME] = steer_run,    [VERB_SET] = steer_run,
    [VERB_DRAIN] = steer_run,     [VERB_STOP] = steer_run,
    [VERB_QUIT] = steer_run,      [VERB_QUEUES] = queues_run,
    [VERB_EXPLAIN] = explain_run, [VERB_METRICS] = metrics_run,
    [VERB_DOCTOR] = doctor_run,   [VERB_TOP] = top_run,
    [VERB_CREATE] = create_run,   [VERB_REMOVE] = remove_run,
};

/* main - mqctl */
int main(int argc, char **argv)
{
    static struct options o;
    struct problem p = {0};
    const char *word = argc > 1 ? argv[1] : "";
    int asked = options_complete(argc, argv);

    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is a full disk */
    if (asked >= 0)
        return asked;
    o.verb = verb_parse(word);
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        help_print(VERB_COUNT, stdout);
        return output_end(0);
    }
    if (strcmp(word, "--version") == 0) {
        puts("mqctl " MQW_VERSION);
        return output_end(0);
    }
    if (o.verb == VERB_COUNT)
        return complain(
            EX_USAGE,
            "%s%s%s; give queues, status, top, pause, resume, set, "
            "drain, stop, quit, explain, doctor, metrics, create or "
            "remove first",
            *word ? "\"" : "no verb given", word,
            *word ? "\" is not a verb" : "");
    if (options_read(&o, argc, argv, &p) != 0)
        return complain_of(&p);
    if (!o.help)
        return output_end(runs[o.verb](&o));
    help_print(o.verb, stdout);
    return output_end(0);
}

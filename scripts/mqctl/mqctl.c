/* mqctl.c - inspect and control workers (docs/mqctl.1) */
#include "scripts/mqctl/mqctl.h"

#include <signal.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/base/safe_text.h"
#include "common/broker/broker_engine.h"
#include "common/cli/complain.h"
#include "common/cli/json_line.h"
#include "common/cli/term.h"

/* Explain a verb of systemd that people may try. Returns an exit status, or -1
 * if the verb is none of these. */
static int systemd_tell(int argc, char **argv)
{
    const char *verb = argc > 1 ? argv[1] : "";
    const char *queue = argc > 2 && argv[2][0] != '-' ? argv[2] : "NAME";
    bool logs = strcmp(verb, "logs") == 0 || strcmp(verb, "log") == 0;

    queue += queue[0] == '/';
    complain_as("mqctl");
    if (logs)
        return complain(EX_USAGE,
                        "\"%s\" is not a verb: a worker logs to its stderr, "
                        "under systemd: journalctl -u mqworker@%s",
                        verb, queue);
    if (strcmp(verb, "start") == 0 || strcmp(verb, "restart") == 0)
        return complain(EX_USAGE,
                        "\"%s\" is not a verb: mqctl does not start workers; "
                        "under systemd: systemctl %s mqworker@%s, else: "
                        "mqworker /%s -- COMMAND",
                        verb, verb, queue, SHELL_QUEUE(queue));
    return -1;
}

int main(int argc, char **argv)
{
    static int (*const runs[VERB_COUNT])(const struct options *) = {
        [VERB_STATUS] = status_run,
        [VERB_PAUSE] = steer_run,
        [VERB_RESUME] = steer_run,
        [VERB_SET] = steer_run,
        [VERB_DRAIN] = steer_run,
        [VERB_STOP] = steer_run,
        [VERB_QUIT] = steer_run,
        [VERB_QUEUES] = queues_run,
        [VERB_EXPLAIN] = explain_run,
        [VERB_METRICS] = metrics_run,
        [VERB_DOCTOR] = doctor_run,
        [VERB_TOP] = top_run,
        [VERB_CREATE] = create_run,
        [VERB_REMOVE] = remove_run,
        [VERB_FORGET] = forget_run,
        [VERB_MOVE] = move_run,
        [VERB_LIST] = list_run,
        [VERB_RUN_NOW] = steer_messages_run,
        [VERB_CANCEL] = steer_messages_run,
        [VERB_SERVE] = serve_run,
        [VERB_GROUPS] = groups_run,
        [VERB_GROUP] = group_run,
        [VERB_KEYS] = keys_run,
    };
    static struct options o = {.interval_ns = NS_PER_S,
                               .filter.states = WAITING_ALL,
                               .groups = (1u << GROUP_IS_COUNT) - 1};
    int status;

    json_needs_memory();
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is a full disk */
    status = systemd_tell(argc, argv);
    if (status >= 0)
        return status;
    status = subcommand_begin(&mqctl_table, argc, argv, &o.line);
    if (status >= 0)
        return status;
    term_time_local(!o.json && !o.utc && o.line.verb != VERB_SERVE &&
                    term_is_terminal(stdout));
    return complain_output(runs[o.line.verb](&o));
}

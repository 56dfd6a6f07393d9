/* mqctl.c - inspect and control workers (docs/mqctl.1) */
#include "scripts/mqctl/mqctl.h"

#include <signal.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/base/safe_text.h"
#include "common/cli/complain.h"
#include "common/cli/json_line.h"
#include "common/cli/term.h"

int main(int argc, char **argv)
{
    static struct options o = {.interval_ns = NS_PER_S,
                               .filter.states = WAITING_ALL,
                               .groups = (1u << GROUP_IS_COUNT) - 1};
    const char *verb = argc > 1 ? argv[1] : "";
    const char *queue = argc > 2 && argv[2][0] != '-' ? argv[2] : "NAME";
    int status;

    json_needs_memory();
    signal(SIGXFSZ, SIG_IGN); /* a write at that limit then returns EFBIG */
    /* Name the commands of systemd for verbs that only systemd has. */
    queue += queue[0] == '/';
    complain_as("mqctl");
    if (strcmp(verb, "logs") == 0 || strcmp(verb, "log") == 0)
        return complain(EX_USAGE,
                        "\"%s\" is not a verb: a worker logs to its stderr; "
                        "under systemd, see journalctl -u mqworker@%s",
                        verb, queue);
    if (strcmp(verb, "start") == 0 || strcmp(verb, "restart") == 0)
        return complain(EX_USAGE,
                        "\"%s\" is not a verb: mqctl starts no workers. Under "
                        "systemd, run systemctl %s mqworker@%s, otherwise "
                        "mqworker /%s -- COMMAND",
                        verb, verb, queue, SHELL_QUEUE(queue));
    status = subcommand_begin(&mqctl_table, argc, argv, &o.line);
    if (status >= 0)
        return status;
    term_time_local(!o.json && !o.utc && o.line.verb != VERB_SERVE &&
                    term_is_terminal(stdout));
    return complain_output(mqctl_table.verbs[o.line.verb].run(&o));
}

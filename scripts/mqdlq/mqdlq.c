/* mqdlq.c - inspect, replay and discard dead letters (docs/mqdlq.1) */
#include "scripts/mqdlq/mqdlq.h"

#include <signal.h>

#include "common/text/complain.h"
#include "common/text/json_line.h"
#include "common/text/term.h"
#include "common/text/term_time.h"

/* main - mqdlq */
int main(int argc, char **argv)
{
    static int (*const runs[VERB_COUNT])(struct context *) = {
        [VERB_LIST] = list_run,     [VERB_SHOW] = show_run,
        [VERB_REPLAY] = replay_run, [VERB_DISCARD] = remove_run,
        [VERB_PURGE] = remove_run,  [VERB_EXPORT] = export_run,
        [VERB_IMPORT] = import_run,
    };
    static struct options o;
    static struct context ctx;
    int status;

    json_needs_memory();
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is a full disk */
    status = subcommand_begin(&mqdlq_table, argc, argv, &o.line);
    if (status >= 0)
        return status;
    term_time_local(!o.json && !o.utc && (o.local || term_is_terminal(stdout)));
    if (o.line.verb == VERB_LIST && o.line.operand_count == 0)
        return complain_output(queues_run(&o));
    status = context_open(&ctx, &o, o.line.verb == VERB_IMPORT);
    if (!status) {
        cli_interrupt_catch();
        status = complain_output(runs[o.line.verb](&ctx));
    }
    status = status_worse(status, context_close(&ctx));
    cli_interrupt_die();
    return status;
}

/* mqdlq.c - inspect, replay and discard dead letters (docs/mqdlq.1) */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "common/text/cli_interrupt.h"
#include "scripts/mqdlq/mqdlq_context.h"
#include "scripts/mqdlq/mqdlq_import.h"
#include "scripts/mqdlq/mqdlq_list.h"
#include "scripts/mqdlq/mqdlq_options.h"
#include "scripts/mqdlq/mqdlq_remove.h"
#include "scripts/mqdlq/mqdlq_replay.h"
#include "scripts/mqdlq/mqdlq_show.h"

/* output_end - stdout may be a file on a full disk */
static int output_end(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    return context_say(EX_IOERR, "cannot write the output: %s",
                       strerror(errno));
}

/* verb_run - the exit status of the verb */
static int verb_run(const struct options *o)
{
    static int (*const runs[VERB_COUNT])(struct context *) = {
        [VERB_LIST] = list_run,     [VERB_SHOW] = show_run,
        [VERB_REPLAY] = replay_run, [VERB_DISCARD] = remove_run,
        [VERB_PURGE] = remove_run,  [VERB_EXPORT] = export_run,
        [VERB_IMPORT] = import_run,
    };
    static struct context d;
    int status = context_open(&d, o, o->verb == VERB_IMPORT);
    if (!status) {
        cli_interrupt_catch();
        status = output_end(runs[o->verb](&d));
    }
    context_close(&d);
    cli_interrupt_die();
    return status;
}

/* main - mqdlq */
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
        puts("mqdlq " MQW_VERSION);
        return output_end(0);
    }
    if (o.verb == VERB_COUNT)
        return context_say(EX_USAGE,
                           "%s%s%s; give list, show, replay, discard, purge, "
                           "export or import first",
                           *word ? "\"" : "no verb given", word,
                           *word ? "\" is not a verb" : "");
    if (options_read(&o, argc, argv, &p) != 0)
        return context_say(p.status, "%s", p.text);
    if (!o.help)
        return verb_run(&o);
    help_print(o.verb, stdout);
    return output_end(0);
}

/* main.c - the mqworker program (docs/mqworker.8) */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/text/complain.h"
#include "common/text/term.h"
#include "worker/config/settings.h"
#include "worker/engine.h"
#include "worker/handlers/handler_inproc.h"
#include "worker/notify.h"

/* descriptors_ready - only 0, 1, 2 and the passed ones stay open: handlers must
 * not inherit a descriptor that our parent forgot to close */
static void descriptors_ready(int passed)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= 2);
    closefrom(3 + passed);
}

/* kind_of - the handler that was asked for */
static const struct handler_ops *kind_of(const struct settings *s)
{
    return s->forward  ? &handler_forward
           : s->plugin ? &handler_plugin
           : s->stream ? &handler_stream
                       : &handler_exec;
}

int main(int argc, char **argv, char **envp)
{
    struct settings settings;
    struct engine *engine;
    struct notify notify;
    struct problem p;
    int status;

    setproctitle_init(argc, argv, envp);
    notify_init(&notify);
    descriptors_ready(notify.inherited);
    status = options_dump(&settings_table, argc, argv);
    if (status >= 0)
        return status;
    settings_init(&settings);
    if (settings_parse(&settings, argc, argv, &p) < 0)
        return complain_of(&p);
    if (settings.help) {
        options_help(&settings_table, stdout, term_width(stdout));
        return complain_output(EX_OK);
    }
    if (settings.version) {
        printf("mqworker %s\n", MQW_VERSION);
        return complain_output(EX_OK);
    }
    if (notify_queue(&notify, &settings, &p) < 0)
        return complain_of(&p);
    log_setup(settings.quiet     ? LOG_WARN
              : settings.verbose ? LOG_DEBUG
                                 : LOG_INFO,
              (enum log_format)settings.log_format);
    signals_block(true);
    if (time_zone_unknown())
        log_warn("time_zone_unknown", F_STR("tz", time_zone_unknown()),
                 F_STR("next",
                       "local times are shown in UTC; /usr/share/zoneinfo "
                       "lists the names (Debian: tzdata)"));
    if (engine_open(&engine, &settings, kind_of(&settings), &p) < 0)
        return complain_of(&p);
    notify_begin(&notify, engine);
    status = engine_run(engine);
    notify_end(&notify);
    engine_close(&engine);
    return status;
}

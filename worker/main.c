/* main.c - the mqworker program (docs/mqworker.8) */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/unistd.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/log.h"
#include "common/broker/broker_engine.h"
#include "common/cli/complain.h"
#include "common/cli/term.h"
#include "worker/config/settings.h"
#include "worker/engine.h"
#include "worker/handlers/handler.h"
#include "worker/notify.h"

/* What a restart of the program needs. */
struct program {
    char **argv;
    struct notify notify;
    struct engine *engine; /* NULL: closed */
    int queue;             /* a descriptor to hand over; -1: none */
};

/* Keep what the next start cannot get by itself: put back the variables that
 * the handler has removed from the environment, and keep a queue that the
 * service manager has passed in, because perhaps only the manager may open that
 * queue. A queue whose name was removed is not kept. */
static void start_keep(struct program *g)
{
    const struct handler_ops *ops = g->engine->flow.ops;
    const struct queue *queue = g->engine->mq.queue;

    if (ops->restore)
        ops->restore();
    if (g->engine->flow.set->passed_fd && !queue_gone(queue))
        g->queue = fcntl(queue_fd(queue), F_DUPFD_CLOEXEC, 0);
}

/* Execute this program again, with its first arguments, after a file was
 * removed. Called by main, or by the engine if handlers are threads that do not
 * return. Everything in flight is in the store, or in custody as after a kill.
 * Signals stay blocked, so one that came after the loop ended is pending for
 * the next start. execv closes the descriptors and so drops the locks. */
static void program_restart(void *arg)
{
    struct program *g = arg;

    if (g->engine)
        start_keep(g);
    notify_pass(&g->notify, g->queue);
    FAULT_POINT("restart_before_exec");
    /* Another version may have been installed under the program's name. */
    execv("/proc/self/exe", g->argv);
    log_error("not_restarted", F_STR("error", errno_text(errno)),
              F_STR("next", "start the worker again; its messages are in the "
                            "store"));
    log_flush();
    _exit(EX_OSERR);
}

/* Keep the arguments for a restart: settings_parse sorts them, and
 * setproctitle(3) overwrites the first one. Returns false without memory. */
static bool arguments_keep(struct program *g, int argc, char **argv,
                           char **envp)
{
    char *name = strdup(argv[0]);

    setproctitle_init(argc, argv, envp);
    g->argv = name ? calloc((size_t)argc + 1, sizeof *g->argv) : NULL;
    if (!g->argv) {
        free(name);
        return false;
    }
    memcpy(g->argv, argv, (size_t)argc * sizeof *argv);
    g->argv[0] = argv[0] = name;
    /* After execv of /proc/self/exe, the process is called "exe". */
    prctl(PR_SET_NAME, program_invocation_short_name);
    return true;
}

int main(int argc, char **argv, char **envp)
{
    struct settings settings;
    static struct program g = {.queue = -1};
    const struct broker_engine *broker;
    const struct handler_ops *kind;
    struct problem p;
    int status, fd;

    /* Let SQLite allocate the pages of its cache one by one: this must precede
     * its first use. A fixed threshold for mmap(2) in malloc(3) would save 84
     * kB more, but then each large body of a broker would be a new mapping. */
    (void)sqlite3_config(SQLITE_CONFIG_PAGECACHE, NULL, 0, 0);
    if (!arguments_keep(&g, argc, argv, envp))
        return complain_memory();
    notify_init(&g.notify);
    /* Keep only 0, 1, 2 and the passed descriptors open: handlers must not
     * inherit a descriptor that our parent forgot to close. */
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= 2);
    closefrom(3 + g.notify.inherited);
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
    kind = settings.forward  ? &handler_forward
           : settings.plugin ? &handler_plugin
           : settings.stream ? &handler_stream
                             : &handler_exec;
    if (settings.forward_to.host_count) {
        broker = broker_engine_of(settings.forward_queue, &p);
        kind = broker ? broker->forward : NULL; /* NULL: not in this build */
    }
    if (!kind || notify_queue(&g.notify, &settings, &p) < 0)
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
    if (engine_open(&g.engine, &settings, kind, &p) < 0)
        return complain_of(&p);
    g.engine->restart = program_restart;
    g.engine->restart_arg = &g;
    notify_begin(&g.notify, g.engine);
#ifdef __GLIBC__
    malloc_trim(0); /* give back the memory that only the start needed */
#endif
    status = engine_run(g.engine);
    if (status == -ESTALE)
        start_keep(&g);
    notify_end(&g.notify, status == -ESTALE);
    engine_close(&g.engine);
    if (status == -ESTALE)
        program_restart(&g);
    return status;
}

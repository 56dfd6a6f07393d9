/* settings.h - everything that a worker can be told
 *
 * WHAT   The flags and operands of mqworker as values. One table (settings.c)
 *        has a row for each flag: type, default, range, help, the library's
 *        field, and whether a running worker can change it.
 * WHO    Filled by main, read by all parts; constant after engine_open, except
 *        what live_settings.h may change: that is atomic, or under its lock.
 * OWNS   Nothing; strings are argv's.
 * FAILS  settings_parse and the checks: a problem with status 64.
 */
#ifndef WORKER_CONFIG_SETTINGS_H
#define WORKER_CONFIG_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/broker/broker_operand.h"
#include "common/cli/options.h"
#include "common/message/backoff.h"
#include "common/mq/queue.h"
#include "worker/mqworker.h"

#define CONCURRENCY_MAX 1024
#define WINDOW_MAX      256
#define CRASHES_MOST    10000 /* of --max-crashes */
#define SETTINGS_MOST   96    /* rows of the table */
/* Work items in use: the cap, and one for each pool thread that has counted
 * itself out and not yet put its own away. */
#define ITEMS_MAX   (2 * CONCURRENCY_MAX + 16)
#define SPARE_SLOTS 16 /* for verdicts that cannot be written yet */
/* For messages on their way from the queue to the spool. */
#define SPOOL_SLOTS  128
#define SETTING_TEXT 512 /* a value as its flag takes it; a longer one is cut */

/* What becomes of a group whose head died: words of --on-group-dead. */
enum group_dead { GROUP_DEAD_CONTINUE, GROUP_DEAD_HOLD };

/* Which messages a spool writes: words of --spool-sync. */
enum spool_sync { SPOOL_SYNC_WAITING, SPOOL_SYNC_ALWAYS };

struct settings {
    char queue[QUEUE_NAME_MAX];
    char **command; /* NULL-terminated; NULL: a plugin, or it forwards */
    const char *plugin, *plugin_arg;    /* NULL: none */
    const char *forward;                /* DEST; NULL: none */
    char forward_queue[QUEUE_NAME_MAX]; /* DEST as it is shown */
    struct broker_operand forward_to;   /* no host: a POSIX queue */
    unsigned forward_partitions;        /* of DEST on a broker; 0: none */
    const struct inproc *inproc;        /* the function of a program that embeds
                                        us; NULL: we are the program */
    int passed_fd; /* of the queue, which was opened for us; 0: none was */
    bool take_signals;
    bool timeout_abort;
    bool stream;           /* the command is long-lived */
    uint64_t window;       /* messages open for a child, 1 to WINDOW_MAX */
    uint64_t max_requests; /* messages of a child's life; 0: no bound */
    uint64_t max_rss;      /* bytes a child may grow to; 0: no bound */
    uint64_t queue_depth, message_size, mode; /* 0: not given */
    bool no_create;
    /* Where the queue is, with what opens it; `queue` is then its operand
     * without the user. No host: it is a POSIX queue. */
    struct broker_operand broker;
    struct broker_access access;
    bool allow_unreplicated;
    _Atomic uint64_t concurrency;
    _Atomic uint64_t batch_limit_ns; /* UINT64_MAX: none */
    _Atomic uint64_t max_attempts;
    struct backoff backoff; /* settings_backoff */
    _Atomic uint64_t jitter_percent;
    uint64_t max_crashes;
    uint8_t
        on_exit[256]; /* enum mqw_verdict by exit code, or VERDICT_UNMAPPED */
    _Atomic uint64_t timeout_ns; /* of a handler; UINT64_MAX: none */
    /* What a message may ask for; UINT64_MAX: anything. */
    _Atomic uint64_t max_timeout_ns, max_delay_ns;
    _Atomic uint64_t kill_after_ns;
    _Atomic uint64_t grace_ns;
    _Atomic uint64_t breaker_failures; /* 0: off */
    _Atomic uint64_t breaker_pause_ns;
    _Atomic uint64_t retry_for_ns; /* UINT64_MAX: no limit by age */
    uint64_t run_for_ns;           /* 0: no end */
    uint64_t estimated_duration_ns, tolerance_factor;
    bool exit_when_idle;
    uint64_t exit_when_idle_ns;
    uint64_t max_deliveries; /* 0: no bound */
    bool lookahead_given, group_quantum_given, max_parked_given;
    bool concurrency_given, max_crashes_given, breaker_pause_given;
    bool max_waiting_given, max_delay_given;
    uint64_t lookahead;
    _Atomic uint64_t group_quantum, max_parked;
    _Atomic uint64_t rate;                  /* rate_text.h */
    _Atomic uint64_t max_waiting;           /* rows of the store */
    _Atomic uint64_t spool;                 /* messages; 0: off */
    uint64_t spool_sync;                    /* enum spool_sync */
    uint64_t on_group_dead;                 /* enum group_dead */
    char group_separator;                   /* 0: none */
    char dead_letter_queue[QUEUE_NAME_MAX]; /* "": none */
    _Atomic uint64_t keep_dead_ns;          /* UINT64_MAX: for good */
    _Atomic uint64_t max_dead;              /* letters; 0: no bound */
    const char *on_dead;                    /* NULL: nobody is told */
    const char *state_dir;                  /* NULL: found as statedir.h says */
    const char *runtime_dir;                /* NULL: as runtimedir.h says */
    bool allow_disk_custody;
    _Atomic uint64_t stderr_rate; /* lines a second; 0: all */
    uint64_t log_format;          /* enum log_format */
    uint64_t verbose;
    bool quiet, help, version;
};

static inline bool settings_on_broker(const struct settings *s)
{
    return s->broker.host_count > 0;
}

extern const struct option_table settings_table;

/* The row of a flag; NULL: there is none. */
const struct option_row *settings_row(const char *flag);
/* A number in the range of its row: 0, or a problem with status 64. */
int settings_check_number(const struct option_row *row, uint64_t value,
                          struct problem *p);
void settings_init(struct settings *s);
/* The backoff, which is more than one number and may be set while the worker
 * runs. Any thread. */
void settings_backoff(const struct settings *s, struct backoff *out);
void settings_set_backoff(struct settings *s, const struct backoff *b);
/* How the queue is opened: QUEUE_ flags, and the attributes asked for. */
int settings_queue_flags(const struct settings *s);
void settings_attr(const struct settings *s, struct queue_attr *out);
/* How long the next handler of a bounded run may take, ns: the tolerance factor
 * times `mean_ns`, at most UINT64_MAX / 2. */
uint64_t settings_margin(const struct settings *s, uint64_t mean_ns);
/* What no single setting can tell: a problem that begins with the flag it is
 * about, or 0. */
int settings_check(const struct settings *s, struct problem *p);
/* Check that nothing which --forward excludes is set beside it. `command` is
 * the operands after "--"; NULL: there are none. */
int settings_forward_check(const struct settings *s, char *const *command,
                           struct problem *p);
/* Read argv. `s->help` and `s->version` are returned early, unchecked. */
int settings_parse(struct settings *s, int argc, char **argv,
                   struct problem *p);
/* Print the value of a flag as the flag takes it; "" if it takes none. Settings
 * that can be changed are printed as they are now. Returns true if the flag was
 * given, or the value is not its default. `preset` is from settings_init. */
bool settings_changed(const struct settings *s, const struct settings *preset,
                      const struct option_row *row, char text[SETTING_TEXT]);

/* ---- slots ---- */

/* Return how many slots a worker with that cap needs: for each thread one to
 * receive into and as many as it may deliver at once; the lookahead; the spool;
 * spare ones. */
static inline unsigned slots_for(const struct settings *s, unsigned cap)
{
    return cap * (1 + (unsigned)s->window) + (unsigned)s->lookahead +
           SPARE_SLOTS + (s->spool > 0 ? SPOOL_SLOTS : 0);
}

/* Return how many slots a start adds that finds all of them in use: one for
 * each handler that may run, so that none waits for a slot. */
static inline unsigned slots_more(const struct settings *s)
{
    return (unsigned)s->concurrency;
}

/* ---- what stays in hand ----
 *
 * With --partitions a failed message of a group stays in hand, without an
 * answer to the broker, which waits for 30 minutes and then gives it to another
 * worker. So all attempts with the waits between them take less than 20. */
#define IN_HAND_LIMIT_NS (1200 * NS_PER_S)

/* Return the longest wait that a handler may ask for after so many failures;
 * `b` is the worker's backoff. */
uint64_t in_hand_limit_wait(const struct settings *s, const struct backoff *b,
                            uint32_t failures);
/* Refuse settings with which the attempts may take longer than the limit: the
 * waits of `b` with all of --jitter, and for each attempt the longer one of
 * --timeout and --max-timeout. */
int in_hand_limit_check(const struct settings *s, const struct backoff *b,
                        struct problem *p);

#endif

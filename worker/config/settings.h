/* settings.h - the flags and operands of a worker
 *
 * WHAT   The flags and operands of mqworker as values. One table (settings.c)
 *        has a row for each flag: type, default, range, help, the library's
 *        field, and whether a running worker can change it.
 * WHO    main or the library fills them in before there are threads; then all
 *        threads read them. They are constant after engine_open, except the
 *        settings that live_settings.c changes: these are atomic, or have a
 *        lock.
 * OWNS   Nothing; strings point into argv, or are copies of library.c.
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
/* Most work items in use: as many as the concurrency, and one for each pool
 * thread that no longer counts but has not put its work item away yet. */
#define ITEMS_MAX   (2 * CONCURRENCY_MAX + 16)
#define SPARE_SLOTS 16 /* for verdicts that cannot be written yet */
/* Slots for messages that are being moved from the queue to the spool. */
#define SPOOL_SLOTS  128
#define SETTING_TEXT 512 /* a value as its flag takes it; a longer one is cut */

/* What becomes of a group whose head died: words of --on-group-dead. */
enum group_dead { GROUP_DEAD_CONTINUE, GROUP_DEAD_HOLD };

/* Which messages a spool writes: words of --spool-sync. */
enum spool_sync { SPOOL_SYNC_WAITING, SPOOL_SYNC_ALWAYS };

struct settings {
    char queue[QUEUE_NAME_MAX];
    char **command; /* ends with NULL; NULL: --plugin or --forward */
    const char *plugin, *plugin_arg;    /* NULL: none */
    const char *forward;                /* DEST; NULL: none */
    char forward_queue[QUEUE_NAME_MAX]; /* DEST as it is shown */
    struct broker_operand forward_to;   /* no host: a POSIX queue */
    unsigned forward_partitions;        /* partitions of DEST; 0: none */
    const struct inproc *inproc;        /* of the library; NULL: mqworker */
    int passed_fd; /* descriptor of the queue from systemd; 0: none */
    bool take_signals;
    bool timeout_abort;
    bool stream;           /* the command is long-lived */
    uint64_t window;       /* messages open for a child, 1 to WINDOW_MAX */
    uint64_t max_requests; /* messages of a child's life; 0: no bound */
    uint64_t max_rss;      /* bytes a child may grow to; 0: no bound */
    uint64_t queue_depth, message_size, mode; /* 0: not given */
    bool no_create;
    /* A queue on a broker, and what is needed to open it; `queue` is then its
     * operand without the user. No host: a POSIX queue. */
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
    const char *on_dead;                    /* command; NULL: none */
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

/* Return the row of a flag; NULL: there is none. */
const struct option_row *settings_row(const char *flag);
/* Check that a number is in the range of its row. */
int settings_check_number(const struct option_row *row, uint64_t value,
                          struct problem *p);
void settings_init(struct settings *s);
/* Copy the backoff, which is more than one number and may be set while the
 * worker is running. Any thread. */
void settings_backoff(const struct settings *s, struct backoff *out);
void settings_set_backoff(struct settings *s, const struct backoff *b);
/* Return the QUEUE_ flags with which to open the queue; settings_attr: the
 * attributes that the flags ask for. */
int settings_queue_flags(const struct settings *s);
void settings_attr(const struct settings *s, struct queue_attr *out);
/* Return how long the next handler of a bounded run may take, ns: the tolerance
 * factor times `mean_ns`, at most UINT64_MAX / 2. */
uint64_t settings_margin(const struct settings *s, uint64_t mean_ns);
/* Check settings against each other. Returns 0, or a problem that begins with
 * the flag that it is about. */
int settings_check(const struct settings *s, struct problem *p);
/* Check that no flag is set that cannot be used with --forward. `command` is
 * the operands after "--"; NULL: there are none. */
int settings_forward_check(const struct settings *s, char *const *command,
                           struct problem *p);
/* Read argv. With --help or --version, other settings are not checked. */
int settings_parse(struct settings *s, int argc, char **argv,
                   struct problem *p);
/* Print the value of a flag as the flag takes it; "" if it takes none. Settings
 * that can be changed are printed as they are now. Returns true if the flag was
 * given, or the value is not its default. `preset` is from settings_init. */
bool settings_changed(const struct settings *s, const struct settings *preset,
                      const struct option_row *row, char text[SETTING_TEXT]);

/* ---- slots ---- */

/* Return how many slots a worker with that cap needs: for each thread one into
 * which it receives and a window of messages being delivered; the lookahead;
 * the spool; spare ones. */
static inline unsigned slots_for(const struct settings *s, unsigned cap)
{
    return cap * (1 + (unsigned)s->window) + (unsigned)s->lookahead +
           SPARE_SLOTS + (s->spool > 0 ? SPOOL_SLOTS : 0);
}

/* Return how many slots a start adds if messages of the last worker use all of
 * them: one for each handler that may run, so that none waits for a slot. */
static inline unsigned slots_more(const struct settings *s)
{
    return (unsigned)s->concurrency;
}

/* ---- what stays in hand ----
 *
 * With --partitions, a failed message of a group stays in hand until its retry,
 * and is not acknowledged. After 30 minutes the broker gives it to another
 * worker. So all its attempts with the waits between them must take less than
 * 20 minutes. */
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

/* mqworker.h - consume a POSIX message queue without losing a message
 *
 * The public header of libmqworker and of plugins for mqworker --plugin. It
 * stands alone: C99 and later, C++. docs/library.md explains, mqworker(3) is
 * the reference.
 *
 * WHAT   A worker takes messages from one queue and calls a function for each.
 *        The function returns the verdict. No matter what kills the process, a
 *        message that was taken ends as done, dead or discarded; it may run
 *        twice, and is then marked as redelivered.
 * WHO    One thread calls mqw_open, mqw_work and mqw_close (or mqw_run). The
 *        handler and the call-backs run on threads of the worker, several at
 *        once, with no lock held; their stack is 256 KiB. Any thread may make
 *        all other calls.
 * OWNS   A message, its body and all that it points to belong to the worker,
 *        and are readable until the handler returns.
 * FAILS  0 or -errno, as errno(3). Times are uint64_t, in ns: a duration, or a
 *        point in time since the epoch.
 */
#ifndef MQWORKER_H
#define MQWORKER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when a program or plugin must be recompiled. New fields at the end
 * of mqw_options and mqw_message do not raise it. */
#define MQW_ABI   1
#define MQW_NEVER UINT64_MAX /* a duration: no limit */

#if defined(__GNUC__)
#define MQW_PUBLIC __attribute__((visibility("default")))
#else
#define MQW_PUBLIC
#endif

/* What becomes of a message. */
enum mqw_verdict {
    MQW_DONE,    /* finished: the message is gone */
    MQW_RETRY,   /* failed: runs again after the backoff; dead if that was the
                    last attempt */
    MQW_DEAD,    /* cannot succeed: becomes a dead letter without a retry */
    MQW_DISCARD, /* not wanted: the message is gone, counted as discarded */
};

/* ---- a message ---- */

/* Never copied: calls take the address that the handler was given. */
struct mqw_message {
    const void *body;      /* where the kernel wrote it; not NUL-terminated */
    size_t size;           /* bytes of the body; 0 is legal */
    const char *queue;     /* "/orders" */
    const char *group;     /* not NUL-terminated; NULL: it has none */
    size_t group_size;     /* bytes, 1 to 256; 0: it has none */
    uint64_t received_ns;  /* since the epoch */
    uint64_t sent_ns;      /* since the epoch; 0: the sender did not say */
    uint32_t priority;     /* 0 to 32767 */
    uint32_t attempt;      /* 1, and one more after each failed delivery */
    uint32_t max_attempts; /* 1 and up */
    int redelivered;       /* 1: an earlier delivery may have run without a
                               verdict */
    int length_inferred;   /* 1: a kill came between the body and its length;
                               docs/formats/custody.md */
};

/* Return the message's id, 26 characters and NUL: the same in each delivery and
 * each replay. Only the thread that was given the message may call it. */
MQW_PUBLIC const char *mqw_id(const struct mqw_message *message);
/* Return the value of the header line `name` ("x-trace", "expires") as it came,
 * *size bytes and no NUL; NULL if there is none. */
MQW_PUBLIC const char *mqw_header(const struct mqw_message *message,
                                  const char *name, size_t *size);
/* Return 1 once the message's time limit has passed, or the worker is stopping
 * its handlers: the handler should return soon. After the time limit the
 * verdict is MQW_RETRY, whatever the handler returns. Any thread may call it
 * while the handler is running. */
MQW_PUBLIC int mqw_cancelled(const struct mqw_message *message);

/* ---- a handler ---- */

struct mqw_context; /* one delivery; valid until the handler returns */
struct mqw_worker;

/* Returns an mqw_verdict; anything else counts as MQW_RETRY. It must return: it
 * cannot be killed. */
typedef int mqw_handler(const struct mqw_message *message,
                        struct mqw_context *context);

/* Return the `user` of mqw_open or mqw_run; in a plugin, of mqw_init. */
MQW_PUBLIC void *mqw_user(const struct mqw_context *context);
/* Return the worker that called the handler; NULL in a plugin, whose worker is
 * controlled by mqctl(1) and signals. All calls accept NULL: they do nothing,
 * or return -EINVAL. */
MQW_PUBLIC struct mqw_worker *mqw_worker_of(const struct mqw_context *context);
/* Before returning MQW_RETRY: set the wait (ns, 0 and up) until the next
 * attempt, instead of the backoff. It ends after max_delay or in April 2262 at
 * the latest. */
MQW_PUBLIC void mqw_set_delay(struct mqw_context *context, uint64_t delay_ns);
/* Before returning a verdict other than MQW_DONE: set its reason, which is
 * logged and kept as the attempt's error. Copied, cut at 159 bytes. */
MQW_PUBLIC void mqw_set_reason(struct mqw_context *context, const char *text);

/* ---- options ---- */

enum mqw_log_level { MQW_LOG_DEBUG, MQW_LOG_INFO, MQW_LOG_WARN, MQW_LOG_ERROR };

/* Each field is like the flag of the same name in mqworker(8). Its comment has
 * the range, then the default. mqw_open copies the strings. */
struct mqw_options {
    size_t struct_size;            /* set by mqw_options_init */
    const char *queue;             /* "/orders" or "orders"; must be given */
    const char *state_dir;         /* NULL: found as by mqworker(8) */
    const char *backoff;           /* NULL: "exp:1s,5m" */
    const char *dead_letter_queue; /* NULL: none */
    uint64_t max_concurrency;      /* 1 to 1024; processors */
    uint64_t batch_time_limit;     /* ns, MQW_NEVER; 1 s */
    uint64_t max_attempts;         /* 1 to 1000000; 5 */
    uint64_t jitter;               /* percent, 0 to 1000; 20 */
    uint64_t retry_for;            /* ns; MQW_NEVER, and so is 0 */
    uint64_t max_crashes;          /* 1 to 10000; 3 */
    uint64_t timeout;              /* ns, 1 ms and up; MQW_NEVER */
    uint64_t kill_after;           /* ns; 5 s */
    uint64_t grace;                /* ns; 30 s */
    uint64_t run_for;              /* ns; 0: no end. Must be longer than the
                                      product of the next two */
    uint64_t estimated_duration;   /* ns; 2 s */
    uint64_t tolerance_factor;     /* 1 to 1000; 5 */
    uint64_t exit_when_idle;       /* ns; MQW_NEVER: do not exit */
    uint64_t max_deliveries;       /* 0: no bound */
    uint64_t breaker_failures;     /* 0 to 1000000; 0: off */
    uint64_t breaker_pause;        /* ns, 1 ms and up; 10 s */
    uint64_t lookahead;            /* 1 to 65536; 64 */
    uint64_t group_quantum;        /* 1 to 1000; 10 */
    uint64_t max_parked;           /* 1 and up; 100000 */
    uint64_t on_group_dead;        /* 0: continue, 1: hold; 0 */
    uint64_t queue_depth;          /* of a created queue; 0: the kernel's */
    uint64_t message_size; /* bytes, of a created queue; 0: the kernel's */
    uint64_t mode;         /* of a created queue; 0: 0600 */
    int group_separator;   /* an ASCII character; 0: none */
    int no_create;         /* 1: the queue must exist */
    int timeout_abort;     /* 1: abort(3) the process when a handler runs on for
                          kill_after past its time limit */
    int take_signals; /* 1: the worker takes TERM INT QUIT HUP USR2 CONT TTIN
                          TTOU as mqworker does (not HUP, INT or QUIT that are
                          ignored already), and ignores PIPE and XFSZ,
                          from mqw_open to mqw_close in that thread; open before
                          other threads start. Only one worker of a process
                          may: for a second one mqw_open returns -EBUSY. 0: the
                          signals are left to the program; if the size of its
                          files is limited (RLIMIT_FSIZE), ignore XFSZ */
    /* Called when a verdict is durable. `took_ns`: how long the handler ran, 0
     * if it did not. The message is readable until the call returns; the next
     * message of its group may already be running. Not called if a crash comes
     * between the verdict and the call. NULL: nothing is called. */
    void (*settled)(const struct mqw_message *message, enum mqw_verdict verdict,
                    uint64_t took_ns, void *user);
    /* Called with each line of the log, without its newline, NUL-terminated,
     * on any thread. The process has one log: the worker that was opened last
     * sets its call, level and format until it is closed. The call must not
     * open or close a worker, and a thread that opens or closes a worker must
     * hold no lock that the call takes. After mqw_close it is not called.
     * NULL: the log goes to stderr. */
    void (*log)(enum mqw_log_level level, const char *line, size_t size,
                void *user);
    int log_level;  /* the lowest enum mqw_log_level that is logged; INFO */
    int log_format; /* 0: key=value text, 1: JSON; 0 */
    /* If mqw_open fails, it writes the reason and what to do here, in one line.
     * NULL: it writes nothing. */
    char *problem;
    size_t problem_size;
    /* The fields from here on were added later. For a program compiled without
     * them, the library uses their defaults. */
    uint64_t max_delay;   /* ns, MQW_NEVER: any; 400 days */
    uint64_t max_timeout; /* ns, 1 ms and up; MQW_NEVER: any */
    uint64_t max_waiting; /* 1 and up; 1000000 */
    /* Where messages in flight are kept, on a tmpfs. NULL: found as by
     * mqworker(8). */
    const char *runtime_dir;
    uint64_t allow_disk_custody; /* 1: run even if there is no tmpfs, although
                                    a kill may then lose a message; 0 */
    const char *rate;    /* as --rate of mqworker(8), like "100/s"; NULL: off */
    uint64_t spool;      /* messages that may wait on disk instead of in the
                         queue; 0: off */
    uint64_t spool_sync; /* 0: write a message to disk only if it has to wait;
                            1: write each before it runs; 0 */
    uint64_t keep_dead;  /* ns, 1 ms and up, for dead letters; MQW_NEVER */
    uint64_t max_dead;   /* dead letters at most; 0: no bound */
    /* Run by sh -c for each dead letter, as --on-dead. It is a child of the
     * process: do not ignore SIGCHLD, nor wait for any child. NULL: nothing. */
    const char *on_dead;
};

/* Fill in the defaults. `size` is sizeof *options, as you compiled it. -EINVAL:
 * the library is older than the program. */
MQW_PUBLIC int mqw_options_init(struct mqw_options *options, size_t size);

/* ---- a worker ---- */

/* Open the queue, and take over what the last worker left. `user` is given to
 * the handler and the call-backs. On failure *out is NULL. -EINVAL: an option
 * is wrong; -EEXIST: the queue has a worker; -ENOENT, -EACCES, -EMFILE ... */
MQW_PUBLIC int mqw_open(struct mqw_worker **out,
                        const struct mqw_options *options, mqw_handler *handler,
                        void *user);
/* Consume until stopped. Call it once, in the thread that called mqw_open.
 * Returns when the last handler has returned: 0 if all went well; -ESTALE if a
 * file of the worker was removed: call mqw_close, which saves the messages in
 * flight, then open the worker again; -EINVAL for NULL; otherwise the status
 * (sysexits.h) with which mqworker would have exited. */
MQW_PUBLIC int mqw_work(struct mqw_worker *worker);
/* Close the worker and set *worker to NULL. `worker` and *worker may be NULL.
 * No other call for this worker may be running. */
MQW_PUBLIC void mqw_close(struct mqw_worker **worker);
/* Do all three in one call. Returns the -errno of mqw_open, or the result of
 * mqw_work. */
MQW_PUBLIC int mqw_run(const struct mqw_options *options, mqw_handler *handler,
                       void *user);

/* Take no more messages, and let mqw_work return when the running handlers have
 * returned. After the grace, mqw_cancelled returns 1 to them. A second call
 * skips the grace. Any thread and any signal handler may call mqw_stop, until
 * mqw_close; NULL: nothing happens. */
MQW_PUBLIC void mqw_stop(struct mqw_worker *worker);
/* Take no more messages until mqw_resume; running handlers go on. mqw_resume
 * does not end the pause of an operator (mqctl pause), which also outlives the
 * program. Both may be called wherever mqw_stop may. */
MQW_PUBLIC void mqw_pause(struct mqw_worker *worker);
MQW_PUBLIC void mqw_resume(struct mqw_worker *worker);
/* Set how many handlers may run at the same time. -EINVAL outside 1 to 1024. */
MQW_PUBLIC int mqw_set_concurrency(struct mqw_worker *worker, unsigned most);
/* Set the time limit (ns, MQW_NEVER) of handlers that start from now on.
 * -EINVAL below 1 ms. */
MQW_PUBLIC int mqw_set_timeout(struct mqw_worker *worker, uint64_t timeout_ns);

/* ---- ordered groups ---- */

/* A message that waits in its group. */
struct mqw_queued {
    char id[27];
    uint32_t priority;
    size_t size;          /* bytes with its header, if it has one */
    uint64_t received_ns; /* since the epoch */
};
/* Visit the messages of a group that wait in memory, in the order in which they
 * would run, until `visit` returns 0; messages parked in the store behind a
 * failed one are not visited. A lock is held: `visit` must not call the
 * library. -ENOENT: there is no such group now. */
MQW_PUBLIC int
mqw_group_list(struct mqw_worker *worker, const char *group, size_t group_size,
               int (*visit)(const struct mqw_queued *queued, void *arg),
               void *arg);
/* Deliver the messages that the group has, make dead letters of messages that
 * come meanwhile (reason group-closed), then forget the group; a later message
 * starts a new one. -ENOENT: there is no such group in memory, perhaps because
 * all of its messages are in the spool; -ENOMEM. */
MQW_PUBLIC int mqw_group_close(struct mqw_worker *worker, const char *group,
                               size_t group_size);

/* ---- a plugin: mqworker --plugin FILE.so ---- */

/* Defined by the plugin; works with C++ and hidden visibility as it is. */
MQW_PUBLIC int mqw_handle(const struct mqw_message *message,
                          struct mqw_context *context);
/* Optional. Called before the first message; `arg` is --plugin-arg or NULL. It
 * may set *user, which mqw_user then returns. If mqw_init does not return 0,
 * the worker does not start. */
MQW_PUBLIC int mqw_init(const char *arg, void **user);
/* Optional. Called after the last message. */
MQW_PUBLIC void mqw_fini(void *user);
/* Optional. Called as `settled` of mqw_options is. */
MQW_PUBLIC void mqw_settled(const struct mqw_message *message,
                            enum mqw_verdict verdict, uint64_t took_ns,
                            void *user);

/* The version that a plugin was compiled for, which the worker checks. */
#if defined(__GNUC__) && !defined(MQW_NO_PLUGIN)
extern MQW_PUBLIC __attribute__((weak)) const unsigned mqw_abi;
const unsigned mqw_abi = MQW_ABI;
#endif

#ifdef __cplusplus
}
#endif
#endif

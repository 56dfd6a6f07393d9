/* torture.h - what the parts of the torture program share
 *
 * WHAT   One run: its files, its options and its results.
 * WHO    The driver; one thread.
 * OWNS   The scratch directory, the queue, the file of the world, the worker.
 * FAILS  A problem of the test itself ends the program (torture_die). A fault
 *        of the worker is printed and counted, and makes the exit status 1.
 */
#ifndef TESTS_CRASH_TORTURE_H
#define TESTS_CRASH_TORTURE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/custody/custody.h"
#include "tests/crash/torture/torture_witness.h"

enum torture_kind { TORTURE_EXEC, TORTURE_STREAM, TORTURE_PLUGIN, TORTURE_ALL };

enum { TORTURE_JOBS = 64 };

/* What becomes of each message of --every-instruction and --every-call. From
 * PATH_WHOLE on, a whole program is traced and killed at one of its system
 * calls. */
enum torture_path {
    PATH_DONE,
    PATH_RETRY,
    PATH_DEAD,
    PATH_DISCARD,
    PATH_LATER,
    PATH_GROUP,
    PATH_REPLAYED, /* a replayed letter is received */
    PATH_RESUMED,  /* a message in flight at a kill is delivered */
    PATH_WHOLE,
    PATH_RECOVERED = PATH_WHOLE, /* a worker starts and recovers */
    PATH_REPLAY,                 /* mqdlq replay of a letter */
    PATH_RAW,                    /* mqdlq replay --raw of a letter */
    PATH_REMOVE,                 /* mqdlq discard */
    PATH_IMPORT,                 /* mqdlq import */
    PATH_SEND,                   /* mqsend --raw */
    PATH_UNIQUE,                 /* mqsend --unique; repeated after a kill */
    PATH_AT,                     /* mqsend --at */
    PATHS,
};

enum torture_spool { SPOOL_OFF, SPOOL_WAITING, SPOOL_ALWAYS };

enum torture_sync { SYNCER_ALWAYS, SYNCER_LEGS, SYNCER_NEVER };

struct torture_options {
    uint64_t kills, seed, size, kind, hits, seconds, stride, from, syncer;
    uint64_t ends;
    uint64_t jobs, path, spool;
    const char *size_text, *failures_text, *point;
    bool points, every, changes, calls, count, stepped, steer, keep, help;
    bool has_seed, has_kills;
    uint32_t failing; /* messages in a million that do not just succeed */
};

/* Results of a run. */
struct torture_sum {
    uint64_t kills, legs, messages, deliveries, repeats, unseen, retries;
    uint64_t dead, discarded, tiny, inferred, cut, replays, crashed, moved;
    uint64_t cancels, cancelled, unanswered, run_nows;
    uint64_t life_ns, wall_ns; /* while workers delivered; of the whole run */
    uint64_t *recovery_ns;     /* for each worker that delivered */
    size_t recoveries, recovery_room;
};

/* A worker under torture. */
struct torture_worker {
    pid_t pid; /* 0: none */
    unsigned generation;
    uint64_t begun_ns;
    bool asked; /* told to stop, or asked to cancel */
};

struct torture {
    const struct torture_options *options;
    enum torture_kind kind;
    char dir[PATH_MAX / 4], queue[64];
    char file[TORTURE_PATH]; /* path of the world */
    char runtime[64];        /* scratch directory in memory */
    bool moved;              /* $RUNTIME_DIRECTORY is its "b", not its "a" */
    uint32_t queue_size;     /* largest message, in bytes */
    struct torture_world *world;
    struct torture_worker worker;
    struct torture_sum sum;
    uint64_t end_ns;  /* end of --seconds, monotonic; UINT64_MAX: none */
    const char *bins; /* folder of the programs */
    bool failed;
    bool refused;       /* ptrace(2) is not permitted */
    bool traced;        /* workers are traced from their start */
    const char *plugin; /* instead of the plugin that records deliveries */
};

/* ---- torture_place.c ---- */

_Noreturn void torture_die(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));
/* Create a scratch directory, a queue and a world. However the program exits,
 * place_close removes them. */
void place_open(struct torture *t);
void place_close(struct torture *t);
/* Replace the queue by one of the same name for messages of `size` bytes, and
 * put its messages into the new one. No sender may have the queue open, except
 * paused producers. */
void place_resize(struct torture *t, uint32_t size);
const char *place_path(const struct torture *t, const char *file);
/* Return the path of a file in the runtime folder of the queue; "": of the
 * folder itself. */
const char *place_runtime(const struct torture *t, const char *file);
/* Return true if no message is in the queue, in a slot or waiting in the
 * store. */
bool place_settled(const struct torture *t);
unsigned place_slots(const struct torture *t);
/* Return the offset of the first used slot in the custody file; 0: none is
 * used. */
uint64_t place_slot(const struct torture *t);
long place_queued(const struct torture *t);
/* Return the number that a query of the store selects; -1: no row. */
long long place_store(const struct torture *t, const char *sql);
/* Change the store and the custody file to what a power cut leaves. */
void place_power_cut(const struct torture *t);
/* Remove the runtime folder of the queue, which holds no message in flight. */
void place_lose(const struct torture *t);
/* Remove the file with the ends of the spool. */
void place_remove_ends(const struct torture *t);
/* Remove the note of the runtime folder. */
void place_remove_note(const struct torture *t);
/* Make the custody file, which holds no message, name another store. */
void place_other_store(const struct torture *t);
/* Switch the runtime directory of the next worker. */
void place_move(struct torture *t);
/* Call `visit` for each message in a slot, as custody_look does. Return the
 * first nonzero result of `visit`, or 0. */
int place_custody(const struct torture *t,
                  int (*visit)(const struct custody_seen *seen, void *arg),
                  void *arg);
/* Remove all state and runtime files, as if no worker had ever run. */
void place_forget(const struct torture *t);
/* Copy the message of a row into `data`, at most TORTURE_MOST bytes, and return
 * its size. A negative `row` is a row of the spool. */
size_t place_row(const struct torture *t, long long row, unsigned char *data);
/* Print the end of the workers' output. */
void place_print_log(const struct torture *t);

/* ---- torture_worker.c ---- */

/* Start a worker with `kill_at` as its $MQW_KILL_AT and `more` as further
 * arguments; both may be NULL. */
void worker_start(struct torture *t, const char *kill_at,
                  const char *const *more);
/* Return when the worker made its first delivery; 0: it has made none. */
uint64_t worker_first_ns(const struct torture *t);
/* Reap the worker if it has exited. Return true and its wait status if so. */
bool worker_ended(struct torture *t, int *status);
/* Kill the worker with SIGKILL and reap it. A worker that has crashed before is
 * a failure of the run. */
void worker_kill(struct torture *t);
/* Stop the worker with SIGTERM. Return false if it did not exit cleanly, after
 * printing why. */
bool worker_stop(struct torture *t);
/* Print the last workers and where each was to be killed, for a failed run. */
void worker_print_lives(const struct torture *t);
/* Record how long the worker took to its first delivery. */
void worker_note(struct torture *t, uint64_t until_ns);
/* Run one of our programs to its end and return its wait status. */
int program_run(struct torture *t, const char *kill_at,
                const char *const *arguments);
pid_t program_start(struct torture *t, const char *kill_at,
                    const char *const *arguments);

/* ---- torture_audit.c ---- */

/* Check all messages sent since the last audit, all of which must be settled,
 * and then forget them. */
void audit(struct torture *t);
/* Return the body behind the header, if there is a header. */
const unsigned char *audit_body(const unsigned char *data, size_t *size);
/* Print the messages that have not been settled in time. */
void audit_stuck(struct torture *t);
/* Report processes of the run that are still alive. */
void audit_leftovers(struct torture *t);

/* ---- torture_legs.c ---- */

/* Kill workers at random moments, in legs: up to 50 kills, then an audit. */
void legs_run(struct torture *t, uint64_t kills);
/* End a leg: pause the producers, let a worker finish all messages, audit. */
bool leg_end(struct torture *t);
uint64_t torture_random(uint64_t below);
void torture_nap(uint64_t ns);
/* Return true if the run was interrupted, has used its time or has failed. */
bool torture_over(const struct torture *t);

/* Choose what to cancel next. steer_row: a waiting row, from the spool if the
 * spool has one. steer_held: a message that waits in a slot and has no row.
 * Return false if there is none. */
bool steer_row(struct torture *t);
bool steer_held(struct torture *t);
/* Cancel the chosen message by mqctl, which is killed at `kill_at` if that is
 * not NULL. Return the wait status of mqctl. If mqctl succeeded or wrote its
 * mark, the message must not run from now on. */
int steer_cancel(struct torture *t, const char *kill_at);
/* Return true if the running worker has started the chosen message. */
bool steer_begun(const struct torture *t);
/* Return true if the chosen message is marked as cancelled in the store. */
bool steer_marked(const struct torture *t);
/* Note that the chosen message may have been cancelled without an answer. */
void steer_unanswered(void);
/* Note that the chosen message is cancelled and must not run again. */
void steer_hold(struct torture *t);

/* Wait for the worker's first delivery. Return false if the worker exited
 * before it, after printing that. */
bool worker_delivers(struct torture *t);

/* ---- torture_points.c ---- */

/* Kill at each named step. */
void points_run(struct torture *t);

/* ---- torture_steps.c ---- */

/* Kill at each step of a message, by parallel jobs with a queue each. */
void steps_run(struct torture *t);

/* ---- torture_count.c ---- */

/* Count the instructions of a message and print them by function. Return false
 * if ptrace(2) is not permitted. */
bool count_run(const struct torture_options *o);

/* Run on one processor, the `nth` modulo the number of processors. A traced
 * step costs two thread switches, which are expensive between processors. */
void processor_take(unsigned nth);

/* ---- torture_syncer.c ---- */

/* Start a process that keeps writing the custody file, its file system and that
 * of the state directory to disk. It exits with the driver. */
void syncer_start(struct torture *t);
void syncer_stop(void); /* pause it until syncer_start */
void syncer_end(void);
/* Make the syncer write the custody file that the new worker maps. */
void syncer_follow(const struct torture *t);
/* Return how often the custody file was written. */
uint64_t syncer_count(void);

/* ---- torture_scenes.c ---- */

/* Bring the worker or mqdlq to a named step. Return true if it was killed
 * there; the killed process has been reaped. */
bool scene_play(struct torture *t, const char *point);
/* Return true if this kind of handler can pass the step. */
bool scene_possible(const struct torture *t, const char *point);
/* Return true if only a new queue passes the step, before its first message. */
bool scene_first(const char *point);
/* Wait until the worker dies at its $MQW_KILL_AT and return true. If it does
 * not die in time, kill it and return false. `ask` is called repeatedly while
 * waiting; it may be NULL. */
bool scene_await(struct torture *t, void (*ask)(struct torture *t));

/* ---- torture_letters.c ---- */

/* Kill mqdlq at a named step while it replays or discards a letter. */
bool letters_play(struct torture *t, const char *point);
/* Start an mqdlq that replays a letter while everything else goes on. */
void letters_send(struct torture *t);
/* Wait until the mqdlq of letters_send exits, with a worker to make room in the
 * queue. */
void letters_sent(struct torture *t);
/* Return the record of the message in a row (see place_row) and its plan; NULL:
 * no row, or not a message of this run. */
_Atomic uint64_t *letters_record(struct torture *t, long long row,
                                 struct torture_plan *plan);
/* Return the same for a received message. */
_Atomic uint64_t *letters_record_of(struct torture *t,
                                    const unsigned char *data, size_t size,
                                    struct torture_plan *plan);
/* Leave a letter marked as sent that is in no queue. Return false if there is
 * no letter. */
bool letters_strand(struct torture *t);
/* Turn those letters back into dead letters, as a reboot does. */
void letters_reboot(struct torture *t);
/* Replay all letters; the queue must have room for them. */
void letters_replay(struct torture *t);
/* Start an mqdlq that replays, discards or imports a letter; return its pid. */
pid_t letters_start(struct torture *t, enum torture_path path);
/* Finish what letters_start began, with a second mqdlq if the first was killed
 * too early. Return false if mqdlq exited (`ended`) without having done it,
 * after printing that. */
bool letters_again(struct torture *t, enum torture_path path, bool ended);
/* Replay letters until none is marked as sent. A worker must be running. */
void letters_unstrand(struct torture *t);
/* Return the name of the dead-letter queue. */
const char *letters_queue(const struct torture *t);
void letters_receive(struct torture *t);

#endif

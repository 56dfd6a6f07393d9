/* torture.h - what the parts of the torture program share
 *
 * WHAT   A run: where it is, what it does, and what came of it.
 * WHO    The driver; one thread.
 * OWNS   The scratch directory, the queue, the world's file, the worker.
 * FAILS  A problem that is not the worker's ends the program (torture_die);
 *        what the worker did wrong is counted, told, and makes the exit status
 *        1.
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

/* What becomes of each message of --every-instruction and --every-call; from
 * PATH_WHOLE on a program is killed at a system call of its whole life. */
enum torture_path {
    PATH_DONE,
    PATH_RETRY,
    PATH_DEAD,
    PATH_DISCARD,
    PATH_LATER,
    PATH_GROUP,
    PATH_REPLAYED, /* a letter that was sent again is received */
    PATH_RESUMED,  /* what a killed worker had in flight is delivered */
    PATH_WHOLE,
    PATH_RECOVERED = PATH_WHOLE, /* a worker, over what one left in flight */
    PATH_REPLAY,                 /* mqdlq replay, of a letter */
    PATH_RAW,                    /* the same with --raw */
    PATH_REMOVE,                 /* mqdlq discard */
    PATH_IMPORT,                 /* mqdlq import */
    PATH_SEND,                   /* mqsend --raw */
    PATH_UNIQUE,                 /* mqsend --unique; again, if it was killed */
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

/* What a run came to. */
struct torture_sum {
    uint64_t kills, legs, messages, deliveries, repeats, unseen, retries;
    uint64_t dead, discarded, tiny, inferred, cut, replays, crashed, moved;
    uint64_t cancels, cancelled, unanswered, run_nows;
    uint64_t life_ns, wall_ns; /* delivering; of the whole run */
    uint64_t *recovery_ns;     /* of each worker that delivered */
    size_t recoveries, recovery_room;
};

/* A worker under torture. */
struct torture_worker {
    pid_t pid; /* 0: none */
    unsigned generation;
    uint64_t begun_ns;
    bool asked; /* to stop, or to cancel */
};

struct torture {
    const struct torture_options *options;
    enum torture_kind kind;
    char dir[PATH_MAX / 4], queue[64];
    char file[TORTURE_PATH]; /* of the world */
    char runtime[64];        /* scratch directory in memory */
    bool moved;              /* its "b", not its "a", is $RUNTIME_DIRECTORY */
    uint32_t queue_size;     /* bytes of a message */
    struct torture_world *world;
    struct torture_worker worker;
    struct torture_sum sum;
    uint64_t end_ns;  /* --seconds; UINT64_MAX: none */
    const char *bins; /* where the programs are */
    bool failed;
    bool refused;       /* ptrace(2) is */
    bool traced;        /* workers are, from their start on */
    const char *plugin; /* instead of the one that notes what it sees */
};

/* ---- torture_place.c ---- */

_Noreturn void torture_die(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));
/* A scratch directory, a queue, a world; ended by place_close whatever ends the
 * program. */
void place_open(struct torture *t);
void place_close(struct torture *t);
/* The same name with other messages; what was in it is in it again. Nobody has
 * it open for sending but paused producers. */
void place_resize(struct torture *t, uint32_t size);
const char *place_path(const struct torture *t, const char *file);
/* A file of what is in flight; "": the folder. */
const char *place_runtime(const struct torture *t, const char *file);
/* Nothing in the queue, in a slot, or waiting in the store. */
bool place_settled(const struct torture *t);
unsigned place_slots(const struct torture *t);
/* Where the first one in use is, in the custody file; 0: there is none. */
uint64_t place_slot(const struct torture *t);
long place_queued(const struct torture *t);
/* A number out of the store; -1: there is none. */
long long place_store(const struct torture *t, const char *sql);
/* The store and the custody file as after a power cut. */
void place_power_cut(const struct torture *t);
/* The runtime folder of the queue is gone; nothing of it was in flight. */
void place_lose(const struct torture *t);
/* The file of the spool's ends has no name any more. */
void place_remove_ends(const struct torture *t);
/* Remove the note of the runtime folder. */
void place_remove_note(const struct torture *t);
/* Have the custody file, which holds no message, name another store. */
void place_other_store(const struct torture *t);
/* The next worker has what is in flight in another place. */
void place_move(struct torture *t);
/* Each message in a slot, as custody_look shows it; what a visit gave, or 0. */
int place_custody(const struct torture *t,
                  int (*visit)(const struct custody_seen *seen, void *arg),
                  void *arg);
/* As if there had never been a worker. */
void place_forget(const struct torture *t);
/* The message of a row, or of one of the spool, whose key has a minus;
 * TORTURE_MOST bytes at most; its size. */
size_t place_row(const struct torture *t, long long row, unsigned char *data);
/* The end of what the workers said. */
void place_print_log(const struct torture *t);

/* ---- torture_worker.c ---- */

/* `kill_at`: its $MQW_KILL_AT, or NULL. More arguments may follow, or NULL. */
void worker_start(struct torture *t, const char *kill_at,
                  const char *const *more);
/* It made a delivery: since when, 0: not yet. */
uint64_t worker_first_ns(const struct torture *t);
/* Whether it ended; its status as of waitpid. */
bool worker_ended(struct torture *t, int *status);
/* SIGKILL, and reap it. That it had crashed by itself is a failure. */
void worker_kill(struct torture *t);
/* SIGTERM; false: it did not end well, and that was told. */
bool worker_stop(struct torture *t);
/* Print the last workers, for a run that failed. */
void worker_print_lives(const struct torture *t);
/* Note how long it took to its first delivery. */
void worker_note(struct torture *t, uint64_t until_ns);
/* Any program of ours, to its end: its status. */
int program_run(struct torture *t, const char *kill_at,
                const char *const *arguments);
pid_t program_start(struct torture *t, const char *kill_at,
                    const char *const *arguments);

/* ---- torture_audit.c ---- */

/* Everything is settled: hold all against what was sent, and forget it. */
void audit(struct torture *t);
/* A body behind its header, if there is one. */
const unsigned char *audit_body(const unsigned char *data, size_t *size);
/* What no longer comes to an end is told. */
void audit_stuck(struct torture *t);
/* Processes that outlived everything. */
void audit_leftovers(struct torture *t);

/* ---- torture_legs.c ---- */

/* Kills at random moments, in legs: some kills, then an audit. */
void legs_run(struct torture *t, uint64_t kills);
/* The end of a leg: producers pause, a worker brings all to an end; audit. */
bool leg_end(struct torture *t);
uint64_t torture_random(uint64_t below);
void torture_nap(uint64_t ns);
/* A stop was asked for, or the time is over, or something failed. */
bool torture_over(const struct torture *t);

/* Choose what the next cancel is of: a row that waits, of the spool if that
 * has one; or a message that waits in a slot and has no row. False: there is
 * none. */
bool steer_row(struct torture *t);
bool steer_held(struct torture *t);
/* mqctl cancels it, to its end or its kill: its status. What it said, or has
 * written, holds from now on. */
int steer_cancel(struct torture *t, const char *kill_at);
/* The worker that runs has begun it. */
bool steer_begun(const struct torture *t);
/* It has its mark in the store. */
bool steer_marked(const struct torture *t);
/* It may have been, and nobody was told. */
void steer_unanswered(void);
/* It is cancelled, and must not run any more. */
void steer_hold(struct torture *t);

/* Wait until it has delivered; false: it ended, which was told. */
bool worker_delivers(struct torture *t);

/* ---- torture_points.c ---- */

/* Kills at each named step. */
void points_run(struct torture *t);

/* ---- torture_steps.c ---- */

/* Kills at each step of a message: in jobs, which have a place each. */
void steps_run(struct torture *t);

/* ---- torture_count.c ---- */

/* How many instructions a message costs, and where they are, is printed; false:
 * nobody may trace a process here. */
bool count_run(const struct torture_options *o);

/* Run on the nth of the processors that there are, round and round: a step
 * costs two thread switches, which are dear between processors. */
void processor_take(unsigned nth);

/* ---- torture_syncer.c ---- */

/* A process that writes the custody file, and the file systems of it and of the
 * state directory, to the disk all the time; it ends with the driver. */
void syncer_start(struct torture *t);
void syncer_stop(void); /* until syncer_start */
void syncer_end(void);
/* A worker was started: its custody file is found by what it has mapped. */
void syncer_follow(const struct torture *t);
/* How often custody was written so far. */
uint64_t syncer_count(void);

/* ---- torture_scenes.c ---- */

/* Bring the worker, or mqdlq, to the point; true: it was killed there. What was
 * killed has been reaped. */
bool scene_play(struct torture *t, const char *point);
/* Whether any handler of this kind can come there. */
bool scene_possible(const struct torture *t, const char *point);
/* The point is one of a queue that is just begun: nothing was taken yet. */
bool scene_first(const char *point);
/* With $MQW_KILL_AT, until it dies there: true; false: not in time, or not of
 * that, and it was killed. `ask` is called again and again; may be NULL. */
bool scene_await(struct torture *t, void (*ask)(struct torture *t));

/* ---- torture_letters.c ---- */

/* mqdlq is killed at a point while it replays or discards a letter. */
bool letters_play(struct torture *t, const char *point);
/* A letter is sent again, by a mqdlq that runs beside all else. */
void letters_send(struct torture *t);
/* ... until it has ended, with a worker that makes room for it. */
void letters_sent(struct torture *t);
/* Which of our messages a row is, as for place_row; NULL: none, or no row. */
_Atomic uint64_t *letters_record(struct torture *t, long long row,
                                 struct torture_plan *plan);
/* The same of a message as it was received. */
_Atomic uint64_t *letters_record_of(struct torture *t,
                                    const unsigned char *data, size_t size,
                                    struct torture_plan *plan);
/* A letter is marked as sent though it is in no queue; false: there is none. */
bool letters_strand(struct torture *t);
/* Those are dead letters again after a machine went down. */
void letters_reboot(struct torture *t);
/* All letters are sent again, to a queue with room for them. */
void letters_replay(struct torture *t);
/* mqdlq replays, discards or imports a letter; its pid ... */
pid_t letters_start(struct torture *t, enum torture_path path);
/* ... and once more if it was killed before it was done; false: it had `ended`,
 * and it was not, which was told. */
bool letters_again(struct torture *t, enum torture_path path, bool ended);
/* No letter is marked any more: each is sent again. The worker runs. */
void letters_unstrand(struct torture *t);
/* The dead-letter queue: its name; take all that is in it. */
const char *letters_queue(const struct torture *t);
void letters_receive(struct torture *t);

#endif

/* power.h - audit every state that a power cut may leave on disk
 *
 * WHAT   power_load records a run (power_trace.h). power_disk tracks what is
 *        on disk at a point of the run and makes one of the states that a power
 *        cut may leave there. power_store reads a store as SQLite does. power.c
 *        compares them and starts workers.
 * WHO    power.c.
 * FAILS  A problem of the test itself ends the program with status 70.
 */
#ifndef TESTS_CRASH_POWER_H
#define TESTS_CRASH_POWER_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tests/crash/power/power_trace.h"

#define POWER_NUMBERS 1024 /* limit for the numbers of messages */

struct power_place {
    char base[64];    /* folder in memory with all files */
    char root[96];    /* the state directory */
    char memory[96];  /* the runtime directory */
    char witness[96]; /* notes of the handlers */
    char trace[96];   /* record of the run */
    char boot[96];    /* boot id of the recorded machine */
    char shift[96];   /* clock offset of the next machine */
    char queue[40];   /* queue name, with the slash */
    const char *drop; /* file whose syncs are ignored; NULL: none */
};

__attribute__((noreturn, format(printf, 1, 2))) void power_fail(const char *f,
                                                                ...);
/* Start one of our programs; `preload`: a library, or NULL. */
pid_t power_start(const struct power_place *at, const char *const *argv,
                  const char *preload, const char *log);
int power_end(pid_t pid, const char *what);

/* Record the run: every kind of message, tools, kills, a spool. */
void power_load(const struct power_place *at);

/* ---- the disk ---- */
struct power_events {
    const struct power_record **all;
    size_t count;
};
void power_events_read(struct power_events *e, const char *path);

static inline const char *power_data(const struct power_record *r)
{
    return (const char *)(r + 1) + r->name + r->name2;
}

struct power_disk;
struct power_disk *power_disk_open(uint64_t root);
void power_disk_add(struct power_disk *d, const struct power_record *r);
/* Write a state of the disk to `root`. The seed chooses which pending changes
 * it has; `whole`: all of them. */
void power_disk_make(const struct power_disk *d, const char *root,
                     uint64_t seed, bool whole);
void power_disk_close(struct power_disk *d);

/* ---- the store ---- */
struct power_row {
    unsigned number;
    enum {
        POWER_WAITS = 1,
        POWER_PARKED,
        POWER_LETTER,
        POWER_SENT,
        POWER_SPOOLED
    } state;
    bool cancelled;
};
struct power_content {
    uint64_t hash; /* over all tables; 0: there is no store */
    size_t count;
    bool strange; /* a row has a body that was never sent */
    struct power_row rows[2 * POWER_NUMBERS];
};
/* Read the store. Return false if SQLite cannot read it or a row is strange;
 * `error` says why. Changes no file but the -shm. */
bool power_store_read(const struct power_place *at, struct power_content *out,
                      char error[200]);

static inline uint64_t power_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

#endif

/* bench.h - what the parts of the benchmark share
 *
 * WHAT   A duel is two things that do the same work, measured in turn: ours and
 *        a rival. Each measurement is a process of its own and yields a value
 *        for each of the duel's rows. The sections are tables of duels.
 * WHO    bench.c has them run. A `measure` runs in a child, single-threaded
 *        when it starts, with an empty state directory and a fresh queue.
 * OWNS   What a measurement makes ends with its process.
 * FAILS  A measurement that cannot be made says why and ends its process:
 *        fail().
 */
#ifndef TESTS_BENCH_BENCH_H
#define TESTS_BENCH_BENCH_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ROWS_MOST 4
#define RUNS_MOST 101

/* Bits of `how`; a measure looks at those that it knows. */
enum {
    HOW_SENDER = 1 << 0,  /* a process sends all the while; else the queue is
                            filled, and the clock runs while it is emptied */
    HOW_SLEEPS = 1 << 1,  /* a handler sleeps for its time, else it is busy */
    HOW_LIMIT = 1 << 2,   /* each has a time limit */
    HOW_GROUPS = 1 << 3,  /* messages, or rows that wait, have groups */
    HOW_SETTLED = 1 << 4, /* the worker calls `settled` for each verdict */
    HOW_BATCH = 1 << 5,   /* a child answers all that it has read at once */
    HOW_BURST = 1 << 6,   /* all come, then all are taken */
    HOW_NOW = 1 << 7,     /* rows that wait are due */
    HOW_SPOOL = 1 << 8,   /* messages wait on the disk */
};

/* What one measurement does. */
struct task {
    unsigned long n; /* messages, or what else is counted */
    long depth;      /* of the queue; 0: none is made */
    size_t size;     /* bytes of a message, and the queue's message size */
    uint64_t work_ns;
    unsigned threads; /* also: messages that a stream child may have open */
    unsigned how;
    unsigned long groups, waiting; /* of section groups */
    unsigned run;                  /* the pair it belongs to, from 0 */
};

enum measured { MEASURED, NOT_BUILT };
/* A function that fills in a value for each row. */
typedef enum measured measure(const struct task *task, double value[ROWS_MOST]);

struct side {
    measure *go;
    unsigned threads;
    unsigned how; /* added to that of the task */
};

enum better { MORE, LESS };

struct row {
    const char *name; /* for --only */
    const char *what; /* "ours / rival, and how" */
    const char *unit; /* "/s", "ns", "B" */
    enum better better;
    double must, aim; /* of the ratio; without a rival of ours; 0: none */
};

struct duel {
    struct row rows[ROWS_MOST]; /* to the first without a name */
    struct side ours, rival;    /* rival.go NULL: nothing to compare with */
    struct task task;
    unsigned times; /* so many times the usual pairs, for what depends on where
                       processes happen to run; 0: 1 */
    bool whole;     /* --quick leaves `n` as it is */
};

struct section {
    const char *name, *what;
    const struct duel *duels;
    size_t count;
    bool usual; /* runs when nothing else is asked for */
};

#define DUELS(table) .duels = (table), .count = sizeof(table) / sizeof *(table)

extern const struct section section_queue, section_handler, section_latency,
    section_stream, section_exec, section_memory, section_wheel, section_groups,
    section_restart, section_threads, section_spool, section_peers,
    section_amqp;

/* ---- where it is measured ---- */

struct place {
    char queue[64];
    char dir[PATH_MAX];      /* scratch files */
    char state[PATH_MAX];    /* --state-dir */
    char runtime[64];        /* $RUNTIME_DIRECTORY */
    char mqworker[PATH_MAX]; /* the program */
    char self[PATH_MAX];     /* this one */
    bool pin;                /* senders have a processor of their own */
};
extern const struct place *const place;

/* "bench: WHAT: why" on stderr, and the end of the process, status 1. `err` is
 * an errno or 0. */
_Noreturn void fail(int err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- what measurements need ---- */

/* Sort; return the value at that part of the whole (0.5: the median). */
double at_part(double *of, size_t n, double part);
/* Return this thread's processor time in ns, without that of other programs. */
uint64_t cpu_ns(void);
/* Return the next random number (splitmix64). */
uint64_t random_next(uint64_t *state);
/* Fork a child that is killed when its parent ends; return 0 in the child. */
int fork_bound(void);
/* Wait for a child; fail unless it exits with 0. */
void child_done(int pid, const char *what);
/* Return a number of /proc/PID/status, such as "VmRSS:", in bytes. */
double status_bytes(int pid, const char *field);

#endif

/* look.h - one look at the machine, by a child
 *
 * WHAT   Runs a function in a forked child and keeps what that prints in
 *        memory files. So a store that is locked, a worker that does not answer
 *        and a letter that breaks the code that shows it cost the server
 *        nothing but this one answer.
 * WHO    One thread, which has no others.
 * OWNS   The children and their files.
 * FAILS  look_start: -errno; -EAGAIN too many run.
 */
#ifndef SCRIPTS_MQCTL_SERVE_LOOK_H
#define SCRIPTS_MQCTL_SERVE_LOOK_H

#include <stddef.h>
#include <sys/types.h>

#define LOOKS_MAX   16 /* for requests */
#define LOOKS_JOBS  12 /* and for jobs, which may take hours */
#define LOOK_LINE   1024
#define LOOK_TIME_S 10 /* SIGALRM ends one that takes longer */

/* How it ended. */
struct look_end {
    int status;           /* exit status; -signal */
    int out;              /* what it printed, the receiver's to close */
    size_t size;          /* of that */
    char line[LOOK_LINE]; /* last error line; "" if none */
};

struct look_job {
    int (*run)(void *arg); /* in the child: prints; its exit status */
    void *arg;
    int input; /* its stdin; -1: none */
    unsigned
        limit_s; /* 0: it changes something, and ends by itself or SIGINT */
    void (*ended)(const struct look_end *end, void *owner);
    void *owner;
};

/* The child's pid. */
pid_t look_start(const struct look_job *job);
/* Return 0 if the files of one more look can be opened, or -errno. */
int look_possible(void);
/* Take in all that have ended, after SIGCHLD. */
void look_reap(void);
/* Stop all looks, and notify the owners of unlimited looks that make
 * changes. */
void look_end_all(void);

/* For any child that is forked here: no descriptor from 3 on, no signal
 * blocked, and the server's end is signal `death` to it. -1: /dev/null. */
void look_child(int in, int out, int err, int death);

#endif

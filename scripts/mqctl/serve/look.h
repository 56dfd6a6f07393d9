/* look.h - one look at the machine, by a child
 *
 * WHAT   Runs a function in a forked child and keeps its output in memory
 *        files. If a store is locked, a worker does not answer, or a letter
 *        crashes the code that shows it, only this answer is lost.
 * WHO    request.c starts a look for a request, jobs.c one for a batch, and
 *        serve.c reaps them after SIGCHLD: all on the server's only thread.
 *        `run` is called in the child.
 * OWNS   The children and their files.
 * FAILS  look_start: -errno; -EAGAIN: too many are running.
 */
#ifndef SCRIPTS_MQCTL_SERVE_LOOK_H
#define SCRIPTS_MQCTL_SERVE_LOOK_H

#include <stddef.h>
#include <sys/types.h>

#define LOOKS_MAX   16 /* for requests */
#define LOOKS_JOBS  12 /* for jobs, which may take hours */
#define LOOK_LINE   1024
#define LOOK_TIME_S 10 /* limit for a request, by SIGALRM */
/* The limit if handlers are terminated, for which mqctl waits a minute. */
#define CANCEL_TIME_S 70

/* Result of a look. */
struct look_end {
    int status;           /* exit status; -signal */
    int out;              /* file with the output; the receiver closes it */
    size_t size;          /* size of that file */
    char line[LOOK_LINE]; /* last error line; "" if none */
};

struct look_job {
    int (*run)(void *arg); /* called in the child; its exit status */
    void *arg;
    int input;        /* the child's stdin; -1: none */
    unsigned limit_s; /* 0: none, for a job; SIGINT stops the job */
    void (*ended)(const struct look_end *end, void *owner);
    void *owner;
};

/* Read the output as a text, which the caller frees, and close its file. NULL:
 * it cannot be read. */
char *look_output(const struct look_end *end);
/* Start a child; returns its pid. */
pid_t look_start(const struct look_job *job);
/* Return 0 if the files of one more look can be opened, or -errno. */
int look_possible(void);
/* Give the owners the results of children that have ended, after SIGCHLD. */
void look_reap(void);
/* Stop all looks, and give the owners of jobs their results. */
void look_end_all(void);

/* Set up a forked child: `in`, `out` and `err` (-1: /dev/null) become its
 * descriptors 0 to 2, all others are closed, no signal is blocked, and the
 * child gets the signal `death` when the server exits. */
void look_child(int in, int out, int err, int death);

#endif

/* jobs.h - letters that are replayed or discarded, in batches
 *
 * WHAT   A fixed set of rows, given to mqdlq part by part: so an end that comes
 *        in the middle leaves what mqdlq leaves, and a job can be stopped and
 *        says how far it is.
 * WHO    The server's thread.
 * OWNS   The jobs; the last JOBS_KEPT that ended are kept.
 * FAILS  jobs_start: a problem.
 */
#ifndef SCRIPTS_MQCTL_SERVE_JOBS_H
#define SCRIPTS_MQCTL_SERVE_JOBS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "scripts/mqctl/serve/ask/ask.h"

#define JOBS_RUNNING 4
#define JOBS_CANARY  8 /* besides these, waiting for one letter to finish */
#define JOBS_KEPT    32

/* Open the file with the number of the last job, so that no later server reuses
 * a number. Without the file, log a warning and number jobs from 1. */
void jobs_open(const char *path);
/* Stop all jobs when the server stops, and log each. Call look_end_all
 * afterwards. */
void jobs_end(void);
/* The rows are the lines of `fd`, which is taken over. The job's number, or -1
 * and a problem. */
int64_t jobs_start(const struct serve_ask *a, int fd, size_t size,
                   struct problem *p);
/* Start the batches that are due; monotonic time of the next one. */
uint64_t jobs_step(uint64_t now_ns);
void job_stop(int64_t id);
/* NULL: there is none. The caller's. */
json_t *job_json(int64_t id);
json_t *jobs_json(void);
/* Return the letters sent by a replay so far, to find their outcomes. Returns
 * false if there is no such replay, or it has too many letters. */
bool job_rows(int64_t id, struct ask_job *out);

#endif

/* jobs.h - letters that are replayed or discarded, in batches
 *
 * WHAT   A job is a fixed set of letters, which mqdlq processes in batches.
 *        Between two batches the job can report progress and be stopped. A kill
 *        loses no letter, because mqdlq does all the changes.
 * WHO    request.c starts, stops and describes jobs, and serve.c lets them
 *        run, on the server's only thread.
 * OWNS   The running jobs, and the last JOBS_KEPT finished jobs.
 * FAILS  jobs_start: a problem.
 */
#ifndef SCRIPTS_MQCTL_SERVE_JOBS_H
#define SCRIPTS_MQCTL_SERVE_JOBS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "scripts/mqctl/serve/ask/ask.h"
#include "scripts/mqctl/serve/look.h"

#define JOBS_RUNNING 4
#define JOBS_CANARY  8 /* further jobs, which wait for their first letter */
#define JOBS_KEPT    32

/* Open the file with the number of the last job, so that no later server reuses
 * a number. Without the file, log a warning and number jobs from 1. */
void jobs_open(const char *path);
/* Stop all jobs when the server stops, and log each. Call look_end_all
 * afterwards. */
void jobs_end(void);
/* Start a job for the rows that ask_rows has printed to `look`, and close the
 * file of `look`. Returns the number of the job, or -1 and a problem. */
int64_t jobs_start(const struct serve_ask *a, const struct look_end *look,
                   struct problem *p);
/* Start the batches that are due. Returns the monotonic time of the next
 * batch. */
uint64_t jobs_step(uint64_t now_ns);
/* Stop a job that is running, after the letter that is being sent. */
void job_stop(int64_t id);
/* Describe a job, NULL if there is none; for 0 all jobs. The caller frees the
 * result. */
json_t *jobs_json(int64_t id);
/* Return the letters sent by a replay so far, to find their outcomes. Returns
 * false if there is no such replay, or it has too many letters. */
bool job_rows(int64_t id, struct ask_job *out);

#endif

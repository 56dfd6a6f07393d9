/* jobs.h - letters that are replayed or discarded, in batches
 *
 * WHAT   A fixed set of rows, given to mqdlq in batches. So a job has a
 *        progress and can be stopped, and a kill leaves what a killed mqdlq
 *        leaves.
 * WHO    The server's thread.
 * OWNS   The jobs: those that run, and the last JOBS_KEPT that ended.
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
#define JOBS_CANARY  8 /* besides these, waiting for one letter to finish */
#define JOBS_KEPT    32

/* Open the file with the number of the last job, so that no later server reuses
 * a number. Without the file, log a warning and number jobs from 1. */
void jobs_open(const char *path);
/* Stop all jobs when the server stops, and log each. Call look_end_all
 * afterwards. */
void jobs_end(void);
/* Start a job for the rows that a look printed, whose file is closed. Returns
 * the number of the job, or -1 and a problem. */
int64_t jobs_start(const struct serve_ask *a, const struct look_end *look,
                   struct problem *p);
/* Start the batches that are due. Returns the time of the next, monotonic. */
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

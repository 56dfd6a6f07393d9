/* live_settings.h - settings that may change while the worker runs
 *
 * WHAT   The rows of settings.h whose `live` is set, each read and checked like
 *        its flag, and the cap: how many handlers may run at the same time.
 * WHO    orders.c, in the loop: mqctl set, and the signals TTIN and TTOU.
 *        live_settings_number: the library, also on a thread of the program.
 * OWNS   Nothing; the settings are the engine's.
 * FAILS  A problem with status 64; the setting stays as it was.
 */
#ifndef WORKER_OPERATE_LIVE_SETTINGS_H
#define WORKER_OPERATE_LIVE_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/problem.h"
#include "worker/config/settings.h"
#include "worker/loop/pool.h"
#include "worker/loop/timers.h"

struct orders;

/* Record that a setting has just been changed by another path. In the loop. */
void live_settings_stamp(struct orders *o, const char *name);
/* Check that `text` is a value for the setting and, for max-concurrency, that
 * there are slots for it. Returns 0, or -EINVAL or -ENOSPC with a problem;
 * -EINPROGRESS: slots are being added, call again after cap.over was called. */
int live_settings_ready(struct orders *o, const char *name, const char *text,
                        struct problem *p);
/* Change the setting, and print its old and new value as its flag takes them.
 * In the loop. */
int live_settings_text(struct orders *o, const char *name, const char *text,
                       char old[SETTING_TEXT], char now[SETTING_TEXT],
                       struct problem *p);
/* Change a setting that is a number; UINT64_MAX stands for "none". Any thread,
 * but max-concurrency only in the loop. */
int live_settings_number(struct orders *o, const char *name, uint64_t value,
                         struct problem *p);

/* ---- the cap ---- */

/* Threads in addition to those of the cap. Each has one task: to wait for the
 * queue, write verdicts again, move letters, release groups, count the store,
 * write the store again, add slots, detect an idle worker, steer messages, save
 * a pause, check the store, follow the clock, empty the -wal. */
#define SPARE_THREADS 13

/* l = in the loop only   j = the job's while flow->growing
 * c = constant after init */
struct cap {
    struct flow *flow;     /* c */
    struct settings *live; /* c */
    void (*over)(
        void *arg); /* c  slots were added, or could not be. May be NULL */
    void *arg;      /* c */
    struct pool_job job;
    struct timer timer; /* fires when the job is over */
    bool busy;        /* l  the job was submitted, and `timer` has not fired */
    unsigned growing; /* j  the cap for which it adds slots */
    unsigned failed;  /* l  the last cap without room for its slots; 0: none */
    unsigned later;   /* l  to be set when the job is over; 0: none */
    struct problem problem; /* j  why `failed` has no slots */
};

void cap_init(struct cap *c, struct flow *f, struct settings *live);
/* Check that there are slots for `cap`. Returns 0; -EINPROGRESS if they are
 * being added: ask again after `over`; or another -errno and a problem. */
int cap_ready(struct cap *c, unsigned cap, struct problem *p);
/* Set the cap. Returns 0; -EINPROGRESS if slots are being added: the cap is set
 * after that, and a failure is logged; or another -errno and a problem. */
int cap_set(struct cap *c, unsigned cap, struct problem *p);
/* Raise or lower the cap; a failure is logged. */
void cap_change(struct cap *c, int change);

#endif

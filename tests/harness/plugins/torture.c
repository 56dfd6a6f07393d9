/* torture.c - the plugin of the torture program (torture_witness.h)
 *
 * One message in a thousand takes about 0.5 ms, so that kills hit it.
 */
#include <stdlib.h>
#include <time.h>

#include "tests/crash/torture/torture_witness.h"
#include "worker/mqworker.h"

enum { SLOW_IN = 1024, SLOW_NS = 500000 };

/* Take some time. */
static void work(const struct torture_run *run)
{
    if (torture_hash(run->plan.number + 1) % SLOW_IN == 0)
        nanosleep(&(struct timespec){.tv_nsec = SLOW_NS}, NULL);
    torture_dawdle();
}

int mqw_init(const char *arg, void **user)
{
    (void)arg;
    *user = torture_world_open();
    return 0;
}

int mqw_handle(const struct mqw_message *m, struct mqw_context *context)
{
    static const enum mqw_verdict verdicts[] = {
        [TORTURE_DONE] = MQW_DONE,       [TORTURE_RETRY] = MQW_DONE,
        [TORTURE_DEAD] = MQW_DEAD,       [TORTURE_LATER] = MQW_DONE,
        [TORTURE_DISCARD] = MQW_DISCARD,
    };
    struct torture_seen seen = {
        .body = m->body,
        .size = m->size,
        .id = m->size < TORTURE_TINY ? mqw_id(m) : NULL,
        .attempt = m->attempt,
        .priority = m->priority,
        .marked = m->redelivered,
        .inferred = m->length_inferred,
        .group = m->group,
        .group_size = m->group_size,
    };
    size_t digits;
    const char *later = mqw_header(m, "not-before", &digits);
    struct torture_run run;

    (void)context;
    /* A newline follows the digits, so strtoull stops there. */
    seen.not_before = later ? strtoull(later, NULL, 10) : 0;
    torture_begin(&seen, &run);
    work(&run);
    torture_end(&run);
    return run.fails ? MQW_RETRY : (int)verdicts[run.fate];
}

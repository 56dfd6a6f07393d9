/* doctor.c - see doctor.h */
#include "scripts/mqctl/look/doctor.h"

#include "common/broker/broker_engine.h"
#include "common/broker/broker_operand.h"
#include "common/text/complain.h"

/* one - a queue by name */
static int one(struct findings *f, const struct options *o, const char *name)
{
    struct problem p;
    struct snapshot v;

    if (snapshot_open(&v, o->state_dir, name, true, &p) < 0) {
        f->queue = name;
        FOUND(f, BAD, "folder", NULL, "%s", p.text);
    } else {
        f->queue = v.queue;
        queue_check(f, &v);
        readers_check(f, &v);
        snapshot_close(&v);
    }
    f->queue = NULL;
    return 0;
}

/* doctor_run - the machine, then the queue that was named or all with a
 * worker */
int doctor_run(const struct options *o)
{
    struct findings f = {.json = o->json, .quiet = o->quiet};
    struct queue_list queues = {0}, workers = {0};
    struct problem p;

    if (o->line.operand_count && broker_operand_is(o->line.operands[0])) {
        const struct broker_engine *engine =
            broker_engine_of(o->line.operands[0], &p);

        return engine ? engine->doctor(o) : complain_of(&p);
    }
    if (queue_list_of_queues(&queues, o->state_dir) < 0 ||
        queue_list_of_workers(&workers, o->state_dir) < 0) {
        queue_list_free(&queues);
        return complain_memory();
    }
    findings_begin(&f);
    machine_check(&f, o, &queues);
    if (o->line.operand_count)
        (void)one(&f, o, o->line.operands[0]);
    else
        for (size_t i = 0; i < workers.count; i++)
            (void)one(&f, o, workers.at[i]);
    queue_list_free(&workers);
    queue_list_free(&queues);
    return findings_end(&f) ? 1 : 0;
}

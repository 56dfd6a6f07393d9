/* handler_inproc.h - a C function as handler
 *
 * WHAT   Calls a function for each message, on the pool thread, with the body
 *        where the kernel wrote it. For programs that embed the library and for
 *        plugins.
 * WHO    As handler.h.
 * OWNS   Nothing that is called.
 * FAILS  open: no memory. A function cannot be killed: past its time limit, or
 *        when the worker ends it, it sees mqw_cancelled. Where we are the
 *        program, the worker goes on without one that does not return: it
 *        seizes the messages and exits.
 */
#ifndef WORKER_HANDLERS_HANDLER_INPROC_H
#define WORKER_HANDLERS_HANDLER_INPROC_H

#include "worker/handlers/handler.h"
#include "worker/mqworker.h"

/* What to call; copied by inproc_open. */
struct inproc {
    mqw_handler *handle;
    /* NULL: nobody wants to know */
    void (*settled)(const struct mqw_message *message, enum mqw_verdict verdict,
                    uint64_t took_ns, void *user);
    void (*fini)(void *user); /* at close; NULL: nothing to do */
    void *user;
    struct mqw_worker *worker; /* NULL: we are the program */
};

int inproc_open(struct handler **out, const struct handler_setup *setup,
                const struct inproc *what, struct problem *p);
void inproc_run(struct handler *h, struct delivery *d, struct outcome *out);
void inproc_stop(struct handler *h, int signal);
unsigned inproc_seize(struct handler *h);
void inproc_close(struct handler **h);
bool inproc_hears(const struct handler *h);
void inproc_settled(struct handler *h, const struct settlement *s);

extern const struct handler_ops handler_inproc; /* calls settings.inproc */
extern const struct handler_ops handler_plugin; /* loads settings.plugin */

#endif

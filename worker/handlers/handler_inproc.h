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

/* The function of an embedding program, or of a plugin. */
struct inproc {
    mqw_handler *handle;
    /* NULL: nothing is called. */
    void (*settled)(const struct mqw_message *message, enum mqw_verdict verdict,
                    uint64_t took_ns, void *user);
    void (*fini)(void *user); /* at close; NULL: nothing to do */
    void *user;
    struct mqw_worker *worker; /* NULL: we are the program */
};

extern const struct handler_ops handler_inproc; /* calls settings.inproc */
extern const struct handler_ops handler_plugin; /* loads settings.plugin */

#endif

/* rabbit.c - librabbitmq, loaded when an amqp:// operand asks for it (see
 * rabbit.h) */
#include "common/amqp/rabbit.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sysexits.h>

#define LIBRARY "librabbitmq.so.4"

struct rabbit rabbit;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char missing[256]; /* why it cannot be used; "": it can */

/* find - one call; a function's address comes as that of an object
 * (dlsym(3)) */
static bool find(void *library, const char *name, void *into)
{
    void *at = dlsym(library, name);

    if (!at)
        strncpy(missing, name, sizeof missing - 1);
    memcpy(into, &at, sizeof at);
    return at != NULL;
}

static void load(void)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    bool all = library != NULL;

    if (!library) {
        const char *why = dlerror();

        strncpy(missing, why ? why : LIBRARY, sizeof missing - 1);
        return;
    }
#define RABBIT_FIND(name) all = all && find(library, #name, &rabbit.name);
    RABBIT_CALLS(RABBIT_FIND)
#undef RABBIT_FIND
}

int rabbit_load(struct problem *p)
{
    pthread_once(&once, load);
    if (!missing[0])
        return 0;
    return problem_set(p, EX_UNAVAILABLE, ENOENT,
                       "amqp:// needs librabbitmq, version 0.11 or later: %s; "
                       "install it (apt-get install librabbitmq4)",
                       missing);
}

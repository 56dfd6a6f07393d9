/* rabbit.c - see rabbit.h */
#include "common/amqp/rabbit.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#define LIBRARY "librabbitmq.so.4" /* of all versions since 0.5 */

void (*rabbit_calls[RABBIT_COUNT])(void);
static char refused[256]; /* error text of the loading; "": none */

static void load_once(void)
{
#define X(name) #name
    static const char *const names[] = {RABBIT_CALLS(X)};
#undef X
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    void *at = library;

    for (size_t i = 0; at && i < RABBIT_COUNT; i++) {
        at = dlsym(library, names[i]);
        memcpy(&rabbit_calls[i], &at, sizeof at);
    }
    if (!at)
        snprintf(refused, sizeof refused, "%s", dlerror());
}

int rabbit_load(struct problem *p)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, load_once);
    return !refused[0]
               ? 0
               : problem_set(p, EX_CONFIG, EINVAL,
                             "a broker needs librabbitmq: %s; install it "
                             "(Debian: librabbitmq4)",
                             refused);
}

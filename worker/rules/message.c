/* message.c - a message's name (see message.h) */
#include "worker/rules/message.h"

#include <pthread.h>

#include "common/base/clock.h"

/* Guards the id of each message that has none yet: the thread of a handler and
 * that of its time limit may both ask. */
static pthread_mutex_t name_mtx = PTHREAD_MUTEX_INITIALIZER;

/* message_name - made when somebody is about to be told of it
 * Crash before the id is in the source's memory: the next run names the message
 * again, and nobody has seen the other name.
 */
const struct ulid *message_name(struct message *m)
{
    pthread_mutex_lock(&name_mtx);
    if (!message_named(m))
        *m->id = ulid_make(m->received_ns ? m->received_ns : clock_wall_ns());
    pthread_mutex_unlock(&name_mtx);
    return m->id;
}

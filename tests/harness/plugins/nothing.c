/* nothing.c - a plugin that does nothing */
#include "worker/mqworker.h"

int mqw_handle(const struct mqw_message *message, struct mqw_context *context)
{
    (void)message;
    (void)context;
    return MQW_DONE;
}

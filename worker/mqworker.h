/* mqworker.h - what a handler says of a message
 *
 * The public header of libmqworker. It stands alone.
 */
#ifndef MQWORKER_H
#define MQWORKER_H

#ifdef __cplusplus
extern "C" {
#endif

/* What becomes of a message. */
enum mqw_verdict {
    MQW_DONE,    /* finished: the message is gone */
    MQW_RETRY,   /* failed: again after the backoff, dead after the last try */
    MQW_DEAD,    /* cannot succeed: to the dead letters at once */
    MQW_DISCARD, /* not wanted: gone, and counted as discarded */
};

#ifdef __cplusplus
}
#endif
#endif

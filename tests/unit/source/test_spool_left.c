/* test_spool_left.c - why a stop left messages in the queue, as it logs that */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "worker/source/mq/spool.h"

/* Check the reason, and that the advice contains `next`. */
static void told(struct spool_last last, const char *why, const char *next)
{
    const char *said;

    cr_expect_str_eq(spool_left_why(&last, &said), why);
    cr_expect(strstr(said, next), "%s: %s", why, said);
}

Test(spool_left, senders_are_named_only_where_there_was_room_and_time)
{
    told((struct spool_last){.got = 0, .slot_free = true},
         "senders keep sending", "stop the senders");
    told((struct spool_last){.got = 7, .slot_free = true},
         "not all could be moved within 5s", "stop the senders");
    told((struct spool_last){.got = 0}, "no slot is free",
         "start and stop a worker, which finds free slots");
    told((struct spool_last){.got = 7}, "no slot is free",
         "start and stop a worker, which finds free slots");
    told((struct spool_last){.got = 0, .full = true}, "the spool is full",
         "a larger --spool");
    told((struct spool_last){.got = -EBADF, .slot_free = true},
         "Bad file descriptor", "start and stop a worker");
}

/* hold.c - a handler that has its worker's queue open to receive
 *
 * Notes its pid in $TEST_DIR/holds, and ends when there is a file
 * $TEST_DIR/open.
 */
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(void)
{
    FILE *f;

    /* A handler starts in the test's directory. */
    if (mq_open(getenv("MQW_QUEUE"), O_RDONLY | O_NONBLOCK) < 0)
        return 1;
    f = fopen("holds", "a");
    if (!f || fprintf(f, "%d\n", (int)getpid()) < 0 || fclose(f) != 0)
        return 1;
    while (access("open", F_OK) != 0)
        usleep(2000);
    return 0;
}

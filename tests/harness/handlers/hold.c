/* hold.c - a handler that has its worker's queue open for receiving
 *
 * It writes its pid to $TEST_DIR/holds and exits when the file $TEST_DIR/open
 * exists.
 */
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(void)
{
    FILE *f;

    /* The working directory of a handler is the test's directory. */
    if (mq_open(getenv("MQW_QUEUE"), O_RDONLY | O_NONBLOCK) < 0)
        return 1;
    f = fopen("holds", "a");
    if (!f || fprintf(f, "%d\n", (int)getpid()) < 0 || fclose(f) != 0)
        return 1;
    while (access("open", F_OK) != 0)
        usleep(2000);
    return 0;
}

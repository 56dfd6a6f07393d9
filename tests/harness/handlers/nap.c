/* nap.c - a handler that sleeps for as many microseconds as the body says */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(void)
{
    char body[32] = "";
    ssize_t n = read(0, body, sizeof body - 1);
    long us = n > 0 ? strtol(body, NULL, 10) : 0;
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    return clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
}

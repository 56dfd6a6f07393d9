/* kill_message.h - messages of the kill test, which can be checked on receipt
 *
 *   offset size
 *        0    1  'k'
 *        1    1  size of the whole body - 1
 *        2    4  number, host byte order
 *        6       bytes computed from the number; every fifth message ends in
 *                up to four bytes of 0xFF, which no text ends in
 * A body of fewer than KILL_TINY bytes repeats one letter, chosen by its size.
 */
#ifndef TESTS_CRASH_TORTURE_KILL_MESSAGE_H
#define TESTS_CRASH_TORTURE_KILL_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    KILL_HEAD = 6,
    KILL_TINY = 10, /* smaller bodies have no number */
    KILL_MAX = 256,
    KILL_EXIT_DEAD = 65,
    KILL_EXIT_DISCARD = 3,
};

/* Return a well-mixed hash of x (splitmix64). */
static inline uint64_t kill_hash(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Return the body size for a number: KILL_TINY to KILL_MAX - `less` bytes. */
static inline size_t kill_size(uint32_t number, size_t less)
{
    return KILL_TINY + kill_hash(number) % (KILL_MAX - less - KILL_TINY + 1);
}

/* Write the body of a number, `size` bytes. */
static inline void kill_make(uint32_t number, size_t size, unsigned char *body)
{
    size_t ones = number % 5 == 0 ? 1 + number / 5 % 4 : 0;

    body[0] = 'k';
    body[1] = (unsigned char)(size - 1);
    memcpy(body + 2, &number, sizeof number);
    for (size_t i = KILL_HEAD; i < size; i++)
        body[i] = i + ones >= size
                      ? 0xFF
                      : (unsigned char)kill_hash((uint64_t)number << 16 | i);
}

enum kill_what { KILL_WRONG, KILL_WHOLE, KILL_CUT };

/* Check a body against the number in it. KILL_CUT: the body is right as far as
 * it goes, but its end is missing. */
static inline enum kill_what kill_check(const unsigned char *body, size_t size,
                                        uint32_t *number)
{
    unsigned char want[KILL_MAX];
    size_t whole;

    *number = 0;
    if (size < KILL_TINY) {
        for (size_t i = 0; i < size; i++)
            if (body[i] != (unsigned char)('a' + size))
                return KILL_WRONG;
        return KILL_WHOLE;
    }
    whole = (size_t)body[1] + 1;
    memcpy(number, body + 2, sizeof *number);
    if (body[0] != 'k' || size > whole || whole < KILL_TINY)
        return KILL_WRONG;
    kill_make(*number, whole, want);
    if (memcmp(body, want, size) != 0)
        return KILL_WRONG;
    return size == whole ? KILL_WHOLE : KILL_CUT;
}

/* Return the exit status of the handler for a number at the given attempt. */
static inline int kill_exit(uint32_t number, unsigned attempt)
{
    if (number % 32 == 5)
        return KILL_EXIT_DEAD;
    if (number % 32 == 9)
        return KILL_EXIT_DISCARD;
    return number % 16 == 3 && attempt == 1 ? 1 : 0;
}

#endif

/* ulid.c - see ulid.h */
#include "common/base/ulid.h"

#include <bsd/stdlib.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/random.h>

#include "common/base/clock.h"

/* The 80 random bits of one thread, increased by one for each id. 79 are
 * random, so that 2^79 ids fit before they overflow. Ids of two threads or
 * machines are equal only if their random starts are closer than the number of
 * their ids. */
struct counter {
    unsigned generation; /* of the process it was seeded in; 0: not seeded */
    uint16_t high;
    uint64_t low;
    uint64_t ms; /* of the last id; never goes back */
};

static _Thread_local struct counter counter;
static _Atomic unsigned generation = 1; /* + 1 in each child of fork */

/* Invalidate the counters of all threads, in the child of fork. */
static void generation_raise(void)
{
    atomic_fetch_add_explicit(&generation, 1, memory_order_relaxed);
}

static void fork_watch(void)
{
    pthread_atfork(NULL, NULL, generation_raise);
}

/* Choose the random start of this thread, by getrandom(2). If the kernel has no
 * getrandom or a filter forbids it, arc4random uses other sources, and stops
 * the process if there is none. */
static void counter_seed(struct counter *c, unsigned now)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    unsigned char bits[sizeof c->low + sizeof c->high];
    ssize_t got;

    pthread_once(&once, fork_watch); /* children inherit the handler */
    do
        got = getrandom(bits, sizeof bits, 0);
    while (got < 0 && errno == EINTR);
    if (got != (ssize_t)sizeof bits)
        arc4random_buf(bits, sizeof bits);
    memcpy(&c->low, bits, sizeof c->low);
    memcpy(&c->high, bits + sizeof c->low, sizeof c->high);
    c->high &= 0x7fff;
    c->generation = now;
}

/* Swap bytes so that they sort as the number does. */
static uint64_t big_endian(uint64_t value)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return __builtin_bswap64(value);
#else
    return value;
#endif
}

struct ulid ulid_make(uint64_t wall_ns)
{
    struct counter *c = &counter;
    unsigned now = atomic_load_explicit(&generation, memory_order_relaxed);
    uint64_t ms = wall_ns / NS_PER_MS, words[2];
    struct ulid id;

    if (__builtin_expect(c->generation != now, 0))
        counter_seed(c, now);
    if (ms > c->ms)
        c->ms = ms;
    if (++c->low == 0)
        c->high++;
    words[0] = big_endian(c->ms << 16 | c->high);
    words[1] = big_endian(c->low);
    memcpy(id.bytes, words, sizeof id.bytes);
    return id;
}

/* Return the value of a digit in either case; -1 if the character is none of
 * the 32 digits. */
static int digit_value(char c)
{
    static const signed char values['Z' - '0' + 1] = {
        0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  -1, -1, -1, -1, -1,
        -1, -1, 10, 11, 12, 13, 14, 15, 16, 17, -1, 18, 19, -1, 20,
        21, -1, 22, 23, 24, 25, 26, -1, 27, 28, 29, 30, 31,
    };

    if (c >= 'a' && c <= 'z')
        c = (char)(c - 'a' + 'A');
    return c >= '0' && c <= 'Z' ? values[c - '0'] : -1;
}

int ulid_parse(const char *text, size_t size, struct ulid *out)
{
    uint64_t high = 0, low = 0, words[2];

    if (size != ULID_TEXT - 1 || digit_value(text[0]) > 7)
        return -EINVAL;
    for (size_t i = 0; i < size; i++) {
        int value = digit_value(text[i]);

        if (value < 0)
            return -EINVAL;
        high = high << 5 | low >> 59;
        low = low << 5 | (uint64_t)value;
    }
    words[0] = big_endian(high);
    words[1] = big_endian(low);
    memcpy(out->bytes, words, sizeof out->bytes);
    return 0;
}

/* The two digits for each value of 10 bits. Printing two digits at a time takes
 * half as many steps. */
/* clang-format off */
#define ROW(a) \
    a "0" a "1" a "2" a "3" a "4" a "5" a "6" a "7" a "8" a "9" a "A" a "B" \
    a "C" a "D" a "E" a "F" a "G" a "H" a "J" a "K" a "M" a "N" a "P" a "Q" \
    a "R" a "S" a "T" a "V" a "W" a "X" a "Y" a "Z"
static const char pairs[] =
    ROW("0") ROW("1") ROW("2") ROW("3") ROW("4") ROW("5") ROW("6") ROW("7")
    ROW("8") ROW("9") ROW("A") ROW("B") ROW("C") ROW("D") ROW("E") ROW("F")
    ROW("G") ROW("H") ROW("J") ROW("K") ROW("M") ROW("N") ROW("P") ROW("Q")
    ROW("R") ROW("S") ROW("T") ROW("V") ROW("W") ROW("X") ROW("Y") ROW("Z");
/* clang-format on */

/* Print the lowest 60 bits as 12 characters. */
static inline void pairs_put(char *to, uint64_t bits)
{
    for (int shift = 50; shift >= 0; shift -= 10, to += 2)
        memcpy(to, pairs + 2 * (bits >> shift & 1023), 2);
}

/* 16 bytes become 26 characters: 10, 60 and 60 bits. */
const char *ulid_print(struct ulid id, char buf[ULID_TEXT])
{
    uint64_t words[2], high, low;

    memcpy(words, id.bytes, sizeof words);
    high = big_endian(words[0]);
    low = big_endian(words[1]);
    memcpy(buf, pairs + 2 * (high >> 56), 2);
    pairs_put(buf + 2, high << 4 | low >> 60);
    pairs_put(buf + 14, low);
    buf[ULID_TEXT - 1] = '\0';
    return buf;
}

bool ulid_is_none(const struct ulid *id)
{
    static const struct ulid none;

    return memcmp(id, &none, sizeof none) == 0;
}

/* basics.h - small things that C lacks
 *
 * WHAT   The results of questions and of visits, CONTAINER_OF, the FNV-1a hash,
 *        and arrays that grow.
 * WHO    Every program, on any thread.
 * FAILS  array_grow: NULL.
 */
#ifndef COMMON_BASE_BASICS_H
#define COMMON_BASE_BASICS_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* The answer to a question. A function whose question can fail returns -errno
 * instead of an answer. */
enum answer { NO, YES };

/* Result of a callback that is called for each of many: 0 to continue,
 * VISIT_ENOUGH to end the visit without an error, or -errno, which the visit
 * then returns. */
enum { VISIT_ENOUGH = 1 };

/* Return the struct of `type` whose `member` is at `ptr`. */
#define CONTAINER_OF(ptr, type, member) \
    ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

/* Return the FNV-1a hash of more bytes, starting from `sum`. A new hash starts
 * from FNV_BEGIN. */
#define FNV_BEGIN UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME UINT64_C(0x100000001b3)
static inline uint64_t fnv_add(uint64_t sum, const void *data, size_t size)
{
    const unsigned char *at = data;

    for (size_t i = 0; i < size; i++)
        sum = (sum ^ at[i]) * FNV_PRIME;
    return sum;
}

#define ARRAY_FIRST 16 /* elements at first */

/* Make room for one more element. `array` has `count` elements of `size` bytes
 * and room for `*room`. Returns the array, which may have moved, with twice the
 * room if there was none left; NULL without memory, and the array is unchanged.
 * The caller frees it with free(3). */
static inline void *array_grow(void *array, size_t count, size_t *room,
                               size_t size)
{
    size_t more = *room ? 2 * *room : ARRAY_FIRST;
    void *bigger;

    if (count < *room)
        return array;
    bigger = reallocarray(array, more, size);
    if (bigger)
        *room = more;
    return bigger;
}

#endif

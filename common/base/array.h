/* array.h - an array that grows
 *
 * WHAT   Makes room for one more element, twice as much each time.
 * WHO    Any thread, for an array of its own.
 * OWNS   Nothing: the array is the caller's, and is freed with free(3).
 * FAILS  NULL where there is no memory; the array is as it was.
 */
#ifndef COMMON_BASE_ARRAY_H
#define COMMON_BASE_ARRAY_H

#include <stddef.h>
#include <stdlib.h>

#define ARRAY_FIRST 16 /* elements at first */

/* `array` has `count` elements of `size` bytes, and room for `*room`: it itself
 * if that is more, else what is to replace it. */
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

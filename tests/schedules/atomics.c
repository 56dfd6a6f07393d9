/* atomics.c - functions that the compiler calls at each atomic operation
 *
 * The files under test are compiled with -fsanitize=thread but linked without
 * its runtime; this file takes its place. At each atomic operation another
 * thread may run. Plain reads and writes are not switching points: what two
 * threads share is atomic or under a lock, which `make check-tsan` checks.
 */
#include <stdbool.h>
#include <stdint.h>

#include "tests/schedules/turn.h"

/* Only code that the compiler generates calls these functions. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define FETCH(bits, name)                                                  \
    uint##bits##_t __tsan_atomic##bits##_fetch_##name(                     \
        volatile void *at, uint##bits##_t value, int order)                \
    {                                                                      \
        (void)order;                                                       \
        turn_point();                                                      \
        return __atomic_fetch_##name((volatile uint##bits##_t *)at, value, \
                                     __ATOMIC_SEQ_CST);                    \
    }

#define COMPARE(bits, name)                                                   \
    bool __tsan_atomic##bits##_compare_exchange_##name(                       \
        volatile void *at, void *expected, uint##bits##_t value, int order,   \
        int failed)                                                           \
    {                                                                         \
        (void)order, (void)failed;                                            \
        turn_point();                                                         \
        return __atomic_compare_exchange_n(                                   \
            (volatile uint##bits##_t *)at, (uint##bits##_t *)expected, value, \
            false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                       \
    }

#define ATOMICS(bits)                                                         \
    uint##bits##_t __tsan_atomic##bits##_load(const volatile void *at,        \
                                              int order)                      \
    {                                                                         \
        (void)order;                                                          \
        turn_point();                                                         \
        return __atomic_load_n((const volatile uint##bits##_t *)at,           \
                               __ATOMIC_SEQ_CST);                             \
    }                                                                         \
    void __tsan_atomic##bits##_store(volatile void *at, uint##bits##_t value, \
                                     int order)                               \
    {                                                                         \
        (void)order;                                                          \
        turn_point();                                                         \
        __atomic_store_n((volatile uint##bits##_t *)at, value,                \
                         __ATOMIC_SEQ_CST);                                   \
    }                                                                         \
    uint##bits##_t __tsan_atomic##bits##_exchange(                            \
        volatile void *at, uint##bits##_t value, int order)                   \
    {                                                                         \
        (void)order;                                                          \
        turn_point();                                                         \
        return __atomic_exchange_n((volatile uint##bits##_t *)at, value,      \
                                   __ATOMIC_SEQ_CST);                         \
    }                                                                         \
    FETCH(bits, add)                                                          \
    FETCH(bits, sub)                                                          \
    FETCH(bits, and)                                                          \
    FETCH(bits, or)                                                           \
    FETCH(bits, xor)                                                          \
    COMPARE(bits, strong)                                                     \
    COMPARE(bits, weak)

ATOMICS(8)
ATOMICS(16)
ATOMICS(32)
ATOMICS(64)

void __tsan_atomic_thread_fence(int order)
{
    (void)order;
    turn_point();
}

void __tsan_atomic_signal_fence(int order)
{
    (void)order;
}

/* The compiler also calls these functions, which have nothing to do. */
void __tsan_init(void)
{
}
void __tsan_func_entry(void *caller)
{
    (void)caller;
}
void __tsan_func_exit(void)
{
}

#define PLAIN(name)              \
    void __tsan_##name(void *at) \
    {                            \
        (void)at;                \
    }
#define SIZES(what) \
    PLAIN(what##1) PLAIN(what##2) PLAIN(what##4) PLAIN(what##8) PLAIN(what##16)
SIZES(read)
SIZES(write)
SIZES(unaligned_read)
SIZES(unaligned_write)
SIZES(volatile_read)
SIZES(volatile_write)

void __tsan_read_range(void *at, unsigned long size)
{
    (void)at, (void)size;
}
void __tsan_write_range(void *at, unsigned long size)
{
    (void)at, (void)size;
}

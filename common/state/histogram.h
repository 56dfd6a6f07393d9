/* histogram.h - how often which duration: log-linear buckets
 *
 * WHAT   0 to 73 minutes in ns, 32 buckets to each doubling: no bucket is wider
 *        than 1/32 (3.1 %) of what it holds. docs/formats/counters.md has the
 *        table.
 * WHO    One thread writes a histogram, without read-modify-write; any thread
 *        reads, and adds several up.
 * OWNS   Nothing; embedded.
 * FAILS  Never; longer times count in the last bucket.
 */
#ifndef COMMON_STATE_HISTOGRAM_H
#define COMMON_STATE_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#define HISTOGRAM_BITS 5  /* 32 buckets to a doubling */
#define HISTOGRAM_TOP  42 /* bits of the longest duration */
#define HISTOGRAM_PART (1u << HISTOGRAM_BITS)
#define HISTOGRAM_BUCKETS \
    ((HISTOGRAM_TOP - HISTOGRAM_BITS + 1) * HISTOGRAM_PART)

struct histogram {
    _Atomic uint64_t count[HISTOGRAM_BUCKETS];
};

/* The bucket of a duration.
 * As a double (IEEE 754 binary64: 52 bits of fraction, the exponent above them
 * is 1023 more than the power of two) it is exact, and has the doubling and the
 * bits that follow it side by side. The first bucket of a doubling is that of
 * HISTOGRAM_PART. */
static inline unsigned histogram_bucket(uint64_t ns)
{
    const uint64_t first = (uint64_t)(1023 + HISTOGRAM_BITS - 1)
                           << HISTOGRAM_BITS;
    double exact = (double)(int64_t)ns;
    uint64_t bits;

    if (ns < HISTOGRAM_PART)
        return (unsigned)ns;
    if (ns >> HISTOGRAM_TOP)
        return HISTOGRAM_BUCKETS - 1;
    memcpy(&bits, &exact, sizeof bits);
    return (unsigned)((bits >> (52 - HISTOGRAM_BITS)) - first);
}

/* Count one; by the one thread that writes `h`. */
static inline void histogram_add(struct histogram *h, uint64_t ns)
{
    _Atomic uint64_t *at = &h->count[histogram_bucket(ns)];

    atomic_store_explicit(at,
                          atomic_load_explicit(at, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

/* Least duration of a bucket; of HISTOGRAM_BUCKETS: 2^HISTOGRAM_TOP. */
uint64_t histogram_low(unsigned bucket);

/* Several, added up; one thread. */
struct histogram_sum {
    uint64_t count[HISTOGRAM_BUCKETS];
    uint64_t total; /* of all buckets */
};
void histogram_sum(struct histogram_sum *into, const struct histogram *h);
/* `later` minus `earlier`: what came between. */
void histogram_since(struct histogram_sum *out,
                     const struct histogram_sum *later,
                     const struct histogram_sum *earlier);
/* A duration that the fraction `q` (0 to 1) does not exceed, as near as the
 * buckets tell (the end of one); 0 for an empty one. */
uint64_t histogram_quantile(const struct histogram_sum *s, double q);
/* How many are certainly not over `ns`, whole buckets only. */
uint64_t histogram_upto(const struct histogram_sum *s, uint64_t ns);

#endif

/* histogram.c - reading histograms (see histogram.h) */
#include "common/state/histogram.h"

uint64_t histogram_low(unsigned bucket)
{
    unsigned shift;

    if (bucket < 2 * HISTOGRAM_PART)
        return bucket;
    shift = bucket / HISTOGRAM_PART - 1;
    return (uint64_t)(bucket % HISTOGRAM_PART + HISTOGRAM_PART) << shift;
}

void histogram_sum(struct histogram_sum *into, const struct histogram *h)
{
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        uint64_t n = atomic_load_explicit(&h->count[i], memory_order_relaxed);

        into->count[i] += n;
        into->total += n;
    }
}

/* histogram_since - never below 0, as the worker may have restarted */
void histogram_since(struct histogram_sum *out,
                     const struct histogram_sum *later,
                     const struct histogram_sum *earlier)
{
    uint64_t total = 0;

    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        uint64_t a = earlier->count[i], b = later->count[i];

        out->count[i] = b > a ? b - a : 0;
        total += out->count[i];
    }
    out->total = total;
}

/* histogram_quantile - the end of the bucket in which the fraction is reached,
 * which is certain to hold that many */
uint64_t histogram_quantile(const struct histogram_sum *s, double q)
{
    double want = q * (double)s->total;
    uint64_t seen = 0;

    if (s->total == 0)
        return 0;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += s->count[i];
        if (s->count[i] && (double)seen >= want)
            return histogram_low(i + 1) - 1;
    }
    return histogram_low(HISTOGRAM_BUCKETS);
}

/* histogram_upto - all buckets that end at or below `ns` */
uint64_t histogram_upto(const struct histogram_sum *s, uint64_t ns)
{
    uint64_t n = 0;

    for (unsigned i = 0;
         i < HISTOGRAM_BUCKETS && histogram_low(i + 1) - 1 <= ns; i++)
        n += s->count[i];
    return n;
}

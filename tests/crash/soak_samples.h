/* soak_samples.h - measure what a program holds at rest, and whether it grows
 *
 * WHAT   One number a day for memory, descriptors, threads and the like.
 *        series_grows() looks at the slope and needs no absolute limit.
 * WHO    test_soak.c
 * OWNS   Nothing.
 * FAILS  By ending the test, if a program is not there.
 *
 * The first quarter of the days is for warming up and is left out. The rest is
 * cut in four parts. A series grows if the median of each part is above that of
 * the part before by more than the grain. A single step, or a value that comes
 * and goes, is not growth.
 */
#ifndef TESTS_CRASH_SOAK_SAMPLES_H
#define TESTS_CRASH_SOAK_SAMPLES_H

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/harness/harness.h"

enum { SOAK_DAYS = 20000, SOAK_PARTS = 4 };

struct series {
    const char *name;
    long grain; /* smaller steps are noise: pages, free memory kept */
    size_t n;
    long at[SOAK_DAYS];
};

static inline void series_add(struct series *s, long value)
{
    if (s->n < SOAK_DAYS)
        s->at[s->n++] = value;
}

static inline int series_order(const void *a, const void *b)
{
    long x = *(const long *)a, y = *(const long *)b;

    return (x > y) - (x < y);
}

/* Return the median of n values from `from` on; the lower one of two. */
static inline long series_median(const struct series *s, size_t from, size_t n)
{
    static long part[SOAK_DAYS];

    memcpy(part, s->at + from, n * sizeof *part);
    qsort(part, n, sizeof *part, series_order);
    return part[(n - 1) / 2];
}

static inline bool series_grows(const struct series *s)
{
    size_t warm = s->n / 4, each = (s->n - warm) / SOAK_PARTS;

    if (each == 0)
        return false;
    for (size_t i = 1; i < SOAK_PARTS; i++)
        if (series_median(s, warm + i * each, each) -
                series_median(s, warm + (i - 1) * each, each) <=
            s->grain)
            return false;
    return true;
}

/* Print a series and expect it not to grow; if it does, print every value. */
static inline void series_flat(const struct series *s)
{
    printf("soak: %s: %ld to %ld, %ld at the end\n", s->name,
           series_median(s, s->n / 4, (s->n - s->n / 4) / 4),
           series_median(s, s->n - s->n / 4, s->n / 4), s->at[s->n - 1]);
    for (size_t i = 0; series_grows(s) && i < s->n; i++)
        fprintf(stderr, "%ld%s", s->at[i], i + 1 < s->n ? " " : "\n");
    cr_expect_not(series_grows(s), "%s grows", s->name);
}

/* Return a number from /proc/PID/status: KiB, or threads. */
static inline long soak_status(pid_t pid, const char *field)
{
    char path[64], line[256];
    long value = -1;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    f = fopen(path, "re");
    cr_assert_not_null(f, "process %d is gone", (int)pid);
    while (fgets(line, sizeof line, f))
        if (strncmp(line, field, strlen(field)) == 0)
            value = strtol(line + strlen(field), NULL, 10);
    fclose(f);
    return value;
}

/* Return the KiB of private memory and of shared memory that was touched. */
static inline long soak_memory(pid_t pid)
{
    return soak_status(pid, "RssAnon:") + soak_status(pid, "RssShmem:");
}

static inline long soak_threads(pid_t pid)
{
    return soak_status(pid, "Threads:");
}

/* Return how many entries a folder has. */
static inline long soak_entries(const char *path)
{
    long n = 0;
    DIR *dir = opendir(path);

    cr_assert_not_null(dir, "%s is gone", path);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n - 2; /* "." and ".." */
}

static inline long soak_descriptors(pid_t pid)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    return soak_entries(path);
}

/* Return the size of a file in KiB; 0: there is no file. */
static inline long soak_kib(const char *path)
{
    struct stat st;

    return stat(path, &st) < 0 ? 0 : (long)(st.st_size / 1024);
}

#endif

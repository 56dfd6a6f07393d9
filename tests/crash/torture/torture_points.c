/* torture_points.c - kill at each named step (see torture.h)
 *
 * The programs list their steps themselves (common/base/fault_point.h). A new
 * step needs nothing here if ordinary messages pass it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli/term.h"
#include "tests/crash/torture/torture.h"
#include "tests/crash/torture/torture_feed.h"

#define POINTS_MOST 256
#define NAME_MOST   64
#define LEG         25 /* kills between two audits */
/* Tries for each hit that is wanted. Where fsync(2) takes 20 ms, some steps are
 * passed in one try of ten. */
#define TRIES 120

struct point {
    char name[NAME_MOST];
    unsigned hits, tries;
};

/* The steps of all programs. */
struct points {
    struct point at[POINTS_MOST];
    size_t count;
};

/* Add a name unless it is in the list. */
static void point_add(struct points *all, const char *name)
{
    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->at[i].name, name) == 0)
            return;
    if (all->count == POINTS_MOST)
        torture_die("more than %d points", POINTS_MOST);
    snprintf(all->at[all->count++].name, NAME_MOST, "%s", name);
}

/* Read the steps that a program lists. */
static void points_read(struct points *all, const struct torture *t,
                        const char *program)
{
    char command[PATH_MAX], line[256], name[NAME_MOST];
    unsigned passes;
    FILE *f;

    snprintf(command, sizeof command,
             "MQW_KILL_LIST=1 '%.3000s/%s' --version 2>&1 >/dev/null", t->bins,
             program);
    f = popen(command, "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "%63s %u", name, &passes) == 2 &&
            scene_possible(t, name) &&
            (!t->options->point || strstr(name, t->options->point)))
            point_add(all, name);
    if (!f || pclose(f) != 0)
        torture_die("%s/%s: cannot be run", t->bins, program);
}

/* Return true if the step was hit often enough. */
static bool point_is_done(const struct torture *t, const struct point *p)
{
    return p->hits >= t->options->hits || p->tries >= t->options->hits * TRIES;
}

static void point_try(struct torture *t, struct point *p)
{
    p->tries++;
    p->hits += scene_play(t, p->name);
}

/* Kill at the steps that only a new queue passes. */
static void points_first(struct torture *t, struct points *all)
{
    for (size_t i = 0; i < all->count; i++)
        while (scene_first(all->at[i].name) && !point_is_done(t, &all->at[i]) &&
               !torture_over(t)) {
            place_forget(t);
            point_try(t, &all->at[i]);
        }
}

/* Try each step once, in random order. Return true if all are done. */
static bool points_round(struct torture *t, struct points *all, unsigned *kills)
{
    size_t from = torture_random(all->count);
    bool all_done = true;

    for (size_t i = 0; i < all->count && !torture_over(t); i++) {
        struct point *p = &all->at[(from + i) % all->count];

        if (point_is_done(t, p))
            continue;
        all_done = false;
        point_try(t, p);
        if ((++*kills % LEG == 0 || feed_spent(t->world)) && !t->failed)
            leg_end(t);
    }
    return all_done;
}

/* Print the results; a step that was never hit makes the run fail. */
static void points_print(struct torture *t, const struct points *all)
{
    unsigned hits = 0;

    for (size_t i = 0; i < all->count; i++) {
        const struct point *p = &all->at[i];

        hits += p->hits;
        if (p->hits >= t->options->hits)
            continue;
        fprintf(stderr, "torture: %s: killed there %u times in %u tries\n",
                p->name, p->hits, p->tries);
        t->failed = true;
    }
    printf("%zu points, %u kills at them\n", all->count, hits);
}

void points_run(struct torture *t)
{
    static struct points all;
    struct term_progress bar;
    unsigned kills = 0;

    memset(&all, 0, sizeof all);
    points_read(&all, t, "mqworker");
    points_read(&all, t, "mqdlq");
    if (all.count == 0)
        torture_die("%s: these programs have no points; make torture builds "
                    "some that have",
                    t->bins);
    points_first(t, &all);
    feed_start(t->world, t->queue);
    term_progress_start(&bar, "killing", all.count * t->options->hits);
    while (!torture_over(t) && !points_round(t, &all, &kills))
        term_progress_step(&bar, kills);
    term_progress_end(&bar);
    if (!t->failed)
        leg_end(t);
    if (!t->failed && !torture_over(t))
        points_print(t, &all);
}

/* power_disk.c - states of a disk after a power cut (see power.h)
 *
 * Everything synced is on disk. Of all other changes, any part may be:
 * - each write or none of it, or each of its sectors of 512 bytes separately;
 * - any length that a file had since its sync, with or without the data; parts
 *   that were not written read as zeros;
 * - names: each creation, link, unlink and rename in a folder, whole or not at
 *   all. A journalling file system has all steps up to some point; another one
 *   may have any subset.
 * fsync(2) of a file does not sync its name, as POSIX allows.
 */
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/crash/power/power.h"

#define SECTOR 512

struct entry {
    char name[64];
    uint64_t file;
};

struct names {
    struct entry all[64];
    size_t count;
};

struct node {
    uint64_t number;
    bool folder;
    struct names names; /* synced */
    char *data;         /* synced */
    size_t size;
    const struct power_record **pending;
    size_t count, room;
    struct node *next;
};

struct power_disk {
    uint64_t root;
    struct node *nodes;
};

static struct node *node_find(const struct power_disk *d, uint64_t number)
{
    struct node *n = d->nodes;

    while (n && n->number != number)
        n = n->next;
    return n;
}

static struct node *node_make(struct power_disk *d, uint64_t number)
{
    struct node *n = node_find(d, number);

    if (n)
        return n;
    n = calloc(1, sizeof *n);
    if (!n)
        power_fail("out of memory");
    n->number = number;
    n->next = d->nodes;
    d->nodes = n;
    return n;
}

struct power_disk *power_disk_open(uint64_t root)
{
    struct power_disk *d = calloc(1, sizeof *d);

    if (!d)
        power_fail("out of memory");
    d->root = root;
    node_make(d, root)->folder = true;
    return d;
}

void power_disk_close(struct power_disk *d)
{
    while (d->nodes) {
        struct node *n = d->nodes;

        d->nodes = n->next;
        free(n->data);
        free(n->pending);
        free(n);
    }
    free(d);
}

/* ---- names ---- */

static void name_cut(struct names *all, const char *name)
{
    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->all[i].name, name) == 0) {
            all->all[i] = all->all[--all->count];
            return;
        }
}

static void name_put(struct names *all, const char *name, uint64_t file)
{
    struct entry *e;

    name_cut(all, name);
    if (all->count == sizeof all->all / sizeof all->all[0])
        power_fail("a folder has too many names");
    e = &all->all[all->count++];
    snprintf(e->name, sizeof e->name, "%s", name);
    e->file = file;
}

/* Apply one step. Both names of a rename are in the same folder. */
static void name_apply(struct names *all, const struct power_record *r)
{
    char name[64], name2[64];

    snprintf(name, sizeof name, "%.*s", r->name, (const char *)(r + 1));
    snprintf(name2, sizeof name2, "%.*s", r->name2,
             (const char *)(r + 1) + r->name);
    name_cut(all, name);
    if (r->kind == POWER_RENAME || r->kind == POWER_EXCHANGE)
        name_cut(all, name2);
    if (r->kind != POWER_UNLINK)
        name_put(all, name, r->file);
    if (r->kind == POWER_EXCHANGE)
        name_put(all, name2, r->at);
}

/* ---- content ---- */

struct content {
    char *data;
    size_t size, room;
};

static void content_room(struct content *c, size_t room)
{
    if (room <= c->room)
        return;
    c->data = realloc(c->data, room);
    if (!c->data)
        power_fail("out of memory");
    memset(c->data + c->room, 0, room - c->room);
    c->room = room;
}

/* Apply a write or a change of size. If `torn` is set, that seed chooses the
 * sectors. */
static void content_apply(struct content *c, const struct power_record *r,
                          uint64_t *torn)
{
    const char *from = power_data(r);
    size_t end = r->at + (r->kind == POWER_WRITE ? r->size : 0), n;

    content_room(c, end);
    if (r->kind == POWER_SIZE) {
        if (c->size > end)
            memset(c->data + end, 0, c->room - end);
        c->size = end;
        return;
    }
    for (size_t at = r->at; at < end; at += n) {
        n = SECTOR - at % SECTOR;
        n = n < end - at ? n : end - at;
        if (!torn || power_random(torn) & 1)
            memcpy(c->data + at, from + (at - r->at), n);
    }
    if (c->size < end)
        c->size = end;
}

static void node_pend(struct node *n, const struct power_record *r)
{
    if (n->count == n->room) {
        n->room = n->room ? 2 * n->room : 64;
        n->pending = realloc(n->pending, n->room * sizeof *n->pending);
        if (!n->pending)
            power_fail("out of memory");
    }
    n->pending[n->count++] = r;
}

static void node_sync(struct node *n)
{
    struct content c = {n->data, n->size, n->size};

    for (size_t i = 0; i < n->count; i++)
        if (n->folder)
            name_apply(&n->names, n->pending[i]);
        else
            content_apply(&c, n->pending[i], NULL);
    n->count = 0;
    n->data = c.data;
    n->size = c.size;
    if (c.room > c.size) /* the next node_sync takes the size for the room */
        n->data = realloc(c.data, c.size ? c.size : 1);
}

void power_disk_add(struct power_disk *d, const struct power_record *r)
{
    if (r->kind >= POWER_UNSYNC)
        return;
    if (r->kind == POWER_SYNC) {
        node_sync(node_make(d, r->file));
        return;
    }
    if (r->kind >= POWER_WRITE) {
        node_pend(node_make(d, r->file), r);
        return;
    }
    if (r->other && r->other != r->folder)
        power_fail("a rename from folder to folder");
    if (r->file)
        node_make(d, r->file)->folder |= r->kind == POWER_MKDIR;
    node_pend(node_make(d, r->folder), r);
}

/* ---- a state ---- */

struct choice {
    enum { ALL, NONE, PREFIX, SOME, CHOICES } what;
    unsigned percent;
    const struct power_record *until; /* PREFIX: the last change that is on
                                       * disk */
    uint64_t seed;
};

/* Return true if the change is on disk. Records lie in memory in the order of
 * the trace. */
static bool is_on_disk(struct choice *c, const struct power_record *r)
{
    switch (c->what) {
    case ALL:
        return true;
    case PREFIX:
        return r <= c->until;
    case SOME:
        return power_random(&c->seed) % 100 < c->percent;
    default:
        return false;
    }
}

static void file_make(const struct node *n, struct choice *c, const char *path)
{
    struct content is = {0}, full = {.size = n->size};
    bool apart = c->what == SOME && power_random(&c->seed) & 1;
    size_t want = n->size, pick = n->count;
    int fd;

    if (apart)
        pick = power_random(&c->seed) % (n->count + 1);
    content_room(&is, n->size);
    if (n->size)
        memcpy(is.data, n->data, n->size);
    is.size = n->size;
    for (size_t i = 0; i < n->count; i++) {
        const struct power_record *r = n->pending[i];
        bool last = c->what == PREFIX && r == c->until;
        bool torn =
            last || (c->what == SOME && power_random(&c->seed) % 4 == 0);

        if (r->kind == POWER_SIZE)
            full.size = r->at;
        else if (full.size < r->at + r->size)
            full.size = r->at + r->size;
        if (i < pick)
            want = full.size;
        if (is_on_disk(c, r))
            content_apply(&is, r, torn ? &c->seed : NULL);
    }
    if (apart) {
        content_room(&is, want);
        if (want > is.size)
            memset(is.data + is.size, 0, want - is.size);
        is.size = want;
    }
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 ||
        write(fd, is.data ? is.data : "", is.size) != (ssize_t)is.size)
        power_fail("%s: cannot be written", path);
    close(fd);
    free(is.data);
}

/* Write a file or folder. A file with two names becomes two files, which makes
 * no difference here. */
static void tree_make(const struct power_disk *d, uint64_t number,
                      struct choice *c, const char *path)
{
    const struct node *n = node_find(d, number);
    bool ordered = c->what == SOME && power_random(&c->seed) & 1;
    char below[PATH_MAX];
    struct names names;
    size_t until;

    if (!n || !n->folder) {
        file_make(n ? n : &(struct node){0}, c, path);
        return;
    }
    names = n->names;
    until = ordered ? power_random(&c->seed) % (n->count + 1) : n->count;
    for (size_t i = 0; i < until; i++)
        if (ordered || is_on_disk(c, n->pending[i]))
            name_apply(&names, n->pending[i]);
    if (mkdir(path, 0700) < 0)
        power_fail("%s: cannot be made", path);
    for (size_t i = 0; i < names.count; i++) {
        snprintf(below, sizeof below, "%s/%s", path, names.all[i].name);
        tree_make(d, names.all[i].file, c, below);
    }
}

static int entry_remove(const char *path, const struct stat *st, int kind,
                        struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

/* Pick one of all pending changes. */
static const struct power_record *until_pick(const struct power_disk *d,
                                             uint64_t *seed)
{
    size_t count = 0, at;

    for (const struct node *n = d->nodes; n; n = n->next)
        count += n->count;
    at = count ? power_random(seed) % count : 0;
    for (const struct node *n = d->nodes; n; n = n->next) {
        if (at < n->count)
            return n->pending[at];
        at -= n->count;
    }
    return NULL;
}

void power_disk_make(const struct power_disk *d, const char *root,
                     uint64_t seed, bool whole)
{
    struct choice c = {.seed = seed};
    uint64_t pick;

    pick = power_random(&c.seed) % 8;
    c.what = whole ? ALL : pick < 3 ? (unsigned)pick : SOME;
    c.percent = 5 + (unsigned)(power_random(&c.seed) % 91);
    c.until = until_pick(d, &c.seed);
    if (access(root, F_OK) == 0 &&
        nftw(root, entry_remove, 8, FTW_DEPTH | FTW_PHYS) != 0)
        power_fail("%s: cannot be removed", root);
    tree_make(d, d->root, &c, root);
}

/* ---- the trace ---- */

void power_events_read(struct power_events *e, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    const char *at, *end;
    char *copy;

    if (fd < 0 || fstat(fd, &st) < 0 || st.st_size <= POWER_PAGE)
        power_fail("%s: nothing was recorded", path);
    copy = malloc((size_t)st.st_size * 2); /* twice the size, to align the
                                            * records */
    e->all = calloc((size_t)st.st_size / sizeof **e->all + 1, sizeof *e->all);
    at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (!copy || !e->all || at == MAP_FAILED)
        power_fail("out of memory");
    close(fd);
    e->count = 0;
    for (end = at + st.st_size, at += POWER_PAGE; at < end;) {
        size_t left = (size_t)(end - at), all;
        struct power_record r = {0};

        memcpy(&r, at, left < sizeof r ? left : sizeof r);
        all = sizeof r + r.name + r.name2 + r.size;
        if (r.kind < POWER_CREATE || r.kind > POWER_WORLD || all > left ||
            r.size > left)
            power_fail("%s: record %zu is cut short, or none, %zu bytes before "
                       "the end: record again",
                       path, e->count, left);
        memcpy(copy, at, all);
        e->all[e->count++] = (const void *)copy;
        copy += (all + 15) / 16 * 16;
        at += all;
    }
}

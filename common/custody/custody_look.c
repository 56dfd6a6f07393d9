/* custody_look.c - reads the file of custody without owning it (see custody.h)
 *
 * mqctl calls custody_look to list messages in flight, also beside a running
 * worker. custody_known checks a file before a worker opens it, and
 * custody_holds before a runtime directory is left or removed. Nothing here
 * writes to the file.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sysexits.h>

#include "common/base/file.h"
#include "common/base/problem.h"
#include "common/custody/custody.h"

#define TRIES 8

struct map {
    const unsigned char *at;
    size_t bytes;
};

/* Map a whole file to read, and copy its header. On failure m->at is NULL, and
 * this returns -errno, with a problem. */
static int map_open(struct map *m, struct custody_head *h, const char *path,
                    struct problem *p)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), err = 0;
    struct stat st = {0};
    void *at = MAP_FAILED;

    *m = (struct map){0};
    memset(h, 0, sizeof *h);
    if (fd < 0 || fstat(fd, &st) < 0 ||
        (st.st_size >= FILE_HEAD &&
         (at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0)) ==
             MAP_FAILED))
        err = errno;
    else if (st.st_size < FILE_HEAD)
        err = EINVAL;
    fd_close(&fd);
    if (err) {
        problem_fill(p, err == EACCES ? EX_NOPERM : EX_CANTCREAT,
                     "custody file %s: %s", path,
                     err == EINVAL ? "it is cut short"
                     : err == EACCES
                         ? "Permission denied; run as the worker's user or root"
                         : errno_text(err));
        return problem_code(err);
    }
    m->at = at;
    m->bytes = (size_t)st.st_size;
    memcpy(h, at, sizeof *h);
    return 0;
}

static void map_close(struct map *m)
{
    munmap((void *)m->at, m->bytes);
}

/* Copy a slot, with its body and the header in it, while its worker may be
 * changing both. Returns true if the copy is whole and the slot is HELD or
 * RUNNING. */
static bool slot_copy(struct custody_seen *out, const struct slot *slot,
                      unsigned char *body, size_t room)
{
    char why[HEADER_WHY];

    for (int i = 0; i < TRIES; i++) {
        uint64_t before = atomic_load(&slot->word);

        out->w = slot_word(slot);
        if (out->w.state != SLOT_HELD && out->w.state != SLOT_RUNNING)
            return false;
        out->id = slot->id;
        out->row = slot->row;
        out->priority = slot->priority;
        out->failures = slot->failures;
        out->size = atomic_load(&slot->length);
        out->pgid = atomic_load(&slot->handler_pgid);
        out->seq = slot->seq;
        out->received_ns = slot->received_ns;
        out->started_ns = slot->started_ns;
        out->data = body;
        out->data_size = out->size < room ? out->size : room;
        memcpy(body, slot->body, out->data_size);
        if (atomic_load(&slot->word) != before)
            continue;
        memset(&out->header, 0, sizeof out->header);
        out->group[0] = '\0';
        if (header_parse(body, out->data_size, &out->header, why) < 0)
            memset(&out->header, 0, sizeof out->header);
        if (out->header.fields & HEADER_GROUP) {
            memcpy(out->group, out->header.group.at, out->header.group.size);
            out->group[out->header.group.size] = '\0';
        }
        return true;
    }
    return false;
}

int custody_look(const char *path,
                 int (*visit)(const struct custody_seen *seen, void *arg),
                 void *arg, struct problem *p)
{
    unsigned char *body = NULL;
    struct custody_seen seen;
    struct custody_head h;
    struct map m;
    int err = map_open(&m, &h, path, p);

    if (err)
        return err;
    err = custody_head_check(&h, path, p);
    if (!err && !(body = malloc((size_t)h.body_bytes + 1)))
        err = -ENOMEM;
    for (size_t i = 0, at = FILE_HEAD;
         !err && i < h.slots && at + h.stride <= m.bytes;
         i++, at += (size_t)h.stride)
        if (slot_copy(&seen, (const struct slot *)(const void *)(m.at + at),
                      body, (size_t)h.body_bytes))
            err = visit(&seen, arg);
    if (err == -ENOMEM)
        problem_memory(p);
    free(body);
    map_close(&m);
    return err;
}

int custody_known(const char *path, uint64_t *nonce, struct problem *p)
{
    struct custody_head h;
    struct map m;
    int err;

    if (map_open(&m, &h, path, NULL) < 0)
        return 0; /* a program that opens it to write says what is wrong */
    map_close(&m);
    err = custody_head_check(&h, path, p);
    if (!err && nonce)
        *nonce = h.nonce;
    return err;
}

/* A RECEIVING slot counts as a message, too. */
int custody_holds(const char *path)
{
    struct custody_head h;
    struct map m;
    struct stat st;
    int found;

    if (lstat(path, &st) < 0)
        return errno == ENOENT ? NO : -errno;
    if (map_open(&m, &h, path, NULL) < 0)
        return -EINVAL;
    found = custody_head_check(&h, path, NULL);
    for (size_t at = FILE_HEAD; found == NO && at + h.stride <= m.bytes;
         at += (size_t)h.stride)
        found = slot_free((const struct slot *)(const void *)(m.at + at)) ? NO
                                                                          : YES;
    map_close(&m);
    return found;
}

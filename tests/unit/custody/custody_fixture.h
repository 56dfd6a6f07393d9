/* custody_fixture.h - a scratch folder and a custody file in it */
#ifndef TESTS_UNIT_CUSTODY_CUSTODY_FIXTURE_H
#define TESTS_UNIT_CUSTODY_CUSTODY_FIXTURE_H

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/custody/custody.h"

#define FIXTURE_ROOM 256

/* Offsets in the file, from docs/formats/custody.md. */
#define AT_VERSION 8
#define AT_CLEAN   20
#define AT_SLOTS   56
#define AT_SLOT    4096

static char fixture_dir[64];
static char fixture_file[128];

static inline int fixture_unlink(const char *path, const struct stat *st,
                                 int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

static inline void fixture_init(void)
{
    strcpy(fixture_dir, "/tmp/mqw-custody-XXXXXX");
    cr_assert(mkdtemp(fixture_dir));
    snprintf(fixture_file, sizeof fixture_file, "%s/custody", fixture_dir);
}

static inline void fixture_fini(void)
{
    nftw(fixture_dir, fixture_unlink, 8, FTW_DEPTH | FTW_PHYS);
}

static inline struct custody_spec fixture_spec(unsigned slots)
{
    return (struct custody_spec){
        .body_bytes = FIXTURE_ROOM, .slots = slots, .slots_max = 64};
}

/* Open a custody file as the worker does. */
static inline struct custody *fixture_open_at(const char *path, size_t room,
                                              unsigned slots)
{
    struct custody_spec spec = fixture_spec(slots);
    struct custody *c;
    struct problem p = {0};
    int err;

    spec.body_bytes = room;
    err = custody_open(&c, path, &spec, &p);
    cr_assert(err == 0, "%s", p.text);
    return c;
}

static inline struct custody *fixture_open(unsigned slots)
{
    return fixture_open_at(fixture_file, FIXTURE_ROOM, slots);
}

/* The slots that recovery found busy. */
struct fixture_found {
    struct slot *slot[128];
    unsigned count;
};

static inline struct fixture_found fixture_recover(struct custody *c)
{
    struct fixture_found f;
    struct problem p = {0};

    cr_assert(custody_recover(c, &p) == 0, "%s", p.text);
    f.count = (unsigned)custody_busy(c, f.slot);
    return f;
}

/* Put a message into a slot, as the worker does when it receives one. */
static inline struct slot *fixture_take(struct custody *c, const char *text)
{
    struct slot *slot = custody_acquire(c);

    cr_assert(slot != NULL);
    slot_arm(slot, custody_fill(c), custody_seq_next(c));
    slot->priority = 5;
    memcpy(slot->body, text, strlen(text));
    slot_taken(slot, (uint32_t)strlen(text), 1);
    custody_seq_used(c);
    return slot;
}

static inline void fixture_text_is(const struct slot *slot, const char *text)
{
    cr_assert_eq(atomic_load(&slot->length), strlen(text));
    cr_assert_arr_eq(slot->body, text, strlen(text));
}

static inline void fixture_copy(const char *from, const char *to)
{
    char buf[65536];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT, 0600);
    ssize_t n;

    cr_assert(in >= 0 && out >= 0 && ftruncate(out, 0) == 0);
    while ((n = read(in, buf, sizeof buf)) > 0)
        cr_assert_eq(write(out, buf, (size_t)n), n);
    close(in);
    close(out);
}

static inline void fixture_patch(const char *path, off_t at, const void *data,
                                 size_t size)
{
    int fd = open(path, O_WRONLY);

    cr_assert(fd >= 0 && pwrite(fd, data, size, at) == (ssize_t)size);
    close(fd);
}

static inline void fixture_peek(const char *path, off_t at, void *data,
                                size_t size)
{
    int fd = open(path, O_RDONLY);

    cr_assert(fd >= 0 && pread(fd, data, size, at) == (ssize_t)size);
    close(fd);
}

/* Return the contents of a file; the caller frees them. */
static inline void *fixture_bytes(const char *path, size_t *size)
{
    struct stat st;
    char *data;

    cr_assert(stat(path, &st) == 0);
    *size = (size_t)st.st_size;
    data = malloc(*size + 1);
    cr_assert(data != NULL);
    fixture_peek(path, 0, data, *size);
    return data;
}

/* Count the files of the folder whose names start with `prefix`. */
static inline unsigned fixture_names(const char *prefix)
{
    DIR *dir = opendir(fixture_dir);
    struct dirent *e;
    unsigned n = 0;

    while (dir && (e = readdir(dir)))
        n += strncmp(e->d_name, prefix, strlen(prefix)) == 0;
    closedir(dir);
    return n;
}

#endif

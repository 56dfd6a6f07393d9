/* store_wal_check.c - who may judge the -wal, and when (store_wal.h)
 *
 * A program that opens a store that nobody has open has SQLite recover the
 * -wal. Worker, mqdlq and mqctl all can be the first, so each of them looks;
 * one that comes while others have it open finds the index that they made, and
 * does not.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/store/store_file.h"
#include "common/store/store_wal.h"

#define BUSY_NS    (5 * NS_PER_S)
#define SHM_REGION 32768 /* of the -shm: sqlite.org/walformat.html, section 2 */
#define SHM_COPY   48    /* its header is there twice */
#define SHM_READY  12    /* a byte that is set once it is recovered */
#define SHM_WRITER 0     /* the lock of who writes, or recovers */

/* recovered - somebody who is still there has judged it and taken it over */
static bool recovered(const volatile void *index)
{
    unsigned char head[2 * SHM_COPY];
    if (!index)
        return false;
    memcpy(head, (const void *)index, sizeof head);
    return head[SHM_READY] && memcmp(head, head + SHM_COPY, SHM_COPY) == 0;
}

/* look_locked - read it while nobody writes; a SQLite result code */
static int look_locked(sqlite3_file *f, const char *wal, struct store_wal *out,
                       bool *others, int *err)
{
    const sqlite3_io_methods *m = f->pMethods;
    volatile void *index = NULL;
    int rc = m->xShmMap(f, 0, SHM_REGION, 0, &index);
    *others = rc == SQLITE_OK && recovered(index);
    if (rc == SQLITE_OK && !*others) {
        rc = m->xShmLock(f, SHM_WRITER, 1,
                         SQLITE_SHM_LOCK | SQLITE_SHM_EXCLUSIVE);
        if (rc == SQLITE_OK) {
            *err = store_wal_read(out, wal);
            m->xShmLock(f, SHM_WRITER, 1,
                        SQLITE_SHM_UNLOCK | SQLITE_SHM_EXCLUSIVE);
        }
    }
    m->xShmUnmap(f, 0);
    return rc;
}

/* look - as SQLite takes part in a -wal: with the file's shared lock, which
 * keeps others from taking -wal and -shm away as they close; then the -shm,
 * whose first user empties it; then, if it is empty, the lock of writers */
static int look(sqlite3_file *f, const char *wal, struct store_wal *out,
                bool *others, int *err)
{
    uint64_t end = clock_mono_ns() + BUSY_NS;
    for (;;) {
        int rc = f->pMethods->xLock(f, SQLITE_LOCK_SHARED);
        if (rc == SQLITE_OK) {
            rc = look_locked(f, wal, out, others, err);
            f->pMethods->xUnlock(f, SQLITE_LOCK_NONE);
        }
        if ((rc & 0xff) != SQLITE_BUSY || clock_mono_ns() >= end)
            return rc;
        sqlite3_sleep(1);
    }
}

/* wal_problem - what is damaged, and how to go on without it */
static int wal_problem(const struct store_wal *w, const char *wal,
                       struct problem *p)
{
    if (w->bad == 0)
        return problem_set(p, EX_CANTCREAT, EBADMSG,
                           "%s is damaged: its header is none, so nothing in "
                           "it can be read; left as it is: keep a copy of the "
                           "folder, then `mv %s %s.damaged` goes on without "
                           "it, or use another --state-dir",
                           wal, wal, wal);
    return problem_set(
        p, EX_CANTCREAT, EBADMSG,
        "%s is damaged: frame %llu of %llu does not match its "
        "checksum, so SQLite would drop it and all behind it "
        "(commits: at least %llu); left as it is: keep a copy "
        "of the folder, then `truncate -s %llu %s` goes on "
        "without them, or use another --state-dir",
        wal, (unsigned long long)w->bad, (unsigned long long)w->frames,
        (unsigned long long)w->commits, (unsigned long long)w->keep, wal);
}

/* exists - a file of that name */
static bool exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

/* unlinked_problem - they go on with a file that nobody else can open */
static int unlinked_problem(const char *wal, struct problem *p)
{
    return problem_set(p, EX_CANTCREAT, ENOENT,
                       "%s was removed while another program has the store "
                       "open: a second one would damage it; a worker writes it "
                       "again within seconds, try again then (its log: "
                       "event=file_gone)",
                       wal);
}

/* store_wal_check - before anything else looks into the file */
int store_wal_check(sqlite3 *db, const char *path,
                    struct store_wal_state *state, struct problem *p)
{
    char wal[PATH_MAX + 8], shm[PATH_MAX + 8];
    struct stat st;
    struct store_wal out = {0};
    bool none;
    sqlite3_file *f = NULL;
    int err = 0;
    *state = (struct store_wal_state){0};
    snprintf(wal, sizeof wal, "%s-wal", path);
    snprintf(shm, sizeof shm, "%s-shm", path);
    none = stat(wal, &st) < 0 && errno == ENOENT;
    if (none ? !exists(shm) : exists(wal) && st.st_size <= STORE_WAL_HEAD)
        return 0;
    sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &f);
    if (!f || !f->pMethods || f->pMethods->iVersion < 2)
        return 0; /* SQLite does not do without these calls either */
    int rc = look(f, wal, &out, &state->others, &err);
    if (rc == SQLITE_OK && err == -ENOMEM)
        rc = SQLITE_NOMEM;
    if (rc != SQLITE_OK)
        return store_file_refuse(db, rc, path, p);
    if (err)
        return problem_set(p, err == -EMFILE ? EX_OSERR : EX_CANTCREAT, -err,
                           "%s cannot be read: %s; left as it is: mend that "
                           "and start again, or use another --state-dir",
                           wal, strerror(-err));
    if (none && state->others && !exists(wal))
        return unlinked_problem(wal, p);
    state->torn = !out.damaged && out.commits > 0;
    return out.damaged ? wal_problem(&out, wal, p) : 0;
}

/* store_wal_reset - if a reader is in the way, it stays: then a kill before the
 * file is begun anew may be taken for damage, and nothing is lost by that */
void store_wal_reset(sqlite3 *db)
{
    sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
}

/* store_wal_bury - what lies behind the last commit is gone, or broken
 * SQLite writes a commit to the end and syncs, then its index has it. One that
 * was cut off between is in the file but not in the index: who has the store
 * open does not see it, but when the last of them is gone, the next one takes
 * it over, whatever was made of its messages meanwhile. So the file is begun
 * anew; if a reader is in the way, or the disk, a commit that changes nothing
 * is written over the first frame of it, and what is behind a frame that does
 * not match is never taken over. Also if it cannot be synced: a kill leaves
 * what was written.
 */
int store_wal_bury(sqlite3 *db)
{
    int rc = sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_TRUNCATE,
                                       NULL, NULL);
    _Static_assert(STORE_VERSION == 2, "it stays what it is");
    if (rc != SQLITE_OK)
        rc = sqlite3_exec(db, "PRAGMA user_version = 2", NULL, NULL, NULL);
    return rc;
}

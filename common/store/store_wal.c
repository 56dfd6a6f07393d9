/* store_wal.c - what SQLite leaves to us of a -wal; see store_wal.h */
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sysexits.h>

#include "common/store/file.h"
#include "common/store/store_wal.h"

/* shared - whether somebody has the store open: the first user of the -shm
 * empties it, and recovery fills it; walformat.html of SQLite, section 2 */
static bool shared(sqlite3_file *f)
{
    enum { REGION = 32768, READY = 12 };
    const sqlite3_io_methods *m = f->pMethods;
    volatile void *index = NULL;
    bool is = false;

    if (m->iVersion < 2 || m->xLock(f, SQLITE_LOCK_SHARED) != SQLITE_OK)
        return false; /* SQLite will say so, too */
    if (m->xShmMap(f, 0, REGION, 0, &index) == SQLITE_OK)
        is = index && ((const volatile unsigned char *)index)[READY];
    m->xShmUnmap(f, 0);
    m->xUnlock(f, SQLITE_LOCK_NONE);
    return is;
}

/* store_wal_whole - a process that has the store open goes on with a -wal that
 * no other process can open */
int store_wal_whole(sqlite3 *db, const char *path, struct problem *p)
{
    char wal[PATH_MAX + 8], shm[PATH_MAX + 8];
    struct stat st;
    sqlite3_file *f = NULL;

    snprintf(wal, sizeof wal, "%s-wal", path);
    snprintf(shm, sizeof shm, "%s-shm", path);
    if (stat(wal, &st) == 0 || stat(shm, &st) < 0)
        return 0;
    sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &f);
    if (!f || !f->pMethods || !shared(f) || stat(wal, &st) == 0)
        return 0;
    return problem_set(p, EX_CANTCREAT, ENOENT,
                       "%s was removed while another program has the store "
                       "open: a second one would damage it; a worker writes it "
                       "again within seconds, try again then (its log: "
                       "event=file_gone)",
                       wal);
}

/* store_wal_bury - a commit behind the last one in the index is gone, or broken
 * SQLite writes a commit to the end of the -wal, syncs, then enters it into its
 * index. A commit that was cut off between is in the file but not in the index:
 * processes that have the store open do not see it, but after the last of them
 * is gone, the next one takes it over, although its messages may have been
 * settled otherwise meanwhile. So the file is emptied; if a reader or the disk
 * prevents that, a commit that changes nothing is written over its first frame,
 * and SQLite never takes over anything behind a frame that does not match. That
 * works also if it cannot be synced: a kill keeps written pages. */
int store_wal_bury(sqlite3 *db)
{
    int rc = sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_TRUNCATE,
                                       NULL, NULL);

    _Static_assert(STORE_VERSION == 1, "it stays what it is");
    if (rc != SQLITE_OK)
        rc = sqlite3_exec(db, "PRAGMA user_version = 1", NULL, NULL, NULL);
    return rc;
}

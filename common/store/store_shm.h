/* store_shm.h - the -shm that SQLite maps has its disk before it is touched
 *
 * WHAT   Stands before xShmMap of one connection: a region of the -shm is
 *        allocated, all of it, before SQLite gets its address.
 * WHO    sql_open; then SQLite, on the connection's thread.
 * OWNS   The file's methods, which SQLite uses until the connection is closed:
 *        the struct stays where it is until then.
 * FAILS  SQLITE_IOERR_SHMSIZE where the disk has no room; never a SIGBUS.
 */
#ifndef COMMON_STORE_STORE_SHM_H
#define COMMON_STORE_STORE_SHM_H

#include <sqlite3.h>

struct store_shm {
    sqlite3_io_methods methods; /* the real ones but for xShmMap; stays first */
    const sqlite3_io_methods *real;
};

/* From now on, for the file of `db`, of whose -shm nothing was mapped yet. */
void store_shm_guard(struct store_shm *shm, sqlite3 *db);
/* The guard was copied to `shm`, and its first place goes; nobody uses `db`. */
void store_shm_moved(struct store_shm *shm, sqlite3 *db);

#endif

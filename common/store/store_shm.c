/* store_shm.c - see store_shm.h
 *
 * SQLite lengthens the -shm by regions of 32 KiB and writes one byte into each
 * 4 KiB of a new one, so that the disk is there when it stores into the mapping
 * (unixShmMap in its os_unix.c). That allocates one block each. Where blocks
 * are smaller than that (mkfs.ext4 takes 1 KiB below 512 MB) the others are
 * holes, and a store into a hole on a full disk is a SIGBUS.
 *
 * So each page is written to here, before SQLite has the address, by a call of
 * the kernel: where a store would end the process, the call says EFAULT. The
 * page fault is the same one; it allocates or reserves all blocks of the page,
 * and they stay. (Not on a file system that copies on write, such as btrfs;
 * such a one has no blocks of 1 KiB, but may say later that it is full.)
 *
 *   Why not by posix_fallocate: that needs a descriptor, and closing any
 *   descriptor of the -shm drops all locks that this process has on it
 *   (fcntl(2)). Before SQLite opens the file is too early, as its first user
 *   empties it.
 *   Why FUTEX_WAKE_OP, adding 0: the write changes nothing and is atomic, so
 *   that other processes may use the page meanwhile; and each kernel has it,
 *   but MADV_POPULATE_WRITE only those from 5.14 on.
 *   Growth: SQLite maps every region by xShmMap, once for each connection,
 *   whichever process lengthened the file. So each process has each page
 *   allocated before its own first touch.
 */
#include "common/store/store_shm.h"

#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

_Static_assert(offsetof(struct store_shm, methods) == 0,
               "a file's methods are the guard that has them");

/* page_write - write to a page and change nothing; nobody waits for it */
static int page_write(void *page)
{
    const unsigned add_0 = FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, 0);
    uint32_t mine = 0;

    if (syscall(SYS_futex, &mine, FUTEX_WAKE_OP_PRIVATE, 0, 0, page, add_0) < 0)
        return -errno;
    return 0;
}

/* pages_write - all that the bytes are on */
static int pages_write(void *bytes, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *at = (char *)((uintptr_t)bytes / page * page);
    int err = 0;

    for (; !err && at < (char *)bytes + size; at += page)
        err = page_write(at);
    return err;
}

/* shm_map - as SQLite's own, or no address
 * Without an address SQLite asks again at the next use: it keeps one only where
 * it was given one. */
static int shm_map(sqlite3_file *f, int region, int size, int extend,
                   void volatile **at)
{
    const struct store_shm *shm = (const void *)f->pMethods;
    int rc = shm->real->xShmMap(f, region, size, extend, at), err;

    if (rc != SQLITE_OK || !*at)
        return rc;
    err = pages_write((void *)*at, (size_t)size);
    if (!err)
        return SQLITE_OK;
    *at = NULL;
    return err == -ENOMEM ? SQLITE_IOERR_NOMEM : SQLITE_IOERR_SHMSIZE;
}

void store_shm_guard(struct store_shm *shm, sqlite3 *db)
{
    sqlite3_file *f = NULL;

    sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &f);
    if (!f || !f->pMethods || f->pMethods->iVersion < 3)
        return; /* a SQLite that has no -shm, or is older than ours can be */
    shm->real = f->pMethods;
    shm->methods = *shm->real;
    shm->methods.xShmMap = shm_map;
    f->pMethods = &shm->methods;
}

void store_shm_moved(struct store_shm *shm, sqlite3 *db)
{
    sqlite3_file *f = NULL;

    sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &f);
    if (shm->real && f)
        f->pMethods = &shm->methods;
}

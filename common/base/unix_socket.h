/* unix_socket.h - UNIX sockets by path, however long the path is
 *
 * WHAT   Listen on a path, connect to one. An address has room for 107 bytes of
 *        path; a longer one is reached through its folder's descriptor in
 *        /proc.
 * WHO    Any thread.
 * FAILS  -errno.
 */
#ifndef COMMON_BASE_UNIX_SOCKET_H
#define COMMON_BASE_UNIX_SOCKET_H

/* Listen at `path` with a stream socket, mode 0600 from its first moment on; an
 * existing file is removed. Returns a non-blocking, close-on-exec
 * descriptor. */
int unix_socket_listen(const char *path, int backlog);
/* Connect, and return a blocking, close-on-exec descriptor. -ECONNREFUSED: no
 * process is listening. -EAGAIN: the backlog has been full for 3 s. */
int unix_socket_connect(const char *path);

#endif

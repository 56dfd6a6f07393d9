/* unix_socket.h - UNIX sockets by path, however long the path is
 *
 * WHAT   Listens on a path, or connects to a path. An address has room for 107
 *        bytes; a longer path is reached through the descriptor of its folder
 *        in /proc.
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

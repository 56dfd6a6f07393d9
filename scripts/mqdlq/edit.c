/* edit.c - the new body of a dead letter, from a file or an editor (see
 * mqdlq.h)
 *
 * Called by replay.c for the verb edit, in the one thread of mqdlq.
 */
#include "scripts/mqdlq/mqdlq.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/folder.h"
#include "common/base/problem.h"
#include "common/cli/complain.h"

/* Read a body of at most `most` bytes from a file called `name`. */
static int body_read(struct body *out, int fd, const char *name, size_t most)
{
    ssize_t n;

    out->bytes = malloc(most + 1);
    if (!out->bytes)
        return complain_memory();
    do {
        n = read(fd, out->bytes + out->size, most + 1 - out->size);
        if (n > 0)
            out->size += (size_t)n;
        else if (n < 0 && errno != EINTR)
            return complain(EX_IOERR,
                            "cannot read %s: %s; the letter is unchanged", name,
                            errno_text(errno));
    } while (n != 0 && out->size <= most && !cli_interrupt_seen());
    if (cli_interrupt_seen())
        return complain(EX_TEMPFAIL, "interrupted; the letter is unchanged");
    if (out->size > most)
        return complain(EX_DATAERR,
                        "%s is too large: the queue takes messages of at most "
                        "%zu bytes; the letter is unchanged",
                        name, most);
    return 0;
}

/* Open and read a file. */
static int file_read(struct body *out, const char *path, int flags, size_t most)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | flags), status;

    if (fd < 0)
        return complain(errno == ENOENT   ? EX_NOINPUT
                        : errno == EACCES ? EX_NOPERM
                                          : EX_IOERR,
                        "cannot open %s: %s; the letter is unchanged", path,
                        errno_text(errno));
    status = body_read(out, fd, path, most);
    close(fd);
    return status;
}

/* Run the user's editor on a file, and wait for it. As in system(3), Ctrl-C and
 * Ctrl-\ are for the editor alone. A signal that terminates mqdlq terminates
 * the editor first: SIGALRM (complain.h) interrupts waitpid(2) each second, and
 * then SIGTERM is sent again. */
static int editor_run(const char *path)
{
    struct sigaction ignored = {.sa_handler = SIG_IGN}, old_int, old_quit;
    const char *editor = getenv("VISUAL");
    char *script;
    int status = 0;
    pid_t pid;

    if (!editor || !*editor)
        editor = getenv("EDITOR");
    if (!editor || !*editor) {
        editor = "vi";
        if (isatty(STDIN_FILENO) != 1 && isatty(STDOUT_FILENO) != 1)
            return complain(EX_UNAVAILABLE,
                            "vi needs a terminal; give the body with --body "
                            "FILE (- for stdin), or set $EDITOR");
    }
    if (asprintf(&script, "exec %s \"$1\"", editor) < 0)
        return complain_memory();
    sigaction(SIGINT, &ignored, &old_int);
    sigaction(SIGQUIT, &ignored, &old_quit);
    pid = fork();
    if (pid == 0) {
        sigaction(SIGINT, &old_int, NULL);
        sigaction(SIGQUIT, &old_quit, NULL);
        execl("/bin/sh", "sh", "-c", script, "sh", path, (char *)NULL);
        _exit(127);
    }
    free(script);
    if (pid < 0)
        status = complain(EX_OSERR, "cannot start the editor: %s",
                          errno_text(errno));
    while (pid > 0 && waitpid(pid, &status, 0) < 0)
        if (cli_interrupt_seen())
            kill(pid, SIGTERM);
    sigaction(SIGINT, &old_int, NULL);
    sigaction(SIGQUIT, &old_quit, NULL);
    if (pid < 0)
        return status;
    if (cli_interrupt_seen())
        return complain(EX_TEMPFAIL, "interrupted; the letter is unchanged");
    if (status == 0)
        return 0;
    return complain(EX_UNAVAILABLE,
                    "the editor \"%s\" failed (%s %d); the letter is "
                    "unchanged. Set $EDITOR to another one, or give the body "
                    "with --body",
                    editor, WIFSIGNALED(status) ? "signal" : "exit",
                    WIFSIGNALED(status) ? WTERMSIG(status)
                                        : WEXITSTATUS(status));
}

/* Let the user edit a copy of the body. The copy is in a folder of its own,
 * where nobody else can read what the editor leaves beside it. If mqdlq is
 * killed by SIGKILL, the folder stays. Many editors put a newline at the end of
 * a file; remove it if the letter had none. */
static int copy_edit(struct body *out, const struct letter *l, size_t most)
{
    const char *tmp = folder_variable("TMPDIR");
    char folder[PATH_MAX], path[PATH_MAX + 32];
    int fd, status;

    if (!tmp)
        tmp = "/tmp";
    /* A path that is too long is cut, and then refused by mkdtemp(3). */
    snprintf(folder, sizeof folder, "%s/mqdlq.XXXXXX", tmp);
    if (!mkdtemp(folder))
        return complain(EX_CANTCREAT,
                        "cannot create a folder in %s: %s; set TMPDIR to "
                        "another one",
                        tmp, errno_text(errno));
    out->folder = strdup(folder);
    if (!out->folder) {
        (void)rmdir(folder);
        return complain_memory();
    }
    snprintf(path, sizeof path, "%s/letter-%" PRId64, folder, l->m.row);
    fd = file_create(path, l->body, l->body_size);
    if (fd < 0) {
        status = complain(EX_CANTCREAT, "cannot write %s: %s", path,
                          errno_text(-fd));
    } else {
        close(fd);
        status = editor_run(path);
    }
    if (!status) {
        out->unsaved = true;
        status = file_read(out, path, O_NOFOLLOW | O_NONBLOCK, most + 1);
    }
    if (!status && out->size > 0 && out->bytes[out->size - 1] == '\n' &&
        (l->body_size == 0 || l->body[l->body_size - 1] != '\n'))
        out->size--;
    return status;
}

void body_free(struct body *b)
{
    DIR *dir = b->folder ? opendir(b->folder) : NULL;
    size_t files = 0;
    struct dirent *entry;

    while (dir && (entry = readdir(dir)) != NULL) {
        if (b->unsaved)
            files += entry->d_name[0] != '.';
        else
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
    }
    if (dir)
        closedir(dir);
    if (files > 0)
        complain(0, "your text is kept in %s; remove it when you are done",
                 b->folder);
    else if (b->folder && rmdir(b->folder) < 0)
        complain(0,
                 "cannot remove %s: %s; delete it, because it holds the body",
                 b->folder, errno_text(errno));
    free(b->folder);
    free(b->bytes);
}

int body_edit(struct body *out, const struct letter *l, const struct options *o,
              size_t most)
{
    if (!o->new_body)
        return copy_edit(out, l, most);
    if (strcmp(o->new_body, "-") != 0)
        return file_read(out, o->new_body, 0, most);
    complain_reads("the body");
    return body_read(out, STDIN_FILENO, "stdin", most);
}

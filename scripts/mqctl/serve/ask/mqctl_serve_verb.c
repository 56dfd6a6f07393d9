/* mqctl_serve_verb.c - see mqctl_serve_verb.h */
#include "scripts/mqctl/serve/ask/mqctl_serve_verb.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/errno_text.h"
#include "common/text/complain.h"

/* lines_read - the objects of a file, one a line, added to a list */
static void lines_read(int fd, json_t *list)
{
    FILE *in = fdopen(fd, "r");
    char *line = NULL;
    size_t room = 0;

    if (!in) {
        close(fd);
        return;
    }
    rewind(in);
    while (getline(&line, &room, in) > 0)
        (void)json_array_append_new(list, json_loads(line, 0, NULL));
    free(line);
    fclose(in);
}

int verb_run(int (*verb)(const struct options *), const struct options *o,
             json_t *list)
{
    int out = dup(STDOUT_FILENO);
    int fd = memfd_create("mqctl-verb", MFD_CLOEXEC);
    int status;

    fflush(stdout);
    if (out < 0 || fd < 0 || dup2(fd, STDOUT_FILENO) < 0)
        return complain(EX_OSERR, "cannot keep what %s prints: %s",
                        mqctl_table.verbs[o->line.verb].name,
                        errno_text(errno));
    status = verb(o);
    fflush(stdout);
    (void)dup2(out, STDOUT_FILENO);
    close(out);
    lines_read(fd, list);
    return status;
}

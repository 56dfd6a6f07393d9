/* verb.c - see verb.h */
#include "scripts/mqctl/serve/ask/verb.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/problem.h"
#include "common/text/complain.h"

/* Add the objects of a file, one a line, to a list. Returns false if memory ran
 * out before the end of the file. */
static bool lines_read(int fd, json_t *list)
{
    FILE *in = fdopen(fd, "r");
    char *line = NULL;
    size_t room = 0;
    bool whole;

    if (!in) {
        close(fd);
        return false;
    }
    rewind(in);
    while (getline(&line, &room, in) > 0)
        (void)json_array_append_new(list, json_loads(line, 0, NULL));
    whole = feof(in);
    free(line);
    fclose(in);
    return whole;
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
    return lines_read(fd, list) ? status : complain_memory();
}

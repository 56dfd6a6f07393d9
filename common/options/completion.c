/* completion.c - completion scripts for shells (see completion.h) */
#include "common/options/completion.h"

#include <errno.h>
#include <string.h>
#include <sysexits.h>

#include "common/options/completion_inner.h"
#include "common/text/term.h"

/* script_print - for the shell that argv names */
static int script_print(struct completion *c, const char *shell)
{
    static const struct {
        const char *name;
        void (*print)(const struct completion *c);
    } shells[] = {{"bash", completion_bash},
                  {"zsh", completion_zsh},
                  {"fish", completion_fish}};

    c->out = stdout;
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
        if (strcmp(shells[i].name, shell) == 0) {
            shells[i].print(c);
            if (fflush(stdout) == 0 && !ferror(stdout))
                return 0;
            term_complain(c->program, "cannot write the output: %s",
                          strerror(errno));
            return EX_IOERR;
        }
    term_complain(c->program,
                  "--completion: \"%s\" is no shell that is known; give bash, "
                  "zsh or fish",
                  shell);
    return EX_USAGE;
}

/* asked - whether argv is --completion SHELL and no more */
static bool asked(int argc, char **argv)
{
    return argc == 3 && strcmp(argv[1], "--completion") == 0;
}

int completion_options(const struct option_table *t, int argc, char **argv)
{
    struct completion c = {
        .program = t->program, .options = t, .count = t->count};

    return asked(argc, argv) ? script_print(&c, argv[2]) : -1;
}

int completion_verbs(const struct verb_table *t, int argc, char **argv)
{
    struct completion c = {
        .program = t->program, .verbs = t, .count = t->flag_count};

    return asked(argc, argv) ? script_print(&c, argv[2]) : -1;
}

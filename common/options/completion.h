/* completion.h - completion scripts for shells, made from the option rows
 *
 * WHAT   `PROGRAM --completion bash|zsh|fish` prints a script. The build writes
 *        them to files; nobody else has a reason to ask, so --help is silent.
 * WHO    Once, from main.
 * OWNS   Nothing.
 * FAILS  An unknown shell: exit status 64 and a line on stderr.
 */
#ifndef COMMON_OPTIONS_COMPLETION_H
#define COMMON_OPTIONS_COMPLETION_H

#include "common/options/options.h"
#include "common/options/verbs.h"

/* -1: argv asks for none; else the exit status. */
int completion_options(const struct option_table *t, int argc, char **argv);
int completion_verbs(const struct verb_table *t, int argc, char **argv);

#endif

/* option_value.h - the value of one flag: read, checked, refused
 *
 * WHAT   What a row of options.h says about its value.
 * WHO    options.c and options_help.c; any file that takes values of rows from
 *        elsewhere than argv.
 * OWNS   Nothing.
 * FAILS  option_read: a problem with status 64 that names the flag, the value
 *        and what is allowed.
 */
#ifndef COMMON_CLI_OPTION_VALUE_H
#define COMMON_CLI_OPTION_VALUE_H

#include <stdbool.h>

#include "common/cli/options.h"

/* Whether the flag takes no value: flags, counts, calls without `value`. */
bool option_bare(const struct option_row *row);
/* "N", "text|json"; "" for a bare flag. */
const char *option_value(const struct option_row *row);
/* Read `text` into the target in `into`. NULL: it was left out; then the preset
 * is read, a call gets NULL. */
int option_read(const struct option_row *row, const char *text, void *into,
                struct problem *p);
/* Print the value in `from` as the flag takes it, "" if the flag takes none; a
 * value that is too long is cut. Returns false if there is no value: a flag that
 * is off, a text that is NULL. A number may change meanwhile. */
bool option_print(const struct option_row *row, const void *from, char *out,
                  size_t room);

#endif

/* settings_print.h - what a worker was told, as its flags say it
 *
 * WHAT   The flags that are not at their defaults, as words that would be read
 *        back as the same. Those that can be set are as they are now.
 * WHO    Any thread.
 * OWNS   Nothing.
 * FAILS  Never; a value that is too long is cut.
 */
#ifndef WORKER_CONFIG_SETTINGS_PRINT_H
#define WORKER_CONFIG_SETTINGS_PRINT_H

#include <stdbool.h>
#include <stddef.h>

#include "worker/config/settings.h"

#define SETTING_TEXT 512
/* Visit each of them, in the order of the table; "" is the value of a flag that
 * takes none. */
void settings_told(const struct settings *s,
                   void (*visit)(const char *flag, const char *value,
                                 void *arg),
                   void *arg);

#endif

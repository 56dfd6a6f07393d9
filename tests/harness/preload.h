/* preload.h - run our programs with a library that replaces calls of libc
 *
 * WHAT   Loads a library of tests/harness/plugins/ before all others, even
 *        where a sanitizer wants to be the first.
 * WHO    Tests; the init of their suite is preload_init, or calls it.
 * OWNS   Nothing.
 * FAILS  By ending the test.
 */
#ifndef TESTS_HARNESS_PRELOAD_H
#define TESTS_HARNESS_PRELOAD_H

#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/harness.h"

#define PRELOAD_TEXT 4200

/* Call harness_init, and permit the library in the sanitizer's options. */
static inline void preload_init(void)
{
    const char *old = getenv("ASAN_OPTIONS");
    char options[1024];

    harness_init();
    snprintf(options, sizeof options, "%s%sverify_asan_link_order=0",
             old ? old : "", old ? ":" : "");
    setenv("ASAN_OPTIONS", options, 1);
}

/* Print the environment variable that loads the plugin. */
static inline char *preload_text(char out[PRELOAD_TEXT], const char *plugin)
{
    snprintf(out, PRELOAD_TEXT, "LD_PRELOAD=%s", harness_plugin(plugin));
    return out;
}

#endif

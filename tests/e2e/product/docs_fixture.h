/* docs_fixture.h - pages of docs/, and scripts that run their examples */
#ifndef TESTS_E2E_PRODUCT_DOCS_FIXTURE_H
#define TESTS_E2E_PRODUCT_DOCS_FIXTURE_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/harness.h"

/* Return the path of a page of the source tree, which is in the working
 * directory of make or in $MQW_DOCS. */
static inline const char *page(const char *name)
{
    static char path[4096];
    const char *docs = getenv("MQW_DOCS");
    char real[4096];

    snprintf(path, sizeof path, "%s/%s", docs ? docs : "docs", name);
    cr_assert_not_null(realpath(path, real), "cannot find %s; set MQW_DOCS",
                       path);
    return strcpy(path, real);
}

/* Run a script in the scratch directory with the programs in PATH. It must
 * succeed; return its output. */
static inline const char *sh(const char *script, const char *argument)
{
    char path[8192], *bin = strdup(harness_bin("mqworker"));

    *strrchr(bin, '/') = '\0';
    snprintf(path, sizeof path, "PATH=%s:%s", bin, getenv("PATH"));
    free(bin);
    struct harness_result r = harness_run_spec(&(struct harness_spec){
        .argv = HARNESS_LIST("sh", "-euc", script, "sh", argument),
        .env = HARNESS_LIST(path)});
    cr_assert_eq(r.status, 0, "status %d\n%s%s", r.status, r.out, r.err);
    return r.out;
}

/* Write the fenced block "```LANGUAGE NAME" of a page to a file. */
static inline const char *block(const char *name, const char *fence,
                                const char *file)
{
    char want[128];
    const char *text = harness_read(page(name), NULL);

    snprintf(want, sizeof want, "\n```%s\n", fence);
    const char *at = strstr(text, want);
    cr_assert_not_null(at, "%s has no block ```%s", name, fence);
    at += strlen(want);
    const char *end = strstr(at, "\n```\n");
    cr_assert_not_null(end);
    harness_write(file, at, (size_t)(end + 1 - at));
    const char *path = harness_path("%s", file);
    cr_assert_eq(chmod(path, 0700), 0);
    return path;
}

#endif

/* mqworker --plugin: files that are no plugin, and plugins that do not start */
#include "tests/harness/harness.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(object_file, .init = harness_init, .fini = harness_fini,
          .timeout = 120);

/* refused - with that status, in one line that contains `text` */
static void refused(const char *file, const char *arg, int status,
                    const char *text)
{
    struct harness_result r =
        harness_run("mqworker", "--state-dir", harness_state_dir(),
                    harness_queue(0, 0), "--plugin", file, arg);

    cr_assert_eq(r.status, status, "status %d: %s", r.status, r.err);
    cr_assert_not_null(strstr(r.err, text), "\"%s\" is not in: %s", text,
                       r.err);
    cr_assert_eq(strchr(r.err, '\n') + 1, r.err + r.err_size, "not one line");
}

/* built - a shared object of that source; its path */
static const char *built(const char *source)
{
    char include[4200];
    const char *docs = getenv("MQW_DOCS");

    snprintf(include, sizeof include, "-I%s/../worker", docs ? docs : "docs");
    char *worker = realpath(include + 2, NULL);
    cr_assert_not_null(worker, "cannot find %s; set MQW_DOCS", include + 2);
    snprintf(include, sizeof include, "-I%s", worker);
    free(worker);
    harness_write("built.c", source, strlen(source));
    struct harness_result r =
        harness_run("cc", "-shared", "-fPIC", include, "-o",
                    harness_path("built.so"), harness_path("built.c"));
    cr_assert_eq(r.status, 0, "%s", r.err);
    return harness_path("built.so");
}

/* cut - the first bytes of a plugin that works */
static void cut(const char *whole, size_t size, const char *text)
{
    harness_write("cut.so", whole, size);
    refused(harness_path("cut.so"), "-q", 64, text);
}

Test(object_file, one_that_is_cut_short_is_refused_wherever_that_is)
{
    size_t size;
    const char *whole = harness_read(harness_plugin("act"), &size);

    for (size_t i = 1; i < 8; i++)
        cut(whole, size / 8 * i, "is cut short: build or copy it again");
    cut(whole, size - 1, "is cut short");
    cut(whole, 20, "is cut short");
    cut(whole, 3, "is no shared object");
    cut("", 0, "is no shared object");
}

Test(object_file, one_that_is_none_says_what_to_do)
{
    refused("/nowhere.so", "-q", 64,
            "cannot be loaded: No such file or directory; give the path");
    refused(harness_dir(), "-q", 64, "give the path of a shared object");
    harness_write("text.so", "int mqw_handle(void);\n", 22);
    refused(harness_path("text.so"), "-q", 64,
            "build one with cc -shared -fPIC");
    refused(built("int nobody(void); int mqw_handle(void);"
                  "int mqw_handle(void) { return nobody(); }"),
            "-q", 64, "undefined symbol: nobody; ldd -r ");
}

#define INIT                                                             \
    "#include <mqworker.h>\n"                                            \
    "#include <stdlib.h>\n"                                              \
    "int mqw_handle(const struct mqw_message *m, struct mqw_context *c)" \
    "{ (void)m; (void)c; return MQW_DONE; }\n"                           \
    "int mqw_init(const char *arg, void **user)"                         \
    "{ (void)user; return arg ? atoi(arg) : 9; }\n"

Test(object_file, a_plugin_that_does_not_start_says_why_and_with_which_argument)
{
    const char *plugin = built(INIT);

    refused(plugin, "--plugin-arg=-22", 69,
            "its mqw_init returned -22 (Invalid argument) with --plugin-arg "
            "\"-22\"");
    refused(plugin, "--plugin-arg=3", 69, "its mqw_init returned 3 with");
    refused(plugin, "-q", 69, "its mqw_init returned 9 without --plugin-arg");
}

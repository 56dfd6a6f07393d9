/* test_plugin_file.c - mqworker --plugin: files that are not plugins, and
 * plugins that do not start */
#include "tests/harness/harness.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

TestSuite(plugin_file, .init = harness_init, .fini = harness_fini);

/* Check that the file is refused with this status, in one line that contains
 * `text`. */
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

/* Compile a shared object from this source; return its path. */
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

Test(plugin_file, one_that_is_missing_makes_no_queue_and_no_file)
{
    const char *q = harness_queue_name();
    struct harness_result r =
        harness_run("mqworker", "--state-dir", harness_state_dir(), q,
                    "--plugin", "./missing.so");

    cr_assert_eq(r.status, 64, "%s", r.err);
    cr_assert_eq(harness_queue_length(q), -1, "the queue was made");
    cr_assert_not(harness_exists(harness_state_dir()));
}

Test(plugin_file, one_that_is_none_says_what_to_do)
{
    refused("/nowhere.so", "-q", 64, "No such file or directory");
    refused(harness_dir(), "-q", 64,
            "is not a shared object; build one with cc -shared -fPIC");
    cr_assert_eq(mkfifo(harness_path("pipe.so"), 0600), 0);
    refused(harness_path("pipe.so"), "-q", 64, "is not a shared object");
    harness_write("empty.so", "", 0);
    refused(harness_path("empty.so"), "-q", 64, "is not a shared object");
    harness_write("text.so", "int mqw_handle(void);\n", 22);
    refused(harness_path("text.so"), "-q", 64,
            "shows what it lacks, cc -shared -fPIC builds one");
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

Test(plugin_file, a_plugin_that_does_not_start_says_why_and_with_which_argument)
{
    const char *plugin = built(INIT);

    refused(plugin, "--plugin-arg=-22", 69,
            "its mqw_init returned -22 (Invalid argument) with --plugin-arg "
            "\"-22\"");
    refused(plugin, "--plugin-arg=3", 69, "its mqw_init returned 3 with");
    refused(plugin, "-q", 69, "its mqw_init returned 9 without --plugin-arg");
}

#define HANDLES_USR1                                                        \
    "#include <mqworker.h>\n"                                               \
    "#include <signal.h>\n"                                                 \
    "#include <unistd.h>\n"                                                 \
    "static void came(int sig) { (void)!write(2, \"plugin: came\\n\", 13);" \
    " (void)sig; }\n"                                                       \
    "int mqw_handle(const struct mqw_message *m, struct mqw_context *c)"    \
    "{ (void)m; (void)c; return MQW_DONE; }\n"                              \
    "int mqw_init(const char *arg, void **user)"                            \
    "{ (void)arg; (void)user; return signal(SIGUSR1, came) == SIG_ERR; }\n"

Test(plugin_file, a_signal_that_a_plugin_handles_reaches_it)
{
    struct harness_process *w =
        harness_worker(harness_queue(0, 0), "--plugin", built(HANDLES_USR1));

    harness_wait_log(w, "event=started", 5000);
    harness_signal(w, SIGUSR2);
    harness_wait_log(w, "event=paused", 5000);
    for (int i = 1; i <= 2; i++) {
        harness_signal(w, SIGUSR1);
        harness_until(harness_log_count(w, "plugin: came") == (size_t)i, 5000);
    }
    cr_assert_eq(harness_log_count(w, "event=signal_ignored"), 0);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

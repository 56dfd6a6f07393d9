/* faults_fixture.h - run our programs with a failing call
 *
 * WHAT   Starts a program under tests/harness/plugins/faults.c. Makes a handler
 *        that does what the body says.
 * WHO    Tests of faults; their init is faults_init.
 * OWNS   Nothing; strings live until harness_fini.
 * FAILS  By ending the test.
 */
#ifndef TESTS_FAULTS_FIXTURE_H
#define TESTS_FAULTS_FIXTURE_H

#include <criterion/criterion.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/harness.h"
#include "tests/harness/preload.h"
#include "tests/harness/sweep.h"

/* Messages "dead..." are rejected, "retry..." fail once, others are done. Each
 * done message is a line in `done`. */
#define FAULTS_HANDLER                            \
    "b=$(cat); case $b in dead*) exit 65;;\n"     \
    "retry*) [ $MQW_ATTEMPT -gt 1 ] || exit 1;; " \
    "esac\necho $b >>done"

/* The same handler as a child of --stream. */
#define FAULTS_STREAM                                                 \
    "while read -r _ id size attempt _; do b=$(head -c $size)\n"      \
    "read -r _; case $b:$attempt in dead*) echo DEAD $id exit 65;;\n" \
    "retry*:attempt=1) echo RETRY $id delay=1ms;;\n"                  \
    "*) echo $b >>done; echo OK $id;; esac; done"

static inline void faults_init(void)
{
    preload_init();
    harness_script("handler", FAULTS_HANDLER);
    harness_script("stream", FAULTS_STREAM);
}

/* Start the program with a fault (see faults.c) and with `input` on its stdin
 * (NULL: nothing). The calls are counted in the file `tally`. */
static inline struct harness_process *fault_start_fed(const char *fault,
                                                      const char *tally,
                                                      const char *const *argv,
                                                      const char *input)
{
    char preload[PRELOAD_TEXT], *env[2];
    if (asprintf(&env[0], "MQW_FAULT=%s", fault) < 0 ||
        asprintf(&env[1], "MQW_FAULT_SEEN=%s", harness_path("%s", tally)) < 0)
        abort();
    struct harness_process *p = harness_start(&(struct harness_spec){
        .argv = argv,
        .env = HARNESS_LIST(preload_text(preload, "faults"), env[0], env[1]),
        .input = input,
        .input_size = input ? strlen(input) : 0});
    free(env[0]);
    free(env[1]);
    return p;
}

static inline struct harness_process *
fault_start(const char *fault, const char *tally, const char *const *argv)
{
    return fault_start_fed(fault, tally, argv, NULL);
}

/* Read how many calls there were, and how many failed. */
static inline void fault_tally(const char *tally, uint64_t *seen,
                               uint64_t *failed)
{
    uint64_t both[2] = {0};
    size_t size;
    const char *data = harness_read(tally, &size);
    if (size == sizeof both)
        memcpy(both, data, sizeof both);
    *seen = both[0];
    *failed = both[1];
}

/* Return true if the program printed a line with this text about what it could
 * not get. */
static inline bool fault_said(const struct harness_process *p,
                              const char *program, const char *text)
{
    char start[32];
    const char *err = harness_stderr(p, NULL), *line;
    snprintf(start, sizeof start, "%s: ", program);
    for (line = err; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        size_t n = strcspn(line, "\n");
        if (strncmp(line, start, strlen(start)) == 0 &&
            memmem(line, n, text, strlen(text)))
            return true;
    }
    return false;
}

#endif

/* test_run_tests.c - scripts/check always ends with a verdict */
#include "tests/harness/harness.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(run_tests, .init = harness_init, .fini = harness_fini);

/* The scripts of the tree ($1) with a `make` that builds nothing, and the
 * programs in this directory. */
static const char tree[] =
    "rm -rf scripts broken; mkdir scripts; cp \"$1\"/scripts/check "
    "\"$1\"/scripts/run-tests "
    "scripts;"
    "export PATH=$PWD:$PATH;"
    "printf '#!/bin/sh\\nexit 0\\n' >scripts/deps; chmod 755 scripts/deps;"
    "printf '#!/bin/sh\\ncase \"$*\" in *tests*) [ ! -e broken ];;\\n"
    "*) scripts/run-tests -j 2 ./test_a ./test_b --alone ./stress_c; esac\\n' "
    ">make;"
    "printf '#!/bin/sh\\necho \"\\033[1mSynthesis: Tested: \\033[0m7 |"
    " Passing: 7\"\\n' >test_a; sed s/7/30/g test_a >test_b;"
    "printf '#!/bin/sh\\n' >stress_c; chmod 755 make test_[ab] stress_c;"
    /* The time is left out. */
    "run() { { scripts/check && s=0 || s=$?; echo status $s; } 2>err |"
    " tail -n 2 | sed 's/[0-9]* min [0-9]* s$/TIME/'; };";

/* Return the last two lines of scripts/check after `change`. */
static const char *said(const char *change)
{
    char script[2048], *top = realpath(".", NULL);

    snprintf(script, sizeof script, "%s%s; run", tree, change);
    struct harness_result r =
        harness_run("sh", "-euc", script, "sh", top, harness_dir());

    free(top);
    cr_assert_eq(r.status, 0, "%s%s", r.out, r.err);
    return r.out;
}

Test(run_tests, check_ends_with_programs_tests_time_and_verdict)
{
    cr_assert_str_eq(said(":"), "check: 3 programs, 37 tests, all ok, TIME\n"
                                "status 0\n");
    cr_assert_str_eq(said("echo 'kill -9 $$' >>stress_c"),
                     "check: 3 programs, 37 tests, FAILED: stress_c, TIME\n"
                     "status 1\n");
    cr_assert_str_eq(said("chmod 000 scripts/run-tests"),
                     "check: no test ran, FAILED: tests, TIME\nstatus 1\n");
    cr_assert_str_eq(said(">broken"),
                     "check: no test ran, FAILED: build, TIME\nstatus 1\n");
    cr_assert_str_eq(said("echo 'exit 69' >scripts/deps"),
                     "check: no test ran, FAILED: dependencies, TIME\n"
                     "status 1\n");
}

/* If ONLY names a test that runs alone, its verdict is reported. */
Test(run_tests, those_that_run_alone_run_where_there_are_no_others)
{
#define ONLY_ALONE "sed -i 's,-j 2 .*--alone,-j 2 --alone,' make;"
    cr_assert_str_eq(said(ONLY_ALONE "echo : >ran; echo 'rm ran' >>stress_c"),
                     "check: 1 program, 0 tests, all ok, TIME\nstatus 0\n");
    cr_assert_not(harness_exists("ran"));
    cr_assert_str_eq(said(ONLY_ALONE "echo 'exit 1' >>stress_c"),
                     "check: 1 program, 0 tests, FAILED: stress_c, TIME\n"
                     "status 1\n");
}

/* Run scripts/run-tests with `arguments`; `script` makes the programs. */
static struct harness_result run_programs(const char *script,
                                          const char *arguments)
{
    char *tests = realpath("scripts/run-tests", NULL);
    struct harness_result r =
        harness_run("sh", "-uc",
                    "eval \"$2\"; chmod 755 test_* stress_* 2>/dev/null;"
                    "export TMPDIR=$PWD; eval \"$1 $3\"",
                    "sh", tests, script, arguments);

    free(tests);
    return r;
}

Test(run_tests, progress_is_a_count_with_what_came_of_each)
{
    struct harness_result r = run_programs(
        "echo '#!/bin/sh' >stress_a; cp stress_a test_b;"
        "echo 'echo \"[====] Synthesis: Tested: 7 | Passing: 5\"; exit 1'"
        "  >>test_b",
        "--long ./stress_a --alone ./test_b");

    cr_assert_eq(r.status, 1);
    cr_assert(strstr(r.out, "2 programs, 1 at a time\n"), "%s", r.out);
    cr_assert(strstr(r.out, "\n1 of 2: ok ./stress_a: 0 tests, "), "%s", r.out);
    cr_assert(strstr(r.out, "\n2 of 2: FAILED ./test_b: 2 of 7 tests failed, "),
              "%s", r.out);
}

Test(run_tests, of_many_that_failed_ten_are_named_and_the_signal_of_all)
{
    struct harness_result r =
        run_programs("for n in 1 2 3 4 5 6 7 8 9 10 11 12; do"
                     "  echo 'kill -BUS $$' >stress_$n; done",
                     "-j 3 ./stress_*");

    cr_assert_eq(r.status, 1);
    cr_assert(strstr(r.out, "run-tests: all 12 were ended by SIGBUS: is "
                            "/dev/shm full? It has "),
              "%s", r.out);
    cr_assert(strstr(r.err, " and 2 more\n"), "%s", r.err);

    r = run_programs("echo 'exit 1' >stress_1", "./stress_*");
    cr_assert_not(strstr(r.out, "were ended by"), "%s", r.out);
}

Test(run_tests, a_lack_of_room_is_told_before_the_tests)
{
    struct harness_result r = run_programs(
        "mkdir tools; echo 'echo shm 65536 45056 20480 69% /dev/shm' >tools/df;"
        "sed -i '1iecho head' tools/df;"
        "echo 'echo no bytes are left; exit 71' >tools/mqctl;"
        "chmod 755 tools/*; export MQW_BIN=$PWD/tools PATH=$PWD/tools:$PATH;"
        "echo : >stress_1",
        "./stress_1");
    const char *shm = strstr(r.out, "run-tests: /dev/shm has 20 MiB free, and "
                                    "the tests need 48: ");
    const char *queues =
        strstr(r.out, "run-tests: the tests cannot create queues: "
                      "no bytes are left\n");
    const char *first = strstr(r.out, "1 of 1: ok");

    cr_assert_eq(r.status, 0);
    cr_assert(shm && queues && first && shm < first && queues < first, "%s",
              r.out);
}

Test(run_tests, why_tests_were_skipped_is_told_once)
{
    struct harness_result r =
        run_programs("for n in a b; do"
                     "  echo 'echo \"[SKIP] x::y: no ps here\"' >test_$n; done",
                     "./test_*");

    cr_assert_eq(r.status, 0);
    cr_assert(strstr(r.out, "\nskipped: 2: no ps here\n"), "%s", r.out);
}

/* Start a test that makes a folder as the harness does, and waits. */
static struct harness_process *run_that_hangs(void)
{
    harness_script("stress_hang",
                   "dir=$(mktemp -d \"$TMPDIR\"/mqwt-XXXXXX);"
                   "mkdir /dev/shm/${dir##*/};"
                   "echo ${dir##*/} >\"${0%/*}\"/hangs; sleep 100");
    char *tests = realpath("scripts/run-tests", NULL);
    struct harness_process *p = harness_start(&(struct harness_spec){
        .argv = HARNESS_LIST("sh", "-uc",
                             "export TMPDIR=$PWD; exec \"$1\" ./stress_hang",
                             "sh", tests)});

    free(tests);
    harness_until(harness_lines("hangs") == 1, 20000);
    return p;
}

/* List what a run has left. */
static const char *left(void)
{
    struct harness_result r = harness_run(
        "sh", "-c", "ls -d mqw-run-* \"/dev/shm/$(cat hangs)\" 2>/dev/null");

    return r.out;
}

Test(run_tests, a_run_that_is_stopped_ends_its_tests_and_leaves_nothing)
{
    static const int signals[] = {SIGTERM, SIGHUP, SIGINT};

    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        harness_run("rm", "-f", "hangs");
        struct harness_process *p = run_that_hangs();

        cr_assert_neq(left()[0], '\0');
        harness_signal(p, signals[i]);
        cr_assert_eq(harness_wait(p, 20000), 128 + signals[i]);
        cr_assert_str_eq(left(), "");
    }
}

Test(run_tests, what_a_killed_run_left_goes_with_the_next_one)
{
    struct harness_process *p = run_that_hangs();

    run_programs("echo : >stress_1", "./stress_1");
    cr_assert_neq(left()[0], '\0', "removed while in use");
    kill(harness_pid(p), SIGKILL);
    harness_wait(p, 20000);
    run_programs("echo : >stress_1", "./stress_1");
    cr_assert_str_eq(left(), "");
}

/* PATH has nothing that a build needs, and a package manager that installs
 * nothing. */
static const char *deps_dry_run(const char *arguments)
{
    char *top = realpath(".", NULL);
    struct harness_result r = harness_run(
        "sh", "-euc",
        "[ -e tools ] || { mkdir tools;"
        "  for t in sh sed awk grep tr id env cut; do"
        "    ln -s \"$(command -v $t)\" tools/; done;"
        "  printf '#!/bin/sh\\ncase \"$*\" in\\n"
        "*print-uris*) printf \"a b 70600000 c\\\\na b 400000 c\\\\n\";;\\n"
        "*-s*) printf \"Inst a\\\\nInst b\\\\nConf a\\\\n\"; esac\\n'"
        "    >tools/apt-get;"
        "  printf '#!/bin/sh\\n' >tools/apt-cache; chmod 755 tools/apt-*; };"
        "PATH=$PWD/tools; \"$1\"/scripts/deps --dry-run $2",
        "sh", top, arguments);

    free(top);
    cr_assert_eq(r.status, 0, "%s%s", r.out, r.err);
    return r.out;
}

Test(run_tests, deps_says_how_much_it_installs_before_it_does)
{
    const char *out = deps_dry_run(""),
               *says = strstr(out, "deps: installing packages: 2, 71 MB"),
               *install = strstr(out, "apt-get -q -y install");

    cr_assert(says && install && says < install, "%s", out);
    cr_assert(strstr(install, " procps "), "%s", out);
    cr_assert(strstr(install, " openssl "), "%s", out);
}

Test(run_tests, deps_installs_the_packs_that_were_asked_for)
{
    cr_assert_not(strstr(deps_dry_run(""), "debhelper"));
    cr_assert(strstr(deps_dry_run("--deb"), " debhelper lintian rpmlint rpm"));
    cr_assert(strstr(deps_dry_run("--deb --shells"), " zsh fish debhelper"));
    cr_assert_not(strstr(deps_dry_run("--deb --shells"), "chromium"));
    cr_assert(strstr(deps_dry_run("--all"), " chromium "));

    char *deps = realpath("scripts/deps", NULL);
    struct harness_result r = harness_run(deps, "--dry-run", "deb");

    free(deps);
    cr_assert_eq(r.status, 64);
    cr_assert(strstr(r.err, "unknown argument 'deb'"), "%s", r.err);
}

Test(run_tests, each_script_prints_its_own_help_and_does_nothing_else)
{
    char *top = realpath(".", NULL);
    struct harness_result r = harness_run(
        "sh", "-uc",
        "for s in \"$1\"/.ci/run $(grep -l -d skip '^#!/' \"$1\"/scripts/*); do"
        "  for flag in -h --help; do"
        "    \"$s\" $flag >out 2>err || echo \"$s $flag: status $?\";"
        "    grep -q \"^${s##*/} - \" out && grep -q '^Usage: ' out &&"
        "    [ ! -s err ] || echo \"$s $flag\"; done; done;"
        "\"$1\"/scripts/check ONLY=wheel --help >out; sed -n 1p out;"
        "\"$1\"/scripts/check --bogus; echo $?;"
        "\"$1\"/scripts/demo nonsense; echo $?;"
        "MAKEFLAGS= make -C \"$1\" help | grep -c 'make check \\|WERROR='",
        "sh", top);

    free(top);
    cr_assert_str_eq(r.out, "check - install dependencies, build, and run "
                            "every test\n64\n64\n2\n");
    cr_assert_str_eq(r.err,
                     "check: unknown argument '--bogus'; allowed are variables "
                     "of make, like ONLY=wheel; `make help` lists them\n"
                     "demo: unknown arguments 'nonsense'; --amqp and --help "
                     "are allowed\n");
}

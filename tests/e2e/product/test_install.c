/* test_install.c - make install and uninstall: files, and programs that work
 * from there */
#include "tests/harness/harness.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(install, .init = harness_init, .fini = harness_fini);

#define PREFIX "/opt/mqw"
#define STAGE  "stage with blanks"

/* Return the folder of the tested programs, tests and packages. */
static const char *build_folder(void)
{
    static char path[4096];
    char tests[4096];
    const char *handlers = getenv("MQW_HANDLERS"); /* BUILD/tests */

    snprintf(tests, sizeof tests, "%s/..", handlers ? handlers : "build/tests");
    cr_assert_not_null(realpath(tests, path), "%s", tests);
    return path;
}

/* Run make with this target for the stage, with the tested build. */
static struct harness_result make_run(const char *target)
{
    char top[4096], build[4200], destdir[4200];

    cr_assert_not_null(realpath(".", top));
    cr_assert_eq(access("Makefile", R_OK), 0, "run from the top of the tree");
    snprintf(build, sizeof build, "BUILD=%s", build_folder());
    snprintf(destdir, sizeof destdir, "DESTDIR=%s", harness_path(STAGE));
    struct harness_process *p = harness_program(
        "make", "-s", "-C", top, build, destdir, "PREFIX=" PREFIX, target);
    /* A package takes a minute of both processors, and twice that in CI. */
    return (struct harness_result){.status = harness_wait(p, 600000),
                                   .out = harness_stdout(p, NULL),
                                   .err = harness_stderr(p, NULL)};
}

/* Run make install; return the stage. */
static const char *installed(void)
{
    struct harness_result r = make_run("install");

    cr_assert_eq(r.status, 0, "%s%s", r.out, r.err);
    return harness_path(STAGE PREFIX);
}

/* Run a script with one argument in the scratch directory. */
static const char *sh(const char *script, const char *argument)
{
    struct harness_result r = harness_run("sh", "-euc", script, "sh", argument);

    cr_assert_eq(r.status, 0, "status %d\n%s%s", r.status, r.out, r.err);
    return r.out;
}

/* Mode and path of everything except documents. */
static const char expected[] =
    "644 include/mqworker.h\n"
    "644 lib/libmqworker.a\n"
    "644 lib/libmqworker.so.0\n"
    "644 lib/pkgconfig/mqworker.pc\n"
    "644 lib/systemd/system/mqctl-serve.service\n"
    "644 lib/systemd/system/mqctl-serve.socket\n"
    "644 lib/systemd/system/mqworker@.service\n"
    "644 lib/systemd/system/mqworker@.socket\n"
    "644 lib/sysusers.d/mqworker.conf\n"
    "644 share/bash-completion/completions/mqctl\n"
    "644 share/bash-completion/completions/mqdlq\n"
    "644 share/bash-completion/completions/mqsend\n"
    "644 share/bash-completion/completions/mqworker\n"
    "644 share/fish/vendor_completions.d/mqctl.fish\n"
    "644 share/fish/vendor_completions.d/mqdlq.fish\n"
    "644 share/fish/vendor_completions.d/mqsend.fish\n"
    "644 share/fish/vendor_completions.d/mqworker.fish\n"
    "644 share/man/man1/mqctl.1\n"
    "644 share/man/man1/mqdlq.1\n"
    "644 share/man/man1/mqsend.1\n"
    "644 share/man/man3/mqworker.3\n"
    "644 share/man/man8/mqworker.8\n"
    "644 share/zsh/site-functions/_mqctl\n"
    "644 share/zsh/site-functions/_mqdlq\n"
    "644 share/zsh/site-functions/_mqsend\n"
    "644 share/zsh/site-functions/_mqworker\n"
    "755 bin/mqctl\n"
    "755 bin/mqdlq\n"
    "755 bin/mqsend\n"
    "755 bin/mqworker\n"
    "777 lib/libmqworker.so\n";

Test(install, puts_each_file_in_its_place_and_uninstall_takes_all_away)
{
    const char *prefix = installed();
    char *top = realpath(".", NULL);

    cr_assert_str_eq(sh("cd \"$1\"; find . -path ./share/doc -prune -o ! -type "
                        "d -printf '%m %P\\n' | LC_ALL=C sort",
                        prefix),
                     expected);
    /* Documents are arranged as in the tree, so that their links work. */
    sh("cd \"$1\"/share/doc/mqworker;"
       "for f in docs/*.md docs/*/*.md; do"
       "  grep -o '](\\([^)#]*\\)' $f | sed 's/](//' | grep '^[a-z./-]*\\.md' |"
       "  while read -r t; do [ -e ${f%/*}/$t ] || echo \"$f: $t\"; done;"
       "done | { ! grep .; }; [ -e README.md ] && [ -e docs/example.c ]",
       prefix);
    cr_assert_str_eq(
        sh("cd \"$1\"; find docs -name '*.md' | sort", top),
        sh("cd \"$1\"/share/doc/mqworker; find docs -name '*.md' | sort",
           prefix));
    /* Files of the unit: an example, but no worker that starts by default. */
    cr_assert_str_eq(sh("cd \"$1\"; find . ! -type d -printf '%m %P\\n'",
                        harness_path(STAGE "/etc")),
                     "644 mqworker/orders.conf.example\n");
    cr_assert_str_eq(sh("readlink \"$1\"/lib/libmqworker.so", prefix),
                     "libmqworker.so.0\n");
    harness_write(STAGE PREFIX "/lib/other", "", 0);
    cr_assert_eq(make_run("uninstall").status, 0);
    cr_assert_str_eq(sh("cd \"$1\"; find . ! -type d; ls share/doc", prefix),
                     "./lib/other\n");
    free(top);
}

/* Most bytes of the worker without symbols. */
#define WORKER_MOST 700000

Test(install, worker_is_small_without_symbols)
{
#ifndef MQW_OPTIMIZED
    cr_skip_test("the bound is for a worker that was built with -O2");
#endif
    cr_assert_leq(atol(sh("strip -o worker \"$1\"; wc -c <worker",
                          harness_bin("mqworker"))),
                  WORKER_MOST);
}

/* ---- building ---- */

/* Compile one object in its own build directory; return its time, ns. */
static const char *object_make(const char *variable, const char *value)
{
    static const char script[] =
        "o=\"$1\"/flags/obj/common/base/ulid.o;"
        "make -s -C \"$2\" BUILD=\"$1\"/flags CFLAGS=-O1 \"$3=$4\" $o;"
        "stat -c %.Y $o";
    char *top = realpath(".", NULL);
    struct harness_result r = harness_run("sh", "-euc", script, "sh",
                                          harness_dir(), top, variable, value);

    free(top);
    cr_assert_eq(r.status, 0, "%s%s", r.out, r.err);
    return strdup(r.out);
}

/* A unit and a program built for different paths must not be installed
 * together, whatever was built before. */
Test(install, other_flags_compile_again_and_the_same_do_not)
{
    static const char *const other[][2] = {
        {"CFLAGS", "-O1 -DSOMETHING='\"a b\"'"},
        {"LDFLAGS", "-Wl,--as-needed"},
        {"HARDEN", ""},
        {"PKG_LIBS", "-lbsd -lsqlite3 -ljansson -lm"},
        {"SANITIZE", "-fsanitize=undefined"},
    };

    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++) {
        const char *first = object_make("CFLAGS", "-O1");
        cr_assert_str_eq(object_make("CFLAGS", "-O1"), first);
        cr_assert_str_eq(object_make("WERROR", "-Werror"), first);
        const char *second = object_make(other[i][0], other[i][1]);
        cr_assert_str_neq(second, first, "%s", other[i][0]);
        cr_assert_str_eq(object_make(other[i][0], other[i][1]), second);
        cr_assert_str_neq(object_make("CFLAGS", "-O1"), second);
    }
}

/* Run make with a pkg-config that does what `script` says. ONLY is unset,
 * because it may name tests that do not exist without librabbitmq. */
static struct harness_result libraries_missing(const char *script)
{
    char *top = realpath(".", NULL);

    harness_script("pkg-config", script);
    struct harness_result r = harness_run(
        "sh", "-uc",
        "PATH=$1:$PATH; make -s -C \"$2\" BUILD=\"$1\"/lack ONLY= "
        "all; r=$?; [ ! -e \"$1\"/lack/obj ] || echo compiled; exit $r",
        "sh", harness_dir(), top);

    free(top);
    return r;
}

Test(install, make_without_its_libraries_says_what_gets_them)
{
    struct harness_result r =
        libraries_missing("[ \"$2\" != sqlite3 ] || exit 1");

    cr_assert_eq(r.status, 2);
    cr_assert_str_eq(r.out, "");
    cr_assert(strstr(r.err, "make: not found: sqlite3; scripts/deps installs "
                            "what is missing\n"),
              "%s", r.err);
    r = libraries_missing("exit 127");
    cr_assert_eq(r.status, 2);
    cr_assert(strstr(r.err, "not found: libbsd sqlite3 jansson; scripts/deps"),
              "%s", r.err);
}

/* PATH has what make needs to read the Makefile, but no debhelper. */
Test(install, deb_names_the_missing_package_before_it_builds)
{
    char *top = realpath(".", NULL);
    struct harness_result r = harness_run(
        "sh", "-euc",
        "mkdir tools; for t in sh make find sed sort env getconf grep "
        "pkg-config"
        "  cc gcc; do ln -s \"$(command -v $t)\" tools/; done;"
        "PATH=$PWD/tools; make -s -C \"$1\" BUILD=\"$PWD\"/deb deb || s=$?;"
        "[ ! -e deb ] || echo built; exit $s",
        "sh", top);

    free(top);
    cr_assert_eq(r.status, 2, "%s%s", r.out, r.err);
    cr_assert_str_eq(r.out, "");
    cr_assert(strstr(r.err, "package: no dh here; scripts/deps --deb"), "%s",
              r.err);
}

Test(install, names_no_place_but_the_prefix)
{
    const char *prefix = installed();

    cr_assert_str_eq(sh("cd \"$1\"; grep -rlIF \"$PWD\" . || true;"
                        "grep -l '@[A-Z]*@' lib/systemd/system/* "
                        "lib/pkgconfig/* || true",
                        prefix),
                     "");
    cr_assert_str_eq(sh("sed -n 's/ .*//; /^ExecStart=/p' "
                        "\"$1\"/lib/systemd/system/mqworker@.service",
                        prefix),
                     "ExecStart=" PREFIX "/bin/mqworker\n");
}

/* Check the units by systemd, which will not look where the program is. */
Test(install, units_have_nothing_that_systemd_does_not_know)
{
    if (!harness_has("systemd-analyze"))
        cr_skip_test("no systemd-analyze here");
    const char *prefix = installed();
    const char *said =
        sh("cd \"$1\"/lib/systemd/system; systemd-analyze verify --man=no "
           "\"$PWD\"/mqworker@.service \"$PWD\"/mqworker@.socket 2>&1 |"
           "grep -v 'is not executable' || true",
           prefix);
    cr_assert_str_eq(said, "");
    said = sh("mkdir -p units/mqworker@.service.d;"
              "cp \"$1\"/lib/systemd/system/mqworker@.service units;"
              "cp \"$1\"/share/doc/mqworker/docs/examples/amqp-password.conf"
              "   units/mqworker@.service.d;"
              "systemd-analyze verify --man=no"
              "   \"$PWD\"/units/mqworker@.service 2>&1 |"
              "grep -v 'is not executable' || true",
              prefix);
    cr_assert_str_eq(said, "");
}

/* Check systemd's exposure score of each unit, to 0.3: the weights change
 * between versions. */
Test(install, units_are_as_closed_as_the_docs_say)
{
    if (harness_run("sh", "-c", "systemd-analyze --help | grep -e --offline")
            .status != 0)
        cr_skip_test("no systemd-analyze here that looks at a file");
    cr_assert_str_eq(
        sh("cd \"$1\"; for u in mqworker@i mqctl-serve; do"
           "  said=$(sed -n \"s/.*level for $u.service: //p\""
           "    share/doc/mqworker/docs/systemd.md | tr -dc 0-9);"
           "  for at in $((said + 3)) $((said - 4)); do"
           "    systemd-analyze security --offline=true --threshold=$at"
           "      lib/systemd/system/${u%i}.service >out || echo \"$u $at\";"
           "  done;"
           "done",
           installed()),
        "mqworker@i 29\nmqctl-serve 15\n");
}

/* The same build serves all units: the worker needs no library to report
 * READY. */
Test(install, unit_waits_for_ready_and_has_a_watchdog)
{
    cr_assert_str_eq(sh("sed -n '/^Type=/p; /^NotifyAccess=/p; /^Watchdog/p' "
                        "\"$1\"/lib/systemd/system/mqworker@.service",
                        installed()),
                     "Type=notify\nNotifyAccess=main\nWatchdogSec=30s\n");
    cr_assert_str_eq(sh("grep -c '@[A-Z]*@' "
                        "\"$1\"/lib/systemd/system/mqworker@.service || true",
                        harness_path(STAGE PREFIX)),
                     "0\n");
}

/* ---- the service, without systemd ---- */

/* Run the unit's command with the unit's variables and those of its file, as in
 * systemd.exec(5): $1 the stage, $2 the instance. */
static const char unit_script[] =
    "unit=\"$1\"/opt/mqw/lib/systemd/system/mqworker@.service;"
    "eval export $(sed -n 's/^Environment=//p' \"$unit\" | sed \"s,%i,$2,g\");"
    "file=$(sed -n 's/^EnvironmentFile=-//p' \"$unit\" | sed \"s,%i,$2,\");"
    "file=$1$file; [ -e \"$file\" ] || file=/dev/null;"
    "while IFS= read -r line; do case $line in '#'* | '') ;;"
    "  *) export \"${line%%=*}=${line#*=}\"; esac; done <\"$file\";"
    "eval exec \"$(sed -n 's,^ExecStart=,\"$1\",p' \"$unit\")\"";

/* Start mqworker@NAME of the stage. */
static struct harness_process *unit_start(const char *queue)
{
    static char state[4200];

    snprintf(state, sizeof state, "STATE_DIRECTORY=%s", harness_state_dir());
    return harness_start(&(struct harness_spec){
        .argv = HARNESS_LIST("sh", "-euc", unit_script, "sh",
                             harness_path(STAGE), queue + 1),
        .env = HARNESS_LIST(state)});
}

/* The lines of README.md, except systemctl and journalctl, for another queue
 * and below the stage. */
Test(install, service_is_set_up_by_the_lines_of_the_readme)
{
    const char *q = harness_queue(0, 0);
    char name[64], *top = realpath(".", NULL);

    (void)installed();
    snprintf(name, sizeof name, "%s", q + 1);
    struct harness_result r = harness_run(
        "sh", "-euc",
        "awk '/^```/ { on = $0 == \"```sh service\"; next } on' "
        "\"$4\"/README.md |"
        "sed \"s,/etc/mqworker/orders,'$1'/etc/mqworker/$2,; s,/orders$,/$2,\""
        " >\"$1\"/typed; grep -q '^systemctl enable --now mqworker@' "
        "\"$1\"/typed;"
        "sed -i '/^systemctl/d; /journalctl/d' \"$1\"/typed;"
        "grep -c . \"$1\"/typed; PATH=$3:$PATH; . \"$1\"/typed",
        "sh", harness_path(STAGE), name, harness_path(STAGE PREFIX "/bin"),
        top);
    free(top);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_str_eq(r.out, "3\n", "commands typed: %s", r.out);
    struct harness_process *w = unit_start(q);
    harness_until(strstr(harness_stdout(w, NULL), "good morning\n"), 5000);
    cr_assert_not_null(strstr(harness_stderr(w, NULL), "max_concurrency=4"));
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(install, service_without_a_command_says_where_to_put_it)
{
    const char *q = harness_queue(0, 0);
    char file[128], text[256];

    (void)installed();
    snprintf(text, sizeof text,
             "mqworker: no command: put COMMAND=/path/of/your-handler into "
             "/etc/mqworker%s.conf, which the unit reads; by hand: mqworker %s "
             "-- COMMAND\n",
             q, q);
    for (int file_is_there = 0; file_is_there < 2; file_is_there++) {
        struct harness_process *w = unit_start(q);

        cr_assert_eq(harness_wait(w, 20000), 64);
        cr_assert_str_eq(harness_stderr(w, NULL), text);
        snprintf(file, sizeof file, STAGE "/etc/mqworker%s.conf", q);
        harness_write(file, "OPTIONS=-q\n", 11);
    }
}

Test(install, service_runs_a_plugin_without_a_command)
{
    const char *q = harness_queue(0, 0);
    char file[128], text[4400];

    (void)installed();
    snprintf(file, sizeof file, STAGE "/etc/mqworker%s.conf", q);
    snprintf(text, sizeof text, "OPTIONS=--plugin %s\n",
             harness_path("%s", harness_plugin("act")));
    harness_write(file, text, strlen(text));
    struct harness_process *w = unit_start(q);
    harness_wait_log(w, "event=started", 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

#ifndef __SANITIZE_ADDRESS__
/* Check that a program consumes a message of the queue. */
static void example_run(const char *program, const char *prefix)
{
    const char *q = harness_queue(0, 0);
    char path[4200];

    snprintf(path, sizeof path, "LD_LIBRARY_PATH=%s/lib", prefix);
    harness_send_text(q, "an order");
    struct harness_process *p = harness_start(
        &(struct harness_spec){.argv = HARNESS_LIST(harness_path("%s", program),
                                                    q, harness_state_dir()),
                               .env = HARNESS_LIST(path)});
    harness_until(strstr(harness_stdout(p, NULL), ": an order\n"), 5000);
    cr_assert_eq(harness_stop(p, 5000), 0, "%s", harness_stderr(p, NULL));
}

/* The program is built by the lines in docs/library.md. */
Test(install, a_program_is_made_with_pkg_config_and_either_library)
{
    if (!harness_has("pkg-config"))
        cr_skip_test("no pkg-config here");
    const char *prefix = installed();

    harness_script("pkg-config",
                   "at=${0%/*}/at PATH=${PATH#*:}\n"
                   "exec pkg-config --define-variable=prefix=\"$at\" "
                   "--define-variable=libdir=\"$at/lib\" "
                   "--define-variable=includedir=\"$at/include\" \"$@\"");
    /* The path has no blanks here, because pkg-config escapes them. */
    sh("mv \"$1\" ./at; export PKG_CONFIG_PATH=$PWD/at/lib/pkgconfig;"
       "page=at/share/doc/mqworker/docs; cp $page/example.c .;"
       "awk '/^```/ { on = $0 == \"```sh link\"; next } on' $page/library.md"
       " >link; [ $(wc -l <link) = 3 ];"
       "export PATH=$PWD:$PATH; . ./link;"
       "ldd shared | grep -q libmqworker.so.0;"
       "! ldd archive | grep libmqworker",
       prefix);
    example_run("shared", harness_path("at"));
    example_run("archive", "/nowhere");
}

/* ---- packages ---- */

/* The packages run this when they are built and tested. */
Test(install, main_job_passes_and_reports_a_difference)
{
    static const char script[] =
        "mkdir bin; ln -s \"$2\"/bin/* bin/; export MQW_BIN=$PWD/bin; \"$1\";"
        "rm bin/mqdlq; mv mqdlq bin/; \"$1\"";
    char *main_job = realpath("scripts/packages/main-job", NULL);

    harness_script("mqdlq", "echo 7");
    struct harness_result r =
        harness_run("sh", "-euc", script, "sh", main_job, build_folder());
    cr_assert_eq(r.status, 1);
    cr_assert_str_eq(r.out, "main-job: ok\n");
    cr_assert_str_eq(r.err, "dead letters: got \"7\", expected \"1\"\n");
    free(main_job);
}

/* $1 is the top of the tree, $2 the build folder. APKBUILD is run as abuild
 * does, with programs that were built before. */
static const char recipes[] =
    "cd \"$2\"/source; v=$(../bin/mqworker --version | cut -d ' ' -f 2);"
    "ls | sed \"s/$v/VERSION/\"; cat mqueue.cfg;"
    "! grep -n '@[A-Z0-9]*@' APKBUILD *.bb *.spec;"
    "sed -n '/^sha512sums/,$p' APKBUILD | grep tar | sha512sum -c --quiet;"
    "if command -v shellcheck >/dev/null; then shellcheck APKBUILD; fi;"
    "tar -xzf mqworker-$v.tar.gz -C \"$HARNESS\";"
    "cmp \"$1\"/Makefile \"$HARNESS\"/mqworker-$v/Makefile;"
    ". ./APKBUILD; [ $pkgver = $v ];"
    "BUILD=$2 pkgdir=$HARNESS/apk; export BUILD; cd \"$1\"; package >/dev/null;"
    "cd \"$pkgdir\"/usr; ls bin; ls lib";

Test(install, recipes_have_the_version_and_the_checksum_of_the_archive)
{
    char script[4096], *top = realpath(".", NULL);

    struct harness_result r = make_run("source");
    cr_assert_eq(r.status, 0, "%s%s", r.out, r.err);
    snprintf(script, sizeof script, "HARNESS=$PWD; %s", recipes);
    r = harness_run("sh", "-euc", script, "sh", top, build_folder());
    cr_assert_eq(r.status, 0, "%s%s", r.out, r.err);
    cr_assert_str_eq(r.out, "APKBUILD\nmqueue.cfg\nmqworker-VERSION.tar.gz\n"
                            "mqworker.spec\nmqworker_VERSION.bb\n"
                            "CONFIG_POSIX_MQUEUE=y\n"
                            "mqctl\nmqdlq\nmqsend\nmqworker\n"
                            "libmqworker.a\nlibmqworker.so\nlibmqworker.so.0\n"
                            "pkgconfig\n");
    free(top);
}

Test(install, rpm_packages_are_built_and_pass_rpmlint, .timeout = 1200)
{
    if (!harness_has("rpmbuild"))
        cr_skip_test("no rpmbuild here");
    if (!getenv("MQW_TEST_WHOLE"))
        cr_skip_test("MQW_TEST_WHOLE=1 builds packages: it takes a minute");
    struct harness_result r = make_run("rpm");
    cr_assert_eq(r.status, 0, "%s%s", r.out, r.err);
    cr_assert(!harness_has("rpmlint") ||
                  strstr(r.out, "; 0 errors, 0 warnings"),
              "%s", r.out);
}

/* Return the newest package of that name, which was just built. */
static const char *deb_find(const char *name)
{
    static char path[4096];
    char script[4300];

    snprintf(script, sizeof script, "ls '%s'/deb/%s_*.deb", build_folder(),
             name);
    FILE *f = popen(script, "r");
    cr_assert(f && fgets(path, sizeof path, f), "no package %s", name);
    pclose(f);
    path[strcspn(path, "\n")] = '\0';
    return path;
}

/* List the paths of a package without directories and documents. */
static const char *deb_list(const char *name)
{
    return sh("dpkg-deb -c \"$1\" | awk '!/^d/ { print $1, $2, $6 }' |"
              "grep -v /doc/ | sed '"
              "s,lib/[^/ ]*-linux-[^/ ]*/,lib/MULTI/,'",
              deb_find(name));
}

/* Run the scripts of the packages below ./root, with replacements for the
 * system tools that they call. */
static const char package_scripts[] =
    "mkdir -p root/etc/mqworker bin control;"
    "for s in postinst prerm postrm; do"
    "  sed 's,systemd-sysusers,no-sysusers,' \"$1\"/mqworker.$s >control/$s;"
    "  sh -n control/$s; done;"
    "printf '#!/bin/sh\nexit 2\n' >bin/getent;"
    "printf '#!/bin/sh\necho \"useradd $*\" | sed \"s/ --.* / ... /\"\n'"
    " >bin/useradd; chmod 755 bin/*; PATH=$PWD/bin:$PATH;"
    "export DPKG_ROOT=$PWD/root;"
    "wants=root/etc/systemd/system/multi-user.target.wants; mkdir -p $wants;"
    "ln -s /nowhere/mqworker@.service $wants/mqworker@orders.service;"
    "mkdir ${wants%/*}/sockets.target.wants;"
    "ln -s /nowhere/mqworker@.socket"
    " ${wants%/*}/sockets.target.wants/mqworker@jobs.socket;"
    "ln -s /nowhere/mqctl-serve.socket"
    " ${wants%/*}/sockets.target.wants/mqctl-serve.socket;"
    "ln -s /nowhere/other.service $wants/other.service;"
    "ln -s /dev/null $wants/mqworker@kept.service;"
    "links() { echo \"$*:\"; (cd root/etc; find . -type l -printf"
    " '%f -> %l\\n' -o -type f -printf '%f\\n' | LC_ALL=C sort); };";

#define OTHERS                             \
    "mqworker@kept.service -> /dev/null\n" \
    "other.service -> /nowhere/other.service\n"
#define LINKS                                                 \
    "mqctl-serve.socket -> /nowhere/mqctl-serve.socket\n"     \
    "mqworker@jobs.socket -> /nowhere/mqworker@.socket\n"     \
    "mqworker@kept.service -> /dev/null\n"                    \
    "mqworker@orders.service -> /nowhere/mqworker@.service\n" \
    "other.service -> /nowhere/other.service\n"

/* A removal disables the units of the package, and the next installation
 * enables them again. */
Test(install, debian_scripts_keep_the_list_of_enabled_units)
{
    char script[4096], *debian = realpath("scripts/packages/debian", NULL);

    snprintf(script, sizeof script, "%s%s", package_scripts,
             "sh control/postrm upgrade 1; links upgraded;"
             "sh control/postrm remove; links removed;"
             "sh control/postinst configure 1; links again;"
             "sh control/postrm remove; sh control/postrm purge;"
             "links purged; [ ! -e root/etc/mqworker ]");
    cr_assert_str_eq(sh(script, debian),
                     "upgraded:\n" LINKS "removed:\n.enabled\n" OTHERS
                     "useradd ... mqworker\nagain:\n" LINKS "purged:\n" OTHERS);
    free(debian);
}

/* Run dpkg itself on a system of its own: $1 is the package. An older package
 * is made from it, with a page that was removed since and another example. */
static const char upgrade[] =
    "mkdir -p sys/var/lib/dpkg/info sys/var/lib/dpkg/updates"
    "  sys/var/lib/dpkg/triggers sys/etc sys/usr/bin;"
    ": >sys/var/lib/dpkg/status;"
    "apply() { dpkg --root=$PWD/sys --force-not-root --log=$PWD/log"
    "  --force-script-chrootless --force-depends --force-unsafe-io "
    "--force-confold \"$@\""
    "  >>said 2>&1 || { cat said; exit 1; }; };"
    "dpkg-deb -R \"$1\" old; sed -i 's/^Version: .*/Version: 0.0.9-1/'"
    "  old/DEBIAN/control; echo gone >old/usr/share/doc/mqworker/gone;"
    "echo '# of 0.0.9' >old/etc/mqworker/orders.conf.example;"
    "dpkg-deb --root-owner-group -b old old.deb >/dev/null;"
    "apply -i $PWD/old.deb; cd sys;"
    "unit=/usr/lib/systemd/system/mqworker@.service; [ -e .$unit ];"
    "serve=/usr/lib/systemd/system/mqctl-serve.socket; [ -e .$serve ];"
    "at=etc/systemd/system/multi-user.target.wants; mkdir -p $at"
    "  var/lib/mqworker/orders;"
    "ln -s $unit $at/mqworker@orders.service;"
    "ln -s $serve $at/mqctl-serve.socket;"
    "echo COMMAND=/bin/cat >etc/mqworker/orders.conf;"
    "echo '# mine' >>etc/mqworker/orders.conf.example;"
    ": >var/lib/mqworker/orders/store.db;"
    "links() { echo \"$1: $(ls $at | tr '\\n' ' ')\"; };"
    "cd ..; apply -i \"$1\"; cd sys;"
    "links upgraded; [ ! -e usr/share/doc/mqworker/gone ];"
    "tail -n 1 etc/mqworker/orders.conf.example;"
    "grep -o '^mqworker:' etc/passwd;"
    "cd ..; apply -r mqworker; cd sys; links removed; [ ! -e .$unit ];"
    "cd ..; apply -i \"$1\"; cd sys; links 'installed again';"
    "cd ..; apply -P mqworker; cd sys; links purged;"
    "find etc/mqworker var/lib/mqworker ! -type d;"
    "[ ! -e usr ]";

static void package_upgraded(void)
{
    if (!harness_has("systemd-sysusers"))
        return;
    cr_assert_str_eq(sh(upgrade, deb_find("mqworker")),
                     "upgraded: mqctl-serve.socket mqworker@orders.service \n"
                     "# mine\n"
                     "mqworker:\n"
                     "removed: \n"
                     "installed again: mqctl-serve.socket "
                     "mqworker@orders.service \n"
                     "purged: \n"
                     "etc/mqworker/orders.conf\n"
                     "var/lib/mqworker/orders/store.db\n");
}

/* Build the packages again at another place, from the source archive of the
 * first build: $1 is the folder with the first results. */
static const char rebuild[] =
    "tar -xzf \"$1\"/*.orig.tar.gz; cd mqworker-*; umask 077;"
    "TZ=Asia/Tokyo LC_ALL=C LOGNAME=other USER=other HOME=/nowhere"
    "  make -s BUILD=results deb >../said 2>&1 || { cat ../said; exit 1; };"
    "cd results/deb; ls *.deb *.dsc *.tar.* | wc -l;"
    "for f in *.deb *.dsc *.tar.*; do cmp \"$f\" \"$1/$f\" || :; done 2>&1";

Test(install, debian_packages_have_what_they_say_and_the_same_bytes,
     .timeout = 2400)
{
    if (!harness_has("dh") || !harness_has("dpkg-buildpackage"))
        cr_skip_test("no debhelper here");
    if (!getenv("MQW_TEST_WHOLE"))
        cr_skip_test("MQW_TEST_WHOLE=1 builds packages: it takes two minutes");
    struct harness_result r = make_run("deb");
    if (strstr(r.out, "systemd-service-file-outside-lib"))
        cr_skip_test("the lintian of Debian 11 wants units in /lib");
    cr_assert_eq(r.status, 0, "%s%s", r.out, r.err);
    cr_assert_not(strstr(r.err, "lintian found"), "%s", r.out);

    const char *list = deb_list("mqworker");
    cr_assert(strstr(list, "-rwxr-xr-x root/root ./usr/bin/mqctl\n"));
    cr_assert(strstr(list, "./usr/lib/systemd/system/mqworker@.service\n"));
    cr_assert(strstr(list, "-rw-r--r-- root/root "
                           "./usr/share/man/man8/mqworker.8.gz\n"));
    cr_assert(strstr(list, "./usr/share/zsh/vendor-completions/_mqctl\n"));
    cr_assert_not(strstr(list, "mqworker.h"));
    cr_assert_str_eq(deb_list("libmqworker0"),
                     "-rw-r--r-- root/root ./usr/lib/MULTI/libmqworker.so.0\n");
    list = deb_list("libmqworker-dev");
    cr_assert(strstr(list, "./usr/include/mqworker.h\n"), "%s", list);
    cr_assert(strstr(list, "./usr/lib/MULTI/pkgconfig/mqworker.pc\n"));
    cr_assert(strstr(list, "./usr/share/man/man3/mqworker.3.gz\n"));

    const char *depends =
        sh("dpkg-deb -f \"$1\" Depends", deb_find("mqworker"));
    cr_assert(strstr(depends, "libsqlite3-0"), "%s", depends);
    cr_assert(strstr(depends, "libncursesw6"), "%s", depends);
    cr_assert_str_eq(sh("dpkg-deb -I \"$1\" conffiles", deb_find("mqworker")),
                     "/etc/mqworker/orders.conf.example\n");
    cr_assert_str_eq(sh("mkdir x; dpkg-deb -x \"$1\" x; cd x;"
                        "sed -n 's/ .*//; /^ExecStart/p' "
                        "usr/lib/systemd/system/mqworker@.service;"
                        "usr/bin/mqworker --version | cut -d ' ' -f 1",
                        deb_find("mqworker")),
                     "ExecStart=/usr/bin/mqworker\nmqworker\n");
    package_upgraded();
    char *folder = strdup(deb_find("mqworker"));
    *strrchr(folder, '/') = '\0';
    struct harness_process *p =
        harness_program("sh", "-euc", rebuild, "sh", folder);
    cr_assert_eq(harness_wait(p, 600000), 0, "%s", harness_stdout(p, NULL));
    cr_assert_str_eq(harness_stdout(p, NULL), "8\n");
    free(folder);
}
#endif

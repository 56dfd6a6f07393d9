/* test_hardening.c - the programs are built so that memory bugs are hard to
 * exploit */
#include "tests/harness/harness.h"

#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(hardening, .init = harness_init, .fini = harness_fini);

/* Requirements on the output of readelf for FILE ($1), each with its purpose.
 * Shared objects have no fixed address anyway, so PIE is required of programs
 * ($2) only. */
static const char script[] =
    "readelf -Wh -l -d --dyn-syms \"$1\" >elf || exit 1;"
    "want() { grep -q \"$2\" elf || echo \"${file}: $1\"; };"
    "file=${1##*/};"
    "want 'is not at a random place' 'Type: *DYN ';"
    "[ \"$2\" = library ] || want 'is no PIE' 'Flags:.* PIE';"
    "want 'has no RELRO' ' GNU_RELRO ';"
    "want 'binds late' 'Flags:.* NOW';"
    "want 'has a stack that can be run' ' GNU_STACK .* RW  ';"
    "! grep -q 'TEXTREL' elf || echo \"$file: has text relocations\";"
    "want 'has no stack protector' ' __stack_chk_fail';"
    "want 'has no checks of sizes' ' __[a-z]*_chk@'";

/* Return a line for each missing requirement; "": none. */
static const char *flaws(const char *file, const char *kind)
{
    struct harness_result r =
        harness_run("sh", "-uc", script, "sh", file, kind);

    cr_assert_eq(r.status & ~1, 0, "%s%s", r.out, r.err);
    cr_assert_str_eq(r.err, "");
    return r.out;
}

Test(hardening, programs_and_library_have_all_of_it)
{
    static const char *const programs[] = {"mqworker", "mqsend", "mqdlq",
                                           "mqctl"};
    const char *tests = getenv("MQW_HANDLERS"); /* BUILD/tests */
    char library[4200];

    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++)
        cr_expect_str_eq(flaws(harness_bin(programs[i]), "program"), "");
    snprintf(library, sizeof library, "%s/../lib/libmqworker.so.0",
             tests ? tests : "build/tests");
    char *path = realpath(library, NULL);
    cr_assert_not_null(path, "no %s", library);
    cr_expect_str_eq(flaws(path, "library"), "");
    free(path);
}

/* A plugin built with the flags of the programs does not weaken the worker. */
Test(hardening, a_plugin_can_have_all_of_it)
{
    cr_expect_str_eq(flaws(harness_plugin("torture"), "library"), "");
    cr_expect_str_eq(flaws(harness_plugin("ledger"), "library"), "");
}

/* Return true if an indirect jump may land on `function` (-fcf-protection). The
 * note in the file covers all of it and is missing if the start files of the C
 * library do not have it, so it is not used. */
static bool entry_is_marked(const char *file, const char *function)
{
    struct harness_result r = harness_run(
        "sh", "-euc",
        "objdump -d --no-show-raw-insn --disassemble=\"$2\" \"$1\" |"
        "sed -n \"/<$2>:/{n;p;}\"",
        "sh", file, function);

    cr_assert_eq(r.status, 0, "%s%s", r.out, r.err);
    cr_assert_not_null(strstr(r.out, ":\t"), "no %s in %s", function, file);
    return strstr(r.out, "endbr") != NULL;
}

/* Build a small program whose `main` is marked or not; return its path. */
static const char *built_marked(const char *flag)
{
    struct harness_result r =
        harness_run("sh", "-euc",
                    "cd \"$1\"; echo 'int main(void) { return 0; }' |"
                    "cc $2 -x c -o small - 2>&1",
                    "sh", harness_dir(), flag);

    return r.status == 0 ? harness_path("small") : NULL;
}

Test(hardening, only_functions_are_targets_of_indirect_jumps)
{
    const char *marked = built_marked("-fcf-protection=full");

    if (!marked || !entry_is_marked(marked, "main"))
        cr_skip_test("this compiler or processor has no -fcf-protection");
    cr_expect_not(entry_is_marked(built_marked("-fcf-protection=none"), "main"),
                  "the test sees marks where there are none");
    cr_expect(entry_is_marked(harness_bin("mqworker"), "main"));
    cr_expect(entry_is_marked(harness_bin("mqsend"), "main"));
    cr_expect(entry_is_marked(harness_bin("mqdlq"), "main"));
    cr_expect(entry_is_marked(harness_bin("mqctl"), "main"));
}

/* The test must recognize a program without any of it. */
Test(hardening, test_sees_what_is_missing)
{
    struct harness_result r =
        harness_run("sh", "-euc",
                    "cd \"$1\"; echo 'int main(void) { return 0; }' |"
                    "cc -no-pie -fno-stack-protector -Wl,-z,norelro -Wl,-z,lazy"
                    " -Wl,-z,execstack -x c -o weak - 2>&1",
                    "sh", harness_dir());

    cr_assert_eq(r.status, 0, "%s%s", r.out, r.err);
    cr_assert_str_eq(flaws(harness_path("weak"), "program"),
                     "weak: is not at a random place\n"
                     "weak: is no PIE\n"
                     "weak: has no RELRO\n"
                     "weak: binds late\n"
                     "weak: has a stack that can be run\n"
                     "weak: has no stack protector\n"
                     "weak: has no checks of sizes\n");
}

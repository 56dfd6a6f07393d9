/* test_docs.c - docs: commands work as printed, and links have a target */
#include "tests/e2e/product/docs_fixture.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(docs, .init = harness_init, .fini = harness_fini);

/* Return the number of letters of a queue. */
static long letters(const char *queue)
{
    struct harness_result r = harness_run(
        "mqdlq", "list", "--count", "--state-dir", harness_state_dir(), queue);
    return r.status == 0 ? atol(r.out) : -1;
}

/* ---- man page ---- */

Test(docs, mqworker_and_its_page_name_the_same_flags_and_defaults)
{
    /* Flags as "c max-concurrency processors", one a line. */
    const char *same =
        sh("mqworker --help | sed -n '/:$/,/^COMMAND/p' | awk '"
           "  /^ +(-.,)? *--/ { if (row) print row; row = \"\" }"
           "  /^ / { row = row \" \" $0 } END { print row }' |"
           "sed -n 's/^ *\\(-\\(.\\),\\)\\{0,1\\} *--\\([a-z-]*\\)"
           "\\(.*(default *\\([^ ]*\\)) *\\)\\{0,1\\}.*/\\2 \\3 \\5/p' |"
           "sort >help;"
           "awk '/^\\.It Fl / { if (row) print row; row = \"\"; l = \"\";"
           "    if ($3 !~ /^-/) { l = $3 } match($0, /Fl -[a-z-]*/);"
           "    row = l \" \" substr($0, RSTART + 4, RLENGTH - 4) \" \" }"
           "  /default is/ && row !~ / [^ ]+ [^ ]/ { d = $0;"
           "    sub(/.*default is (the number of )?/, \"\", d);"
           "    sub(/\\.$/, \"\", d); row = row d }"
           "  /^\\.Sh HANDLERS/ { print row; row = \"\"; exit }' \"$1\" |"
           "sort >page;"
           "wc -l <help; diff help page",
           page("mqworker.8"));
    cr_assert_geq(atol(same), 20, "flags seen: %s", same);
}

Test(docs, man_pages_pass_mandoc)
{
    if (!harness_has("mandoc"))
        cr_skip_test("no mandoc here");
    /* mandoc cannot find our own pages before they are installed. */
    cr_assert_str_eq(sh("mandoc -Tlint -W style \"$1\"/*.[1-8] 2>/dev/null |"
                        "grep -v 'referenced manual not found' || true",
                        page("")),
                     "");
}

/* groff prints "BSD" on pages that name no system. */
Test(docs, man_pages_say_linux_in_head_and_foot)
{
    const char *pages;

    if (!harness_has("groff"))
        cr_skip_test("no groff here");
    pages = sh("for p in \"$1\"/*.[1-8]; do groff -mdoc -Tascii -P-c \"$p\" |"
               "  sed -n -e 1p -e '$p' | grep -v '^$' |"
               "  grep -q BSD && echo \"BSD in $p\"; done;"
               "groff -mdoc -Tascii -P-c \"$1\"/mqctl.1 | grep -c '^Linux '",
               page(""));
    cr_assert_str_eq(pages, "1\n");
}

/* ---- links ---- */

Test(docs, links_and_file_names_lead_to_files)
{
    /* Links are [text](target), relative to the page, and `dir/file.c` from the
     * top. */
    const char *wrong =
        sh("cd \"$1\"; for p in ../README.md *.md */*.md; do"
           "  d=$(dirname \"$p\");"
           "  grep -o '](\\([^)#]*\\)' \"$p\" | sed 's/](//' | grep -v '://' |"
           "  while read -r t; do [ -e \"$d/$t\" ] || echo \"$p: $t\"; done;"
           "  sed 's,/etc/mqworker/,,g' \"$p\" |"
           "  grep -oE '(common|worker|scripts|tests|docs)/[a-z0-9_/-]+"
           "\\.[a-z0-9]+' | sort -u |"
           "  while read -r t; do [ -e \"../$t\" ] || echo \"$p: $t\"; done;"
           "done || true",
           page(""));
    cr_assert_str_eq(wrong, "");
}

/* ---- README ---- */

/* Write the README's ten lines as a script; return how many there were. */
static int session(const char *queue)
{
    const char *script = block("../README.md", "sh", "typed");
    char *text = strdup(harness_read(script, NULL)), *rest = text, *line;
    FILE *f = fopen(harness_path("session"), "w");
    int lines = 0;

    cr_assert_not_null(f);
    fprintf(f, "exec >seen 2>&1\nmake() { :; }\n");
    while ((line = strsep(&rest, "\n")) != NULL && *line) {
        char *at, typed[512] = "";

        while ((at = strstr(line, "/hello")) != NULL) {
            strncat(typed, line, (size_t)(at - line));
            strcat(typed, queue);
            line = at + strlen("/hello");
        }
        strcat(typed, line);
        fprintf(f, "%s\n", typed);
        lines++;
    }
    fclose(f);
    free(text);
    return lines;
}

Test(docs, ten_lines_of_the_readme_work_as_typed)
{
    /* The queue exists and is small, so --create does not matter. */
    const char *queue = harness_queue(10, 256);
    char *bin = strdup(harness_bin("mqworker"));

    *strrchr(bin, '/') = '\0';
    cr_assert_eq(mkdir(harness_path("build"), 0700), 0);
    cr_assert_eq(symlink(bin, harness_path("build/bin")), 0);
    free(bin);
    cr_assert_eq(mkdir(harness_path("scripts"), 0700), 0);
    cr_assert_eq(symlink("/bin/true", harness_path("scripts/deps")), 0);
    cr_assert_eq(session(queue), 10);
    sh("TMPDIR=$PWD sh session", "");
    const char *seen = harness_read("seen", NULL);
    cr_assert_null(strstr(seen, "not found"), "%s", seen);
    cr_assert(strstr(seen, "good morning\n"), "%s", seen);
    cr_assert(strstr(seen, "exhausted"), "%s", seen);
    cr_assert(strstr(seen, "attempts        2"), "%s", seen);
    cr_assert(strstr(seen, "1 of 1 letter sent"), "%s", seen);
    cr_assert(strstr(seen, "done=1 retried=0 dead=0"), "%s", seen);
    cr_assert(strstr(seen, ": forgotten\n"), "%s", seen);
}

/* ---- the library ---- */

#ifndef __SANITIZE_ADDRESS__ /* programs under a sanitizer need its flags */
Test(docs, a_program_is_linked_with_the_tree_as_library_md_says)
{
    const char *queue = harness_queue(10, 256);

    block("library.md", "sh link-here", "link");
    sh("bin=$(command -v mqworker); ln -s \"${bin%/bin/mqworker}\" build;"
       "ln -s \"$1\" docs; ln -s \"$1/../worker\" worker;"
       ". ./link; ldd example | grep -q \"$PWD/build/lib/libmqworker.so.0\"",
       page(""));
    harness_send_text(queue, "an order");
    struct harness_process *p =
        harness_program(harness_path("example"), queue, harness_state_dir());
    harness_until(strstr(harness_stdout(p, NULL), ": an order\n"), 5000);
    cr_assert_eq(harness_stop(p, 5000), 0, "%s", harness_stderr(p, NULL));
}
#endif

/* ---- examples ---- */

Test(docs, shell_handler_keeps_each_order_once)
{
    const char *queue = harness_queue(10, 256);
    const char *handler = block("handlers.md", "sh handle-order", "handle");

    harness_send_text(queue, "one order");
    harness_send_text(queue, "");
    struct harness_process *w = harness_worker(queue, "--", handler);
    harness_wait_log(w, "reason=rejected error=\"exit 65\"", 5000);
    harness_until(harness_run("sh", "-c", "cat orders/*").out_size == 9, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    /* The message is delivered again: the file must not change. */
    sh("cd orders; set -- *; cd ..; [ $# = 1 ];"
       "echo other | MQW_ID=$1 ./handle; [ \"$(cat orders/$1)\" = 'one order' "
       "]",
       "");
}

Test(docs, python_handler_books_a_payment_once)
{
    const char *queue = harness_queue(10, 256);
    const char *handler = block("handlers.md", "python book-payment", "book");

    if (!harness_has("python3"))
        cr_skip_test("no python3 here");
    harness_send_text(queue, "{\"account\": \"a-7\", \"cents\": 1250}");
    harness_send_text(queue, "[]");
    struct harness_process *w = harness_worker(queue, "-v", "--", handler);
    harness_wait_log(w, "event=done", 20000);
    harness_wait_log(w, "reason=rejected error=\"exit 65\"", 20000);
    harness_stop(w, 5000);
    const char *sum =
        sh("for i in 1 2; do echo '{\"account\": \"b\", \"cents\": 1}' |"
           "  MQW_ID=x ./book; done;"
           "python3 -c 'import sqlite3; print(sqlite3.connect(\"ledger.db\")"
           ".execute(\"SELECT sum(cents), count(*) FROM payments\")"
           ".fetchone())'",
           "");
    cr_assert_str_eq(sum, "(1251, 2)\n");
}

Test(docs, c_handler_adds_numbers)
{
    const char *queue = harness_queue(10, 256);

    block("handlers.md", "c sum", "sum.c");
    sh("${CC:-cc} -Wall -Wextra -Werror -o sum sum.c", "");
    harness_send_text(queue, "1 2 39");
    harness_send_text(queue, "1 two");
    struct harness_process *w =
        harness_worker(queue, "--", harness_path("sum"));
    harness_wait_log(w, "line=\"\\\"two\\\" cannot be added\"", 5000);
    harness_until(letters(queue) == 1, 5000);
    harness_until(strstr(harness_stdout(w, NULL), " 42\n") != NULL, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    /* The commands for trying a handler by hand. */
    const char *again =
        sh("mqdlq show --state-dir state --body \"$1\" 1 |"
           "MQW_ID=test ./sum || echo $?; echo 1 2 3 | MQW_ID=test ./sum",
           queue);
    cr_assert_str_eq(again, "65\ntest 6\n");
}

Test(docs, c_producer_writes_a_header_that_the_worker_reads)
{
    const char *queue = harness_queue(10, 256);

    block("formats/header.md", "c producer", "producer.c");
    sh("${CC:-cc} -Wall -Wextra -Werror -o producer producer.c -lrt;"
       "./producer \"$1\"; printf 'MQW/1\\ngroup: account-7\\n\\n%s' text |"
       "mqsend --raw \"$1\"",
       queue);
    struct harness_process *w =
        harness_worker(queue, "--", "sh", "-c", "echo \"$MQW_GROUP <$(cat)>\"");
    harness_until(strstr(harness_stdout(w, NULL), " <hello world!>\n"), 5000);
    harness_until(strstr(harness_stdout(w, NULL), "account-7 <text>\n"), 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(docs, schema_in_the_page_is_that_of_the_file)
{
    if (!harness_has("sqlite3"))
        cr_skip_test("no sqlite3 here");
    block("formats/store.md", "sql", "schema.sql");
    const char *queue = harness_queue(10, 256);
    struct harness_process *w = harness_worker(queue, "--", "true");
    harness_wait_log(w, "event=started", 5000);
    harness_stop(w, 5000);
    sh("flat() { tr -d ' \\n;'; };"
       "sqlite3 -readonly state\"$1\"/store.db \"SELECT sql FROM sqlite_schema"
       " WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
       " ORDER BY rowid\" | flat >real; flat <schema.sql >told;"
       "[ -s real ] && cmp real told;"
       "sqlite3 -readonly state\"$1\"/store.db 'PRAGMA application_id' |"
       "grep 1297176403",
       queue);
}

/* test_docs_agree.c - docs and sources agree on names, numbers and words */
#include "tests/harness/harness.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(docs_agree, .init = harness_init, .fini = harness_fini);

/* Run a script in the top of the tree, which is the working directory of make,
 * and return its output; $1 is a folder for its files, $2 an argument. */
static const char *sh(const char *script, const char *argument)
{
    static char path[8192];
    char *bin = strdup(harness_bin("mqworker"));

    *strrchr(bin, '/') = '\0';
    snprintf(path, sizeof path, "PATH=%s:%s", bin, getenv("PATH"));
    free(bin);
    struct harness_result r = harness_run_spec(&(struct harness_spec){
        .argv =
            HARNESS_LIST("sh", "-euc", "cd \"$0\"; eval \"$3\"",
                         realpath(".", NULL), harness_dir(), argument, script),
        .env = HARNESS_LIST(path)});
    cr_assert_eq(r.status, 0, "status %d\n%s%s", r.status, r.out, r.err);
    return r.out;
}

/* ---- names ---- */

/* The anchor of a heading is in lower case, with - for blanks and without other
 * marks. */
Test(docs_agree, links_lead_to_headings)
{
    const char *wrong =
        sh("for p in README.md docs/*.md docs/*/*.md; do d=$(dirname $p);"
           "  grep -o '](\\([^)]*\\)#[^)]*)' $p | sed 's/](//; s/)$//' |"
           "  grep -v '://' | while IFS='#' read -r file anchor; do"
           "    to=$p; [ -z \"$file\" ] || to=$d/$file;"
           "    sed -n 's/^##* //p' $to | tr 'A-Z ' 'a-z-' |"
           "    sed 's/[^a-z0-9_-]//g' | grep -qxF -e \"$anchor\" ||"
           "    echo \"$p: $file#$anchor\"; done; done; [ -e README.md ]",
           "");

    cr_assert_str_eq(wrong, "");
}

Test(docs_agree, help_of_each_program_and_verb_fits_80_columns)
{
    const char *wrong =
        sh("{ for p in mqworker mqsend mqdlq mqctl; do $p --help; done;"
           "  for p in mqdlq mqctl; do"
           "    $p --help | sed -n 's/^  \\([a-z-]*\\)  .*/\\1/p' |"
           "    while read -r verb; do $p \"$verb\" --help; done; done; } |"
           "awk 'length > 80; END { if (NR < 400) print NR, \"lines\" }'",
           "");

    cr_assert_str_eq(wrong, "");
}

/* `dir/file*.c` and `file.h`; plain paths are checked in test_docs. */
Test(docs_agree, files_and_patterns_that_pages_name_exist)
{
    const char *seen = sh(
        "find common worker scripts tests docs -type f >\"$1\"/files;"
        "grep -ohE '`[a-zA-Z0-9_./*-]+\\.(c|h|md|sh|py)`' README.md docs/*.md"
        "  docs/*/*.md tests/*.md | tr -d '`' | sort -u >\"$1\"/named;"
        "while read -r name; do"
        "  like=$(echo \"$name\" | sed 's/[.]/\\\\./g; s/[*]/[^\\/]*/g');"
        "  grep -qE \"(^|/)$like\\$\" \"$1\"/files || echo \"no $name\";"
        "done <\"$1\"/named; wc -l <\"$1\"/named",
        "");

    cr_assert_geq(atoi(seen), 80, "%s", seen);
}

Test(docs_agree, pages_that_sources_name_exist)
{
    const char *wrong =
        sh("grep -rnoE '[ (]docs/[a-z_-][a-z_/-]*[a-z_-](\\.[a-z0-9]+)?'"
           "  --include='*.[ch]' common worker scripts tests |"
           "while IFS=: read -r at line page; do page=${page#?};"
           "  [ -e \"$page\" ] || echo \"$at:$line: $page\"; done",
           "");

    cr_assert_str_eq(wrong, "");
}

Test(docs_agree, functions_and_steps_that_design_pages_name_exist)
{
    const char *seen =
        sh("find common worker scripts tests -name '*.[ch]' | xargs cat |"
           "tr -s '\\n' ' ' | sed 's/FAULT_POINTS( *\"\\([a-z_]*\\)\"/"
           "\\1_before \\1_after/g' | grep -oE '[A-Za-z0-9_]+' | sort -u"
           "  >\"$1\"/words;"
           "grep -ohE '`[A-Za-z0-9]+_[A-Za-z0-9_]+(\\(\\))?`' docs/design/*.md"
           "  docs/formats/*.md tests/crash/README.md | tr -d '`()' | sort -u |"
           "grep -v '^fs_' >\"$1\"/named;"
           "comm -13 \"$1\"/words \"$1\"/named | sed 's/^/no /';"
           "wc -l <\"$1\"/named",
           "");

    cr_assert_geq(atoi(seen), 150, "%s", seen);
}

Test(docs_agree, each_room_is_in_the_table_of_rooms)
{
    const char *differ =
        sh("find common worker scripts -name README | sed 's,README$,,' | sort"
           "  >\"$1\"/rooms;"
           "grep -o '^| `[a-z/]*/`' docs/design/rooms.md | tr -d '|` ' | sort |"
           "diff \"$1\"/rooms - || true",
           "");

    cr_assert_str_eq(differ, "");
}

/* "{"GET", API "/queues", ..." in the table, and "  /api/v1/queues:" followed
 * by "    get:" in the description. */
Test(docs_agree, each_route_of_the_api_is_described)
{
    const char *differ =
        sh("sed -n 's|^ *{\"\\([A-Z]*\\)\", API \"\\([^\"]*\\)\".*|\\1 "
           "/api/v1\\2|p'"
           "  scripts/mqctl/serve/ask/path.c | sort >\"$1\"/routes;"
           "awk '/^  \\// { sub(/:$/, \"\"); path = $1 }"
           "  /^    (get|post|patch|delete):/ { sub(/:/, \"\");"
           "  print toupper($1), path }' docs/openapi.yaml | sort |"
           "diff \"$1\"/routes - || true; wc -l <\"$1\"/routes",
           "");

    cr_assert_geq(atoi(differ), 19, "%s", differ);
}

/* ---- numbers ---- */

/* "`--flag` (VALUE)", and rows "| `--flag ARG` | VALUE |" in tables of flags,
 * give defaults. */
Test(docs_agree, defaults_of_flags_are_those_of_the_help)
{
    const char *seen =
        sh("mqworker --help | awk '/^ +(-.,)? *--/ { print row; row = \"\" }"
           "  /^ / { row = row \" \" $0 } END { print row }' |"
           "sed -n 's/^ *\\(-.,\\)\\{0,1\\} *--\\([a-z-]*\\).*"
           "(default *\\([^ ]*\\)) *$/\\2 \\3/p' | sort >\"$1\"/help;"
           "{ grep -ohE '`--[a-z-]+` \\([a-z0-9:,]+\\)' README.md docs/*.md"
           "  docs/*/*.md | tr -d '`()';"
           "  sed -n 's/^| `\\(--[a-z-]*\\) [^|]*` | \\([a-z0-9]*\\) |.*/"
           "\\1 \\2/p' docs/ordering.md; } | sed 's/^--//' | grep ' .' |"
           "sort -u >\"$1\"/told;"
           "comm -13 \"$1\"/help \"$1\"/told | sed 's/^/not so: /';"
           "wc -l <\"$1\"/told",
           "");

    cr_assert_geq(atoi(seen), 12, "%s", seen);
}

Test(docs_agree, settings_that_pages_list_are_those_that_can_be_set)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "--", "true");
    const char *seen;

    harness_wait_log(w, "event=started", 5000);
    seen = sh(
        "mqctl status --json --state-dir \"$1\"/state \"$2\" |"
        "grep -o '\"settings\": *{[^}]*}' | grep -oE '\"[a-z-]+\": *[\"0-9]' |"
        "grep -oE '[a-z-]+' | sort >\"$1\"/real;"
        "sed -n '/^.Sh CHANGING SETTINGS/,/^A change/p' docs/mqworker.8 |"
        "sed -n 's/^\\.Fl -\\([a-z-]*\\).*/\\1/p' | sort |"
        "diff - \"$1\"/real || true; wc -l <\"$1\"/real",
        q);
    cr_assert_geq(atoi(seen), 15, "%s", seen);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

/* ---- exit statuses ---- */

/* listed PROGRAM [VERB]: the statuses in its help, such as "71" of "...; 71
 * system limit; ..." or of "  71  system limit" */
#define LISTED                                                 \
    "listed() { \"$@\" --help | awk '/^Exit status:/, /^$/' |" \
    "  sed 's/^  \\([0-9][0-9]*\\)  /;\\1 /' | tr '\\n' ' ' |" \
    "  sed 's/^Exit status://' | tr ';' '\\n' |"               \
    "  sed -n 's/^ *\\([0-9][0-9]*\\).*/\\1/p' | sort -nu; };" \
    "verbs() { $1 --help | sed -n 's/^  \\([a-z-]*\\)  .*/\\1/p'; };"

Test(docs_agree, exit_statuses_of_help_and_man_page_are_the_same)
{
    const char *differ = sh(
        LISTED
        "for page in mqworker.8 mqsend.1 mqdlq.1 mqctl.1; do p=${page%.*};"
        "  sed -n '/^.Sh EXIT STATUS/,/^.El/s/^.It //p' docs/$page | sort -nu"
        "    >\"$1\"/page; listed $p | tee \"$1\"/help |"
        "  diff - \"$1\"/page | sed \"s/^[<>]/$p &/\";"
        "  [ $(wc -l <\"$1\"/help) -gt 7 ] || echo \"$p lists too few\";"
        "  [ -z \"$(verbs $p)\" ] || for v in $(verbs $p); do"
        "    listed $p $v; done | sort -nu | diff - \"$1\"/help |"
        "    sed \"s/^[<>]/verbs of $p &/\"; done",
        "");

    cr_assert_str_eq(differ, "");
}

/* Numbers of the sysexits.h names in the sources. Statuses of other programs
 * that mqctl top reports are not its own. */
Test(docs_agree, exit_statuses_that_sources_name_are_in_the_help)
{
    const char *wrong =
        sh(LISTED
           "for p in mqsend mqdlq mqctl; do listed $p >\"$1\"/help;"
           "  { echo '#include <sysexits.h>'; grep -rhoE '\\bEX_[A-Z]+'"
           "    --include='*.c' --exclude=screen.c scripts/$p |"
           "    sort -u; } | ${CC:-cc} -E -P -x c - | grep -E '^[0-9]+$' |"
           "  while read -r n; do grep -qx $n \"$1\"/help || echo $p $n; done;"
           "  done",
           "");

    cr_assert_str_eq(wrong, "");
}

/* Failures that every verb can meet. */
Test(docs_agree, verbs_fail_with_an_exit_status_that_their_help_lists,
     .timeout = 240)
{
    const char *q = harness_queue(0, 0);
    const char *wrong = sh(
        LISTED
        "cd \"$1\"; mkdir -p state bad/$2; : >file;"
        "head -c 8192 /dev/urandom >bad/$2/store.db; cp bad/$2/store.db"
        "  bad/$2/counters;"
        "try() { out=$1; shift; s=0; \"$@\" >$out 2>err </dev/null || s=$?;"
        "  [ $s = 0 ] || grep -qx $s help || echo \"$* >$out: $s: $(cat err)\";"
        "  [ $s$out != 0/dev/full ] || [ ! \"$full\" ] || echo \"$* >$out: "
        "0\"; };"
        "for p in mqctl mqdlq; do for v in $(verbs $p); do"
        "  full=; case $v in"
        "  top) continue ;;" /* runs until it is stopped */
        "  serve) a='file file' ;;"
        "  set) a=max-concurrency=2 ;; group) a=g ;;"
        "  move) a=amqp://guest@127.0.0.1:1/%2F/x ;;"
        "  explain | run-now | cancel | show | replay | discard) a=1 ;;"
        "  *) a= ;; esac;"
        "  listed $p $v >help;"
        "  try /dev/null $p $v --nonsense;"
        "  try /dev/null $p $v --state-dir state /no-such-queue $a;"
        "  try /dev/null $p $v --state-dir bad $2 $a;"
        "  try /dev/null $p $v --state-dir file $2 $a;"
        "  try /dev/full $p $v --state-dir state $2 $a;"
        "  full=1; try /dev/full $p $v --help; done; done;"
        "for p in mqsend mqworker; do listed $p >help;"
        "  full=1; try /dev/full $p --help; try /dev/full $p --version;"
        "  full=; try /dev/null $p --nonsense; try /dev/null $p /no-such-queue "
        "x;"
        "done",
        q);

    cr_assert_str_eq(wrong, "");
}

/* ---- words ---- */

Test(docs_agree, pages_messages_and_comments_use_plain_words)
{
    const char *found = sh(
        "grep -rnwiE 'mend(s|ed|ing)?|belongs? into|shall|made anew' README.md"
        "  docs common worker scripts tests --exclude=test_docs_agree.c || "
        "true;"
        "grep -rnw anew README.md docs worker/mqworker.h || true;"
        "grep -rnwiE '(stands?|stood) in' README.md docs |"
        "grep -viE '(stands?|stood) in (front|the|a|line|its|this|that|which)'"
        " || true;"
        "grep -rnE '\"[^\"]*\\banew\\b' --include='*.[ch]'"
        "  common worker scripts || true",
        "");

    cr_assert_str_eq(found, "");
}

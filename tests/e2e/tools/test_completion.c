/* test_completion.c - completion scripts: exactly the flags of --help, and
 * shells accept them */
#include "tests/harness/harness.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char made_by[PATH_MAX];

static void init(void)
{
    const char *docs = getenv("MQW_DOCS");
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/../scripts/completion.awk",
             docs ? docs : "docs");
    cr_assert_not_null(realpath(path, made_by), "cannot find %s; set MQW_DOCS",
                       path);
    harness_init();
}

TestSuite(completion, .init = init, .fini = harness_fini);

static const char *const programs[] = {"mqworker", "mqsend", "mqdlq", "mqctl"};
#define PROGRAMS (sizeof programs / sizeof *programs)

/* Print the script of a program for a shell. */
#define MADE(program, shell)                                                \
    "sh -c '$0 --options-dump; mqworker --options-dump' " program " | awk " \
    "-v shell=" shell " -f $AWK_SCRIPT"

/* Run a script in the scratch directory with our programs first in PATH. It
 * must succeed; return its output. */
static const char *sh(const char *shell, const char *script,
                      const char *argument)
{
    char path[8192], awk[PATH_MAX + 16], state[PATH_MAX + 32];
    char *bin = strdup(harness_bin("mqworker"));

    *strrchr(bin, '/') = '\0';
    snprintf(path, sizeof path, "PATH=%s:%s", bin, getenv("PATH"));
    free(bin);
    snprintf(awk, sizeof awk, "AWK_SCRIPT=%s", made_by);
    snprintf(state, sizeof state, "STATE_DIRECTORY=%s", harness_state_dir());
    struct harness_result r = harness_run_spec(&(struct harness_spec){
        .argv = HARNESS_LIST(shell, "-c", script, shell, argument),
        .env = HARNESS_LIST(path, awk, state, "HOME=.")});
    cr_assert_eq(r.status, 0, "%s: status %d\n%s%s", argument, r.status, r.out,
                 r.err);
    cr_assert_str_eq(r.err, "", "%s", argument);
    return r.out;
}

/* Skip the test if a shell is missing. */
static void need(const char *shell)
{
    if (!harness_has(shell))
        cr_skip_test("no %s here", shell);
}

/* Write each flag of all help texts to the file `help`, one a line. */
#define HELP                                                             \
    "set -eu; { $1 --help; case $1 in mqdlq | mqctl)"                    \
    "  for v in $($1 --help | sed -n 's/^  \\([a-z-]*\\) .*/\\1/p'); do" \
    "    $1 $v --help; done; echo '  --version' ;; esac; } |"            \
    "sed -n 's/^  \\(-., \\|    \\)\\{0,1\\}--\\([a-z-]*\\).*/\\2/p' |"  \
    "sort -u >help; "

/* Check that the flags that `find` finds in the script are those of --help. */
static void same(const char *shell, const char *find)
{
    char script[2048];

    snprintf(script, sizeof script,
             HELP MADE("$1", "%s") " >script; (%s) <script | sort -u >found;"
                                   "diff help found >&2; wc -l <found",
             shell, find);
    for (size_t i = 0; i < PROGRAMS; i++)
        cr_assert_geq(atoi(sh("sh", script, programs[i])), 10, "%s",
                      programs[i]);
}

Test(completion, bash_offers_the_flags_of_the_help)
{
    same("bash", "grep -o \"flags='[^']*'\\|--help --version\" |"
                 "grep -oe '--[a-z-]*' | sed 's/^--//'");
}

Test(completion, zsh_offers_the_flags_of_the_help)
{
    same("zsh", "grep -oe \"--[a-z-]*[]=[}]\" | sed 's/^--//; s/.$//'");
}

Test(completion, fish_offers_the_flags_of_the_help)
{
    same("fish", "sed -n 's/^complete.* -l \\([a-z-]*\\) .*/\\1/p'");
}

Test(completion, an_unknown_shell_is_refused_with_those_that_are_known)
{
    const char *out =
        sh("sh", MADE("$1", "tcsh") " 2>&1 || echo status $?", "mqctl");

    cr_assert(strstr(out, "give bash, zsh or fish"), "%s", out);
    cr_assert(strstr(out, "\nstatus 64\n"), "%s", out);
}

/* ---- completion in the shells: words, then required offers ---- */

static const struct {
    const char *words; /* as typed; the last word is completed */
    const char *offered;
} typed[] = {
    {"mqworker --max-con", "--max-concurrency"},
    {"mqworker --log-format j", "json"},
    {"mqworker --timeout n", "none"},
    {"mqworker --retry-for n", "none"},
    {"mqworker --state-dir di", "dir"},
    {"mqworker --plugin fil", "file.so"},
    {"mqworker /x -- file", "file.so"},
    {"mqsend --fi", "--file"},
    {"mqdlq rep", "replay"},
    {"mqdlq list --by gr", "group"},
    {"mqdlq list --reason exp", "expired"},
    {"mqdlq import fil", "file.so"},
    {"mqdlq replay --can", "--canary"},
    {"mqctl set /x max-w", "max-waiting="},
    {"mqctl doc", "doctor"},
    {"mqctl help doc", "doctor"},
    {"mqdlq help disc", "discard"},
    {"mqctl metrics --textf", "--textfile"},
};
#define TYPED (sizeof typed / sizeof *typed)

/* Run a script that answers each row with a line "words|offer offer ...". */
static void ask(const char *shell, const char *script)
{
    harness_write("file.so", "", 0);
    cr_assert_eq(mkdir(harness_path("dir"), 0700), 0);
    const char *q = harness_queue(0, 0);
    char queue[128], all[4096] = "";

    /* A worker must have run: where /dev/mqueue cannot be mounted, queues are
     * found by the folders of their workers. */
    cr_assert_eq(
        harness_wait(harness_worker(q, "--exit-when-idle=0s", "--", "true"),
                     10000),
        0);
    snprintf(queue, sizeof queue, "mqsend %.*s", (int)strlen(q) - 1, q);

    for (size_t i = 0; i < TYPED; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s\n",
                 typed[i].words);
    snprintf(all + strlen(all), sizeof all - strlen(all), "%s\n", queue);
    harness_write("typed", all, strlen(all));
    const char *out = sh(shell, script, "typed");
    for (size_t i = 0; i <= TYPED; i++) {
        char want[256];
        snprintf(want, sizeof want, "%s|", i < TYPED ? typed[i].words : queue);
        const char *line = strstr(out, want);
        cr_assert_not_null(line, "no answer to %s\n%s", want, out);
        char *offers = strndup(line, strcspn(line, "\n"));
        snprintf(want, sizeof want, " %s ", i < TYPED ? typed[i].offered : q);
        cr_assert(strstr(offers, want), "no%sin %s", want, offers);
        free(offers);
    }
}

Test(completion, bash_completes_what_was_typed)
{
    need("bash");
    ask("bash",
        "for p in mqworker mqsend mqdlq mqctl; do"
        "  source <(" MADE(
            "$p",
            "bash") "); done;"
                    "while read -ra COMP_WORDS; do"
                    "  COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=();"
                    "  _${COMP_WORDS[0]};"
                    "  echo \"${COMP_WORDS[*]}| ${COMPREPLY[*]} \"; done <$1");
}

/* readline splits --flag=value into three words. */
Test(completion, bash_completes_a_value_behind_an_equals_sign)
{
    need("bash");
    const char *out =
        sh("bash",
           "source <(" MADE("mqworker",
                            "bash") ");"
                                    "COMP_WORDS=(mqworker --log-format = j) "
                                    "COMP_CWORD=3; _mqworker;"
                                    "echo \"${COMPREPLY[*]}\";"
                                    "COMP_WORDS=(mqworker --log-format =) "
                                    "COMP_CWORD=2; _mqworker;"
                                    "echo \"${COMPREPLY[*]}\"",
           "");
    cr_assert_str_eq(out, "json\ntext json human auto\n");
}

Test(completion, fish_completes_what_was_typed)
{
    need("fish");
    ask("fish",
        "for p in mqworker mqsend mqdlq mqctl;"
        "  " MADE(
            "$p",
            "fish") " | source; end;"
                    "while read -l line;"
                    "  echo $line'|' (complete -C$line | string replace -r "
                    "'/?(\\t.*)?$' '') '';"
                    "end <typed");
}

/* Return a queue with one dead letter and one message waiting in the store; its
 * worker is running. */
static const char *one_letter(void)
{
    const char *q = harness_queue(10, 512);
    struct harness_process *w =
        harness_worker(q, "--max-attempts", "1", "--", "false");

    harness_send_text(q, "x");
    harness_wait_log(w, "event=dead", 5000);
    sh("sh",
       "mqsend --delay 1h \"$1\" later;"
       "until mqctl list \"$1\" | grep -q delayed; do sleep 0.1; done",
       q);
    return q;
}

/* Complete ids by the shell function complete_line. The script fails unless
 * they are those of the letter and of the message. */
#define IDS                                                                   \
    "id=$(mqctl list --json $q | grep -o '\"id\":\"[0-9A-Z]*' | tail -c 27);" \
    "[ ${#id} = 26 ];"                                                        \
    "for v in 'mqctl explain' 'mqctl cancel' 'mqctl run-now'; do"             \
    "  complete_line \"$v $q \" | grep -qx \"$id\"; done;"                    \
    "for v in show replay discard export; do"                                 \
    "  complete_line \"mqdlq $v $q \" | grep -qx 1; done;"

Test(completion, bash_offers_ids_of_letters_and_of_messages_that_wait)
{
    need("bash");
    sh("bash",
       "set -e; q=$1; for p in mqctl mqdlq; do"
       "  source <(" MADE(
           "$p", "bash") "); done;"
                         "complete_line() { COMP_WORDS=($1 ''); COMP_CWORD=3;"
                         "  COMPREPLY=(); _${COMP_WORDS[0]};"
                         "  printf '%s\n' \"${COMPREPLY[@]}\"; };" IDS
                         "! complete_line \"mqdlq list $q \" | grep -qx 1",
       one_letter());
}

Test(completion, fish_offers_ids_of_letters_and_of_messages_that_wait)
{
    need("fish");
    sh("bash",
       "set -e; q=$1; for p in mqctl mqdlq; do"
       "  " MADE("$p",
                 "fish") " >$p.fish; done;"
                         "complete_line() {"
                         "  line=$1 fish -c 'source mqctl.fish;"
                         "    source mqdlq.fish; complete -C$line'; };" IDS,
       one_letter());
}

/* Only the characters that were not typed are searched for: zsh prints them in
 * one piece. */
Test(completion, zsh_completes_what_was_typed)
{
    need("zsh");
    if (harness_run("zsh", "-fc", "zmodload zsh/zpty").status != 0)
        cr_skip_test("zsh without zpty");
    const char *out = sh(
        "zsh",
        "for p in mqworker mqsend mqdlq mqctl; do"
        "  " MADE(
            "$p",
            "zsh") " >_$p; zsh -n _$p; done;"
                   "zmodload zsh/zpty;"
                   "look() { zpty z zsh -f -i;"
                   "  zpty -w z \"PS1=; stty cols 200; fpath=($PWD \\$fpath);"
                   " autoload -U compinit; compinit -u -D; echo rea''dy\";"
                   "  zpty -r z out '*ready*'; zpty -w -n z $1$'\\t';"
                   "  zpty -r -m z out \"*$2*\" && echo \"$1: $2\"; zpty -d z; "
                   "};"
                   "look 'mqworker --max-con' currency;"
                   "look 'mqdlq replay --can' ary;"
                   "look 'mqworker --log-format=j' son;"
                   "look 'mqctl set /x max-w' aiting=;"
                   "look 'mqctl doc' tor;"
                   "id=$(mqctl list --json $1 |"
                   "  grep -o '\"id\":\"[0-9A-Z]*' | tail -c 27);"
                   "look \"mqctl explain $1 ${id[1,4]}\" ${id[5,26]} |"
                   "  sed 's/.*: /id /'",
        one_letter());
    cr_assert(strstr(out, "mqctl doc: tor\n"), "%s", out);
    cr_assert(strstr(out, "mqworker --log-format=j: son\n"), "%s", out);
    cr_assert(strstr(out, "mqctl set /x max-w: aiting=\n"), "%s", out);
    cr_assert(strstr(out, "\nid "), "%s", out);
}

/* test_man.c - man pages: exactly the flags of --help */
#include "tests/harness/harness.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(man, .init = harness_init, .fini = harness_fini);

/* Read docs/NAME.1 of the source tree, which is in the working directory of
 * make or in $MQW_DOCS. */
static const char *page_read(const char *name)
{
    static char page[128 << 10];
    char path[512];
    const char *docs = getenv("MQW_DOCS");
    snprintf(path, sizeof path, "%s/%s", docs ? docs : "docs", name);
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f, "cannot open %s; set MQW_DOCS", path);
    page[fread(page, 1, sizeof page - 1, f)] = '\0';
    fclose(f);
    return page;
}

/* Return the text after `prefix` and a whole flag name; NULL if missing. */
static const char *find_flag(const char *text, const char *prefix,
                             const char *flag)
{
    char want[160];
    snprintf(want, sizeof want, "%s%s", prefix, flag);
    for (const char *at = text; (at = strstr(at, want)); at++)
        if (strchr(" \n=[,", at[strlen(want)]))
            return at;
    return NULL;
}

/* Copy the flag name that starts at `at`. */
static const char *flag_copy(const char *at)
{
    static char flag[64];
    snprintf(flag, sizeof flag, "%.*s", (int)strcspn(at, " =[,\n"), at);
    return flag;
}

/* Call `look` with each line of a text. */
static void each_line(const char *text,
                      void (*look)(const char *line, const char *other),
                      const char *other)
{
    for (; *text; text += strcspn(text, "\n"), text += *text == '\n')
        look(text, other);
}

static int flags_seen;

/* Check that the page has the flag with which a line of --help starts. */
static void help_line(const char *line, const char *page)
{
    size_t indent = strspn(line, " ");
    if (indent < 2 || indent > 6 || line[indent] != '-')
        return;
    const char *flag = flag_copy(strstr(line, "--") + 2);
    cr_assert(find_flag(page, "Fl -", flag), "--%s is not in the page", flag);
    flags_seen++;
}

/* Check that --help has the flag with which a line of the page starts. */
static void page_line(const char *line, const char *help)
{
    if (strncmp(line, ".It Fl ", 7) != 0)
        return;
    const char *flag = flag_copy(strstr(line, "Fl -") + 4);
    cr_assert(find_flag(help, "--", flag), "the page has --%s, --help not",
              flag);
    flags_seen++;
}

/* Return all help texts of a program; the list of verbs ends with NULL. */
static const char *help_of(const char *program, const char *const *verbs)
{
    static char help[64 << 10];
    size_t at = 0;
    for (; *verbs; verbs++) {
        struct harness_result r = **verbs
                                      ? harness_run(program, *verbs, "--help")
                                      : harness_run(program, "--help");
        cr_assert_eq(r.status, 0, "%s", r.err);
        at += (size_t)snprintf(help + at, sizeof help - at, "%s\n", r.out);
    }
    return help;
}

/* Compare help and page in both directions. */
static void compare(const char *help, const char *page, int least)
{
    each_line(help, help_line, page);
    cr_assert_geq(flags_seen, least, "%d flags in the help", flags_seen);
    flags_seen = 0;
    each_line(page, page_line, help);
    cr_assert_geq(flags_seen, least, "%d flags in the page", flags_seen);
}

Test(man, mqsend_and_its_help_name_the_same_flags)
{
    compare(help_of("mqsend", HARNESS_LIST("")), page_read("mqsend.1"), 20);
}

Test(man, mqdlq_and_its_help_name_the_same_flags)
{
    static char help[64 << 10];
    snprintf(help, sizeof help, "%s  --version\n",
             help_of("mqdlq", HARNESS_LIST("list", "show", "replay", "discard",
                                           "purge", "export", "import")));
    compare(help, page_read("mqdlq.1"), 20);
}

Test(man, mqctl_and_its_help_name_the_same_flags)
{
    static char help[64 << 10];
    snprintf(
        help, sizeof help, "%s  --version\n",
        help_of("mqctl",
                HARNESS_LIST("queues", "list", "run-now", "cancel", "groups",
                             "group", "keys", "status", "top", "pause",
                             "resume", "set", "drain", "stop", "quit",
                             "explain", "doctor", "metrics", "serve", "create",
                             "remove", "forget", "move")));
    compare(help, page_read("mqctl.1"), 10);
}

/* Copy the default at the end of a flag's help, "(default X)". Return false if
 * there is none. Lines of help are wrapped. */
static bool default_of(const char *help, size_t size, char out[64])
{
    static const char lead[] = "(default ";
    char text[1024];
    size_t n = 0;
    const char *at;

    for (size_t i = 0; i < size && n < sizeof text - 1; i++)
        if (!strchr(" \n", help[i]))
            text[n++] = help[i];
        else if (n && text[n - 1] != ' ')
            text[n++] = ' ';
    text[n] = '\0';
    at = strstr(text, lead);
    if (!at)
        return false;
    at += strlen(lead);
    snprintf(out, 64, "%.*s", (int)strcspn(at, ")"), at);
    return true;
}

/* Check that the page has a line with the default of a flag. */
static void page_default(const char *page, const char *flag, const char *is)
{
    char want[160], line[160];
    const char *at, *end;

    at = find_flag(page, ".It Fl -", flag);
    if (!at) /* the flag also has a letter */
        at = find_flag(page, " , Fl -", flag);
    cr_assert(at, "--%s is not in the page", flag);
    end = strstr(at + 1, "\n.It ");
    at = strstr(at, "The default is ");
    cr_assert(at && (!end || at < end), "the page has no default of --%s",
              flag);
    snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    snprintf(want, sizeof want, " %s", is);
    at = strstr(line, want);
    cr_assert(at && strchr(".,;", at[strlen(want)]),
              "--%s: the default is %s, the page says: %s", flag, is, line);
}

Test(man, mqworker_and_its_help_have_the_same_defaults)
{
    const char *page = page_read("mqworker.8");
    const char *at = strstr(help_of("mqworker", HARNESS_LIST("")), "\n  ");
    int seen = 0;

    while (at) {
        const char *next = strstr(at + 1, "\n  -");
        const char *other = strstr(at + 1, "\n      --");
        char is[64];

        if (!next || (other && other < next))
            next = other;
        at = strstr(at, "--");
        if (at && default_of(at, next ? (size_t)(next - at) : strlen(at), is)) {
            page_default(page, flag_copy(at + 2), is);
            seen++;
        }
        at = next;
    }
    cr_assert_geq(seen, 20, "%d", seen);
}

/* subcommand.c - parse "PROGRAM VERB ..." and print its help (see
 * subcommand.h) */
#include "common/cli/subcommand.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <bsd/string.h>

#include "common/base/safe_text.h"
#include "common/cli/complain.h"
#include "common/cli/term.h"

#define NAME_ROOM  64   /* bytes of "mqctl drain" */
#define NOTES_ROOM 2048 /* bytes of the exit statuses and the notes */
#define LINE_MOST  79   /* columns of the exit statuses */

/* The flags of one verb, for options_parse and options_help. */
struct single {
    struct option_table table;
    struct option_row *rows; /* allocated; NULL: no memory */
    char name[NAME_ROOM], notes[NOTES_ROOM];
};

size_t subcommand_find(const struct subcommand_table *t, const char *name)
{
    size_t v = 0;

    while (v < t->verb_count && strcmp(t->verbs[v].name, name) != 0 &&
           !word_among(t->verbs[v].also, name, strlen(name)))
        v++;
    return v;
}

/* Make the notes: the exit statuses of the verbs whose bits are set, one on a
 * line, as "66  the queue does not exist", then "See tool(1).". One status may
 * have several meanings. */
static void notes_make(char notes[NOTES_ROOM], const struct subcommand_table *t,
                       unsigned verbs)
{
    char text[NOTES_ROOM] = "success";
    FILE *out = fmemopen(notes, NOTES_ROOM, "w");
    int status = 0;

    notes[0] = '\0';
    if (!out)
        return;
    fputs("Exit status:\n", out);
    for (size_t i = 0; i < t->exit_count; i++) {
        const struct subcommand_exit *e = &t->exits[i];

        if (!(e->verbs & verbs))
            continue;
        if (e->status == status) {
            text_append(text, sizeof text, ", or %s", e->means);
            continue;
        }
        fprintf(out, "  %-2d  ", status);
        term_words(out, text, 6, 6, LINE_MOST);
        putc('\n', out);
        status = e->status;
        strlcpy(text, e->means, sizeof text);
    }
    fprintf(out, "  %-2d  ", status);
    term_words(out, text, 6, 6, LINE_MOST);
    fprintf(out, "\n%s", t->notes);
    fclose(out);
}

/* Collect the rows of one verb. */
static void single_make(struct single *s, const struct subcommand_table *t,
                        size_t verb)
{
    snprintf(s->name, sizeof s->name, "%s %s", t->program, t->verbs[verb].name);
    notes_make(s->notes, t, 1u << verb);
    s->table = (struct option_table){
        .program = s->name,
        .usage = t->verbs[verb].usage,
        .about = t->verbs[verb].about,
        .notes = s->notes,
    };
    s->rows = calloc(t->flag_count, sizeof *s->rows);
    for (size_t i = 0; s->rows && i < t->flag_count; i++)
        if (t->flags[i].verbs & 1u << verb)
            s->rows[s->table.count++] = t->flags[i];
    s->table.rows = s->rows;
}

/* Refuse "--timeout=3s" for a verb that takes the worker's settings as
 * timeout=3s. If the word is nearly a flag of the verb, accept it here:
 * options_parse refuses it and names that flag. */
static int dashed_check(const struct subcommand_table *t, size_t verb, int argc,
                        char **argv, struct problem *p)
{
    for (int i = 2; t->verbs[verb].settings && i < argc; i++) {
        const char *name = argv[i] + 2;
        size_t size, far = SIZE_MAX;
        bool near = false;

        if (strncmp(argv[i], "--", 2) != 0 || !*name)
            continue;
        size = strcspn(name, "=");
        for (size_t f = 0; f < t->flag_count; f++)
            near |= t->flags[f].verbs & 1u << verb &&
                    word_nearer(name, size, t->flags[f].name, &far);
        if (!near)
            return problem_set(p, EX_USAGE, EINVAL,
                               "%s: \"%.100s\" is not a flag here; give "
                               "%.*s=VALUE to change that setting",
                               t->verbs[verb].name, argv[i],
                               (int)(size < 64 ? size : 64), name);
    }
    return 0;
}

int subcommand_read(const struct subcommand_table *t, int argc, char **argv,
                    struct subcommand_line *line, struct problem *p)
{
    const struct subcommand_row *verb = &t->verbs[line->verb];
    const char *what = NULL, *word, *guess = NULL;
    char all[NAME_ROOM], *words = all, *one;
    size_t far = SIZE_MAX;
    struct single s;
    int before = 0, rest = -1;
    int err = dashed_check(t, line->verb, argc, argv, p);

    if (err)
        return err;
    single_make(&s, t, line->verb);
    if (!s.rows)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    argc--; /* options_parse skips argv[0], which is now the verb */
    argv++;
    err = options_parse(&s.table, argc, argv, line, &before, &rest, p);
    free(s.rows);
    if (err || line->help)
        return err;
    if (rest >= 0 && rest < argc) /* operands after "--" follow the others */
        memmove(argv + before, argv + rest,
                (size_t)(argc - rest) * sizeof *argv);
    line->operands = argv;
    line->operand_count = before + (rest < 0 ? 0 : argc - rest);
    if (line->operand_count < verb->least)
        what = line->operand_count > 0           ? "too few arguments"
               : strstr(verb->usage, "[QUEUE] ") ? "no id or error given"
                                                 : "no queue given";
    else if (verb->most >= 0 && line->operand_count > verb->most)
        what = "too many arguments";
    if (what)
        return problem_set(p, EX_USAGE, EINVAL, "%s: %s; usage: %s %s %s",
                           verb->name, what, t->program, verb->name,
                           verb->usage);
    word = verb->last ? line->operands[line->operand_count - 1] : "";
    if (!verb->last || word_among(verb->last, word, strlen(word)))
        return t->check ? t->check(line, p) : 0;
    /* The last operand is not one of the words that the verb allows. */
    strlcpy(all, verb->last, sizeof all);
    while ((one = strsep(&words, "|")) != NULL)
        if (word_nearer(word, strlen(word), one, &far))
            guess = one;
    if (guess)
        return problem_set(p, EX_USAGE, EINVAL,
                           "%s: there is no \"%.64s\"; did you mean %s?",
                           verb->name, word, guess);
    return problem_set(p, EX_USAGE, EINVAL,
                       "%s: there is no \"%.64s\"; usage: %s %s %s", verb->name,
                       word, t->program, verb->name, verb->usage);
}

/* Move the verb to argv[1] if flags precede it. Returns the verb; --help or
 * --version, which need no verb; or "" if there is no argument. */
static const char *verb_first(const struct subcommand_table *t, int argc,
                              char **argv)
{
    int at = 1;
    char *word;

    while (at < argc && argv[at][0] == '-' && argv[at][1] &&
           !word_among("--help|-h|--version", argv[at], strlen(argv[at]))) {
        const struct option_row *row = NULL;
        const char *flag = argv[at++];

        /* Skip the flag's value. A flag that no verb has is refused later. */
        for (size_t i = 0; i < t->flag_count && !row; i++)
            if (flag[1] == '-' ? strcmp(t->flags[i].name, flag + 2) == 0
                               : t->flags[i].letter == flag[strlen(flag) - 1])
                row = &t->flags[i];
        at += row && !option_bare(row) && !row->optional;
    }
    if (at >= argc)
        return argc > 1 ? argv[1] : "";
    word = argv[at];
    memmove(argv + 2, argv + 1, (size_t)(at - 1) * sizeof *argv);
    argv[1] = word;
    return word;
}

/* Refuse an unknown verb; name the verb that may be meant, or all verbs. */
static int verb_unknown(const struct subcommand_table *t, int argc, char **argv,
                        const char *word)
{
    char all[512] = "";
    const char *guess = NULL;
    size_t far = SIZE_MAX, used = 0;

    for (size_t v = 0; v < t->verb_count; v++) {
        const char *name = t->verbs[v].name;

        if (word_among(t->verbs[v].elsewhere, word, strlen(word))) {
            guess = name;
            far = 0; /* no name is nearer */
        } else if (word_nearer(word, strlen(word), name, &far)) {
            guess = name;
        }
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s",
                                 v == 0                  ? ""
                                 : v + 1 < t->verb_count ? ", "
                                                         : " or ",
                                 name);
    }
    for (int i = 2; i < argc; i++)
        if (subcommand_find(t, argv[i]) < t->verb_count)
            return complain(
                EX_USAGE, "\"%s\" is not a verb; did you mean %s %s %s%s?",
                word, t->program, argv[i], word, argc > 3 ? " ..." : "");
    if (!*word)
        return complain(EX_USAGE, "no verb given; give %s first", all);
    if (guess)
        return complain(EX_USAGE, "\"%s\" is not a verb; did you mean %s?",
                        word, guess);
    return complain(EX_USAGE, "\"%s\" is not a verb; give %s first", word, all);
}

/* Print the help of one verb, or of the program. */
static int help_tell(const struct subcommand_table *t, size_t verb)
{
    subcommand_help(t, verb, stdout);
    return complain_output(0);
}

/* Print verbs and flags as options_dump does. */
static int verbs_dump(const struct subcommand_table *t, int argc, char **argv)
{
    if (!options_dump_asked(argc, argv))
        return -1;
    complain_as(t->program);
    printf("program\t%s\t-\n", t->program);
    for (size_t v = 0; v < t->verb_count; v++)
        printf("verb\t%s\t%s\t%s\t%s\t%s\n", t->verbs[v].name,
               strstr(t->verbs[v].usage, "FILE") ? "reads"
               : strstr(t->verbs[v].usage, "ID") ? "ids"
                                                 : "-",
               t->verbs[v].about, t->verbs[v].settings ? "settings" : "-",
               t->verbs[v].last ? t->verbs[v].last : "");
    for (size_t i = 0; i < t->flag_count; i++) {
        const char *space = "\t";

        fputs("flag", stdout);
        for (size_t v = 0; v < t->verb_count; v++)
            if (t->flags[i].verbs & 1u << v) {
                printf("%s%s", space, t->verbs[v].name);
                space = " ";
            }
        option_dump(&t->flags[i]);
    }
    return complain_output(0);
}

int subcommand_begin(const struct subcommand_table *t, int argc, char **argv,
                     struct subcommand_line *line)
{
    struct problem p = {0};
    const char *word;
    int asked = verbs_dump(t, argc, argv);

    complain_as(t->program);
    if (asked >= 0)
        return asked;
    word = verb_first(t, argc, argv);
    if (word_among("--help|-h|help", word, strlen(word)) && argc > 2) {
        const char *verb = verb_first(t, argc - 1, argv + 1);

        line->help = verb[0] != '-';
        word = line->help ? verb : word;
    }
    if (word_among("--help|-h|help", word, strlen(word)))
        return help_tell(t, t->verb_count);
    if (strcmp(word, "--version") == 0) {
        printf("%s " MQW_VERSION "\n", t->program);
        return complain_output(0);
    }
    line->verb = subcommand_find(t, word);
    if (line->verb == t->verb_count)
        return verb_unknown(t, argc, argv, word);
    if (!line->help && subcommand_read(t, argc, argv, line, &p) != 0)
        return complain_of(&p);
    if (line->help)
        return help_tell(t, line->verb);
    if (t->verbs[line->verb].absent && !t->verbs[line->verb].run)
        return complain(EX_UNAVAILABLE, "%s: not in this build, because of %s",
                        t->verbs[line->verb].name, t->verbs[line->verb].absent);
    return -1;
}

/* Return the heading in --help under which a verb is listed. */
static const char *heading_of(const struct subcommand_row *verb)
{
    return verb->under ? verb->under : "Verbs";
}

void subcommand_help(const struct subcommand_table *t, size_t verb, FILE *out)
{
    struct single s;
    char notes[NOTES_ROOM];

    if (verb < t->verb_count) {
        single_make(&s, t, verb);
        options_help(&s.table, out, term_width(out));
        free(s.rows);
        return;
    }
    fprintf(out, "Usage: %s %s\n\n%s\n", t->program, t->usage, t->about);
    for (size_t first = 0; first < t->verb_count; first++) {
        const char *heading = heading_of(&t->verbs[first]);
        size_t v = 0;

        while (strcmp(heading_of(&t->verbs[v]), heading) != 0)
            v++;
        if (v < first) /* printed with its first verb */
            continue;
        fprintf(out, "\n%s:\n", heading);
        for (; v < t->verb_count; v++)
            if (strcmp(heading_of(&t->verbs[v]), heading) == 0)
                fprintf(out, "  %-8s %s%s\n", t->verbs[v].name,
                        t->verbs[v].about,
                        t->verbs[v].absent && !t->verbs[v].run
                            ? " (not in this build)"
                            : "");
    }
    notes_make(notes, t, ~0u);
    fprintf(out, "\n%s VERB --help lists the options of a verb.\n\n%s\n",
            t->program, notes);
}

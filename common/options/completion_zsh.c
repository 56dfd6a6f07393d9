/* completion_zsh.c - the completion script for zsh
 *
 * One call of _arguments (zshcompsys(1)) for each verb, one line a flag.
 */
#include "common/options/completion_inner.h"

/* message - what stands for the value, and what may be offered */
static void value_print(const struct option_row *row, FILE *out)
{
    fputs(row->optional ? "::" : ":", out);
    completion_quote(option_value(row), true, out);
    switch (completion_offer(row)) {
    case OFFER_WORDS:
        fputs(":(", out);
        completion_words(row, out);
        fputs(")", out);
        break;
    case OFFER_FILES:
        fputs(":_files", out);
        break;
    case OFFER_DIRECTORIES:
        fputs(":_files -/", out);
        break;
    case OFFER_QUEUES:
        fputs(":_mqw_queues", out);
        break;
    case OFFER_NOTHING:
    default:
        fputs(": ", out);
    }
}

/* flag_print - (-c --cap)'{-c+,--cap=}'[help]:N:' */
static void flag_print(const struct option_row *row, FILE *out)
{
    bool bare = option_bare(row);
    bool again = row->type == OPT_COUNT || row->type == OPT_CALL;
    const char *equals = bare ? "" : row->optional ? "=-" : "=";

    if (row->letter && again)
        fprintf(out, " \\\n        '*'{-%c%s,--%s%s}'[", row->letter,
                bare ? "" : "+", row->name, equals);
    else if (row->letter)
        fprintf(out, " \\\n        '(-%c --%s)'{-%c%s,--%s%s}'[", row->letter,
                row->name, row->letter, bare ? "" : "+", row->name, equals);
    else
        fprintf(out, " \\\n        '%s--%s%s[", again ? "*" : "", row->name,
                equals);
    completion_quote(row->help, true, out);
    fputs("]", out);
    if (!bare)
        value_print(row, out);
    fputs("'", out);
}

/* arguments_print - flags and operands of a verb */
static void arguments_print(const struct completion *c, size_t verb)
{
    fputs("_arguments -s -S", c->out);
    for (size_t i = 0; i < c->count; i++)
        if (completion_takes(c, i, verb))
            flag_print(completion_row(c, i), c->out);
    fputs(" \\\n        '1:queue:_mqw_queues'", c->out);
    if (completion_runs(c))
        fputs(" \\\n        '*::command:_normal'", c->out);
    else if (completion_reads(c, verb))
        fputs(" \\\n        '*:file:_files'", c->out);
    fputs("\n", c->out);
}

/* verbs_print - the first argument, then that verb's */
static void verbs_print(const struct completion *c)
{
    const struct verb_table *t = c->verbs;

    fputs("    local context state line\n    typeset -A opt_args\n"
          "    _arguments -C '(- *)'{-h,--help}'[print this and exit]' "
          "'(- *)--version[print the version and exit]' \\\n"
          "        '1:verb:((",
          c->out);
    for (size_t v = 0; v < t->verb_count; v++) {
        fprintf(c->out, "%s%s\\:\"", v ? " " : "", t->verbs[v].name);
        completion_quote(t->verbs[v].about, true, c->out);
        fputs("\"", c->out);
    }
    fputs("))' '*::argument:->argument'\n    [ \"$state\" ] || return\n"
          "    case $words[1] in\n",
          c->out);
    for (size_t v = 0; v < t->verb_count; v++) {
        fprintf(c->out, "    %s) ", t->verbs[v].name);
        arguments_print(c, v);
        fputs("        ;;\n", c->out);
    }
    fputs("    esac\n", c->out);
}

void completion_zsh(const struct completion *c)
{
    fprintf(c->out,
            "#compdef %s\n"
            "# zsh completion for %s; made from its option rows\n"
            "_mqw_queues() {\n"
            "    local -a queues\n"
            "    queues=(${(f)\"$(" COMPLETION_QUEUES ")\"})\n"
            "    compadd \"$@\" -a queues\n"
            "}\n"
            "_%s() {\n",
            c->program, c->program, c->program);
    if (c->verbs) {
        verbs_print(c);
    } else {
        fputs("    ", c->out);
        arguments_print(c, 0);
    }
    fprintf(c->out, "}\n_%s \"$@\"\n", c->program);
}

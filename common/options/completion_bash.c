/* completion_bash.c - the completion script for bash
 *
 * It needs nothing of the bash-completion package but a place to lie in.
 */
#include "common/options/completion_inner.h"

/* What bash is told to offer. */
static const char *const offers[] = {
    [OFFER_NOTHING] = "return",
    [OFFER_FILES] = "_mqw_offer -f; _mqw_filenames; return",
    [OFFER_DIRECTORIES] = "_mqw_offer -d; _mqw_filenames; return",
    [OFFER_QUEUES] = "_mqw_offer -W \"$(_mqw_queues)\"; return",
};

/* The same in the scripts of all programs: one may be read after the other. */
static const char helpers[] =
    "_mqw_queues() { " COMPLETION_QUEUES "; }\n"
    "_mqw_filenames() { compopt -o filenames 2>/dev/null; }\n"
    "_mqw_offer() { # what compgen gives for $cur, words with blanks whole\n"
    "    local word\n"
    "    COMPREPLY=()\n"
    "    while IFS= read -r word; do COMPREPLY+=(\"$word\"); done "
    "< <(compgen \"$@\" -- \"$cur\")\n"
    "}\n";

/* --flag=value comes as three words: $prev is --flag= then. */
static const char words[] = "    local cur=${COMP_WORDS[COMP_CWORD]} "
                            "prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
                            "    local flags='' files='' queues=()\n"
                            "    if [ \"$cur\" = = ]; then\n"
                            "        cur='' prev+='='\n"
                            "    elif [ \"$prev\" = = ]; then\n"
                            "        prev=${COMP_WORDS[COMP_CWORD - 2]}=\n"
                            "    fi\n";

static const char command[] =
    "    local i\n"
    "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
    "        [ \"${COMP_WORDS[i]}\" = -- ] || continue\n"
    "        if ((i == COMP_CWORD - 1)); then\n"
    "            _mqw_offer -A command -A file\n"
    "        else\n"
    "            _mqw_offer -f\n"
    "        fi\n"
    "        _mqw_filenames\n"
    "        return\n"
    "    done\n";

static const char last[] =
    "    case $cur in\n"
    "    -*)\n"
    "        _mqw_offer -W \"$flags\"\n"
    "        [[ ${COMPREPLY[0]-} != *= ]] || compopt -o nospace 2>/dev/null\n"
    "        ;;\n"
    "    *)\n"
    "        _mqw_offer -W \"$(_mqw_queues)\"\n"
    "        [ \"$files\" ] || return\n"
    "        queues=(\"${COMPREPLY[@]}\")\n"
    "        _mqw_offer -f\n"
    "        COMPREPLY+=(\"${queues[@]}\")\n"
    "        ;;\n"
    "    esac\n"
    "}\n";

/* flag_values - "--state-dir) offer directories" */
static void flag_values(const struct completion *c)
{
    for (size_t i = 0; i < c->count; i++) {
        const struct option_row *row = completion_row(c, i);
        enum offer offer = completion_offer(row);

        if (option_bare(row))
            continue;
        fputs("    ", c->out);
        if (row->letter)
            fprintf(c->out, "-%c | ", row->letter);
        if (!row->optional)
            fprintf(c->out, "--%s | ", row->name);
        fprintf(c->out, "--%s=) ", row->name);
        if (offer == OFFER_WORDS) {
            fputs("_mqw_offer -W '", c->out);
            completion_words(row, c->out);
            fputs("'; return", c->out);
        } else {
            fputs(offers[offer], c->out);
        }
        fputs(" ;;\n", c->out);
    }
}

/* flags_of - the names of all flags of a verb */
static void flags_of(const struct completion *c, size_t verb)
{
    fputs("flags='", c->out);
    for (size_t i = 0; i < c->count; i++) {
        const struct option_row *row = completion_row(c, i);

        if (completion_takes(c, i, verb))
            fprintf(c->out, "--%s%s ", row->name, row->optional ? "=" : "");
    }
    fputs("'", c->out);
}

/* verbs_print - which verb it is, and its flags */
static void verbs_print(const struct completion *c)
{
    const struct verb_table *t = c->verbs;

    fputs("    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        _mqw_offer -W '",
          c->out);
    for (size_t v = 0; v < t->verb_count; v++)
        fprintf(c->out, "%s ", t->verbs[v].name);
    fputs("--help --version'\n        return\n    fi\n"
          "    case ${COMP_WORDS[1]} in\n",
          c->out);
    for (size_t v = 0; v < t->verb_count; v++) {
        fprintf(c->out, "    %s) ", t->verbs[v].name);
        flags_of(c, v);
        fprintf(c->out, "%s ;;\n", completion_reads(c, v) ? " files=1" : "");
    }
    fputs("    esac\n", c->out);
}

void completion_bash(const struct completion *c)
{
    fprintf(c->out, "# bash completion for %s; made from its option rows\n%s",
            c->program, helpers);
    fprintf(c->out, "_%s() {\n%s%s    case $prev in\n", c->program, words,
            completion_runs(c) ? command : "");
    flag_values(c);
    fputs("    esac\n", c->out);
    if (c->verbs) {
        verbs_print(c);
    } else {
        fputs("    ", c->out);
        flags_of(c, 0);
        fputs("\n", c->out);
    }
    fprintf(c->out, "%scomplete -F _%s %s\n", last, c->program, c->program);
}

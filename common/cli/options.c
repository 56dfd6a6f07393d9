/* options.c - parse argv by a table, print --help (see options.h) */
#include "common/cli/options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/safe_text.h"
#include "common/cli/complain.h"
#include "common/cli/term.h"

/* ---- the value of a flag ---- */

#define FLAG_TEXT  96
#define RANGE_TEXT 192
#define LETTERS    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

bool option_bare(const struct option_row *row)
{
    return row->type == OPT_FLAG || row->type == OPT_COUNT ||
           (row->type == OPT_CALL && !row->value);
}

const char *option_value(const struct option_row *row)
{
    if (option_bare(row))
        return "";
    if (row->value)
        return row->value;
    return row->type == OPT_CHOICE ? row->words : "VALUE";
}

/* Return true if the row has an upper bound of its own. */
static bool row_bounded(const struct option_row *row)
{
    return row->max > 0 && row->max < INT64_MAX;
}

/* Return the upper bound. No parser gives more than INT64_MAX. */
static uint64_t row_max(const struct option_row *row)
{
    return row_bounded(row) ? row->max : INT64_MAX;
}

/* Print a bound in the form of the flag's value. */
static void bound_print(const struct option_row *row, uint64_t bound,
                        char buf[DURATION_TEXT])
{
    _Static_assert(SIZE_TEXT == DURATION_TEXT, "one buffer serves both");

    if (row->type == OPT_DURATION)
        duration_print(bound, buf);
    else if (row->type == OPT_SIZE)
        size_print(bound, buf);
    else
        snprintf(buf, DURATION_TEXT, row->type == OPT_OCTAL ? "%#jo" : "%ju",
                 (uintmax_t)bound);
}

/* Print what is allowed: "1 to 1024", "1 or more, or none". */
static const char *range_print(const struct option_row *row,
                               char buf[RANGE_TEXT])
{
    char least[DURATION_TEXT], most[DURATION_TEXT];
    const char * or = row->words ? ", or " : "";
    const char *word = row->words ? row->words : "";

    bound_print(row, row->min, least);
    bound_print(row, row_max(row), most);
    if (!row_bounded(row))
        snprintf(buf, RANGE_TEXT, "%s or more%s%s", least, or, word);
    else
        snprintf(buf, RANGE_TEXT, "%s to %s%s%s", least, most, or, word);
    return buf;
}

/* Refuse a value; `what` is wrong with the text, `give` is what is allowed. */
static int value_refuse(const struct option_row *row, const char *text,
                        const char *what, const char *give, struct problem *p)
{
    return problem_set(p, EX_USAGE, EINVAL, "--%s: \"%.200s\" %s; give %s",
                       row->name, text, what, give);
}

/* Return what is wrong with a duration or a size: its unit, or `otherwise`. */
static const char *unit_flaw(const char *text, const char *otherwise,
                             int (*parse)(const char *, uint64_t *))
{
    size_t size = strlen(text);

    if (*text < '0' || *text > '9')
        return otherwise;
    if (text[size - 1] >= '0' && text[size - 1] <= '9')
        return "has no unit";
    while (*text) {
        char one[8];
        uint64_t ignored;

        text += strspn(text, "0123456789.");
        size = strspn(text, LETTERS);
        if (size == 0)
            return otherwise;
        snprintf(one, sizeof one, "1%.*s", (int)size, text);
        if (size > sizeof one - 2 || parse(one, &ignored) < 0)
            return "has an unknown unit";
        text += size;
    }
    return otherwise;
}

/* Read a value of one of the types whose values are ordered. */
static int number_read(const struct option_row *row, const char *text,
                       uint64_t *into, struct problem *p)
{
    bool digit = *text >= '0' && *text <= '9';
    uint64_t value = 0;
    char give[RANGE_TEXT], most[DURATION_TEXT], *end;
    const char *flaw, *form = NULL; /* what a duration or a size looks like */
    int rc = -EINVAL;

    if (row->words && strcmp(text, row->words) == 0) {
        *into = UINT64_MAX;
        return 0;
    }
    if (row->type == OPT_DURATION) {
        rc = duration_parse(text, &value);
        form = "a number with ns, us, ms, s, m, h or d, like 250ms";
    } else if (row->type == OPT_SIZE) {
        rc = size_parse(text, &value);
        form = "a whole number of bytes, or one with KiB, MiB or GiB, like "
               "8KiB";
    } else if (digit) { /* strtoumax would accept a sign and spaces */
        errno = 0;
        value = strtoumax(text, &end, row->type == OPT_OCTAL ? 8 : 10);
        if (!*end || (row->unit && strcmp(end, row->unit) == 0))
            rc = errno || value > INT64_MAX ? -ERANGE : 0;
    }
    if (rc == -EINVAL) {
        flaw = !*text ? "is empty"
               : row->type == OPT_DURATION
                   ? unit_flaw(text, "is not a duration", duration_parse)
               : row->type == OPT_SIZE
                   ? unit_flaw(text, "is not a size", size_parse)
               : row->type == OPT_OCTAL ? "is not an octal number"
                                        : "is not a number";
        if (form)
            snprintf(give, sizeof give, "%s%s%s", form,
                     row->words ? ", or " : "", row->words ? row->words : "");
        else
            range_print(row, give);
        if (row->unit)
            text_append(give, sizeof give, ", with or without %s", row->unit);
        return value_refuse(row, text, flaw, give, p);
    }
    if (rc == 0 && value < row->min)
        return value_refuse(row, text, "is too small", range_print(row, give),
                            p);
    if ((rc < 0 || value > row_max(row)) && !row_bounded(row)) {
        bound_print(row, INT64_MAX, most);
        snprintf(give, sizeof give, "at most %s", most);
    }
    if (rc < 0 || value > row_max(row))
        return value_refuse(row, text, "is too large",
                            row_bounded(row) ? range_print(row, give) : give,
                            p);
    *into = value;
    return 0;
}

/* Find the word among "text|json", and store its index. */
static int choice_read(const struct option_row *row, const char *text,
                       uint64_t *into, struct problem *p)
{
    const char *word = row->words;
    char give[RANGE_TEXT] = ""; /* "text or json" */

    for (uint64_t i = 0; word; i++) {
        size_t size = strcspn(word, "|");
        const char *next = word[size] ? word + size + 1 : NULL;
        const char *join = !next ? "" : strchr(next, '|') ? ", " : " or ";

        if (size == strlen(text) && memcmp(word, text, size) == 0) {
            *into = i;
            return 0;
        }
        text_append(give, sizeof give, "%.*s%s", (int)size, word, join);
        word = next;
    }
    return value_refuse(row, text, "is not one of the choices", give, p);
}

int option_read(const struct option_row *row, const char *text, void *into,
                struct problem *p)
{
    void *target = (char *)into + row->offset;
    struct problem own = {0};
    char flag[FLAG_TEXT];
    bool named;
    int rc;

    if (row->type == OPT_CALL) {
        rc = row->call(text, target, &own);
        if (rc == 0)
            return 0;
        snprintf(flag, sizeof flag, "--%s", row->name);
        named = strncmp(own.text, flag, strlen(flag)) == 0;
        return problem_set(p, own.status ? own.status : EX_USAGE, -rc, "%s%s%s",
                           named ? "" : flag, named ? "" : ": ", own.text);
    }
    if (row->type == OPT_FLAG) {
        *(bool *)target = true;
        return 0;
    }
    if (row->type == OPT_COUNT) {
        ++*(uint64_t *)target;
        return 0;
    }
    if (!text)
        text = row->preset;
    if (!text)
        return 0;
    if (row->type == OPT_CHOICE)
        return choice_read(row, text, target, p);
    if (row->type != OPT_STRING)
        return number_read(row, text, target, p);
    if (!*text)
        return value_refuse(row, text, "is empty", option_value(row), p);
    *(const char **)target = text;
    return 0;
}

bool option_print(const struct option_row *row, const void *from, char *out,
                  size_t room)
{
    const void *at = (const char *)from + row->offset;
    const char *text, *word = row->words;
    char number[DURATION_TEXT];
    uint64_t n;

    out[0] = '\0';
    if (row->type == OPT_FLAG)
        return *(const bool *)at;
    if (row->type == OPT_CALL)
        return row->print && row->print(at, out, room);
    if (row->type == OPT_STRING) {
        text = *(const char *const *)at;
        if (text)
            safe_text_copy(out, room, text, strlen(text));
        return text != NULL;
    }
    n = atomic_load((const _Atomic uint64_t *)at);
    if (row->type == OPT_CHOICE) {
        for (; n > 0; n--)
            word = strchr(word, '|') + 1;
        snprintf(out, room, "%.*s", (int)strcspn(word, "|"), word);
    } else if (word && n == UINT64_MAX) {
        strlcpy(out, word, room);
    } else {
        bound_print(row, n, number);
        strlcpy(out, number, room);
    }
    return true;
}

/* ---- argv ---- */

#define GUESS_MAX 40 /* longest flag name that a guess is made for */

/* One run of options_parse. */
struct parse {
    const struct option_table *table;
    int argc;
    char **argv;
    int at; /* the argument that is read */
    void *into;
    struct problem *p;
};

/* Find a row by a name of `size` bytes. */
static const struct option_row *row_find(const struct option_table *table,
                                         const char *name, size_t size)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct option_row *row = &table->rows[i];

        if (strlen(row->name) == size && memcmp(row->name, name, size) == 0)
            return row;
    }
    return NULL;
}

/* Find a row by its letter; NULL for the letter 0. */
static const struct option_row *row_letter(const struct option_table *table,
                                           char letter)
{
    for (size_t i = 0; i < table->count; i++)
        if (letter && (table->rows[i].letter == letter ||
                       table->rows[i].old_letter == letter))
            return &table->rows[i];
    return NULL;
}

/* Count the letters to insert, drop, change or swap to get from a to b (optimal
 * string alignment). Neither is longer than GUESS_MAX. */
static size_t word_distance(const char *a, size_t a_size, const char *b,
                            size_t b_size)
{
    size_t d[GUESS_MAX + 1][GUESS_MAX + 1];

    for (size_t i = 0; i <= a_size; i++)
        d[i][0] = i;
    for (size_t j = 0; j <= b_size; j++)
        d[0][j] = j;
    for (size_t i = 1; i <= a_size; i++) {
        for (size_t j = 1; j <= b_size; j++) {
            size_t change = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);

            d[i][j] = change;
            if (d[i][j] > d[i - 1][j] + 1)
                d[i][j] = d[i - 1][j] + 1;
            if (d[i][j] > d[i][j - 1] + 1)
                d[i][j] = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] &&
                a[i - 2] == b[j - 1] && d[i][j] > d[i - 2][j - 2] + 1)
                d[i][j] = d[i - 2][j - 2] + 1; /* swapped */
        }
    }
    return d[a_size][b_size];
}

bool word_among(const char *words, const char *word, size_t size)
{
    for (; words && *words; words += strcspn(words, "|")) {
        words += *words == '|';
        if (strcspn(words, "|") == size && memcmp(words, word, size) == 0)
            return true;
    }
    return false;
}

bool word_nearer(const char *word, size_t size, const char *name, size_t *far)
{
    size_t limit = (size + 2) / 3 + 1, d = 0;

    if (size == 0 || size > GUESS_MAX)
        return false;
    if (strncmp(name, word, size) != 0) {
        /* Make no guess for a single letter: each letter is one change away
         * from every other. */
        if (size == 1 || strlen(name) == 1 || strlen(name) > GUESS_MAX)
            return false;
        d = word_distance(word, size, name, strlen(name));
    }
    if (d >= (*far < limit ? *far : limit))
        return false;
    *far = d;
    return true;
}

/* Guess the flag that was meant: one that other programs call so, else the
 * nearest name, such as --queue-depth for --queue-dept, else a name that
 * contains the word, such as --queue-depth for --depth. */
static const struct option_row *row_guess(const struct option_table *table,
                                          const char *name, size_t size)
{
    const struct option_row *best = NULL;
    size_t far = SIZE_MAX;

    for (size_t i = 0; i < table->count; i++)
        if (word_among(table->rows[i].elsewhere, name, size))
            return &table->rows[i];
    for (size_t i = 0; i < table->count; i++)
        if (word_nearer(name, size, table->rows[i].name, &far))
            best = &table->rows[i];
    for (size_t i = 0; i < table->count && size > 0 && !best; i++)
        for (const char *at = table->rows[i].name; *at && !best;) {
            size_t length = strcspn(at, "-");

            if (length == size && strncmp(at, name, size) == 0)
                best = &table->rows[i];
            at += length + (at[length] == '-');
        }
    return best;
}

/* Refuse a flag of `size` bytes, dashes included. */
static int flag_unknown(const struct parse *run, const char *flag, size_t size,
                        const struct option_row *guess)
{
    int cut = size < 200 ? (int)size : 200;

    if (guess)
        return problem_set(run->p, EX_USAGE, EINVAL,
                           "unknown flag %.*s; did you mean --%s?", cut, flag,
                           guess->name);
    return problem_set(run->p, EX_USAGE, EINVAL,
                       "unknown flag %.*s; see %s --help%s", cut, flag,
                       run->table->program,
                       strstr(run->table->usage, "[BODY]")
                           ? "; before a body that starts with a dash, put --"
                           : "");
}

/* Read the value, and note that the flag was given. If the value may be left
 * out and is not joined with =, refuse what looks like one in the next
 * argument: it would become an operand. A value is a word that the flag takes,
 * or begins with a digit and has only letters, digits and dots. */
static int row_take(const struct parse *run, const struct option_row *row,
                    const char *value)
{
    const char *next = run->at + 1 < run->argc ? run->argv[run->at + 1] : "";
    int rc;

    if (!value && row->optional &&
        ((row->words && strcmp(next, row->words) == 0) ||
         (*next >= '0' && *next <= '9' &&
          !next[strspn(next, "0123456789." LETTERS)])))
        return problem_set(run->p, EX_USAGE, EINVAL,
                           "--%s %.64s: a value that may be left out is joined "
                           "with =, like --%s=%.64s (the queue of that name is "
                           "/%.64s)",
                           row->name, next, row->name, next, next);
    rc = option_read(row, value, run->into, run->p);
    if (rc == 0 && row->seen)
        *((bool *)((char *)run->into + row->seen - 1)) = true;
    return rc;
}

/* Take the next argument as the value. If it is "--", which ends the flags, the
 * value was forgotten; --name=-- gives "--" as the value. */
static int row_take_next(struct parse *run, const struct option_row *row)
{
    int next = run->at + 1;

    if (next >= run->argc || strcmp(run->argv[next], "--") == 0)
        return problem_set(run->p, EX_USAGE, EINVAL,
                           "--%s needs a value: --%s %s", row->name, row->name,
                           option_value(row));
    run->at = next;
    return row_take(run, row, run->argv[next]);
}

/* Take --name, --name=VALUE or --name VALUE. */
static int long_take(struct parse *run)
{
    const char *flag = run->argv[run->at];
    size_t size = strcspn(flag, "=");
    const struct option_row *row = row_find(run->table, flag + 2, size - 2);

    if (!row)
        return flag_unknown(run, flag, size,
                            row_guess(run->table, flag + 2, size - 2));
    if (option_bare(row) && flag[size])
        return problem_set(run->p, EX_USAGE, EINVAL, "--%s takes no value",
                           row->name);
    if (flag[size])
        return row_take(run, row, flag + size + 1);
    if (option_bare(row) || row->optional)
        return row_take(run, row, NULL);
    return row_take_next(run, row);
}

/* Take -v, -vv, -c4, -c 4 or -qvc4. */
static int letters_take(struct parse *run)
{
    const char *flag = run->argv[run->at], *letter = flag + 1;
    size_t size = strcspn(flag, "=");
    char in[200];

    for (; *letter; letter++) {
        const struct option_row *row = row_letter(run->table, *letter);
        bool bare = row && (option_bare(row) || row->optional);
        int rc;

        /* Guess --help for "-help", and -v for "-V". */
        if (!row) {
            const char one[] = {'-', *letter, '\0'};

            row = row_find(run->table, flag + 1, size - 1);
            if (row || (unsigned char)*letter >= 0x80)
                return flag_unknown(run, flag, size, row);
            row = row_letter(run->table, *letter ^ 0x20);
            if (row || flag[2] == '\0')
                return flag_unknown(run, one, 2, row);
            /* Show the word that the letter is in, such as -hello. */
            snprintf(in, sizeof in, "-%c in %.150s", *letter, flag);
            return flag_unknown(run, in, strlen(in), NULL);
        }
        if (!bare && letter[1])
            return row_take(run, row, letter + 1);
        if (!bare)
            return row_take_next(run, row);
        rc = row_take(run, row, NULL);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int options_parse(const struct option_table *table, int argc, char **argv,
                  void *into, int *operands, int *rest, struct problem *p)
{
    struct parse run = {
        .table = table, .argc = argc, .argv = argv, .into = into, .p = p};

    *operands = 0;
    *rest = -1;
    for (run.at = 1; run.at < argc; run.at++) {
        const char *text = argv[run.at];
        int rc = 0;

        if (strcmp(text, "--") == 0) {
            *rest = run.at + 1;
            break;
        }
        if (text[0] == '-' && text[1]) {
            rc = text[1] == '-' ? long_take(&run) : letters_take(&run);
        } else { /* move the operand behind those found before it */
            argv[run.at] = argv[*operands];
            argv[(*operands)++] = (char *)text;
        }
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- --help ---- */

#define WIDTH_PRESET 80 /* columns if the caller gives no width */
#define WIDTH_LEAST  20
#define COLUMN_MOST  34 /* last column where sentences may start */
#define COLUMN_ALONE 8  /* where sentences on lines of their own start */
#define SENTENCE_MIN 28 /* columns that a sentence beside its flag needs */
#define LABEL_TEXT   128
#define HELP_TEXT    1024

/* Print "  -c, --max-concurrency N". Returns its columns. */
static int label_print(const struct option_row *row, char buf[LABEL_TEXT])
{
    const char *value = option_value(row);
    char letter[] = "    ";
    const char *open = !*value ? "" : row->optional ? "[=" : " ";

    if (row->letter) {
        const char with[] = {'-', row->letter, ',', ' '};

        memcpy(letter, with, sizeof with);
    }
    snprintf(buf, LABEL_TEXT, "  %s--%s%s%s%s", letter, row->name, open, value,
             *open == '[' ? "]" : "");
    return term_columns(buf);
}

void options_help(const struct option_table *table, FILE *out, int width)
{
    const char *usage = table->usage, *lead = "Usage:";
    char label[LABEL_TEXT], text[HELP_TEXT];
    int column = 0, used;

    if (width <= 0)
        width = WIDTH_PRESET;
    if (width < WIDTH_LEAST)
        width = WIDTH_LEAST;
    /* Choose the column in which the sentences start. */
    for (size_t i = 0; i < table->count; i++) {
        used = label_print(&table->rows[i], label) + 2;
        if (used > column && used <= COLUMN_MOST)
            column = used;
    }
    if (column + SENTENCE_MIN > width)
        column = COLUMN_ALONE;
    while (*usage) { /* each way to call the program */
        size_t size = strcspn(usage, "\n");

        fprintf(out, "%s %s %.*s\n", lead, table->program, (int)size, usage);
        usage += size + (usage[size] == '\n');
        lead = "      ";
    }
    fputc('\n', out);
    term_words(out, table->about, 0, 0, width);
    fputc('\n', out);
    for (size_t i = 0; i < table->count; i++) {
        const struct option_row *row = &table->rows[i];

        if (i == 0 || row->under)
            fprintf(out, "\n%s:\n", row->under ? row->under : "Options");
        used = label_print(row, label);
        if (used + 2 > column)
            fprintf(out, "%s\n%*s", label, column, "");
        else
            fprintf(out, "%s%*s", label, column - used, "");
        snprintf(text, sizeof text, row->preset ? "%s (default %s)" : "%s",
                 row->help, row->preset);
        term_words(out, text, column, column, width);
        fputc('\n', out);
    }
    if (table->notes)
        fprintf(out, "\n%s\n", table->notes);
}

/* ---- --options-dump, for scripts/mqctl/serve and scripts/completion.awk,
 * which lists the fields ---- */

bool options_dump_asked(int argc, char **argv)
{
    return argc == 2 && strcmp(argv[1], "--options-dump") == 0;
}

void option_dump(const struct option_row *row)
{
    const char letter[] = {row->letter, '\0'};
    bool again = row->type == OPT_COUNT || row->type == OPT_CALL;

    printf("\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", row->name, letter,
           option_bare(row) ? "bare"
           : row->optional  ? "optional"
                            : "value",
           again ? "again" : "-", option_value(row),
           row->words ? row->words : "", row->help, row->live ? "live" : "-",
           row->preset ? row->preset : "", row->under ? row->under : "");
}

int options_dump(const struct option_table *t, int argc, char **argv)
{
    if (!options_dump_asked(argc, argv))
        return -1;
    complain_as(t->program);
    printf("program\t%s\t%s\n", t->program,
           strstr(t->usage, "-- COMMAND") ? "runs" : "-");
    for (size_t i = 0; i < t->count; i++) {
        fputs("flag\t", stdout);
        option_dump(&t->rows[i]);
    }
    return complain_output(0);
}

/* options.c - see options.h */
#include "common/cli/options.h"

#include <errno.h>
#include <string.h>
#include <sysexits.h>

#include "common/cli/option_value.h"

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

/* row_find - by a name of `size` bytes */
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

/* row_letter - by letter; 0 is none */
static const struct option_row *row_letter(const struct option_table *table,
                                           char letter)
{
    for (size_t i = 0; i < table->count; i++)
        if (letter && (table->rows[i].letter == letter ||
                       table->rows[i].old_letter == letter))
            return &table->rows[i];
    return NULL;
}

/* least - of three */
static size_t least(size_t a, size_t b, size_t c)
{
    size_t ab = a < b ? a : b;

    return ab < c ? ab : c;
}

/* distance - letters to insert, drop, change or swap to get from a to b
 * (optimal string alignment); neither longer than GUESS_MAX */
static size_t distance(const char *a, size_t a_size, const char *b,
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

            d[i][j] = least(d[i - 1][j] + 1, d[i][j - 1] + 1, change);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = least(d[i][j], d[i - 2][j - 2] + 1, change);
        }
    }
    return d[a_size][b_size];
}

bool word_nearer(const char *word, size_t size, const char *name, size_t *far)
{
    size_t limit = (size + 2) / 3 + 1, d = 0;

    if (size == 0 || size > GUESS_MAX)
        return false;
    if (strncmp(name, word, size) != 0 && strlen(name) > GUESS_MAX)
        return false;
    if (strncmp(name, word, size) != 0)
        d = distance(word, size, name, strlen(name));
    if (d >= (*far < limit ? *far : limit))
        return false;
    *far = d;
    return true;
}

/* word_inside - whether it is one of the words of "queue-depth" */
static bool word_inside(const char *word, size_t size, const char *name)
{
    for (const char *at = name; size; at += strcspn(at, "-") + 1) {
        size_t length = strcspn(at, "-");

        if (length == size && strncmp(at, word, size) == 0)
            return true;
        if (at[length] == '\0')
            return false;
    }
    return false;
}

/* row_guess - the flag that was perhaps meant: --queue-depth for --queue-dept,
 * else for --depth */
static const struct option_row *row_guess(const struct option_table *table,
                                          const char *name, size_t size)
{
    const struct option_row *best = NULL;
    size_t far = SIZE_MAX;

    for (size_t i = 0; i < table->count; i++)
        if (word_nearer(name, size, table->rows[i].name, &far))
            best = &table->rows[i];
    for (size_t i = 0; i < table->count && !best; i++)
        if (word_inside(name, size, table->rows[i].name))
            best = &table->rows[i];
    return best;
}

/* flag_unknown - refuse a flag of `size` bytes, dashes included */
static int flag_unknown(const struct parse *run, const char *flag, size_t size,
                        const struct option_row *guess)
{
    int cut = size < 200 ? (int)size : 200;

    if (guess)
        return problem_set(run->p, EX_USAGE, EINVAL,
                           "unknown flag %.*s; did you mean --%s?", cut, flag,
                           guess->name);
    return problem_set(run->p, EX_USAGE, EINVAL,
                       "unknown flag %.*s; see %s --help", cut, flag,
                       run->table->program);
}

/* row_take - read the value and note that the flag was given */
static int row_take(const struct parse *run, const struct option_row *row,
                    const char *value)
{
    int rc = option_read(row, value, run->into, run->p);

    if (rc == 0 && row->seen)
        *((bool *)((char *)run->into + row->seen - 1)) = true;
    return rc;
}

/* row_take_next - the value is the next argument. "--" is not one: it ends the
 * flags, and a value was forgotten; --name=-- can still be said. */
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

/* long_take - --name, --name=VALUE, --name VALUE */
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

/* letter_unknown - refuse a letter; "-help" is a long name with a dash missing,
 * and -V may be a slip for -v */
static int letter_unknown(const struct parse *run, const char *letter)
{
    const char *flag = run->argv[run->at];
    size_t size = strcspn(flag, "=");
    const struct option_row *row = row_find(run->table, flag + 1, size - 1);
    const char one[] = {'-', *letter, '\0'};

    if (row || (unsigned char)*letter >= 0x80)
        return flag_unknown(run, flag, size, row);
    return flag_unknown(run, one, 2, row_letter(run->table, *letter ^ 0x20));
}

/* letters_take - -v, -vv, -c4, -c 4, -qvc4 */
static int letters_take(struct parse *run)
{
    const char *letter = run->argv[run->at] + 1;

    for (; *letter; letter++) {
        const struct option_row *row = row_letter(run->table, *letter);
        bool bare = row && (option_bare(row) || row->optional);
        int rc;

        if (!row)
            return letter_unknown(run, letter);
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

/* argument_swap - operands gather at the front; all before `at` has been read,
 * so no argument is passed over */
static void argument_swap(char **argv, int front, int at)
{
    char *operand = argv[at];

    argv[at] = argv[front];
    argv[front] = operand;
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
        if (text[0] != '-' || !text[1])
            argument_swap(argv, (*operands)++, run.at);
        else
            rc = text[1] == '-' ? long_take(&run) : letters_take(&run);
        if (rc < 0)
            return rc;
    }
    return 0;
}

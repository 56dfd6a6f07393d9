/* test_top_keys.c - the keys of top: those that change production ask first,
 * and help tells of each */
#include "tests/unit/top/view_fixture.h"

Test(top_keys, no_key_has_two_meanings)
{
    for (size_t i = 0; i < top_key_count; i++)
        for (size_t k = 0; k < 2; k++)
            if (top_keys[i].keys[k])
                cr_assert_eq(key_find(top_keys[i].keys[k]), &top_keys[i], "%c",
                             top_keys[i].keys[k]);
    cr_assert_null(key_find(0));
    cr_assert_null(key_find('y'), "y answers questions, but is a key");
}

Test(top_keys, what_changes_production_asks_and_nothing_else_does)
{
    static const char changes[] = "p+-DSrx";

    for (size_t i = 0; i < top_key_count; i++) {
        int key = top_keys[i].keys[0];

        cr_assert_eq(top_keys[i].asks, key < 0x80 && strchr(changes, key),
                     "%#x", (unsigned)key);
    }
}

Test(top_keys, help_has_each_key_and_whether_it_asks)
{
    struct view v = a_view(NULL, 0);

    v.help = true;
    draw(&v, 80, 24);
    for (size_t i = 0; i < top_key_count; i++) {
        const struct key *k = &top_keys[i];

        if (!k->name)
            continue;
        cr_assert_eq(strncmp(says(k->what), k->name, strlen(k->name)), 0);
        cr_assert_eq(strstr(says(k->what), "asks first") != NULL, k->asks);
    }
    says("red");
    says("any key goes back");
    canvas_close(&drawn);
}

Test(top_keys, a_question_says_what_y_does_and_hides_the_note)
{
    struct view_queue q[] = {a_queue("/orders")};
    struct view v = a_view(q, 1);

    v.note = "an older note";
    v.question = "pause /orders?";
    draw(&v, 80, 24);
    says("pause /orders?");
    says("Press y to confirm, any other key to cancel");
    cr_assert_null(line_of("an older note"));
    canvas_close(&drawn);
}

Test(top_keys, last_line_names_help_and_quit_in_eighty_columns)
{
    struct view_queue q[] = {a_queue("/orders")};
    struct view v = a_view(q, 1);

    draw(&v, 80, 24);
    cr_assert_not_null(strstr(says("? help"), "q quit"));
    v.letters = true;
    draw(&v, 80, 24);
    cr_assert_not_null(strstr(says("? help"), "r replay  x discard  q quit"));
    canvas_close(&drawn);
}

/* Return the part of mqctl's man page about the keys of top. */
static const char *page(void)
{
    static char text[128 << 10];
    FILE *in = fopen("docs/mqctl.1", "r");

    cr_assert_not_null(in);
    text[fread(text, 1, sizeof text - 1, in)] = '\0';
    fclose(in);
    return strstr(text, "\nThe keys are:\n");
}

Test(top_keys, man_page_has_the_same_keys)
{
    const char *keys = page(), *end;
    char row[64];

    cr_assert_not_null(keys);
    end = strstr(keys, "\n.El");
    for (size_t i = 0; i < top_key_count; i++) {
        const char *at;

        if (!top_keys[i].name)
            continue;
        snprintf(row, sizeof row, "\n.It \"%s\"\n", top_keys[i].name);
        at = strstr(keys, row);
        cr_assert(at && at < end, "docs/mqctl.1 lacks %s", row);
    }
}

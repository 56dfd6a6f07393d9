/* control_groups.c - see control_groups.h */
#include "worker/operate/control_groups.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <bsd/stdlib.h>

#include "common/base/safe_text.h"
#include "worker/flow/group_dispatch.h"

#define PAGE 64 /* keys of an answer */

struct key {
    const char *at;
    size_t size;
};

static int key_order(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    size_t size = x->size < y->size ? x->size : y->size;
    int way = memcmp(x->at, y->at, size);

    return way ? way : (x->size > y->size) - (x->size < y->size);
}

/* keys_cut - where each of the copies lies; NULL: no memory */
static struct key *keys_cut(const char *copies, size_t bytes, size_t *n)
{
    struct key *keys = NULL;
    size_t size;

    for (int count = 1; count >= 0; count--) {
        *n = 0;
        for (size_t at = 0; at < bytes; at += sizeof size + size, (*n)++) {
            memcpy(&size, copies + at, sizeof size);
            if (keys)
                keys[*n] = (struct key){copies + at + sizeof size, size};
        }
        if (count)
            keys = calloc(*n + 1, sizeof *keys);
    }
    return keys;
}

/* page_json - the keys after `after`, and whether there are more */
static json_t *page_json(const struct key *keys, size_t n, struct key after)
{
    char text[2 * GROUP_KEY_MAX + 1];
    json_t *all = json_array();
    size_t i = 0;

    while (i < n && key_order(&keys[i], &after) <= 0)
        i++;
    for (; i < n && json_array_size(all) < PAGE; i++)
        json_array_append_new(
            all, json_string(hex_print(keys[i].at, keys[i].size, text)));
    return json_pack("{s:b, s:o, s:b}", "ok", 1, "groups", all, "more", i < n);
}

json_t *control_closing(struct flow *f, char *const *words, size_t count,
                        const char **wrong)
{
    char after[GROUP_KEY_MAX];
    int size = count == 1 ? hex_parse(words[0], after, sizeof after) : 0;
    size_t bytes, n;
    struct key *keys;
    json_t *out = NULL;
    char *copies;

    if (count > 1 || size < 0) {
        *wrong = "closing: give the key of a group in hexadecimal, or nothing";
        return NULL;
    }
    copies = dispatch_closing(f, &bytes);
    keys = keys_cut(copies, bytes, &n);
    if (keys) {
        qsort(keys, n, sizeof *keys, key_order);
        out = page_json(keys, n, (struct key){after, (size_t)size});
    }
    free(keys);
    free(copies);
    return out;
}

/* last_read - the key of the spool, with a minus; 0: there is none */
static int last_read(const char *word, int64_t *last)
{
    const char *trouble = NULL;

    *last = word ? strtonum(word, -INT64_MAX, -1, &trouble) : 0;
    return trouble ? -EINVAL : 0;
}

json_t *control_group(struct flow *f, char *const *words, size_t count,
                      const char **wrong)
{
    bool shut = (count == 2 || count == 3) && strcmp(words[0], "close") == 0;
    bool open = count == 2 && strcmp(words[0], "open") == 0;
    char key[GROUP_KEY_MAX];
    int size = shut || open ? hex_parse(words[1], key, sizeof key) : 0;
    int err = -EINVAL;
    int64_t last = 0;

    if (size > 0 && last_read(count == 3 ? words[2] : NULL, &last) == 0)
        err = shut ? dispatch_shut(f, key, (size_t)size, last)
                   : dispatch_reopen(f, key, (size_t)size);
    if (err == -EINVAL || err == -ENOMEM) {
        *wrong = err == -ENOMEM
                     ? "group: out of memory, nothing has changed; try again"
                     : "group: give close or open, the key of a group in "
                       "hexadecimal, and for close, if some of it is spooled, "
                       "the key of the last one in the spool with a minus";
        return NULL;
    }
    return json_pack("{s:b, s:b}", "ok", 1, "known", err == 0);
}

/* control_running.c - see control_running.h */
#include "worker/operate/control_running.h"

#include <string.h>

#include "common/base/ulid.h"
#include "worker/flow/flow.h"

json_t *control_cancel_running(struct flow *f, char *const *words, size_t count,
                               const char **wrong)
{
    struct ulid id;
    json_t *all;

    *wrong = count == 0 ? "cancel-running: give ids of messages" : NULL;
    for (size_t i = 0; i < count; i++)
        if (ulid_parse(words[i], strlen(words[i]), &id) < 0)
            *wrong = "cancel-running: an id of a message has 26 characters";
    if (*wrong)
        return NULL;
    all = json_array();
    for (size_t i = 0; i < count; i++) {
        char text[ULID_TEXT];

        (void)ulid_parse(words[i], strlen(words[i]), &id);
        json_array_append_new(
            all, json_string(f->ops->cancel(f->handler, ulid_print(id, text))
                                 ? "ordered"
                                 : "not running"));
    }
    return json_pack("{s:b, s:o}", "ok", 1, "results", all);
}

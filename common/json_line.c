/* json_line.c - JSON, an object a line (see json_line.h) */
#include "common/json_line.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/term.h"

/* json_print_line - JSON text. jansson escapes control bytes but DEL; on a terminal
 * everything else that could hide something is escaped, too. */
int json_print_line(const json_t *object, FILE *out)
{
    size_t ascii = term_is_terminal(out) ? JSON_ENSURE_ASCII : 0;
    char *text = json_dumps(object, JSON_COMPACT | ascii);
    if (!text)
        return -ENOMEM;
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, "\x7f");
        fwrite(at, 1, n, out);
        at += n;
        if (*at) {
            fputs("\\u007f", out);
            at++;
        }
    }
    fputc('\n', out);
    free(text);
    return 0;
}

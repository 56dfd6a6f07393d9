/* time_zone.c - see time_zone.h */
#include "common/base/time_zone.h"

#include <ctype.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FOLDER "/usr/share/zoneinfo"

/* Return true for a rule such as "CET-1CEST" (tzset(3)): a name of at least
 * three letters, or any in <>, then an offset. */
static bool is_rule(const char *text)
{
    size_t n = 0;

    if (*text == '<') {
        n = strcspn(text, ">");
        n += text[n] == '>';
    } else {
        while (isalpha((unsigned char)text[n]))
            n++;
    }
    if (n < 3)
        return false;
    n += text[n] == '+' || text[n] == '-';
    return isdigit((unsigned char)text[n]);
}

/* Return true for a name of UTC, which needs no file. */
static bool is_utc(const char *text)
{
    const char *slash = strrchr(text, '/'), *name = slash ? slash + 1 : text;

    return strcmp(name, "UTC") == 0 || strcmp(name, "GMT") == 0;
}

const char *time_zone_unknown(void)
{
    const char *zone = getenv("TZ"), *folder = getenv("TZDIR"), *name;
    char path[PATH_MAX];
    struct stat st;

    if (!zone)
        return NULL;
    name = zone + (*zone == ':');
    if (!*name || is_rule(name) || is_utc(name))
        return NULL;
    snprintf(path, sizeof path, "%s%s%s",
             *name == '/' ? ""
             : folder     ? folder
                          : FOLDER,
             *name == '/' ? "" : "/", name);
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) ? NULL : zone;
}

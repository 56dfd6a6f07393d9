/* json_line.h - JSON, an object a line
 *
 * WHAT   Prints an object on one line that no terminal can be tricked by.
 * WHO    One thread.
 * OWNS   Nothing.
 * FAILS  -ENOMEM.
 */
#ifndef COMMON_TEXT_JSON_LINE_H
#define COMMON_TEXT_JSON_LINE_H

#include <jansson.h>
#include <stdio.h>

int json_print_line(const json_t *object, FILE *out);

#endif

/* field.c - a value in the headers of a message on a broker (see field.h) */
#include "common/amqp/field.h"

#include <string.h>

bool field_named(amqp_bytes_t key, const char *name)
{
    return key.len == strlen(name) && memcmp(key.bytes, name, key.len) == 0;
}

bool field_begins(amqp_bytes_t key, const char *with)
{
    return key.len >= strlen(with) &&
           memcmp(key.bytes, with, strlen(with)) == 0;
}

/* field_number - of whatever width a producer's library chose; false: none, or
 * below 0 */
bool field_number(const amqp_field_value_t *v, uint64_t *out)
{
    int64_t n;

    switch (v->kind) {
    case AMQP_FIELD_KIND_I8:
        n = (int)v->value.i8 < 0 ? -1 : (uint8_t)v->value.i8;
        break;
    case AMQP_FIELD_KIND_U8:
        n = v->value.u8;
        break;
    case AMQP_FIELD_KIND_I16:
        n = v->value.i16;
        break;
    case AMQP_FIELD_KIND_U16:
        n = v->value.u16;
        break;
    case AMQP_FIELD_KIND_I32:
        n = v->value.i32;
        break;
    case AMQP_FIELD_KIND_U32:
        n = v->value.u32;
        break;
    case AMQP_FIELD_KIND_I64:
        n = v->value.i64;
        break;
    case AMQP_FIELD_KIND_U64:
    case AMQP_FIELD_KIND_TIMESTAMP:
        n = v->value.u64 > INT64_MAX ? -1 : (int64_t)v->value.u64;
        break;
    default:
        return false;
    }
    *out = (uint64_t)n;
    return n >= 0;
}

bool field_text(const amqp_field_value_t *v, amqp_bytes_t *out)
{
    if (v->kind != AMQP_FIELD_KIND_UTF8 && v->kind != AMQP_FIELD_KIND_BYTES)
        return false;
    *out = v->value.bytes;
    return true;
}

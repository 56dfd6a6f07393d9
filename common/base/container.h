/* container.h - from a member to the struct that holds it */
#ifndef COMMON_BASE_CONTAINER_H
#define COMMON_BASE_CONTAINER_H

#include <stddef.h>

#define CONTAINER_OF(ptr, type, member) \
    ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#endif

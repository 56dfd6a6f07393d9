/* torture_message.c - see torture_message.h */
#include "tests/crash/torture/torture_message.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAGIC        UINT64_C(0x7457)
#define NUMBER_BITS  48
#define CONTENT      (64u << 10) /* offsets at which content can start */
#define HEAD         12          /* bytes at the start of a body */
#define TINY_IN      16 /* random sizes: one message of so many is tiny */
#define BLOCK        64 /* messages before the groups of a producer change */
#define BLOCK_GROUPS 6
#define LATER_NS     UINT64_C(20000000)
#define LATER_MORE   25 /* factor, to leave time for a cancel */
#define HEADER_ROOM  64 /* room for the longest header */
#define MAGIC_LINE   "MQW/1\n"

static const unsigned priorities[TORTURE_LEVELS] = {0, 1, 7, 32767};

static struct torture_terms terms;
static unsigned char content[CONTENT + TORTURE_MOST];

/* Return a well-mixed hash of x (splitmix64). */
uint64_t torture_hash(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Set the terms and make the bytes that all content is cut from. */
void torture_terms_use(const struct torture_terms *t)
{
    terms = *t;
    for (size_t i = 0; i < sizeof content; i += sizeof(uint64_t)) {
        uint64_t bytes = torture_hash(terms.seed * 3 + i);

        memcpy(content + i, &bytes, sizeof bytes);
    }
}

uint64_t torture_number(unsigned producer, uint64_t n)
{
    return n * TORTURE_PRODUCERS + producer;
}

uint64_t torture_nth(uint64_t number)
{
    return number / TORTURE_PRODUCERS;
}

const char *torture_group(int group)
{
    static const char names[TORTURE_GROUPS][4] = {
        "g0",  "g1",  "g2",  "g3",  "g4",  "g5",  "g6",  "g7",
        "g8",  "g9",  "g10", "g11", "g12", "g13", "g14", "g15",
        "g16", "g17", "g18", "g19", "g20", "g21", "g22", "g23",
    };

    return group < 0 ? NULL : names[group];
}

/* Return the fate for a hash; most messages are done at once. */
static enum torture_fate fate_of(uint64_t h)
{
    static const enum torture_fate fates[8] = {
        TORTURE_RETRY, TORTURE_RETRY,   TORTURE_RETRY, TORTURE_RETRY,
        TORTURE_DEAD,  TORTURE_DISCARD, TORTURE_LATER, TORTURE_LATER,
    };

    if (terms.only)
        return (enum torture_fate)(terms.only - 1);
    return h % TORTURE_MILLION < terms.failing ? fates[h >> 32 & 7]
                                               : TORTURE_DONE;
}

/* Return the group. Both producers send to each group, and to few groups at a
 * time, so that some messages wait behind a failed head. */
static int group_of(uint64_t number, uint64_t h)
{
    uint64_t block = torture_nth(number) / BLOCK;

    return (int)(torture_hash(block * BLOCK_GROUPS + h % BLOCK_GROUPS) %
                 TORTURE_GROUPS);
}

/* Return the number of decimal digits. */
static size_t digit_count(size_t n)
{
    size_t count = 1;

    while (n >= 10) {
        n /= 10;
        count++;
    }
    return count;
}

/* Return the size of the header that head_print writes. */
static size_t head_size(const struct torture_plan *p)
{
    size_t n = strlen(MAGIC_LINE) + 1;

    if (p->group >= 0)
        n += strlen("group: \n") + strlen(torture_group(p->group));
    if (p->fate == TORTURE_LATER)
        n += strlen("not-before: 1732126121000000000\n");
    if (p->sized)
        n += strlen("size: \n") + digit_count(p->body);
    if (p->unique)
        n += strlen("unique: \n") + digit_count(p->number);
    return n;
}

/* Set the sizes of header and body, whose sum is fixed or one byte less. */
static void sizes_set(struct torture_plan *p, bool headed, uint64_t h)
{
    size_t room = headed ? terms.most - HEADER_ROOM : terms.most;

    if (terms.fixed) {
        p->body = terms.fixed;
        p->body -= headed ? head_size(p) : 0;
    } else {
        p->body = TORTURE_TINY + h % (room - TORTURE_TINY + 1);
    }
    p->head = headed ? head_size(p) : 0;
}

void torture_plan(uint64_t number, struct torture_plan *p)
{
    uint64_t h = torture_hash(terms.seed ^ number);
    uint64_t more = torture_hash(h);
    bool headed, grouped;

    p->number = number;
    p->fate = fate_of(h);
    p->producer = (unsigned)(number % TORTURE_PRODUCERS);
    p->level = more >> 8 & 3;
    p->priority = priorities[p->level];
    /* One message in eight has a group, another one a header without a
     * group. */
    grouped = p->fate == TORTURE_LATER ? terms.most >= 2 * HEADER_ROOM
                                       : (more & 7) == 0;
    if (terms.plain || terms.grouped)
        grouped = terms.grouped;
    p->group = grouped ? group_of(number, more >> 16) : -1;
    headed = grouped || ((more & 7) == 1 && !terms.plain) ||
             p->fate == TORTURE_LATER;
    p->sized = headed && more >> 12 & 1 && p->fate != TORTURE_LATER &&
               !terms.plain; /* all messages have the same size */
    /* A message that dies is never unique: with its key, a replay would need
     * room for a header. */
    p->unique = headed && !p->sized && !terms.plain && more >> 13 & 1 &&
                p->fate != TORTURE_LATER && p->fate != TORTURE_DEAD;
    sizes_set(p, headed, more >> 24);
}

/* Return how long the message is delayed. */
static uint64_t later_ns(uint64_t number)
{
    return terms.steered && number & 1 << 3 ? LATER_NS * LATER_MORE : LATER_NS;
}

/* Write the header of a message. */
static void head_print(const struct torture_plan *p, uint64_t now_ns,
                       unsigned char *message)
{
    char text[HEADER_ROOM * 2];
    int n = snprintf(text, sizeof text, MAGIC_LINE);

    if (p->group >= 0)
        n += snprintf(text + n, sizeof text - (size_t)n, "group: %s\n",
                      torture_group(p->group));
    if (p->fate == TORTURE_LATER)
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "not-before: %019" PRIu64 "\n",
                      now_ns + later_ns(p->number));
    if (p->sized)
        n +=
            snprintf(text + n, sizeof text - (size_t)n, "size: %zu\n", p->body);
    if (p->unique)
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "unique: %" PRIu64 "\n", p->number);
    text[n++] = '\n';
    memcpy(message, text, (size_t)n);
}

/* Return the bytes that follow the head of a body. */
static const unsigned char *content_of(uint64_t number)
{
    return content + torture_hash(number) % CONTENT;
}

/* Return how many bytes at the end are 0xFF. Recovery may take them for the
 * fill of an empty slot and cut them off; the rest still includes the
 * number. */
static size_t ones_of(const struct torture_plan *p)
{
    size_t ones = p->number % 5 == 0 ? 1 + p->number / 5 % 4 : 0;

    return ones < p->body - TORTURE_TINY ? ones : p->body - TORTURE_TINY;
}

size_t torture_make(const struct torture_plan *p, uint64_t now_ns,
                    unsigned char *message)
{
    unsigned char *body = message + p->head;
    uint64_t word = MAGIC << NUMBER_BITS | p->number;
    uint32_t size = (uint32_t)p->body;
    size_t ones = ones_of(p);

    if (p->head)
        head_print(p, now_ns, message);
    memcpy(body, &word, sizeof word);
    memcpy(body + 8, &size, sizeof size);
    memcpy(body + HEAD, content_of(p->number), p->body - HEAD);
    memset(body + p->body - ones, 0xFF, ones);
    return p->head + p->body;
}

int torture_tiny(uint64_t number)
{
    uint64_t h = torture_hash(~number);

    return !terms.fixed && terms.tiny && h % TINY_IN == 0
               ? (int)((h >> 32) % TORTURE_TINY)
               : -1;
}

void torture_tiny_make(size_t size, unsigned char *message)
{
    memset(message, 'a' + (int)size, size);
}

/* Check that all bytes are the letter of this size. */
static enum torture_what tiny_check(const unsigned char *body, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (body[i] != (unsigned char)('a' + size))
            return TORTURE_WRONG;
    return terms.tiny ? TORTURE_WHOLE : TORTURE_WRONG;
}

enum torture_what torture_check(const unsigned char *body, size_t size,
                                struct torture_plan *p)
{
    size_t ones, plain;
    uint64_t word;
    uint32_t whole;

    if (size < TORTURE_TINY)
        return tiny_check(body, size);
    memcpy(&word, body, sizeof word);
    memcpy(&whole, body + 8, sizeof whole);
    if (word >> NUMBER_BITS != MAGIC)
        return TORTURE_WRONG;
    torture_plan(word & ((UINT64_C(1) << NUMBER_BITS) - 1), p);
    if (whole != p->body || size > whole)
        return TORTURE_WRONG;
    ones = ones_of(p);
    plain = whole - ones < size ? whole - ones : size;
    if (memcmp(body + HEAD, content_of(p->number), plain - HEAD) != 0)
        return TORTURE_WRONG;
    for (size_t i = plain; i < size; i++)
        if (body[i] != 0xFF)
            return TORTURE_WRONG;
    return size == whole ? TORTURE_WHOLE : TORTURE_CUT;
}

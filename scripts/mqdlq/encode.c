/* encode.c - see encode.h */
#include "scripts/mqdlq/encode.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/problem.h"
#include "common/message/header.h"

#define X_LEAST 7 /* bytes of the shortest x- line, "x-a: b\n" */

/* encoding_open - room for the largest message */
int encoding_open(struct encoding *p)
{
    p->bytes = malloc(p->room);
    return p->bytes ? 0 : -ENOMEM;
}

/* encoding_close - give the buffer back */
void encoding_close(struct encoding *p)
{
    free(p->bytes);
    p->bytes = NULL;
}

/* header_of - the header that the letter came with; all 0 if it had none, or
 * one that is broken, whose bytes are part of the body then */
static struct header header_of(const struct letter *l)
{
    struct header h;

    if (l->m.header_size == 0 ||
        header_parse(l->m.data, l->m.size, &h, (char[HEADER_WHY]){0}) != 0)
        h = (struct header){0};
    return h;
}

/* header_make - the header to send the letter with, to the buffer; its bytes or
 * -errno. not-before is left out: that time has been waited for. */
static int header_make(struct encoding *p, const struct letter *l,
                       const struct header *old, uint64_t now_ns)
{
    struct header_x x[HEADER_MAX / X_LEAST];
    struct header h = *old;
    size_t cursor = 0, n = 0;

    h.fields &= HEADER_EXPIRES | HEADER_TIMEOUT | HEADER_MAX_ATTEMPTS |
                HEADER_BACKOFF | HEADER_UNIQUE | HEADER_UNIQUE_FOR;
    h.fields |= HEADER_ID | HEADER_SENT | HEADER_SIZE;
    if (p->reset_expiry)
        h.fields &= ~(unsigned)HEADER_EXPIRES;
    if (!(old->fields & HEADER_SENT))
        h.sent_ns = now_ns;
    h.id = l->m.id;
    h.size = l->body_size;
    if (l->m.group) {
        h.fields |= HEADER_GROUP;
        h.group = (struct header_text){l->m.group, l->m.group_size};
    }
    if (!p->elsewhere) {
        h.fields |= HEADER_LETTER | HEADER_LETTER_TOKEN;
        h.letter = (uint64_t)l->m.row;
        h.letter_token = p->mark.token;
    }
    while (old->bytes > 0 &&
           header_next_x(l->m.data, old, &cursor, &x[n].name, &x[n].value))
        n++;
    return header_write(p->bytes, p->room, &h, x, n);
}

/* pack_raw - the bytes as they were received */
static int pack_raw(struct encoding *p, const struct letter *l,
                    const struct header *old, char why[ENCODING_WHY])
{
    if (old->fields & HEADER_LETTER_TOKEN) {
        snprintf(why, ENCODING_WHY,
                 "it came with a letter-token in its header, by which a worker "
                 "could take it for a repeat; it needs a new header, and a "
                 "queue with room for one");
        return -EBADMSG;
    }
    if (old->fields & HEADER_UNIQUE && !p->elsewhere) {
        snprintf(why, ENCODING_WHY,
                 "it came with a unique key in its header, by which the worker "
                 "could take it for a duplicate of itself; it needs a new "
                 "header, and a queue with room for one");
        return -EBADMSG;
    }
    if (l->m.size > p->room) {
        snprintf(why, ENCODING_WHY, "%zu bytes, and the queue takes %zu",
                 l->m.size, p->room);
        return -EMSGSIZE;
    }
    if (p->reset_expiry && (old->fields & HEADER_EXPIRES)) {
        snprintf(why, ENCODING_WHY,
                 "its expiry cannot be reset: behind a new header it would be "
                 "larger than the %zu bytes that the queue takes",
                 p->room);
        return -EMSGSIZE;
    }
    p->kind = ENCODING_RAW;
    p->size = l->m.size;
    if (p->size > 0)
        memcpy(p->bytes, l->m.data, p->size);
    return 0;
}

/* mark_make - a dead letter gets a new token; one that is on its way keeps its
 * token, by which the worker recognizes the second copy */
static int mark_make(struct encoding *p, const struct letter *l,
                     uint64_t now_ns)
{
    p->mark = (struct letter_mark){
        .row = l->m.row,
        .died_ns = l->m.died_ns,
        .marked_ns = now_ns,
        .again = l->m.state == STORE_REPLAYED,
    };
    if (!p->mark.again || !l->replay.known)
        return store_token_make(p->store, &p->mark.token);
    p->mark.token = l->replay.token;
    return 0;
}

/* encoding_pack - the message for a letter */
int encoding_pack(struct encoding *p, const struct letter *l, uint64_t now_ns,
                  char why[ENCODING_WHY])
{
    struct header old = header_of(l);
    char time[TIME_TEXT];
    int err = mark_make(p, l, now_ns);
    int header;

    if (err) {
        snprintf(why, ENCODING_WHY, "no random number for it: %s",
                 errno_text(-err));
        return err;
    }
    p->priority = l->m.priority;
    p->body_size = l->body_size;
    if ((old.fields & HEADER_EXPIRES) && old.expires_ns <= now_ns &&
        !p->reset_expiry) {
        snprintf(why, ENCODING_WHY,
                 "it expired %s; --reset-expiry sends it all the same",
                 time_print(old.expires_ns, time));
        return -EKEYEXPIRED;
    }
    header = p->raw ? -EMSGSIZE : header_make(p, l, &old, now_ns);
    if (header < 0 || l->body_size > p->room - (size_t)header)
        return pack_raw(p, l, &old, why);
    p->kind = p->elsewhere ? ENCODING_UNTRACKED : ENCODING_TRACKED;
    p->size = (size_t)header + l->body_size;
    if (l->body_size > 0)
        memcpy(p->bytes + header, l->body, l->body_size);
    return 0;
}

/* slot.c - the place of one message in the custody file (see slot.h) */
#include "common/custody/slot.h"

#include <string.h>

#include "common/base/fault_point.h"
#include "common/message/header.h"

#define PRIORITY_MAX 32767 /* MQ_PRIO_MAX - 1 of Linux */
#define PAGE         4096u /* the smallest; larger pages get more stores */

/* The bits that slot_run keeps: crashes, and all flags but SLOT_BESIDE. */
#define WORD_KEPT UINT64_C(0xffff7b00)
_Static_assert((WORD_KEPT >> 8 & SLOT_BESIDE) == 0, "slot_run clears it");

/* Store the word, as slot.h describes it, in one store. When the word is in the
 * page, every earlier store of the thread is there as well. */
static void word_set(struct slot *slot, struct slot_word w)
{
    uint64_t word =
        (uint64_t)(w.state & 0xff) | (uint64_t)(w.flags & 0x7f) << 8 |
        (uint64_t)(w.crashes & 0xffff) << 16 | (uint64_t)w.attempt << 32;

    atomic_store_explicit(&slot->word, word, memory_order_release);
}

struct slot_word slot_word(const struct slot *slot)
{
    uint64_t w = atomic_load_explicit(&slot->word, memory_order_acquire);

    return (struct slot_word){
        .state = (enum slot_state)(w & 0xff),
        .flags = (unsigned)(w >> 8 & 0x7f),
        .crashes = (unsigned)(w >> 16 & 0xffff),
        .attempt = (uint32_t)(w >> 32),
    };
}

bool slot_free(const struct slot *slot)
{
    return atomic_load_explicit(&slot->word, memory_order_acquire) == 0;
}

/* Add a word to a sum. Each step is a bijection of the sum, so a single changed
 * word always changes the result (the multiplier is that of splitmix64). */
static inline uint64_t sum_step(uint64_t sum, uint64_t word)
{
    sum = (sum ^ word) * UINT64_C(0xbf58476d1ce4e5b9);
    return sum ^ sum >> 31;
}

/* Return the sum of the fields that do not change while a slot is HELD or
 * RUNNING. */
static inline uint64_t sum_over(const struct slot *slot, uint32_t length,
                                int64_t row, uint32_t failures)
{
    uint64_t sum = sum_step(0, slot->seq);

    sum = sum_step(sum, (uint64_t)length << 32 | slot->priority);
    sum = sum_step(sum, (uint64_t)row);
    return sum_step(sum, failures);
}

/* Return the sum that a slot should have if it were a run of `row`. */
static inline uint64_t sum_of(const struct slot *slot, int64_t row)
{
    return sum_over(slot,
                    atomic_load_explicit(&slot->length, memory_order_relaxed),
                    row, slot->failures);
}

/* Store the sum, after the fields that it covers. */
static void sum_set(struct slot *slot)
{
    slot->sum = sum_of(slot, slot->row);
}

void slot_fill_init(struct slot_fill *fill, uint64_t seed)
{
    /* RFC 3629, section 1: these octet values never appear in UTF-8. */
    static const unsigned char never[] = {0xC0, 0xC1, 0xF5, 0xF6, 0xF7,
                                          0xF8, 0xF9, 0xFA, 0xFB, 0xFC,
                                          0xFD, 0xFE, 0xFF};
    uint64_t x = seed ? seed : 1;

    for (size_t i = 0; i < SLOT_FILL; i++) { /* xorshift64* */
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        fill->bytes[i] =
            never[(x * UINT64_C(2685821657736338717) >> 33) % sizeof never];
    }
}

/* Fill more than SLOT_FILL bytes. Not inline, to keep slot_arm short. */
__attribute__((noinline)) static void
fill_long(unsigned char *at, const struct slot_fill *fill, size_t size)
{
    for (; size > SLOT_FILL; size -= SLOT_FILL, at += SLOT_FILL)
        memmove(at, fill->bytes, SLOT_FILL);
    memmove(at, fill->bytes, size);
}

/* Fill the first `size` bytes of a body. A body has a multiple of FILL_LEAST
 * bytes in the file (SLOT_ALIGN in custody.c), so after a short message
 * FILL_LEAST bytes are copied without a call. memmove is used because gcc turns
 * a memcpy of variable size into "rep movsq", whose start takes longer than a
 * short copy. */
#define FILL_LEAST 64
static inline void fill_body(struct slot *slot, const struct slot_fill *fill,
                             size_t size)
{
    if (size <= FILL_LEAST)
        memcpy(slot->body, fill->bytes, FILL_LEAST);
    else if (size <= SLOT_FILL)
        memmove(slot->body, fill->bytes, size);
    else
        fill_long(slot->body, fill, size);
}

/* The kernel writes the priority before the body. So if the priority is set,
 * the message has left the queue, and it ends where the fill begins.
 * Crash before the last store: the slot is FREE, and no receive was begun.
 * Crash after the last store: the slot is RECEIVING, and slot_resolve decides
 * by the priority. */
void slot_arm(struct slot *slot, const struct slot_fill *fill, uint64_t seq)
{
    fill_body(slot, fill, slot->dirty);
    slot->priority = SLOT_UNSET;
    atomic_store_explicit(&slot->length, SLOT_UNSET, memory_order_relaxed);
    slot->dirty = 0;
    slot->seq = seq;
    slot->received_ns = 0;
    slot->row = 0;
    slot->failures = 0;
    slot->id = (struct ulid){{0}};
    slot->handler_mark = 0;
    atomic_store_explicit(&slot->handler_pgid, 0, memory_order_relaxed);
    FAULT_POINT("slot_arm_before_word");
    word_set(slot, (struct slot_word){.state = SLOT_RECEIVING});
    FAULT_POINT("slot_arm_after_word");
}

/* Writeback write-protects a page (page_mkclean in mm/rmap.c), so the next
 * store to that page takes a fault, even if the page is locked in memory. If a
 * SIGKILL comes during a fault in the kernel's copy, the copy fails and the
 * message is lost: on ext4 with msync(2) in a loop, 12,000 kills lost 10
 * messages, and none with these stores.
 * The loop reads nothing and skips the pages that slot_arm has just filled;
 * otherwise a 4-KiB message costs 10 ns more, because the processor waits for
 * the fill. */
__attribute__((noinline)) void slot_warm(struct slot *slot,
                                         const struct slot_fill *fill,
                                         size_t from, size_t room)
{
    volatile unsigned char *body = slot->body;

    for (size_t at = from; at < room; at += PAGE)
        body[at] = fill->bytes[at % SLOT_FILL];
    if (from < room)
        body[room - 1] = fill->bytes[(room - 1) % SLOT_FILL];
}

void slot_disarm(struct slot *slot)
{
    FAULT_POINT("slot_disarm_before_word");
    word_set(slot, (struct slot_word){.state = SLOT_FREE});
}

/* Crash before the length is stored: slot_resolve infers it. Crash between
 * length and word: RECEIVING with a length, and the message is complete. Crash
 * after the word: HELD. */
void slot_taken(struct slot *slot, uint32_t length, uint64_t received_ns)
{
    FAULT_POINT("slot_taken_before_length");
    slot->dirty = length;
    slot->received_ns = received_ns;
    atomic_store_explicit(&slot->length, length, memory_order_release);
    slot->sum = sum_over(slot, length, 0, 0); /* row and failures are 0 */
    FAULT_POINT("slot_taken_before_word");
    word_set(slot, (struct slot_word){.state = SLOT_HELD});
    FAULT_POINT("slot_taken_after_word");
}

/* Crash before the last store: the slot is FREE, and the row waits in the store
 * as before. Crash after it: the slot is HELD with its row; recovery runs it if
 * the row is still in the store, else frees the slot. */
void slot_hold(struct slot *slot, const struct slot_meta *meta)
{
    slot->priority = meta->priority;
    if (slot->dirty < meta->length)
        slot->dirty = meta->length;
    slot->seq = meta->seq;
    slot->received_ns = meta->received_ns;
    slot->row = meta->row;
    slot->failures = meta->failures;
    slot->id = meta->id;
    slot->handler_mark = 0;
    atomic_store_explicit(&slot->handler_pgid, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->length, meta->length, memory_order_release);
    sum_set(slot);
    FAULT_POINT("slot_hold_before_word");
    word_set(slot, (struct slot_word){.state = SLOT_HELD,
                                      .flags = meta->flags,
                                      .crashes = meta->crashes});
    FAULT_POINT("slot_hold_after_word");
}

/* Store the row, then the sum that covers it.
 * Crash between the two: the sum is still right for row 0, so slot_resolve
 * removes the row, and the next start links the message again. Crash after the
 * sum: the message is linked. */
void slot_link(struct slot *slot, int64_t row)
{
    FAULT_POINT("slot_link_before_row");
    slot->row = row;
    atomic_signal_fence(memory_order_seq_cst);
    FAULT_POINT("slot_link_after_row");
    sum_set(slot);
}

/* Crash before the sum is stored: the slot is marked and still a run of the
 * row, and the next start unlinks it again. Crash after it: the sum is right
 * for row 0, so slot_resolve removes the row. A slot with a wrong sum is left
 * for slot_damage. */
void slot_unlink(struct slot *slot)
{
    struct slot_word w = slot_word(slot);

    if ((w.state != SLOT_HELD && w.state != SLOT_RUNNING) || slot->row <= 0 ||
        slot->sum != sum_of(slot, slot->row))
        return;
    slot_mark(slot, SLOT_REDELIVERED);
    slot->sum = sum_of(slot, 0);
    atomic_signal_fence(memory_order_seq_cst);
    slot->row = 0;
}

/* The word has the number of the delivery, and is stored before the handler can
 * start. Crash after it: RUNNING, so the crash is counted and the next run is
 * marked as redelivered, even if the handler had not started. */
void slot_run(struct slot *slot, uint64_t started_ns)
{
    uint64_t w = atomic_load_explicit(&slot->word, memory_order_relaxed);

    slot->started_ns = started_ns;
    slot->handler_mark = 0;
    atomic_store_explicit(&slot->handler_pgid, 0, memory_order_relaxed);
    w = (w & WORD_KEPT) | SLOT_RUNNING | (uint64_t)(slot->failures + 1) << 32;
    FAULT_POINT("slot_run_before_word");
    atomic_store_explicit(&slot->word, w, memory_order_release);
    FAULT_POINT("slot_run_after_word");
}

void slot_unrun(struct slot *slot, bool may_have_run)
{
    struct slot_word w = slot_word(slot);

    w.state = SLOT_HELD;
    if (may_have_run)
        w.flags |= SLOT_REDELIVERED;
    FAULT_POINT("slot_unrun_before_word");
    word_set(slot, w);
    FAULT_POINT("slot_unrun_after_word");
}

/* Crash before the store: the next recovery finds the same reason and marks the
 * slot. Recovery sets SLOT_BESIDE in all RUNNING slots before slot_crashed
 * changes the state of the first. If recovery is killed before the first
 * slot_crashed, as many slots are RUNNING as before, and the next recovery
 * decides the same. If it is killed later, all slots are marked already. */
void slot_mark(struct slot *slot, unsigned flag)
{
    struct slot_word w = slot_word(slot);

    w.flags |= flag;
    word_set(slot, w);
}

/* Count the crash and hold the message, in one store. If recovery is killed
 * before the store, the next recovery counts this crash. If it is killed after
 * the store, the slot is HELD, and the crash is not counted again. */
void slot_crashed(struct slot *slot)
{
    struct slot_word w = slot_word(slot);

    w.state = SLOT_HELD;
    w.flags |= SLOT_REDELIVERED;
    if (w.crashes < UINT16_MAX)
        w.crashes++;
    FAULT_POINT("slot_crashed_before_word");
    word_set(slot, w);
    FAULT_POINT("slot_crashed_after_word");
}

/* Crash before the store: the slot reads RUNNING, the message runs again.
 * Crash after it: the slot reads FREE, the message is finished.
 * So a crash here can repeat a message and never lose one. */
void slot_retire(struct slot *slot)
{
    FAULT_POINT("slot_retire_before_word");
    word_set(slot, (struct slot_word){.state = SLOT_FREE});
    FAULT_POINT("slot_retire_after_word");
}

/* Crash of the recovery between any two steps: the slot is still RECEIVING, and
 * the next recovery comes to the same result, because SLOT_LENGTH_INFERRED is
 * stored before the length. */
void slot_resolve(struct slot *slot, const struct slot_fill *fill, size_t room)
{
    struct slot_word w = slot_word(slot);
    size_t n;

    if (w.state != SLOT_RECEIVING) {
        if (slot->sum != sum_of(slot, slot->row))
            slot->row = 0; /* else slot_damage would have found the slot */
        return;
    }
    if (slot->priority == SLOT_UNSET) {
        slot_disarm(slot);
        return;
    }
    if (atomic_load(&slot->length) == SLOT_UNSET) {
        w.flags |= SLOT_LENGTH_INFERRED;
        word_set(slot, w);
        FAULT_POINT("slot_resolve_before_length");
        /* A message ends where its header says, else where the fill begins. */
        n = header_message_size(slot->body, room);
        if (n == 0)
            for (n = room; n > 0; n--)
                if (slot->body[n - 1] != fill->bytes[(n - 1) % SLOT_FILL])
                    break;
        atomic_store(&slot->length, (uint32_t)n);
    }
    slot->dirty = (uint32_t)room;
    slot->id = (struct ulid){{0}}; /* no id was used yet */
    sum_set(slot);
    w.state = SLOT_HELD;
    FAULT_POINT("slot_resolve_before_word");
    word_set(slot, w);
    FAULT_POINT("slot_resolve_after_word");
}

void slot_scrub(struct slot *slot, const struct slot_fill *fill, size_t room)
{
    fill_body(slot, fill, room);
    slot->dirty = 0;
}

const char *slot_damage(const struct slot *slot, size_t room)
{
    struct slot_word w = slot_word(slot);
    uint32_t length = atomic_load_explicit(&slot->length, memory_order_relaxed);

    if (w.state > SLOT_RUNNING || (w.state == SLOT_FREE && !slot_free(slot)))
        return "state";
    if (w.state == SLOT_FREE)
        return NULL;
    if (w.state == SLOT_RECEIVING && slot->priority == SLOT_UNSET)
        return NULL;
    if (w.flags &
        ~(unsigned)(SLOT_REDELIVERED | SLOT_LENGTH_INFERRED | SLOT_BESIDE))
        return "flags";
    if (slot->priority > PRIORITY_MAX)
        return "priority";
    if (length > room && !(w.state == SLOT_RECEIVING && length == SLOT_UNSET))
        return "length";
    if (slot->row < 0)
        return "row";
    if (slot->seq >= SLOT_SEQ_MAX || (slot->seq == 0 && slot->row == 0))
        return "seq";
    if (w.state != SLOT_RECEIVING && slot->sum != sum_of(slot, slot->row) &&
        slot->sum != sum_of(slot, 0))
        return "sum";
    return NULL;
}

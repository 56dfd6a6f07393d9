/* replay.c - letters that come out of the queue again (see replay.h)
 *
 *   the letter is            its message comes        another copy comes
 *   marked, in no slot       it is linked             (it is linked: the first)
 *   in a slot: runs, held    -                        dropped
 *   waiting for its retry    -                        dropped
 *   dead again, or gone      -                        dropped
 *
 * Dropping loses nothing: what the copy is a copy of is in its slot, in the
 * store, or at its end. Any other message that says that it is a letter,
 * without a token of ours, runs as the message that it is. It is marked, as
 * there may be a letter with the same id that ran; and it touches no letter.
 */
#include "worker/source/mq/replay.h"

#include <errno.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/store/store.h"
#include "worker/source/mq/due_rows.h"
#include "worker/source/source.h"

/* find - what the store says */
static int find(struct store *store, const struct header *h,
                enum store_replay *is)
{
    const unsigned needed = HEADER_ID | HEADER_LETTER_TOKEN;

    *is = REPLAY_NONE;
    if ((h->fields & needed) != needed)
        return 0;
    return store_replay_find(store, (int64_t)h->letter, &h->id,
                             &h->letter_token, is);
}

/* take - the letter is this message from here on, unless another copy of it is
 * in a slot
 * The claim decides. The store is asked once more after it: the first copy may
 * have been stored as a retry since, and have given up its claim. As long as we
 * have it, nobody else takes the row or moves it. Crash before the row is in
 * the slot: it is linked by the next start.
 */
static int take(struct store *store, struct due_rows *due_rows, struct lent *l,
                const struct header *h, enum store_replay *is)
{
    int64_t row = (int64_t)h->letter;
    int err = due_rows_claim(due_rows, row);

    if (err == -EALREADY) { /* a slot has it, or it is a retry by now */
        *is = REPLAY_OVER;
        return 0;
    }
    if (err == -EXDEV) { /* dead before it was sent, it is half moved */
        *is = REPLAY_NONE;
        return 0;
    }
    if (err)
        return err;
    err = find(store, h, is);
    if (!err && *is == REPLAY_OPEN)
        lent_link(l, row);
    else
        due_rows_release(due_rows, row);
    return err;
}

/* mark - it may be a repeat of what it says; but one that has expired does not
 * run, and the mark would let it */
static void mark(struct lent *l, const struct header *h)
{
    char id[ULID_TEXT];

    if (l->m.flags & MESSAGE_REDELIVERED ||
        (h->fields & HEADER_EXPIRES && h->expires_ns <= clock_wall_ns()))
        return;
    log_warn("letter_unknown",
             F_STR("msg", ulid_print(*message_name(&l->m), id)),
             F_UINT("letter", h->letter),
             F_STR("next", "it was not sent by a replay of this store: it runs "
                           "as any message, marked as redelivered, and the "
                           "letter is kept"));
    lent_mark(l);
}

/* replay_link - a slot that has a row when its message is sorted is linked
 * already: messages loaded from the store are not sorted again */
int replay_link(struct store *store, struct due_rows *due_rows, struct lent *l,
                const struct header *h)
{
    enum store_replay is;
    int err;

    if (!l->slot->row) {
        err = find(store, h, &is);
        if (!err && is == REPLAY_OPEN)
            err = take(store, due_rows, l, h, &is);
        if (err)
            return err;
        if (is == REPLAY_OVER)
            return LINK_REPEAT;
        if (is == REPLAY_NONE)
            mark(l, h);
    }
    if (!l->slot->row)
        return LINK_NONE;
    l->m.flags |= MESSAGE_FRONT;
    return LINK_LETTER;
}

# worker/loop/peeker.c
# The loop tries a work item first, and is out of peek mode after it.
/^static void queue_readable(/,/^}/{
/    mode_shift(p, PEEK_EPOLL, PEEK_OFF);/d
s/    (void)p->setup.ready(p->setup.flow);/&\n    mode_shift(p, PEEK_EPOLL, PEEK_OFF);/
}

# worker/loop/peeker.c
# The loop leaves peek mode only after it has tried a work item.
/^static void queue_readable(/,/^}/{
/    mode_shift(p, PEEK_EPOLL, PEEK_OFF);/d
s/    (void)p->setup.ready(p->setup.flow);/&\n    mode_shift(p, PEEK_EPOLL, PEEK_OFF);/
}

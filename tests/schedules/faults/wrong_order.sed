# worker/loop/peeker.c
# The loop tries a work item first, and is out of peek mode after it.
/^static void readable(/,/^}/{
/    shift(p, PEEK_EPOLL, PEEK_OFF);/d
s/    p->setup.ready(p->setup.arg);/&\n    shift(p, PEEK_EPOLL, PEEK_OFF);/
}

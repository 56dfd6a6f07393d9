# worker/flow/group_dispatch.c
# A retry that is due while its group is leased still is taken for another one.
s/if (d->message->failures > 0 && groups_leased(g, key, size))/if (0)/

# worker/groups/groups.c
# A group that is leased is leased to another one as well.
s/} else if (group->state == GROUP_IDLE) {/} else if (group->state <= GROUP_RUNNING) {/

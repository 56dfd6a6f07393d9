# worker/groups/groups.c
# A leased group is leased to another work item as well.
s/} else if (group->state == GROUP_IDLE) {/} else if (group->state <= GROUP_RUNNING) {/

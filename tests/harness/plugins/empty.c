/* empty.c - a plugin without a handler */
#include "worker/mqworker.h"

# mqworker - GNU make, out of tree. Targets: all demo check check-asan
# check-tsan lint bench install clean. Variables: BUILD, CC, CFLAGS, SANITIZE.
BUILD    ?= build
PREFIX   ?= /usr/local
CC       ?= cc
PKGS     := libbsd sqlite3 jansson
CFLAGS   ?= -O2 -g
WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wvla -Wstrict-prototypes \
            -Wmissing-prototypes -Wpointer-arith -Wwrite-strings
VERSION  := 0.1.0

ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -DMQW_VERSION='"$(VERSION)"' $(WARNINGS) \
             -I. -pthread -fPIC -MMD -MP $(CFLAGS) $(SANITIZE) $(PKG_CFLAGS)
ALL_LDFLAGS = -pthread $(CFLAGS) $(SANITIZE) $(LDFLAGS)
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
PKG_LIBS   := $(shell pkg-config --libs $(PKGS) 2>/dev/null) -lrt

PROGRAMS := mqworker mqsend mqdlq
BIN      := $(PROGRAMS:%=$(BUILD)/bin/%)
obj       = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
COMMON   := $(call obj,$(wildcard common/*.c))
WORKER   := $(call obj,$(filter-out worker/main.c,$(wildcard worker/*.c)))
ENGINE   := $(BUILD)/lib/libmqworker.a
LIB      := $(BUILD)/lib/libcommon.a

UNIT     := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/unit/test_*.c))
E2E      := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/e2e/test_*.c))
CRASH    := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/crash/test_*.c))
HARNESS  := $(call obj,$(wildcard tests/harness/*.c))
BENCH    := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/bench/bench_*.c))

.PHONY: all check check-unit check-e2e check-crash check-asan check-tsan \
        lint format bench demo clean
all: $(BIN)

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -c -o $@ $<

$(LIB): $(COMMON)
	@mkdir -p $(@D)
	@rm -f $@
	$(AR) rcs $@ $^

$(ENGINE): $(WORKER) $(COMMON)
	@mkdir -p $(@D)
	@rm -f $@
	$(AR) rcs $@ $^

$(BUILD)/bin/mqworker: $(call obj,worker/main.c) $(ENGINE)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)

# A program in scripts/ is NAME.c and whatever NAME_*.c there is.
define program
$(BUILD)/bin/$(1): $(call obj,$(wildcard scripts/$(1).c scripts/$(1)_*.c)) $(LIB)
	@mkdir -p $$(@D)
	$$(CC) $$(ALL_LDFLAGS) -o $$@ $$^ $$(PKG_LIBS)
endef
$(foreach p,$(filter-out mqworker,$(PROGRAMS)),$(eval $(call program,$(p))))

$(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(HARNESS) $(ENGINE)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS) -lcriterion

$(BUILD)/tests/bench/%: $(BUILD)/obj/tests/bench/%.o $(ENGINE)
	@mkdir -p $(@D)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)

run_tests = @set -e; for t in $(1); do echo "== $$t"; \
            MQW_BIN=$(abspath $(or $(PROGRAMS_UNDER_TEST),$(BUILD))/bin) $$t $(TESTFLAGS); done

check: check-unit check-e2e check-crash
check-unit: $(UNIT)
	$(call run_tests,$(UNIT))
check-e2e: $(BIN) $(E2E)
	$(call run_tests,$(E2E))
check-crash: $(BIN) $(CRASH)
	$(call run_tests,$(CRASH))

check-asan:
	$(MAKE) BUILD=$(BUILD)/asan CFLAGS="-O1 -g -fno-omit-frame-pointer" \
	    SANITIZE="-fsanitize=address,undefined -fno-sanitize-recover=all" check
# Criterion cannot start under the thread sanitizer: the programs are built
# with it, the tests that drive them without.
check-tsan: $(E2E) $(CRASH)
	$(MAKE) BUILD=$(BUILD)/tsan CFLAGS="-O1 -g" SANITIZE=-fsanitize=thread all
	$(MAKE) PROGRAMS_UNDER_TEST=$(BUILD)/tsan check-e2e check-crash

bench: $(BENCH) $(BIN)
	@set -e; for b in $(BENCH); do $$b; done

SOURCES := $(wildcard common/*.[ch] worker/*.[ch] scripts/*.[ch] tests/*/*.[ch])
format:
	clang-format -i $(SOURCES)
lint:
	scripts/lint $(SOURCES)

demo: all
	scripts/demo

clean:
	rm -rf $(BUILD)

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)

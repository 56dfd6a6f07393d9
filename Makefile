# mqworker - GNU make, out of tree, no file lists: a new file is found by its
# place and name.
#   make [all]       programs in build/bin, library in build/lib
#   make check       every test; ONLY="wheel queue" runs test_wheel, test_queue
#   make check-unit | check-e2e | check-crash       one kind of test
#   make check-asan  the same under the address and undefined sanitizers
#   make check-tsan  programs and stress tests under the thread sanitizer
#   make lint | format | bench | fuzz | demo | install | uninstall | clean
# Variables: BUILD CC CFLAGS SANITIZE PREFIX DESTDIR ONLY TESTFLAGS, and
# WERROR=-Werror as .ci/run has it.
BUILD    ?= build
CFLAGS   ?= -O2 -g
PREFIX   ?= /usr/local
VERSION  := 0.1.0
SOVERSION := 0
PKGS     := libbsd sqlite3 jansson
WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wvla -Wstrict-prototypes \
            -Wmissing-prototypes -Wpointer-arith -Wwrite-strings -Wconversion

# Of the program, not of the library; where it is missing, systemd is not told.
SYSTEMD := $(shell pkg-config --exists libsystemd 2>/dev/null && echo libsystemd)
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS) 2>/dev/null) \
              $(if $(SYSTEMD),-DHAVE_SYSTEMD $(shell pkg-config --cflags $(SYSTEMD)))
PKG_LIBS   := $(shell pkg-config --libs $(PKGS) 2>/dev/null)
ALL_CFLAGS  = -std=c11 -D_GNU_SOURCE -DMQW_VERSION='"$(VERSION)"' $(WARNINGS) \
              $(WERROR) -I. -idirafter worker -pthread -fPIC $(CFLAGS) $(SANITIZE) $(PKG_CFLAGS)
LINK        = $(CC) -pthread $(CFLAGS) $(SANITIZE) $(LDFLAGS)
LIBS        = $(PKG_LIBS) -lrt -ldl

# ---- what there is ----
obj      = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
test     = $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/$(1).c))
only     = $(if $(ONLY),$(filter $(ONLY:%=$(BUILD)/tests/$(1)_%),$(2)),$(2))

# A program in scripts/ is NAME.c and whatever NAME_*.c there is.
TOOLS   := $(foreach f,$(wildcard scripts/mq*.c),$(if $(findstring _,$(f)),,$(basename $(notdir $(f)))))
BIN     := $(patsubst %,$(BUILD)/bin/%,$(if $(wildcard worker/main.c),mqworker) $(TOOLS))
COMMON  := $(call obj,$(wildcard common/*.c))
PROGRAM := worker/main.c worker/notify.c
WORKER  := $(call obj,$(filter-out $(PROGRAM),$(wildcard worker/*.c)))
HARNESS := $(call obj,$(wildcard tests/harness/*.c))
HEADERS := $(wildcard worker/mqworker.h)

# What tests and tools link with; the library that is installed shows mqw_ only.
LIB     := $(BUILD)/obj/libcommon.a
ENGINE  := $(BUILD)/obj/libengine.a
PUBLIC  := $(if $(HEADERS),$(BUILD)/lib/libmqworker.a $(BUILD)/lib/libmqworker.so.$(SOVERSION))

UNIT    := $(call only,unit/test,$(call test,unit/test_*))
STRESS  := $(call only,unit/stress,$(call test,unit/stress_*))
E2E     := $(call only,e2e/test,$(call test,e2e/test_*))
CRASH   := $(call only,crash/test,$(call test,crash/test_*))
BENCH   := $(BUILD)/tests/bench/bench
TORTURE := $(BUILD)/tests/crash/torture
FUZZ    := $(call only,fuzz/fuzz,$(call test,fuzz/fuzz_*))
# Handlers for end-to-end tests: programs, and plugins (.so); test_bench runs
# the benchmark.
HANDLERS := $(patsubst tests/harness/%.c,$(BUILD)/tests/%,$(wildcard tests/harness/handlers/*.c)) \
            $(patsubst tests/harness/%.c,$(BUILD)/tests/%.so,$(wildcard tests/harness/plugins/*.c)) \
            $(if $(filter %/test_bench,$(E2E)),$(BENCH))
MAN     := $(wildcard docs/*.[1-8])
SOURCES := $(wildcard common/*.[ch] worker/*.[ch] scripts/*.[ch] tests/*/*.[ch] tests/harness/*/*.[ch])

.PHONY: all tests check check-unit check-e2e check-crash check-man check-asan \
        check-programs check-tsan check-tsan-stress run-fuzz lint format bench torture fuzz demo install uninstall clean show-cflags
.SECONDARY:
.SECONDEXPANSION:
.DELETE_ON_ERROR:
all: $(BIN) $(PUBLIC)
tests: all $(UNIT) $(STRESS) $(E2E) $(CRASH) $(BENCH) $(HANDLERS)

# ---- building ----
$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# Archives are made anew: a file that is gone leaves no member behind.
$(LIB): $(COMMON)
$(ENGINE): $(WORKER) $(COMMON)
$(LIB) $(ENGINE):
	@mkdir -p $(@D)
	@rm -f $@
	$(AR) rcs $@ $^

# All objects, not the archive: a plugin may call any mqw_ function.
$(BUILD)/bin/mqworker: LIBS += $(if $(SYSTEMD),$(shell pkg-config --libs $(SYSTEMD)))
$(BUILD)/bin/mqworker: $(call obj,$(PROGRAM)) $(WORKER) $(COMMON)
	@mkdir -p $(@D)
	$(LINK) -Wl,--export-dynamic-symbol='mqw_*' -o $@ $^ $(LIBS)

define tool
$(BUILD)/bin/$(1): $(call obj,$(wildcard scripts/$(1).c scripts/$(1)_*.c)) $(LIB)
	@mkdir -p $$(@D)
	$$(LINK) -o $$@ $$^ $$(LIBS)
endef
$(foreach t,$(TOOLS),$(eval $(call tool,$(t))))
$(BUILD)/bin/mqctl: LIBS += $(shell pkg-config --libs ncursesw 2>/dev/null || echo -lncursesw)

$(BUILD)/obj/mqworker.o: $(WORKER) $(COMMON)
	$(LD) -r -o $@.all $^
	$(or $(OBJCOPY),objcopy) -w --keep-global-symbol='mqw_*' $@.all $@
	@rm $@.all
$(BUILD)/lib/libmqworker.a: $(BUILD)/obj/mqworker.o
	@mkdir -p $(@D)
	@rm -f $@
	$(AR) rcs $@ $^
$(BUILD)/lib/libmqworker.so.$(SOVERSION): $(BUILD)/obj/mqworker.o
	@mkdir -p $(@D)
	$(LINK) -shared -Wl,-soname,$(@F) -o $@ $^ $(LIBS)
	ln -sf $(@F) $(@D)/libmqworker.so

# The test of a noun in common/ links without the worker.
$(BUILD)/tests/unit/test_%: $(BUILD)/obj/tests/unit/test_%.o $(HARNESS) \
        $$(if $$(wildcard common/$$*.c),$(LIB),$(ENGINE))
	@mkdir -p $(@D)
	$(LINK) -o $@ $^ $(LIBS) -lcriterion
$(BUILD)/tests/unit/stress_%: $(BUILD)/obj/tests/unit/stress_%.o $(ENGINE)
	@mkdir -p $(@D)
	$(LINK) -o $@ $^ $(LIBS)
# The worker as it is installed, and parts that only the archive shows.
$(BENCH): $(call obj,$(wildcard tests/bench/*.c)) $(BUILD)/lib/libmqworker.a $(ENGINE)
	@mkdir -p $(@D)
	$(LINK) -o $@ $^ $(LIBS) -lm
# The target of a noun of mqdlq links with the parts of that.
$(BUILD)/tests/fuzz/fuzz_%: $(BUILD)/obj/tests/fuzz/fuzz_%.o \
        $$(if $$(wildcard scripts/mqdlq_$$*.c),$$(call obj,$$(wildcard scripts/mqdlq_*.c))) $(ENGINE)
	@mkdir -p $(@D)
	$(LINK) -fsanitize=fuzzer -o $@ $^ $(LIBS)
$(TORTURE): $(call obj,$(wildcard tests/crash/torture*.c)) $(LIB)
	@mkdir -p $(@D)
	$(LINK) -o $@ $^ $(LIBS)
$(BUILD)/tests/handlers/torture_exec $(BUILD)/tests/handlers/torture_stream \
$(BUILD)/tests/plugins/torture.so: $(call obj,tests/crash/torture_message.c tests/crash/torture_witness.c)
$(BUILD)/tests/handlers/%: $(BUILD)/obj/tests/harness/handlers/%.o
	@mkdir -p $(@D)
	$(LINK) -o $@ $^ $(LIBS)
# It stands before the sanitizer's runtime, whose functions it calls.
$(BUILD)/obj/tests/harness/plugins/faults.o $(BUILD)/tests/plugins/faults.so: override SANITIZE :=
$(BUILD)/tests/plugins/%.so: $(BUILD)/obj/tests/harness/plugins/%.o
	@mkdir -p $(@D)
	$(LINK) -shared -o $@ $^
$(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(HARNESS) $(ENGINE)
	@mkdir -p $(@D)
	$(LINK) -o $@ $^ $(LIBS) -lcriterion

# ---- testing ----
# One test at a time, all in one recipe: RLIMIT_MSGQUEUE counts for the user as
# a whole. All run; what failed says so once more at the end.
TESTFLAGS ?= -j1 --timeout 120
UNDER_TEST ?= $(BUILD)
define run
@failed=; \
MQW_BIN=$(abspath $(UNDER_TEST)/bin); MQW_HANDLERS=$(abspath $(BUILD)/tests); \
export MQW_BIN MQW_HANDLERS; \
for t in $(1); do echo "== $$t"; case $$t in */stress_*) flags= ;; \
    *) flags="$(TESTFLAGS)" ;; esac; \
    $$t $$flags >$$t.log 2>&1 || failed="$$failed $$t"; cat $$t.log; done; \
for t in $$failed; do echo "== failed: $$t"; \
    grep -v '^\[====\]\|PASS' $$t.log | tail -n 20 | cut -c1-400; done; \
test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }
endef
check: $(UNIT) $(STRESS) $(E2E) $(CRASH) $(HANDLERS) $(BIN) check-man
	$(call run,$(UNIT) $(STRESS) $(E2E) $(CRASH))
check-unit: $(UNIT) $(STRESS)
	$(call run,$(UNIT) $(STRESS))
check-e2e: $(E2E) $(HANDLERS) $(BIN)
	$(call run,$(E2E))
check-crash: $(CRASH) $(HANDLERS) $(BIN)
	$(call run,$(CRASH))
check-programs: $(E2E) $(CRASH) $(HANDLERS)
	$(call run,$(E2E) $(CRASH))
check-man:
	@command -v mandoc >/dev/null || exit 0; \
	for m in $(MAN); do mandoc -Tlint -Wwarning $$m || exit 1; done

check-asan:
	MQW_TEST_SLOW=5 KILLS=40 MQW_TEST_NEAR=60 $(MAKE) BUILD=$(BUILD)/asan check \
	    CFLAGS="-O1 -g -fno-omit-frame-pointer" \
	    SANITIZE="-fsanitize=address,undefined -fno-sanitize-recover=all"
# Criterion cannot start under the thread sanitizer: programs and stress tests
# are built with it, the tests that drive the programs without.
check-tsan: $(E2E) $(CRASH) $(HANDLERS)
	$(MAKE) BUILD=$(BUILD)/tsan CFLAGS="-O1 -g" SANITIZE=-fsanitize=thread \
	    check-tsan-stress
	MQW_TEST_SLOW=10 KILLS=40 MQW_TEST_NEAR=60 $(MAKE) UNDER_TEST=$(BUILD)/tsan check-programs
check-tsan-stress: $(STRESS) $(BIN)
	$(call run,$(STRESS))

# make -s bench BENCH_FLAGS="--only sender-64 --json"; --help says what there is
bench: $(BENCH) $(BIN)
	@MQW_BIN=$(abspath $(BUILD)/bin) $(BENCH) $(BENCH_FLAGS)

# Each target for FUZZ_SECONDS, from tests/fuzz/corpus/<noun> and from what
# earlier runs in this build directory found; ONLY="header custody" runs these.
FUZZ_SECONDS ?= 30
fuzz:
	$(MAKE) BUILD=$(BUILD)/fuzz CC=clang CFLAGS="-O1 -g" run-fuzz \
	    SANITIZE="-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all"
run-fuzz: $(FUZZ)
	@failed=; for f in $(FUZZ); do n=$${f##*/fuzz_}; c=$(BUILD)/corpus/$$n; \
	mkdir -p $$c; cp tests/fuzz/corpus/$$n/* $$c/; r=ok; \
	$$f -max_total_time=$(FUZZ_SECONDS) -timeout=20 -print_final_stats=1 \
	    -artifact_prefix=$$c- $$c >$$f.log 2>&1 || r=FAILED; \
	awk -v n=$$n -v r=$$r '/number_of_executed_units/ { runs = $$2 } \
	    /new_units_added/ { units = $$2 } \
	    END { printf "fuzz_%s: %d runs, %d new units, %s\n", n, runs, units, r }' \
	    $$f.log; \
	test $$r = ok || { failed="$$failed $$n"; tail -n 40 $$f.log; }; done; \
	test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }

# make torture TORTURE_FLAGS="--handler plugin --kills 2000 --size 64"; --help
# says what there is
torture: $(TORTURE) $(HANDLERS) $(BIN)
	@MQW_BIN=$(abspath $(BUILD)/bin) MQW_HANDLERS=$(abspath $(BUILD)/tests) \
	    $(TORTURE) $(TORTURE_FLAGS)

lint:
	scripts/lint
format:
	clang-format -i $(SOURCES)
# For scripts/lint and editors: what the compiler gets.
show-cflags:
	@printf '%s\n' "$(subst ",\",$(ALL_CFLAGS))"
demo: all
	scripts/demo

# ---- installing ----
BINDIR     = $(DESTDIR)$(PREFIX)/bin
LIBDIR     = $(DESTDIR)$(PREFIX)/lib
MANDIR     = $(DESTDIR)$(PREFIX)/share/man
INCLUDEDIR = $(DESTDIR)$(PREFIX)/include
INSTALL   ?= install
man_path   = $(foreach m,$(MAN),$(MANDIR)/man$(subst .,,$(suffix $(m)))/$(notdir $(m)))

install: all
	$(INSTALL) -d $(BINDIR)
	$(INSTALL) -m 755 $(BIN) $(BINDIR)
	set -e; for m in $(MAN); do d=$(MANDIR)/man$${m##*.}; \
	    $(INSTALL) -d $$d; $(INSTALL) -m 644 $$m $$d; done
ifneq ($(PUBLIC),)
	$(INSTALL) -d $(LIBDIR)/pkgconfig $(INCLUDEDIR)
	$(INSTALL) -m 644 $(HEADERS) $(INCLUDEDIR)
	$(INSTALL) -m 644 $(PUBLIC) $(LIBDIR)
	ln -sf libmqworker.so.$(SOVERSION) $(LIBDIR)/libmqworker.so
	printf '%s\n' 'Name: mqworker' 'Version: $(VERSION)' \
	    'Description: consumes POSIX message queues and loses nothing' \
	    'Requires.private: $(PKGS)' 'Cflags: -I$(PREFIX)/include' \
	    'Libs: -L$(PREFIX)/lib -lmqworker' 'Libs.private: -pthread -lrt -ldl' \
	    > $(LIBDIR)/pkgconfig/mqworker.pc
endif
uninstall:
	rm -f $(BIN:$(BUILD)/bin/%=$(BINDIR)/%) $(man_path) \
	    $(INCLUDEDIR)/mqworker.h $(LIBDIR)/libmqworker.* \
	    $(LIBDIR)/pkgconfig/mqworker.pc

clean:
	rm -rf $(BUILD)

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)

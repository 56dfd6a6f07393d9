# mqworker - GNU make, out of tree, no file lists: a new file is found by its
# place and name.
#
# Targets:
#   make [all]       programs in build/bin, library in build/lib
#   make check       every test; ONLY="wheel queue" runs test_wheel, test_queue
#   make check-unit | check-e2e | check-crash | check-broker   one kind of test
#   make check-man   the man pages, with mandoc
#   make check-asan  the tests under the address and undefined sanitizers
#   make check-tsan  programs and stress tests under the thread sanitizer
#   make schedules   run flow under many orders of its threads
#   make torture     kill the worker again and again and audit each message
#   make cluster     the same for workers and nodes of a broker: CLUSTER_SECONDS
#   make soak | soak-asan    weeks in minutes, nothing may grow: SOAK_SECONDS
#   make power-cuts  open what a power cut may leave of a state directory
#   make instructions   count those of a message, and name their functions
#   make coverage    the tests once more, then lines and branches that ran
#   make fuzz        each fuzzing target for FUZZ_SECONDS
#   make bench       measure; BENCH_FLAGS=--help lists what there is
#   make lint | format      check the style of the sources | apply clang-format
#   make demo        the main job, live
#   make install | uninstall        PREFIX=/usr/local, DESTDIR=
#   make deb         Debian packages in build/deb
#   make clean       remove build
#   make help        this text
#
# Variables:
#   V=1              print whole commands and not one short line for each file
#   BUILD=build      folder for all that is made
#   CC, CFLAGS, LDFLAGS     compiler and its flags (-O2 -g)
#   WERROR=-Werror   warnings are errors, as in .ci/run
#   LTO=             link without optimizing the program as a whole: faster
#   AMQP=            leave out queues of a broker, even if librabbitmq is here
#   HARDEN= HARDEN_LINK=    leave out what turns bugs in memory into an end
#   SANITIZE=        -fsanitize=...
#   ONLY="a b"       run only these tests;  SKIP="a b": all but these
#   TEST_JOBS=N      tests at a time (processors + 3)
#   TESTFLAGS=       flags for Criterion, such as --filter='*/name*'
#   MQW_TEST_SLOW=N  multiply the time limits of tests, on a busy machine
BUILD    ?= build
CFLAGS   ?= -O2 -g
PREFIX   ?= /usr/local
VERSION  := 0.1.0
SOVERSION := 0
WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wvla -Wstrict-prototypes \
            -Wmissing-prototypes -Wpointer-arith -Wwrite-strings -Wconversion

# With librabbitmq the worker and the tools know amqp:// operands; `make AMQP=`
# is without.
AMQP     ?= $(shell pkg-config --atleast-version=0.11 librabbitmq 2>/dev/null && echo 1)
PKGS     := libbsd sqlite3 jansson $(if $(AMQP),librabbitmq)
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS) 2>/dev/null) $(if $(AMQP),-DMQW_AMQP)
PKG_LIBS   := $(shell pkg-config --libs $(PKGS) 2>/dev/null)
ALL_CFLAGS  = -std=c11 -D_GNU_SOURCE -DMQW_VERSION='"$(VERSION)"' $(WARNINGS) \
              $(WERROR) -I. -idirafter worker -pthread -fPIC $(CFLAGS) $(SANITIZE) $(PKG_CFLAGS)
COMPILE     = $(CC) $(HARDEN) $(ALL_CFLAGS) $(INNER)
LINK_FLAGS  = -pthread $(WHOLE) $(HARDEN_LINK) $(CFLAGS) $(SANITIZE) $(LDFLAGS)
LINK        = $(CC) -pie $(LINK_FLAGS)
LINK_SHARED = $(CC) -shared $(LINK_FLAGS)
LIBS        = $(PKG_LIBS) -lrt -ldl

# What turns a bug in memory into an end of the program; `make HARDEN= HARDEN_LINK=`
# leaves it out, and a sanitizer has its own. What not every compiler takes is
# tried. _FORTIFY_SOURCE needs -O, and CFLAGS may have a level of its own.
takes        = $(shell echo 'int x;' | $(CC) -Werror $(1) -S -x c -o /dev/null - 2>/dev/null && echo $(1))
OPTIMIZED   := $(filter-out -O0,$(lastword $(filter -O%,$(CFLAGS))))
FORTIFY     := $(if $(OPTIMIZED),$(if $(findstring _FORTIFY_SOURCE,$(CFLAGS)),,-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2))
HARDEN      := $(if $(SANITIZE),,-fstack-protector-strong $(FORTIFY) \
               $(call takes,-fstack-clash-protection) $(call takes,-fcf-protection))
HARDEN_LINK := $(if $(SANITIZE),,-Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
# A call of the C library is one jump; here it is bound at the start anyway.
NO_PLT      := $(if $(SANITIZE),,$(call takes,-fno-plt))
# The way of a message goes through several rooms: the programs are optimized as
# a whole when they are linked. Tests are not, so objects have machine code, too.
# `make LTO=` leaves it out, for a quick link.
LTO         := $(if $(SANITIZE)$(if $(filter-out -Og,$(OPTIMIZED)),,no),,$(call takes,-flto=auto -ffat-lto-objects))

# say,WHAT,FILE: begin a recipe line. Prints one short line and hides the
# command; V=1 shows the command instead, and make -s shows neither.
silent = $(findstring s,$(filter-out --%,$(firstword -$(MAKEFLAGS))))
say    = $(if $(V),,@$(if $(silent),,echo '$(1) $(patsubst $(CURDIR)/%,%,$(2))';))
MAKEFLAGS += --no-print-directory

# ---- what there is ----
# in,FOLDERS,PATTERN: the files below the folders, in whatever room they are;
# a folder amqp/ needs librabbitmq
in       = $(sort $(shell find $(1) -name '$(2)' $(if $(AMQP),,-not -path '*/amqp/*')))
obj      = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
# The programs with fault points (`points`) share all objects that have none.
ifdef SHARED
POINTED := $(patsubst $(SHARED)/obj/%.d,%.c,$(shell grep -rl --include='*.d' common/base/fault_point.h $(SHARED)/obj/common $(SHARED)/obj/worker $(SHARED)/obj/scripts))
obj      = $(patsubst %.c,$(BUILD)/obj/%.o,$(filter $(POINTED),$(1))) \
           $(patsubst %.c,$(SHARED)/obj/%.o,$(filter-out $(POINTED),$(1)))
endif
test     = $(patsubst tests/%.c,$(BUILD)/tests/%,$(call in,tests/$(1),$(2)_*.c))
# named,NAMES,TESTS: those tests whose file is test_NAME (stress_, fuzz_)
named    = $(foreach t,$(2),$(if $(filter $(1:%=test_%) $(1:%=stress_%) $(1:%=fuzz_%),$(notdir $(t))),$(t)))
# Three nodes of a broker leave no processor to other tests, and alarms, limits
# and lost queues of one make its tests wait: make check ONLY="amqp_traps". So
# does a node that dies in each round.
BY_HAND  := $(if $(ONLY),,amqp_cluster amqp_groups_node amqp_soak amqp_traps)
only     = $(filter-out $(call named,$(SKIP) $(BY_HAND),$(1)),$(if $(ONLY),$(call named,$(ONLY),$(1)),$(1)))

# A folder of scripts/ that has C in it is a program of that name.
TOOLS   := $(sort $(foreach f,$(call in,scripts,*.c),$(word 2,$(subst /, ,$(f)))))
tool     = $(call obj,$(filter-out $(LEFT_OUT),$(call in,scripts/$(1),*.c)))
# mqctl serve speaks HTTP by libmicrohttpd; without it mqctl says what to install.
HTTP_PKGS := libmicrohttpd libmd
HTTP_LIBS := $(shell pkg-config --libs $(HTTP_PKGS) 2>/dev/null)
LEFT_OUT := $(if $(HTTP_LIBS),%/no_serve.c,scripts/mqctl/serve/%)
WEB      := $(sort $(wildcard scripts/mqctl/serve/web/*))
WEB_FILES := $(if $(HTTP_LIBS),$(BUILD)/obj/scripts/mqctl/serve/web_files.o)
BIN     := $(patsubst %,$(BUILD)/bin/%,mqworker $(TOOLS))
COMMON  := $(call obj,$(call in,common,*.c))
PROGRAM := worker/main.c worker/notify.c
WORKER  := $(call obj,$(filter-out $(PROGRAM),$(call in,worker,*.c)))
HARNESS := $(call obj,$(wildcard tests/harness/*.c))
HEADERS := $(wildcard worker/mqworker.h)

# What tests and tools link with; the library that is installed shows mqw_ only.
LIB     := $(BUILD)/obj/libcommon.a
ENGINE  := $(BUILD)/obj/libengine.a
PUBLIC  := $(if $(HEADERS),$(BUILD)/lib/libmqworker.a $(BUILD)/lib/libmqworker.so.$(SOVERSION))

UNITS   := $(call test,unit,test)
UNIT    := $(call only,$(UNITS))
STRESSES := $(call test,unit,stress)
STRESS  := $(call only,$(STRESSES))
E2E     := $(call only,$(call test,e2e,test))
CRASH   := $(call only,$(call test,crash,test))
BENCH   := $(BUILD)/tests/bench/bench
TORTURE := $(BUILD)/tests/crash/torture
POWER   := $(BUILD)/tests/crash/power
FUZZ    := $(filter-out $(if $(HTTP_LIBS),,%/fuzz_serve_path),$(call only,$(call test,fuzz,fuzz)))
unknown := $(strip $(foreach n,$(ONLY),$(if $(strip $(call named,$(n),$(UNIT) $(STRESS) $(E2E) $(CRASH) $(FUZZ))),,$(n))))
$(if $(unknown),$(error ONLY="$(ONLY)": no test is named $(unknown); give the name of a file of tests/ without test_, like ONLY=wheel))
# Handlers for end-to-end tests: programs, and plugins (.so); test_bench runs
# the benchmark, TORTURES the torture program.
TORTURES := every_instruction instructions torture torture_points
# Every order of the threads of flow, and the same with faults put in.
ORDERS  := $(patsubst tests/schedules/faults/%.sed,$(BUILD)/tests/schedules/fault_%,$(wildcard tests/schedules/faults/*.sed)) \
           $(BUILD)/tests/schedules/schedules
HANDLERS := $(patsubst tests/harness/%.c,$(BUILD)/tests/%,$(wildcard tests/harness/handlers/*.c)) \
            $(patsubst tests/harness/%.c,$(BUILD)/tests/%.so,$(wildcard tests/harness/plugins/*.c)) \
            $(if $(filter %/test_bench,$(E2E)),$(BENCH)) \
            $(if $(call named,$(TORTURES),$(CRASH)),$(TORTURE)) \
            $(if $(filter %/test_power,$(CRASH)),$(POWER)) \
            $(if $(filter %/test_torture_points %/test_amqp_forward %/test_forward_worker,$(CRASH) $(E2E)),points) \
            $(if $(filter %/test_schedules,$(CRASH)),$(ORDERS))
MAN     := $(wildcard docs/*.[1-8])
SOURCES := $(call in,common worker scripts tests,*.[ch])

.PHONY: all help completion tests check coverage check-unit check-e2e check-crash check-broker check-man check-asan \
        check-programs check-tsan check-tsan-built check-tsan-stress run-fuzz fuzz-built \
        build-asan build-tsan build-fuzz lint format bench torture power-cuts schedules cluster soak soak-asan instructions points programs fuzz demo install uninstall deb clean show-cflags
.SECONDARY:
.SECONDEXPANSION:
.DELETE_ON_ERROR:
all: $(BIN) $(PUBLIC) completion
help:
	@sed -n '/^# Targets:/,/^[^#]/s/^# \{0,1\}//p' Makefile
tests: all $(UNIT) $(STRESS) $(E2E) $(CRASH) $(HANDLERS)

# ---- building ----
# What compiles and links, in a file that changes when that does: what was built
# with other flags is built again. WERROR makes no other object. Expanded here,
# where no variable has the value of a single target. The first thing that is
# built, so the place to say what is missing.
FLAGS := $(filter-out $(WERROR),$(COMPILE)) $(LTO) : $(LINK) $(LIBS) $(HTTP_LIBS)
$(BUILD)/flags: always
	@$(if $(PKG_LIBS),,$(missing))
	@mkdir -p $(@D)
	@printf '%s\n' '$(subst ','\'',$(FLAGS))' | cmp -s - $@ || \
	    printf '%s\n' '$(subst ','\'',$(FLAGS))' >$@
.PHONY: always
missing = lack=$$(command -v pkg-config >/dev/null || echo pkg-config; \
    for p in $(PKGS); do pkg-config --exists $$p 2>/dev/null || echo $$p; done); \
    echo "make: not found:" $$lack"; scripts/deps installs what is missing" >&2; exit 1

# Calls inside of a program need no detour; mqworker.h says what is exported.
$(WORKER) $(COMMON): private INNER = -fvisibility=hidden
$(foreach r,flow groups handlers rules source/mq,$(filter $(BUILD)/obj/worker/$(r)/%,$(WORKER))) \
$(foreach r,base custody message mq,$(filter $(BUILD)/obj/common/$(r)/%,$(COMMON))) \
$(call obj,common/state/counters.c): private INNER = -fvisibility=hidden $(NO_PLT) $(LTO)
# Tests take longer to compile than all that they test, and run once: what they
# call is optimized, they are not much. Two warnings guess without -O2, so they
# are shown and no error.
$(patsubst $(BUILD)/tests/%,$(BUILD)/obj/tests/%.o,$(UNITS) $(call test,e2e,test) $(call test,crash,test)): \
    private INNER = $(if $(OPTIMIZED),$(if $(SANITIZE),-O0,-O1) -Wno-error=format-truncation -Wno-error=maybe-uninitialized)
$(BUILD)/obj/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)$(COMPILE) -MMD -MP -c -o $@ $<

# Archives are recreated: a file that is gone leaves no member behind.
$(LIB): $(COMMON)
$(ENGINE): $(WORKER) $(COMMON)
$(LIB) $(ENGINE):
	@mkdir -p $(@D)
	@rm -f $@
	$(call say,AR,$@)$(AR) rcs $@ $^

WHOLE = $(if $(LTO),-fno-lto)
$(BUILD)/bin/mqworker: private WHOLE = $(LTO)
# All objects, not the archive: a plugin may call any mqw_ function.
$(BUILD)/bin/mqworker: $(call obj,$(PROGRAM)) $(WORKER) $(COMMON)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(LINK) -Wl,--export-dynamic-symbol='mqw_*' -o $@ $^ $(LIBS)

define link_tool
$(BUILD)/bin/$(1): $(call tool,$(1)) $(LIB)
	@mkdir -p $$(@D)
	$$(call say,LD,$$@)$$(LINK) -o $$@ $$^ $$(LIBS)
endef
$(foreach t,$(TOOLS),$(eval $(call link_tool,$(t))))
$(BUILD)/bin/mqctl: LIBS += $(shell pkg-config --libs ncursesw 2>/dev/null || echo -lncursesw) $(HTTP_LIBS) -lm
$(BUILD)/bin/mqctl: $(WEB_FILES)
$(BUILD)/gen/web_files.c: $(WEB) scripts/embed
	@mkdir -p $(@D)
	$(call say,GEN,$@)scripts/embed $(WEB) >$@
$(BUILD)/obj/scripts/mqctl/serve/web_files.o: $(BUILD)/gen/web_files.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)$(COMPILE) -MMD -MP -c -o $@ $<

$(BUILD)/obj/mqworker.o: $(WORKER) $(COMMON)
	$(call say,LD,$@)$(if $(LTO),$(CC) -nostdlib $(HARDEN) $(ALL_CFLAGS) $(LTO) -flinker-output=nolto-rel,$(LD)) -r -o $@.all $^
	$(if $(V),,@)$(or $(OBJCOPY),objcopy) -w --keep-global-symbol='mqw_*' $@.all $@
	@rm $@.all
$(BUILD)/lib/libmqworker.a: $(BUILD)/obj/mqworker.o
	@mkdir -p $(@D)
	@rm -f $@
	$(call say,AR,$@)$(AR) rcs $@ $^
$(BUILD)/lib/libmqworker.so.$(SOVERSION): $(BUILD)/obj/mqworker.o
	@mkdir -p $(@D)
	$(call say,LD,$@)$(LINK_SHARED) -Wl,-soname,$(@F) -o $@ $^ $(LIBS)
	$(if $(V),,@)ln -sf $(@F) $(@D)/libmqworker.so

# The test of a noun in common/ links without the worker.
beside = $(if $(filter $(patsubst test_%,%,$(notdir $(1))).o,$(notdir $(COMMON))),$(LIB),$(ENGINE))
# What top draws is tested without a terminal.
drawn = $(if $(filter unit/top/%,$(1)),$(call obj,$(wildcard scripts/mqctl/top/draw/*.c)))
# The test of mqdlq/amqp/known.c links with that.
mqdlq_noun = $(if $(filter test_mqdlq_known,$(notdir $(1))),$(filter %/mqdlq/amqp/known.o,$(call tool,mqdlq)))
$(UNITS): $(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(HARNESS) $$(call drawn,$$*) $$(call mqdlq_noun,$$*) $$(call beside,$$*)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(LINK) -o $@ $^ $(LIBS) -lcriterion
$(STRESSES): $(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(ENGINE)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(LINK) -o $@ $^ $(LIBS)
# The worker as it is installed, and parts that only the archive shows.
$(BENCH): $(call obj,$(call in,tests/bench,*.c)) $(BUILD)/lib/libmqworker.a $(ENGINE)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(LINK) -o $@ $^ $(LIBS) -lm
# The target of a part of a program links with that.
parts = $(if $(filter decode,$(1)),$(filter %/mqdlq/decode.o,$(call tool,mqdlq))) \
    $(if $(filter serve_path,$(1)),$(filter %/serve/ask/path.o %/serve/guard.o,$(call tool,mqctl)))
$(BUILD)/tests/fuzz/fuzz_%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $$(call parts,$$*) $(ENGINE)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(LINK) -fsanitize=fuzzer -o $@ $^ $(LIBS)
# What mqctl serve reads of a request before it knows who asks.
$(BUILD)/tests/fuzz/fuzz_serve_path: LIBS += $(HTTP_LIBS)
$(TORTURE): $(call obj,$(wildcard tests/crash/torture/*.c)) $(LIB)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(LINK) -o $@ $^ $(LIBS)
$(POWER): $(call obj,$(wildcard tests/crash/power/*.c))
	@mkdir -p $(@D)
	$(call say,LD,$@)$(LINK) -o $@ $^ $(LIBS)
$(BUILD)/tests/handlers/torture_exec $(BUILD)/tests/handlers/torture_stream \
$(BUILD)/tests/plugins/torture.so: $(call obj,tests/crash/torture/torture_message.c tests/crash/torture/torture_witness.c)
$(BUILD)/tests/handlers/%: $(BUILD)/obj/tests/harness/handlers/%.o
	@mkdir -p $(@D)
	$(call say,LD,$@)$(LINK) -o $@ $^ $(LIBS)
# faults.so comes before the sanitizer's runtime, whose functions it calls;
# clock_shift.so comes into a shell, too. The programs that are started for each
# message start 20 times faster without it.
$(foreach p,faults clock_shift,$(BUILD)/obj/tests/harness/plugins/$(p).o $(BUILD)/tests/plugins/$(p).so) \
$(filter %.o,$(HANDLERS:$(BUILD)/tests/handlers/%=$(BUILD)/obj/tests/harness/handlers/%.o)) \
$(call obj,tests/crash/torture/torture_message.c tests/crash/torture/torture_witness.c) \
$(filter $(BUILD)/tests/handlers/%,$(HANDLERS)): override SANITIZE :=
$(BUILD)/tests/plugins/%.so: $(BUILD)/obj/tests/harness/plugins/%.o
	@mkdir -p $(@D)
	$(call say,LD,$@)$(LINK_SHARED) -o $@ $^
# Flow and what is below it, as compiled for the thread sanitizer: each atomic
# operation is a call, which tests/schedules/atomics.c answers.
STEPPED   := $(call in,worker/flow worker/groups worker/loop worker/rules,*.c) \
             common/base/quick_lock.c common/state/counters.c
SCHEDULES := $(patsubst %.c,$(BUILD)/stepped/%.o,$(STEPPED) $(wildcard tests/schedules/*.c))
WRAPPED   := pthread_mutex_lock pthread_mutex_unlock pthread_cond_wait pthread_cond_signal \
             pthread_cond_broadcast pthread_create poll epoll_wait timerfd_settime sched_yield syscall
# gcc says that the sanitizer does not see a fence; atomics.c answers it, and
# the numbers on both sides of one are atomic.
NO_FENCE_WARNING := $(call takes,-Wno-tsan)
STEP = -fsanitize=thread $(NO_FENCE_WARNING) --param tsan-instrument-func-entry-exit=0
$(BUILD)/stepped/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(ALL_CFLAGS) $(if $(filter tests/%,$<),-Itests/schedules,$(STEP)) -MMD -MP -c -o $@ $<
$(BUILD)/tests/schedules/schedules: $(SCHEDULES) $(ENGINE)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(LINK) $(WRAPPED:%=-Wl,--wrap=%) -o $@ $^ $(LIBS)
# The same with a fault put in: the first line of the .sed names the file.
$(BUILD)/tests/schedules/fault_%: tests/schedules/faults/%.sed $(SCHEDULES) $(ENGINE)
	@mkdir -p $(@D) $(BUILD)/stepped/faults
	$(call say,LD,$@)f=$$(sed -n '1s/^# //p' $<); c=$(BUILD)/stepped/faults/$*.c; \
	sed -f $< $$f >$$c; ! cmp -s $$f $$c || { echo "$<: changes nothing" >&2; exit 1; }; \
	$(CC) $(ALL_CFLAGS) -w $(STEP) -c -o $${c%c}o $$c && \
	$(LINK) $(WRAPPED:%=-Wl,--wrap=%) -o $@ $${c%c}o \
	    $$(printf '%s\n' $(filter %.o,$^) | grep -v "/stepped/$${f%c}o$$") $(ENGINE) $(LIBS)

$(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(HARNESS) $(ENGINE)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(LINK) -o $@ $^ $(LIBS) -lcriterion

# ---- testing ----
# Tests wait for most of their time, so more run at a time than there are
# processors. Those that use up what the user has as a whole (RLIMIT_MSGQUEUE,
# processes) or look at all queues run alone. All run, whatever fails; first
# those that take long (LONG: over half a minute beside four others), so that none
# of them is left to run by itself.
TEST_JOBS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 3)))
LONELY    := bench mqctl_look mqlimit worker_limits
LONG      := amqp_groups amqp_letters amqp_main_job amqp_move amqp_share \
             amqp_worker breaker_failures \
             damaged_state demo every_instruction faults_calls faults_look \
             groups_blocked groups_kill install kill latency mqctl_spool power \
             run_limits schedules serve_browser serve_limits torture_points \
             worker_files worker_restart
beside_others = $(filter-out $(call named,$(LONELY),$(1)),$(1))
UNDER_TEST ?= $(BUILD)
define run
@MQW_BIN=$(abspath $(UNDER_TEST)/bin) MQW_HANDLERS=$(abspath $(BUILD)/tests) \
scripts/run-tests -j $(TEST_JOBS) --long $(call named,$(LONG),$(call beside_others,$(1))) \
    --short $(filter-out $(call named,$(LONG),$(1)),$(call beside_others,$(1))) \
    --alone $(call named,$(LONELY),$(1))
endef
check: $(UNIT) $(STRESS) $(E2E) $(CRASH) $(HANDLERS) $(BIN) check-man
	$(call run,$(CRASH) $(E2E) $(STRESS) $(UNIT))
check-unit: $(UNIT) $(STRESS)
	$(call run,$(UNIT) $(STRESS))
check-e2e: $(E2E) $(HANDLERS) $(BIN)
	$(call run,$(E2E))
check-crash: $(CRASH) $(HANDLERS) $(BIN)
	$(call run,$(CRASH))
# Each of them starts a broker, which needs a processor for some seconds.
check-broker: TEST_JOBS = $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
check-broker: $(filter $(BUILD)/tests/e2e/amqp/%,$(E2E)) $(HANDLERS) $(BIN)
	$(call run,$(filter $(BUILD)/tests/e2e/amqp/%,$(E2E)))
check-programs: $(E2E) $(CRASH) $(HANDLERS)
	$(call run,$(CRASH) $(E2E))
check-man:
	@command -v mandoc >/dev/null || exit 0; \
	for m in $(MAN); do mandoc -Tlint -Wwarning $$m || exit 1; done

# Not under sanitizers: tests of documents, packages and measurements, and one
# with foreign programs; and, for the thread sanitizer, of programs without
# threads. What of these speaks to a broker has a worker beside it that
# amqp_worker tests, and the programs with fault points are built without it.
DRY     := amqp_main_job bench completion container demo docs docs_agree docs_pages \
           docs_producers every_instruction hardening install instructions latency man \
           power run_tests runbook schedules soak
SINGLE  := amqp_doctor amqp_letters amqp_move amqp_send amqp_serve \
           damaged_state faults_look faults_tools harness hostile_state \
           hostile_text mqctl_look mqdlq mqdlq_removed mqdlq_replay mqsend \
           serve serve_browser serve_confined serve_described serve_further serve_limits \
           serve_readers serve_ways torture_points worker_limits
# build-asan, build-tsan and build-fuzz: all that check-asan, check-tsan and fuzz
# build, and nothing is run.
check-asan build-asan: goal = $(if $(filter build-%,$@),tests,check)
check-asan build-asan:
	MQW_SANITIZED=1 MQW_TEST_SLOW=5 KILLS=40 MQW_TEST_NEAR=60 $(MAKE) BUILD=$(BUILD)/asan $(goal) \
	    SKIP="$(DRY)" \
	    CFLAGS="-O1 -g1 -fno-omit-frame-pointer" \
	    SANITIZE="-fsanitize=address,undefined -fno-sanitize-recover=all"
# Criterion cannot start under the thread sanitizer: programs and stress tests
# are built with it, the tests that drive the programs without.
tsan = $(MAKE) BUILD=$(BUILD)/tsan CFLAGS="-O1 -g1" SANITIZE="-fsanitize=thread $(NO_FENCE_WARNING)"
build-tsan:
	+$(tsan) check-tsan-built
check-tsan: $(E2E) $(CRASH) $(HANDLERS)
	+$(tsan) check-tsan-stress
	MQW_SANITIZED=1 MQW_TEST_SLOW=10 KILLS=40 MQW_TEST_NEAR=60 $(MAKE) UNDER_TEST=$(BUILD)/tsan check-programs \
	    SKIP="$(DRY) $(SINGLE)"
check-tsan-built: $(STRESS) $(BIN)
check-tsan-stress: check-tsan-built
	$(call run,$(STRESS))

# What the tests run of each directory, and the files of which they run least.
# In worker_limits programs run as other users, who cannot write the counters.
coverage:
	@find $(BUILD)/coverage -name '*.gcda' -delete 2>/dev/null; \
	MQW_TEST_SLOW=3 KILLS=40 MQW_TEST_NEAR=60 $(MAKE) BUILD=$(BUILD)/coverage check \
	    CC=gcc CFLAGS="-Og -g" SANITIZE="--coverage -fprofile-update=atomic" \
	    SKIP="$(filter-out completion,$(DRY)) worker_limits"; status=$$?; \
	scripts/coverage $(BUILD)/coverage/obj && exit $$status

# make -s bench BENCH_FLAGS="--only sender-64 --json"; --help says what there is
bench: $(BENCH) $(BIN) $(BUILD)/tests/plugins/meter.so
	@MQW_BIN=$(abspath $(BUILD)/bin) $(BENCH) $(BENCH_FLAGS)

# Each target for FUZZ_SECONDS (FUZZ_SOON a quarter of it, in which they find all
# that 25 s find but a branch), from tests/fuzz/corpus/<noun> and from what earlier
# runs in this build directory found; ONLY="header custody" runs these.
FUZZ_SECONDS ?= 30
FUZZ_SOON    := backoff broker_operand clock
fuzz build-fuzz: goal = $(if $(filter build-%,$@),fuzz-built,run-fuzz)
fuzz build-fuzz:
	$(MAKE) BUILD=$(BUILD)/fuzz CC=clang CFLAGS="-O1 -g1" $(goal) -k -O \
	    $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell getconf _NPROCESSORS_ONLN)) \
	    SANITIZE="-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all"
# As many at a time as make may run (-j); each says what came of it when it ends.
RUNS := $(FUZZ:$(BUILD)/tests/fuzz/%=run-%)
.PHONY: $(RUNS)
run-fuzz: $(RUNS)
fuzz-built: $(FUZZ)
$(RUNS): run-fuzz_%: $(FUZZ)
	@f=$(BUILD)/tests/fuzz/fuzz_$*; c=$(BUILD)/corpus/$*; \
	mkdir -p $$c; cp tests/fuzz/corpus/$*/* $$c/; r=ok; \
	$$f -max_total_time=$$(($(FUZZ_SECONDS) / $(if $(filter $*,$(FUZZ_SOON)),4,1) + 1)) -timeout=20 -print_final_stats=1 \
	    -artifact_prefix=$$c- $$c >$$f.log 2>&1 || r=FAILED; \
	awk -v n=$* -v r=$$r '/number_of_executed_units/ { runs = $$2 } \
	    /new_units_added/ { units = $$2 } \
	    END { printf "fuzz_%s: %d runs, %d new units, %s\n", n, runs, units, r }' \
	    $$f.log; \
	test $$r = ok || { tail -n 40 $$f.log; exit 1; }

# make torture TORTURE_FLAGS="--handler plugin --kills 2000 --size 64"; --help
# says what there is
torture: $(TORTURE) $(HANDLERS) $(BIN) points
	@MQW_BIN=$(abspath $(BUILD)/bin) MQW_HANDLERS=$(abspath $(BUILD)/tests) \
	    MQW_POINTS_BIN=$(abspath $(BUILD)/points/bin) \
	    $(TORTURE) $(TORTURE_FLAGS)
# Every order of the threads of flow with one switch more, many with two, and at
# random; its head says which flags there are.
SCHEDULES_FLAGS ?= --singles 0 --pairs 30000 --runs 40000
schedules: $(ORDERS)
	@$(BUILD)/tests/schedules/schedules $(SCHEDULES_FLAGS)
# Workers, and three nodes of a broker, are killed for that long.
CLUSTER_SECONDS ?= 1800
cluster:
	@MQW_CLUSTER_SECONDS=$(CLUSTER_SECONDS) TESTFLAGS="-j1 --timeout $$(($(CLUSTER_SECONDS) + 600))" \
	    $(MAKE) -s check ONLY=amqp_cluster && grep ^cluster: $(BUILD)/tests/e2e/amqp/test_amqp_cluster.log
# Days of work, one after the other, for that long; beside them a worker whose
# broker dies again and again, where there is one.
SOAK_SECONDS ?= 3600
soak:
	@MQW_SOAK_SECONDS=$(SOAK_SECONDS) TESTFLAGS="-j1 --timeout $$(($(SOAK_SECONDS) + 600)) --filter=*soak/nothing*" \
	    $(MAKE) -s check ONLY="soak $(if $(AMQP),amqp_soak)" && \
	    grep -h ^soak: $(BUILD)/tests/crash/test_soak.log $(if $(AMQP),$(BUILD)/tests/e2e/amqp/test_amqp_soak.log)
# The same without a broker, under the address and undefined sanitizers.
soak-asan:
	@MQW_SOAK_SECONDS=$(SOAK_SECONDS) TESTFLAGS="-j1 --timeout $$(($(SOAK_SECONDS) + 600)) --filter=*soak/nothing*" \
	    $(MAKE) -s check-asan DRY= ONLY=soak && \
	    grep -h ^soak: $(BUILD)/asan/tests/crash/test_soak.log
# The state directory as a power cut may leave it, at each point of a run.
power-cuts: $(POWER) $(HANDLERS) $(BIN)
	@MQW_BIN=$(abspath $(BUILD)/bin) MQW_HANDLERS=$(abspath $(BUILD)/tests) \
	    $(POWER) $(POWER_FLAGS)
# What a message costs a plugin that does nothing, by function.
instructions: $(TORTURE) $(BUILD)/tests/plugins/nothing.so $(BIN)
	@MQW_BIN=$(abspath $(BUILD)/bin) MQW_HANDLERS=$(abspath $(BUILD)/tests) \
	    $(TORTURE) --instructions
# The programs with what common/base/fault_point.h says.
points: $(BIN)
	@$(MAKE) BUILD=$(BUILD)/points SHARED=$(BUILD) CFLAGS="$(CFLAGS) -DMQW_FAULT_POINTS" programs
programs: $(BIN)

lint:
	scripts/lint
format:
	clang-format -i $(SOURCES)
# For scripts/lint and editors: what the compiler gets.
show-cflags:
	@printf '%s\n' "$(subst ",\",$(ALL_CFLAGS))"
demo: all
	scripts/demo

# ---- completion for shells ----
COMPLETION := $(foreach b,$(notdir $(BIN)),$(addprefix $(BUILD)/completion/,$(b).bash _$(b) $(b).fish))
define completion
@mkdir -p $(@D)
$(call say,GEN,$@){ $< --options-dump; $(BUILD)/bin/mqworker --options-dump; } | \
    awk -v shell=$(1) -f scripts/completion.awk > $@
endef
$(BUILD)/completion/%.bash: $(BUILD)/bin/% $(BUILD)/bin/mqworker scripts/completion.awk
	$(call completion,bash)
$(BUILD)/completion/_%: $(BUILD)/bin/% $(BUILD)/bin/mqworker scripts/completion.awk
	$(call completion,zsh)
$(BUILD)/completion/%.fish: $(BUILD)/bin/% $(BUILD)/bin/mqworker scripts/completion.awk
	$(call completion,fish)

completion: $(COMPLETION)

# ---- installing ----
# make install DESTDIR=/tmp/stage PREFIX=/usr LIBDIR=/usr/lib64; each directory
# can be given.
BINDIR      ?= $(PREFIX)/bin
LIBDIR      ?= $(PREFIX)/lib
INCLUDEDIR  ?= $(PREFIX)/include
DATADIR     ?= $(PREFIX)/share
MANDIR      ?= $(DATADIR)/man
DOCDIR      ?= $(DATADIR)/doc/mqworker
SYSCONFDIR  ?= /etc
SYSTEMDDIR  ?= $(PREFIX)/lib/systemd/system
SYSUSERSDIR ?= $(PREFIX)/lib/sysusers.d
BASHDIR     ?= $(DATADIR)/bash-completion/completions
ZSHDIR      ?= $(DATADIR)/zsh/site-functions
FISHDIR     ?= $(DATADIR)/fish/vendor_completions.d
INSTALL     ?= install

# MODE:FILE:PLACE, or link:TARGET:PLACE. PLACE that ends in / keeps the name. Of
# FILE.in the @NAMES@ are filled in.
FILES = $(BIN:%=755:%:$(BINDIR)/) \
    $(foreach m,$(MAN),644:$(m):$(MANDIR)/man$(subst .,,$(suffix $(m)))/) \
    $(HEADERS:%=644:%:$(INCLUDEDIR)/) $(PUBLIC:%=644:%:$(LIBDIR)/) \
    $(if $(PUBLIC),link:libmqworker.so.$(SOVERSION):$(LIBDIR)/libmqworker.so \
        644:scripts/mqworker.pc.in:$(LIBDIR)/pkgconfig/mqworker.pc) \
    $(foreach c,$(filter %.bash,$(COMPLETION)),644:$(c):$(BASHDIR)/$(basename $(notdir $(c)))) \
    $(foreach c,$(filter-out %.bash %.fish,$(COMPLETION)),644:$(c):$(ZSHDIR)/) \
    $(foreach c,$(filter %.fish,$(COMPLETION)),644:$(c):$(FISHDIR)/) \
    644:scripts/systemd/mqworker@.service.in:$(SYSTEMDDIR)/mqworker@.service \
    644:scripts/systemd/mqworker@.socket:$(SYSTEMDDIR)/ \
    644:scripts/systemd/mqctl-serve.service.in:$(SYSTEMDDIR)/mqctl-serve.service \
    644:scripts/systemd/mqctl-serve.socket:$(SYSTEMDDIR)/ \
    644:scripts/systemd/mqworker.sysusers:$(SYSUSERSDIR)/mqworker.conf \
    644:docs/examples/orders.conf:$(SYSCONFDIR)/mqworker/orders.conf.example \
    644:README.md:$(DOCDIR)/ \
    $(foreach d,$(wildcard docs/*.md docs/*.c docs/*.yaml),644:$(d):$(DOCDIR)/docs/) \
    $(foreach d,$(wildcard docs/*/*),644:$(d):$(DOCDIR)/$(dir $(d)))
FILL = $(foreach v,PREFIX BINDIR LIBDIR INCLUDEDIR SYSCONFDIR VERSION PKGS,-e 's|@$(v)@|$($(v))|')
# each,COMMANDS: for each of them with $$mode, $$file and $$place
each = set -e; for f in $(FILES); do mode=$${f%%:*} file=$${f\#*:}; \
    place="$(DESTDIR)$${file\#*:}" file=$${file%%:*}; \
    case $$place in */) place=$$place$${file\#\#*/} ;; esac; $(1); done

install: all
	@$(call each,$(INSTALL) -d "$${place%/*}"; case $$mode:$$file in \
	    (link:*) ln -sf $$file "$$place" ;; \
	    (*.in) sed $(FILL) $$file >"$$place"; chmod $$mode "$$place" ;; \
	    (*) $(INSTALL) -m $$mode $$file "$$place" ;; esac; echo "$$place")
uninstall:
	@$(call each,rm -f "$$place")
	-@cd "$(DESTDIR)$(DOCDIR)" 2>/dev/null && rmdir docs/* docs . 2>/dev/null; \
	    rmdir "$(DESTDIR)$(DOCDIR)" 2>/dev/null; true

# Debian packages in $(BUILD)/deb; lintian looks at them if it is there.
deb:
	+@scripts/deb $(BUILD) $(VERSION) $(SOVERSION)

clean:
	rm -rf $(BUILD)

-include $(shell find $(BUILD)/obj $(BUILD)/stepped -name '*.d' 2>/dev/null)

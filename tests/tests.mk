# tests.mk - build and run tests; part of the Makefile
#
# test_NAME.c, stress_NAME.c and fuzz_NAME.c are each a program, found by its
# folder: tests/unit, e2e, crash or fuzz. ONLY, SKIP and the lists here have NAMES.

# ---- files ----
test      = $(patsubst tests/%.c,$(BUILD)/tests/%,$(call in,tests/$(1),$(2)_*.c))
# named,NAMES,TESTS: the tests with these names
named     = $(foreach t,$(2),$(if $(filter $(1:%=test_%) $(1:%=stress_%) $(1:%=fuzz_%),$(notdir $(t))),$(t)))
# These run if ONLY names them: they need three nodes of a broker, or make the
# tests beside them wait.
BY_HAND  := $(if $(ONLY),,amqp_cluster amqp_groups_node amqp_soak amqp_traps)
only      = $(filter-out $(call named,$(SKIP) $(BY_HAND),$(1)),$(if $(ONLY),$(call named,$(ONLY),$(1)),$(1)))

UNITS    := $(filter-out $(if $(SECCOMP_LIBS),,%/test_confine),$(call test,unit,test))
STRESSES := $(call test,unit,stress)
DRIVERS  := $(call test,e2e,test) $(call test,crash,test)
UNIT     := $(call only,$(UNITS))
STRESS   := $(call only,$(STRESSES))
E2E      := $(call only,$(filter $(BUILD)/tests/e2e/%,$(DRIVERS)))
CRASH    := $(call only,$(filter $(BUILD)/tests/crash/%,$(DRIVERS)))
FUZZ     := $(filter-out $(if $(HTTP_LIBS),,%/fuzz_serve_path),$(call only,$(call test,fuzz,fuzz)))
BENCH    := $(BUILD)/tests/bench/bench
TORTURE  := $(BUILD)/tests/crash/torture
POWER    := $(BUILD)/tests/crash/power
SCHEDULER := $(BUILD)/tests/schedules/schedules
HARNESS  := $(call obj,$(wildcard tests/harness/*.c))
# What several unit tests need; each is linked with what it uses of this.
FIXTURES := $(BUILD)/obj/libfixtures.a
unknown  := $(strip $(foreach n,$(ONLY),$(if $(strip $(call named,$(n),$(UNIT) $(STRESS) $(E2E) $(CRASH) $(FUZZ))),,$(n))))
$(if $(unknown),$(error ONLY="$(ONLY)": no test is named $(unknown); give the name of a file of tests/ without test_, like ONLY=wheel))

# What the end-to-end tests start: handlers, plugins, and the programs that some
# tests run.
PROGRAMS := $(patsubst tests/harness/%.c,$(BUILD)/tests/%,$(wildcard tests/harness/handlers/*.c))
PLUGINS  := $(patsubst tests/harness/%.c,$(BUILD)/tests/%.so,$(wildcard tests/harness/plugins/*.c))
ORDERS   := $(patsubst tests/schedules/faults/%.sed,$(BUILD)/tests/schedules/fault_%,$(wildcard tests/schedules/faults/*.sed)) $(SCHEDULER)
# for,NAMES,FILES: the files, if one of these tests is to run
for       = $(if $(strip $(call named,$(1),$(E2E) $(CRASH))),$(2))
HANDLERS := $(PROGRAMS) $(PLUGINS) $(call for,bench,$(BENCH)) $(call for,power,$(POWER)) \
            $(call for,every_instruction instructions torture torture_points,$(TORTURE)) \
            $(call for,torture_points amqp_forward forward_worker mqdlq_edit,points) $(call for,schedules,$(ORDERS))

.PHONY: tests check check-unit build-unit check-e2e build-e2e check-crash check-broker check-programs check-man \
        check-asan build-asan check-tsan build-tsan check-tsan-built check-tsan-stress coverage \
        bench fuzz build-fuzz run-fuzz fuzz-built torture power-cuts schedules cluster soak \
        soak-asan instructions
tests: all $(UNIT) $(STRESS) $(E2E) $(CRASH) $(HANDLERS)

# ---- building ----
# Tests run once and take long to compile, so they are not optimized; then
# _FORTIFY_SOURCE would warn. MQW_OPTIMIZED: the worker is optimized.
$(patsubst $(BUILD)/tests/%,$(BUILD)/obj/tests/%.o,$(UNITS) $(DRIVERS)): \
    private INNER = $(if $(OPTIMIZED),-O0 -U_FORTIFY_SOURCE $(if $(SANITIZE),,-DMQW_OPTIMIZED))

# Test programs that link with parts of a tool
$(filter $(BUILD)/tests/unit/top/%,$(UNITS)): $(call obj,$(wildcard scripts/mqctl/top/draw/*.c))
$(BUILD)/tests/unit/serve/test_confine: private LIBS += $(SECCOMP_LIBS)
$(BUILD)/tests/unit/amqp/test_mqdlq_known: $(call obj,scripts/mqdlq/amqp/known.c)
$(BUILD)/tests/fuzz/fuzz_decode: $(call obj,scripts/mqdlq/decode.c)
$(BUILD)/tests/fuzz/fuzz_serve_path: $(call obj,scripts/mqctl/serve/ask/path.c scripts/mqctl/serve/guard.c)
$(BUILD)/tests/fuzz/fuzz_serve_path: private LIBS += $(HTTP_LIBS)
# The test of a file of common/ links without the worker.
OF_COMMON := $(filter $(addprefix %/test_,$(basename $(notdir $(COMMON)))),$(UNITS))
$(FIXTURES): $(call obj,$(filter-out %_clock.c,$(wildcard tests/fixtures/*.c)))
	$(archive)
# A clock of a test's own comes before the archives, which have the real one.
# includes,HEADERS: the tests with one of these, which are separated by |
includes  = $(patsubst %.c,$(BUILD)/%,$(shell grep -rlE --include='*.c' '"tests/.*/($(1))\.h"' tests/unit))
$(call includes,virtual_clock|flow_fixture): $(call obj,tests/fixtures/virtual_clock.c)
$(call includes,passing_clock|stream_fixture): $(call obj,tests/fixtures/passing_clock.c)
$(UNITS) $(DRIVERS): $(HARNESS)
$(UNITS): $(FIXTURES)
# Criterion uses libgit2 to print how two texts differ, which no test asks for.
# Loading libgit2, with the fifteen libraries that it needs, takes half of the
# processor time of a usual test. So tests load an empty library of that name.
NO_GIT    := $(BUILD)/tests/lib/no_git.so
$(NO_GIT): $(BUILD)/flags
	$(call do,LD,$@,name=$$(objdump -p $$($(CC) -print-file-name=libcriterion.so) 2>/dev/null | sed -n 's/.*NEEDED *\(libgit2.*\)/\1/p') && : $${name:=libgit2.so} && \
	printf 'int git_%s(void) { return -1; }\n' libgit2_init libgit2_shutdown diff_buffers | \
	$(CC) -x c -shared -fPIC -Wl$(comma)-soname$(comma)$$name -o $@ - && ln -sf $(@F) $(@D)/$$name)
$(UNITS) $(DRIVERS): | $(NO_GIT)
$(UNITS) $(DRIVERS): private LIBS += -Wl,--no-gc-sections,--no-as-needed,-rpath,$(abspath $(dir $(NO_GIT))) $(NO_GIT) -Wl,--as-needed -lcriterion -lutil
$(call test,fuzz,fuzz): private EXPORT = -fsanitize=fuzzer
$(BENCH): $(call obj,$(call in,tests/bench,*.c)) $(BUILD)/lib/libmqworker.a
$(BENCH): private LIBS += $(if $(AMQP),-lrabbitmq) -lm
# Tests of a broker also call functions that no program uses.
$(filter $(BUILD)/tests/e2e/amqp/%,$(DRIVERS)): private LIBS += -lrabbitmq
$(TORTURE): $(call obj,$(wildcard tests/crash/torture/*.c))
$(POWER): $(call obj,$(wildcard tests/crash/power/*.c))
$(OF_COMMON) $(TORTURE): $(LIB)
$(filter-out $(OF_COMMON),$(UNITS)) $(STRESSES) $(DRIVERS) $(BENCH) $(call test,fuzz,fuzz): $(ENGINE)
$(BUILD)/tests/%: $(BUILD)/obj/tests/%.o
	$(link)
$(BENCH) $(TORTURE) $(POWER):
	$(link)

WITNESS := $(call obj,tests/crash/torture/torture_message.c tests/crash/torture/torture_witness.c)
$(BUILD)/tests/handlers/torture_exec $(BUILD)/tests/handlers/torture_stream $(BUILD)/tests/plugins/torture.so: $(WITNESS)
$(BUILD)/tests/handlers/%: $(BUILD)/obj/tests/harness/handlers/%.o
	$(link)
$(BUILD)/tests/plugins/%.so: $(BUILD)/obj/tests/harness/plugins/%.o
	$(call do,LD,$@,$(LINK_SHARED) -o $@ $^)
# No sanitizer in faults.so, which comes before the runtime of one and calls its
# functions; in clock_shift.so, which is loaded into shells, too; in handlers,
# which start 20 times faster without it.
$(foreach p,faults clock_shift,$(BUILD)/obj/tests/harness/plugins/$(p).o $(BUILD)/tests/plugins/$(p).so) \
$(PROGRAMS) $(PROGRAMS:$(BUILD)/tests/%=$(BUILD)/obj/tests/harness/%.o) $(WITNESS): override SANITIZE :=

# Flow and what is below it, compiled for the thread sanitizer: each atomic
# operation is a call, and tests/schedules/atomics.c has the function. gcc warns
# that the sanitizer does not see a fence; atomics.c does.
STEPPED   := $(call in,worker/flow worker/groups worker/loop worker/rules,*.c) \
             common/base/quick_lock.c common/state/counters.c
SCHEDULES := $(patsubst %.c,$(BUILD)/stepped/%.o,$(STEPPED) $(wildcard tests/schedules/*.c) \
             $(patsubst %,tests/fixtures/%.c,fake_source flow_fixture flow_parts virtual_clock))
NO_FENCE_WARNING := $(call takes,-Wno-tsan)
STEP      = -fsanitize=thread $(NO_FENCE_WARNING) $(call takes,--param=tsan-instrument-func-entry-exit=0)
comma    := ,
WRAPPED  := $(addprefix -Wl$(comma)--wrap=,pthread_mutex_lock pthread_mutex_unlock pthread_cond_wait \
            pthread_cond_signal pthread_cond_broadcast pthread_create poll epoll_wait timerfd_settime sched_yield syscall)
$(BUILD)/stepped/%.o: %.c $(BUILD)/flags
	$(call do,CC,$<,$(CC) $(ALL_CFLAGS) $(if $(filter tests/%,$<),-Itests/schedules,$(STEP)) -MMD -MP -c -o $@ $<)
$(ORDERS): $(SCHEDULES) $(ENGINE)
$(SCHEDULER): private EXPORT = $(WRAPPED)
$(SCHEDULER):
	$(link)
# The same with a fault put in: the first line of the .sed names the file.
$(BUILD)/tests/schedules/fault_%: tests/schedules/faults/%.sed
	@mkdir -p $(BUILD)/stepped/faults
	$(call do,LD,$@,f=$$(sed -n '1s/^# //p' $<) c=$(BUILD)/stepped/faults/$*.c && \
	sed -f $< $$f >$$c; ! cmp -s $$f $$c || { echo "$<: changes nothing" >&2; exit 1; }; \
	$(CC) $(ALL_CFLAGS) -w $(STEP) -c -o $${c%c}o $$c && $(LINK) $(WRAPPED) -o $@ $${c%c}o \
	    $$(printf '%s\n' $(filter %.o,$^) | grep -v "/stepped/$${f%c}o$$") $(ENGINE) $(LIBS))

# ---- running ----
# Tests mostly wait, so more of them run at a time than there are processors;
# under a sanitizer they need more of these. LONELY tests use up what a user has
# (RLIMIT_MSGQUEUE, processes) or look at all queues, and run alone. LONG tests
# take over ten seconds and start first, the longest before the others.
TEST_JOBS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) $(if $(MQW_SANITIZED),+ 3,* 4))))
LONELY   := bench mqctl_look mqlimit worker_limits
LONG     := install every_instruction worker_restart amqp_move amqp_letters torture_points kill amqp_worker amqp_share \
            serve_browser worker_files amqp_fake groups_kill faults_look run_limits demo schedules amqp_groups \
            scale clock_steps worker_delayed serve timeout faults_calls damaged_state faults_memory \
            serve_limits worker_retries mqctl_spool amqp_main_job breaker_failures groups_full groups_delayed \
            faults_groups waits on_dead soak latency power torture groups_blocked amqp_forward amqp_send
# check-unit leaves out stress tests and these unit tests, which measure times.
SLOW     := latency
UNDER_TEST ?= $(BUILD)
PLACES    = MQW_BIN=$(abspath $(1)/bin) MQW_HANDLERS=$(abspath $(BUILD)/tests)
run       = @$(call PLACES,$(UNDER_TEST)) scripts/run-tests -j $(TEST_JOBS) \
            --long $(foreach l,$(LONG),$(call named,$(l),$(1))) \
            --short $(filter-out $(call named,$(LONG) $(LONELY),$(1)),$(1)) --alone $(call named,$(LONELY),$(1))
check: $(UNIT) $(STRESS) $(E2E) $(CRASH) $(HANDLERS) $(BIN) check-man
	$(call run,$(CRASH) $(E2E) $(STRESS) $(UNIT))
# build-unit and build-e2e build what check-unit and check-e2e run.
check-unit build-unit: $(filter-out $(call named,$(SLOW),$(UNIT)),$(UNIT))
	$(if $(filter check-%,$@),$(call run,$^))
check-e2e build-e2e: $(E2E) $(HANDLERS) $(BIN)
	$(if $(filter check-%,$@),$(call run,$(E2E)))
check-crash: $(CRASH) $(HANDLERS) $(BIN)
	$(call run,$(CRASH))
# Each of these starts a broker, which needs a processor for some seconds.
check-broker: TEST_JOBS = $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
check-broker: $(filter $(BUILD)/tests/e2e/amqp/%,$(E2E)) $(HANDLERS) $(BIN)
	$(call run,$(filter $(BUILD)/tests/e2e/amqp/%,$(E2E)))
check-programs: $(E2E) $(CRASH) $(HANDLERS)
	$(call run,$(CRASH) $(E2E))
check-man:
	@command -v mandoc >/dev/null || exit 0; for m in $(MAN); do mandoc -Tlint -Wwarning $$m || exit 1; done

# ---- sanitizers ----
# DRY tests run under no sanitizer: they test documents, packages, measurements
# or foreign programs. SINGLE tests do not run under the thread sanitizer: their
# programs have one thread, or amqp_worker tests the same, or fault points are
# needed, which the programs built for it lack.
DRY      := amqp_main_job bench completion container demo docs docs_agree docs_pages docs_producers \
            every_instruction hardening install instructions latency man power run_tests runbook schedules soak
SINGLE   := amqp_doctor amqp_letters amqp_move amqp_send amqp_serve damaged_state faults_look faults_tools \
            harness hostile_state hostile_text mqctl_look mqdlq mqdlq_removed mqdlq_replay mqsend serve \
            serve_browser serve_confined serve_described serve_further serve_limits serve_readers serve_ways \
            torture_points worker_limits
# build-asan, build-tsan and build-fuzz build what the targets check-asan,
# check-tsan and fuzz run.
check-asan build-asan:
	MQW_SANITIZED=1 MQW_TEST_SLOW=5 KILLS=40 MQW_TEST_NEAR=60 $(MAKE) BUILD=$(BUILD)/asan \
	    $(if $(filter build-%,$@),tests,check) SKIP="$(DRY)" CFLAGS="-O1 -g1 -fno-omit-frame-pointer" \
	    SANITIZE="-fsanitize=address,undefined -fno-sanitize-recover=all"
# Criterion cannot start under the thread sanitizer: programs and stress tests
# are built with it, and the tests that drive the programs without.
tsan      = $(MAKE) BUILD=$(BUILD)/tsan CFLAGS="-O1 -g1" SANITIZE="-fsanitize=thread $(NO_FENCE_WARNING)"
build-tsan:
	+$(tsan) check-tsan-built
check-tsan: $(E2E) $(CRASH) $(HANDLERS)
	+$(tsan) check-tsan-stress
	MQW_SANITIZED=1 MQW_TEST_SLOW=10 KILLS=40 MQW_TEST_NEAR=60 $(MAKE) UNDER_TEST=$(BUILD)/tsan check-programs \
	    SKIP="$(DRY) $(SINGLE)"
check-tsan-built: $(STRESS) $(BIN)
check-tsan-stress: check-tsan-built
	$(call run,$(STRESS))
# Lines and branches that ran. In worker_limits programs run as users that cannot
# write the counters.
coverage:
	@find $(BUILD)/coverage -name '*.gcda' -delete 2>/dev/null; \
	MQW_TEST_WHOLE=1 MQW_TEST_SLOW=3 KILLS=40 MQW_TEST_NEAR=60 $(MAKE) BUILD=$(BUILD)/coverage check \
	    CC=gcc CFLAGS="-Og -g" SANITIZE="--coverage -fprofile-update=atomic" \
	    SKIP="$(filter-out completion,$(DRY)) worker_limits"; status=$$?; \
	scripts/coverage $(BUILD)/coverage/obj && exit $$status
# Each fuzzing target runs for FUZZ_SECONDS, from tests/fuzz/corpus and from what
# earlier runs in this build folder found; FUZZ_SOON targets for a quarter of it,
# in which they find all branches but one. As many run at a time as make may run.
FUZZ_SECONDS ?= 30
FUZZ_SOON := backoff broker_operand clock
RUNS     := $(FUZZ:$(BUILD)/tests/fuzz/%=run-%)
fuzz build-fuzz:
	$(MAKE) BUILD=$(BUILD)/fuzz CC=clang CFLAGS="-O1 -g1" $(if $(filter build-%,$@),fuzz-built,run-fuzz) -k -O \
	    $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell getconf _NPROCESSORS_ONLN)) \
	    SANITIZE="-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all"
fuzz-built: $(FUZZ)
run-fuzz: $(RUNS)
.PHONY: $(RUNS)
$(RUNS): run-fuzz_%: $(FUZZ)
	@scripts/fuzz $* $(BUILD)/tests/fuzz/fuzz_$* $(BUILD)/corpus/$* \
	    $$(($(FUZZ_SECONDS) / $(if $(filter $*,$(FUZZ_SOON)),4,1) + 1))

# ---- long tests and measurements; *_FLAGS=--help lists what there is ----
bench: $(BENCH) $(BIN) $(BUILD)/tests/plugins/meter.so
	@MQW_BIN=$(abspath $(BUILD)/bin) $(BENCH) $(BENCH_FLAGS)
torture: $(TORTURE) $(HANDLERS) $(BIN) points
	@$(call PLACES,$(BUILD)) MQW_POINTS_BIN=$(abspath $(BUILD)/points/bin) $(TORTURE) $(TORTURE_FLAGS)
instructions: $(TORTURE) $(BUILD)/tests/plugins/nothing.so $(BIN)
	@$(call PLACES,$(BUILD)) $(TORTURE) --instructions
power-cuts: $(POWER) $(HANDLERS) $(BIN)
	@$(call PLACES,$(BUILD)) $(POWER) $(POWER_FLAGS)
SCHEDULES_FLAGS ?= --singles 0 --pairs 30000 --runs 40000
schedules: $(ORDERS)
	@$(SCHEDULER) $(SCHEDULES_FLAGS)
CLUSTER_SECONDS ?= 1800
SOAK_SECONDS ?= 3600
for_long  = TESTFLAGS="-j1 --timeout $$(($(1) + 600)) $(2)" $(MAKE) -s
DAYS      = --filter=*soak/nothing*
cluster:
	+@MQW_CLUSTER_SECONDS=$(CLUSTER_SECONDS) $(call for_long,$(CLUSTER_SECONDS)) check ONLY=amqp_cluster && \
	    grep ^cluster: $(BUILD)/tests/e2e/amqp/test_amqp_cluster.log
soak:
	+@MQW_SOAK_SECONDS=$(SOAK_SECONDS) $(call for_long,$(SOAK_SECONDS),$(DAYS)) check ONLY="soak $(if $(AMQP),amqp_soak)" && \
	    grep -h ^soak: $(BUILD)/tests/crash/test_soak.log $(if $(AMQP),$(BUILD)/tests/e2e/amqp/test_amqp_soak.log)
soak-asan:
	+@MQW_SOAK_SECONDS=$(SOAK_SECONDS) $(call for_long,$(SOAK_SECONDS),$(DAYS)) check-asan DRY= ONLY=soak && \
	    grep -h ^soak: $(BUILD)/asan/tests/crash/test_soak.log

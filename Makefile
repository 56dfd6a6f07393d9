# mqworker - GNU make. No source is listed here: make finds new files by folder.
#
#   make               programs in build/bin, the library in build/lib
#   make check         every test; ONLY="wheel queue" runs test_wheel, test_queue
#   make check-unit    (check-e2e, check-crash, check-broker, check-man): a part
#   make check-asan    (check-tsan, fuzz) run under sanitizers; FUZZ_SECONDS=30
#   make torture       (schedules, power-cuts, soak, soak-asan, cluster) run the
#                      long tests; tests/crash/README.md explains them
#   make bench         (instructions, coverage) measure; BENCH_FLAGS=--help
#   make lint          check the style of the sources; make format: clang-format
#   make demo          show the main job, live
#   make install       (uninstall, deb, rpm, source) PREFIX=/usr/local, DESTDIR=
#   make clean         remove build;  make help: print this text
#
#   V=1 BUILD=build                print whole commands; the folder for results
#   CC= CFLAGS="-O2 -g" LDFLAGS= WERROR=-Werror SANITIZE= EMULATOR=qemu-arm
#   MINIMAL=1                      leave out queues of a broker, serve and top;
#                                  LDFLAGS=-static-pie: load no library at all
#   LTO=  AMQP=  HARDEN= HARDEN_LINK=     empty: fast link; no broker; unhardened
#   ONLY= SKIP= TEST_JOBS= TESTFLAGS=     tests to run, to leave out, at a time;
#                                  flags for Criterion
#   MQW_TEST_SLOW=N  MQW_TEST_WHOLE=1     multiply time limits; try all positions
#                                  of long sweeps, not 1 in 7
BUILD     ?= build
CFLAGS    ?= $(if $(MINIMAL),-Os,-O2) -g
VERSION   := 0.1.0
SOVERSION := 0

# ---- libraries ----
# Optional: librabbitmq for amqp:// operands, which is loaded when one is given,
# libmicrohttpd and libmd for `mqctl serve`, libseccomp to confine it.
AMQP      ?= $(if $(MINIMAL),,$(shell pkg-config --atleast-version=0.11 librabbitmq 2>/dev/null && echo 1))
PKGS      := libbsd sqlite3 jansson
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS) $(if $(AMQP),librabbitmq) 2>/dev/null) $(if $(AMQP),-DMQW_AMQP)
PKG_LIBS  := $(shell pkg-config $(if $(findstring -static,$(LDFLAGS)),--static) --libs $(PKGS) 2>/dev/null)
LIBS      = $(PKG_LIBS) -lrt -ldl
HTTP_LIBS := $(if $(MINIMAL),,$(shell pkg-config --libs libmicrohttpd libmd 2>/dev/null))
SECCOMP_LIBS := $(if $(HTTP_LIBS),$(shell pkg-config --libs 'libseccomp >= 2.5' 2>/dev/null))
CURSES_LIBS := $(if $(MINIMAL),,$(shell pkg-config --libs ncursesw 2>/dev/null || echo -lncursesw))

# ---- flags ----
WARNINGS  := -Wall -Wextra -Wno-missing-field-initializers -Wpedantic -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wwrite-strings -Wconversion
# takes,FLAG: the flag, if the compiler accepts it
takes     = $(shell echo 'int x;' | $(CC) -Werror $(1) -S -x c -o /dev/null - 2>/dev/null && echo $(1))
# Flags that turn a memory bug into an exit. A sanitizer has its own checks.
# _FORTIFY_SOURCE needs -O, and CFLAGS may have a level of its own.
OPTIMIZED := $(filter-out -O0,$(lastword $(filter -O%,$(CFLAGS))))
FORTIFY   := $(if $(OPTIMIZED),$(if $(findstring _FORTIFY_SOURCE,$(CFLAGS)),,-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2))
HARDEN    := $(if $(SANITIZE),,-fstack-protector-strong $(FORTIFY) \
             $(call takes,-fstack-clash-protection) $(call takes,-fcf-protection))
HARDEN_LINK := $(if $(SANITIZE),,-Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
# Without a PLT a call of the C library is one jump; -z now has bound it already.
NO_PLT    := $(if $(SANITIZE),,$(call takes,-fno-plt))
# Programs are optimized as a whole, tests are not: objects also have machine code. clang lacks -flto-partition: no LTO.
LTO       := $(if $(SANITIZE)$(if $(filter-out -Og,$(OPTIMIZED)),,no),,$(call takes,-flto=auto -ffat-lto-objects -flto-partition=balanced))

# Where words have 32 bits, times and file offsets need more.
WIDE     := $(if $(filter 4,$(shell echo __SIZEOF_LONG__ | $(CC) -E -P - 2>/dev/null)),-D_FILE_OFFSET_BITS=64 -D_TIME_BITS=64)
ALL_CFLAGS  = -std=c11 -D_GNU_SOURCE $(WIDE) -DMQW_VERSION='"$(VERSION)"' $(WARNINGS) $(WERROR) \
              -I. -idirafter worker -pthread -fPIC -ffunction-sections -fdata-sections $(if $(MINIMAL),-fno-asynchronous-unwind-tables) $(CFLAGS) $(SANITIZE) $(PKG_CFLAGS)
COMPILE     = $(CC) $(HARDEN) $(ALL_CFLAGS) $(INNER)
LINK_FLAGS  = -pthread $(WHOLE) $(HARDEN_LINK) $(if $(SANITIZE),,-Wl$(comma)--gc-sections) $(CFLAGS) $(SANITIZE) $(LDFLAGS)
LINK        = $(CC) -pie $(LINK_FLAGS)
LINK_SHARED = $(CC) -shared $(LINK_FLAGS)
# The contents of $(BUILD)/flags; a change builds everything again. WERROR changes no object.
FLAGS    := $(filter-out $(WERROR),$(COMPILE)) $(LTO) : $(LINK) $(LIBS) $(HTTP_LIBS) $(SECCOMP_LIBS)
WHOLE     = $(if $(LTO),-fno-lto)

# ---- files ----
# in,FOLDERS,PATTERN: the files below the folders; amqp/ needs librabbitmq
in        = $(sort $(shell find $(1) -name '$(2)' $(if $(AMQP),,-not -path '*/amqp/*')))
obj       = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
ifdef SHARED # the build from which `make points` takes the objects without a fault point
POINTED  := $(patsubst $(SHARED)/obj/%.d,%.c,$(shell grep -rl --include='*.d' common/base/fault_point.h $(addprefix $(SHARED)/obj/,common worker scripts)))
obj       = $(patsubst %.c,$(BUILD)/obj/%.o,$(filter $(POINTED),$(1))) \
            $(patsubst %.c,$(SHARED)/obj/%.o,$(filter-out $(POINTED),$(1)))
endif

# Each folder of scripts/ with C in it is a program of that name.
TOOLS    := $(sort $(foreach f,$(call in,scripts,*.c),$(word 2,$(subst /, ,$(f)))))
BIN      := $(patsubst %,$(BUILD)/bin/%,mqworker $(TOOLS))
LEFT_OUT := $(if $(HTTP_LIBS),,scripts/mqctl/serve/%) $(if $(SECCOMP_LIBS),%/no_confine.c,%/confine.c) $(if $(CURSES_LIBS),,scripts/mqctl/top/%)
tool      = $(call obj,$(filter-out $(LEFT_OUT),$(call in,scripts/$(1),*.c)))
WEB_FILES := $(if $(HTTP_LIBS),$(BUILD)/obj/scripts/mqctl/serve/web_files.o)
COMMON   := $(call obj,$(call in,common,*.c))
PROGRAM  := worker/main.c worker/notify.c
WORKER   := $(call obj,$(filter-out $(PROGRAM),$(call in,worker,*.c)))
# Tools and tests link with these archives; the public library shows only mqw_.
LIB      := $(BUILD)/obj/libcommon.a
ENGINE   := $(BUILD)/obj/libengine.a
PUBLIC   := $(BUILD)/lib/libmqworker.a $(BUILD)/lib/libmqworker.so.$(SOVERSION)
MAN      := $(wildcard docs/*.[1-8])
COMPLETION := $(foreach b,$(notdir $(BIN)),$(addprefix $(BUILD)/completion/,$(b).bash _$(b) $(b).fish))

.PHONY: all help completion lint format show-cflags demo install uninstall deb rpm source clean points programs always
.SECONDARY .DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

all: programs $(PUBLIC) completion
programs: $(BIN)
completion: $(COMPLETION)
help:
	@sed -n '1d; /^#/!q; s/^# \{0,1\}//p' Makefile

# ---- building ----
# do,WHAT,FILE,COMMAND: print "WHAT FILE" and run the command. V=1 prints the
# command, and make -s prints neither.
silent = $(findstring s,$(filter-out --%,$(firstword -$(MAKEFLAGS))))
define do
@mkdir -p $(@D)
$(if $(V),,@$(if $(silent),,echo '$(1) $(patsubst $(CURDIR)/%,%,$(2))';))$(3)
endef
compile = $(call do,CC,$<,$(COMPILE) -MMD -MP -c -o $@ $<)
link    = $(call do,LD,$@,$(LINK) $(EXPORT) -o $@ $^ $(LIBS))
archive = $(call do,AR,$@,rm -f $@ && $(AR) rcs $@ $^)

# Everything needs this file, so this is the place to name missing libraries.
$(BUILD)/flags: always
	@$(if $(PKG_LIBS),,$(missing))
	@mkdir -p $(@D)
	@printf '%s\n' '$(subst ','\'',$(FLAGS))' >$@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@
missing = lack=$$(command -v pkg-config >/dev/null || echo pkg-config; for p in $(PKGS); do pkg-config --exists $$p 2>/dev/null || echo $$p; done); \
    echo "make: not found:" $$lack"; scripts/deps installs what is missing" >&2; exit 1

# Only what mqworker.h declares is exported, so inner calls need no detour. The
# rooms on the path of a message also get NO_PLT and LTO.
$(WORKER) $(COMMON): private INNER = -fvisibility=hidden
HOT := $(addprefix $(BUILD)/obj/,$(addsuffix /%,worker/flow worker/groups worker/handlers worker/rules \
       worker/source/mq common/base common/custody common/message common/mq) common/state/counters.o)
$(filter $(HOT),$(WORKER) $(COMMON)): private INNER = -fvisibility=hidden $(NO_PLT) $(LTO)
$(BUILD)/obj/%.o: %.c $(BUILD)/flags
	$(compile)
$(BUILD)/obj/%.o: $(BUILD)/gen/%.c $(BUILD)/flags
	$(compile)
$(BUILD)/gen/scripts/mqctl/serve/settings.tsv: $(BUILD)/bin/mqworker
	$(call do,GEN,$@,$(EMULATOR) $< --options-dump >$@)
$(BUILD)/gen/scripts/mqctl/serve/web_files.c: scripts/embed $(sort $(wildcard scripts/mqctl/serve/web/*)) $(BUILD)/gen/scripts/mqctl/serve/settings.tsv
	$(call do,GEN,$@,$^ >$@)

$(LIB): $(COMMON)
$(ENGINE): $(WORKER) $(COMMON)
$(BUILD)/lib/libmqworker.a: $(BUILD)/obj/mqworker.o
# The rule removes the old archive, so that no member of a deleted file remains.
$(LIB) $(ENGINE) $(BUILD)/lib/libmqworker.a:
	$(archive)

# mqworker has all objects, as a plugin may call any mqw_ function.
$(BUILD)/bin/mqworker: $(call obj,$(PROGRAM)) $(WORKER) $(COMMON)
$(BUILD)/bin/mqworker: private WHOLE = $(LTO)
$(BUILD)/bin/mqworker: private EXPORT = -Wl,--export-dynamic-symbol='mqw_*'
$(foreach t,$(TOOLS),$(eval $(BUILD)/bin/$(t): $(call tool,$(t))))
$(BUILD)/bin/mqctl: $(WEB_FILES)
$(BUILD)/bin/mqctl: private LIBS += $(CURSES_LIBS) $(HTTP_LIBS) $(SECCOMP_LIBS) -lm
$(TOOLS:%=$(BUILD)/bin/%): $(LIB)
$(BIN):
	$(link)

# The public library: one object in which all but mqw_ is local.
$(BUILD)/obj/mqworker.o: $(WORKER) $(COMMON)
	$(call do,LD,$@,$(if $(LTO),$(CC) -nostdlib $(HARDEN) $(ALL_CFLAGS) $(LTO) -flinker-output=nolto-rel,$(LD)) -r -o $@.all $^)
	$(if $(V),,@)$(or $(OBJCOPY),objcopy) -w --keep-global-symbol='mqw_*' $@.all $@
	@rm $@.all
$(BUILD)/lib/libmqworker.so.$(SOVERSION): private SONAME = -Wl,-soname,$(@F)
$(BUILD)/lib/libmqworker.so.$(SOVERSION): $(BUILD)/obj/mqworker.o
	$(call do,LD,$@,$(LINK_SHARED) $(SONAME) -o $@ $^ $(LIBS) && ln -sf $(@F) $(@D)/libmqworker.so)

completed = $(call do,GEN,$@,{ $(EMULATOR) $< --options-dump; $(EMULATOR) $(BUILD)/bin/mqworker --options-dump; } | awk -v shell=$(1) -f scripts/completion.awk >$@)
$(COMPLETION): $(BUILD)/bin/mqworker scripts/completion.awk
$(BUILD)/completion/%.bash: $(BUILD)/bin/%
	$(call completed,bash)
$(BUILD)/completion/_%: $(BUILD)/bin/%
	$(call completed,zsh)
$(BUILD)/completion/%.fish: $(BUILD)/bin/%
	$(call completed,fish)

# The programs with the fault points of common/base/fault_point.h
points: $(BIN)
	@$(MAKE) BUILD=$(BUILD)/points SHARED=$(BUILD) CFLAGS="$(CFLAGS) -DMQW_FAULT_POINTS" programs

# ---- other targets ----
install: all
	@scripts/install $(BUILD) $(VERSION) $(SOVERSION) "$(PKGS)"
uninstall:
	@scripts/install --remove $(BUILD) $(VERSION) $(SOVERSION) "$(PKGS)"
deb rpm source:
	@scripts/package $@ $(BUILD) $(VERSION)
lint:
	scripts/lint
format:
	clang-format -i $(call in,common worker scripts tests,*.[ch])
show-cflags: # for scripts/lint and editors
	@printf '%s\n' "$(subst ",\",$(ALL_CFLAGS))"
demo: all
	scripts/demo
clean:
	rm -rf $(BUILD)

include tests/tests.mk
-include $(shell find $(BUILD)/obj $(BUILD)/stepped -name '*.d' 2>/dev/null)

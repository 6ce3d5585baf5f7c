# Agent Sandbox. `make help` lists the targets.
#
#   BUILD=release|debug|asan|tsan|coverage|fuzz   the flavour; each has a folder of its own under build/
#   CC=gcc|clang                             the compiler
#   O=DIR                                    another build folder
#   JOBS=N                                   how many compilers run and check start at once
#   V=1                                      show the commands

ifeq ($(origin CC),default)
CC = gcc
endif
BUILD ?= release
O     ?= build/$(BUILD)$(if $(findstring clang,$(CC)),-clang)
JOBS  ?= $(shell nproc)

# --- flavours ---------------------------------------------------------------------------------------------------

WARNINGS = -Wall -Wextra -Werror -Wshadow -Wconversion -Wvla -Wstrict-prototypes -Wmissing-prototypes \
           -Wno-missing-field-initializers
HARDENED = -fstack-protector-strong -fPIE
LINK_HARDENED = -pie -Wl,-z,relro,-z,now

FLAVOUR_release  = -O2 -g -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
FLAVOUR_debug    = -O0 -g3
FLAVOUR_asan     = -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined
FLAVOUR_tsan     = -O1 -g -fsanitize=thread
FLAVOUR_coverage = -O0 -g --coverage
FLAVOUR_fuzz     = -O1 -g -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
FLAVOUR = $(FLAVOUR_$(BUILD))
ifeq ($(FLAVOUR),)
$(error BUILD=$(BUILD) is not one of release debug asan tsan coverage fuzz)
endif

CPPFLAGS += -D_GNU_SOURCE -I. -Iserver -I$(O)
CFLAGS   += -std=gnu17 $(WARNINGS) $(HARDENED) $(FLAVOUR) -pthread
LDFLAGS  += $(LINK_HARDENED) $(FLAVOUR) -pthread

# With V=1 make shows the whole command, otherwise what it makes.
say     = $(if $(V),,@echo "  $(1) $@";)
COMPILE = $(call say,cc  )$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@
LINK    = $(call say,link)$(CC) $(LDFLAGS) -o $@

# --- rooms: each is an archive, and links with the ones to its left only -----------------------------------------

SERVER_LIBS     = -lcivetweb -lpq -lhiredis -lcurl -lcjson -lcrypto -larchive -lm
SUPERVISOR_LIBS = -lseccomp -lcap

CPPFLAGS += -I/usr/include/postgresql

# sandboxctl is the operator's program; it needs no HTTP.
CTL = server/sandboxctl.c server/doctor.c server/operate.c $(wildcard server/images/*.c)

room = $(patsubst %.c,$(O)/%.o,$(sort $(foreach dir,$(1),$(wildcard $(dir)/*.c))))

$(O)/common.a: $(call room,common)
$(O)/store.a:  $(call room,server/store)
$(O)/http.a:   $(call room,server/http)
$(O)/run.a:    $(call room,server/run)
$(O)/api.a:    $(call room,server/api server/api/control server/api/network)
$(O)/server.a: $(patsubst %.c,$(O)/%.o,$(filter-out server/main.c $(CTL),$(wildcard server/*.c)))
$(O)/supervisor.a: $(patsubst %.c,$(O)/%.o,$(filter-out supervisor/main.c supervisor/init.c,$(wildcard supervisor/*.c)))

COMMON_A = $(O)/common.a
STORE_A  = $(O)/store.a $(COMMON_A)
HTTP_A   = $(O)/http.a $(STORE_A)
RUN_A    = $(O)/run.a $(STORE_A)
API_A    = $(O)/api.a $(O)/run.a $(HTTP_A)
SERVER_A = $(O)/server.a $(API_A)

PROGRAMS = $(O)/sandbox-server $(O)/sandbox-supervisor $(O)/sandbox-init $(O)/sandboxctl

.PHONY: all
all: $(PROGRAMS) ## build the programs
	@:

# Whole archives: the schemas of queries are weak, so that nothing else would pull their files in.
WHOLE = -Wl,--whole-archive $(1) -Wl,--no-whole-archive

$(O)/sandbox-server: $(O)/server/main.o $(SERVER_A)
	$(LINK) $< $(call WHOLE,$(SERVER_A)) $(SERVER_LIBS)

ifeq ($(BUILD),tsan)
# It has no threads, but the sanitizer starts one, whose locks nobody releases in the processes that clone3(2) makes.
$(O)/sandbox-supervisor: $(wildcard supervisor/*.[ch] supervisor/*.def common/*.[ch] common/*.def) $(O)/sandbox-init
	+$(MAKE) --no-print-directory BUILD=release O=$(O)/unthreaded $(O)/unthreaded/sandbox-supervisor
	cp $(O)/unthreaded/sandbox-supervisor $@
else
$(O)/sandbox-supervisor: $(O)/supervisor/main.o $(O)/supervisor.a $(COMMON_A) $(O)/sandbox-init
	$(LINK) $< $(O)/supervisor.a $(COMMON_A) $(SUPERVISOR_LIBS)
endif

$(O)/sandboxctl: $(CTL:%.c=$(O)/%.o) $(RUN_A)
	$(LINK) $(CTL:%.c=$(O)/%.o) -Wl,--start-group $(RUN_A) -Wl,--end-group $(SERVER_LIBS)

# PID 1 of each sandbox: static and tiny (musl), with no sanitizer, since it runs under the sandbox's own filter.
$(O)/sandbox-init: supervisor/init.c common/clock.h $(wildcard supervisor/*.h)
	@mkdir -p $(@D)
	$(call say,link)musl-gcc -std=gnu17 -D_GNU_SOURCE -I. -Wall -Wextra -Werror -Os -static -s -o $@ $<

%.a:
	@mkdir -p $(@D)
	@rm -f $@
	$(if $(V),,@)$(AR) rcs $@ $^

$(O)/%.o: %.c
	@mkdir -p $(@D)
	$(COMPILE) $<

$(O)/%.o: $(O)/%.c
	$(COMPILE) $<

# --- SQL, embedded ------------------------------------------------------------------------------------------------

SQL_QUERIES    = $(sort $(wildcard sql/queries/*.sql))
SQL_MIGRATIONS = $(sort $(wildcard sql/migrations/*.sql))

$(O)/sql/queries.def: sql/embed.awk $(SQL_QUERIES)
	@mkdir -p $(@D)
	$(if $(V),,@)awk -f sql/embed.awk -v mode=queries $(SQL_QUERIES) >$@.new && mv $@.new $@

$(O)/sql/migrations.def: sql/embed.awk $(SQL_MIGRATIONS)
	@mkdir -p $(@D)
	$(if $(V),,@)awk -f sql/embed.awk -v mode=migrations $(SQL_MIGRATIONS) >$@.new && mv $@.new $@

# Objects of the server, and their tests, read the names of the queries.
$(call room,server server/store server/http server/run server/api server/api/control server/api/network \
            $(wildcard tests/unit/*) tests/sandbox): \
	$(O)/sql/queries.def $(O)/sql/migrations.def

# --- pages that show the API, embedded --------------------------------------------------------------------------------

# Swagger UI and ReDoc, from one package that carries both; its version and digest are in assets.txt. Without a network: fill
# ASSETS with the files of assets.def, and touch ASSETS/fetched.
ASSETS ?= build/assets

$(ASSETS)/fetched: server/api/assets.txt
	@rm -rf $(ASSETS) && mkdir -p $(ASSETS)/package
	$(call say,get )python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
		--dest $(ASSETS) -r $<
	$(if $(V),,@)cd $(ASSETS) && python3 -m zipfile -e drf_spectacular_sidecar-*.whl package && \
		cd package/drf_spectacular_sidecar/static/drf_spectacular_sidecar && \
		mv swagger-ui-dist/LICENSE "$(abspath $(ASSETS))/swagger-ui.LICENSE" && \
		mv redoc/LICENSE "$(abspath $(ASSETS))/redoc.LICENSE" && \
		mv swagger-ui-dist/swagger-ui.css swagger-ui-dist/swagger-ui-bundle.js* redoc/bundles/redoc.standalone.js* \
			"$(abspath $(ASSETS))/"
	@rm -rf $(ASSETS)/package $(ASSETS)/*.whl $(ASSETS)/*.map
	@touch $@

$(O)/server/api/assets.o: server/api/assets.S server/api/assets.def $(ASSETS)/fetched $(wildcard server/api/pages/*)
	@mkdir -p $(@D)
	$(if $(V),,@)$(CC) -I. -Wa,-I$(ASSETS) -Wa,-Iserver/api/pages -c -o $@ $<

$(O)/api.a: $(O)/server/api/assets.o

# --- tests ----------------------------------------------------------------------------------------------------------

# tests/unit/ROOM/test_x.c is a program of its own, linked with its room and the ones to its left.
UNIT = $(patsubst %.c,$(O)/%,$(wildcard tests/unit/*/test_*.c))
SANDBOX = $(patsubst %.c,$(O)/%,$(wildcard tests/sandbox/test_*.c))
UNIT_LIBS = -lcheck -lsubunit -lrt -lm

$(O)/tests/unit/common/%: $(O)/tests/unit/common/%.o $(COMMON_A)
	$(LINK) $^ $(UNIT_LIBS) -lcrypto -larchive
# Whole, since schemas are reached through weak names, which pull nothing out of an archive.
$(O)/tests/unit/store/%: $(O)/tests/unit/store/%.o $(STORE_A)
	$(LINK) $< -Wl,--whole-archive $(O)/store.a -Wl,--no-whole-archive $(COMMON_A) $(UNIT_LIBS) $(SERVER_LIBS)
$(O)/tests/unit/http/%: $(O)/tests/unit/http/%.o $(HTTP_A)
	$(LINK) $< -Wl,--start-group $(HTTP_A) -Wl,--end-group $(UNIT_LIBS) $(SERVER_LIBS)
$(O)/tests/unit/run/%: $(O)/tests/unit/run/%.o $(RUN_A)
	$(LINK) $< -Wl,--start-group $(RUN_A) -Wl,--end-group $(UNIT_LIBS) $(SERVER_LIBS)
$(O)/tests/unit/api/%: $(O)/tests/unit/api/%.o $(API_A)
	$(LINK) $< -Wl,--start-group $(API_A) -Wl,--end-group $(UNIT_LIBS) $(SERVER_LIBS)
$(O)/tests/unit/server/%: $(O)/tests/unit/server/%.o $(SERVER_A)
	$(LINK) $< -Wl,--start-group $(SERVER_A) -Wl,--end-group $(UNIT_LIBS) $(SERVER_LIBS)
$(O)/tests/unit/supervisor/%: $(O)/tests/unit/supervisor/%.o $(O)/supervisor.a $(COMMON_A)
	$(LINK) $^ $(UNIT_LIBS) $(SUPERVISOR_LIBS) -lcrypto
$(O)/tests/unit/ctl/%: $(O)/tests/unit/ctl/%.o $(filter-out %sandboxctl.o,$(CTL:%.c=$(O)/%.o)) $(RUN_A)
	$(LINK) $< $(filter-out %sandboxctl.o,$(CTL:%.c=$(O)/%.o)) -Wl,--start-group $(RUN_A) -Wl,--end-group $(UNIT_LIBS) $(SERVER_LIBS)
# Each starts a supervisor of its own and runs the probe inside; status 77: it can't run here, and says why.
$(O)/tests/sandbox/%: $(O)/tests/sandbox/%.o $(O)/supervisor.a $(O)/server/run/sandbox.o $(COMMON_A) \
                      | $(O)/sandbox-supervisor $(O)/tests/sandbox/probe $(O)/tests/sandbox/netprobe $(O)/tests/sandbox/treeprobe $(O)/tests/sandbox/battery \
                      $(O)/tests/sandbox/weaken.so $(O)/tests/sandbox/rogue_init
	$(LINK) $^ $(UNIT_LIBS) $(SUPERVISOR_LIBS)
# Static, for any image. The kernel's headers come after musl's own.
MUSL = musl-gcc -std=gnu17 -D_GNU_SOURCE -Wall -Wextra -Werror -O1 -static -I. -idirafter /usr/include \
       -idirafter /usr/include/$(shell uname -m)-linux-gnu
$(O)/tests/sandbox/probe $(O)/tests/sandbox/netprobe $(O)/tests/sandbox/treeprobe: $(O)/%: %.c
	@mkdir -p $(@D)
	$(call say,link)$(MUSL) -o $@ $<
$(O)/tests/sandbox/battery: $(wildcard tests/sandbox/battery/*.[ch] tests/sandbox/battery/*.def)
	@mkdir -p $(@D)
	$(call say,link)$(MUSL) -o $@ $(filter %.c,$^)
$(O)/tests/sandbox/rogue_init: tests/sandbox/rogue_init.c supervisor/init.c common/clock.h $(wildcard supervisor/*.h)
	@mkdir -p $(@D)
	$(call say,link)$(MUSL) -o $@ $<
# Preloaded into a supervisor, which must notice.
$(O)/tests/sandbox/weaken.so: tests/sandbox/weaken.c
	@mkdir -p $(@D)
	$(call say,link)gcc -std=gnu17 -D_GNU_SOURCE -Wall -Wextra -Werror -O1 -shared -fPIC -o $@ $<
LOAD = $(O)/tests/load/bare_civetweb $(O)/tests/load/followers
$(LOAD): $(O)/tests/load/%: $(O)/tests/load/%.o
	$(LINK) $^ -lcivetweb
SANDBOX_BENCH = $(O)/tests/load/sandbox_bench
$(SANDBOX_BENCH): $(O)/tests/load/sandbox_bench.o $(O)/server/run/sandbox.o $(COMMON_A)
	$(LINK) $^

# tests/fuzz/fuzz_x.c, with what it tests: a program that replays tests/fuzz/corpus/x, and with BUILD=fuzz one that goes on from there.
FUZZ = $(patsubst %.c,$(O)/%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_DRIVER = $(if $(filter fuzz,$(BUILD)),-fsanitize=fuzzer,$(O)/tests/fuzz/replay.o)
FUZZ_ROOMS  = $(COMMON_A)
$(O)/tests/fuzz/fuzz_head $(O)/tests/fuzz/fuzz_multipart $(O)/tests/fuzz/fuzz_router: FUZZ_ROOMS = $(HTTP_A)
$(O)/tests/fuzz/fuzz_events $(O)/tests/fuzz/fuzz_dispatch $(O)/tests/fuzz/fuzz_path: FUZZ_ROOMS = $(O)/supervisor.a $(COMMON_A)
$(O)/tests/fuzz/fuzz_%: $(O)/tests/fuzz/fuzz_%.o $(O)/tests/fuzz/replay.o $(HTTP_A) $(O)/supervisor.a
	$(LINK) $< $(FUZZ_DRIVER) -Wl,--start-group $(FUZZ_ROOMS) -Wl,--end-group $(SERVER_LIBS) $(SUPERVISOR_LIBS)

# Test programs read queries.def and their own fixtures; the scripts know where things were built.
$(UNIT:%=%.o) $(SANDBOX:%=%.o): $(O)/sql/queries.def $(O)/sql/migrations.def
unit sandbox soak units api bench memcheck coverage replay check run: export O := $(O)
unit sandbox soak units api bench memcheck coverage replay check: export BUILD := $(BUILD)

.PHONY: tests
tests: $(PROGRAMS) $(UNIT) $(SANDBOX) $(FUZZ)

.PHONY: check unit sandbox units api replay fuzz
check: ## install what is missing, build, run every test and the quick lint
	@container/packages.sh run check
	@+$(MAKE) --no-print-directory -j$(JOBS) tests
	@tests/run.sh unit replay sandbox units api lint

unit: $(UNIT) ## tests without services and privilege
	@tests/run.sh unit

sandbox: $(SANDBOX) $(PROGRAMS) ## tests of the sandbox, as root
	@tests/run.sh sandbox

units: $(PROGRAMS) ## the systemd units under a systemd in namespaces, as root
	@tests/run.sh units

api: $(PROGRAMS) ## tests of the real programs through their API; ARGS goes to pytest
	@tests/run.sh api $(ARGS)

replay: $(FUZZ) ## what fuzzing has found so far, once more
	@tests/run.sh replay

.PHONY: soak
soak: $(O)/tests/sandbox/test_soak $(PROGRAMS) ## a thousand sandboxes and two hundred kill -9, as root; some minutes
	@SOAK=1 TEST_SECONDS=2400 tests/run.sh soak

FUZZ_SECONDS ?= 60
fuzz: ## every fuzz target for FUZZ_SECONDS, one after the other; FUZZ_TARGETS="wire path" chooses
	@container/packages.sh run check fuzz
	@+$(MAKE) --no-print-directory -j$(JOBS) BUILD=fuzz CC=clang O=build/fuzz $(FUZZ:$(O)/%=build/fuzz/%)
	@O=build/fuzz BUILD=fuzz tests/fuzz/run.sh $(FUZZ_SECONDS) $(FUZZ_TARGETS)

.PHONY: bench
bench: ## how fast it is, beside what it is built on
	@container/packages.sh run check bench
	@+$(MAKE) --no-print-directory -j$(JOBS) $(PROGRAMS) $(LOAD) $(SANDBOX_BENCH)
	@tests/run.sh bench

.PHONY: memcheck coverage
memcheck: ## the unit tests under valgrind, BUILD=debug
	@container/packages.sh run check memcheck
	@+$(MAKE) --no-print-directory -j$(JOBS) BUILD=debug $(UNIT:$(O)/%=build/debug/%) O=build/debug
	@O=build/debug tests/run.sh memcheck

coverage: ## which lines the unit tests reach, BUILD=coverage
	@container/packages.sh run check coverage
	@+$(MAKE) --no-print-directory -j$(JOBS) BUILD=coverage O=build/coverage unit
	gcovr --root . --object-directory build/coverage --exclude 'tests/.*' --print-summary

# --- the code itself --------------------------------------------------------------------------------------------------

SOURCES = $(shell git ls-files '*.c' '*.h')

.PHONY: lint format docs
lint: $(PROGRAMS) ## arrows between rooms, bugs, shell, spelling
	@container/packages.sh run check
	@O=$(O) CC=$(CC) tests/lint/lint.sh all

format: ## lay the code out by .clang-format
	clang-format -i $(SOURCES)

docs: ## check the manual pages
	mandoc -T lint -W warning $(wildcard server/*.8 supervisor/*.8)

compile_commands.json: Makefile ## for editors
	@container/packages.sh editors
	bear --output $@ -- $(MAKE) --no-print-directory -B BUILD=debug O=build/editor all

# --- use ---------------------------------------------------------------------------------------------------------------

.PHONY: run
run: ## install what is missing, build, start everything; steered by the environment (README.md)
	@container/packages.sh run
	@+$(MAKE) --no-print-directory -j$(JOBS) all
	@exec container/run.sh

# Units name the programs by their path.
PREFIX ?= /usr
UNITS  = $(wildcard container/systemd/*.service container/systemd/*.socket container/systemd/*.slice)
ADVICE = container/systemd/agent-sandbox.sysctl.conf container/systemd/agent-sandbox.modprobe.conf \
         $(wildcard container/systemd/*.example)
LIB    = $(DESTDIR)$(PREFIX)/lib
MAN    = $(DESTDIR)$(PREFIX)/share/man/man8
DOC    = $(DESTDIR)$(PREFIX)/share/doc/agent-sandbox

.PHONY: install uninstall
install: $(PROGRAMS) ## programs, units and manual pages below DESTDIR, in PREFIX
	install -d $(DESTDIR)$(PREFIX)/sbin $(LIB)/agent-sandbox $(LIB)/systemd/system $(LIB)/sysusers.d $(LIB)/tmpfiles.d $(MAN) $(DOC)
	install -m 0755 $(O)/sandbox-server $(O)/sandbox-supervisor $(O)/sandboxctl $(DESTDIR)$(PREFIX)/sbin/
	install -m 0755 $(O)/sandbox-init container/base-image.sh $(LIB)/agent-sandbox/
	install -m 0644 container/image-packages.txt $(LIB)/agent-sandbox/
	install -m 0644 server/sandboxctl.8 $(MAN)/
	install -m 0644 server/server.8 $(MAN)/sandbox-server.8
	install -m 0644 supervisor/supervisor.8 $(MAN)/sandbox-supervisor.8
	install -m 0644 $(UNITS) $(LIB)/systemd/system/
	sed -i 's|=/usr/sbin/|=$(PREFIX)/sbin/|; s|=/usr/lib/|=$(PREFIX)/lib/|' $(UNITS:container/systemd/%=$(LIB)/systemd/system/%)
	install -m 0644 container/systemd/agent-sandbox.sysusers.conf $(LIB)/sysusers.d/agent-sandbox.conf
	install -m 0644 container/systemd/agent-sandbox.tmpfiles.conf $(LIB)/tmpfiles.d/agent-sandbox.conf
	install -m 0644 README.md LICENSE $(ADVICE) $(DOC)/
	install -m 0644 container/systemd/README.md $(DOC)/systemd.md

uninstall: ## remove what install put there; state, settings and users stay
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/sbin/,sandbox-server sandbox-supervisor sandboxctl)
	rm -f $(addprefix $(MAN)/,sandboxctl.8 sandbox-server.8 sandbox-supervisor.8)
	rm -f $(UNITS:container/systemd/%=$(LIB)/systemd/system/%)
	rm -f $(LIB)/sysusers.d/agent-sandbox.conf $(LIB)/tmpfiles.d/agent-sandbox.conf
	rm -rf $(LIB)/agent-sandbox $(DOC)

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z_.]+:.*## /{printf "  %-22s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: clean
clean: ## remove what was built
	rm -rf build

-include $(shell find $(O) -name '*.d' 2>/dev/null)
.SECONDARY:
.DELETE_ON_ERROR:

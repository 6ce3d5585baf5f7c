# Agent Sandbox. `make help` lists the targets.
#
#   BUILD=debug|release|asan|tsan|coverage   the flavour; each has a folder of its own under build/
#   CC=gcc|clang                             the compiler
#   O=DIR                                    another build folder

BUILD ?= release
O     ?= build/$(BUILD)
STATE_DIR ?= var

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
FLAVOUR = $(FLAVOUR_$(BUILD))
ifeq ($(FLAVOUR),)
$(error BUILD=$(BUILD) is not one of release debug asan tsan coverage)
endif

CPPFLAGS += -D_GNU_SOURCE -I. -Iserver -I$(O)
CFLAGS   += -std=gnu17 $(WARNINGS) $(HARDENED) $(FLAVOUR) -pthread
LDFLAGS  += $(LINK_HARDENED) $(FLAVOUR) -pthread

# --- rooms: each is an archive, and links with the ones to its left only -----------------------------------------

SERVER_LIBS     = -lcivetweb -lpq -lhiredis -lcurl -lcjson -lcrypto
SUPERVISOR_LIBS = -lseccomp -lcap

CPPFLAGS += -I/usr/include/postgresql

room = $(patsubst %.c,$(O)/%.o,$(sort $(foreach dir,$(1),$(wildcard $(dir)/*.c))))

$(O)/common.a: $(call room,common)
$(O)/store.a:  $(call room,server/store)
$(O)/http.a:   $(call room,server/http)
$(O)/run.a:    $(call room,server/run)
$(O)/api.a:    $(call room,server/api server/api/control server/api/network)
$(O)/server.a: $(patsubst %.c,$(O)/%.o,$(filter-out server/main.c,$(wildcard server/*.c)))
$(O)/supervisor.a: $(patsubst %.c,$(O)/%.o,$(filter-out supervisor/main.c supervisor/init.c supervisor/sandboxctl.c,$(wildcard supervisor/*.c)))

COMMON_A = $(O)/common.a
STORE_A  = $(O)/store.a $(COMMON_A)
HTTP_A   = $(O)/http.a $(STORE_A)
RUN_A    = $(O)/run.a $(STORE_A)
API_A    = $(O)/api.a $(O)/run.a $(HTTP_A)
SERVER_A = $(O)/server.a $(API_A)

PROGRAMS = $(O)/sandbox-server $(O)/sandbox-supervisor $(O)/sandbox-init $(O)/sandboxctl

.PHONY: all
all: $(PROGRAMS) ## build the programs

# Whole archives: the schemas of queries are weak, so that nothing else would pull their files in.
WHOLE = -Wl,--whole-archive $(1) -Wl,--no-whole-archive

$(O)/sandbox-server: $(O)/server/main.o $(SERVER_A)
	$(CC) $(LDFLAGS) -o $@ $< $(call WHOLE,$(SERVER_A)) $(SERVER_LIBS)

$(O)/sandbox-supervisor: $(O)/supervisor/main.o $(O)/supervisor.a $(COMMON_A) $(O)/sandbox-init
	$(CC) $(LDFLAGS) -o $@ $< $(O)/supervisor.a $(COMMON_A) $(SUPERVISOR_LIBS)

# PID 1 of each sandbox: static and tiny (musl), with no sanitizer, since it runs under the sandbox's own filter.
$(O)/sandbox-init: supervisor/init.c $(wildcard supervisor/*.h)
	@mkdir -p $(@D)
	musl-gcc -std=gnu17 -D_GNU_SOURCE -I. -Wall -Wextra -Werror -Os -static -s -o $@ $<

%.a:
	@mkdir -p $(@D)
	@rm -f $@
	$(AR) rcs $@ $^

$(O)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(O)/%.o: $(O)/%.c
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

# --- SQL, embedded ------------------------------------------------------------------------------------------------

SQL_QUERIES    = $(sort $(wildcard sql/queries/*.sql))
SQL_MIGRATIONS = $(sort $(wildcard sql/migrations/*.sql))

$(O)/sql/queries.def: sql/embed.awk $(SQL_QUERIES)
	@mkdir -p $(@D)
	awk -f sql/embed.awk -v mode=queries $(SQL_QUERIES) >$@.new && mv $@.new $@

$(O)/sql/migrations.def: sql/embed.awk $(SQL_MIGRATIONS)
	@mkdir -p $(@D)
	awk -f sql/embed.awk -v mode=migrations $(SQL_MIGRATIONS) >$@.new && mv $@.new $@

# Objects of the server, and their tests, read the names of the queries.
$(call room,server server/store server/http server/run server/api server/api/control server/api/network \
            $(wildcard tests/unit/*) tests/sandbox): \
	$(O)/sql/queries.def $(O)/sql/migrations.def

# --- tests ----------------------------------------------------------------------------------------------------------

# tests/unit/ROOM/test_x.c is a program of its own, linked with its room and the ones to its left.
UNIT = $(patsubst %.c,$(O)/%,$(wildcard tests/unit/*/test_*.c))
UNIT_LIBS = -lcheck -lsubunit -lrt -lm

$(O)/tests/unit/common/%: $(O)/tests/unit/common/%.o $(COMMON_A)
	$(CC) $(LDFLAGS) -o $@ $^ $(UNIT_LIBS) -lcrypto
$(O)/tests/unit/store/%: $(O)/tests/unit/store/%.o $(STORE_A)
	$(CC) $(LDFLAGS) -o $@ $< $(call WHOLE,$(O)/store.a) $(COMMON_A) $(UNIT_LIBS) $(SERVER_LIBS)
$(O)/tests/unit/http/%: $(O)/tests/unit/http/%.o $(HTTP_A)
	$(CC) $(LDFLAGS) -o $@ $< -Wl,--start-group $(HTTP_A) -Wl,--end-group $(UNIT_LIBS) $(SERVER_LIBS)
$(O)/tests/unit/run/%: $(O)/tests/unit/run/%.o $(RUN_A)
	$(CC) $(LDFLAGS) -o $@ $< -Wl,--start-group $(RUN_A) -Wl,--end-group $(UNIT_LIBS) $(SERVER_LIBS)
$(O)/tests/sandbox/%: $(O)/tests/sandbox/%.o $(O)/supervisor.a $(O)/run.a $(STORE_A)
	$(CC) $(LDFLAGS) -o $@ $^ $(UNIT_LIBS) $(SUPERVISOR_LIBS) $(SERVER_LIBS)

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: clean
clean: ## remove what was built
	rm -rf build

-include $(shell find $(O) -name '*.d' 2>/dev/null)
.SECONDARY:

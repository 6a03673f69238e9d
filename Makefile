# corral. `make help` lists the targets.

PREFIX  ?= /usr/local
DESTDIR ?=

# Where the programs of a build go. scripts/package/cross builds those of another architecture elsewhere.
BIN     ?= bin

# All programs of one build carry one version.
VERSION  = $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
DATE     = $(shell git log -1 --format=%cs 2>/dev/null)

# sudo resets PATH, and go.dev installs Go where that does not look.
export PATH := $(PATH):/usr/local/go/bin
GO      ?= go
# seccomp: without this tag, libcontainer is built without filters, and reports that only when a jail starts.
TAGS    := seccomp
# netgo, osusergo: without C they change nothing but which sources of net are read. With them 28 packages, net and those that import it,
# are compiled once for the static programs and for tests. corrald asks for no host, and looks users up as the C library does.
PURE    := $(TAGS),netgo,osusergo
# -buildvcs=false: VERSION is the version, and root cannot read the history of a checkout that a user owns.
LDFLAGS  = -s -w -X corral/internal/version.Version=$(VERSION)
# -w leaves out the DWARF anyway: without it, compiling takes a tenth less time, and with GOGC a little less again, for some 100 MB.
# With the flags of scripts/test, a package is compiled once for programs and tests.
COMPILE  = -trimpath -gcflags=all=-dwarf=false
BUILD    = build $(COMPILE) -buildvcs=false -ldflags '$(LDFLAGS)'
GO_GC    = GOGC=400

# Each directory of cmd/ that has Go is a program. Those linked with libcontainer and libseccomp need C; the others are
# static, because they run where there is no library.
PROGRAMS     := $(sort $(patsubst cmd/%/,%,$(dir $(wildcard cmd/*/*.go))))
CGO_PROGRAMS := corrald
STATIC       := $(filter-out $(CGO_PROGRAMS),$(PROGRAMS))

# The stub is started for every job and becomes it. It has no C library, whose start-up would be most of its time. The
# stack protector, which some distributions enable, would need that library.
STUB_DIR    := cmd/corral-init/stub
STUB_SRC    := $(wildcard $(STUB_DIR)/*.c)
STUB_HDR    := $(wildcard $(STUB_DIR)/*.h)
# Nothing unwinds the stack of the stub: tables for that would be a tenth of the file.
STUB_CFLAGS ?= -std=c11 -O2 -Wall -Wextra -Werror -ffreestanding -nostdlib -static -fno-stack-protector \
	-fno-asynchronous-unwind-tables -s
STUB        := $(if $(STUB_SRC),corral-stub)
# The stub for tests that show what a step of confinement prevents: it leaves out those that it is told to. It is neither installed nor
# packaged, and the other one has no code for it.
TEST_STUB   := $(if $(STUB_SRC),corral-stub-test)

SHELL_SCRIPTS = $(shell grep -rlE '^\#!.*\b(ba|da|)sh\b' scripts bench .ci)

.DEFAULT_GOAL := build

# `sudo make` in a checkout of a user leaves nothing of root's there: see scripts/root-tree.
ifeq ($(ROOT_TREE)$(shell [ "$$(id -u)" != 0 ] || scripts/root-tree --fit || echo unfit),unfit)
GOALS := $(or $(MAKECMDGOALS),build)
.PHONY: $(GOALS) root-tree
$(GOALS): root-tree ;
root-tree:
	@scripts/root-tree --make '$(MAKE)' $(GOALS)
else
.PHONY: build manual demo test test-unit test-setup test-build test-vm cover soak check check-fmt words vet lint shellcheck newer bench fuzz mutants \
	fmt install installable uninstall package release test-package clean help static setup-build setup-vm FORCE

build: setup-build $(addprefix $(BIN)/,$(PROGRAMS) $(STUB) $(TEST_STUB)) manual ## the programs with their manual, into bin/

setup-build:
	@scripts/setup build

# go decides what is out of date, so it runs each time: once for all of them, because it takes longest to find that nothing is.
$(addprefix $(BIN)/,$(STATIC)): static ;
static: | setup-build
	@mkdir -p $(BIN)
	CGO_ENABLED=0 $(GO_GC) $(GO) $(BUILD) -tags '$(PURE)' -o $(BIN)/ $(addprefix ./cmd/,$(STATIC))
	@ln -sf corral $(BIN)/corral-shell

$(addprefix $(BIN)/,$(filter $(CGO_PROGRAMS),$(PROGRAMS))): $(BIN)/%: FORCE | setup-build
	CGO_ENABLED=1 $(GO_GC) $(GO) $(BUILD) -tags '$(TAGS),netgo' -o $@ ./cmd/$*

# The manual pages and completion scripts are those of the help texts. The generator runs here, whatever the programs are
# built for.
manual: | setup-build ## manual pages and completion scripts, into bin/share
	@rm -rf '$(BIN)/share'
	GOOS= GOARCH= CGO_ENABLED=0 $(GO) run $(COMPILE) -buildvcs=false -tags '$(PURE)' -ldflags '$(LDFLAGS)' ./scripts/manual \
		-date '$(DATE)' $(BIN)/share

$(BIN)/corral-stub: $(STUB_SRC) $(STUB_HDR) Makefile | setup-build
	@mkdir -p $(BIN)
	$(CC) $(STUB_CFLAGS) -o $@ $(STUB_SRC)

$(BIN)/corral-stub-test: $(STUB_SRC) $(STUB_HDR) Makefile | setup-build
	@mkdir -p $(BIN)
	$(CC) $(STUB_CFLAGS) -DTEST_STUB -o $@ $(STUB_SRC)

FORCE:

demo: build ## show what it does, on this machine
	scripts/demo

# A selection of tests, as in `make test PKG=./isolate RUN=TestLayers`. A selection is not run in the guest, and with the race detector
# only with RACE=1.
PKG ?=
RUN ?=
RACE ?=
CHOICE = $(if $(PKG),-pkg '$(PKG)') $(if $(RUN),-run '$(RUN)')
# With the flags of the static programs and of the tests, the packages that it imports are compiled once for all of them.
RUN_TESTS = $(GO) run $(COMPILE) -tags '$(PURE)' ./scripts/test

test: test-setup setup-vm test-build ## all tests, as root: here, and in a guest with pure cgroup v2; PKG=./isolate RUN=TestX for some (RACE=1 with the race detector)
	$(RUN_TESTS) all $(if $(strip $(CHOICE)),$(CHOICE) $(if $(RACE),-race),-guest -race)

test-unit: ## tests that need neither root nor programs nor a kernel's feature, as any user, in a minute; PKG, RUN
	$(RUN_TESTS) unit $(CHOICE)
	$(if $(strip $(CHOICE)),,$(GO) test -C bench -tags '$(TAGS)' ./...)

test-setup:
	@[ "$$(id -u)" = 0 ] || { echo 'run as root: make test installs packages and runs root tests; make test-unit does not' >&2; exit 1; }
	scripts/setup test

# What scripts/setup-clients installs is for the packages whose tests name its directory: a selection of others does without. It is
# downloaded while the compiler works.
test-build: test-setup
	@{ files=$$($(GO) list -f '{{.Dir}}/*_test.go' $(or $(PKG),./...)) && for name in clients agents; do \
		! grep -qsF ".cache/$$name" $$files || scripts/setup-clients $$name || exit 1; \
	done; } & clients=$$!; \
	$(MAKE) --no-print-directory build; built=$$?; \
	wait $$clients && exit $$built

setup-vm:
	@. /etc/os-release; [ "$$ID" != debian ] || scripts/setup vm

cover: test-build ## line coverage of each package by all tests, as root, into coverage.out; PKG, RUN
	$(RUN_TESTS) all $(CHOICE) -cover coverage.out

soak: test-setup setup-vm test-build ## everything in full, for hours, as root; continues where it was stopped (scripts/soak has options)
	scripts/soak

test-vm: setup-vm build ## the root tests in a guest with pure cgroup v2 (scripts/test-vm has options)
	scripts/test-vm

check: check-fmt words vet lint shellcheck newer ## format, words, vet and lint

check-fmt:
	@scripts/lint fmt --diff || { echo 'not formatted: run make fmt' >&2; exit 1; }

words: ## phrases that readers stumble over
	@scripts/words

vet: setup-build
	scripts/vet

lint: setup-build
	scripts/lint

shellcheck:
	@scripts/setup lint
	shellcheck $(SHELL_SCRIPTS)

# Where no module proxy answers, it says nothing.
newer: ## says which package that isolates has a newer patch release
	@for m in github.com/opencontainers/runc github.com/containerd/cgroups/v3 github.com/seccomp/libseccomp-golang; do \
		new=$$(timeout 20 go list -m $$m@patch 2>/dev/null) || continue; [ "$$new" = "$$(go list -m $$m)" ] || echo "newer patch release: $$new (go get $$m@patch)"; \
	done

bench: build ## corral beside bare processes and its peers, into docs/explanation/performance.md; as root
	scripts/setup bench
	bench/all --bin bin

fuzz: setup-build ## each fuzz target for FUZZTIME (30s)
	scripts/fuzz

mutants: setup-build ## leave out each check on the way to the network in turn: a test must fail; as root
	$(GO) run ./scripts/mutants

fmt: ## format the Go code
	scripts/lint fmt

BINDIR  = $(DESTDIR)$(PREFIX)/bin
LIBDIR  = $(DESTDIR)$(PREFIX)/lib/corral
UNITDIR = $(DESTDIR)$(PREFIX)/lib/systemd/system
UNITS   = $(wildcard scripts/*.service scripts/*.socket)
OTHERS  = $(filter-out corral,$(PROGRAMS) $(STUB))

# Group corral and the user of corral-serve, made by systemd-sysusers(8).
SYSUSERSDIR = $(DESTDIR)$(PREFIX)/lib/sysusers.d
TMPFILESDIR = $(DESTDIR)$(PREFIX)/lib/tmpfiles.d
SHAREDIR = $(DESTDIR)$(PREFIX)/share
# What Prometheus and Grafana read.
MONITORING = $(addprefix scripts/monitoring/,corral-dashboard.json corral-alerts.yaml corral-prometheus.yaml)

# People start corral; corral or root starts the others, from a directory that only root can write. So only root installs,
# except into DESTDIR, for a package. What is in bin/ is installed as it is, and only what is missing is built:
# the PATH of sudo may have no go.
installable: $(filter-out $(wildcard $(BIN)/*),$(addprefix $(BIN)/,$(PROGRAMS) $(STUB))) $(if $(wildcard $(BIN)/share),,manual)
	@:
install: installable ## the programs of bin/ into PREFIX (/usr/local)
	@[ -n '$(DESTDIR)' ] || [ "$$(id -u)" = 0 ] || { echo 'run as root: programs that root starts must be owned by root' >&2; exit 1; }
	install -d -m 0755 '$(BINDIR)' '$(LIBDIR)' '$(UNITDIR)' '$(SYSUSERSDIR)' '$(TMPFILESDIR)'
	install -m 0755 '$(BIN)/corral' '$(BINDIR)/corral'
	ln -sf corral '$(BINDIR)/corral-shell'
	install -m 0755 $(addprefix $(BIN)/,$(OTHERS)) '$(LIBDIR)/'
	install -d -m 0755 '$(SHAREDIR)/man/man1' '$(SHAREDIR)/man/man8' '$(SHAREDIR)/bash-completion/completions' \
		'$(SHAREDIR)/zsh/site-functions' '$(SHAREDIR)/fish/vendor_completions.d'
	install -m 0644 $(BIN)/share/man1/*.1 '$(SHAREDIR)/man/man1/'
	install -m 0644 $(BIN)/share/man8/*.8 '$(SHAREDIR)/man/man8/'
	install -m 0644 $(BIN)/share/completions/corral.bash '$(SHAREDIR)/bash-completion/completions/corral'
	install -m 0644 $(BIN)/share/completions/_corral '$(SHAREDIR)/zsh/site-functions/_corral'
	install -m 0644 $(BIN)/share/completions/corral.fish '$(SHAREDIR)/fish/vendor_completions.d/corral.fish'
	install -d -m 0755 '$(SHAREDIR)/corral/ci/github'
	install -m 0755 scripts/ci/buildkite-command '$(SHAREDIR)/corral/ci/'
	install -m 0644 scripts/ci/github/action.yml '$(SHAREDIR)/corral/ci/github/'
	install -d -m 0755 '$(SHAREDIR)/corral/monitoring'
	install -m 0644 $(MONITORING) '$(SHAREDIR)/corral/monitoring/'
	install -m 0644 scripts/package/files/sysusers.conf '$(SYSUSERSDIR)/corral.conf'
	install -m 0644 scripts/package/files/tmpfiles.conf '$(TMPFILESDIR)/corral.conf'
	@for unit in $(UNITS); do \
		sed 's|@PREFIX@|$(PREFIX)|g' "$$unit" | install -m 0644 /dev/stdin '$(UNITDIR)/'"$${unit##*/}" && \
		echo "installed $(UNITDIR)/$${unit##*/}" || exit 1; \
	done
	@[ -n '$(DESTDIR)' ] || echo 'next: systemd-sysusers && systemctl daemon-reload && systemctl enable --now corrald'

uninstall: ## what install has put there
	rm -f '$(BINDIR)/corral' '$(BINDIR)/corral-shell' $(foreach p,$(OTHERS),'$(LIBDIR)/$(p)') $(foreach u,$(notdir $(UNITS)) corral.service,'$(UNITDIR)/$(u)')
	rm -f '$(SYSUSERSDIR)/corral.conf' '$(TMPFILESDIR)/corral.conf'
	rm -f '$(SHAREDIR)/man/man1/corral.1' '$(SHAREDIR)'/man/man1/corral-*.1 '$(SHAREDIR)/man/man8/corrald.8' \
		'$(SHAREDIR)/bash-completion/completions/corral' '$(SHAREDIR)/zsh/site-functions/_corral' \
		'$(SHAREDIR)/fish/vendor_completions.d/corral.fish' '$(SHAREDIR)/corral/ci/buildkite-command' \
		'$(SHAREDIR)/corral/ci/github/action.yml' $(foreach f,$(notdir $(MONITORING)),'$(SHAREDIR)/corral/monitoring/$(f)')
	for dir in '$(SHAREDIR)'/corral/monitoring '$(SHAREDIR)'/corral/ci/github '$(SHAREDIR)'/corral/ci '$(SHAREDIR)'/corral; do \
		[ ! -d "$$dir" ] || rmdir --ignore-fail-on-non-empty "$$dir"; done
	[ ! -d '$(LIBDIR)' ] || rmdir --ignore-fail-on-non-empty '$(LIBDIR)'
	@[ -n '$(DESTDIR)' ] || echo 'left: /etc/corral, /var/lib/corral with the audit log, group corral, and what users have in ~/.config/corral and ~/.local/state/corral'

# Empty: this machine's.
ARCH ?=

package: $(if $(ARCH),,build) ## deb, rpm, a tarball and their bill of materials, into dist/; ARCH=arm64 for that architecture
	$(if $(ARCH),scripts/package/cross $(ARCH),scripts/package/build)

release: ## package, after a second build in a clean clone has given the same bytes
	scripts/package/release

test-package: build setup-vm ## the package and the pages for users in bare guests with systemd, as root (scripts/package/test-guest has parts)
	scripts/package/test-guest

clean: ## what build and package have made
	rm -rf bin dist

help: ## this list
	@sed -n 's/^\([a-z][a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | awk -F '\t' '{ printf "%-12s %s\n", $$1, $$2 }'
endif

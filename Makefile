# make demo   see it work        make test   everything that must hold
GO      ?= go
PREFIX  ?= /usr/local
DESTDIR ?=
# Where mount(8) looks for its helpers; empty leaves them out.
MOUNTDIR ?= /sbin
BIN     := bin/sessionfs
SHARE    = $(DESTDIR)$(PREFIX)/share
ZSHDIR  ?= $(PREFIX)/share/zsh/site-functions
# systemd's user manager looks into lib below /usr and /usr/local, and into
# share below a home.
UNITDIR ?= $(PREFIX)/$(if $(filter /home/% $(HOME)/%,$(PREFIX)),share,lib)/systemd/user
COMPLETIONS = '$(SHARE)/bash-completion/completions/sessionfs' '$(DESTDIR)$(ZSHDIR)/_sessionfs' \
	'$(SHARE)/fish/vendor_completions.d/sessionfs.fish'
# The build information has a version only for a tagged, clean checkout that
# was built with VCS stamping, so git describe fills in.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
# Linker flags beside the version. "make deb" strips the package's binary.
LDFLAGS ?=
# The time of everything in the package; that of the commit makes a build
# repeatable.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)
MAINTAINER ?= sessionfs authors <sessionfs@users.noreply.github.com>

.PHONY: all demo test build install uninstall deb bench gobench lint man clean

all: build

build:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS) -X main.version=$(VERSION)' -o $(BIN) ./cmd/sessionfs

demo:
	@GO='$(GO)' bash test/demo/demo.sh

test:
	@GO='$(GO)' bash test/all.sh

lint:
	@GO='$(GO)' bash test/all.sh lint

$(BIN):
	$(MAKE) build

# Installs what was built, so that "sudo make install" needs no Go. 0755 and
# 0644 whatever the umask, as packagers expect.
install: $(BIN)
	install -d '$(DESTDIR)$(PREFIX)/bin' '$(DESTDIR)$(PREFIX)/share/man/man1'
	install -m 0755 $(BIN) '$(DESTDIR)$(PREFIX)/bin/sessionfs'
	install -m 0644 docs/sessionfs.1 '$(DESTDIR)$(PREFIX)/share/man/man1/sessionfs.1'
	install -d '$(DESTDIR)$(UNITDIR)'
	sed 's|@BINDIR@|$(PREFIX)/bin|' contrib/systemd/sessionfs.service.in > '$(DESTDIR)$(UNITDIR)/sessionfs.service'
	chmod 0644 '$(DESTDIR)$(UNITDIR)/sessionfs.service'
# The helpers of mount(8) lie outside PREFIX: who installs into a home has none.
	@if [ -n '$(MOUNTDIR)' ] && { [ -n '$(DESTDIR)' ] || [ -w '$(MOUNTDIR)' ]; }; then \
		install -d '$(DESTDIR)$(MOUNTDIR)' && \
		ln -sf '$(PREFIX)/bin/sessionfs' '$(DESTDIR)$(MOUNTDIR)/mount.sessionfs' && \
		ln -sf '$(PREFIX)/bin/sessionfs' '$(DESTDIR)$(MOUNTDIR)/mount.fuse.sessionfs'; \
	fi
	install -d '$(SHARE)/bash-completion/completions' '$(DESTDIR)$(ZSHDIR)' '$(SHARE)/fish/vendor_completions.d'
	$(BIN) completion bash > '$(SHARE)/bash-completion/completions/sessionfs'
	$(BIN) completion zsh > '$(DESTDIR)$(ZSHDIR)/_sessionfs'
	$(BIN) completion fish > '$(SHARE)/fish/vendor_completions.d/sessionfs.fish'
	chmod 0644 $(COMPLETIONS)

uninstall:
	rm -f '$(DESTDIR)$(PREFIX)/bin/sessionfs' '$(DESTDIR)$(PREFIX)/share/man/man1/sessionfs.1' $(COMPLETIONS) \
		'$(DESTDIR)$(UNITDIR)/sessionfs.service'
	@for helper in mount.sessionfs mount.fuse.sessionfs; do \
		if [ -n '$(MOUNTDIR)' ] && [ "$$(readlink '$(DESTDIR)$(MOUNTDIR)/'$$helper)" = '$(PREFIX)/bin/sessionfs' ]; then \
			rm -f '$(DESTDIR)$(MOUNTDIR)/'$$helper; \
		fi; \
	done

# A Debian package in bin/. It is for the machine that builds it.
deb:
	$(MAKE) build BIN=bin/deb/sessionfs LDFLAGS='-s -w'
	@BIN=bin/deb/sessionfs OUT=bin VERSION='$(VERSION)' SOURCE_DATE_EPOCH='$(SOURCE_DATE_EPOCH)' \
		MAINTAINER='$(MAINTAINER)' bash contrib/debian/build.sh

# Every figure of docs/performance.md beside its bound: 15 minutes at most,
# BENCH=quick 2. BENCHFLAGS='-only ^commit/' and others: bin/bench -help.
bench:
	@$(GO) build -trimpath -o bin/bench ./test/bench
	@bin/bench $(BENCHFLAGS)

# Go's own benchmarks of the hot paths.
gobench:
	$(GO) test -run '^$$' -bench . -benchmem -p 1 ./...

# docs/sessionfs.1 is made from docs/sessionfs.1.md; a test compares them.
man:
	$(GO) test ./cmd/sessionfs -run TestManPageIsRendered -count=1 -update

# A mount below demo/ is taken away first, so that rm never walks into it.
clean:
	@if grep -qs ' $(CURDIR)/demo/mnt fuse' /proc/mounts; then \
		export XDG_STATE_HOME='$(CURDIR)/demo/state'; \
		$(BIN) umount demo/mnt || $(BIN) umount --lazy demo/mnt; \
	fi
	rm -rf bin demo

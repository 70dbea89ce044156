package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
)

// mount(8) runs a helper that is named after the filesystem's type, and so
// does what reads /etc/fstab. This program is that helper when it is called by
// one of these names, which are links to it.
var helperNames = []string{"mount.sessionfs", "mount.fuse.sessionfs"}

// The exit statuses of a helper, as mount(8) documents them.
const (
	helperUsage  = 1  // a wrong invocation
	helperFailed = 32 // a mount that failed
)

// ownStore are sources that mean the store that is used without a name.
var ownStore = []string{"none", "sessionfs", "default"}

// start runs the program under the name that it was called by.
func start(argv []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(argv) == 0 {
		return run(context.Background(), nil, stdin, stdout, stderr)
	}
	if !slices.Contains(helperNames, filepath.Base(argv[0])) {
		return run(context.Background(), argv[1:], stdin, stdout, stderr)
	}
	args, fake, err := helperArgs(argv[1:])
	if err != nil {
		fmt.Fprintf(stderr, "%s: %s\n", filepath.Base(argv[0]), escaped(err.Error()))
		return helperUsage
	}
	if fake {
		return exitOK
	}
	ensureHome()
	os.Args[0] = "sessionfs" // the process that serves the mount is no helper
	// What says that the mount is ready is for those who watch; mount(8) is
	// silent when all is well.
	switch run(context.Background(), args, stdin, io.Discard, stderr) {
	case exitOK:
		return exitOK
	case exitUsage:
		return helperUsage
	}
	return helperFailed
}

// helperArgs turns the arguments that mount(8) gives, SOURCE DIRECTORY and
// options, into a command line of this program. Fake asks for no mount.
func helperArgs(args []string) (line []string, fake bool, err error) {
	var places, options []string
	sloppy := false
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; arg {
		case "-o", "-t", "-N":
			if i++; i == len(args) {
				return nil, false, fmt.Errorf("%s needs a value", arg)
			}
			if arg == "-N" {
				return nil, false, fmt.Errorf("mount namespaces (-N) are not supported")
			}
			if arg == "-o" {
				options = append(options, strings.Split(args[i], ",")...)
			}
		case "-f":
			fake = true
		case "-s":
			sloppy = true
		case "-n", "-v":
		default:
			if strings.HasPrefix(arg, "-") {
				return nil, false, fmt.Errorf("unknown option %s", arg)
			}
			places = append(places, arg)
		}
	}
	if len(places) != 2 {
		return nil, false, fmt.Errorf("usage: mount -t fuse.sessionfs [-o OPTIONS] STORE DIRECTORY; \"none\" is the default store")
	}
	line = []string{"mount", "--background"}
	if !slices.Contains(ownStore, places[0]) {
		line = append(line, "--store", places[0])
	}
	for _, word := range options {
		if mountOnly(word) || sloppy && !knownOption(word) {
			continue
		}
		line = append(line, "-o", word)
	}
	return append(line, "--", places[1]), fake, nil
}

// mountOnly reports whether a word is for mount(8) alone, which hands it on.
// What loosens a mount is among them: mount(8) says "dev" and "suid" to undo
// what its own "user" brings along, and the mount stays as it is, without.
func mountOnly(word string) bool {
	key, _, _ := strings.Cut(word, "=")
	return slices.Contains([]string{"", "dev", "suid", "exec", "relatime", "user", "comment", "helper", "nofail"}, key)
}

// knownOption reports whether the mount command takes a word.
func knownOption(word string) bool {
	var o mountOptions
	return o.option(newMountCommand(&app{}), word) == nil
}

// ensureHome sets HOME where it is missing, as it is when a system mounts what
// its fstab lists: the mount keeps what could not be applied below it.
func ensureHome() {
	if os.Getenv("HOME") != "" {
		return
	}
	if u, err := user.Current(); err == nil && u.HomeDir != "" {
		os.Setenv("HOME", u.HomeDir)
	}
}

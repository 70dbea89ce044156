package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// mountOptions is a parsed "mount" command line.
type mountOptions struct {
	readOnly, allowOther, background bool
	options                          []string // values of -o, as given

	metricsAddr string // "" serves no figures
	pprof       bool

	reconcile string // auto, always or never; "" is auto
	gitSync   string // batch or off; "" is batch

	nonEmpty    bool
	commitTrees bool     // commits/ shows directories
	passed      []string // options that the mount itself takes
}

// passedOptions are -o words that are handed on to the mount as they are.
var passedOptions = []string{"nosuid", "nodev", "noexec", "noatime", "handles"}

// ignoredOptions are -o words that say what is so anyway, or that only
// fstab(5) and mount(8) act on.
var ignoredOptions = []string{"rw", "auto", "noauto", "user", "users", "nouser", "nofail", "_netdev", "defaults", "async"}

// parse takes the -o lists apart. An option that sessionfs does not know is
// refused: to ignore it would be to mount something else than was asked for.
func (o *mountOptions) parse(cmd *cobra.Command) error {
	for _, list := range o.options {
		for _, word := range strings.Split(list, ",") {
			if err := o.option(cmd, strings.TrimSpace(word)); err != nil {
				return err
			}
		}
	}
	if !slices.Contains([]string{"", "auto", "always", "never"}, o.reconcile) {
		return usagef(cmd, "%s: --reconcile %q: say auto, always or never", cmd.Name(), o.reconcile)
	}
	if !slices.Contains([]string{"", "batch", "off"}, o.gitSync) {
		return usagef(cmd, "%s: --git-sync %q: say batch or off", cmd.Name(), o.gitSync)
	}
	if o.pprof && o.metricsAddr == "" {
		return usagef(cmd, "%s: --pprof needs --metrics-addr", cmd.Name())
	}
	if _, err := loopback(o.metricsAddr); err != nil {
		return usagef(cmd, "%s: --metrics-addr %q: %w", cmd.Name(), o.metricsAddr, err)
	}
	return nil
}

func (o *mountOptions) option(cmd *cobra.Command, word string) error {
	key, value, valued := strings.Cut(word, "=")
	switch {
	case word == "":
		return nil
	case word == "ro":
		o.readOnly = true
	case word == "allow_other":
		o.allowOther = true
	case word == "nonempty":
		o.nonEmpty = true
	case word == "commits=tree", word == "commits=text":
		o.commitTrees = value == "tree"
	case key == "fsname" && valued && value != "":
		o.passed = append(o.passed, word)
	case slices.Contains(passedOptions, word):
		o.passed = append(o.passed, word)
	case slices.Contains(ignoredOptions, word), strings.HasPrefix(word, "x-"):
		return nil
	default:
		return failf(exitUsage,
			"known are ro, rw, allow_other, nonempty, commits=tree, fsname=NAME, "+strings.Join(passedOptions, ", "),
			"%s: unknown mount option %q", cmd.Name(), word)
	}
	return nil
}

// args returns the command line that a detached process needs to make the
// same mount.
func (o *mountOptions) args() []string {
	var args []string
	if o.readOnly {
		args = append(args, "--read-only")
	}
	if o.allowOther {
		args = append(args, "--allow-other")
	}
	if o.nonEmpty {
		args = append(args, "-o", "nonempty")
	}
	if o.commitTrees {
		args = append(args, "-o", "commits=tree")
	}
	if o.metricsAddr != "" {
		args = append(args, "--metrics-addr", o.metricsAddr)
	}
	if o.pprof {
		args = append(args, "--pprof")
	}
	if o.reconcile != "" {
		args = append(args, "--reconcile", o.reconcile)
	}
	if o.gitSync != "" {
		args = append(args, "--git-sync", o.gitSync)
	}
	for _, word := range o.passed {
		args = append(args, "-o", word)
	}
	return args
}

// forTree returns the options that the mounted tree takes. The store is the
// mount's source, as findmnt(8) and df(1) show it, unless another name is
// given or its path cannot stand in a list of options.
func (o *mountOptions) forTree(root string) []string {
	options := slices.Clone(o.passed)
	if o.nonEmpty {
		options = append(options, "nonempty")
	}
	named := slices.ContainsFunc(options, func(w string) bool { return strings.HasPrefix(w, "fsname=") })
	if !named && !strings.ContainsAny(root, ",\\") {
		options = append(options, "fsname="+root)
	}
	return options
}
